"""GLU."""

import numpy as np

from ..bounds import Result, Spread, arithmetic, stored, unit
from ..draw import Stream
from ..numbers import FLOATS, round_to
from .linear import (
    ACTIVATIONS,
    OTHER_CONSTANTS,
    SMOOTH,
    activate,
    constants_of,
    derivative,
    growth,
    own_errors,
    own_slope_errors,
    second_activation,
    simulated_activation,
)

FAST = 2.0**-16  # of the functions that a GPU has for 16-bit types


class Glu:
    def __init__(self, options, rows, real=np.longdouble):
        self.layer, self.options, self.attributes, self.real = "glu", options, {}, real
        self.shape, self.dtype = (rows, options["cols"]), options.get("dtype", "f32")
        self.activation, self.constants = options.get("activation", "silu"), constants_of(options, real)
        self.u, self.computed = unit(self.dtype, real), arithmetic(self.dtype)
        self.fast = FAST * (self.activation in SMOOTH and self.dtype in ("f16", "bf16"))

    def run(self, recorder):
        a, b, dy = (round_to(Stream(recorder.data, name).normal(*self.shape), self.dtype) for name in ("a", "b", "dy"))
        for name, values in (("inputs/a", a), ("inputs/b", b), ("upstream/dy", dy)):
            recorder.exact(name, self.dtype, self.shape, values)
        z = a.astype(self.real)
        second = self._second(recorder.torch, a, b, dy) if recorder.torch else {}
        gate, error = self._gate(z)
        terms = np.abs(a) * growth(self.activation, z, self.constants)
        self._expect(recorder, "expected/y", gate, error, b, terms, second)
        slope, slope_error = self._slope(z)
        inner = slope * dy
        slope_error = slope_error.times(dy)
        if self.activation not in ("none", "relu"):
            slope_error = slope_error + Spread.of(self.u * np.abs(inner))
        steep = growth(self.activation, z, self.constants) * np.abs(dy)
        self._expect(recorder, "expected_grad/da", inner, slope_error, b, steep, second)
        self._expect(recorder, "expected_grad/db", gate, error, dy, terms, second)

    def _expect(self, recorder, name, value, error, factor, terms, second):
        """A product with an exact factor."""
        least = Spread.of(np.full(value.shape, FLOATS[self.computed].least))  # where it was no normal number
        result = value * factor
        error = (error + least).times(factor) + Spread.of(self.u * np.abs(result))
        bound = stored(error, result, self.dtype, self.computed)
        result = Result(result, bound, np.asarray(terms * np.abs(factor), np.float64))
        recorder.expect(name, self.dtype, self.shape, result, second=second.get(name.split("/")[1]))

    def _gate(self, z):
        if self.activation == "none":
            return z, Spread.of(np.zeros(z.shape))
        value = activate(self.activation, z, self.constants)
        error = own_errors(self.activation, z, value, self.u, self.constants, self.computed)
        return value, error + Spread.single(self.fast * np.abs(value))

    def _slope(self, z):
        slope = derivative(self.activation, z, self.constants)
        if self.activation in (*SMOOTH, "smelu", "star_relu"):
            error = own_slope_errors(self.activation, z, slope, self.u, self.constants, self.computed)
        else:  # 0, 1, twice z, or a constant of the arithmetic's type
            error = Spread.of(self.u * np.abs(slope) * (self.activation == "leaky_relu"))
        # a slope is the sum of two terms, which are no larger than it and 1/2 together
        return slope, error + Spread.single(self.fast * (np.abs(slope) + 0.5))

    def _second(self, torch, a, b, dy):
        leaf = {"da": torch.tensor(a, requires_grad=True), "db": torch.tensor(b, requires_grad=True)}
        y = second_activation(torch, self.activation, leaf["da"], self.constants) * leaf["db"]
        (y * torch.tensor(dy)).sum().backward()
        return {"y": y.detach().numpy(), **{name: tensor.grad.numpy() for name, tensor in leaf.items()}}


def simulate(case, given):
    real = case.real("dtype")
    a, b = (case.inputs[name].values.astype(real) for name in ("a", "b"))
    gate, act = simulated_activation(case, a, arithmetic(case.options.get("dtype", "f32")), "silu")
    results = {"y": gate * b}
    if "dy" in given:
        dy = given["dy"].astype(real)
        results.update(da=dy * act * b, db=dy * gate)
    return results


def small():
    for dtype in FLOATS:
        yield f"glu-{dtype}", Glu(dict(cols=7, dtype=dtype), 5)
    for number, activation in enumerate(ACTIVATIONS):
        dtype = list(FLOATS)[number % len(FLOATS)]
        constants = dict(slope=0.25) if activation == "leaky_relu" else OTHER_CONSTANTS.get(activation, {})
        yield f"glu-{activation}-{dtype}", Glu(dict(cols=7, dtype=dtype, activation=activation, **constants), 5)
    for rows, cols in ((0, 8), (3, 65)):
        yield f"glu-shape-{rows}x{cols}", Glu(dict(cols=cols, activation="gelu"), rows)
