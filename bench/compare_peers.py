"""What bench/compare.py times Tutti's layers beside: {name: function(case, pass)}.

Such a function returns what is to be timed, or raises what the peer refuses the case with.
"""

import logging

import torch

QUACK_ACTIVATIONS = {"none": None, "relu": "relu", "gelu": "gelu_tanh_approx", "silu": "silu",
                     "gelu_erf": "gelu_erf", "squared_relu": "relu_sq"}


def pytorch(case, passes, compiled):
    function, of = case.function()
    if compiled:
        torch._dynamo.reset()
        function = torch.compile(function, dynamic=False)
    return by_autograd(case, passes, function, of)


def by_autograd(case, passes, function, of):
    if case.is_loss:
        return lambda: torch.autograd.grad(function(*of), of)
    if passes == "forward":
        of = [t.detach() for t in of]
        return lambda: function(*of)
    y = function(*of)
    return lambda: torch.autograd.grad(y, of, case.dy, retain_graph=True)


def triton(case, passes):
    import compare_triton
    if case.kind == "layernorm":
        return compare_triton.norm(case, passes, case.eps)
    if case.kind == "softmax" and not case.variant:
        return compare_triton.softmax(case, passes)
    raise LookupError(f"is not compared in {case.kind}")


def liger(case, passes):
    from liger_kernel.ops import layer_norm, rms_norm, softmax
    forward = passes == "forward"
    if case.kind == "layernorm":
        of = (case.x, case.params["gamma"], case.params["beta"])
        run = lambda: layer_norm.layer_norm_forward(*of, case.eps)
        _, _, mean, rstd, *_ = run()
        return run if forward else lambda: layer_norm.layer_norm_backward(case.dy, *of, mean, rstd)
    if case.kind == "rmsnorm":
        of = (case.x, case.params["gamma"])
        run = lambda: rms_norm.rms_norm_forward(*of, case.eps, 0.0, "llama", False)
        _, _, rstd, block, warps, casting = run()
        return run if forward else lambda: rms_norm.rms_norm_backward(
            case.dy, *of, rstd, 0.0, casting, block, warps, False, False)
    if case.kind == "softmax" and not case.variant:
        run = lambda: softmax._softmax_forward(case.x)
        y, *launch = run()
        return run if forward else lambda: softmax._softmax_backward(case.dy, y, *launch)
    raise LookupError(f"is not compared in {case.kind}")


def quack_products(case, passes):
    """By its default configurations; what its activations keep for backward is kept."""
    from quack import linear, mlp
    logging.Logger.__quack_semantic_key__ = lambda self: self.name  # 0.6.5 asks it of cutlass-dsl
    if case.variant not in QUACK_ACTIVATIONS:
        raise LookupError(f"has no {case.variant}")
    act, of = QUACK_ACTIVATIONS[case.variant], case.function()[1]
    if case.kind == "mlp":
        function = lambda x, w1, w2, b1, b2: mlp.mlp_func(x, w1, w2, act, b1, b2, tuned=False)
    elif act is None:
        function = lambda x, weight, bias: linear.linear_func(x, weight, bias, tuned=False)
    elif passes == "forward":
        function = lambda x, weight, bias: linear.linear_act_func(x, weight, act, bias,
                                                                  tuned=False)[1]
    else:
        raise LookupError("has no backward of an activation but in its mlp")
    return by_autograd(case, passes, function, of)


def quack(case, passes):
    forward = passes == "forward"
    if case.kind in ("linear", "mlp"):
        return quack_products(case, passes)
    if case.kind in ("layernorm", "rmsnorm"):
        from quack import rmsnorm as norms
    if case.kind == "layernorm":  # its parameters are f32 only
        gamma, beta = case.params["gamma"].float(), case.params["beta"].float()
        run = lambda: norms.layernorm_fwd(case.x, gamma, beta, case.eps, True, True)
        _, rstd, mean = run()
        return run if forward else lambda: norms.layernorm_bwd(case.x, gamma, case.dy, rstd, mean,
                                                               True)
    if case.kind == "rmsnorm":
        gamma = case.params["gamma"]
        run = lambda: norms.rmsnorm_fwd(case.x, gamma, eps=case.eps, store_rstd=True)
        rstd = next(t for t in run() if t is not None and t.dim() == 1)
        return run if forward else lambda: norms.rmsnorm_bwd(case.x, gamma, case.dy, rstd)
    if case.kind == "softmax" and not case.variant:
        from quack.softmax import softmax_bwd, softmax_fwd
        y = softmax_fwd(case.x)
        return (lambda: softmax_fwd(case.x)) if forward else lambda: softmax_bwd(case.dy, y)
    if case.kind == "cross_entropy":
        from quack.cross_entropy import cross_entropy_fwd
        return lambda: cross_entropy_fwd(case.x, case.labels, return_dx=True)
    raise LookupError(f"is not compared in {case.kind}")


def numpy(case, passes):
    import numpy as np
    if case.kind not in ("layernorm", "rmsnorm", "softmax") or case.variant:
        raise LookupError(f"is not compared in {case.kind}")
    if case.x.device.type != "cpu" or case.x.dtype not in (torch.float32, torch.float64):
        raise LookupError("computes on the host, in f32 or f64")
    x, dy = case.x.numpy(), case.dy.numpy()
    params = {name: value.numpy() for name, value in case.params.items()}
    mean_of = lambda values: values.mean(axis=1, keepdims=True)
    if case.kind == "softmax":
        def forward():
            raised = np.exp(x - x.max(axis=1, keepdims=True))
            return raised / raised.sum(axis=1, keepdims=True)
        y = forward()
        return forward if passes == "forward" else (
            lambda: (dy - (dy * y).sum(axis=1, keepdims=True)) * y)
    centred = case.kind == "layernorm"

    def forward():
        mean = mean_of(x) if centred else 0
        rstd = 1 / np.sqrt(mean_of(np.square(x - mean)) + case.eps)
        return (x - mean) * rstd * params["gamma"] + params.get("beta", 0), mean, rstd

    _, mean, rstd = forward()

    def backward():
        normed, scaled = (x - mean) * rstd, dy * params["gamma"]
        dx = scaled - normed * mean_of(scaled * normed) - (mean_of(scaled) if centred else 0)
        return dx * rstd, (dy * normed).sum(axis=0), dy.sum(axis=0) if centred else None

    return forward if passes == "forward" else backward


PEERS = {"torch": lambda case, passes: pytorch(case, passes, False),
         "compile": lambda case, passes: pytorch(case, passes, True),
         "numpy": numpy, "triton": triton, "liger": liger, "quack": quack}
