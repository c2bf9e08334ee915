"""Wrong results do not hold and are named; malformed files are refused."""

from rig import *

CASE = "layernorm-types-f32-f32-f32"
RANKS = 2 if BACKEND == "cuda" else 3


def change(where, index, by):
    def edit(file):
        file[f"cases/{CASE}/{where}"][index] += by

    return edit


def test_an_edited_value_is_named():
    for where, index, at, rank in few((("expected_grad/dx", (0, 32), "[0,32]", None), ("expected_grad/dgamma", 7, "[7]", None),
                                       ("expected/y", (2, 5), "[2,5]", 2))):
        result = run(["--quiet", edited(change(where, index, 0.01))], RANKS).want(1)
        rank = RANKS - 1 if rank == 2 else rank  # who has rows at the end
        assert CASE in result.err and where in result.err and at in result.err, result
        assert f"{at} of rank {'' if rank is None else rank}" in result.err, result
        assert "1 tensors of 1 cases do not hold" in result.err, result


def test_a_value_of_a_larger_case():
    """Of more elements than are compared at a time, made by make_cases.py."""
    tool, file, case = os.path.join(TOOLS, "make_cases.py"), path("softmax.h5"), "triton-softmax"
    subprocess.run([sys.executable, tool, "--torch", "off", "--set", "triton", "--filter", case, file], check=True,
                   stdout=subprocess.DEVNULL)
    for np in few((1, RANKS)):
        said = findings(report([file], np))
        assert {name: tensor["elements"] for (_, name), tensor in said.items()} == {"y": 1823 * 781, "dx": 1823 * 781}, said
    with h5py.File(file, "r+") as spoilt:
        for at in ((3, 5), (1822, 780)):
            spoilt[f"cases/{case}/expected/y"][at] += 1e-4
    for np in few((1, RANKS)):
        tensor = findings(report([file], np, code=1))[(case, "y")]
        assert tensor["beyond_bound"] == 2 and tensor["index"] in ("[3,5]", "[1822,780]"), tensor
        assert tensor["rank"] == (np - 1 if tensor["index"] == "[1822,780]" else 0), tensor


def test_sixteen_ulp_of_the_largest_element():
    def edit(file):
        y = file[f"cases/{CASE}/expected/y"]
        values = y[...]
        at = np.unravel_index(np.argmax(np.abs(values)), values.shape)
        y[at] = values[at] + 16 * np.spacing(np.float32(np.abs(values[at])))

    def and_no_bounds(file):
        edit(file)
        without_bounds(file)

    for spoil in (edit, and_no_bounds):
        tensor = findings(report(["--filter", CASE, edited(spoil)], code=1))[(CASE, "y")]
        assert tensor["beyond_bound"] == 1, tensor


def test_a_row_that_was_left_out_of_a_gradient():
    def edit(file):
        case = file[f"cases/{CASE}"]
        x, dy = case["inputs/x"][...].astype(float), case["upstream/dy"][...].astype(float)
        n = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6)
        case["expected_grad/dgamma"][...] -= dy[1] * n[1]

    said = findings(report(["--filter", CASE, edited(edit)], RANKS, code=1))
    assert said[(CASE, "dgamma")]["beyond_bound"] > 10 and said[(CASE, "y")]["holds"] and said[(CASE, "dx")]["holds"]


def test_json_and_junit_name_it():
    said = report(["--filter", CASE, "--junit", path("report.xml"), edited(change("expected/y", (3, 1), 0.5))], RANKS, 1)
    tensor = findings(said)[(CASE, "y")]
    assert not said["holds"] and said["wrong"] == 1 and not tensor["holds"] and tensor["index"] == "[3,1]", tensor
    assert tensor["rank"] == RANKS - 1 and abs(tensor["abs"] - 0.5) < 1e-5, tensor
    with open(path("report.xml")) as file:
        text = file.read()
    assert 'failures="1"' in text and "expected/y: 1 of" in text and "[3,1]" in text, text


