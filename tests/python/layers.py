"""Contexts, layers and calls of the Python module: what they compute, and what they refuse."""

import copy
import gc
import pickle
import re
import subprocess
import threading

from rig import *

CTX = tutti.Context("host")
RNG = np.random.default_rng(7)


def numbers(*shape):
    return RNG.standard_normal(shape).astype("f")


def test_no_kind_is_named():
    """The module reads the library's tables, so that a new kind needs no change here."""
    folder = os.path.join(ROOT, "bindings", "python")
    text = "".join(
        open(os.path.join(folder, name)).read()
        for name in sorted(os.listdir(folder))
        if name.endswith(".py")
    )
    assert "class Layer" in text and len(tutti.kinds()) >= 12
    assert not [kind for kind in tutti.kinds() if re.search(rf"\b{kind}\b", text)]


def test_kinds():
    options = tutti.kinds()["rmsnorm"]
    assert options["cols"] == ("int", None) and options["eps"] == ("real", "1e-6"), options
    assert options["y_dtype"] == ("dtype", "x_dtype") and options["no_gamma"] == ("bool", "0")
    assert tutti.__version__ in tutti.build_info() and "host: " in tutti.build_info()


def test_options():
    layer = tutti.Layer("rmsnorm", cols=8, dtype="bf16", eps=1e-5)
    dtypes = "x_dtype=bf16,param_dtype=bf16,y_dtype=bf16"
    assert repr(layer) == f"<tutti.Layer rmsnorm {dtypes},cols=8,eps=1e-05>", layer
    assert repr(tutti.Tensor(numbers(2, 3))) == "<tutti.Tensor f32 [2, 3]>"
    assert layer.shape("gamma") == ((8,), "bf16") and layer.shape("y", 3) == ((3, 8), "bf16")
    layer = tutti.Layer("rmsnorm", cols=8, dtype="bf16", param_dtype="f32", no_gamma=False)
    assert layer.shape("gamma") == ((8,), "f32") and layer.shape("x", 3)[1] == "bf16"
    assert tutti.Layer("rmsnorm", cols=np.int64(8), no_gamma=True).params == ()
    assert tutti.Layer("linear", in_=3, out=2).shape("weight") == ((2, 3), "f32")
    # a number 0 is 0, not what 0 in a descriptor selects
    layer, y = tutti.Layer("softmax", cols=2, scale=0.0), np.empty((1, 2), "f")
    layer.forward(CTX, x=np.float32([[1, 5]]), y=y)
    assert y.tolist() == [[0.5, 0.5]]


def test_wrong_options():
    refused(lambda: tutti.Layer("softmaxx", cols=2), "'softmaxx'", "layernorm, rmsnorm, softmax")
    refused(lambda: tutti.Layer("softmax"), "softmax: option cols is missing")
    refused(lambda: tutti.Layer("softmax", cols=0), "cols is 0, want 1 to 2^20")
    refused(lambda: tutti.Layer("softmax", cols=2, colour=3), "colour")
    refused(lambda: tutti.Layer("softmax", cols=2, dtype="f8"), "dtype", "f8")
    refused(lambda: tutti.Layer("softmax", cols=2.5), "cols", "2.5")
    refused(lambda: tutti.Layer("softmax", cols="2,log=1"), "cols is '2,log=1', want no comma")
    refused(lambda: tutti.Layer("glu", cols=2, activation="relus"), "activation", "relus")


