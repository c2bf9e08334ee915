"""The sets of cases.  A set is a list of (name, operation); an operation is defined in a module of layers."""

import numpy as np

from .layers import MODULES
from .layers.cross_entropy import CrossEntropy
from .layers.dropout import Dropout
from .layers.linear import Linear
from .layers.matmul import Matmul
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


TILES = (
    *((16, 16, 16), (32, 16, 16), (16, 32, 16), (16, 16, 32), (32, 16, 32), (16, 32, 32), (16, 16, 64)),
    *((64, 16, 64), (16, 64, 64), (64, 32, 64), (32, 64, 64), (64, 32, 16), (32, 64, 16), (128, 32, 32)),
    *((32, 128, 32), (128, 64, 16), (64, 128, 16), (128, 32, 64), (32, 128, 64), (128, 256, 16)),
    *((256, 128, 16), (256, 128, 32), (256, 256, 256), (384, 128, 640), (107, 233, 256), (107, 233, 311)),
)
ACTIVATIONS = ("none", "relu", "leaky_relu", "gelu", "gelu_erf", "squared_relu", "silu", "smelu", "star_relu")


def originals():
    """Shapes of the original systems' own tests, up to 5 MB a tensor (the sets of their names have larger ones):
    PyTriton's dot (m, n, k; f16) in all transposes, xFormers' softmax with mask and causal, fused linear and dropout.
    The JAX tutorial's pairings of types, with a weight of two dimensions, are in the small set."""
    for m, n, k in TILES:
        for swap_a, swap_b in ((False, False), (True, False), (False, True), (True, True)):
            options = dict(m=m, n=n, k=k, dtype="f16", transpose_a=swap_a, transpose_b=swap_b)
            yield f"pytriton-dot-{'nt'[swap_a]}{'nt'[swap_b]}-{m}x{n}x{k}", Matmul(options, 1)
    for rows, cols in ((384, 384), (768, 384), (784, 784)):
        for log in (False, True):
            for masked in (0, 0.2):
                options = dict(cols=cols, log=log, causal_period=cols if masked else 0)
                name = f"xformers-{'log-' if log else ''}softmax{'-masked-causal' if masked else ''}"
                yield f"{name}-{rows}x{cols}", Softmax(options, (rows, cols), masked=masked, real=np.float64)
    for rows, k in ((128, 256), (3072, 128)):
        for activation in ACTIVATIONS:
            options = {"in": k, "out": k // 2, "dtype": "f16", "activation": activation}
            yield f"xformers-fused-linear-{activation}-{rows}x{k}", Linear(options, rows, real=np.float64)
    shapes = ((384, 128), (3072, 128), (64, 384), (64, 1024), (32, 2048), (32, 4096), (16, 12288))
    for number, (rows, cols) in enumerate(shapes):
        for p in (0.0, 0.001, 0.5, 1.0):
            for activation in ACTIVATIONS if number == 0 else ("none", ACTIVATIONS[1 + number]):
                options = dict(cols=cols, p=p, activation=activation, no_bias=bool(number % 2))
                yield f"xformers-dropout-{activation}-p{p:g}-{rows}x{cols}", Dropout(options, rows, real=np.float64)


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
SETS = dict(small=small, jax=jax, triton=triton, xformers=xformers, originals=originals, long=long)
