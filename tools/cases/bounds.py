"""Bounds of rounding errors, as docs/numerics.md derives them."""

import numpy as np

from .numbers import FLOATS

FUNCTION = 4  # roundoffs that 1/sqrt, exp, log, tanh and erf may be wrong by
SHORT = 17  # terms of a chain up to which its path is taken as the average of all paths
TINY = {"f64": 2.0**-1022, "f32": 2.0**-126}  # where the arithmetic's normal numbers end


def arithmetic(*dtypes):
    return "f64" if "f64" in dtypes else "f32"


def unit(dtype, real):
    """Unit roundoff of arithmetic in dtype, plus that of the reference itself, computed in `real`."""
    return FLOATS[arithmetic(dtype)].roundoff + float(np.finfo(real).eps) / 2


def depth(n):
    """Roundings between a term and a sum of n of them: blocks of 8, merged pairwise."""
    return max(n - 1, 0) if n <= 8 else 7 + np.log2(n / 8)


def stored(spread, value, dtype, computed):
    """The bound of a result that is computed in one type (whose roundings are in the spread) and stored in
    another.  Its reference is stored in f64."""
    error = spread.most()
    roundoff = FLOATS["f64"].roundoff + (0 if dtype == computed else FLOATS[dtype].roundoff)
    return error + roundoff * (np.abs(value).astype(np.float64) + error) + FLOATS[dtype].least / 2


class Spread:
    """Independent errors: the sum of their worst cases; the sum of the squares of many; the sum of few larger
    ones, which count in full."""

    def __init__(self, total=0.0, squares=0.0, few=0.0):
        self.total, self.squares, self.few = total, squares, few

    @staticmethod
    def of(*worst):
        """Roundings."""
        worst = [np.asarray(error, np.float64) for error in worst]
        return Spread(sum(worst), sum(error * error for error in worst), 0.0 * sum(worst))

    @staticmethod
    def single(worst):
        """A larger error: of a function, of storing in a narrower type."""
        worst = np.asarray(worst, np.float64)
        return Spread(worst, 0.0 * worst, worst)

    def __add__(self, other):
        return Spread(self.total + other.total, self.squares + other.squares, self.few + other.few)

    def times(self, factor):
        """Of a value that is multiplied by an exact factor."""
        factor = np.abs(np.asarray(factor, np.float64))
        return Spread(factor * self.total, factor * factor * self.squares, factor * self.few)

    def mixed(self):
        """Sums of squares of all, for a sum over many such values."""
        return self.squares + self.few * self.few

    def sum(self, axis=None, keepdims=False):
        """Of the sum of values with independent errors."""
        return Spread(
            np.sum(self.total, axis, keepdims=keepdims), np.sum(self.mixed(), axis, keepdims=keepdims)
        )

    def most(self):
        return np.minimum(self.total, self.few + 4 * np.sqrt(self.squares))


def tree(u, terms):
    """Adding up each row of terms, in blocks merged pairwise."""
    count = terms.shape[1]
    magnitude, squares, total = _moments(terms, 1, True)
    return Spread(depth(count) * u * magnitude, u * u * (2 * total**2 + depth(count) * squares) * (count > 1))


def chain(u, count, magnitude, squares, total):
    """Adding up count terms in any order, one after the other too, from the moments of the terms.  The squares
    of the partial sums are those of one path, which strays the further the longer it is."""
    worst = np.maximum(count - 1, 0) * u
    path = np.where(np.asarray(count) <= SHORT, 1 / 6, 1)
    return Spread(worst * magnitude, u * u * count * (total**2 / 3 + squares * path) * (count > 1))


def _moments(terms, axis, keepdims=False):
    size = np.abs(terms).astype(np.float64)
    return (
        size.sum(axis, keepdims=keepdims),
        (size * size).sum(axis, keepdims=keepdims),
        np.asarray(terms.sum(axis, keepdims=keepdims), np.float64),
    )


class Result:
    """Values with their bounds, and the sums of their terms' magnitudes, relative to which two references may
    differ."""

    def __init__(self, value, bound, terms):
        self.value = value
        self.bound = np.broadcast_to(bound, value.shape)
        self.terms = np.broadcast_to(terms, value.shape)


class Sum:
    """A sum over rows, of terms that have errors."""

    def __init__(self):
        self.value = self.terms = self.magnitude = self.squares = 0
        self.spread = Spread()

    def add(self, terms, spread, sizes):
        """Arrays of rows; sizes: of the terms' own terms."""
        magnitude, squares, _ = _moments(terms, 0)
        self.value = self.value + terms.sum(axis=0)
        self.magnitude, self.squares = self.magnitude + magnitude, self.squares + squares
        self.spread = self.spread + spread.sum(axis=0)
        self.terms = self.terms + sizes.sum(axis=0)

    def result(self, rows, u, dtype):
        total = np.asarray(self.value, np.float64)
        spread = self.spread + chain(u, rows, self.magnitude, self.squares, total)
        return Result(self.value, stored(spread, self.value, dtype, dtype), self.terms)


class Cover:
    """The smallest atol + rtol |expected| that is nowhere below the elements' bounds: it equals their maximum at
    the largest element, and falls from there as steeply as possible."""

    def __init__(self):
        self.worst = {}  # |expected|, its leading bits: the largest bound

    def add(self, value, bound):
        finite = np.isfinite(value)
        size, bound = np.abs(np.asarray(value, np.float64)[finite]), np.asarray(bound, np.float64)[finite]
        keys, where = np.unique(size.view(np.int64) >> 44, return_inverse=True)
        most = np.zeros(len(keys))
        np.maximum.at(most, where, bound)
        for key, error in zip(keys.tolist(), most.tolist()):
            self.worst[key] = max(error, self.worst.get(key, 0.0))

    def attributes(self):
        keys = sorted(self.worst)
        if not keys:
            return {"atol": 0.0, "rtol": 0.0}
        size = (np.array(keys, np.int64) << 44).view(np.float64)  # from below: what holds there holds above
        bound = np.array([self.worst[key] for key in keys])
        top = bound.max()
        below = size < size[-1]
        slopes = np.append(
            (top - bound[below]) / (size[-1] - size[below]), top / size[-1] if size[-1] else 0.0
        )
        rtol = slopes.min()
        return {"atol": _round_up(max(top - rtol * size[-1], 0.0)), "rtol": _round_up(rtol)}


def _round_up(bound):
    """To 10 binary digits, so that another libm gives the same bound."""
    fraction, exponent = np.frexp(float(bound))
    return float(np.ldexp(np.ceil(fraction * 1024) / 1024, exponent))
