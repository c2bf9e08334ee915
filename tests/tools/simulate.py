"""Reads cases as docs/case-files.md describes them, with h5py alone, and computes them with a second implementation of the layers,
in the types in which the library computes and stores."""

import math

import h5py
import numpy as np

from cases.layers import SIMULATED
from cases.numbers import FLOATS, round_to, unpack


class Tensor:
    def __init__(self, dataset):
        attribute = dataset.attrs.get("dtype")
        self.dtype = _text(attribute) if attribute is not None else _stored_type(dataset)
        stored = _stored_type(dataset)
        if stored == "bf16":
            raw = np.empty(dataset.shape, "<u2")
            if raw.size:
                dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, dataset.id.get_type())
            self.values = unpack(raw, "bf16")
        else:
            self.values = unpack(dataset[...], stored)
        self.atol, self.rtol = dataset.attrs.get("atol"), dataset.attrs.get("rtol")

    def bound(self):
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(self.values), self.atol + self.rtol * np.abs(self.values), 0)

    def sixteen_ulp(self):
        """At the largest magnitude; 0 if all elements are 0."""
        largest = np.max(np.abs(self.values[np.isfinite(self.values)]), initial=0)
        return 16 * 2 * FLOATS[self.dtype].roundoff * 2.0 ** (math.frexp(largest)[1] - 1) if largest else 0.0


def _text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def _stored_type(dataset):
    kind = dataset.id.get_type()
    if isinstance(kind, h5py.h5t.TypeFloatID) and kind.get_size() == 2:
        return {7: "bf16", 10: "f16"}[kind.get_fields()[4]]
    return {"<f8": "f64", "<f4": "f32", "<i4": "i32"}[dataset.dtype.str]


class Case:
    def __init__(self, name, group):
        self.name, self.layer = name, _text(group.attrs["layer"])
        self.options = dict(pair.split("=") for pair in _text(group.attrs["options"]).split(",") if pair)
        self.attributes = dict(group.attrs)
        for part in ("inputs", "params", "upstream", "expected", "expected_grad"):
            members = group[part].items() if part in group else ()
            setattr(self, part, {key: Tensor(dataset) for key, dataset in members})

    def option(self, name, default):
        return type(default)(self.options.get(name, default))

    def real(self, *names):
        """The type in which the layer computes."""
        return np.float64 if "f64" in [self.options.get(name, "f32") for name in names] else np.float32

    def run(self, upstream=None):
        """{name: values} of all results, as they are stored; upstream: other values for dy and dsum."""
        given = {key: tensor.values for key, tensor in self.upstream.items()}
        given.update(upstream or {})
        results = SIMULATED[self.layer](self, given)
        kinds = {**self.expected, **self.expected_grad}
        return {
            name: round_to(results[name], kinds[name].dtype).reshape(kinds[name].values.shape)
            for name in kinds
        }


def cases(path):
    with h5py.File(path, "r") as file:
        return [Case(name, group) for name, group in file["cases"].items()]
