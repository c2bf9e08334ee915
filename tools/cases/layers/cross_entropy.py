"""Cross-entropy."""

import numpy as np

from ..bounds import FUNCTION, TINY, Result, Spread, arithmetic, depth, stored, tree, unit
from ..draw import Stream
from ..numbers import FLOATS, round_to
from .softmax import exponents, weights

BLOCK = 1 << 19


class CrossEntropy:
    def __init__(
        self, options, rows, ignored=0.0, loss_weight=1.0, loss_scale=1.0, deviation=1.0, real=np.longdouble
    ):
        """ignored: the fraction of labels that are ignored."""
        self.layer, self.options, self.rows = "cross_entropy", options, rows
        self.cols, self.dtype = options["cols"], options.get("dtype", "f32")
        self.computed = arithmetic(self.dtype)
        self.ignore_label = options.get("ignore_label", -1)
        self.attributes = {"loss_weight": float(loss_weight), "loss_scale": float(loss_scale)}
        self.weight = real(loss_weight) * real(loss_scale)
        self.ignored, self.deviation, self.real = ignored, deviation, real
        self.smoothing, self.z = options.get("label_smoothing", 0), options.get("z_loss", 0)

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
        log_z, gap = s["most"] + log_total, own - s["most"]
        error = s["relative"] + Spread.single(FUNCTION * u * log_total)
        z_error = error + Spread.of(u * np.abs(log_z))
        terms = np.abs(s["most"]) + log_total + np.abs(own) + 1
        if self.smoothing or self.z:
            value, own_error, more = self._whole(s, log_total, log_z, gap, z_error, u)
            error, terms = error + own_error, terms + more
        else:
            value = log_z - own
            error = error + Spread.of(u * np.abs(log_z), u * np.abs(value), u * np.abs(gap))
        parts = (value, stored(error, value, loss_dtype, loss_dtype), terms)
        loss = Result(*(np.where(counts, part[:, 0], 0) for part in parts))

        p, p_error = weights(s, u, tiny)
        hit, weight = np.arange(self.cols) == at, np.abs(self.weight)
        difference = p - hit
        p_terms = p * (1 + np.abs(x) + np.abs(s["most"]))
        if self.smoothing or self.z:
            hit, more = hit * (1 - self.real(self.smoothing)), 2 * self.real(self.z) * log_z
            share, part = self.real(self.smoothing) / self.cols, (1 + more) * p
            difference = part - share - hit
            p_error = p_error.times(1 + more) + z_error.times(2 * self.z * p)
            p_error = p_error + Spread.of(
                *[u * np.abs(more * p)] * 3,
                *[u * np.abs(part)] * 2,
                u * share + 0 * p,
                u * hit,
                u * np.abs(part - share),
                u * np.abs(difference),
            )
            p_terms = p_terms * (1 + np.abs(more)) + share
        value = difference * self.weight
        error = (p_error + Spread.of(u * np.abs(difference))).times(weight) + Spread.of(
            *[u * np.abs(value)] * 2, tiny
        )
        terms = weight * (hit + p_terms)
        parts = (value, stored(error, value, self.dtype, self.computed), terms)
        return loss, Result(*(np.where(counts[:, None], part, 0) for part in parts))

    def _whole(self, s, log_total, log_z, gap, z_error, u):
        """With label smoothing and z-loss: the loss, the errors beside log(sum)'s, the size of its new terms."""
        keep, z = 1 - self.real(self.smoothing), self.real(self.z)
        far = np.abs(s["gap"]) + np.abs(gap)
        mean = (self.real(self.smoothing) / self.cols) * s["gap"].sum(axis=1, keepdims=True)
        first, square = log_total - keep * gap, z * log_z * log_z
        value = first - mean + square
        error = (tree(u, far) + Spread.of(u * far).sum(1, True)).times(self.smoothing / self.cols)
        error = error + z_error.times(2 * self.z * np.abs(log_z)) + Spread.of(
            *[u * np.abs(keep * gap)] * 3,
            *[u * np.abs(self.smoothing * gap)] * 3,
            *[u * np.abs(mean)] * 3,
            *[u * square] * 3,
            u * np.abs(first),
            u * np.abs(first - mean),
            u * np.abs(value),
        )
        return value, error, np.abs(mean) + square

    def _second(self, torch, x, labels):
        leaf = torch.tensor(x, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(
            leaf,
            torch.tensor(labels),
            ignore_index=self.ignore_label,
            reduction="none",
            label_smoothing=self.smoothing,
        )
        counts = torch.tensor(labels != self.ignore_label).to(leaf.dtype)
        loss = loss + counts * self.z * torch.logsumexp(leaf, 1) ** 2
        (loss.sum() * float(self.weight)).backward()
        return {"loss": loss.detach().numpy(), "dlogits": leaf.grad.numpy()}


def simulate(case, given):
    real, ignore = case.real("dtype"), case.option("ignore_label", -1)
    x, labels = case.inputs["logits"].values.astype(real), case.inputs["labels"].values
    weight = real(case.attributes.get("loss_weight", 1.0) * case.attributes.get("loss_scale", 1.0))
    counts = labels != ignore
    at = np.where(counts, labels, 0)[:, None]
    t = x - x.max(axis=1, keepdims=True)
    e = np.exp(t)
    total = e.sum(axis=1, keepdims=True)
    smoothing, z = real(case.option("label_smoothing", 0.0)), real(case.option("z_loss", 0.0))
    keep, share = 1 - smoothing, smoothing / real(x.shape[1])
    log_z = np.log(total) + x.max(axis=1, keepdims=True)
    loss = np.log(total) - keep * np.take_along_axis(t, at, 1)
    loss = loss - share * t.sum(axis=1, keepdims=True) + z * log_z * log_z
    loss = np.where(counts, loss[:, 0], 0)
    dlogits = ((1 + 2 * z * log_z) * (e / total) - share - keep * (np.arange(x.shape[1]) == at)) * weight
    return {
        "loss": loss,
        "loss_sum": loss.astype(np.float64).sum(keepdims=True),
        "dlogits": np.where(counts[:, None], dlogits, 0),
    }


def small():
    for dtype in FLOATS:
        scale = 1024.0 if dtype == "f16" else 1.0
        yield f"cross-entropy-{dtype}", CrossEntropy(dict(cols=37, dtype=dtype), 8, 0.3, 1 / 8, scale)
        whole = dict(label_smoothing=0.25, z_loss=0.0625)
        yield f"cross-entropy-whole-{dtype}", CrossEntropy(
            dict(cols=19, dtype=dtype, **whole), 8, 0.2, 1 / 8, scale, deviation=0.5
        )
    yield "cross-entropy-smoothing", CrossEntropy(dict(cols=33, label_smoothing=0.1), 6, loss_weight=1 / 6)
    yield "cross-entropy-z-loss", CrossEntropy(dict(cols=33, z_loss=0.001), 6, loss_weight=1 / 6)
    yield "cross-entropy-ignore-label", CrossEntropy(dict(cols=10, ignore_label=3), 30, loss_weight=1 / 27)
    yield "cross-entropy-all-ignored", CrossEntropy(dict(cols=10), 5, ignored=1.0)
    yield "cross-entropy-peaked", CrossEntropy(dict(cols=33), 6, deviation=20)
    for rows, cols in ((0, 8), (1, 64), (7, 1), (33, 17), (2, 129), (2, 1025)):
        yield f"cross-entropy-shape-{rows}x{cols}", CrossEntropy(
            dict(cols=cols), rows, loss_weight=1 / max(rows, 1)
        )
