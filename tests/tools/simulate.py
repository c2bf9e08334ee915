"""A second implementation of the layers in NumPy, in the types that the library computes and stores in: what
a right one may return.  It reads case files as docs/case-files.md says, with h5py alone."""

import math

import h5py
import numpy as np

from cases.dropout import keeps
from cases.numbers import FLOATS, round_to, unpack

WIDE = {"f64": np.float64}


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
        """At the largest magnitude; 0 if all is 0."""
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
        """What the layer computes in."""
        return np.float64 if "f64" in [self.options.get(name, "f32") for name in names] else np.float32

    def run(self, upstream=None):
        """{name: values} of all results, as they are stored; upstream: other values for dy and dsum."""
        given = {key: tensor.values for key, tensor in self.upstream.items()}
        given.update(upstream or {})
        results = RUN[self.layer](self, given)
        kinds = {**self.expected, **self.expected_grad}
        return {
            name: round_to(results[name], kinds[name].dtype).reshape(kinds[name].values.shape)
            for name in kinds
        }


def cases(path):
    with h5py.File(path, "r") as file:
        return [Case(name, group) for name, group in file["cases"].items()]


def norm(case, given):
    real = case.real("x_dtype", "param_dtype")
    cols, centered = case.option("cols", 0), case.layer == "layernorm"
    eps = case.option("eps", 1e-5 if centered else 1e-6)
    x = case.inputs["x"].values.reshape(-1, cols).astype(real)
    results = {}
    if "residual" in case.inputs:
        total = x + case.inputs["residual"].values.reshape(-1, cols).astype(real)
        results["sum"] = round_to(total, case.inputs["x"].dtype)
        x = results["sum"].astype(real)
    factor = beta = None
    if "gamma" in case.params:
        factor = case.params["gamma"].values.reshape(cols).astype(real) + real(
            case.option("zero_centered", 0)
        )
    if "beta" in case.params:
        beta = case.params["beta"].values.reshape(cols).astype(real)
    mean = x.mean(axis=1, keepdims=True) if centered else real(0)
    if centered:  # of two passes, the second of which corrects the first
        mean = mean + (x - mean).mean(axis=1, keepdims=True)
    c = x - mean
    squares = (c * c).sum(axis=1, keepdims=True).astype(np.float64)
    rstd = (1 / np.sqrt(np.where(np.isfinite(squares), squares, np.nan) / cols + eps)).astype(real)
    n = c * rstd
    results["y"] = n if factor is None else n * factor
    if beta is not None:
        results["y"] = results["y"] + beta
    if "dy" in given:
        dy = given["dy"].reshape(-1, cols).astype(real)
        results["dgamma"], results["dbeta"] = (dy * n).sum(axis=0), dy.sum(axis=0)
        g = dy if factor is None else dy * factor
        mean_g = g.mean(axis=1, keepdims=True) if centered else real(0)
        results["dx"] = rstd * (g - mean_g - n * (g * n).mean(axis=1, keepdims=True))
        if "dsum" in given:
            results["dx"] = results["dx"] + given["dsum"].reshape(-1, cols).astype(real)
    return results


def softmax(case, given):
    real, cols = case.real("dtype"), case.option("cols", 0)
    x = case.inputs["x"].values.reshape(-1, cols).astype(real)
    scale, period, log = (
        real(case.option("scale", 1.0)),
        case.option("causal_period", 0),
        case.option("log", 0),
    )
    visible = np.ones(x.shape, bool)
    if period:
        rows = case.attributes.get("first_row", 0) + np.arange(len(x))
        visible = np.arange(cols) <= (rows % period)[:, None]
    t = np.where(visible, -x if scale < 0 else x, real(-np.inf))
    t = (t - t.max(axis=1, keepdims=True)) * abs(scale)
    e = np.exp(t)
    total = e.sum(axis=1, keepdims=True)
    y = t - np.log(total) if log else e / total
    results = {"y": y}
    if "dy" in given:
        dy = np.where(visible, given["dy"].reshape(-1, cols), 0).astype(real)
        y = round_to(y, case.expected["y"].dtype).astype(real)
        if log:
            results["dx"] = scale * (dy - np.exp(y) * dy.sum(axis=1, keepdims=True))
        else:
            results["dx"] = scale * y * (dy - (y * dy).sum(axis=1, keepdims=True))
    return results


