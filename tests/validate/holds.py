"""Right layers hold: every case, on any number of ranks; and the reports of it."""

import filecmp
import os
import re
import shutil
import stat
import xml.etree.ElementTree

from rig import *

RANKS = (1, 2, 4) if BACKEND == "cuda" else (1, 3, 4)
COUNT, TENSORS = count(CASES)
OPTIONS = "filter list layers checkpoint rows seed backend transport timeout json junit emit record quiet help usage version".split()


def test_all_cases_on_any_number_of_ranks():
    for np in few(RANKS[::-1]):
        result = run(["--quiet", CASES], np).want(0)
        assert re.search(rf"^{COUNT} cases, {TENSORS} tensors on {np} ranks?: all hold; ", result.out, re.M), result


def tables():
    """The lines of --layers, split into words."""
    return [line.split() for line in run(["--layers"]).want(0).out.splitlines()]


def test_every_option_has_a_case():
    """Each option in the layers' tables with another value than its default, and each word of an enumeration."""
    given = {}
    for line in run(["--list", CASES]).want(0).out.splitlines():
        _, layer, _, _, options = line.split()
        given.setdefault(layer, set()).update(options.split(","))
    options = [(line[0], *line[2:5]) for line in tables() if line[1] == "option"]
    without = {option[0] for option in options} ^ set(given)
    assert not without and len(given) > 5, f"kinds without a case in {CASES} (tools/cases/layers/): {sorted(without)}"
    for layer, name, kind, default in options:
        missing = {f"{name}={word}" for word in kind.split("|")} - given[layer] if "|" in kind else set()
        assert not missing, f"{layer}: no case has {missing}"
        other = any(pair.startswith(f"{name}=") and pair != f"{name}={default}" for pair in given[layer])
        assert other, f"{layer}: no case has another {name} than its default, {default}"


def test_every_tensor_has_a_case():
    """Each input, output and parameter in the layers' tables, and the gradients that they have."""
    where = dict(input=("inputs", "expected_grad"), output=("expected", "upstream"), parameter=("params", "expected_grad"))
    seen = {}
    with h5py.File(CASES) as file:
        for case in file["cases"].values():
            for part in case.values():
                seen.setdefault(case.attrs["layer"].decode(), set()).update(f"{part.name.split('/')[-1]}/{name}" for name in part)
    count = 0
    for layer, role, name, *more in tables():
        if role in where:
            value, gradient = where[role]
            count += 1
            wanted = {f"{value}/{name}"} | ({f"{gradient}/d{name}"} if role == "parameter" or f"d{name}" in more else set())
            missing = wanted - seen.get(layer, set())
            assert not missing, f"{layer}: no case has {sorted(missing)}"
    assert count >= 25, count


def test_layers():
    lines = tables()
    assert {line[0] for line in lines} >= {"layernorm", "rmsnorm", "softmax", "linear", "cross_entropy", "embedding", "glu"}, lines
    for line in ("linear option in int - 1 to 2147483647 must be given", "linear parameter bias [out] dtype unless no_bias",
                 "rmsnorm option eps real 1e-6 from 0", "cross_entropy input labels [rows] i32 below cols",
                 "cross_entropy output loss_sum [1] f64 optional sum over rows", "layernorm kept mean [rows] f32 or f64",
                 "matmul input b [rows, k, n] dtype has db",
                 "rope input positions [rows] i32 optional below max_positions", "bce_with_logits input target [rows, cols] dtype from 0 to 1",
                 "rmsnorm output sum [rows, cols] x_dtype optional has dsum with residual backward reads it for x"):
        assert line.split() in lines, (line, lines)


def test_bounds_are_not_much_wider_than_errors():
    result = run(["--quiet", CASES]).want(0)
    assert float(re.search(r"median ([0-9.]+)", result.out)[1]) <= 100, result


def test_bounds_of_the_validators_own():
    file = edited(without_bounds)
    for np in few(RANKS[:2]):
        result = run(["--quiet", file], np).want(0)
        assert float(re.search(r"median ([0-9.]+)", result.out)[1]) <= 100, result


def test_own_bounds_are_those_of_the_file():
    """A bound in the file covers the whole tensor, and is not smaller than that of an element."""
    given, own = (findings(report([file])) for file in (CASES, edited(without_bounds)))
    compared = 0
    for (case, name), tensor in own.items():
        before = given[(case, name)]
        if case.startswith(("linear", "mlp")) or name not in ("y", "dx", "loss", "dlogits", "dprediction") or tensor["dtype"] == "f64":
            continue
        if "bound" in tensor and tensor["index"] == before["index"]:
            compared += 1
            assert tensor["bound"] <= 1.01 * before["bound"], (case, tensor, before)
    assert compared > 100, compared


