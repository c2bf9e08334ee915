"""FusedLinear."""

import math

import numpy as np

from ..bounds import FUNCTION, Result, Spread, Sum, arithmetic, chain, stored, unit
from ..draw import Stream
from ..numbers import FLOATS, round_to

BLOCK = 1 << 20  # elements of W, x or y that are computed at a time
SMOOTH = ("gelu", "gelu_erf", "silu")
ACTIVATIONS = ("none", "relu", "leaky_relu", "gelu", "gelu_erf", "squared_relu", "silu", "smelu", "star_relu")
CONSTANTS = dict(slope=0.01, smelu_beta=2.0, star_scale=0.8944, star_bias=-0.4472)
ROOT = math.sqrt(2 / math.pi)
CUBE = 0.044715

_erfc = np.frompyfunc(math.erfc, 1, 1)


def erfc(values):
    return _erfc(values.astype(np.float64)).astype(np.float64) if values.size else values


def constants_of(options, real):
    """The constants of activations as numbers of a type."""
    return {name: real(options.get(name, value)) for name, value in CONSTANTS.items()}


def activate(name, z, constants):
    if name == "relu":
        return np.maximum(z, 0)
    if name == "leaky_relu":
        return np.where(z > 0, z, constants["slope"] * z)
    if name == "squared_relu":
        return np.maximum(z, 0) ** 2
    if name == "smelu":
        beta = constants["smelu_beta"]
        return np.where(z <= -beta, 0, np.where(z >= beta, z, (z + beta) ** 2 / (4 * beta)))
    if name == "star_relu":
        return constants["star_scale"] * np.maximum(z, 0) ** 2 + constants["star_bias"]
    return _with_limits(_smooth, name, z, np.maximum(z, 0)) if name in SMOOTH else z


def derivative(name, z, constants):
    if name == "relu":
        return (z > 0).astype(z.dtype)
    if name == "leaky_relu":
        return np.where(z > 0, z.dtype.type(1), z.dtype.type(constants["slope"]))
    if name == "squared_relu":
        return 2 * np.maximum(z, 0)
    if name == "smelu":
        beta = constants["smelu_beta"]
        return np.clip((z + beta) / (2 * beta), 0, 1)
    if name == "star_relu":
        return 2 * constants["star_scale"] * np.maximum(z, 0)
    return _with_limits(_smooth_slope, name, z, z > 0) if name in SMOOTH else np.ones_like(z)


def _with_limits(function, name, z, limit):
    """Limits at infinite z, where the formulas have no value."""
    infinite = np.isinf(z)
    with np.errstate(over="ignore"):  # of exp(-z): the quotient is 0 then
        return np.where(infinite, limit, function(name, np.where(infinite, 0, z)))


def _smooth(name, z):
    if name == "gelu":
        return z / 2 * (1 + np.tanh(ROOT * (z + CUBE * z**3)))
    if name == "gelu_erf":
        return z / 2 * erfc(-z * math.sqrt(0.5))
    return z / (1 + np.exp(-z))


def _smooth_slope(name, z):
    if name == "gelu":
        t = np.tanh(ROOT * (z + CUBE * z**3))
        return (1 + t) / 2 + z / 2 * (1 - t * t) * ROOT * (1 + 3 * CUBE * z * z)
    if name == "gelu_erf":
        return erfc(-z * math.sqrt(0.5)) / 2 + z * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    s = 1 / (1 + np.exp(-z))
    return s * (1 + z * (1 - s))


def change(function, z, z_error):
    """function(z), and its error due to that of z."""
    most, value = z_error.most(), function(z)
    apart = np.maximum(np.abs(function(z + most) - value), np.abs(function(z - most) - value))
    return value, z_error.times(apart / np.maximum(most, FLOATS["f64"].least))


def second_activation(torch, name, z, constants):
    f = torch.nn.functional
    slope, beta, scale, bias = (float(constants[name]) for name in CONSTANTS)
    return {
        "none": lambda: z,
        "relu": lambda: f.relu(z),
        "leaky_relu": lambda: f.leaky_relu(z, slope),
        "squared_relu": lambda: f.relu(z) ** 2,
        "gelu": lambda: f.gelu(z, approximate="tanh"),
        "gelu_erf": lambda: f.gelu(z),
        "silu": lambda: f.silu(z),
        # an integral of its derivative, which is linear
        "smelu": lambda: (f.relu(z + beta) ** 2 - f.relu(z - beta) ** 2) / (4 * beta),
        "star_relu": lambda: scale * f.relu(z) ** 2 + bias,
    }[name]()