def test_what_a_terminal_would_obey():
    def edit(file):
        file[f"cases/{CASE}"].attrs["layer"] = "\033[31m\u009b2J\u202e"

    def name(file):
        file.move(f"cases/{CASE}", f"cases/\u009b31m\033")

    for spoil, shown in ((edit, "?[31m??2J???"), (name, "??31m?")):
        result = run(["--filter", CASE, edited(spoil)]).want(2)
        assert shown in result.err and all(c == "\n" or c.isprintable() for c in result.out + result.err), result


def test_nan_and_infinity():
    def edit(file):
        y = file[f"cases/{CASE}/expected/y"]
        y[0, 0], y[1, 1] = np.nan, np.inf

    tensor = findings(report(["--filter", CASE, edited(edit)], code=1))[(CASE, "y")]
    assert tensor["beyond_bound"] == 2 and tensor["abs"] == "inf", tensor


# Where a NaN is put in, and where it must come out; everything else is unchanged.
ROW, ALL = (1, slice(None)), slice(None)
NANS = {
    "layernorm-types-f32-f32-f32": ("inputs/x", (1, 3), dict(y=ROW, dx=ROW, dgamma=ALL)),
    "rmsnorm-types-bf16-f32-bf16": ("inputs/x", (1, 2, 3), dict(y=ROW, dx=ROW, dgamma=ALL)),
    "softmax-f16": ("inputs/x", (1, 3), dict(y=ROW, dx=ROW)),
    "log-softmax-f64": ("inputs/x", (1, 3), dict(y=ROW, dx=ROW)),
    "cross-entropy-shape-33x17": ("inputs/logits", (1, 3), dict(loss=1, loss_sum=0, dlogits=ROW)),
    "embedding-shape-65x3x5": ("params/weight", (2, 3), dict(y=None)),  # the rows of token 2
    "linear-none-f32": ("params/weight", (2, 3), dict(y=(ALL, 2), dx=(ALL, 3))),
    "matmul-tn-f32": ("inputs/a", (1, 3, 2), dict(c=(1, 2), db=(1, 3))),  # of the second item, in line 2 of op(a)
    **{f"linear-{name}": ("inputs/x", (1, 3), dict(y=ROW, dx=ROW, dweight=ALL, dbias=ALL))
       for name in ("relu-f32", "leaky_relu-f16", "squared_relu-bf16", "gelu-f16", "gelu_erf-f32", "silu-f64", "smelu-f16", "star_relu-bf16")},
}


def nan_cases(name, expected):
    """A file of these cases; expected: whether NaN results are expected."""
    with h5py.File(CASES) as cases, h5py.File(path(name), "w") as file:
        file.attrs["format"], file.attrs["format_version"] = "tutti-cases", [1, 0]
        file.create_group("cases")
        for key, (where, at, results) in NANS.items():
            cases.copy(f"cases/{key}", file["cases"])
            case = file[f"cases/{key}"]
            given, dtype = case[where].astype(float)[...], case[where].attrs["dtype"]
            given[at] = np.nan
            del case[where]
            case.create_dataset(where, data=given).attrs["dtype"] = dtype
            for result, place in results.items() if expected else ():
                tensor = case["expected" if result in case["expected"] else "expected_grad"][result]
                values = tensor[...]
                values[(case["inputs/tokens"][...] == 2, 3) if place is None else place] = np.nan
                tensor[...] = values
    return path(name)


def test_a_nan_stays_a_nan():
    """In every kind of layer, on any rank, in exchanged gradients, and without bounds in the file."""
    file = nan_cases("nan.h5", True)
    for unbound in (False, True):
        if unbound:
            with h5py.File(file, "r+") as opened:
                without_bounds(opened)
        for ranks in few((1, RANKS)):
            assert f"{len(NANS)} cases" in run(["--quiet", file], ranks).want(0).out
    said = findings(report([nan_cases("numbers.h5", False)], RANKS, code=1))
    wrong = {key for key, tensor in said.items() if not tensor["holds"]}
    want = {(case, result) for case, (_, _, results) in NANS.items() for result in results}
    assert wrong == want, wrong ^ want