def test_own_bounds_where_activations_end():
    """One input of 1, so z = W: where silu vanishes, where squared_relu's y underflows, and at infinity."""
    inf, e = np.inf, np.exp(np.float64(-89))
    ends = {
        "silu-f32": ([-89, -inf, inf], [-89 * e / (1 + e), 0, inf], [e * (1 + e - 89) / (1 + e) ** 2, 0, 1]),
        "gelu-f32": ([-10.5, -inf, inf], [0, 0, inf], [0, 0, 1]),
        "gelu_erf-bf16": ([-14, -inf, inf], [0, 0, inf], [0, 0, 1]),
        "squared_relu-f16": ([2.0**-13, 2.0**-12, inf], [2.0**-26, 2.0**-24, inf], [2.0**-12, 2.0**-11, inf]),
        "smelu-bf16": ([-2, -inf, inf], [0, 0, inf], [0, 0, 1]),
        "smelu-f32": ([2, 2 - 2.0**-22, 0], [2, 2 - 2.0**-22 + 2.0**-47, 0.5], [1, 1 - 2.0**-24, 0.5]),
        "star_relu-f16": ([-1, -inf, inf], [-0.4472, -0.4472, inf], [0, 0, inf]),
        "squared_relu-f32": ([2.0**-75, 2.0**-74, -inf], [2.0**-150, 2.0**-148, 0], [2.0**-74, 2.0**-73, 0]),
    }

    def write(factor):
        with h5py.File(path("ends.h5"), "w") as file:
            file.attrs["format"], file.attrs["format_version"] = "tutti-cases", [1, 0]
            for name, (z, y, slope) in ends.items():
                activation, dtype = name.split("-")
                case = file.create_group(f"cases/{name}")
                case.attrs["layer"] = "linear"
                case.attrs["options"] = f"in=1,out=3,dtype={dtype},activation={activation},no_bias=1"
                tensors = {"inputs/x": [[1]], "params/weight": np.reshape(z, (3, 1)), "upstream/dy": [[1, 1, 1]]}
                tensors["expected/y"] = [np.multiply(y, factor)]
                tensors["expected_grad/dweight"] = np.reshape(slope, (3, 1)) * factor
                for tensor, values in tensors.items():
                    wide = "f32" if "grad" in tensor and dtype != "f64" else dtype
                    case.create_dataset(tensor, data=np.asarray(values, np.float64)).attrs["dtype"] = wide
        return path("ends.h5")

    run([write(1)]).want(0)
    wrong = findings(report([write(1.001)], code=1))
    assert not any(wrong[("silu-f32", tensor)]["holds"] for tensor in ("y", "dweight")), wrong


def test_a_line_a_tensor():
    result = run(["--filter", "rmsnorm-residual-dsum-f32", CASES]).want(0)
    lines = [line for line in result.out.splitlines() if line.startswith("rmsnorm-")]
    names = ["expected/sum", "expected/y", "expected_grad/dgamma", "expected_grad/dx"]
    assert sorted(line.split()[1] for line in lines) == names, result
    assert all(line.endswith(("bits  holds", "bound holds")) for line in lines), result
    said = findings(report(["--filter", "rmsnorm-residual-dsum-f32", CASES]))
    for line in lines:
        _, name, _, *numbers = line.split()
        tensor = said[("rmsnorm-residual-dsum-f32", name.rpartition("/")[2])]
        bound = f"{tensor['bound']:.2e}" if tensor["abs"] > 0 else "-"
        assert [numbers[i] for i in (0, 1, 3)] == [f"{tensor['abs']:.2e}", f"{tensor['rel']:.2e}", bound], (line, tensor)


def test_the_gradients_of_parameters_are_compared_within_the_bound():
    said = findings(report(["--filter", "types-f32-f32-f32", CASES], 2))
    assert {tensor["compared_with_one_rank"] for (_, name), tensor in said.items() if name in ("y", "dx")} == {"bits"}
    assert {tensor["compared_with_one_rank"] for (_, name), tensor in said.items() if name == "dgamma"} == {"bound"}


