"""LayerNorm and RMSNorm."""

import numpy as np

from ..bounds import FUNCTION, Result, Spread, Sum, arithmetic, stored, tree, unit
from ..draw import Stream
from ..numbers import FLOATS, round_to

KINDS = ("layernorm", "rmsnorm")
BLOCK = 1 << 19  # elements that are computed at a time


def average(values):
    return values.mean(axis=1, keepdims=True)


class Norm:
    """options: the layer's, cols among them.  shape: of x, rows first.  residual, dsum: whether there is one.
    mean, deviation: of x.  dy_of_y: dy as a function of y, otherwise dy is random, of deviation dy_scale.
    real: the type that the reference computes in."""

    def __init__(
        self,
        layer,
        options,
        shape,
        residual=False,
        dsum=False,
        mean=0.25,
        deviation=1.0,
        dy_scale=1.0,
        dy_of_y=None,
        real=np.longdouble,
    ):
        self.layer, self.options, self.shape = layer, options, tuple(shape)
        self.residual, self.dsum = residual, dsum
        self.mean, self.deviation, self.dy_scale, self.dy_of_y = mean, deviation, dy_scale, dy_of_y
        self.real, self.attributes = real, {}
        self.centered = layer == "layernorm"
        self.rows, self.cols = self.shape[0], options["cols"]
        self.x_dtype, self.param_dtype = options.get("x_dtype", "f32"), options.get("param_dtype", "f32")
        self.y_dtype = options.get("y_dtype", self.x_dtype)
        self.computed = arithmetic(self.x_dtype, self.param_dtype)
        self.eps = self.real(options.get("eps", 1e-5 if self.centered else 1e-6))
        self.zero = bool(options.get("zero_centered", False))
        self.gamma = not options.get("no_gamma", False)
        self.beta = self.centered and not options.get("no_beta", False)

    def run(self, recorder):
        stream = {
            name: Stream(recorder.data, name) for name in ("x", "residual", "gamma", "beta", "dy", "dsum")
        }
        gamma = round_to(stream["gamma"].normal(self.cols) * 0.25 + (not self.zero), self.param_dtype)
        beta = round_to(stream["beta"].normal(self.cols) * 0.5, self.param_dtype) if self.beta else None
        weights = self.shape[1:]  # a weight of several dimensions, as x has them
        if self.gamma:
            recorder.exact("params/gamma", self.param_dtype, weights, gamma.reshape(weights))
        else:
            gamma = None
        if self.beta:
            recorder.exact("params/beta", self.param_dtype, weights, beta.reshape(weights))
        sums, seconds = (Sum(), Sum()), [0, 0]
        step = max(1, BLOCK // self.cols)
        for start in range(0, max(self.rows, 1), step):
            size = (min(step, self.rows - start), self.cols)
            self._block(recorder, stream, gamma, beta, start, size, sums, seconds)
        grad = self.computed
        for name, present, total, second in zip(("gamma", "beta"), (self.gamma, self.beta), sums, seconds):
            if present:
                result = total.result(self.rows, unit(grad, self.real), grad)
                recorder.expect(
                    f"expected_grad/d{name}",
                    grad,
                    weights,
                    result,
                    second=second if recorder.torch else None,
                )

    def _block(self, recorder, stream, gamma, beta, start, size, sums, seconds):
        def exact(path, dtype, values):
            recorder.exact(path, dtype, self.shape, values, start)

        x = round_to(self.mean + self.deviation * stream["x"].normal(*size), self.x_dtype)
        exact("inputs/x", self.x_dtype, x)
        if self.residual:
            residual = round_to(stream["residual"].normal(*size), self.x_dtype)
            exact("inputs/residual", self.x_dtype, residual)
            x = round_to(x.astype(self.real) + residual, self.x_dtype)
            zero = np.zeros(size)
            recorder.expect("expected/sum", self.x_dtype, self.shape, Result(x, zero, zero), start)
        y, row = self._forward(x, gamma, beta)
        if self.dy_of_y:
            dy = round_to(self.dy_of_y(y.value), self.y_dtype)
        else:
            dy = round_to(self.dy_scale * stream["dy"].normal(*size), self.y_dtype)
        exact("upstream/dy", self.y_dtype, dy)
        dsum = round_to(stream["dsum"].normal(*size), self.x_dtype) if self.dsum else None
        if self.dsum:
            exact("upstream/dsum", self.x_dtype, dsum)
        dx = self._backward(row, gamma, dy, dsum, sums)
        second = self._second(recorder.torch, x, gamma, beta, dy, dsum) if recorder.torch else {}
        recorder.expect("expected/y", self.y_dtype, self.shape, y, start, second=second.get("y"))
        recorder.expect("expected_grad/dx", self.x_dtype, self.shape, dx, start, second=second.get("dx"))
        for i, name in enumerate(("dgamma", "dbeta")):
            seconds[i] = seconds[i] + second.get(name, 0)

    def _factor(self, gamma):
        if gamma is None:
            return np.ones(self.cols, self.real)
        return gamma.astype(self.real) + (1 if self.zero else 0)

    def _forward(self, x, gamma, beta):
        """y, and for backward each row's n and statistics, with their errors."""
        u = unit(self.computed, self.real)
        x = x.astype(self.real)
        factor = self._factor(gamma)
        mean = size = np.zeros((len(x), 1), self.real)
        mean_error = Spread(np.zeros(mean.shape), np.zeros(mean.shape))
        if self.centered:
            mean, size = average(x), average(np.abs(x))
            if self.cols > 1:  # the mean of one number is exact
                mean_error = tree(u, x).times(1 / self.cols) + Spread.of(u * np.abs(mean), u * np.abs(mean))
        centered = x - mean
        square = centered * centered
        variance = average(square) + self.eps
        overflows = np.maximum(square.sum(axis=1, keepdims=True), np.abs(mean) * self.cols) > FLOATS[self.computed].most
        rstd = np.where(overflows, self.real(np.nan), 1 / np.sqrt(variance))
        # the differences and their squares, the sum, the division, eps; the mean's error enters by its square
        error = Spread.of(2 * u * square * self.centered, u * square).sum(1, True) + tree(u, square)
        error = error.times(1 / self.cols) + Spread.of(u * variance, u * variance, mean_error.most() ** 2)
        rstd_error = error.times(0.5 / variance) + Spread.of(u) + Spread.single(FUNCTION * u)  # relative
        n = centered * rstd
        product = np.abs(n * factor).astype(np.float64)
        value = n * factor + (0 if beta is None else beta)
        error = mean_error.times(rstd * factor) + rstd_error.times(product)
        error = error + Spread.of(*[u * product] * (2 + self.centered + self.zero))
        if beta is not None:
            error = error + Spread.of(u * np.abs(value))
        sizes = (np.abs(x) + size) * rstd  # of n's terms
        terms = sizes * np.abs(factor) + (0 if beta is None else np.abs(beta))
        row = dict(n=n, rstd=rstd, shift=mean_error.times(rstd), rstd_error=rstd_error, sizes=sizes)
        return Result(value, stored(error, value, self.y_dtype, self.computed), terms), row

    def _backward(self, row, gamma, dy, dsum, sums):
        u = unit(self.computed, self.real)
        n, rstd, rstd_error, sizes = row["n"], row["rstd"], row["rstd_error"], row["sizes"]
        shift = row["shift"]  # the error of n due to that of the mean
        size_n = np.abs(n).astype(np.float64)
        dy = dy.astype(self.real)
        size_dy = np.abs(dy).astype(np.float64)
        n_own = Spread.of(*[u * size_n] * (1 + self.centered))
        n_error = n_own + shift + rstd_error.times(size_n)
        sums[0].add(dy * n, (n_error + Spread.of(u * size_n)).times(size_dy), size_dy * sizes)
        sums[1].add(dy, Spread.of(np.zeros(dy.shape)), size_dy)

        g = dy * self._factor(gamma)
        size_g = np.abs(g).astype(np.float64)
        g_own = Spread.of(*[u * size_g] * ((gamma is not None) + self.zero), np.zeros(g.shape))
        mean_g, mean_g_error = np.zeros_like(rstd), Spread()
        if self.centered:
            mean_g = average(g)
            mean_g_error = (g_own.sum(1, True) + tree(u, g)).times(1 / self.cols)
            mean_g_error = mean_g_error + Spread.of(u * np.abs(mean_g), u * np.abs(mean_g))
        mean_gn = average(g * n)
        own = g_own.times(size_n) + n_own.times(size_g) + Spread.of(u * size_g * size_n)
        mean_gn_error = (own.sum(1, True) + tree(u, g * n)).times(1 / self.cols)
        mean_gn_error = mean_gn_error + Spread.of(u * np.abs(mean_gn), u * np.abs(mean_gn))
        mean_gn_error = mean_gn_error + shift.times(mean_g) + rstd_error.times(mean_gn)
        inner = rstd * (g - mean_g - n * mean_gn)
        value = inner + (0 if dsum is None else dsum)
        error = (g_own + mean_g_error + mean_gn_error.times(size_n) + n_error.times(mean_gn)).times(rstd)
        error = (
            error
            + rstd_error.times(inner)
            + Spread.of(
                u * rstd * np.abs(n * mean_gn),
                u * rstd * np.abs(g - mean_g),
                u * np.abs(inner),
                u * np.abs(inner),
                0 if dsum is None else u * np.abs(value),
            )
        )
        terms = rstd * (size_g + average(size_g) + sizes * average(size_g * sizes))
        return Result(
            value,
            stored(error, value, self.x_dtype, self.computed),
            terms + (0 if dsum is None else np.abs(dsum)),
        )

    def _second(self, torch, x, gamma, beta, dy, dsum):
        leaf = {"dx": torch.tensor(x, requires_grad=True)}
        factor, shift = 1.0, 0.0
        if gamma is not None:
            leaf["dgamma"] = torch.tensor(gamma, requires_grad=True)
            factor = leaf["dgamma"] + (1.0 if self.zero else 0.0)
        if beta is not None:
            shift = leaf["dbeta"] = torch.tensor(beta, requires_grad=True)
        x = leaf["dx"]
        if self.centered:
            n = torch.nn.functional.layer_norm(x, (self.cols,), eps=float(self.eps))
        else:
            n = x * torch.rsqrt((x * x).mean(1, keepdim=True) + float(self.eps))
        y = n * factor + shift
        loss = (y * torch.tensor(dy)).sum()
        if dsum is not None:
            loss = loss + (x * torch.tensor(dsum)).sum()
        loss.backward()
        return {"y": y.detach().numpy(), **{name: tensor.grad.numpy() for name, tensor in leaf.items()}}


def simulate(case, given):
    real = case.real("x_dtype", "param_dtype")
    cols, centered = case.option("cols", 0), case.layer == "layernorm"
    eps = case.option("eps", 1e-5 if centered else 1e-6)
    x = case.inputs["x"].values.reshape(-1, cols).astype(real)
    results = {}
    if "residual" in case.inputs:
        total = x + case.inputs["residual"].values.reshape(-1, cols).astype(real)
        results["sum"] = round_to(total, case.inputs["x"].dtype)
        x = results["sum"].astype(real)
    factor = beta = None
    if "gamma" in case.params:
        factor = case.params["gamma"].values.reshape(cols).astype(real) + real(
            case.option("zero_centered", 0)
        )
    if "beta" in case.params:
        beta = case.params["beta"].values.reshape(cols).astype(real)
    mean = x.mean(axis=1, keepdims=True) if centered else real(0)
    if centered:  # two passes, of which the second corrects the first
        mean = mean + (x - mean).mean(axis=1, keepdims=True)
    c = x - mean
    squares = (c * c).sum(axis=1, keepdims=True).astype(np.float64)
    rstd = (1 / np.sqrt(np.where(np.isfinite(squares), squares, np.nan) / cols + eps)).astype(real)
    n = c * rstd
    results["y"] = n if factor is None else n * factor
    if beta is not None:
        results["y"] = results["y"] + beta
    if "dy" in given:
        dy = given["dy"].reshape(-1, cols).astype(real)
        results["dgamma"], results["dbeta"] = (dy * n).sum(axis=0), dy.sum(axis=0)
        g = dy if factor is None else dy * factor
        mean_g = g.mean(axis=1, keepdims=True) if centered else real(0)
        results["dx"] = rstd * (g - mean_g - n * (g * n).mean(axis=1, keepdims=True))
        if "dsum" in given:
            results["dx"] = results["dx"] + given["dsum"].reshape(-1, cols).astype(real)
    return results


def norm(layer, types, shape, **more):
    """more: options of the layer; capitalised ones are arguments of Norm()."""
    x, param, y = types
    options = dict(cols=int(np.prod(shape[1:])), x_dtype=x, param_dtype=param, y_dtype=y)
    options.update((key, value) for key, value in more.items() if key[0].islower())
    return Norm(
        layer, options, shape, **{key.lower(): value for key, value in more.items() if key[0].isupper()}
    )


def _norms(layer):
    # a weight of two dimensions, as in the JAX tutorial
    shape = (4, 33) if layer == "layernorm" else (4, 3, 11)
    for x in FLOATS:
        for param in FLOATS:
            for y in dict.fromkeys((x, param)):
                yield f"{layer}-types-{x}-{param}-{y}", norm(layer, (x, param, y), shape)
    chosen = {
        "residual": dict(Residual=True),
        "residual-dsum": dict(Residual=True, Dsum=True),
        "zero-centered": dict(zero_centered=True),
        "no-gamma": dict(no_gamma=True),
        "eps": dict(eps=0.25),
        "eps-0": dict(eps=0.0),
        "small-x": dict(Mean=0.0, Deviation=1e-3),
    }
    if layer == "layernorm":
        chosen["no-gamma"] = dict(no_gamma=True, no_beta=True)
        chosen["no-beta"] = dict(no_beta=True)
        chosen["no-beta-zero-centered"] = dict(no_beta=True, zero_centered=True)
        chosen["large-mean"] = dict(Mean=2.0, Deviation=0.5)
    for option, more in chosen.items():
        for types in (("f32",) * 3, ("bf16", "f32", "bf16")):
            yield f"{layer}-{option}-{types[0]}", norm(layer, types, (5, 33), **more)
    shapes = ((0, 8), (1, 64), (1, 257), (33, 17), (65, 5), (2, 1025), (2, 129), (4, 3, 5), (3, 2, 2, 7))
    for shape in shapes:
        for types in (("f32",) * 3, ("bf16", "f32", "bf16"))[: 1 + (shape in ((33, 17), (2, 1025)))]:
            yield f"{layer}-shape-{'x'.join(map(str, shape))}-{types[0]}", norm(layer, types, shape)
    # with so few columns the terms of dx almost cancel, unless eps contributes to rstd
    for cols in (1, 3) if layer == "layernorm" else (1, 2, 3):
        yield f"{layer}-shape-7x{cols}-f32", norm(layer, ("f32",) * 3, (7, cols), eps=1.0)


def small():
    yield from _norms("layernorm")
    yield from _norms("rmsnorm")


REDRAWN = {
    "layernorm-types-f64-f32-f64": 1,
    "layernorm-types-f64-f16-f16": 3,
    "layernorm-types-f64-bf16-f64": 1,
    "layernorm-types-f64-bf16-bf16": 1,
    "layernorm-residual-f32": 2,
    "layernorm-eps-0-f32": 4,
    "layernorm-small-x-f32": 1,
    "layernorm-no-beta-zero-centered-f32": 1,
    "layernorm-shape-1x257-f32": 1,
    "layernorm-shape-2x1025-f32": 2,
    "layernorm-shape-7x3-f32": 1,
    "rmsnorm-types-f64-f16-f16": 1,
    "rmsnorm-zero-centered-f32": 1,
    "rmsnorm-shape-2x1025-f32": 1,
    "rmsnorm-shape-2x129-f32": 1,
}