def test_a_bound_that_overflows_lets_nothing_through():
    """The validator's own bound, and the file's."""
    with h5py.File(path("overflow.h5"), "w") as file:
        file.attrs["format"], file.attrs["format_version"] = "tutti-cases", [1, 0]
        for name in ("own", "given"):
            case = file.create_group(f"cases/{name}")
            case.attrs["layer"], case.attrs["options"] = "linear", "in=2,out=1,dtype=f64,no_bias=1"
            case["inputs/x"], case["params/weight"] = np.full((3, 2), 1e200), np.full((1, 2), 1e200)
            case["expected/y"] = np.full((3, 1), 1e308)
        bound = file["cases/given/expected/y"].attrs
        bound["atol"], bound["rtol"] = 1.5e308, 1.0
    for np_ in few((1, RANKS)):
        said = findings(report([path("overflow.h5")], np_, code=1))
        assert [said[(name, "y")]["beyond_bound"] for name in ("own", "given")] == [3, 3], said


def test_emit():
    file = edited(change("expected/y", (2, 5), 0.25))
    run(["--quiet", "--emit", path("emitted.h5"), file], RANKS).want(1)
    with h5py.File(path("emitted.h5")) as emitted, h5py.File(file) as cases:
        case = emitted[f"cases/{CASE}"]
        assert list(emitted["cases"]) == [CASE] and sorted(case) == ["actual", "difference", "expected"]
        assert emitted.attrs["format"] == b"tutti-differences" and list(case["actual"]) == ["y"]
        assert emitted.attrs["complete"] == 1
        expected, difference = case["expected/y"][...], case["difference/y"][...]
        assert np.array_equal(expected, cases[f"cases/{CASE}/expected/y"][...])
        assert np.array_equal(case["actual/y"][...] - expected, difference)
        assert np.unravel_index(np.argmax(np.abs(difference)), difference.shape) == (2, 5)
        assert abs(difference[2, 5] + 0.25) < 1e-5
    result = run([path("emitted.h5")]).want(2)
    assert "tutti-differences" in result.err, result


def test_nothing_is_emitted_when_all_hold():
    run(["--quiet", "--filter", CASE, "--emit", path("none.h5"), CASES]).want(0)
    assert not os.path.exists(path("none.h5")) and not os.path.exists(path("none.h5.tmp"))


def malformed():
    with open(os.path.join(DATA, "bad", "index.txt")) as index:
        return [[part.strip() for part in line.split("|", 2)] for line in index if not line.startswith("#")]


def test_malformed_files_are_refused():
    seen = 0
    for name, words, what in malformed():
        result = run([os.path.join(DATA, "bad", name)])
        if name == "good.h5":
            result.want(0)
            continue
        result.want(2)
        seen += 1
        assert name in result.err and words in result.err.replace(name, ""), f"{what}: no '{words}' in\n{result}"
        assert len(result.err.splitlines()) == 1, result
    assert seen > 60, seen


def test_a_tensor_that_the_layer_refuses_is_named():
    """With its group, whichever check refuses it: types and columns of the table, optional inputs, missing gradients."""

    def dtype(file, case, tensor):
        file[f"cases/{case}/{tensor}"].attrs["dtype"] = "f16"

    def wider(file, case, tensor):
        rows, cols = file[f"cases/{case}/{tensor}"].shape
        del file[f"cases/{case}/{tensor}"]
        file[f"cases/{case}/{tensor}"] = np.zeros((rows, cols + 1), np.float32)

    def added(file, case, tensor):
        rows = next(iter(file[f"cases/{case}/inputs"].values())).shape[0]
        file[f"cases/{case}/{tensor}"] = np.zeros((rows, 1), np.float32)

    residual, loss, table = "rmsnorm-residual-dsum-f32", "cross-entropy-shape-33x17", "embedding-shape-65x3x5"
    for case, tensor, spoil, word in (
        *((residual, f"{part}/{name}", dtype, "f16, want f32") for part, name in (
            ("inputs", "x"), ("inputs", "residual"), ("params", "gamma"), ("upstream", "dy"), ("upstream", "dsum"), ("expected", "y"),
            ("expected", "sum"), ("expected_grad", "dx"), ("expected_grad", "dgamma"))),
        *((residual, tensor, wider, "columns") for tensor in ("inputs/residual", "upstream/dsum", "expected/sum", "expected_grad/dx")),
        (loss, "expected/loss_sum", dtype, "f16, want f64"),
        (loss, "upstream/dloss", added, "has no such tensor"),
        (loss, "expected_grad/dlogits", added, "has no such tensor"),
        (table, "expected_grad/dtokens", added, "has no such tensor"),
        (residual, "expected_grad/dresidual", added, "has no such tensor"),
        ("softmax-f32", "upstream/dx", added, "has no such tensor"),
    ):
        result = run(["--filter", case, edited(lambda file: spoil(file, case, tensor))]).want(2)
        assert f"case {case}: {tensor}" in result.err and word in result.err, (tensor, result)


