"""BiasDropoutActivation."""

import numpy as np

from ..bounds import Result, Spread, Sum, arithmetic, stored
from ..draw import Stream
from ..numbers import FLOATS, round_to
from .linear import (
    ACTIVATIONS,
    OTHER_CONSTANTS,
    Linear,
    activate,
    change,
    growth,
    own_errors,
    second_activation,
    simulated_activation,
)

LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
SEED, STEP = 0, 1  # of all cases
FAST = 2.0**-17  # relative error of the fast functions that a GPU takes for the 16-bit types


def philox(counter, key):
    """Philox 4x32-10 of four counters, as the paper has it."""
    c = [np.asarray(word).astype(np.uint64) for word in counter]
    for i in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        k = [np.uint64((word + i * bump) & 0xFFFFFFFF) for word, bump in zip(key, (0x9E3779B9, 0xBB67AE85))]
        c = [b >> HALF ^ c[1] ^ k[0], b & LOW, a >> HALF ^ c[3] ^ k[1], a & LOW]
    return [word.astype(np.int64) for word in c]


def mask(rows, cols, first_row, options):
    """What is kept, and the probability of that."""
    dropped = np.rint(float(options.get("p", 0)) * 65536)
    row, col = np.mgrid[first_row : first_row + rows, 0:cols]
    who = int(options.get("layer_number", 0)) << 17
    words = philox((who | col >> 3, np.full_like(row, STEP), row & 0xFFFFFFFF, row >> 32), (SEED, 0))
    word = np.choose(col % 8 // 2, words)
    return (word >> col % 2 * 16 & 0xFFFF) >= dropped, 1 - dropped / 65536


class Dropout(Linear):
    """After its sum a FusedLinear of the arithmetic's type."""

    def __init__(self, options, rows, first_row=0, residual=False, real=np.longdouble):
        self.stored = options.get("dtype", "f32")
        super().__init__({**options, "in": 1, "out": 1, "dtype": arithmetic(self.stored)}, rows, real)
        self.layer, self.options, self.cols, self.residual = "dropout", options, options["cols"], residual
        self.fast = FAST if self.stored in ("f16", "bf16") else 0
        self.first_row, self.attributes = first_row, {"first_row": first_row} if first_row else {}

    def run(self, recorder):
        shape = (self.rows, self.cols)
        x, dy = (round_to(Stream(recorder.data, name).normal(*shape), self.stored) for name in ("x", "dy"))
        bias, z, error = None, x.astype(self.real), Spread.of(np.zeros(shape))
        if self.has_bias:
            bias = round_to(Stream(recorder.data, "bias").uniform(self.cols) - 0.5, self.stored)
            recorder.exact("params/bias", self.stored, (self.cols,), bias)
            z = z + bias
            error = Spread.of(self.u * np.abs(z))
        if self.activation in ("relu", "leaky_relu", "squared_relu"):
            dy[np.abs(z) <= error.most()] = 0  # on which side of the kink z lies
        recorder.exact("inputs/x", self.stored, shape, x)
        recorder.exact("upstream/dy", self.stored, shape, dy)
        kept, p_keep = mask(self.rows, self.cols, self.first_row, self.options)
        y, y_error = z, error
        if self.activation != "none":
            y, y_error = change(lambda at: activate(self.activation, at, self.constants), z, error)
            y_error = y_error + own_errors(self.activation, z, y, self.u, self.constants, self.grad)
            y_error = y_error + Spread.single(self.fast * np.abs(y))
        size = np.abs(x) + (np.abs(bias) if self.has_bias else 0)
        terms = size * growth(self.activation, z, self.constants)
        dz, dz_error, dz_terms = self._dz(z, error, dy, terms)
        if self.activation != "none":  # a slope's two terms are no larger than it and 1/2 together
            dz_error = dz_error + Spread.single(self.fast * (np.abs(dz) + np.abs(dy) / 2))
        residual = None
        if self.residual:
            residual = round_to(Stream(recorder.data, "residual").normal(*shape), self.stored)
            recorder.exact("inputs/residual", self.stored, shape, residual)
        second = self._second(recorder.torch, x, bias, dy, kept, p_keep, residual) if recorder.torch else {}
        result, _ = self._dropped(y, y_error, terms, kept, p_keep, residual)
        recorder.expect("expected/y", self.stored, shape, result, second=second.get("y"))
        result, dz_error = self._dropped(dz, dz_error, dz_terms, kept, p_keep)
        recorder.expect("expected_grad/dx", self.stored, shape, result, second=second.get("dx"))
        if self.has_bias:
            total = Sum()
            total.add(result.value, dz_error, result.terms)
            total = total.result(self.rows, self.u, self.grad)
            recorder.expect("expected_grad/dbias", self.grad, (self.cols,), total, second=second.get("dbias"))

    def _dropped(self, value, error, terms, kept, p_keep, residual=None):
        """What is kept over p_keep, which 16-bit types multiply by its reciprocal; its error."""
        scale = kept / self.real(p_keep) if p_keep else np.zeros(kept.shape, self.real)
        error = (error + Spread.of(FLOATS[self.grad].least)).times(scale)
        value = value * scale
        if p_keep != 1:
            error = error + Spread.of(*[self.u * np.abs(value)] * (2 if self.fast else 1))
        terms = terms * scale
        if residual is not None:
            value, terms = value + residual, terms + np.abs(residual)
            error = error + Spread.of(self.u * np.abs(value))
        bound = np.where(kept, stored(error, value, self.stored, self.grad), 0)
        return Result(value, bound, np.asarray(terms, np.float64)), error

    def _second(self, torch, x, bias, dy, kept, p_keep, residual):
        leaf = {"dx": torch.tensor(x, requires_grad=True)}
        if self.has_bias:
            leaf["dbias"] = torch.tensor(bias, requires_grad=True)
        z = leaf["dx"] + leaf.get("dbias", 0)
        y = second_activation(torch, self.activation, z, self.constants)
        y = torch.where(torch.tensor(kept), y / max(p_keep, 2.0**-16), torch.zeros((), dtype=torch.float64))
        if residual is not None:
            y = y + torch.tensor(residual)
        (y * torch.tensor(dy)).sum().backward()
        return {"y": y.detach().numpy(), **{name: tensor.grad.numpy() for name, tensor in leaf.items()}}


def simulate(case, given):
    real, x = case.real("dtype"), case.inputs["x"].values
    kept, p_keep = mask(*x.shape, case.attributes.get("first_row", 0), case.options)
    p_keep, z = real(max(p_keep, 2.0**-16)), x.astype(real)
    if "bias" in case.params:
        z = z + case.params["bias"].values.astype(real)
    y, act = simulated_activation(case, z, arithmetic(case.options.get("dtype", "f32")))
    results = {"y": np.where(kept, y / p_keep, 0)}
    if "residual" in case.inputs:
        results["y"] = results["y"] + case.inputs["residual"].values.astype(real)
    if "dy" in given:
        dx = np.where(kept, given["dy"].astype(real) * act / p_keep, 0).astype(real)
        results.update(dx=dx, dbias=dx.sum(axis=0))
    return results


def small():
    for dtype in FLOATS:
        for activation in ACTIVATIONS:
            constants = OTHER_CONSTANTS.get(activation, {})
            if constants and dtype in ("f64", "f16"):  # FusedLinear's cases have these
                continue
            options = dict(cols=11, dtype=dtype, activation=activation, p=0.3, **constants)
            yield f"dropout-{activation}-{dtype}", Dropout(options, 7)
        options = dict(cols=11, dtype=dtype, p=0.5, no_bias=True, layer_number=5)
        yield f"dropout-no-bias-{dtype}", Dropout(options, 7, first_row=3)
        options = dict(cols=11, dtype=dtype, activation="gelu", p=0.3)
        yield f"dropout-residual-{dtype}", Dropout(options, 7, first_row=1, residual=True)
    yield "dropout-slope", Dropout(dict(cols=11, activation="leaky_relu", slope=0.25, p=0.1), 7)
    for p in (0, 1):
        yield f"dropout-p-{p}", Dropout(dict(cols=11, activation="gelu", p=p), 7)
        yield f"dropout-residual-p-{p}", Dropout(dict(cols=11, activation="silu", p=p), 7, residual=True)
    for rows, cols in ((0, 8), (1, 1), (33, 17), (5, 129), (7, 1)):
        options = dict(cols=cols, activation="silu", p=0.25, layer_number=32767)
        yield f"dropout-shape-{rows}x{cols}", Dropout(options, rows, first_row=2**32 - 2)
