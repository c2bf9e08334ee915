"""The sets of cases.  A set is a list of (name, operation); an operation is defined in a module of layers."""

import numpy as np

from .layers import MODULES
from .layers.cross_entropy import CrossEntropy
from .layers.linear import Linear
from .layers.norm import norm
from .layers.softmax import Softmax


def small():
    for module in MODULES:
        yield from module.small()


def jax():
    """RMSNorm of the JAX tutorial on sharded kernels: the loss is -mean(y^2), so dy = -2 y / (number of
    elements)."""
    count = 32 * 512 * 512
    yield "jax-rmsnorm", norm(
        "rmsnorm",
        ("bf16",) * 3,
        (32, 512, 512),
        eps=1e-5,
        Mean=0.0,
        Real=np.float64,
        Dy_of_y=lambda y: -2 * y / count,
    )


def triton():
    """LayerNorm and softmax of the Triton tutorials."""
    yield "triton-layernorm", norm(
        "layernorm", ("f16",) * 3, (1151, 8192), Mean=-2.3, Deviation=0.5, Dy_scale=0.1, Real=np.float64
    )
    yield "triton-softmax", Softmax(dict(cols=781), (1823, 781), real=np.float64)


def xformers():
    """The shapes (batch, sequence, embedding) of xFormers' Triton benchmarks, batch and sequence as rows;
    linear layers have four times as many outputs as inputs.  Softmax's data have the deviation of theirs, which
    are uniform from 0 to 1."""
    for b, m, k in (
        (8, 384, 128),
        (8, 784, 512),
        (4, 1024, 768),
        (4, 2048, 1024),
        (2, 2048, 2048),
        (2, 2048, 4096),
        (2, 4096, 4096),
        (1, 2048, 12288),
    ):
        for log, name in ((False, "softmax"), (True, "log-softmax")):
            for dtype in ("f16", "f32"):
                yield f"xformers-{name}-{b}x{m}x{k}-{dtype}", Softmax(
                    dict(cols=k, log=log, dtype=dtype), (b * m, k), deviation=0.3, real=np.float64
                )
    for b, m, k in (
        (8, 256, 512),
        (8, 512, 1024),
        (4, 1024, 1024),
        (2, 2048, 2048),
        (2, 4096, 4096),
        (1, 2048, 12288),
    ):
        for dtype in ("f16", "f32"):
            yield f"xformers-layernorm-{b}x{m}x{k}-{dtype}", norm(
                "layernorm", (dtype,) * 3, (b * m, k), Real=np.float64
            )
    for b, m, k in (
        (8, 512, 256),
        (8, 512, 512),
        (4, 512, 1024),
        (2, 512, 2048),
        (2, 512, 4096),
        (2, 512, 8192),
    ):
        for activation in ("none", "relu", "squared_relu", "gelu", "leaky_relu"):
            options = {"in": k, "out": 4 * k, "dtype": "f16", "activation": activation}
            yield f"xformers-linear-{activation}-{b}x{m}x{k}", Linear(options, b * m, real=np.float64)


def long():
    """Long rows."""
    for cols in (131072, 262144, 1048575):
        for layer in ("layernorm", "rmsnorm"):
            for types in (("f32",) * 3, ("bf16", "f32", "bf16")):
                yield f"long-{layer}-{cols}-{types[0]}", norm(layer, types, (3, cols), Real=np.float64)
        for log, name in ((False, "softmax"), (True, "log-softmax")):
            for dtype in ("f32", "bf16"):
                options = dict(cols=cols, log=log, dtype=dtype)
                yield f"long-{name}-{cols}-{dtype}", Softmax(options, (3, cols), real=np.float64)
        options = dict(cols=cols)
        yield f"long-cross-entropy-{cols}", CrossEntropy(options, 3, loss_weight=1 / 3, real=np.float64)


REDRAWN = {name: number for module in MODULES for name, number in getattr(module, "REDRAWN", {}).items()}
SETS = dict(small=small, jax=jax, triton=triton, xformers=xformers, long=long)