def norm(name, shape, options="", **other):
    """A file of an RMSNorm over `shape`, written with h5py; other: replacements of its tensors, None to leave one out."""
    rng, rows = np.random.default_rng(0), 6
    x, dy = (rng.uniform(-4, 4, (rows, np.prod(shape))).astype(np.float32) for _ in range(2))
    scale = rng.uniform(0.5, 1.5, np.prod(shape)).astype(np.float32)
    zero = 1 if "zero_centered=True" in options else 0
    rms = np.sqrt((x.astype(float) ** 2).mean(axis=1, keepdims=True) + 1e-6)
    n, g = x / rms, dy * (scale + zero)
    dx = (g - n * (g * n).mean(axis=1, keepdims=True)) / rms
    tensors = {"inputs/x": x, "params/gamma": scale, "upstream/dy": dy, "expected/y": n * (scale + zero), "expected_grad/dx": dx,
               "expected_grad/dgamma": (dy * n).sum(axis=0)}
    with h5py.File(path(name), "w") as file:
        file.attrs["format"], file.attrs["format_version"] = "tutti-cases", [1, 0]
        case = file.create_group("cases/mine")
        case.attrs["layer"], case.attrs["options"] = "rmsnorm", f"cols={np.prod(shape)}{options}"
        for key, values in tensors.items():
            values = values.reshape(shape if "gamma" in key else (rows, *shape))
            values = other.get(key.split("/")[1], values)
            if values is not None:
                case.create_dataset(key, data=values).attrs["dtype"] = "f32"
    return path(name)


def test_a_gamma_of_several_dimensions():
    for np_ in few((1, RANKS)):
        for name in (norm("several.h5", (512, 512)), norm("two.h5", (4, 8), dgamma=None)):
            run([name], np_).want(0)
    with h5py.File(norm("flat.h5", (512, 512)), "r+") as file:
        for key in ("inputs/x", "upstream/dy", "expected/y", "expected_grad/dx"):
            values = file[f"cases/mine/{key}"][...].reshape(6, -1)
            del file[f"cases/mine/{key}"]
            file[f"cases/mine/{key}"] = values
            file[f"cases/mine/{key}"].attrs["dtype"] = "f32"
    run([path("flat.h5")]).want(0)
    run(["--record", path("recorded.h5"), path("several.h5")]).want(0)
    run([path("recorded.h5")]).want(0)


def test_options_as_python_writes_them():
    for options in (",zero_centered=True", ",zero_centered=False"):
        run([norm("python.h5", (8,), options)]).want(0)
    result = run([norm("python.h5", (8,), ",zero_centered=Yes")]).want(2)
    assert "zero_centered is 'Yes', want 0, 1, false or true" in result.err, result


def test_a_forgotten_parameter_is_missing():
    for more in (dict(), dict(dgamma=None)):
        result = run([norm("forgotten.h5", (8,), gamma=None, **more)]).want(2)
        assert "case mine: params/gamma is missing" in result.err, result


