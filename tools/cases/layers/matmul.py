"""Batched matrix product."""

import numpy as np

from ..bounds import Result, Spread, arithmetic, chain, stored, unit
from ..draw import Stream
from ..numbers import FLOATS, round_to


def swapped(values, swap):
    return values.swapaxes(1, 2) if swap else values


class Matmul:
    """drawn: the type to which all inputs are rounded, if it is narrower than theirs."""

    def __init__(self, options, batch, drawn=None):
        self.layer, self.options, self.rows, self.attributes = "matmul", options, batch, {}
        self.m, self.n, self.k = (options[name] for name in "mnk")
        self.swap_a, self.swap_b = (options.get(f"transpose_{name}", False) for name in "ab")
        self.dtype = options.get("dtype", "f32")
        self.drawn, self.real = drawn or self.dtype, np.longdouble
        self.u = unit(self.dtype, self.real)

    def run(self, recorder):
        def draw(name, lines, cols, swap):
            """An operand as op() of it, recorded as it is stored."""
            values = round_to(Stream(recorder.data, name).normal(self.rows, lines, cols), self.drawn)
            part, values = "upstream" if name == "dc" else "inputs", swapped(values, swap)
            recorder.exact(f"{part}/{name}", self.dtype, values.shape, values)
            return swapped(values, swap)

        a, b = draw("a", self.m, self.k, self.swap_a), draw("b", self.k, self.n, self.swap_b)
        dc = draw("dc", self.m, self.n, False)
        second = self._second(recorder.torch, a, b, dc) if recorder.torch else {}
        self._expect(recorder, "expected/c", a, b, False, second.get("c"))
        self._expect(recorder, "expected_grad/da", dc, b.swapaxes(1, 2), self.swap_a, second.get("da"))
        self._expect(recorder, "expected_grad/db", a.swapaxes(1, 2), dc, self.swap_b, second.get("db"))

    def _expect(self, recorder, path, left, right, swap, second):
        """left right, stored transposed if swap."""
        value = left.astype(self.real) @ right.astype(self.real)
        size_left, size_right = np.abs(left).astype(np.float64), np.abs(right).astype(np.float64)
        magnitude, squares = size_left @ size_right, (size_left * size_left) @ (size_right * size_right)
        error = Spread(self.u * magnitude, self.u * self.u * squares)
        error = error + chain(self.u, left.shape[2], magnitude, squares, value.astype(np.float64))
        bound = stored(error, value, self.dtype, arithmetic(self.dtype))
        value, bound, magnitude = (swapped(each, swap) for each in (value, bound, magnitude))
        second = swapped(second, swap) if second is not None else None
        recorder.expect(path, self.dtype, value.shape, Result(value, bound, magnitude), second=second)

    def _second(self, torch, a, b, dc):
        leaves = [torch.tensor(np.ascontiguousarray(each), requires_grad=True) for each in (a, b)]
        c = leaves[0] @ leaves[1]
        (c * torch.tensor(dc)).sum().backward()
        return {"c": c.detach().numpy(), "da": leaves[0].grad.numpy(), "db": leaves[1].grad.numpy()}


def simulate(case, given):
    real = case.real("dtype")
    swap_a, swap_b = (case.option(f"transpose_{name}", 0) for name in "ab")
    a = swapped(case.inputs["a"].values.astype(real), swap_a)
    b = swapped(case.inputs["b"].values.astype(real), swap_b)
    results = {"c": a @ b}
    if "dc" in given:
        dc = given["dc"].astype(real)
        results["da"] = swapped(dc @ b.swapaxes(1, 2), swap_a)
        results["db"] = swapped(a.swapaxes(1, 2) @ dc, swap_b)
    return results


def small():
    for dtype in FLOATS:
        for swap_a, swap_b in ((False, False), (True, False), (False, True), (True, True)):
            options = dict(m=5, n=6, k=9, dtype=dtype, transpose_a=swap_a, transpose_b=swap_b)
            yield f"matmul-{'nt'[swap_a]}{'nt'[swap_b]}-{dtype}", Matmul(options, 2)
    # f16 numbers are exact in TF32, which then rounds nothing more than f32
    yield "matmul-tf32", Matmul(dict(m=5, n=7, k=11, allow_tf32=True), 3, drawn="f16")
    for batch, m, n, k in ((0, 3, 2, 4), (1, 1, 1, 1), (7, 1, 5, 3), (2, 17, 1, 9), (4, 3, 13, 1)):
        options = dict(m=m, n=n, k=k, transpose_b=True)
        yield f"matmul-shape-{batch}x{m}x{n}x{k}", Matmul(options, batch)
