"""The layers that bench/compare.py times: their inputs, Tutti's calls and PyTorch's functions."""

import torch
import torch.nn.functional as F
import tutti

from compare_torch import rms_norm

TYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16,
         "i32": torch.int32, "u8": torch.uint8}
TYPES["tf32"] = TYPES["f32"]  # with products in TF32
# Of a result's size: the type's own rounding, and that of sums in f32.
TOLERANCES = {"f64": 1e-12, "f32": 1e-4, "tf32": 4e-3, "f16": 2e-3, "bf16": 1.6e-2}
EPS, P, BASE = 1e-5, 0.1, 10000.0
KEPT = 1 - round(P * 65536) / 65536  # p is taken as a multiple of 2^-16
ACTIVATIONS = {
    "none": lambda z: z, "relu": F.relu, "leaky_relu": F.leaky_relu, "gelu_erf": F.gelu,
    "gelu": lambda z: F.gelu(z, approximate="tanh"), "squared_relu": lambda z: F.relu(z).square(),
    "silu": F.silu, "star_relu": lambda z: 0.8944 * F.relu(z).square() - 0.4472,
    "smelu": lambda z: torch.where(z.abs() < 2, (z + 2).square() / 8, F.relu(z))}
KINKED = "relu", "leaky_relu"  # at 0, where the derivative jumps
SQUARES = "squared_relu", "star_relu"  # double what z is off by, and few of them are most of a sum


class Kind:
    """What a kind's table does not say.

    sizes: options that a shape sets, after rows; inputs: of forward; reads: of these and of
    forward's results, what backward reads; fields: of a call; function(case, dtype): PyTorch's, of
    the inputs that have gradients, then the parameters, with what else it needs in that type;
    also: {name: function} of forward's other results; variants: {name: options}.
    """

    def __init__(self, sizes, inputs, reads, function, fields="", options=None, variants=None,
                 also=None):
        self.sizes, self.inputs, self.reads = sizes.split(), inputs.split(), reads.split()
        self.function, self.fields, self.also = function, fields.split(), also or {}
        self.options, self.variants = options or {}, variants or {"": {}}


def _by_activation():
    return {name: {"activation": name} for name in ACTIVATIONS}


def _dropout(case, _):
    act = ACTIVATIONS[case.variant]
    return lambda x, bias: F.dropout(act(x + bias), P)


def _glu(case, _):
    act = ACTIVATIONS[case.variant]
    return lambda a, b: act(a) * b


def _linear(case, _):
    act = ACTIVATIONS[case.variant]
    return lambda x, weight, bias: act(F.linear(x, weight, bias))


def _mlp_h(case, _):
    act = ACTIVATIONS[case.variant]
    return lambda x, weight1, weight2, bias1, bias2: act(F.linear(x, weight1, bias1))


def _mlp(case, dtype):
    h = _mlp_h(case, dtype)
    return lambda x, *params: F.linear(h(x, *params), params[1], params[3])


def _matmul(case, _):
    a_is, b_is = (letter == "t" for letter in case.variant)
    op = lambda t, transposed: t.transpose(1, 2) if transposed else t
    return lambda a, b: op(a, a_is) @ op(b, b_is)


