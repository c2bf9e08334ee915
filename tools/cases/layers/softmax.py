"""Softmax and log-softmax."""

import numpy as np

from ..bounds import FUNCTION, TINY, Result, Spread, arithmetic, stored, tree, unit
from ..draw import Stream
from ..numbers import FLOATS, round_to

BLOCK = 1 << 19


def exponents(t, scale, u, computed, scaled=None):
    """exp(t - max t) of each row, their sum, and the errors: of each exponent, of each exponential relative
    to it, of the sum relative to it.  Masked elements are -inf.  The difference comes before the scaling, unless
    a bias was added: scaled is then t without it.  A row without a visible element has a sum of 1."""
    most = t.max(axis=1, keepdims=True)
    most = np.where(np.isneginf(most), 0, most)
    gap = t - most
    e = np.exp(gap)
    seen = np.isfinite(gap)
    size = np.where(seen, np.abs(gap), 0)
    lost = abs(float(round_to(np.float64(scale), computed)) / scale - 1) if scale else 0.0
    # the difference, the product, the scale as a number of the arithmetic
    times = size if scaled is None else np.where(seen, np.abs(scaled), 0)
    exponent = Spread.of(u * size, u * times * (scale != 1)) + Spread.single(lost * times)
    if scaled is not None:
        exponent = exponent + Spread.of(u * np.where(seen, np.abs(t), 0))
    own = (
        exponent + Spread.of(u * size) + Spread.single(FUNCTION * u * (size > 0))
    )  # another base; exp(0) is 1
    total = np.where(seen.any(axis=1, keepdims=True), e.sum(axis=1, keepdims=True), 1)
    relative = (own.times(e).sum(1, True) + tree(u, e)).times(1 / total)
    return dict(
        most=most, gap=gap, e=e, seen=seen, exponent=exponent, own=own, total=total, relative=relative
    )


def weights(s, u, tiny):
    """softmax from exponents() and its error."""
    p = s["e"] / s["total"]
    several = s["seen"].sum(axis=1, keepdims=True) > 1  # one alone is 1
    error = (s["own"] + s["relative"] + Spread.of(u, u)).times(p * several)
    return p, error + Spread.of(tiny * s["seen"] * several)


