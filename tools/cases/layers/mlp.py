"""MLP: two FusedLinear, the first with an activation."""

import math

import numpy as np

from ..bounds import Result, Spread, Sum, stored
from ..draw import Stream
from ..numbers import FLOATS, round_to
from .linear import ACTIVATIONS, OTHER_CONSTANTS, Linear, _Product, second_activation, simulated_activation

WEIGHTS = ("weight1", "weight2", "bias1", "bias2")


def _turned(error):
    return Spread(error.total.T, error.squares.T, error.few.T)


class Mlp:
    """coarse: numbers of few bits, which TF32 holds with their products, and z is never 0."""

    def __init__(self, options, rows, coarse=False):
        self.layer, self.options, self.rows, self.attributes = "mlp", options, rows, {}
        self.ins, self.hidden, self.outs = (options[name] for name in ("in", "hidden", "out"))
        rest = {key: value for key, value in options.items() if key not in ("in", "hidden", "out")}
        rest.setdefault("activation", "gelu")
        self.up = Linear({"in": self.ins, "out": self.hidden, **rest}, rows)
        self.real, self.dtype, self.u, self.grad = self.up.real, self.up.dtype, self.up.u, self.up.grad
        self.coarse = coarse

    def _draw(self, name, values):
        if self.coarse:
            values = np.clip(np.rint(4 * values) / 4, -1.5, 1.5) + (name == "bias1") / 32
        return round_to(values, self.dtype)

    def run(self, recorder):
        stream = {name: Stream(recorder.data, name) for name in ("x", "dy", *WEIGHTS)}
        given = {"x": self._draw("x", stream["x"].normal(self.rows, self.ins))}
        for name, shape, count in (
            ("weight1", (self.hidden, self.ins), self.ins),
            ("weight2", (self.outs, self.hidden), self.hidden),
        ):
            values = 2 * stream[name].uniform(*shape) - 1
            given[name] = self._draw(name, values if self.coarse else values / math.sqrt(count))
        if self.up.has_bias:
            for name, count in (("bias1", self.hidden), ("bias2", self.outs)):
                given[name] = self._draw(name, stream[name].uniform(count) - 0.5)
        given["dy"] = self._draw("dy", stream["dy"].normal(self.rows, self.outs))
        for name, values in given.items():
            group = {"x": "inputs", "dy": "upstream"}.get(name, "params")
            recorder.exact(f"{group}/{name}", self.dtype, values.shape, values)
        second = self._second(recorder.torch, given) if recorder.torch else {}
        for path, result in self._results(given):
            name = path.split("/")[1]
            dtype = self.grad if path.startswith("expected_grad/d") and name != "dx" else self.dtype
            recorder.expect(path, dtype, result.value.shape, result, second=second.get(name))

    def _results(self, given):
        up, dy = self.up, given["dy"]
        z, z_error = up._preactivation(given["x"], given["weight1"], given.get("bias1"))
        hidden = up._result(z, z_error)
        yield "expected/h", hidden
        h, h_error, h_terms = hidden.value, self._stored_hidden(z, z_error), hidden.terms
        yield "expected/y", self._y(h, h_error, h_terms, given)
        dz, dz_error, dz_terms = self._dz(z, z_error, up.magnitude, dy, given["weight2"])
        dx = _Product()
        dx.add(dz, given["weight1"].astype(self.real), dz_error, dz_terms)
        yield "expected_grad/dx", dx.result(self.u, self.hidden, self.dtype, self.grad)
        dweight = _Product()
        dweight.add(dz.T, given["x"].astype(self.real), _turned(dz_error), dz_terms.T)
        yield "expected_grad/dweight1", dweight.result(self.u, self.rows, self.grad, self.grad)
        dweight = _Product()
        dweight.add(h.T, dy.astype(self.real), _turned(h_error), h_terms.T)
        result = dweight.result(self.u, self.rows, self.grad, self.grad)
        yield "expected_grad/dweight2", Result(result.value.T, result.bound.T, result.terms.T)
        if up.has_bias:
            for name, terms, error, sizes in (
                ("dbias1", dz, dz_error, dz_terms),
                ("dbias2", dy.astype(self.real), Spread.of(np.zeros(dy.shape)), np.abs(dy)),
            ):
                total = Sum()
                total.add(terms, error, sizes)
                yield f"expected_grad/{name}", total.result(self.rows, self.u, self.grad)

    def _stored_hidden(self, z, z_error):
        """The error of h as it is stored."""
        if self.up.activation == "none":
            return z_error
        value, error = self.up._activated(z, z_error)
        return error + self.up._rounding(value)

    def _y(self, h, h_error, h_terms, given):
        product = _Product()
        product.add(h, given["weight2"].astype(self.real).T, h_error, np.asarray(h_terms, np.float64))
        value, error, terms = product.value, product.error(self.u, self.hidden), product.terms
        if "bias2" in given:
            value, terms = value + given["bias2"], terms + np.abs(given["bias2"])
            error = error + Spread.of(self.u * np.abs(value))
        return Result(value, stored(error, value, self.dtype, self.grad), terms)

    def _dz(self, z, z_error, z_terms, dy, weight):
        """(dy W2) act'(z), its error, its terms."""
        up, product = self.up, _Product()
        product.add(dy.astype(self.real), weight.astype(self.real))
        dh, dh_error = product.value, product.error(self.u, self.outs) + up._rounding(product.value)
        if up.activation == "none":
            return dh, dh_error, product.magnitude
        near = (np.abs(z) <= z_error.most()) & (up.activation in ("relu", "leaky_relu"))
        if near.any():
            raise ArithmeticError("rounding may move z across the kink: draw other numbers")
        slope, slope_error = up._slope(z, z_error)
        value = slope * dh
        error = dh_error.times(slope)
        if up.activation != "relu":
            largest = np.abs(dh) + dh_error.most()
            error = error + slope_error.times(largest) + Spread.of(self.u * np.abs(value)) + up._rounding(value)
        return value, error, product.magnitude * (2 + 2 * np.asarray(z_terms, np.float64))

    def _second(self, torch, given):
        leaf = {name: torch.tensor(values, requires_grad=name != "dy") for name, values in given.items()}
        linear = torch.nn.functional.linear
        z = linear(leaf["x"], leaf["weight1"], leaf.get("bias1"))
        h = second_activation(torch, self.up.activation, z, self.up.constants)
        y = linear(h, leaf["weight2"], leaf.get("bias2"))
        (y * leaf["dy"]).sum().backward()
        gradients = {f"d{name}": tensor.grad.numpy() for name, tensor in leaf.items() if name != "dy"}
        return {"y": y.detach().numpy(), "h": h.detach().numpy(), **gradients}


