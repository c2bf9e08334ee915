"""BiasDropoutActivation."""

import numpy as np

from ..bounds import Result, Spread, Sum, arithmetic, stored, unit
from ..draw import Stream
from .linear import ACTIVATIONS, SMOOTH, activate, change, derivative, own_errors, own_slope_errors
from .linear import second_activation, simulated_activation
from ..numbers import FLOATS, round_to

SEED, STEP = 0, 1  # of the step block that tutti-validate makes


def philox(counter, key):
    """Philox 4x32-10: four words of random bits each, as uint64."""
    c, low = [np.asarray(word, np.uint64) for word in counter], np.uint64(0xFFFFFFFF)
    for turn in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        k = [np.uint64((key[0] + turn * 0x9E3779B9) % 2**32), np.uint64((key[1] + turn * 0xBB67AE85) % 2**32)]
        c = [(b >> np.uint64(32)) ^ c[1] ^ k[0], b & low, (a >> np.uint64(32)) ^ c[3] ^ k[1], a & low]
    return c


def keeps(rows, cols, first_row, number, p):
    """What stays, and the part of all that does, as p is rounded."""
    row, col = first_row + np.arange(rows)[:, None], np.arange(cols)[None, :]
    words = philox((number << 17 | col // 8, STEP, row % 2**32, row >> 32), (SEED % 2**32, SEED >> 32))
    pair = np.choose(np.broadcast_to(col % 8 // 2, (rows, cols)), words)
    dropped = int(np.rint(p * 65536))
    return (pair >> (col % 2 * 16).astype(np.uint64)) % np.uint64(65536) >= dropped, 1 - dropped / 65536


class Dropout:
    def __init__(self, options, shape, first_row=0, real=np.longdouble):
        self.layer, self.options, self.shape, self.real = "dropout", options, tuple(shape), real
        self.rows, self.cols, self.dtype = self.shape[0], options["cols"], options.get("dtype", "f32")
        self.activation, self.slope = options.get("activation", "none"), options.get("slope", 0.01)
        self.computed, self.first_row = arithmetic(self.dtype), first_row
        self.attributes = {"first_row": first_row} if first_row else {}

    def run(self, recorder):
        # far from 0 the formulas of act' lose more than 16 ulp
        draw = lambda name, *shape: round_to(Stream(recorder.data, name).normal(*shape) / 2, self.dtype)
        x, dy = draw("x", self.rows, self.cols), draw("dy", self.rows, self.cols)
        recorder.exact("inputs/x", self.dtype, self.shape, x)
        recorder.exact("upstream/dy", self.dtype, self.shape, dy)
        bias = None
        if not self.options.get("no_bias"):
            bias = draw("bias", self.cols)
            recorder.exact("params/bias", self.dtype, (self.cols,), bias)
        keep, kept = keeps(
            self.rows, self.cols, self.first_row, self.options.get("layer_number", 0), self.options.get("p", 0)
        )
        y, dx, dbias = self._results(x, 0 if bias is None else bias, dy, keep, kept)
        second = self._second(recorder.torch, x, bias, dy, keep, kept) if recorder.torch else {}
        recorder.expect("expected/y", self.dtype, self.shape, y, second=second.get("y"))
        recorder.expect("expected_grad/dx", self.dtype, self.shape, dx, second=second.get("dx"))
        if bias is not None:
            recorder.expect(
                "expected_grad/dbias", self.computed, (self.cols,), dbias, second=second.get("dbias")
            )

    def _results(self, x, bias, dy, keep, kept):
        u, name, slope = unit(self.dtype, self.real), self.activation, self.real(self.slope)
        z = x.astype(self.real) + bias
        z_error = Spread.of(u * np.abs(z) * np.any(bias))
        a, error = change(lambda at: activate(name, at, slope), z, z_error)
        if name not in ("none", "relu"):
            error = error + own_errors(name, z, a, u)
        terms = (np.abs(x) + np.abs(bias)) * (2 + (2 * np.abs(z) if name == "squared_relu" else 0))
        y = self._dropped(a, error, terms, u, keep, kept)

        act = derivative(name, z, slope)
        error = Spread.of(u * np.abs(act) * (name == "leaky_relu"))  # of the slope; the sign of z is exact
        if name in SMOOTH or name == "squared_relu":
            act, error = change(lambda at: derivative(name, at, slope), z, z_error)
        if name in SMOOTH:
            error = error + own_slope_errors(name, z, act, u)
        dz = dy * act
        error = error.times(dy) + Spread.of(u * np.abs(dz) * (name not in ("none", "relu")))
        dz, error, terms = self._dropped(dz, error, np.abs(dy) * (2 + 2 * terms), u, keep, kept)
        total = Sum()
        total.add(dz, error, terms)
        return self._stored(y), self._stored((dz, error, terms)), total.result(self.rows, u, self.computed)

    def _dropped(self, value, error, terms, u, keep, kept):
        """Divided by the part that is kept, or 0."""
        kept = kept or 1  # nothing is
        value = np.where(keep, value, 0) / self.real(kept)
        error = error.times(keep / kept) + Spread.of(u * np.abs(value) * (kept != 1))
        return value, error, keep * terms / kept

    def _stored(self, result):
        value, error, terms = result
        bound = stored(error, value, self.dtype, self.computed)
        return Result(value, np.where(value == 0, 0, bound), terms)

    def _second(self, torch, x, bias, dy, keep, kept):
        leaf = {"dx": torch.tensor(x, requires_grad=True)}
        z = leaf["dx"]
        if bias is not None:
            leaf["dbias"] = torch.tensor(bias, requires_grad=True)
            z = z + leaf["dbias"]
        y = second_activation(torch, self.activation, z, self.slope) * torch.tensor(keep / (kept or 1))
        (y * torch.tensor(dy)).sum().backward()
        return {"y": y.detach().numpy(), **{name: tensor.grad.numpy() for name, tensor in leaf.items()}}


def simulate(case, given):
    real, cols = case.real("dtype"), case.option("cols", 0)
    z = case.inputs["x"].values.reshape(-1, cols).astype(real)
    if "bias" in case.params:
        z = z + case.params["bias"].values.astype(real)
    number, first_row = case.option("layer_number", 0), int(case.attributes.get("first_row", 0))
    keep, kept = keeps(len(z), cols, first_row, number, case.option("p", 0.0))
    y, act = simulated_activation(case, z, "f64" if real is np.float64 else "f32")
    dz = np.where(keep, given["dy"].reshape(-1, cols).astype(real) * act, 0) / real(kept or 1)
    return {"y": np.where(keep, y, 0) / real(kept or 1), "dx": dz, "dbias": dz.sum(axis=0)}


def small():
    for dtype in FLOATS:
        for activation in ACTIVATIONS:
            options = dict(cols=17, dtype=dtype, activation=activation, p=0.25)
            yield f"dropout-{activation}-{dtype}", Dropout(options, (5, 17), first_row=5)
        options = dict(cols=17, dtype=dtype, activation="gelu", p=0.1, no_bias=True, layer_number=3)
        yield f"dropout-no-bias-{dtype}", Dropout(options, (5, 17))
    for p in (0, 1, 2.0**-18, 0.9):
        yield f"dropout-p-{p:.2g}", Dropout(dict(cols=17, activation="silu", p=p), (5, 17))
    options = dict(cols=17, activation="leaky_relu", slope=0.25, p=0.5, layer_number=32767)
    yield "dropout-far-row", Dropout(options, (5, 17), first_row=2**33 - 3)
    for shape in ((0, 8), (1, 1), (33, 17), (2, 1025), (4, 3, 5)):
        options = dict(cols=int(np.prod(shape[1:])), activation="gelu_erf", p=0.5)
        yield f"dropout-shape-{'x'.join(map(str, shape))}", Dropout(options, shape, first_row=11)