class Softmax:
    def __init__(
        self,
        options,
        shape,
        first_row=0,
        deviation=1.0,
        masked=0,
        backward=True,
        lengths=False,
        bias=0,
        real=np.longdouble,
    ):
        """masked: the fraction of x that is -inf.  lengths: rows have some.  bias: its deviation; 0: none."""
        self.layer, self.options, self.shape = "softmax", options, tuple(shape)
        self.rows, self.cols, self.dtype = self.shape[0], options["cols"], options.get("dtype", "f32")
        self.computed = arithmetic(self.dtype)
        self.log, self.scale = bool(options.get("log", False)), options.get("scale", 1.0)
        self.period, self.first_row = options.get("causal_period", 0), first_row
        self.attributes = {"first_row": first_row} if first_row else {}
        self.deviation, self.masked, self.backward, self.real = deviation, masked, backward, real
        self.lengths, self.bias = lengths, bias

    def run(self, recorder):
        stream = {name: Stream(recorder.data, name) for name in ("x", "masked", "dy", "lengths", "bias")}
        step = max(1, BLOCK // self.cols)
        for start in range(0, max(self.rows, 1), step):
            size = (min(step, self.rows - start), self.cols)
            x = round_to(self.deviation * stream["x"].normal(*size), self.dtype)
            if self.masked:
                hidden = stream["masked"].uniform(*size) < self.masked
                hidden[:, 0] &= not self.period  # a row of -inf alone has no softmax
                x[hidden & (x < x.max(axis=1, keepdims=True))] = -np.inf
            dy = round_to(stream["dy"].normal(*size), self.dtype)
            recorder.exact("inputs/x", self.dtype, self.shape, x, start)
            lengths, bias = None, None
            if self.lengths:
                lengths = stream["lengths"].below(self.cols + 1, size[0])
                # dx of a short row nearly cancels
                lengths[lengths < self.cols // 2] = 0
                recorder.exact("inputs/lengths", "i32", (self.rows,), lengths, start)
            if self.bias:
                bias = round_to(self.bias * stream["bias"].normal(*size), self.dtype)
                recorder.exact("inputs/bias", self.dtype, self.shape, bias, start)
            visible = self._visible(start, size[0], lengths)
            y, dx, dbias = self._both(x, bias, dy, visible)
            second = self._second(recorder.torch, x, bias, dy, visible) if recorder.torch else {}
            recorder.expect("expected/y", self.dtype, self.shape, y, start, second=second.get("y"))
            if self.backward:
                recorder.exact("upstream/dy", self.dtype, self.shape, dy, start)
                recorder.expect(
                    "expected_grad/dx", self.dtype, self.shape, dx, start, second=second.get("dx")
                )
            if self.backward and self.bias:
                recorder.expect(
                    "expected_grad/dbias", self.dtype, self.shape, dbias, start, second=second.get("dbias")
                )

    def _visible(self, start, rows, lengths):
        ends = np.full(rows, self.cols) if lengths is None else np.asarray(lengths)
        if self.period:
            ends = np.minimum(ends, (self.first_row + start + np.arange(rows)) % self.period + 1)
        return np.arange(self.cols) < ends[:, None]

    def _both(self, x, bias, dy, visible):
        u, tiny = unit(self.dtype, self.real), TINY[self.computed]
        if len(x) == 0:
            empty = np.zeros(x.shape)
            return (Result(empty, empty, empty),) * 3
        with np.errstate(invalid="ignore"):
            scaled = self.real(self.scale) * x
            t = np.where(visible, scaled if bias is None else scaled + bias, -np.inf)
        s = exponents(t, self.scale, u, self.computed, None if bias is None else scaled)
        p, p_error = weights(s, u, tiny)
        seen = s["seen"]
        condition = 1 + np.where(seen, np.abs(t), 0) + np.abs(s["most"])
        if bias is not None:
            condition = condition + np.where(seen, np.abs(scaled), 0)
        if self.log:
            log_total = np.log(s["total"])
            y = np.where(seen, s["gap"] - log_total, -np.inf)
            size = np.where(seen, np.abs(y), 0)
            error = (
                s["exponent"] + s["relative"] + Spread.of(u * size) + Spread.single(FUNCTION * u * log_total)
            )
            terms = condition + log_total
        else:
            y, error, terms, size = p, p_error, p * condition, p
        bound = np.where(seen, stored(error, size, self.dtype, self.computed), 0)
        # y as backward reads it: rounded
        if self.dtype != self.computed:
            rounding = size * FLOATS[self.dtype].roundoff + FLOATS[self.dtype].least / 2
            error = error + Spread.single(rounding * seen * (size != 1))
        return Result(y, bound, terms), *self._backward(
            p, y, error, np.where(visible, dy, 0), s, u, tiny, condition
        )

    def _backward(self, p, y, y_error, dy, s, u, tiny, condition):
        """dx and dbias from y as it was stored."""
        dy = dy.astype(self.real)
        size_dy = np.abs(dy).astype(np.float64)
        if self.log:
            finite = np.where(s["seen"], np.abs(y), 0).astype(np.float64)
            total = dy.sum(axis=1, keepdims=True)
            total_error = tree(u, dy) + Spread.of(u * np.abs(total))
            subtrahend = np.abs(p * total).astype(np.float64)
            error = total_error.times(p) + Spread.single(FUNCTION * u * subtrahend)
            error = error + Spread.of(u * finite * subtrahend, u * subtrahend, u * np.abs(dy - p * total))
            growth = np.where(s["seen"], np.expm1(y_error.most()) / np.maximum(y_error.most(), tiny), 0)
            error = error + y_error.times(subtrahend * growth)
            value = dy - p * total
            terms = size_dy + p * size_dy.sum(axis=1, keepdims=True) * condition
        else:
            total = (y * dy).sum(axis=1, keepdims=True)
            own = y_error.times(size_dy) + Spread.of(u * y * size_dy)
            total_error = own.sum(1, True) + tree(u, y * dy) + Spread.of(u * np.abs(total))
            difference = np.abs(dy - total)
            error = total_error.times(y) + y_error.times(difference) + Spread.of(*[u * y * difference] * 2)
            value = y * (dy - total)
            terms = y * (size_dy + (y * size_dy).sum(axis=1, keepdims=True)) * condition
        return [
            self._gradient(factor, value, error, terms, s["seen"] | (size_dy > 0), u, tiny)
            for factor in (self.scale, 1.0)
        ]

    def _gradient(self, factor, value, error, terms, bounded, u, tiny):
        scale, value = abs(factor), self.real(factor) * value
        error = error.times(scale) + Spread.of(
            u * np.abs(value), u * np.abs(value) * (scale != 1), tiny, tiny * scale
        )
        bound = np.where(bounded, stored(error, value, self.dtype, self.computed), 0)
        return Result(value, bound, scale * terms)

    def _second(self, torch, x, bias, dy, visible):
        leaf, visible = torch.tensor(x, requires_grad=True), torch.tensor(visible)
        more = torch.tensor(np.zeros_like(x) if bias is None else bias, requires_grad=True)
        t = torch.where(visible, leaf * self.scale + more, torch.tensor(-np.inf, dtype=torch.float64))
        y = (torch.log_softmax if self.log else torch.softmax)(t, 1)
        nothing = torch.tensor(-np.inf if self.log else 0.0, dtype=torch.float64)
        y = torch.where(visible.any(1, keepdim=True), y, nothing)
        y.backward(torch.where(visible, torch.tensor(dy), torch.zeros(1, dtype=torch.float64)))
        gradients = {
            name: torch.where(visible, at.grad, torch.zeros(1, dtype=torch.float64)).numpy()
            for name, at in (("dx", leaf), ("dbias", more))
        }
        return {"y": y.detach().numpy(), **gradients}


def simulate(case, given):
    real, cols = case.real("dtype"), case.option("cols", 0)
    x = case.inputs["x"].values.reshape(-1, cols).astype(real)
    scale, period, log = (
        real(case.option("scale", 1.0)),
        case.option("causal_period", 0),
        case.option("log", 0),
    )
    ends = np.full(len(x), cols)
    if "lengths" in case.inputs:
        ends = case.inputs["lengths"].values
    if period:
        rows = case.attributes.get("first_row", 0) + np.arange(len(x))
        ends = np.minimum(ends, rows % period + 1)
    visible = np.arange(cols) < ends[:, None]
    if "bias" in case.inputs:
        bias = case.inputs["bias"].values.reshape(-1, cols).astype(real)
        t = np.where(visible, scale * x + bias, real(-np.inf))
        t = t - np.where(visible.any(axis=1, keepdims=True), t.max(axis=1, keepdims=True), 0)
    else:
        t = np.where(visible, -x if scale < 0 else x, real(-np.inf))
        t = t - np.where(visible.any(axis=1, keepdims=True), t.max(axis=1, keepdims=True), 0)
        t = t * abs(scale)
    e = np.exp(t)
    total = np.where(visible.any(axis=1, keepdims=True), e.sum(axis=1, keepdims=True), 1)
    y = t - np.log(total) if log else e / total
    results = {"y": y}
    if "dy" in given:
        dy = np.where(visible, given["dy"].reshape(-1, cols), 0).astype(real)
        y = round_to(y, case.expected["y"].dtype).astype(real)
        if log:
            results["dbias"] = dy - np.exp(y) * dy.sum(axis=1, keepdims=True)
        else:
            results["dbias"] = y * (dy - (y * dy).sum(axis=1, keepdims=True))
        results["dx"] = scale * results["dbias"]
        if "bias" not in case.inputs:
            del results["dbias"]
    return results


def small():
    # exponents of moderate size, as their rounding errors are proportional to them
    for log, name in ((False, "softmax"), (True, "log-softmax")):
        for dtype in FLOATS:
            options = dict(dtype=dtype, log=log)
            yield f"{name}-{dtype}", Softmax(dict(cols=33, **options), (5, 33), deviation=0.5)
            yield f"{name}-scale-{dtype}", Softmax(
                dict(cols=33, scale=0.125, **options), (5, 33), deviation=4
            )
            yield f"{name}-causal-{dtype}", Softmax(
                dict(cols=9, causal_period=7, **options), (16, 9), first_row=3, deviation=0.5
            )
            yield f"{name}-lengths-bias-{dtype}", Softmax(
                dict(cols=9, scale=0.5, **options), (6, 9), deviation=0.5, lengths=True, bias=0.25
            )
        options = dict(log=log)
        yield f"{name}-lengths-causal", Softmax(
            dict(cols=7, causal_period=6, **options), (9, 7), first_row=4, deviation=0.5, lengths=True
        )
        yield f"{name}-negative-scale", Softmax(dict(cols=37, scale=-1.5, **options), (5, 37), deviation=0.25)
        yield f"{name}-causal-short", Softmax(
            dict(cols=5, causal_period=8, **options), (19, 5), deviation=0.5
        )
        yield f"{name}-minus-inf", Softmax(dict(cols=33, **options), (5, 33), masked=0.3, deviation=0.5)
        # all but the largest element vanish, and so does the gradient
        yield f"{name}-peaked", Softmax(dict(cols=33, **options), (5, 33), deviation=20, backward=False)
        for shape in ((0, 8), (1, 64), (7, 1), (33, 17), (2, 129), (2, 1025), (4, 3, 5)):
            cols = int(np.prod(shape[1:]))
            yield f"{name}-shape-{'x'.join(map(str, shape))}", Softmax(
                dict(cols=cols, **options), shape, deviation=0.5
            )


REDRAWN = {
    "softmax-f32": 1,
    "softmax-causal-f32": 12,
    "softmax-causal-f64": 2,
    "softmax-causal-short": 2,
    "softmax-shape-1x64": 2,
    "softmax-shape-33x17": 1,
    "softmax-shape-2x1025": 1,
    "softmax-shape-4x3x5": 1,
    "log-softmax-f32": 1,
}