def constants_error(function, name, z, constants, computed):
    """The error of a function's value because the constants of smelu and star_relu are numbers of the arithmetic."""
    rounded = {key: type(value)(round_to(np.float64(value), computed)) for key, value in constants.items()}
    return Spread.single(np.abs(function(name, z, rounded) - function(name, z, constants)))


def growth(name, z, constants):
    """A bound of |act'|: 1.13 at most, but for squares."""
    if name == "star_relu":
        return 2 + 2 * abs(float(constants["star_scale"])) * np.abs(z)
    return 2 + (2 * np.abs(z) if name == "squared_relu" else 0)


def own_errors(name, z, value, u, constants, computed):
    """Rounding errors of act itself.  Intermediate values may be as large as z where the result is small."""
    size, value = np.abs(z).astype(np.float64), np.abs(value).astype(np.float64)
    if name in ("none", "relu"):  # exact
        return Spread.of(0 * value)
    if name == "smelu":  # z + beta twice, 1 / (4 beta), two products; or z itself
        middle = u * value * (z <= constants["smelu_beta"] * (1 + 2 * u))
        own = Spread.of(2 * middle, *[middle] * 3)
        return own + constants_error(activate, name, z, constants, computed)
    if name == "star_relu":
        square = np.abs(constants["star_scale"] * np.maximum(z, 0) ** 2).astype(np.float64)
        own = Spread.of(u * square, u * square, u * value)
        return own + constants_error(activate, name, z, constants, computed)
    last = Spread.of(u * value, u * value)
    if (
        name == "gelu"
    ):  # tanh, 1 + tanh, and four roundings of its argument: |a| (1 - tanh(a)^2) is below 0.45
        return last + Spread.single(FUNCTION / 2 * u * size) + Spread.of(u * size / 2, *[0.22 * u * size] * 4)
    if name == "gelu_erf":  # erf, 1 + erf, its argument's rounding: z times the density is below 0.25
        return last + Spread.single(FUNCTION / 2 * u * size) + Spread.of(u * size / 2, 0.25 * u * size)
    if name == "silu":  # exp and 1 + exp
        return last + Spread.single(FUNCTION * u * value) + Spread.of(u * value)
    return last


def own_slope_errors(name, z, slope, u, constants, computed):
    """Rounding errors of act' itself, where it is computed from z."""
    if name in ("smelu", "star_relu"):
        own = u * np.abs(slope).astype(np.float64)
        if name == "smelu":  # z + beta, 1 / (2 beta) and the product; or 1
            own = own * (z <= constants["smelu_beta"] * (1 + 2 * u))
        own = Spread.of(*[own] * (3 if name == "smelu" else 1))
        return own + constants_error(derivative, name, z, constants, computed)
    z, size, slope = z.astype(np.float64), np.abs(z).astype(np.float64), np.abs(slope).astype(np.float64)
    if name == "gelu":  # (1 + t) / 2 + z / 2 (1 - t^2) k (1 + 3 c z^2), t = tanh
        t = np.tanh(ROOT * (z + CUBE * z**3))
        factor = size / 2 * ROOT * (1 + 3 * CUBE * z * z)
        second = factor * (1 - t * t)
        return Spread.single(FUNCTION * u * (0.5 + factor * 2 * np.abs(t)) * np.abs(t)) + Spread.of(
            u / 2, u * factor, u * factor, *[0.22 * u * (1 + 2 * factor)] * 4, *[u * second] * 4, u * slope
        )
    if name == "gelu_erf":  # (1 + erf) / 2 + z density
        second = size * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        return Spread.single(FUNCTION * u * (0.5 + second)) + Spread.of(
            u / 2, u * second, u * second * z * z, *[u * second] * 2, u * slope
        )
    s = 1 / (1 + np.exp(-z))  # s (1 + z (1 - s))
    return Spread.single(FUNCTION * u * s * (1 - s) * (1 + size)) + Spread.of(
        *[u * s * (1 + size)] * 2, u * s * size, u * s * size, u * slope, u * slope
    )


