"""PyTorch's tensors in the Python module: by DLPack, on PyTorch's streams, in its graphs."""

import gc
import sys

try:
    import torch  # before the library: docs/install.md, "Beside PyTorch"
except ImportError:
    torch = None
import rig
from rig import BACKEND, refused, skip, tutti

if torch is None:
    print("skipped: no PyTorch here\ntests: 0 passed, 0 failed, 1 skipped")
    sys.exit(77)

CUDA = BACKEND == "cuda"
rig.context().close()  # ends the script where there is no GPU
DEVICE = torch.device("cuda", 0) if CUDA else torch.device("cpu")
torch.manual_seed(1)
NAMES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
NAMES.update(u8=torch.uint8, i32=torch.int32)


def context():
    return (
        tutti.Context("cuda", stream=torch.cuda.current_stream()) if CUDA else tutti.Context("host")
    )


CTX = context()


def numbers(*shape, dtype="f32"):
    return torch.randn(*shape, dtype=torch.float64, device=DEVICE).to(NAMES[dtype])


def room(layer, name, rows=()):
    shape, dtype = layer.shape(name, rows)
    return torch.full(shape, 77, dtype=NAMES[dtype], device=DEVICE)


def close(got, want, dtype):
    """Within two roundings to the type of the largest."""
    most = {"f64": 1e-12, "f32": 2e-6, "f16": 2e-3, "bf16": 1.6e-2}[dtype] * want.abs().max().item()
    apart = (got.double() - want.double()).abs().max().item()
    assert apart <= most, f"{apart} apart, want at most {most}"


def norm_of(dtype, rows, cols):
    """A norm's layer, its tensors, and what autograd says in f64."""
    layer = tutti.Layer("rmsnorm", cols=cols, dtype=dtype, eps=1e-5)
    x, dy, gamma = (
        numbers(rows, cols, dtype=dtype),
        numbers(rows, cols, dtype=dtype),
        numbers(cols, dtype=dtype),
    )
    exact = [tensor.double().clone().requires_grad_() for tensor in (x, gamma)]
    y = exact[0] * torch.rsqrt(exact[0].pow(2).mean(-1, keepdim=True) + 1e-5) * exact[1]
    dx, dgamma = torch.autograd.grad(y, exact, dy.double())
    return layer, dict(x=x, dy=dy, gamma=gamma), dict(y=y.detach(), dx=dx, dgamma=dgamma)


def run_norm(ctx, layer, given, rows):
    made = {name: room(layer, name, rows) for name in ("y", "dx", "dgamma", "saved")}
    layer.bind(gamma=given["gamma"], dgamma=made["dgamma"])
    layer.forward(ctx, x=given["x"], y=made["y"], saved=made["saved"])
    layer.backward(ctx, x=given["x"], dy=given["dy"], dx=made["dx"], saved=made["saved"])
    return made


def test_every_float_type():
    for dtype in ("f64", "f32", "f16", "bf16"):
        layer, given, want = norm_of(dtype, 37, 129)
        made = run_norm(CTX, layer, given, 37)
        for name, tensor in want.items():
            close(made[name], tensor, layer.shape(name, 37)[1] if name == "dgamma" else dtype)


