"""make_cases.py reproduces the committed file, and a case can be written with h5py alone."""

import os
import re
import subprocess
import sys
import tempfile

import harness  # first: it finds the interpreter that has the others

import h5py
import numpy as np
from simulate import cases

TOOL = os.path.join(harness.TOOLS, "make_cases.py")
SETS = ("small", "jax", "triton", "xformers", "long")


def run(*args, code=0):
    result = subprocess.run([sys.executable, TOOL, *args], text=True, capture_output=True)
    said = f"make_cases.py {' '.join(args)}: code {result.returncode}\n{result.stdout}{result.stderr}"
    assert result.returncode == code, said
    return result


def made_by(path):
    with h5py.File(path, "r") as file:
        return file.attrs["made_by"].decode()


def everything(path):
    """All groups, attributes and values of a file, values by their bytes."""
    found = {}

    def visit(name, item):
        value = None
        if isinstance(item, h5py.Dataset):
            raw = np.empty(item.shape, f"V{item.id.get_type().get_size()}")
            if raw.size:
                item.id.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, item.id.get_type())
            value = (item.shape, item.id.get_type().encode(), raw.tobytes())
        found[name] = (value, {key: np.asarray(attribute).tolist() for key, attribute in item.attrs.items()})

    with h5py.File(path, "r") as file:
        visit("/", file)
        file.visititems(visit)
    found["/"][1].pop("made_by")
    return found


def assert_same(ours, theirs):
    """Equal except in the last digits of computed values: NumPy's long double functions differ between machines."""
    assert ours.keys() == theirs.keys()
    for name, (value, attributes) in ours.items():
        (other, others), computed = theirs[name], "/expected" in name
        assert attributes.keys() == others.keys() and (value is None) == (other is None), name
        for key in attributes:
            same = np.allclose if computed and key in ("atol", "rtol") else np.array_equal
            assert same(attributes[key], others[key]), f"{name}: {key}"
        if value == other:
            continue
        assert computed and value[:2] == other[:2], name
        one, two = np.frombuffer(value[2]), np.frombuffer(other[2])
        scale = np.abs(two[np.isfinite(two)]).max()
        assert np.allclose(one, two, rtol=0, atol=1e-14 * scale, equal_nan=True), name


def test_the_committed_file_is_reproduced():
    with tempfile.TemporaryDirectory() as folder:
        made = [os.path.join(folder, name) for name in ("one.h5", "two.h5")]
        for path in made:
            run("--torch", "off", path)
        contents = [open(path, "rb").read() for path in (*made, harness.CASES)]
        assert contents[0] == contents[1], "two runs differ"
        ours, theirs = made_by(made[0]), made_by(harness.CASES)
        if ours.split(", ")[2] != theirs.split(", ")[2]:
            harness.skip(f"another long double than the committed file's: {ours}")
        if ours == theirs:
            assert contents[0] == contents[2], "not the cases of tools/cases/: run tools/make_cases.py tests/data/cases.h5"
        assert_same(everything(made[0]), everything(harness.CASES))


def test_the_committed_file_is_small():
    assert os.path.getsize(harness.CASES) <= 3_000_000


def test_a_filter_gives_the_same_case():
    name = "cross-entropy-bf16"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "one.h5")
        run("--torch", "off", "--filter", name, path)
        ours, (theirs,) = everything(harness.CASES), cases(path)
        assert theirs.name == name
        for key, value in everything(path).items():
            assert ours[key] == value, key


def test_the_second_reference():
    """PyTorch, if it is installed, agrees."""
    try:
        import torch  # noqa: F401
    except ImportError:
        harness.skip("no PyTorch here")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "agreed.h5")
        assert "agreed on with PyTorch" in run("--torch", "on", path).stdout
        assert_same(everything(path), everything(harness.CASES))


def test_a_disagreement_is_refused():
    """Here the first reference takes the second's place, exactly and slightly wrong."""
    from cases.record import CaseFile, Recorder
    from cases.sets import small

    case = dict(small())["softmax-f32"]
    with tempfile.TemporaryDirectory() as folder:
        file = CaseFile(os.path.join(folder, "wrong.h5"), torch=True)
        for error in (0.0, 1e-10):
            results = {"y": 1, "dx": 1 + error}
            case._second = lambda torch, *given: {
                name: result.value * factor
                for (name, factor), result in zip(results.items(), case._both(*given))
            }
            message = None
            try:
                case.run(Recorder(file, f"case-{error}", case.layer, case.options, {}))
            except ArithmeticError as refusal:
                message = str(refusal)
            assert bool(message) == bool(error), (error, message)
        assert message.startswith("case-1e-10: expected_grad/dx: the references disagree"), message
        file.close()