def cross_entropy(case, given):
    real, ignore = case.real("dtype"), case.option("ignore_label", -1)
    x, labels = case.inputs["logits"].values.astype(real), case.inputs["labels"].values
    weight = real(case.attributes.get("loss_weight", 1.0) * case.attributes.get("loss_scale", 1.0))
    counts = labels != ignore
    at = np.where(counts, labels, 0)[:, None]
    t = x - x.max(axis=1, keepdims=True)
    e = np.exp(t)
    total = e.sum(axis=1, keepdims=True)
    loss = np.where(counts, (np.log(total) - np.take_along_axis(t, at, 1))[:, 0], 0)
    dlogits = (e / total - (np.arange(x.shape[1]) == at)) * weight
    return {
        "loss": loss,
        "loss_sum": loss.astype(np.float64).sum(keepdims=True),
        "dlogits": np.where(counts[:, None], dlogits, 0),
    }


def embedding(case, given):
    tokens, weight = case.inputs["tokens"].values, case.params["weight"].values
    results = {"y": weight[tokens]}
    if "dy" in given:
        results["dweight"] = np.zeros(weight.shape, case.real("dtype"))
        np.add.at(results["dweight"], tokens, given["dy"].astype(case.real("dtype")))
    return results


def gate(name, z):
    """act = z gate(z)"""
    if name == "gelu":
        return 1 / (
            1 + np.exp(-2 * z.dtype.type(math.sqrt(2 / math.pi)) * (z + z.dtype.type(0.044715) * z * z * z))
        )
    if name == "gelu_erf":
        return np.array([math.erfc(-v * math.sqrt(0.5)) / 2 for v in z.ravel()], z.dtype).reshape(z.shape)
    return 1 / (1 + np.exp(-z))


def activation(case, z, dtype):
    """act(z), and act' from act(z) as a number of dtype."""
    real, name = case.real("dtype"), case.options.get("activation", "none")
    slope = real(case.option("slope", 0.01))
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


def linear(case, given):
    real, dtype = case.real("dtype"), case.options.get("dtype", "f32")
    x, weight = case.inputs["x"].values.astype(real), case.params["weight"].values.astype(real)
    z = x @ weight.T
    if "bias" in case.params:
        z = z + case.params["bias"].values.astype(real)
    z = round_to(z, dtype).astype(real)
    y, act = activation(case, z, dtype)
    results = {"y": y}
    if "dy" in given:
        dz = round_to(given["dy"].astype(real) * act, dtype).astype(real)
        results.update(dx=dz @ weight, dweight=dz.T @ x, dbias=dz.sum(axis=0))
    return results


def dropout(case, given):
    real, cols = case.real("dtype"), case.option("cols", 0)
    z = case.inputs["x"].values.reshape(-1, cols).astype(real)
    if "bias" in case.params:
        z = z + case.params["bias"].values.astype(real)
    number, first_row = case.option("layer_number", 0), int(case.attributes.get("first_row", 0))
    keep, kept = keeps(len(z), cols, first_row, number, case.option("p", 0.0))
    y, act = activation(case, z, "f64" if real is np.float64 else "f32")
    dz = np.where(keep, given["dy"].reshape(-1, cols).astype(real) * act, 0) / real(kept or 1)
    return {"y": np.where(keep, y, 0) / real(kept or 1), "dx": dz, "dbias": dz.sum(axis=0)}


RUN = dict(
    layernorm=norm,
    rmsnorm=norm,
    softmax=softmax,
    cross_entropy=cross_entropy,
    embedding=embedding,
    linear=linear,
    dropout=dropout,
)
