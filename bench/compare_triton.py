"""The Triton tutorials' designs of layer norm and softmax, for bench/compare.py.

A program a row, the row in one block of a power of two; layer norm's backward adds each row to one
of a few partial rows of dgamma and dbeta under a lock, and a second kernel adds those.
Sources: triton-lang.org, tutorials "Layer Normalization" and "Fused Softmax".
"""

import torch
import triton
import triton.language as tl

MOST_BYTES = 65536  # of a row in one block


@triton.jit
def _norm_forward(x_ptr, y_ptr, gamma_ptr, beta_ptr, mean_ptr, rstd_ptr, cols, eps,
                  BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < cols
    start = row.to(tl.int64) * cols
    x = tl.load(x_ptr + start + at, mask=inside, other=0).to(tl.float32)
    gamma = tl.load(gamma_ptr + at, mask=inside, other=0).to(tl.float32)
    beta = tl.load(beta_ptr + at, mask=inside, other=0).to(tl.float32)
    mean = tl.sum(x) / cols
    centred = tl.where(inside, x - mean, 0)
    rstd = tl.rsqrt(tl.sum(centred * centred) / cols + eps)
    tl.store(y_ptr + start + at, centred * rstd * gamma + beta, mask=inside)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def _norm_backward(x_ptr, dy_ptr, dx_ptr, gamma_ptr, mean_ptr, rstd_ptr, partial_ptr, lock_ptr,
                   cols, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < cols
    start = row.to(tl.int64) * cols
    x = tl.load(x_ptr + start + at, mask=inside, other=0).to(tl.float32)
    dy = tl.load(dy_ptr + start + at, mask=inside, other=0).to(tl.float32)
    gamma = tl.load(gamma_ptr + at, mask=inside, other=0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    normed = tl.where(inside, (x - tl.load(mean_ptr + row)) * rstd, 0)
    scaled = dy * gamma
    part = scaled - normed * (tl.sum(scaled * normed) / cols) - tl.sum(scaled) / cols
    tl.store(dx_ptr + start + at, part * rstd, mask=inside)

    group = row % GROUPS
    lock, used = lock_ptr + group, lock_ptr + GROUPS + group
    dgamma_ptr = partial_ptr + group * cols + at
    dbeta_ptr = dgamma_ptr + GROUPS * cols
    dgamma = dy * normed
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(used) == 0:
        tl.atomic_xchg(used, 1)
        dbeta = dy
    else:
        dgamma += tl.load(dgamma_ptr, mask=inside, other=0)
        dbeta = dy + tl.load(dbeta_ptr, mask=inside, other=0)
    tl.store(dgamma_ptr, dgamma, mask=inside)
    tl.store(dbeta_ptr, dbeta, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def _add_groups(partial_ptr, sum_ptr, cols, GROUPS: tl.constexpr, ROWS: tl.constexpr,
                COLS: tl.constexpr):
    at = tl.program_id(0) * COLS + tl.arange(0, COLS)
    which = tl.program_id(1)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(0, GROUPS, ROWS):
        row = which * GROUPS + first + tl.arange(0, ROWS)
        inside = (first + tl.arange(0, ROWS) < GROUPS)[:, None] & (at < cols)[None, :]
        total += tl.load(partial_ptr + row[:, None] * cols + at[None, :], mask=inside, other=0)
    tl.store(sum_ptr + which * cols + at, tl.sum(total, axis=0), mask=at < cols)


@triton.jit
def _softmax(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    start = tl.program_id(0).to(tl.int64) * cols
    x = tl.load(x_ptr + start + at, mask=at < cols, other=-float("inf")).to(tl.float32)
    raised = tl.exp(x - tl.max(x))
    tl.store(y_ptr + start + at, raised / tl.sum(raised), mask=at < cols)


def _launch(x):
    """Arguments of a program a row; refuses rows that the tutorials refuse."""
    block = triton.next_power_of_2(x.shape[1])
    if block * x.element_size() > MOST_BYTES:
        raise ValueError("takes rows up to 64 KiB")
    return {"BLOCK": block, "num_warps": min(max(block // 256, 1), 8)}


def norm(case, passes, eps):
    rows, cols = case.x.shape
    gamma, beta, launch = case.params["gamma"], case.params["beta"], _launch(case.x)
    y, dx = torch.empty_like(case.x), torch.empty_like(case.x)
    mean, rstd = torch.empty(2, rows, device=case.x.device)

    def forward():
        _norm_forward[(rows,)](case.x, y, gamma, beta, mean, rstd, cols, eps, **launch)
        return y

    forward()
    if passes == "forward":
        return forward
    groups = 256 if cols <= 1024 else 128 if cols <= 4096 else 96 if cols <= 8192 else 64
    locks = torch.empty(2 * groups, dtype=torch.int32, device=case.x.device)
    partial = torch.empty(2, groups, cols, device=case.x.device)
    sums = torch.empty(2, cols, device=case.x.device)

    def backward():
        locks.zero_()
        _norm_backward[(rows,)](case.x, case.dy, dx, gamma, mean, rstd, partial, locks, cols,
                                GROUPS=min(groups, rows), **launch)
        _add_groups[(triton.cdiv(cols, 128), 2)](partial, sums, cols, GROUPS=min(groups, rows),
                                                 ROWS=32, COLS=128)
        return dx, *sums

    return backward


def softmax(case, passes):
    if passes != "forward":
        raise LookupError("has no backward in the tutorial")
    y, launch = torch.empty_like(case.x), _launch(case.x)

    def forward():
        _softmax[(case.x.shape[0],)](case.x, y, case.x.shape[1], **launch)
        return y

    return forward