def test_blocks_make_no_difference():
    """Large cases are computed in blocks of rows or of outputs; here small ones are, too."""
    from cases.layers import cross_entropy, linear, norm, softmax
    from cases.record import CaseFile, Recorder
    from cases.sets import small

    names = ("layernorm-shape-33x17-bf16", "log-softmax-causal-f32", "cross-entropy-f16", "linear-gelu-bf16")
    chosen = {name: case for name, case in small() if name in names}
    assert len(chosen) == len(names)
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for block in (1 << 20, 50):
            cross_entropy.BLOCK = linear.BLOCK = norm.BLOCK = softmax.BLOCK = block
            made.append(os.path.join(folder, f"{block}.h5"))
            file = CaseFile(made[-1])
            for name, case in chosen.items():
                recorder = Recorder(file, name, case.layer, case.options, case.attributes)
                case.run(recorder)
                recorder.close()
            file.close()
        for whole, parts in zip(*map(cases, made)):
            for group in ("inputs", "params", "upstream", "expected", "expected_grad"):
                for name, tensor in getattr(whole, group).items():
                    other = getattr(parts, group)[name]
                    where = f"{whole.name}: {group}/{name}"
                    assert np.allclose(tensor.values, other.values, rtol=1e-15, atol=1e-18), where
                    if tensor.atol is not None:
                        bounds = [(one.atol, one.rtol) for one in (tensor, other)]
                        assert np.allclose(*bounds, rtol=0.01, atol=0), where


def test_every_set_has_cases():
    names = [run("--list", "--set", name).stdout.split() for name in SETS]
    assert [len(set(some)) == len(some) > 0 for some in names] == [True] * len(SETS)
    assert {"triton-layernorm", "triton-softmax"} == set(names[2])
    kinds = {case.layer for case in cases(harness.CASES)}
    with open(os.path.join(harness.ROOT, "src", "ops", "ops.h")) as file:
        wanted = set(re.findall(r"^ *X\((\w+)\)", file.read().split("TUTTI__KINDS")[1], re.M))
    assert kinds == wanted, f"kinds without cases in tests/data/cases.h5, or cases of none: {kinds ^ wanted}"


def test_every_pairing_of_a_norm():
    wanted = {
        (x, p, y)
        for x in ("f64", "f32", "f16", "bf16")
        for p in ("f64", "f32", "f16", "bf16")
        for y in (x, p)
    }
    assert len(wanted) == 28
    for layer in ("layernorm", "rmsnorm"):
        got = {
            tuple(case.options[key] for key in ("x_dtype", "param_dtype", "y_dtype"))
            for case in cases(harness.CASES)
            if case.layer == layer
        }
        assert got == wanted, wanted - got


def test_the_malformed_files_are_reproduced():
    bad = os.path.join(harness.DATA, "bad")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, os.path.join(harness.TOOLS, "make_bad_cases.py"), folder],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        assert sorted(os.listdir(folder)) == sorted(os.listdir(bad))
        if made_by(os.path.join(bad, "good.h5")) != made_by(os.path.join(folder, "good.h5")):
            harness.skip("the committed files are of another version of HDF5")
        for name in os.listdir(bad):
            with open(os.path.join(bad, name), "rb") as a, open(os.path.join(folder, name), "rb") as b:
                assert a.read() == b.read(), name
    assert sum(os.path.getsize(os.path.join(bad, name)) for name in os.listdir(bad)) <= 200_000


def test_wrong_arguments():
    assert "OUT.h5 is missing" in run(code=2).stderr
    assert "invalid choice" in run("--set", "many", "x.h5", code=2).stderr
    with tempfile.TemporaryDirectory() as folder:
        result = run("--filter", "embedding-f32", os.path.join(folder, "no", "x.h5"), code=1)
        assert os.listdir(folder) == []
    assert "make_cases.py: " in result.stderr and "Traceback" not in result.stderr


def test_a_case_of_ones_own():
    """The program in docs/case-files.md, unchanged."""
    page = open(os.path.join(harness.ROOT, "docs", "case-files.md")).read()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(program.strip().splitlines()) <= 15
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)
        (case,) = cases(os.path.join(folder, "mine.h5"))
        for name, values in case.run().items():
            tensor = {**case.expected, **case.expected_grad}[name]
            apart = np.abs(values - tensor.values)
            assert np.all(apart <= 4 * 2.0**-8 * np.max(np.abs(tensor.values))), (name, apart.max())


harness.run_tests()
