"""Losses that are means over a row's elements: MSE, and BCE of logits."""

import numpy as np

from ..bounds import FUNCTION, TINY, Result, Spread, arithmetic, depth, stored, tree, unit
from ..draw import Stream
from ..numbers import FLOATS, round_to

KINDS = ("mse", "bce_with_logits")


class Loss:
    def __init__(self, options, rows, loss_weight=1.0, loss_scale=1.0, deviation=1.0, real=np.longdouble):
        self.options, self.rows, self.cols = options, rows, options["cols"]
        self.dtype = options.get("dtype", "f32")
        self.computed = arithmetic(self.dtype)
        self.attributes = {"loss_weight": float(loss_weight), "loss_scale": float(loss_scale)}
        self.weight = real(loss_weight) * real(loss_scale)
        self.deviation, self.real, self.u = deviation, real, unit(self.dtype, real)

    def run(self, recorder):
        shape, dtype = (self.rows, self.cols), self.dtype
        x = round_to(self.deviation * Stream(recorder.data, self.x).normal(*shape), dtype)
        target = round_to(self.targets(Stream(recorder.data, "target"), shape), dtype)
        recorder.exact(f"inputs/{self.x}", dtype, shape, x)
        recorder.exact("inputs/target", dtype, shape, target)
        second = self._second(recorder.torch, x, target) if recorder.torch else {}
        x, target = x.astype(self.real), target.astype(self.real)
        value, error, slope, slope_error, sizes = self.elements(x, target)
        factor = self.factor * self.weight / self.cols
        gradient = slope * factor
        slope_error = slope_error.times(factor) + Spread.single(
            (3 * FLOATS["f64"].roundoff + self.u) * np.abs(gradient)
        )
        slope_error = slope_error + Spread.of(self.u * np.abs(gradient), TINY[self.computed])
        bound = stored(slope_error, gradient, dtype, self.computed)
        result = Result(gradient, bound, sizes * np.abs(factor))
        recorder.expect(f"expected/d{self.x}", dtype, shape, result, second=second.get("gradient"))
        loss = self._rows(value, error, sizes)
        recorder.expect("expected/loss", self.computed, (self.rows,), loss, second=second.get("loss"))
        size, total = np.abs(loss.value).sum(), loss.value.sum()
        bound = Spread(loss.bound.sum(), (loss.bound**2).sum()).most()
        bound = bound + (depth(self.rows) + 1) * FLOATS["f64"].roundoff * size
        result = Result(*(np.reshape(np.asarray(a), (1,)) for a in (total, bound, loss.terms.sum())))
        recorder.expect("expected/loss_sum", "f64", (1,), result)

    def _rows(self, value, error, sizes):
        """Their means."""
        error = (error + Spread.of(np.full(value.shape, TINY[self.computed]))).sum(axis=1)
        added = tree(self.u, value)
        error = (error + Spread(added.total[:, 0], added.squares[:, 0])).times(1 / self.cols)
        mean = value.sum(axis=1) / self.cols
        if self.cols > 1:
            error = error + Spread.of(*[self.u * np.abs(mean)] * 2)
        return Result(mean, stored(error, mean, self.computed, self.computed), sizes.sum(axis=1) / self.cols)

    def _second(self, torch, x, target):
        leaf = torch.tensor(x, requires_grad=True)
        loss = self.torch_loss(torch, leaf, torch.tensor(target)).mean(1)
        (loss.sum() * float(self.weight)).backward()
        return {"loss": loss.detach().numpy(), "gradient": leaf.grad.numpy()}


class MSE(Loss):
    layer, x, factor = "mse", "prediction", 2

    def targets(self, stream, shape):
        return stream.normal(*shape)

    def elements(self, x, target):
        """Losses and their errors, derivatives over the factor and their errors, sizes of terms."""
        difference = x - target
        square, u = difference**2, self.u
        sizes = (np.abs(x) + np.abs(target)) * (2 + np.abs(difference))
        error = Spread.of(2 * u * square, u * square)
        return square, error, difference, Spread.of(u * np.abs(difference)), sizes

    def torch_loss(self, torch, x, target):
        return torch.nn.functional.mse_loss(x, target, reduction="none")