def test_shapes():
    layer = tutti.Layer("layernorm", cols=6, x_dtype="f64")
    assert layer.tensors == (
        "x",
        "dx",
        "residual",
        "y",
        "dy",
        "sum",
        "dsum",
        "gamma",
        "dgamma",
        "beta",
        "dbeta",
    )
    assert layer.shape("dx", (2, 3)) == ((2, 3, 6), "f64") and layer.shape("dbeta", 9) == (
        (6,),
        "f64",
    )
    assert layer.shape("saved", 4)[0][0] >= 4 * 2 * 8 and layer.shape("saved", 4)[1] == "u8"
    assert layer.empty("y", 2).shape == (2, 6) and layer.empty("y", 2).dtype == np.float64
    assert tutti.Layer("layernorm", cols=6, x_dtype="bf16").shape("dgamma")[1] == "f32"
    layer = tutti.Layer("matmul", m=2, n=3, k=4, transpose_a=True)
    assert [layer.shape(name, 5)[0] for name in ("a", "b", "c", "db")] == [
        (5, 4, 2),
        (5, 4, 3),
        (5, 2, 3),
        (5, 4, 3),
    ]
    layer = tutti.Layer("cross_entropy", cols=5, dtype="f16")
    assert layer.shape("loss", 3) == ((3,), "f32") and layer.shape("loss_sum", 3) == ((1,), "f64")
    assert layer.shape("labels", 3) == ((3,), "i32") and layer.shape("dlogits", (3,)) == (
        (3, 5),
        "f16",
    )
    refused(lambda: layer.shape("lables", 3), "'lables'", "logits, labels")
    for name in ("logits", "saved", "loss_sum"):
        refused(lambda: layer.empty(name, -1), "cross_entropy: rows is -1, want 0 to ")
        refused(lambda: layer.shape(name, (2, "a")), "cross_entropy: rows is 'a', want a whole")
        refused(lambda: layer.shape(name, 2.0), "cross_entropy: rows is 2.0, want a whole")


def test_a_layer_by_its_formula():
    x, gamma, dy = numbers(5, 8), numbers(8), numbers(5, 8)
    layer = tutti.Layer("rmsnorm", cols=8, eps=1e-5)
    y, dx, dgamma = layer.empty("y", 5), layer.empty("dx", 5), layer.empty("dgamma")
    layer.bind(gamma=gamma, dgamma=dgamma)
    saved = layer.empty("saved", 5)
    layer.forward(CTX, x=x, y=y, saved=saved)
    layer.backward(CTX, x=x, dy=dy, dx=dx, saved=saved)
    rstd = 1 / np.sqrt((x.astype("d") ** 2).mean(axis=1, keepdims=True) + 1e-5)
    n, g = x * rstd, dy * gamma
    assert np.allclose(y, n * gamma, atol=1e-6) and np.allclose(
        dgamma, (dy * n).sum(axis=0), atol=1e-5
    )
    assert np.allclose(dx, rstd * (g - n * (g * n).mean(axis=1, keepdims=True)), atol=1e-5)
    before = dgamma.copy()
    layer.backward(CTX, x=x, dy=dy, dx=dx, saved=saved, accumulate=True)
    assert np.array_equal(dgamma, 2 * before)
    halves = np.zeros((2, 8), "f")
    for half, rows in zip(halves, (slice(0, 2), slice(2, 5))):
        layer.bind(dgamma=half)
        layer.forward(CTX, x=x[rows], y=y[rows], saved=saved)
        layer.backward(CTX, x=x[rows], dy=dy[rows], dx=dx[rows], saved=saved)
    layer.bind(dgamma=dgamma)
    layer.forward(CTX, x=x, y=y, saved=saved)
    layer.backward(CTX, x=x, dy=dy, dx=dx, saved=saved, leaves=np.array([0, 2]))
    assert np.array_equal(dgamma, halves[0] + halves[1]), "leaves are summed as a tree"
    layer.bind(dgamma=None)
    dgamma[:] = 7
    layer.backward(CTX, x=x, dy=dy, dx=dx, saved=saved)
    assert (dgamma == 7).all(), "a gradient that was taken back is still written"