class _Product:
    """A matrix product a b, summed over parts of its inner dimension; errors and terms are those of a."""

    def __init__(self):
        self.value = self.magnitude = self.squares = self.terms = 0
        self.spread = Spread()

    def add(self, a, b, a_error=None, a_terms=None):
        size_a, size_b = np.abs(a).astype(np.float64), np.abs(b).astype(np.float64)
        self.value = self.value + a @ b
        self.magnitude = self.magnitude + size_a @ size_b
        self.squares = self.squares + (size_a * size_a) @ (size_b * size_b)
        if a_error is not None:
            self.spread = self.spread + Spread(a_error.total @ size_b, a_error.mixed() @ (size_b * size_b))
            self.terms = self.terms + a_terms @ size_b

    def error(self, u, count):
        products = Spread(u * self.magnitude, u * u * self.squares)
        total = np.asarray(self.value, np.float64)
        return self.spread + products + chain(u, count, self.magnitude, self.squares, total)

    def result(self, u, count, dtype, computed):
        return Result(self.value, stored(self.error(u, count), self.value, dtype, computed), self.terms)


class Linear:
    """Computed in blocks of outputs, so that W and its gradient are never in memory as a whole.  drawn: the type
    to which x, W and dy are rounded, if it is narrower than theirs."""

    def __init__(self, options, rows, real=np.longdouble, drawn=None):
        self.layer, self.options, self.rows, self.attributes = "linear", options, rows, {}
        self.ins, self.outs, self.dtype = options["in"], options["out"], options.get("dtype", "f32")
        self.activation, self.constants = options.get("activation", "none"), constants_of(options, real)
        self.has_bias, self.real = not options.get("no_bias", False), real
        self.drawn = drawn or self.dtype
        self.u = unit(self.dtype, real)
        self.grad = arithmetic(self.dtype)

    def run(self, recorder):
        stream = {name: Stream(recorder.data, name) for name in ("x", "weight", "bias", "dy")}
        shape_x, shape_w = (self.rows, self.ins), (self.outs, self.ins)
        x = round_to(stream["x"].normal(*shape_x), self.drawn)
        recorder.exact("inputs/x", self.dtype, shape_x, x)
        dx, second_dx = _Product(), 0
        step = max(1, BLOCK // max(self.ins, self.rows))
        for start in range(0, self.outs, step):
            outs = min(step, self.outs - start)
            weight = round_to(
                (2 * stream["weight"].uniform(outs, self.ins) - 1) / math.sqrt(self.ins), self.drawn
            )
            recorder.exact("params/weight", self.dtype, shape_w, weight, start)
            bias = None
            if self.has_bias:
                bias = round_to(stream["bias"].uniform(outs) - 0.5, self.dtype)
                recorder.exact("params/bias", self.dtype, (self.outs,), bias, start)
            z, z_error = self._preactivation(x, weight, bias)
            dy = round_to(stream["dy"].normal(outs, self.rows).T, self.drawn)
            if self.activation in ("relu", "leaky_relu", "squared_relu"):
                dy[np.abs(z) <= z_error.most()] = (
                    0  # where rounding may move z across the kink
                )
            recorder.exact("upstream/dy", self.dtype, (self.rows, self.outs), dy, start, axis=1)
            y = self._result(z, z_error)
            dz, dz_error, dz_terms = self._dz(z, z_error, dy, y.terms)
            second = self._second(recorder.torch, x, weight, bias, dy) if recorder.torch else {}
            recorder.expect("expected/y", self.dtype, (self.rows, self.outs), y, start, 1, second.get("y"))
            self._gradients(recorder, x, dz, dz_error, dz_terms, start, second)
            dx.add(dz, weight.astype(self.real), dz_error, dz_terms)
            second_dx = second_dx + second.get("dx", 0)
        result = dx.result(self.u, self.outs, self.dtype, self.grad)
        recorder.expect(
            "expected_grad/dx", self.dtype, shape_x, result, second=second_dx if recorder.torch else None
        )

    def _preactivation(self, x, weight, bias):
        """z and its error, including that of rounding z to the type before act."""
        product = _Product()
        product.add(x.astype(self.real), weight.astype(self.real).T)
        z, error = product.value, product.error(self.u, self.ins)
        self.magnitude = product.magnitude
        if bias is not None:
            z, self.magnitude = z + bias, self.magnitude + np.abs(bias)
            error = error + Spread.of(self.u * np.abs(z))
        return z, error + self._rounding(z)

    def _rounding(self, value):
        """The error of storing a value: none if it is computed in the same type."""
        kind = FLOATS[self.dtype]
        if self.dtype == self.grad:
            return Spread.of(np.zeros(value.shape))
        return Spread.single(kind.roundoff * np.abs(value) + kind.least / 2)

    def _result(self, z, z_error):
        if self.activation == "none":
            return Result(z, z_error.most() + FLOATS["f64"].roundoff * np.abs(z), self.magnitude)
        value, error = self._activated(z, z_error)
        terms = self.magnitude * growth(self.activation, z, self.constants)
        return Result(value, stored(error, value, self.dtype, self.grad), terms)

    def _activated(self, z, z_error):
        """act(z), before it is stored, and its error."""
        value, error = change(
            lambda at: activate(self.activation, at, self.constants), z, z_error
        )
        return value, error + own_errors(self.activation, z, value, self.u, self.constants, self.grad)

    def _slope(self, z, z_error):
        """act'(z) as backward computes it, and its error."""
        slope, error = change(
            lambda at: derivative(self.activation, at, self.constants), z, z_error
        )
        size = np.abs(z).astype(np.float64)
        if self.activation in (*SMOOTH, "smelu", "star_relu"):
            return slope, error + own_slope_errors(self.activation, z, slope, self.u, self.constants, self.grad)
        if self.activation == "squared_relu":  # 2 sqrt(y), y as stored: nothing where it underflows
            y_error = (self._rounding(z * z) + Spread.of(self.u * z * z)).most() + FLOATS[self.dtype].least / 2
            above = np.sqrt(z * z + y_error) - size
            below = size - np.sqrt(np.maximum(z * z - y_error, 0))
            error = error + Spread.single(2 * np.maximum(above, below))
            return slope, error + Spread.of(*[self.u * np.abs(slope)] * 3)
        return slope, Spread.of(self.u * np.abs(slope))  # of the slope; z is on one side

    def _dz(self, z, z_error, dy, terms):
        """dz = dy act'(z), its error, its terms."""
        size_dy = np.abs(dy)
        if self.activation in ("none", "relu"):  # dy itself, or nothing
            dz = dy.astype(self.real) * (1 if self.activation == "none" else z > 0)
            return dz, Spread.of(np.zeros(dy.shape)), size_dy
        slope, error = self._slope(z, z_error)
        value = slope * dy
        error = (
            error.times(size_dy)
            + Spread.of(self.u * np.abs(value))
            + self._rounding(value).times(size_dy > 0)
        )
        return value, error, size_dy * (2 + 2 * np.asarray(terms, np.float64))

    def _gradients(self, recorder, x, dz, dz_error, dz_terms, start, second):
        product = _Product()
        flipped = Spread(dz_error.total.T, dz_error.squares.T, dz_error.few.T)
        product.add(dz.T, x.astype(self.real), flipped, dz_terms.T)
        recorder.expect(
            "expected_grad/dweight",
            self.grad,
            (self.outs, self.ins),
            product.result(self.u, self.rows, self.grad, self.grad),
            start,
            second=second.get("dweight"),
        )
        if self.has_bias:
            total = Sum()
            total.add(dz, dz_error, dz_terms)
            recorder.expect(
                "expected_grad/dbias",
                self.grad,
                (self.outs,),
                total.result(self.rows, self.u, self.grad),
                start,
                second=second.get("dbias"),
            )

    def _second(self, torch, x, weight, bias, dy):
        leaf = {
            "dx": torch.tensor(x, requires_grad=True),
            "dweight": torch.tensor(weight, requires_grad=True),
        }
        if bias is not None:
            leaf["dbias"] = torch.tensor(bias, requires_grad=True)
        z = torch.nn.functional.linear(leaf["dx"], leaf["dweight"], leaf.get("dbias"))
        y = second_activation(torch, self.activation, z, self.constants)
        (y * torch.tensor(dy)).sum().backward()
        return {"y": y.detach().numpy(), **{name: tensor.grad.numpy() for name, tensor in leaf.items()}}


def gate(name, z):
    """act = z gate(z)"""
    if name == "gelu":
        return 1 / (
            1 + np.exp(-2 * z.dtype.type(math.sqrt(2 / math.pi)) * (z + z.dtype.type(0.044715) * z * z * z))
        )
    if name == "gelu_erf":
        return np.array([math.erfc(-v * math.sqrt(0.5)) / 2 for v in z.ravel()], z.dtype).reshape(z.shape)
    return 1 / (1 + np.exp(-z))


def simulated_activation(case, z, dtype, standard="none"):
    """act(z), and act' from act(z) as a number of dtype."""
    real, name = case.real("dtype"), case.options.get("activation", standard)
    constants = constants_of(case.options, real)
    slope, beta, scale, bias = (constants[name] for name in CONSTANTS)
    if name in ("gelu", "gelu_erf", "silu"):
        g = gate(name, z)
        y = z * g
        if name == "silu":
            act = g + z * g * (1 - g)
        elif name == "gelu":
            inner = real(math.sqrt(2 / math.pi)) * (1 + real(3 * 0.044715) * z * z)
            act = g + 2 * inner * z * g * (1 - g)
        else:
            act = g + z * real(1 / math.sqrt(2 * math.pi)) * np.exp(z * z / -2)
    elif name == "smelu":
        t = z + beta
        y = np.where(z <= -beta, 0, np.where(z >= beta, z, t * (t * (real(0.25) / beta))))
        act = np.where(z <= -beta, 0, np.where(z >= beta, 1, t * (real(0.5) / beta)))
    elif name == "star_relu":
        r = np.maximum(z, 0)
        y, act = scale * r * r + bias, 2 * (scale * r)
    else:
        y = {
            "none": z,
            "relu": np.maximum(z, 0),
            "leaky_relu": np.where(z > 0, z, slope * z),
            "squared_relu": np.maximum(z, 0) ** 2,
        }[name]
        stored = round_to(y, dtype).astype(real)
        act = {
            "none": np.ones_like(z),
            "relu": (stored > 0).astype(real),
            "leaky_relu": np.where(stored > 0, real(1), slope),
            "squared_relu": 2 * np.sqrt(np.maximum(stored, 0)),
        }[name]
    return y, act


def simulate(case, given):
    real, dtype = case.real("dtype"), case.options.get("dtype", "f32")
    x, weight = case.inputs["x"].values.astype(real), case.params["weight"].values.astype(real)
    z = x @ weight.T
    if "bias" in case.params:
        z = z + case.params["bias"].values.astype(real)
    z = round_to(z, dtype).astype(real)
    y, act = simulated_activation(case, z, dtype)
    results = {"y": y}
    if "dy" in given:
        dz = round_to(given["dy"].astype(real) * act, dtype).astype(real)
        results.update(dx=dz @ weight, dweight=dz.T @ x, dbias=dz.sum(axis=0))
    return results


# other constants than the defaults
OTHER_CONSTANTS = dict(smelu=dict(smelu_beta=0.7), star_relu=dict(star_scale=1.3, star_bias=0.2))


def small():
    for dtype in FLOATS:
        for activation in ACTIVATIONS:
            # a square doubles the product's relative error
            ins = 7 if activation in ("squared_relu", "star_relu") else 13
            options = {"in": ins, "out": 11, "dtype": dtype, "activation": activation}
            if dtype in ("f32", "bf16"):
                options.update(OTHER_CONSTANTS.get(activation, {}))
            yield f"linear-{activation}-{dtype}", Linear(options, 7)
        options = {"in": 13, "out": 11, "dtype": dtype, "no_bias": True}
        yield f"linear-no-bias-{dtype}", Linear(options, 7)
    options = {"in": 13, "out": 11, "dtype": "f32", "activation": "gelu", "recompute": True}
    yield "linear-recompute", Linear(options, 7)
    yield "linear-slope", Linear({"in": 13, "out": 11, "activation": "leaky_relu", "slope": 0.25}, 7)
    # f16 numbers are exact in TF32, which then rounds nothing more than f32
    yield "linear-tf32", Linear({"in": 13, "out": 11, "allow_tf32": True}, 7, drawn="f16")
    for rows, ins, outs in (
        (0, 8, 4),
        (1, 1, 1),
        (1, 33, 17),
        (33, 17, 9),
        (5, 65, 33),
        (7, 5, 1),
        (7, 1, 5),
    ):
        # a chain of 33 roundings of f32 is no longer below 16 ulp
        for dtype in ("f32", "bf16")[ins > 32 : 1 + (ins > 16)]:
            options = {"in": ins, "out": outs, "dtype": dtype, "activation": "gelu"}
            yield f"linear-shape-{rows}x{ins}x{outs}-{dtype}", Linear(options, rows)


REDRAWN = {
    "linear-gelu-f64": 2,
    "linear-shape-33x17x9-f32": 1,
    "linear-shape-7x5x1-f32": 1,
}