def test_a_linear_layer_and_its_loss():
    linear = tutti.Layer("linear", in_=24, out=10, dtype="bf16", activation="relu")
    loss = tutti.Layer("cross_entropy", cols=10, dtype="bf16")
    x, weight, bias = (
        numbers(16, 24, dtype="bf16"),
        numbers(10, 24, dtype="bf16"),
        numbers(10, dtype="bf16"),
    )
    labels = torch.arange(16, dtype=torch.int32, device=DEVICE) % 10
    dweight, y = room(linear, "dweight"), room(linear, "y", 16)
    linear.bind(weight=weight, bias=bias, dweight=dweight)
    dlogits, total, saved = (
        room(loss, "dlogits", 16),
        room(loss, "loss_sum", 16),
        room(linear, "saved", 16),
    )
    linear.forward(CTX, x=x, y=y, saved=saved)
    loss.forward(
        CTX,
        logits=y,
        labels=labels,
        dlogits=dlogits,
        loss_sum=total,
        step=tutti.Step(CTX, loss_weight=1 / 16),
    )
    linear.backward(CTX, x=x, y=y, dy=dlogits, saved=saved)
    CTX.check()
    exact = [tensor.double().requires_grad_() for tensor in (weight, bias)]
    out = torch.relu(x.double() @ exact[0].T + exact[1])
    rounded = (
        out + (y.double() - out).detach()
    ).requires_grad_()  # the loss sees y as it is stored
    want = torch.nn.functional.cross_entropy(rounded, labels.long())
    close(total / 16, want.detach().reshape(1), "f32")
    close(dweight, torch.autograd.grad(want, exact[0])[0], "bf16")


def test_slices_of_larger_tensors():
    wide = numbers(6, 32, dtype="bf16")
    layer = tutti.Layer("glu", cols=16, dtype="bf16", activation="silu")
    y = torch.empty(6, 16, dtype=torch.bfloat16, device=DEVICE)
    layer.forward(CTX, a=wide[:, :16], b=wide[:, 16:], y=y)
    a, b = wide.double().split(16, 1)
    close(y, torch.nn.functional.silu(a) * b, "bf16")


def test_what_is_refused():
    layer, x = tutti.Layer("softmax", cols=4), numbers(3, 4)
    y = torch.empty_like(x)
    refused(
        lambda: layer.forward(CTX, x=x.requires_grad_(), y=y),
        "softmax: x: the array cannot be used",
        "grad",
    )
    x = x.detach()
    refused(lambda: layer.forward(CTX, x=x.bfloat16(), y=y), "x is bf16, want f32")
    refused(
        lambda: layer.forward(CTX, x=x.long(), y=y),
        "softmax: x: the array is int64, want f32, or bits",
    )
    refused(
        lambda: layer.forward(CTX, x=x.T, y=y), "x is [4, 3], want last dims that multiply to 4"
    )
    square = numbers(4, 4)
    refused(
        lambda: layer.forward(CTX, x=square.T, y=torch.empty_like(square)), "x has strides[1] 4"
    )
    loss, labels = tutti.Layer("cross_entropy", cols=4), torch.arange(3, device=DEVICE)
    given = dict(logits=x, dlogits=torch.empty_like(x))
    refused(
        lambda: loss.forward(CTX, labels=labels, **given),
        "cross_entropy: labels: the array is int64, want i32: .to(torch.int32) of PyTorch's",
    )
    loss.forward(CTX, labels=labels.to(torch.int32), **given)
    CTX.check()
    freed = numbers(3, 4)
    getattr(freed, "untyped_storage", freed.storage)().resize_(0)  # PyTorch 1 has the latter
    refused(lambda: layer.forward(CTX, x=freed, y=y), "x")
    if CUDA:
        refused(
            lambda: layer.forward(CTX, x=x.cpu(), y=y), "x is on host 0, the context is on cuda 0"
        )
        with tutti.Context("host") as host:
            refused(
                lambda: layer.forward(host, x=x, y=y), "x is on cuda 0, the context is on host 0"
            )


def test_memory_lives_as_long_as_it_is_seen():
    layer, x = tutti.Layer("softmax", cols=4), numbers(3, 4)
    want, y = torch.softmax(x, 1), torch.empty_like(x)
    call = layer.prepare(CTX, x=x, y=y)
    del x
    gc.collect()
    others = [
        torch.full((3, 4), 9.0, device=DEVICE) for _ in range(50)
    ]  # they would be where x was
    call()
    CTX.synchronize()
    close(y, want, "f32")
    assert len(others) == 50