def test_wrong_calls():
    x, y = numbers(3, 4), np.empty((3, 4), "f")
    layer = tutti.Layer("softmax", cols=4)
    refused(lambda: layer.forward(CTX, x=x), "softmax: y is NULL")
    refused(lambda: layer.forward(CTX, x=x, y=None), "softmax: y is NULL")
    refused(
        lambda: layer.forward(CTX, x=x, y=y, z=y),
        "softmax: there is no 'z' here",
        "x, lengths, bias, y",
    )
    refused(lambda: layer.forward(CTX, x=x, y=y, dx=y), "softmax: there is no 'dx' here")
    refused(lambda: layer.forward(CTX, x=x.astype("d"), y=y), "softmax: x is f64, want f32")
    refused(lambda: layer.forward(CTX, x=x.astype(int), y=y), "softmax: x: the array is int64")
    refused(lambda: layer.forward(CTX, x=x[:2], y=y), "y has 3 rows, want 2")
    refused(
        lambda: layer.forward(CTX, x=x.reshape(4, 3), y=y),
        "x is [4, 3], want last dims that multiply to 4",
    )
    refused(lambda: layer.forward(CTX, x=x, y=y[:, ::-1]), "y has strides[1] -1")
    refused(lambda: layer.forward(CTX, x=[[1.0]], y=y), "softmax: x: ", "neither DLPack nor")
    refused(
        lambda: layer.forward(CTX, x=x, y=y, lengths=np.ones(3, "i8")),
        "lengths: the array is int64, want i32: .to(torch.int32)",
        ".astype('int32') of NumPy's",
    )
    refused(  # of the dims and the strides, which are both wrong, the dims
        lambda: layer.forward(CTX, x=numbers(3, 5)[:, :3], y=y),
        "x is [3, 3], want last dims that multiply to 4 columns",
    )
    refused(
        lambda: layer.forward(CTX, x=numbers(3, 2, 4)[:, :, :2], y=y),
        "x has strides[1] 4, want 2 for a row of 4",
    )
    for other in (None, "host", layer):
        refused(lambda: layer.forward(other, x=x, y=y), "the context is ", "want a tutti.Context")
        refused(lambda: layer.backward(other, y=x, dy=x, dx=y), "want a tutti.Context")
        refused(lambda: tutti.Step(other), "want a tutti.Context")
    refused(lambda: layer.forward(CTX, x=x, y=y, step=3), "softmax: step is 3, want a tutti.Step")
    refused(lambda: layer.forward(CTX, x=x, y=y, leaves=3), "softmax: leaves is 3, want the first")
    refused(lambda: layer.forward(CTX, x=x, y=y, leaves=[0.5]), "a row of leaves is 0.5, want a")
    refused(lambda: layer.forward(CTX, x=x, y=y, first_row="a"), "first_row is 'a', want a whole")
    refused(lambda: layer.bind(gamma=x), "softmax: there is no 'gamma' here; there are none")
    for truth in ("no", 2, None, [], x):
        refused(
            lambda: layer.backward(CTX, y=x, dy=x, dx=y, accumulate=truth),
            "softmax: accumulate is ",
            "want True or False",
        )
    for truth in (True, 0, np.True_):
        layer.backward(CTX, y=x, dy=x, dx=y, accumulate=truth)
    refused(lambda: layer.forward(CTX, x=x, y=y, first_row=2**63), "first_row is", "want -")
    saved = tutti.Layer("rmsnorm", cols=4, no_gamma=True).empty("saved", 3)
    norm = tutti.Layer("rmsnorm", cols=4, no_gamma=True)
    refused(lambda: norm.forward(CTX, x=x, y=y, saved=saved[:8]), "saved has 8 bytes, want")
    refused(
        lambda: norm.forward(CTX, x=x, y=y, saved=np.empty(99, "u1")[::2]),
        "saved: the array is not contiguous",
    )
    refused(lambda: norm.backward(CTX, x=x, dy=y, dx=np.empty_like(x)), "saved is NULL")
    causal = tutti.Layer("softmax", cols=4, causal_period=4)
    refused(lambda: causal.forward(CTX, x=x, y=y), "first_row")
    causal.forward(CTX, x=x, y=y, first_row=np.int32(2))
    assert (
        (y[0, :3] > 0).all() and y[0, 3] == 0 and (y[1] > 0).all() and y[2].tolist() == [1, 0, 0, 0]
    )


