"""Rotary positions."""

from decimal import Decimal, localcontext

import numpy as np

from ..bounds import FUNCTION, TINY, Result, Spread, arithmetic, stored, unit
from ..draw import Stream
from ..numbers import FLOATS, round_to

DIGITS = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534212")


def sizes(options):
    """Pairs of a head; for each, its two columns."""
    pairs = (options.get("rotated") or options["head_size"]) // 2
    i = np.arange(pairs)
    if options.get("pairing", "halves") == "interleaved":
        return pairs, 2 * i, 2 * i + 1
    return pairs, i, i + pairs


def angles(options, positions):
    """Of each position and pair, in decimal numbers: the nearest quarter turn, and the rest."""
    pairs = sizes(options)[0]
    with localcontext() as context:
        context.prec = DIGITS
        log = Decimal(options.get("base", 10000)).ln()
        frequencies = [(-log * i / pairs).exp() for i in range(pairs)]
        products = [[int(position) * frequency / (PI / 2) for frequency in frequencies] for position in positions]
        quarters = [[int(turns.to_integral_value()) for turns in row] for row in products]
        rests = [
            [str((turns - quarter) * PI / 2) for turns, quarter in zip(*rows)] for rows in zip(products, quarters)
        ]
    shape = (len(positions), pairs)
    return np.reshape(np.array(quarters, object) % 4, shape).astype(int), np.array(
        [np.longdouble(rest) for row in rests for rest in row], np.longdouble
    ).reshape(shape)


def turned(quarter, rest):
    """Cosine and sine."""
    c, s = np.cos(rest), np.sin(rest)
    return np.choose(quarter, (c, -s, -c, s)), np.choose(quarter, (s, c, -s, -c))


def rotate(options, x, cosine, sine):
    heads = x.reshape(len(x), x.shape[1] // options["head_size"], options["head_size"])
    _, a, b = sizes(options)
    y = heads.astype(np.result_type(x, cosine))
    cosine, sine = cosine[:, None], sine[:, None]
    y[..., a] = heads[..., a] * cosine - heads[..., b] * sine
    y[..., b] = heads[..., b] * cosine + heads[..., a] * sine
    return y.reshape(x.shape)


class Rope:
    def __init__(self, options, rows, first_row=0, counted=False, real=np.longdouble):
        """counted: the call has no positions."""
        self.layer, self.options, self.rows = "rope", options, rows
        self.cols, self.dtype = options["cols"], options.get("dtype", "f32")
        self.first_row, self.counted, self.real = first_row, counted, real
        self.attributes = {"first_row": first_row} if first_row else {}

    def run(self, recorder):
        shape, dtype = (self.rows, self.cols), self.dtype
        x, dy = (round_to(Stream(recorder.data, name).normal(*shape), dtype) for name in ("x", "dy"))
        recorder.exact("inputs/x", dtype, shape, x)
        recorder.exact("upstream/dy", dtype, shape, dy)
        positions = counted_positions(self.options, self.first_row, self.rows)
        if not self.counted:
            most = self.options.get("max_positions", 2**31)
            positions = Stream(recorder.data, "positions").below(most, self.rows)
            positions[:2] = (0, most - 1)[: self.rows]
            recorder.exact("inputs/positions", "i32", (self.rows,), positions)
        quarter, rest = angles(self.options, positions)
        cosine, sine = turned(quarter, rest.astype(self.real))
        u = unit(dtype, self.real)
        error = 3 * u * np.abs(rest) + 2.0**-61 + 2.0**-91 * np.asarray(positions, float)[:, None]
        second = self._second(recorder.torch, x, dy, cosine, sine) if recorder.torch else {}
        for name, given, sign in (("expected/y", x, 1), ("expected_grad/dx", dy, -1)):
            result = self._rotated(given.astype(self.real), cosine, sign * sine, error, u)
            recorder.expect(name, dtype, shape, result, second=second.get(name))

    def _rotated(self, x, cosine, sine, error, u):
        """other: what an error of the angle multiplies."""
        value, size = rotate(self.options, x, cosine, sine), np.abs(x)
        kept = np.abs(rotate(self.options, size, cosine, 0 * sine))
        taken = np.abs(rotate(self.options, size, 0 * cosine, sine))
        other = np.abs(rotate(self.options, x, -sine, cosine))
        _, a, b = sizes(self.options)
        head = self.options["head_size"]
        angle = np.zeros((len(x), x.shape[1] // head, head))
        angle[..., a] = angle[..., b] = error[:, None]
        angle = angle.reshape(x.shape)
        spread = Spread.single(FUNCTION * u * kept) + Spread.single(FUNCTION * u * taken)
        spread = spread + Spread.single(angle * other)
        spread = spread + Spread.of(u * kept, u * taken, u * np.abs(value), TINY[arithmetic(self.dtype)])
        rotated = (angle > 0) & np.any(sine != 0, axis=1)[:, None]
        return Result(value, stored(spread.times(rotated), value, self.dtype, arithmetic(self.dtype)), size + taken)

    def _second(self, torch, x, dy, cosine, sine):
        """As Hugging Face's apply_rotary_pos_emb, which turns half of a head by 90 degrees."""
        leaf = torch.tensor(x, requires_grad=True)
        heads = leaf.reshape(self.rows, self.cols // self.options["head_size"], self.options["head_size"])
        pairs, a, b = sizes(self.options)
        c, s = (torch.tensor(np.asarray(t, np.float64))[:, None] for t in (cosine, sine))
        one, other = heads[..., a], heads[..., b]
        y = torch.cat((one * c - other * s, other * c + one * s, heads[..., 2 * pairs :]), -1)
        order = np.argsort(np.concatenate((a, b, np.arange(2 * pairs, self.options["head_size"]))))
        y = y[..., order].reshape(self.rows, self.cols)
        (y * torch.tensor(dy)).sum().backward()
        return {"expected/y": y.detach().numpy(), "expected_grad/dx": leaf.grad.numpy()}


def counted_positions(options, first_row, rows):
    numbers = [first_row + row for row in range(rows)]
    period = options.get("period", 0)
    return [number % period if period else number for number in numbers]


def simulate(case, given):
    real, x = case.real("dtype"), case.inputs["x"].values
    options = dict(case.options, head_size=case.option("head_size", 2), rotated=case.option("rotated", 0))
    options.update(base=Decimal(case.options.get("base", "10000")), period=case.option("period", 0))
    positions = counted_positions(options, int(case.attributes.get("first_row", 0)), len(x))
    if "positions" in case.inputs:
        positions = case.inputs["positions"].values
    quarter, rest = angles(options, positions)
    cosine, sine = turned(quarter, rest.astype(real))
    results = {"y": rotate(options, x.astype(real), cosine, sine)}
    if "dy" in given:
        results["dx"] = rotate(options, given["dy"].astype(real), cosine, -sine)
    return results


def small():
    for dtype in FLOATS:
        options = dict(cols=16, head_size=8, dtype=dtype, pairing="halves", max_positions=4096)
        yield f"rope-{dtype}", Rope(options, 7)
    for dtype in ("f32", "f64"):
        options = dict(cols=12, head_size=6, dtype=dtype, pairing="interleaved", base=500000.0)
        yield f"rope-far-{dtype}", Rope(options, 5)
    options = dict(cols=18, head_size=6, rotated=4, pairing="interleaved", period=4)
    yield "rope-counted", Rope(options, 11, first_row=6, counted=True)
    yield "rope-rotated", Rope(dict(cols=20, head_size=10, rotated=6, base=100.0), 5)
    yield "rope-shape-0x4", Rope(dict(cols=4, head_size=4), 0)
