"""Right results hold beyond their type's range, and compared with references computed in f64."""

from rig import *


def case_file(name, **cases):
    """A file of cases without bounds: {case: (layer, options, {path: (values, dtype)})}."""
    with h5py.File(path(name), "w") as file:
        file.attrs["format"], file.attrs["format_version"] = "tutti-cases", [1, 0]
        for key, (layer, options, tensors) in cases.items():
            case = file.create_group(f"cases/{key}")
            case.attrs["layer"], case.attrs["options"] = layer, options
            for where, (values, dtype) in tensors.items():
                values = np.asarray(values, np.int32 if dtype == "i32" else float)
                case.create_dataset(where, data=values).attrs["dtype"] = dtype
    return path(name)


def in_turn(values):
    """Their sum along rows, one after the other."""
    return np.cumsum(values, axis=1)[:, -1:]


def overflowing(change=lambda values: values):
    """Beyond f16's 65504, as the formula has it: a log-softmax, and products."""
    x = np.array([[0, 35008, -35008], [1, 2, 3]])
    t = x - x.max(axis=1, keepdims=True)
    y = t - np.log(in_turn(np.exp(t)))
    w, rows = np.array([[256, 4]]), np.array([[256, 1], [-256, -1], [255, 64], [255, 59], [1, 1]])
    return dict(
        log=("softmax", "cols=3,dtype=f16,log=1", {"inputs/x": (x, "f16"), "expected/y": (change(y), "f16")}),
        product=("linear", "in=2,out=1,dtype=f16,no_bias=1", {
            "inputs/x": (rows, "f16"), "params/weight": (w, "f16"), "expected/y": (change(rows @ w.T), "f16")}),
    )


def test_what_overflows_its_type_is_right():
    file = case_file("overflow.h5", **overflowing())
    for ranks in few((1, 2)):
        said = findings(report([file], ranks))
        assert all(tensor["holds"] and tensor["abs"] != "inf" for tensor in said.values()), said
    infinite = case_file("infinite.h5", **overflowing(lambda y: np.where(np.abs(y) >= 65520, np.sign(y) * np.inf, y)))
    run(["--quiet", infinite]).want(0)


def test_what_should_not_overflow_is_wrong():
    for change in (lambda y: np.where(np.abs(y) > 65504, np.sign(y) * 65000.0, y), lambda y: np.where(np.abs(y) > 65504, -y, y)):
        said = findings(report([case_file("wrong.h5", **overflowing(change))], code=1))
        assert said[("log", "y")]["beyond_bound"] == 1 and said[("product", "y")]["beyond_bound"] == 4, said


def of_f64(cols=20000):
    """Cases computed in f64, of long rows summed one element after the other."""
    rng = np.random.default_rng(3)
    x, dy = rng.uniform(0, 1, (3, cols)), rng.uniform(0, 1, (3, cols))
    e = np.exp(x - x.max(axis=1, keepdims=True))
    y = e / in_turn(e)
    rstd = 1 / np.sqrt(in_turn(x * x) / cols + 1e-6)
    n, g = x * rstd, dy
    labels = np.array([1, 2, 3])
    loss = np.log(in_turn(e))[:, 0] + x.max(axis=1) - x[np.arange(3), labels]
    return dict(
        softmax=("softmax", f"cols={cols},dtype=f64", {
            "inputs/x": (x, "f64"), "upstream/dy": (dy, "f64"), "expected/y": (y, "f64"),
            "expected_grad/dx": (y * (dy - in_turn(y * dy)), "f64")}),
        norm=("rmsnorm", f"cols={cols},x_dtype=f64,no_gamma=1", {
            "inputs/x": (x, "f64"), "upstream/dy": (dy, "f64"), "expected/y": (n, "f64"),
            "expected_grad/dx": (rstd * (g - n * (in_turn(g * n) / cols)), "f64")}),
        loss=("cross_entropy", f"cols={cols},dtype=f64", {
            "inputs/logits": (x, "f64"), "inputs/labels": (labels.astype(np.int32), "i32"), "expected/loss": (loss, "f64"),
            "expected/loss_sum": ([np.cumsum(loss)[-1]], "f64")}),
    )


def test_a_reference_of_f64_may_be_wrong_by_as_much():
    run(["--quiet", case_file("f64.h5", **of_f64())]).want(0)


def test_a_reference_of_f32_is_seen():
    cases = of_f64()
    layer, options, tensors = cases["softmax"]
    tensors["expected/y"] = (tensors["expected/y"][0] * (1 + 2.0**-30), "f64")
    said = findings(report([case_file("f32.h5", softmax=(layer, options, tensors))], code=1))
    assert said[("softmax", "y")]["beyond_bound"] > 30000, said


def test_digits_enough_to_see_the_difference():
    x = np.array([[1.0, 2.0]])
    y = np.exp(x) / np.exp(x).sum()
    case = ("softmax", "cols=2,dtype=f64", {"inputs/x": (x, "f64"), "expected/y": (y + 2.0**-46, "f64")})
    result = run(["--quiet", case_file("digits.h5", softmax=case)]).want(1)
    words = result.err.split()
    got, want = (words[words.index(word) + 1].rstrip(",") for word in ("is", "want"))
    assert got != want and abs(float(got) - float(want)) > 2.0**-47, result


def test_no_bound_is_nan():
    x = np.array([[1.0, np.nan, 3.0], [1.0, 2.0, np.inf]])
    case = ("softmax", "cols=3", {
        "inputs/x": (x, "f32"), "upstream/dy": (np.ones((2, 3)), "f32"), "expected/y": (np.zeros((2, 3)), "f32"),
        "expected_grad/dx": (np.zeros((2, 3)), "f32")})
    result = run([case_file("nan.h5", softmax=case)]).want(1)
    assert "is nan, want 0" in result.err and "± nan" not in result.err, result


start()
