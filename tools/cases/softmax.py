"""Softmax, log-softmax and cross-entropy."""

import numpy as np

from .bounds import FUNCTION, TINY, Result, Spread, arithmetic, depth, stored, tree, unit
from .draw import Stream
from .numbers import FLOATS, round_to

BLOCK = 1 << 19


def exponents(t, scale, u, computed):
    """exp(t - max t) of each row, their sum, and the errors: of each exponent, of each exponential relative
    to it, of the sum relative to it.  Masked elements are -inf.  The difference comes before the scaling."""
    most = t.max(axis=1, keepdims=True)
    gap = t - most
    e = np.exp(gap)
    seen = np.isfinite(gap)
    size = np.where(seen, np.abs(gap), 0)
    lost = abs(float(round_to(np.float64(scale), computed)) / scale - 1) if scale else 0.0
    # the difference, the product, the scale as a number of the arithmetic
    exponent = Spread.of(u * size, u * size * (scale != 1)) + Spread.single(lost * size)
    own = (
        exponent + Spread.of(u * size) + Spread.single(FUNCTION * u * (size > 0))
    )  # another base; exp(0) is 1
    total = e.sum(axis=1, keepdims=True)
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
        self, options, shape, first_row=0, deviation=1.0, masked=0, backward=True, real=np.longdouble
    ):
        """masked: this part of x is -inf."""
        self.layer, self.options, self.shape = "softmax", options, tuple(shape)
        self.rows, self.cols, self.dtype = self.shape[0], options["cols"], options.get("dtype", "f32")
        self.computed = arithmetic(self.dtype)
        self.log, self.scale = bool(options.get("log", False)), options.get("scale", 1.0)
        self.period, self.first_row = options.get("causal_period", 0), first_row
        self.attributes = {"first_row": first_row} if first_row else {}
        self.deviation, self.masked, self.backward, self.real = deviation, masked, backward, real

    def run(self, recorder):
        stream = {name: Stream(recorder.data, name) for name in ("x", "masked", "dy")}
        step = max(1, BLOCK // self.cols)
        for start in range(0, max(self.rows, 1), step):
            size = (min(step, self.rows - start), self.cols)
            x = round_to(self.deviation * stream["x"].normal(*size), self.dtype)
            if self.masked:
                hidden = stream["masked"].uniform(*size) < self.masked
                x[hidden & (x < x.max(axis=1, keepdims=True))] = -np.inf
            dy = round_to(stream["dy"].normal(*size), self.dtype)
            recorder.exact("inputs/x", self.dtype, self.shape, x, start)
            y, dx = self._both(x, dy, start)
            second = self._second(recorder.torch, x, dy, start) if recorder.torch else {}
            recorder.expect("expected/y", self.dtype, self.shape, y, start, second=second.get("y"))
            if self.backward:
                recorder.exact("upstream/dy", self.dtype, self.shape, dy, start)
                recorder.expect(
                    "expected_grad/dx", self.dtype, self.shape, dx, start, second=second.get("dx")
                )

    def _visible(self, start, rows):
        if not self.period:
            return np.ones((rows, self.cols), bool)
        place = (self.first_row + start + np.arange(rows)) % self.period
        return np.arange(self.cols) <= place[:, None]

    def _both(self, x, dy, start):
        u, tiny = unit(self.dtype, self.real), TINY[self.computed]
        if len(x) == 0:
            empty = np.zeros(x.shape)
            return Result(empty, empty, empty), Result(empty, empty, empty)
        visible = self._visible(start, len(x))
        with np.errstate(invalid="ignore"):
            t = np.where(visible, self.real(self.scale) * x, -np.inf)
        s = exponents(t, self.scale, u, self.computed)
        p, p_error = weights(s, u, tiny)
        seen = s["seen"]
        condition = 1 + np.where(seen, np.abs(t), 0) + np.abs(s["most"])
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
        # y as backward reads it
        if self.dtype != self.computed:
            rounding = size * FLOATS[self.dtype].roundoff + FLOATS[self.dtype].least / 2
            error = error + Spread.single(rounding * seen * (size != 1))
        return Result(y, bound, terms), self._backward(
            p, y, error, np.where(visible, dy, 0), s, u, tiny, condition
        )

    def _backward(self, p, y, y_error, dy, s, u, tiny, condition):
        """From y as it was stored."""
        dy, scale = dy.astype(self.real), abs(self.scale)
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
            value = self.real(self.scale) * (dy - p * total)
            terms = scale * (size_dy + p * size_dy.sum(axis=1, keepdims=True) * condition)
        else:
            total = (y * dy).sum(axis=1, keepdims=True)
            own = y_error.times(size_dy) + Spread.of(u * y * size_dy)
            total_error = own.sum(1, True) + tree(u, y * dy) + Spread.of(u * np.abs(total))
            difference = np.abs(dy - total)
            error = total_error.times(y) + y_error.times(difference) + Spread.of(*[u * y * difference] * 2)
            value = self.real(self.scale) * y * (dy - total)
            terms = scale * y * (size_dy + (y * size_dy).sum(axis=1, keepdims=True)) * condition
        error = error.times(scale) + Spread.of(
            u * np.abs(value), u * np.abs(value) * (scale != 1), tiny, tiny * scale
        )
        bound = np.where(s["seen"] | (size_dy > 0), stored(error, value, self.dtype, self.computed), 0)
        return Result(value, bound, terms)

    def _second(self, torch, x, dy, start):
        leaf = torch.tensor(x, requires_grad=True)
        visible = torch.tensor(self._visible(start, len(x)))
        t = torch.where(visible, leaf * self.scale, torch.tensor(-np.inf, dtype=torch.float64))
        y = (torch.log_softmax if self.log else torch.softmax)(t, 1)
        y.backward(torch.where(visible, torch.tensor(dy), torch.zeros(1, dtype=torch.float64)))
        return {"y": y.detach().numpy(), "dx": leaf.grad.numpy()}


class CrossEntropy:
    def __init__(
        self, options, rows, ignored=0.0, loss_weight=1.0, loss_scale=1.0, deviation=1.0, real=np.longdouble
    ):
        """ignored: this part of the labels."""
        self.layer, self.options, self.rows = "cross_entropy", options, rows
        self.cols, self.dtype = options["cols"], options.get("dtype", "f32")
        self.computed = arithmetic(self.dtype)
        self.ignore_label = options.get("ignore_label", -1)
        self.attributes = {"loss_weight": float(loss_weight), "loss_scale": float(loss_scale)}
        self.weight = real(loss_weight) * real(loss_scale)
        self.ignored, self.deviation, self.real = ignored, deviation, real

    def run(self, recorder):
        stream = {name: Stream(recorder.data, name) for name in ("logits", "labels", "ignored")}
        shape, total = (self.rows, self.cols), [0, 0, 0, 0]
        step = max(1, BLOCK // self.cols)
        loss_dtype = self.computed
        for start in range(0, max(self.rows, 1), step):
            size = (min(step, self.rows - start), self.cols)
            x = round_to(self.deviation * stream["logits"].normal(*size), self.dtype)
            labels = stream["labels"].below(self.cols, size[0])
            labels[stream["ignored"].uniform(size[0]) < self.ignored] = self.ignore_label
            recorder.exact("inputs/logits", self.dtype, shape, x, start)
            recorder.exact("inputs/labels", "i32", (self.rows,), labels, start)
            loss, dlogits = self._both(x, labels, loss_dtype)
            second = self._second(recorder.torch, x, labels) if recorder.torch else {}
            recorder.expect("expected/loss", loss_dtype, (self.rows,), loss, start, second=second.get("loss"))
            recorder.expect(
                "expected/dlogits", self.dtype, shape, dlogits, start, second=second.get("dlogits")
            )
            for i, part in enumerate((loss.value, np.abs(loss.value), loss.bound, loss.bound**2)):
                total[i] = total[i] + part.sum()
        value, size, errors, squares = total
        bound = Spread(errors, squares).most() + (depth(self.rows) + 1) * FLOATS["f64"].roundoff * size
        result = Result(*(np.reshape(np.asarray(a), (1,)) for a in (value, bound, size)))
        recorder.expect("expected/loss_sum", "f64", (1,), result)

    def _both(self, x, labels, loss_dtype):
        u, tiny = unit(self.dtype, self.real), TINY[self.computed]
        if len(x) == 0:
            empty, none = np.zeros(x.shape), np.zeros(0)
            return Result(none, none, none), Result(empty, empty, empty)
        counts = labels != self.ignore_label
        at = np.where(counts, labels, 0)[:, None]
        s = exponents(x.astype(self.real), 1, u, self.computed)
        log_total = np.log(s["total"])
        own = np.take_along_axis(x.astype(self.real), at, 1)
        value = s["most"] + log_total - own
        error = s["relative"] + Spread.single(FUNCTION * u * log_total)
        error = error + Spread.of(
            u * np.abs(s["most"] + log_total), u * np.abs(value), u * np.abs(s["most"] - own)
        )
        terms = np.abs(s["most"]) + log_total + np.abs(own) + 1
        parts = (value, stored(error, value, loss_dtype, loss_dtype), terms)
        loss = Result(*(np.where(counts, part[:, 0], 0) for part in parts))

        p, p_error = weights(s, u, tiny)
        hit = np.arange(self.cols) == at
        difference, weight = p - hit, np.abs(self.weight)
        value = difference * self.weight
        error = (p_error + Spread.of(u * np.abs(difference))).times(weight) + Spread.of(
            *[u * np.abs(value)] * 2, tiny
        )
        terms = weight * (hit + p * (1 + np.abs(x) + np.abs(s["most"])))
        parts = (value, stored(error, value, self.dtype, self.computed), terms)
        return loss, Result(*(np.where(counts[:, None], part, 0) for part in parts))

    def _second(self, torch, x, labels):
        leaf = torch.tensor(x, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(
            leaf, torch.tensor(labels), ignore_index=self.ignore_label, reduction="none"
        )
        (loss.sum() * float(self.weight)).backward()
        return {"loss": loss.detach().numpy(), "dlogits": leaf.grad.numpy()}