def simulate(case, given):
    real, dtype = case.real("dtype"), case.options.get("dtype", "f32")
    x, weight1, weight2 = (
        values.values.astype(real)
        for values in (case.inputs["x"], case.params["weight1"], case.params["weight2"])
    )
    bias1, bias2 = (
        case.params[name].values.astype(real) if name in case.params else real(0) for name in ("bias1", "bias2")
    )
    z = round_to(x @ weight1.T + bias1, dtype).astype(real)
    h, act = simulated_activation(case, z, dtype, "gelu")
    h = round_to(h, dtype).astype(real)
    results = {"y": h @ weight2.T + bias2, "h": h}
    if "dy" in given:
        dy = given["dy"].astype(real)
        dh = round_to(dy @ weight2, dtype).astype(real)
        dz = round_to(dh * act, dtype).astype(real)
        results.update(dx=dz @ weight1, dweight1=dz.T @ x, dweight2=dy.T @ h)
        results.update(dbias1=dz.sum(axis=0), dbias2=dy.sum(axis=0))
    return results


def small():
    sizes = {"in": 7, "hidden": 9, "out": 5}
    for dtype in FLOATS:
        yield f"mlp-{dtype}", Mlp({**sizes, "dtype": dtype}, 6)
    for number, activation in enumerate(ACTIVATIONS):
        dtype = list(FLOATS)[number % len(FLOATS)]
        constants = dict(slope=0.25) if activation == "leaky_relu" else OTHER_CONSTANTS.get(activation, {})
        yield f"mlp-{activation}-{dtype}", Mlp({**sizes, "dtype": dtype, "activation": activation, **constants}, 6)
    yield "mlp-recompute", Mlp({**sizes, "recompute": True}, 6)
    yield "mlp-no-bias", Mlp({**sizes, "no_bias": True}, 6)
    yield "mlp-tf32", Mlp({**sizes, "activation": "relu", "allow_tf32": True}, 6, coarse=True)
    for rows, ins, hidden, outs in ((0, 8, 4, 2), (1, 1, 1, 1), (5, 9, 17, 3)):
        options = {"in": ins, "hidden": hidden, "out": outs, "dtype": "f32"}
        yield f"mlp-shape-{rows}x{ins}x{hidden}x{outs}", Mlp(options, rows)


REDRAWN = {
    "mlp-shape-1x1x1x1": 1,
    "mlp-shape-5x9x17x3": 1,
    "mlp-squared_relu-f32": 1,
    "mlp-star_relu-f64": 2,
}