def test_wrong_parameters():
    layer, x = tutti.Layer("layernorm", cols=4), numbers(3, 4)
    one, y = np.ones(4, "f"), np.empty((3, 4), "f")
    refused(
        lambda: layer.forward(CTX, x=x, y=y),
        "parameter gamma is not bound",
        status="TUTTI_ERR_STATE",
    )
    refused(
        lambda: layer.forward(CTX, x=x, y=y, gamma=one), "no 'gamma' here; parameters are bound"
    )
    layer.bind(gamma=one, beta=one)
    for wrong, said in (
        (dict(gama=one), "'gama'"),
        (dict(xgamma=one), "'xgamma'"),
        (dict(x=x), "'x'"),
        (dict(gamma=np.ones(5, "f")), "gamma: value is [5], want [4]"),
        (dict(gamma=np.ones(4)), "f64, want f32"),
        (dict(gamma=np.ones((4, 2), "f")[:, 0]), "not contiguous"),
        (dict(gamma="ones"), "neither DLPack"),
        (dict(gamma=None, dgamma=one), "dgamma is given without gamma"),
        (dict(dgamma=np.ones(4, "f2")), "f16, want"),
    ):
        refused(lambda: layer.bind(**wrong), said)
    layer.forward(CTX, x=x, y=y)  # what was refused changed nothing
    assert np.allclose(y.mean(axis=1), 1, atol=1e-6)


def test_faults_in_the_data():
    layer = tutti.Layer("embedding", vocab=4, cols=2)
    weight, y = numbers(4, 2), np.empty((2, 2), "f")
    layer.bind(weight=weight)
    layer.forward(CTX, tokens=np.int32([1, 3]), y=y)
    CTX.check()
    assert np.array_equal(y, weight[[1, 3]])
    layer.forward(CTX, tokens=np.int32([1, 4]), y=y)
    refused(CTX.check, "4", status="TUTTI_ERR_DATA")
    CTX.check()


def test_steps():
    layer, logits, labels = (
        tutti.Layer("cross_entropy", cols=3),
        numbers(4, 3),
        np.int32([0, 1, 2, 0]),
    )
    plain, weighed = layer.empty("dlogits", 4), layer.empty("dlogits", 4)
    layer.forward(CTX, logits=logits, labels=labels, dlogits=plain)
    step = tutti.Step(CTX, loss_weight=0.25)
    layer.forward(CTX, logits=logits, labels=labels, dlogits=weighed, step=step)
    assert np.array_equal(weighed, plain / 4) and plain.any()
    step.set(CTX, loss_scale=8)
    layer.forward(CTX, logits=logits, labels=labels, dlogits=weighed, step=step)
    assert np.array_equal(weighed, plain * 2) and step.values["loss_weight"] == 0.25
    refused(lambda: step.set(CTX, loss_weight=0), "loss_weight")
    refused(lambda: step.set(CTX, loss_wait=1), "loss_wait", "learning_rate")
    refused(lambda: step.set(CTX, seed="seven"), "seed")
    assert step.values == {"step": 1, "loss_weight": 0.25, "loss_scale": 8}
    drop, x = tutti.Layer("dropout", cols=64, p=0.5, no_bias=True), np.ones((2, 64), "f")
    masks = []
    for seed in (1, 2, 1):
        masks.append(np.empty_like(x))
        drop.forward(CTX, x=x, y=masks[-1], first_row=0, step=tutti.Step(CTX, seed=seed))
    assert np.array_equal(masks[0], masks[2]) and not np.array_equal(masks[0], masks[1])
    refused(lambda: drop.forward(CTX, x=x, y=x.copy(), first_row=0), "step")


def test_a_prepared_call():
    layer, x, y = tutti.Layer("softmax", cols=4), numbers(3, 4), np.empty((3, 4), "f")
    call = layer.prepare(CTX, x=x, y=y)
    call.plan()
    for _ in range(2):
        x[:] = numbers(3, 4)
        call()
        e = np.exp(x - x.max(axis=1, keepdims=True))
        assert np.allclose(y, e / e.sum(axis=1, keepdims=True), atol=1e-6)
    back = layer.prepare(CTX, backward=True, y=y, dy=x, dx=np.empty_like(x))
    back.plan()
    back()


