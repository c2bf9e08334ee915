"""Which cases there are.  A set is a list of (name, operation); an operation is one of norm.py, softmax.py,
…"""

import numpy as np

from .dropout import Dropout
from .embedding import Embedding
from .linear import Linear
from .norm import Norm
from .softmax import CrossEntropy, Softmax

DTYPES = ("f64", "f32", "f16", "bf16")
ACTIVATIONS = ("none", "relu", "leaky_relu", "gelu", "gelu_erf", "squared_relu", "silu")


def _norm(layer, types, shape, **more):
    """more: options of the layer, and with a capital what Norm() itself takes."""
    x, param, y = types
    options = dict(cols=int(np.prod(shape[1:])), x_dtype=x, param_dtype=param, y_dtype=y)
    options.update((key, value) for key, value in more.items() if key[0].islower())
    return Norm(
        layer, options, shape, **{key.lower(): value for key, value in more.items() if key[0].isupper()}
    )


def _norms(layer):
    for x in DTYPES:
        for param in DTYPES:
            for y in dict.fromkeys((x, param)):
                yield f"{layer}-types-{x}-{param}-{y}", _norm(layer, (x, param, y), (4, 33))
    chosen = {
        "residual": dict(Residual=True),
        "residual-dsum": dict(Residual=True, Dsum=True),
        "zero-centered": dict(zero_centered=True),
        "no-gamma": dict(no_gamma=True),
        "eps": dict(eps=0.25),
        "eps-0": dict(eps=0.0),
        "small-x": dict(Mean=0.0, Deviation=1e-3),
    }
    if layer == "layernorm":
        chosen["no-gamma"] = dict(no_gamma=True, no_beta=True)
        chosen["no-beta"] = dict(no_beta=True)
        chosen["no-beta-zero-centered"] = dict(no_beta=True, zero_centered=True)
        chosen["large-mean"] = dict(Mean=2.0, Deviation=0.5)
    for option, more in chosen.items():
        for types in (("f32",) * 3, ("bf16", "f32", "bf16")):
            yield f"{layer}-{option}-{types[0]}", _norm(layer, types, (5, 33), **more)
    shapes = ((0, 8), (1, 64), (1, 257), (33, 17), (65, 5), (2, 1025), (2, 129), (4, 3, 5), (3, 2, 2, 7))
    for shape in shapes:
        for types in (("f32",) * 3, ("bf16", "f32", "bf16"))[: 1 + (shape in ((33, 17), (2, 1025)))]:
            yield f"{layer}-shape-{'x'.join(map(str, shape))}-{types[0]}", _norm(layer, types, shape)
    # with so few columns the terms of dx all but cancel, unless eps has a part in rstd
    for cols in (1, 3) if layer == "layernorm" else (1, 2, 3):
        yield f"{layer}-shape-7x{cols}-f32", _norm(layer, ("f32",) * 3, (7, cols), eps=1.0)


def _softmaxes():
    # exponents of moderate size: what they lose to rounding is a part of them
    for log, name in ((False, "softmax"), (True, "log-softmax")):
        for dtype in DTYPES:
            options = dict(dtype=dtype, log=log)
            yield f"{name}-{dtype}", Softmax(dict(cols=33, **options), (5, 33), deviation=0.5)
            yield f"{name}-scale-{dtype}", Softmax(
                dict(cols=33, scale=0.125, **options), (5, 33), deviation=4
            )
            yield f"{name}-causal-{dtype}", Softmax(
                dict(cols=9, causal_period=7, **options), (16, 9), first_row=3, deviation=0.5
            )
        options = dict(log=log)
        yield f"{name}-negative-scale", Softmax(dict(cols=37, scale=-1.5, **options), (5, 37), deviation=0.25)
        yield f"{name}-causal-short", Softmax(
            dict(cols=5, causal_period=8, **options), (19, 5), deviation=0.5
        )
        yield f"{name}-minus-inf", Softmax(dict(cols=33, **options), (5, 33), masked=0.3, deviation=0.5)
        # all but the greatest element vanish, and so does the gradient
        yield f"{name}-peaked", Softmax(dict(cols=33, **options), (5, 33), deviation=20, backward=False)
        for shape in ((0, 8), (1, 64), (7, 1), (33, 17), (2, 129), (2, 1025), (4, 3, 5)):
            cols = int(np.prod(shape[1:]))
            yield f"{name}-shape-{'x'.join(map(str, shape))}", Softmax(
                dict(cols=cols, **options), shape, deviation=0.5
            )


def _linears():
    for dtype in DTYPES:
        for activation in ACTIVATIONS:
            # a square doubles what the product has lost
            ins = 7 if activation == "squared_relu" else 13
            options = {"in": ins, "out": 11, "dtype": dtype, "activation": activation}
            yield f"linear-{activation}-{dtype}", Linear(options, 7)
        options = {"in": 13, "out": 11, "dtype": dtype, "no_bias": True}
        yield f"linear-no-bias-{dtype}", Linear(options, 7)
    yield "linear-slope", Linear({"in": 13, "out": 11, "activation": "leaky_relu", "slope": 0.25}, 7)
    # of numbers of f16, which TF32 holds: nothing is rounded that f32 would not round
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