def test_a_side_stream():
    """It waits for PyTorch's, which makes x late; PyTorch's waits for it by an event."""
    if not CUDA:
        skip("streams are of GPUs")
    side = torch.cuda.Stream()
    ctx = tutti.Context("cuda", stream=side)
    assert ctx.stream == side.cuda_stream != torch.cuda.current_stream().cuda_stream
    layer = tutti.Layer("softmax", cols=1024, dtype="bf16")
    x, y = torch.zeros(64, 1024, dtype=torch.bfloat16, device=DEVICE), torch.empty(
        64, 1024, dtype=torch.bfloat16, device=DEVICE
    )
    last = numbers(64, 1024, dtype="bf16")
    for _ in range(20):
        x.zero_()
        torch.cuda.synchronize()
        torch.cuda._sleep(20_000_000)
        x.copy_(last)  # behind the sleep
        layer.forward(ctx, x=x, y=y)
        torch.cuda.current_stream().wait_stream(side)
        close(y, torch.softmax(last.double(), 1), "bf16")


def test_a_stream_of_its_own():
    """The context keeps what it uses, so tensors may go before the work is complete."""
    if not CUDA:
        skip("streams are of GPUs")
    ctx = tutti.Context("cuda")
    layer, last = tutti.Layer("softmax", cols=1024), numbers(256, 1024)
    kept = torch.empty(256, 1024, device=DEVICE)
    for _ in range(20):
        x = last + 0
        layer.forward(ctx, x=x, y=kept)
        del x
        torch.full((256, 1024), 5.0, device=DEVICE)  # would be where x was
    assert len(ctx._used) == 20
    ctx.synchronize()
    assert not ctx._used
    close(kept, torch.softmax(last, 1), "f32")


def test_a_graph():
    if not CUDA:
        skip("graphs are of GPUs")
    side = torch.cuda.Stream()
    ctx = tutti.Context("cuda", stream=side)
    layer, given, want = norm_of("bf16", 64, 512)
    made = {name: room(layer, name, 64) for name in ("y", "dx", "dgamma", "saved")}
    layer.bind(gamma=given["gamma"], dgamma=made["dgamma"])
    forward = layer.prepare(ctx, x=given["x"], y=made["y"], saved=made["saved"])
    backward = layer.prepare(
        ctx, True, x=given["x"], dy=given["dy"], dx=made["dx"], saved=made["saved"]
    )
    forward.plan()
    backward.plan()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        forward()
        backward()
    for name in want:
        made[name].fill_(77)
    graph.replay()
    torch.cuda.synchronize()
    for name, tensor in want.items():
        close(made[name], tensor, "f32" if name == "dgamma" else "bf16")


class Interface:
    """A tensor with the CUDA array interface alone."""

    def __init__(self, tensor, **more):
        self.tensor = tensor
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, **more}


def test_the_interface_s_stream_is_waited_for():
    if not CUDA:
        skip("streams are of GPUs")
    ctx = tutti.Context("cuda")
    layer, last = tutti.Layer("softmax", cols=1024), numbers(64, 1024)
    x, y = torch.zeros_like(last), torch.empty_like(last)
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)
    x.copy_(last)  # behind the sleep
    layer.forward(ctx, x=Interface(x, version=3, stream=1), y=Interface(y))
    ctx.synchronize()
    close(y, torch.softmax(last, 1), "f32")


def test_the_same_bits_by_either_interface():
    """Of f32, which PyTorch's CUDA array interface carries, too."""
    if not CUDA:
        skip("the CUDA array interface is of GPUs")
    layer, x = tutti.Layer("softmax", cols=100), numbers(7, 100)
    one, two = torch.empty_like(x), torch.empty_like(x)
    layer.forward(CTX, x=x, y=one)
    layer.forward(CTX, x=Interface(x), y=Interface(two))
    torch.cuda.synchronize()
    assert torch.equal(one, two)
    refused(lambda: layer.forward(CTX, x=Interface(x.double()), y=one), "x is f64, want f32")


rig.run_tests()