def _rope(case, dtype):
    cols, size = case.sizes
    pairs = torch.arange(0, size, 2, device=case.device, dtype=torch.float64)
    place = torch.arange(case.rows, device=case.device, dtype=torch.float64)
    angles = (place[:, None] * BASE ** (-pairs / size)).repeat(1, 2)[:, None, :]
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def rotate(x):
        heads = x.view(case.rows, cols // size, size)
        first, second = heads.chunk(2, 2)
        return (heads * cos + torch.cat((-second, first), 2) * sin).view(case.rows, cols)

    return rotate


def _cross_entropy(case, _):
    labels = case.given["labels"].long()
    return lambda x: F.cross_entropy(x, labels, reduction="sum")


def _mse(case, dtype):
    target, cols = case.given["target"].to(dtype), case.sizes[0]
    return lambda x: F.mse_loss(x, target, reduction="sum") / cols


def _bce(case, dtype):
    target, cols = case.given["target"].to(dtype), case.sizes[0]
    return lambda x: F.binary_cross_entropy_with_logits(x, target, reduction="sum") / cols


KINDS = {
    "layernorm": Kind("cols", "x", "x", lambda case, _: lambda x, gamma, beta: F.layer_norm(
        x, case.sizes, gamma, beta, EPS), options={"eps": EPS}),
    "rmsnorm": Kind("cols", "x", "x", lambda case, _: lambda x, gamma: rms_norm(x, gamma, EPS),
                    options={"eps": EPS}),
    "softmax": Kind("cols", "x", "y", lambda case, _: lambda x: (
        torch.log_softmax if case.variant else torch.softmax)(x, 1),
                    variants={"": {}, "log": {"log": True}}),
    "cross_entropy": Kind("cols", "logits labels", "", _cross_entropy, "step"),
    "dropout": Kind("cols", "x", "x", _dropout, "step first_row", {"p": P}, _by_activation()),
    "linear": Kind("in_ out", "x", "x y", _linear, variants=_by_activation()),
    "mlp": Kind("in_ hidden out", "x", "x h", _mlp, variants=_by_activation(),
                also={"h": _mlp_h}),
    "matmul": Kind("m n k", "a b", "a b", _matmul, variants={
        a + b: {"transpose_a": a == "t", "transpose_b": b == "t"} for a in "nt" for b in "nt"}),
    "glu": Kind("cols", "a b", "a b", _glu, variants=_by_activation()),
    "rope": Kind("cols head_size", "x", "", _rope, "first_row", {"base": BASE}),
    "embedding": Kind("vocab cols", "tokens", "tokens",
                      lambda case, _: lambda weight: F.embedding(case.given["tokens"], weight)),
    "mse": Kind("cols", "prediction target", "", _mse, "step"),
    "bce_with_logits": Kind("cols", "logits target", "", _bce, "step"),
}
LAYERS = {f"{kind}_{variant}".rstrip("_"): (kind, variant)
          for kind, of in KINDS.items() for variant in of.variants}


class Case:
    """The inputs of one layer and shape, Tutti's calls on them and PyTorch's function."""

    def __init__(self, ctx, device, layer, shape, dtype):
        self.kind, self.variant = LAYERS[layer]
        self.of = KINDS[self.kind]
        self.ctx, self.device, self.dtype, self.eps = ctx, device, dtype, EPS
        self.rows, *self.sizes = shape
        typed = {"dtype": "f32", "allow_tf32": True} if dtype == "tf32" else {"dtype": dtype}
        self.layer = tutti.Layer(self.kind, **typed, **dict(zip(self.of.sizes, self.sizes)),
                                 **self.of.options, **self.of.variants[self.variant])
        self._random = torch.Generator(device).manual_seed(sum(shape))
        self.given = {name: self._input(name) for name in self.of.inputs}
        self.params = {name: self._input(name) for name in self.layer.params}
        self.output = "c" if self.kind == "matmul" else "y"
        self.is_loss = self.output not in self.layer.tensors
        self.dy = None if self.is_loss else self._input(self.output)
        self.x = self.given[self.of.inputs[0]]
        self.either = {}  # {name: what a result may differ by besides rounding}
        step = tutti.Step(ctx)
        self.of_call = {name: {"step": step, "first_row": 0}[name] for name in self.of.fields}
        # what has a gradient: of a loss, forward writes it
        self.differentiable = {name: value for name, value in self.given.items()
                               if "d" + name in self.layer.tensors}

    def _input(self, name):
        shape, dtype = self.layer.shape(name, self.rows)
        if name == "labels":
            return torch.randint(0, self.sizes[0], shape, generator=self._random,
                                 device=self.device, dtype=TYPES[dtype])
        if name == "tokens":  # Zipf's law: the probability of token i is that of 1 / (i + 1)
            uniform = torch.rand(shape, generator=self._random, device=self.device,
                                 dtype=torch.float64)
            tokens = ((self.sizes[0] + 1.0) ** uniform).floor() - 1
            return tokens.clamp(0, self.sizes[0] - 1).to(TYPES[dtype])
        values = torch.randn(shape, generator=self._random, device=self.device)
        if self.kind in ("linear", "mlp") and name.startswith("weight"):
            values /= shape[-1] ** 0.5
        if self.kind in ("linear", "mlp") and name.startswith("bias"):
            values /= 8  # or a few columns' activations, with their rounding, are far larger
        if self.kind == "bce_with_logits" and name == "target":
            values = values.sigmoid()
        if self.dtype == "tf32":  # so that products round none, and z is on the right side of 0
            values = (values.view(torch.int32) + 0x1000).bitwise_and(-0x2000).view(torch.float32)
        return values.to(TYPES[dtype])

    def empty(self, name, layer=None):
        shape, dtype = (layer or self.layer).shape(name, self.rows)
        return torch.empty(shape, dtype=TYPES[dtype], device=self.device)

    def calls(self):
        """{pass: (call, {name: result}, bytes)}; forward must run before backward.  The bytes are
        those of all tensors of a call but parameters, and numbers of a row."""
        size_of = lambda tensors: sum(t.numel() * t.element_size() for t in tensors.values()
                                      if t.dim() > 1)
        grads = {"d" + name: self.empty("d" + name) for name in self.params}
        self.layer.bind(**self.params, **grads)
        if self.is_loss:
            out = {name: self.empty(name) for name in ("loss_sum", "d" + self.of.inputs[0])}
            call = self.layer.prepare(self.ctx, **self.given, **out, **self.of_call)
            return {"forward": (call, out, size_of(self.given) + size_of(out))}
        y = {name: self.empty(name) for name in (self.output, *self.of.also)}
        dy = {"d" + self.output: self.dy}
        din = {"d" + name: self.empty("d" + name) for name in self.differentiable}
        saved = self.empty("saved")
        kept = {"saved": saved} if saved.numel() else {}
        reads = {name: value for name, value in {**self.given, **y}.items()
                 if name in self.of.reads}
        forward = self.layer.prepare(self.ctx, **self.given, **y, **kept, **self.of_call)
        backward = self.layer.prepare(self.ctx, True, **reads, **dy, **din, **kept, **self.of_call)
        table = self.kind == "embedding"  # its rows are read, and its gradient written
        return {"forward": (forward, y, size_of(self.given) + size_of(y) * (2 if table else 1)),
                "backward": (backward, {**din, **grads}, size_of(reads) + size_of(dy) +
                             size_of(grads if table else din))}

    def bare(self, passes):
        """A call's bare products, or None."""
        if self.kind == "mlp":
            return self._bare_mlp(passes)
        if self.kind not in ("linear", "matmul"):
            return None
        if self.kind == "linear":
            left, right, dy = self.x, self.params["weight"].t(), self.dy
        else:
            turned = [letter == "t" for letter in self.variant]
            left, right = (t.transpose(1, 2) if turn else t
                           for t, turn in zip(self.given.values(), turned))
            dy = self.dy
        across = lambda t: t.transpose(-1, -2)
        if passes == "forward":
            out = torch.empty_like(dy)
            return lambda: torch.matmul(left, right, out=out)
        # each gradient as it lies
        pairs = [(dy, across(right)), (across(left), dy)]
        lies = [left, right]
        if self.kind == "linear":
            pairs[1], lies[1] = (across(dy), left), self.params["weight"]
        else:
            for i, turn in enumerate(turned):
                if turn:
                    pairs[i] = tuple(across(t) for t in reversed(pairs[i]))
                    lies[i] = across(lies[i])
        outs = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in lies]
        return lambda: [torch.matmul(*pair, out=out) for pair, out in zip(pairs, outs)]

    def _bare_mlp(self, passes):
        x, dy, (up, down) = self.x, self.dy, (self.params["weight1"], self.params["weight2"])
        h = _mlp_h(self, None)(x, *self.params.values()).to(x.dtype)
        pairs = [(x, up.t()), (h, down.t())]
        if passes == "backward":
            pairs = [(dy, down), (dy.t(), h), (h, up), (h.t(), x)]  # h: of dz's size
        outs = [torch.empty(a.shape[0], b.shape[1], dtype=x.dtype, device=x.device)
                for a, b in pairs]
        return lambda: [torch.matmul(*pair, out=out) for pair, out in zip(pairs, outs)]

    def mask(self):
        """What dropout keeps: ones through a layer without activation, whose mask is the same."""
        layer = tutti.Layer("dropout", cols=self.sizes[0], dtype=self.dtype, p=P, no_bias=1)
        y = self.empty("y", layer)
        layer.forward(self.ctx, x=torch.ones_like(self.x), y=y, **self.of_call)
        self.ctx.synchronize()
        return y != 0

    def function(self, dtype=None):
        """PyTorch's function, and what it is a function of; dropout draws a mask of its own."""
        of = self.differentiable or ({} if self.params else {"x": self.x})
        dtype = dtype or TYPES[self.dtype]
        of = [t.to(dtype).detach().clone().requires_grad_()
              for t in (*of.values(), *self.params.values())]
        return self.of.function(self, dtype), of

    def expected(self):
        """{name: PyTorch's result in f64}."""
        function, of = self.function(torch.float64)
        if self.kind in ("linear", "mlp") and self.variant in KINKED:
            self._allow_either_side(*of)
        if self.kind == "dropout":
            keep, act = self.mask(), ACTIVATIONS[self.variant]
            share, count = keep.double().mean().item(), keep.numel()
            if not abs(share - KEPT) <= 6 * (P * KEPT / count) ** 0.5:
                raise ArithmeticError(f"dropout keeps {share}, want {KEPT}")
            function = lambda x, bias: torch.where(keep, act(x + bias), 0) / KEPT
        y = function(*of)
        grads = torch.autograd.grad(y, of, None if self.is_loss else self.dy.double())
        names = (self.of.inputs[:1] if self.is_loss else
                 (*self.differentiable, *self.params))
        also = {name: of_kind(self, torch.float64)(*of).detach()
                for name, of_kind in self.of.also.items()}
        return {"loss_sum" if self.is_loss else self.output: y.detach(), **also,
                **{"d" + name: grad for name, grad in zip(names, grads)}}

    def _allow_either_side(self, x, weight, *params):
        """Where z is 0 but for the rounding of its sum, either derivative is right."""
        which, bias, dh = "", params[-1], self.dy.double()
        if self.kind == "mlp":
            which, bias, dh = "1", params[1], dh @ params[0]
        with torch.no_grad():
            z = F.linear(x, weight, bias)
            near = z.abs() < 2e-5 * z.square().mean().sqrt()
            jump = torch.where(near, dh.abs(), 0)
            self.either = {"dx": jump @ weight.abs(), "dweight" + which: jump.T @ x.abs(),
                           "dbias" + which: jump.sum(0)}

    def main(self, passes):
        """The name of the result that a peer has too."""
        if self.is_loss:
            return "d" + self.of.inputs[0]
        if passes == "forward":
            return self.output
        return "d" + next(iter((*self.differentiable, *self.params)))

    def wrong(self, results, expected, slack=1):
        """The names of wrong results, each with its largest error."""
        found = []
        if self.kind == "mlp" and self.variant in SQUARES and self.dtype in ("f16", "bf16"):
            slack *= 2
        for name, got in results.items():
            want = expected[name].reshape(got.shape)
            allowed = want.abs() + want.square().mean().sqrt()
            least = 6e-8 if got.dtype == torch.float16 else 0  # the step of its smallest numbers
            allowed = slack * TOLERANCES[self.dtype] * allowed + least + 1e-30
            if name in self.either:
                allowed = allowed + self.either[name].reshape(got.shape)
            ratio = (got.double() - want).abs() / allowed
            if not (ratio <= 1).all():
                found.append(f"{name} is wrong, {ratio.max().item():.3g} times what is allowed")
        return found