def test_contexts():
    refused(lambda: tutti.Context("gpu"), "'gpu'", "auto, host, cuda")
    refused(lambda: tutti.Context("host", device=1), "device is 1", status="TUTTI_ERR_DEVICE")
    refused(lambda: tutti.Context("host", threads=-1), "threads is -1")
    refused(lambda: tutti.Context("host", threads="a"), "threads is 'a', want a whole number")
    refused(lambda: tutti.Context("host", threads=2**31), "threads is 2147483648, want -2147483648")
    refused(lambda: tutti.Context("host", device=0.0), "device is 0.0, want a whole number")
    if hasattr(lib, "tutti_context_create_on_stream"):
        refused(lambda: tutti.Context("cuda", stream="a"), "stream is 'a', want a whole number")
    refused(lambda: tutti.Context("host", stream=1), "a stream is given")
    assert tutti.Context("auto").backend in ("host", "cuda")
    layer, x, y = tutti.Layer("softmax", cols=4), numbers(3, 4), np.empty((3, 4), "f")
    with tutti.Context("host", threads=2) as ctx:
        assert (ctx.backend, ctx.device, ctx.stream) == ("host", 0, None)
        call = layer.prepare(ctx, x=x, y=y)
        call()
        ctx.synchronize()
        step = tutti.Step(ctx)
    for use in (
        call,
        ctx.synchronize,
        ctx.check,
        lambda: layer.forward(ctx, x=x, y=y),
        lambda: tutti.Step(ctx),
        lambda: step.set(ctx, step=2),
        lambda: tutti.Layer("softmax", cols=2).prepare(ctx),
    ):
        refused(use, "context: it is closed", status="TUTTI_ERR_STATE")
    ctx.close()
    del ctx, call, step
    gc.collect()
    layer.forward(CTX, x=x, y=y)


def test_threads_share_a_layer():
    layer, x = tutti.Layer("linear", in_=64, out=32, activation="gelu"), numbers(128, 64)
    layer.bind(weight=numbers(32, 64), bias=numbers(32))
    want = np.empty((128, 32), "f")
    layer.forward(CTX, x=x, y=want)
    wrong = []

    def work():
        with tutti.Context("host", threads=1) as ctx:
            for _ in range(50):
                y = np.empty((128, 32), "f")
                layer.forward(ctx, x=x, y=y)
                if not np.array_equal(y, want):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_objects_go_in_any_order():
    for order in ("lcs", "scl", "csl"):
        made = {"c": tutti.Context("host"), "l": tutti.Layer("softmax", cols=2)}
        made["s"] = tutti.Step(made["c"])
        made["l"].forward(made["c"], x=numbers(1, 2), y=np.empty((1, 2), "f"))
        for name in order:
            del made[name]
            gc.collect()


def test_nothing_is_copied():
    layer, x, y = tutti.Layer("softmax", cols=4), numbers(3, 4), np.empty((3, 4), "f")
    ctx = tutti.Context("host")
    made = ctx, layer, tutti.Step(ctx), tutti.Tensor(x), layer.prepare(ctx, x=x, y=y)
    for thing in made:
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            words = f"a tutti.{type(thing).__name__} cannot be copied or pickled"
            refused(lambda: way(thing), words)
    gc.collect()
    layer.forward(ctx, x=x, y=y)  # no copy has taken the context along


def test_names_of_the_module():
    names = [name for name in dir(tutti) if not name.startswith("__")]
    assert sorted(names) == sorted(tutti.__all__) and "__version__" in dir(tutti), names
    assert all(hasattr(tutti, name) for name in dir(tutti))


def test_without_cffi():
    run = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['cffi'] = None; import tutti"],
        capture_output=True,
        text=True,
    )
    last = run.stderr.splitlines()[-1]
    assert run.returncode == 1 and last.startswith("ImportError: tutti needs cffi"), run
    assert "python3-cffi" in last and "During handling" not in run.stderr, run


def test_another_library_is_refused():
    def said(library):
        run = subprocess.run(
            [sys.executable, "-c", "import tutti"],
            env={**os.environ, "TUTTI_LIBRARY": library},
            capture_output=True,
            text=True,
        )
        assert run.returncode == 1, run
        return run.stderr

    assert "/nowhere/libtutti.so" in said("/nowhere/libtutti.so")
    assert "tutti_version" in said("libc.so.6")


def test_the_documents_programs():
    """Those of docs/python.md that need no GPU, unchanged."""
    page = open(os.path.join(ROOT, "docs", "python.md")).read()
    programs = re.findall(r"```python\n(.*?)```", page, re.S)
    run = [program for program in programs if "torch" not in program]
    assert len(run) >= 2 and len(programs) > len(run)
    for program in run:
        exec(compile(program, "docs/python.md", "exec"), {})


run_tests()