def _cross_entropies():
    for dtype in DTYPES:
        scale = 1024.0 if dtype == "f16" else 1.0
        yield f"cross-entropy-{dtype}", CrossEntropy(dict(cols=37, dtype=dtype), 8, 0.3, 1 / 8, scale)
    yield "cross-entropy-ignore-label", CrossEntropy(dict(cols=10, ignore_label=3), 30, loss_weight=1 / 27)
    yield "cross-entropy-all-ignored", CrossEntropy(dict(cols=10), 5, ignored=1.0)
    yield "cross-entropy-peaked", CrossEntropy(dict(cols=33), 6, deviation=20)
    for rows, cols in ((0, 8), (1, 64), (7, 1), (33, 17), (2, 129), (2, 1025)):
        yield f"cross-entropy-shape-{rows}x{cols}", CrossEntropy(
            dict(cols=cols), rows, loss_weight=1 / max(rows, 1)
        )


def _embeddings():
    for dtype in DTYPES:
        yield f"embedding-{dtype}", Embedding(dict(vocab=11, cols=7, dtype=dtype), 30)
    for rows, vocab, cols in ((0, 4, 3), (1, 1, 1), (65, 3, 5), (9, 65, 9), (7, 5, 1)):
        yield f"embedding-shape-{rows}x{vocab}x{cols}", Embedding(dict(vocab=vocab, cols=cols), rows)


def _dropouts():
    for dtype in DTYPES:
        for activation in ACTIVATIONS:
            options = dict(cols=17, dtype=dtype, activation=activation, p=0.25)
            yield f"dropout-{activation}-{dtype}", Dropout(options, (5, 17), first_row=5)
        options = dict(cols=17, dtype=dtype, activation="gelu", p=0.1, no_bias=True, layer_number=3)
        yield f"dropout-no-bias-{dtype}", Dropout(options, (5, 17))
    for p in (0, 1, 2.0**-18, 0.9):
        yield f"dropout-p-{p:.2g}", Dropout(dict(cols=17, activation="silu", p=p), (5, 17))
    options = dict(cols=17, activation="leaky_relu", slope=0.25, p=0.5, layer_number=32767)
    yield "dropout-far-row", Dropout(options, (5, 17), first_row=2**33 - 3)
    for shape in ((0, 8), (1, 1), (33, 17), (2, 1025), (4, 3, 5)):
        options = dict(cols=int(np.prod(shape[1:])), activation="gelu_erf", p=0.5)
        yield f"dropout-shape-{'x'.join(map(str, shape))}", Dropout(options, shape, first_row=11)


def small():
    yield from _norms("layernorm")
    yield from _norms("rmsnorm")
    yield from _softmaxes()
    yield from _linears()
    yield from _cross_entropies()
    yield from _embeddings()
    yield from _dropouts()


def jax():
    """RMSNorm of the JAX tutorial on sharded kernels: the loss is -mean(y^2), so dy = -2 y / (number of
    elements)."""
    count = 32 * 512 * 512
    yield "jax-rmsnorm", _norm(
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
    yield "triton-layernorm", _norm(
        "layernorm", ("f16",) * 3, (1151, 8192), Mean=-2.3, Deviation=0.5, Dy_scale=0.1, Real=np.float64
    )
    yield "triton-softmax", Softmax(dict(cols=781), (1823, 781), real=np.float64)


def xformers():
    """The shapes (batch, sequence, embedding) of xFormers' Triton benchmarks, batch and sequence as rows;
    linear layers have four times as many outputs as inputs.  Softmax's data is spread as theirs, uniform from
    0 to 1."""
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
            yield f"xformers-layernorm-{b}x{m}x{k}-{dtype}", _norm(
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
                yield f"long-{layer}-{cols}-{types[0]}", _norm(layer, types, (3, cols), Real=np.float64)
        for log, name in ((False, "softmax"), (True, "log-softmax")):
            for dtype in ("f32", "bf16"):
                options = dict(cols=cols, log=log, dtype=dtype)
                yield f"long-{name}-{cols}-{dtype}", Softmax(options, (3, cols), real=np.float64)
        options = dict(cols=cols)
        yield f"long-cross-entropy-{cols}", CrossEntropy(options, 3, loss_weight=1 / 3, real=np.float64)


# Cases that use other random numbers than the first ones.  Those left the largest element of a tensor just
# above a power of two, where 16 ulp are least, or a gradient that all but cancels: the bound would hide what
# it should show.
REDRAWN = {
    "layernorm-types-f64-f32-f64": 1,
    "layernorm-types-f64-f16-f16": 3,
    "layernorm-types-f64-bf16-f64": 1,
    "layernorm-types-f64-bf16-bf16": 1,
    "layernorm-residual-f32": 2,
    "layernorm-eps-0-f32": 4,
    "layernorm-small-x-f32": 1,
    "layernorm-no-beta-zero-centered-f32": 1,
    "layernorm-shape-1x257-f32": 1,
    "layernorm-shape-2x1025-f32": 2,
    "layernorm-shape-7x3-f32": 1,
    "rmsnorm-types-f64-f16-f16": 1,
    "rmsnorm-zero-centered-f32": 1,
    "rmsnorm-shape-2x1025-f32": 1,
    "rmsnorm-shape-2x129-f32": 1,
    "softmax-f32": 1,
    "softmax-causal-f32": 12,
    "softmax-causal-f64": 2,
    "softmax-causal-short": 2,
    "softmax-shape-1x64": 2,
    "softmax-shape-33x17": 1,
    "softmax-shape-2x1025": 1,
    "softmax-shape-4x3x5": 1,
    "log-softmax-f32": 1,
    "linear-gelu-f64": 2,
    "linear-shape-33x17x9-f32": 1,
    "linear-shape-7x5x1-f32": 1,
}

SETS = dict(small=small, jax=jax, triton=triton, xformers=xformers, long=long)
