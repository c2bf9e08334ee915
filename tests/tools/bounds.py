"""The bounds in tests/data/cases.h5, and in a larger case: a right implementation stays within them, a slightly wrong one does
not."""

import os
import statistics
import subprocess
import sys
import tempfile

import harness  # first: it finds the interpreter that has the others

import numpy as np
from simulate import cases

with tempfile.TemporaryDirectory() as _folder:
    _larger = os.path.join(_folder, "larger.h5")
    _tool = os.path.join(harness.TOOLS, "make_cases.py")
    subprocess.run(
        [sys.executable, _tool, "--torch", "off", "--set", "triton", "--filter", "*-softmax", _larger],
        check=True,
    )
    ALL = cases(harness.CASES) + cases(_larger)
RESULTS = {case.name: case.run() for case in ALL}


def tensors(case):
    return {**case.expected, **case.expected_grad}.items()


def errors(case, name, tensor):
    got, want = RESULTS[case.name][name], tensor.values
    finite = np.isfinite(want)
    assert np.array_equal(
        got[~finite], want[~finite], equal_nan=True
    ), f"{case.name}: {name}: not the same NaN or infinity"
    return np.abs(got[finite] - want[finite])


def test_bounds_are_bounds():
    for case in ALL:
        for name, tensor in tensors(case):
            for bound in (tensor.atol, tensor.rtol):
                assert bound is not None and 0 <= bound < np.inf, f"{case.name}: {name}: {bound}"


def test_a_right_implementation_is_within():
    outside = []
    for case in ALL:
        for name, tensor in tensors(case):
            error, bound = errors(case, name, tensor), tensor.bound()[np.isfinite(tensor.values)]
            if (error > bound).any():
                outside.append(f"{case.name}: {name}: {np.max(error / bound)} of the bound")
    assert not outside, "\n".join(outside)


def test_bounds_are_near_the_errors():
    """Bound over error, of the worst element of each tensor."""
    ratios = {}
    for case in ALL:
        for name, tensor in tensors(case):
            error, bound = errors(case, name, tensor), tensor.bound()[np.isfinite(tensor.values)]
            if error.any():
                ratios[f"{case.name}: {name}"] = np.min(bound[error > 0] / error[error > 0])
    middle = statistics.median(ratios.values())
    worst = max(ratios, key=ratios.get)
    print(f"bound over error: median {middle:.1f}, most {ratios[worst]:.0f} ({worst}), {len(ratios)} tensors")
    assert middle <= 100


def test_sixteen_ulp_are_seen():
    """In any element, either way, but of losses and of sums over rows."""
    passed = []
    for case in ALL:
        for name, tensor in tensors(case):
            if name[1:] in case.params or name.startswith("loss") or tensor.sixteen_ulp() == 0:
                continue
            finite = np.isfinite(tensor.values)
            left = tensor.sixteen_ulp() - errors(case, name, tensor) - tensor.bound()[finite]
            if (left <= 0).any():
                passed.append(f"{case.name}: {name}: {np.min(left) / tensor.sixteen_ulp() * 16} ulp")
    assert not passed, "\n".join(passed)


def test_a_dropped_row_is_seen():
    """The row of median weight, dropped from a gradient of a parameter."""
    passed, count = [], 0
    for case in ALL:
        dy = case.upstream.get("dy")
        gradients = [(name, tensor) for name, tensor in case.expected_grad.items() if name[1:] in case.params]
        if not gradients or len(dy.values) == 0:
            continue
        alone = []
        for row in range(len(dy.values)):
            only = np.zeros_like(dy.values)
            only[row] = dy.values[row]
            alone.append(case.run({"dy": only}))
        for name, tensor in gradients:
            weights = [np.abs(results[name]).sum() for results in alone]
            median = np.argsort(weights)[len(weights) // 2]
            if weights[median] == 0:
                continue
            count += 1
            wrong = RESULTS[case.name][name] - alone[median][name]
            if not (np.abs(wrong - tensor.values) > tensor.bound()).any():
                passed.append(f"{case.name}: {name}")
    assert count > 100
    assert not passed, "\n".join(passed)


harness.run_tests()