def test_a_wrong_shape_names_both():
    def of(*shape):
        return np.zeros(shape, np.float32)

    for tensor, given, said in (
        ("params/gamma", of(7), "[7], want [16]"),
        ("params/gamma", of(16, 1), "[16, 1], want [16]"),
        ("params/gamma", of(3, 5), "[3, 5], want [16]"),
        ("expected_grad/dgamma", of(17), "[17], want [16]"),
        ("inputs/x", of(6, 15), "[6, 15], want [6, 16] (16 columns)"),
        ("inputs/x", of(6), "[6], want [6, 16] (16 columns)"),
        ("upstream/dy", of(6, 3, 5), "[6, 3, 5], want [6, 16] (16 columns)"),
        ("expected/y", of(6, 15), "[6, 15], want [6, 16] (16 columns)"),
        ("expected_grad/dx", of(6, 32), "[6, 32], want [6, 16] (16 columns)"),
        ("expected_grad/dx", of(5, 16), "[5, 16], has 5 rows, but inputs/x is [6, 16] and has 6"),
    ):
        result = run([norm("shape.h5", (16,), **{tensor.split("/")[1]: given})]).want(2)
        assert f"case mine: {tensor}" in result.err and f"is {said}" in result.err and "[0" not in result.err, (tensor, result)
    entropy, product = "cross-entropy-shape-33x17", "matmul-tn-f32"
    for name, tensor, given, said in (
        (entropy, "expected/loss_sum", np.zeros(3), "[3], want [1]"),
        (entropy, "inputs/labels", np.zeros((33, 2), np.int32), "[33, 2], want [33] (1 columns)"),
        (product, "inputs/a", of(2, 5, 9), "[2, 5, 9], want [2, 9, 5]"),
        (product, "inputs/b", of(2, 54), "[2, 54], want [2, 9, 6]"),
        (product, "expected_grad/da", of(2, 5, 9), "[2, 5, 9], want [2, 9, 5]"),
    ):
        def replace(file):
            where = f"cases/{name}/{tensor}"
            dtype = file[where].attrs["dtype"]
            del file[where]
            file[where] = given
            file[where].attrs["dtype"] = dtype

        result = run(["--filter", name, edited(replace)]).want(2)
        assert f"{tensor}: is {said}" in result.err or f"{tensor} is {said}" in result.err, result


def test_outputs_that_nobody_expects():
    """Those that backward needs are computed, the others are not."""

    def without(*names):
        def edit(file):
            for name in names:
                del file[f"cases/{case}/{name}"]

        return edit

    for case, names, left in (
        ("rmsnorm-residual-dsum-f32", ("expected/sum", "expected/y"), {"dx", "dgamma"}),
        ("rmsnorm-residual-dsum-f32", ("expected/sum",), {"y", "dx", "dgamma"}),
        ("softmax-f32", ("expected/y",), {"dx"}),
        ("linear-relu-f32", ("expected/y", "expected_grad/dx"), {"dweight", "dbias"}),
        ("cross-entropy-shape-33x17", ("expected/loss", "expected/dlogits"), {"loss_sum"}),
        ("cross-entropy-shape-33x17", ("expected/loss_sum",), {"loss", "dlogits"}),
    ):
        for np_ in few((1, RANKS)):
            said = findings(report(["--filter", case, edited(without(*names))], np_))
            assert {name for key, name in said if key == case} == left, (case, names, said)


def test_a_file_whose_writing_did_not_end():
    for complete, code in ((1, 0), (0, 2), ("yes", 2)):
        result = run(["--list", edited(lambda file: file.attrs.create("complete", complete))]).want(code)
        assert ("is incomplete" in result.err) == (code == 2), result


def test_malformed_files_are_refused_by_all_ranks():
    for name, words, _ in few(malformed()[1:40:9]):
        result = run([os.path.join(DATA, "bad", name)], RANKS).want(2)
        assert name in result.err and words in result.err, result


def test_deadlines_too_short():
    """A missed deadline, while the first communicator is created or before, is reported with exit code 2."""
    # without the sleeps of tests/support/yield.c, in which a message may arrive before a deadline is looked at
    preloaded = os.environ.get("LD_PRELOAD", "").split(":")
    preloaded = ":".join(name for name in preloaded if "tutti_yield" not in name)
    for np in few((2, 3) * 3):
        result = run(["--quiet", "--timeout", 1e-6, "--filter", CASE, CASES], np, LD_PRELOAD=preloaded).want(2)
        said = "not finished after" in result.err or "did not return within" in result.err
        assert said and "signal" not in result.err, result


start()