def test_list():
    result = run(["--list", CASES]).want(0)
    assert len(result.out.splitlines()) == COUNT, result
    assert re.search(r"^softmax-causal-f32 +softmax +16 rows  .*causal_period=7", result.out, re.M), result


def test_filter():
    said = report(["--filter", "causal", CASES])
    assert said["holds"] and 0 < len(said["cases"]) < COUNT
    assert all("causal" in case["case"] for case in said["cases"])
    result = run(["--filter", "no-such", CASES]).want(2)
    assert "no case's name contains 'no-such'" in result.err, result


def test_json():
    said = report([CASES], RANKS[1])
    assert said["ranks"] == RANKS[1] and said["backend"] == BACKEND and said["holds"] and said["wrong"] == 0
    assert len(said["cases"]) == COUNT and said["tensors"] == len(findings(said)) == TENSORS
    for tensor in findings(said).values():
        assert tensor["holds"] and tensor.get("error_over_bound", 0) <= 1, tensor


def test_junit():
    run(["--quiet", "--junit", path("report.xml"), CASES]).want(0)
    suite = xml.etree.ElementTree.parse(path("report.xml")).getroot()
    assert suite.get("tests") == str(COUNT) and suite.get("failures") == "0" and len(suite) == COUNT


def test_several_files():
    result = run(["--quiet", "--filter", "softmax-f32", CASES, CASES]).want(0)
    assert "4 cases" in result.out, result


def test_help_and_the_document():
    result = run(["--help"]).want(0)
    with open(os.path.join(ROOT, "docs", "validate.md")) as file:
        documented = set(re.findall(r"--([a-z-]+)", file.read()))
    shown = set(re.findall(r"^(?:  -.,)? +--([a-z-]+)", result.out, re.M))
    assert shown == set(OPTIONS) and shown - {"help", "usage", "version"} <= documented, (shown ^ set(OPTIONS), shown - documented)
    assert run(["--version"]).want(0).out.startswith("tutti-validate ")


def test_wrong_command_lines():
    for args in ([], ["--no-such"], ["--timeout", "0", CASES], ["--backend", "abacus", CASES], ["--json", "", CASES],
                 ["--rows", "-1", CASES], ["--rows", "5", CASES], ["--seed", "5", CASES], ["--layers", CASES],
                 ["--emit", path("x"), "--record", path("x"), CASES], ["--json", path("x"), "--junit", path("x"), CASES]):
        run(args).want(64)
    assert run(["--transport", "abacus", CASES], 2).code == 64


def test_what_is_read_is_not_overwritten():
    """Under another name too."""
    mine, other = path("read.h5"), path("link.h5")
    shutil.copy(CASES, mine)
    os.link(mine, other)
    for option in ("--json", "--junit", "--record", "--emit"):
        for name in (mine, other):
            result = run([option, name, mine]).want(64)
            assert f"{option} would overwrite {mine}" in result.err, result
    assert filecmp.cmp(CASES, mine, False)


def test_a_file_that_is_not_there():
    result = run([path("nowhere.h5")], 2).want(2)
    assert "nowhere.h5" in result.err, result


def test_reports_that_cannot_be_written():
    for option in ("--json", "--junit", "--record", "--emit"):
        result = run(["--quiet", "--filter", "softmax-f32", option, path("no/such"), CASES]).want(2)
        assert path("no/such") in result.err and "all hold" not in result.out, result  # before any case is run


def test_only_a_file_is_replaced():
    """As root a device would be, too."""
    os.mkfifo(path("pipe"))
    os.mkdir(path("folder"))
    for option in ("--record", "--emit"):
        for there in (path("pipe"), path("folder")):
            result = run(["--quiet", "--filter", "softmax-f32", option, there, CASES], RANKS[1]).want(2)
            assert f"{there}: is not a regular file" in result.err, result
    assert stat.S_ISFIFO(os.stat(path("pipe")).st_mode)


def test_the_documents_own_case():
    """The case in docs/case-files.md, of fifteen lines and without bounds."""
    with open(os.path.join(ROOT, "docs", "case-files.md")) as file:
        code = re.search(r"```python\n(import h5py.*?)```", file.read(), re.S)[1]
    before = os.getcwd()
    os.chdir(os.path.dirname(path("x")))
    try:
        exec(compile(code, "case-files.md", "exec"), {})
    finally:
        os.chdir(before)
    for np in few(RANKS[:2]):
        assert "1 cases, 3 tensors" in run(["--quiet", path("mine.h5")], np).want(0).out


start()