class BCE(Loss):
    layer, x, factor = "bce_with_logits", "logits", 1

    def __init__(self, options, rows, hard=False, **more):
        """hard: targets are 0 and 1."""
        super().__init__(options, rows, **more)
        self.hard, self.pos_weight = hard, options.get("pos_weight", 1.0)

    def targets(self, stream, shape):
        targets = stream.uniform(*shape)
        return np.rint(targets) if self.hard else targets

    def elements(self, x, target):
        u, weight = self.u, self.real(self.pos_weight)
        lost = abs(float(np.float32(weight)) / self.pos_weight - 1) if self.computed == "f32" else 0.0
        e = np.exp(-np.abs(x))
        log_sum, s = np.log1p(e), 1 / (1 + e)
        large, small = np.where(x < 0, e * s, s), np.where(x < 0, s, e * s)
        up, down = np.maximum(x, 0) + log_sum, np.maximum(-x, 0) + log_sum
        off, on = 1 - target, weight * target
        value, slope = off * up + on * down, off * large - on * small
        own = Spread.single(FUNCTION * u * (x != 0)) + Spread.of(u * np.abs(x))
        error = (Spread.single(FUNCTION * u * log_sum) + own.times(e * s)).times(off + on)
        error = error + Spread.of(*[u * off * up] * 3, *[u * on * down] * 3, u * value)
        error = error + Spread.single(lost * on * down)
        slope_error = own.times(e * s * s * (off + on)) + Spread.single(lost * on * small)
        slope_error = slope_error + Spread.of(*[u * off * large] * 5, *[u * on * small] * 5, u * np.abs(slope))
        return value, error, slope, slope_error, (off + on) * (2 + np.abs(x))

    def torch_loss(self, torch, x, target):
        weight = torch.tensor([float(self.pos_weight)], dtype=torch.float64)
        return torch.nn.functional.binary_cross_entropy_with_logits(
            x, target, reduction="none", pos_weight=weight
        )


def simulate(case, given):
    real = case.real("dtype")
    name = "logits" if case.layer == "bce_with_logits" else "prediction"
    x, target = case.inputs[name].values.astype(real), case.inputs["target"].values.astype(real)
    weight = case.attributes.get("loss_weight", 1.0) * case.attributes.get("loss_scale", 1.0)
    if name == "prediction":
        slope = x - target
        value, weight = slope * slope, 2 * weight
    else:
        e = np.exp(-np.abs(x))
        s, log_sum = 1 / (1 + e), np.log1p(e)
        off, on = 1 - target, real(case.option("pos_weight", 1.0)) * target
        value = off * (np.maximum(x, 0) + log_sum) + on * (np.maximum(-x, 0) + log_sum)
        slope = off * np.where(x < 0, e * s, s) - on * np.where(x < 0, s, e * s)
    cols = real(x.shape[1])
    loss = value.sum(axis=1, dtype=real) / cols
    return {
        "loss": loss,
        "loss_sum": loss.astype(np.float64).sum(keepdims=True),
        f"d{name}": slope * real(weight / x.shape[1]),
    }


def small():
    for dtype in FLOATS:
        scale = 1024.0 if dtype == "f16" else 1.0
        yield f"mse-{dtype}", MSE(dict(cols=17, dtype=dtype), 5, loss_weight=1 / 5, loss_scale=scale)
        options = dict(cols=17, dtype=dtype, pos_weight=1.75)
        yield f"bce-{dtype}", BCE(options, 5, loss_weight=1 / 5, loss_scale=scale)
    yield "bce-sure", BCE(dict(cols=9), 7, hard=True, deviation=8)
    for rows, cols in ((0, 8), (21, 1)):
        yield f"mse-shape-{rows}x{cols}", MSE(dict(cols=cols), rows, loss_weight=1 / max(rows, 1))
        yield f"bce-shape-{rows}x{cols}", BCE(dict(cols=cols), rows, loss_weight=1 / max(rows, 1))
