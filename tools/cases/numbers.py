"""The number types of tensors: rounding to them, and how HDF5 stores them."""

import h5py
import numpy as np


class Float:
    def __init__(self, digits, least, largest_exponent):
        self.digits = digits  # bits of the significand, including the hidden one
        self.least = 2.0**least  # the smallest positive number
        self.most = (2 - 2.0 ** (1 - digits)) * 2.0**largest_exponent
        self.roundoff = 2.0**-digits


FLOATS = {
    "f64": Float(53, -1074, 1023),
    "f32": Float(24, -149, 127),
    "f16": Float(11, -24, 15),
    "bf16": Float(8, -133, 127),
}
NATIVE = {"f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": "<u2", "i32": "<i4"}


def round_to(values, dtype):
    """The nearest numbers of the type, ties to even, as f64."""
    kind = FLOATS[dtype]
    values = np.asarray(values)
    if dtype == "f64":
        return values.astype(np.float64)
    exponent = np.frexp(values)[1]
    with np.errstate(invalid="ignore"):
        unit = np.ldexp(values.dtype.type(1), np.maximum(exponent - kind.digits, int(np.log2(kind.least))))
        rounded = (np.rint(values / unit) * unit).astype(np.float64)
    return np.where(np.abs(rounded) > kind.most, np.copysign(np.inf, rounded), rounded)


def pack(values, dtype):
    """The bytes of values, which must be numbers of the type."""
    values = np.asarray(values)
    if dtype == "bf16":
        packed = (values.astype("<f4").view("<u4") >> 16).astype("<u2")
    else:
        with np.errstate(over="ignore"):
            packed = values.astype(NATIVE[dtype])
    if not np.array_equal(unpack(packed, dtype), values, equal_nan=dtype in FLOATS):
        raise ValueError(f"a value is not a number of {dtype}")
    return packed


def unpack(packed, dtype):
    """Values of what pack made: f64, or integers."""
    if dtype == "bf16":
        return (packed.astype("<u4") << 16).view("<f4").astype(np.float64)
    return packed if dtype == "i32" else packed.astype(np.float64)


def file_type(dtype):
    if dtype != "bf16":
        return h5py.h5t.py_create(np.dtype(NATIVE[dtype]))
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind
