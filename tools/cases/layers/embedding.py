"""Embedding."""

import numpy as np

from ..bounds import Result, arithmetic, chain, stored, unit
from ..draw import Stream
from ..numbers import FLOATS, round_to


class Embedding:
    def __init__(self, options, rows, real=np.longdouble):
        self.layer, self.options, self.rows, self.attributes = "embedding", options, rows, {}
        self.vocab, self.cols, self.dtype = options["vocab"], options["cols"], options.get("dtype", "f32")
        self.real = real

    def run(self, recorder):
        tokens = Stream(recorder.data, "tokens").below(self.vocab, self.rows)
        weight = round_to(Stream(recorder.data, "weight").normal(self.vocab, self.cols), self.dtype)
        dy = round_to(Stream(recorder.data, "dy").normal(self.rows, self.cols), self.dtype)
        recorder.exact("inputs/tokens", "i32", tokens.shape, tokens)
        recorder.exact("params/weight", self.dtype, weight.shape, weight)
        recorder.exact("upstream/dy", self.dtype, dy.shape, dy)
        y, nothing = weight[tokens], np.zeros(dy.shape)
        dweight, terms, squares = (
            np.zeros(weight.shape, self.real),
            np.zeros(weight.shape),
            np.zeros(weight.shape),
        )
        np.add.at(dweight, tokens, dy)
        np.add.at(terms, tokens, np.abs(dy))
        np.add.at(squares, tokens, dy * dy)
        grad = arithmetic(self.dtype)
        count = np.bincount(tokens, minlength=self.vocab)[:, None]
        spread = chain(unit(grad, self.real), count, terms, squares, dweight.astype(np.float64))
        bound = np.where(count > 0, stored(spread, dweight, grad, grad), 0)
        second = self._second(recorder.torch, tokens, weight, dy) if recorder.torch else {}
        recorder.expect(
            "expected/y", self.dtype, y.shape, Result(y, nothing, nothing), second=second.get("y")
        )
        recorder.expect(
            "expected_grad/dweight",
            grad,
            weight.shape,
            Result(dweight, bound, terms),
            second=second.get("dweight"),
        )

    def _second(self, torch, tokens, weight, dy):
        leaf = torch.tensor(weight, requires_grad=True)
        y = torch.nn.functional.embedding(torch.tensor(tokens), leaf)
        (y * torch.tensor(dy)).sum().backward()
        return {"y": y.detach().numpy(), "dweight": leaf.grad.numpy()}


def simulate(case, given):
    tokens, weight = case.inputs["tokens"].values, case.params["weight"].values
    results = {"y": weight[tokens]}
    if "dy" in given:
        results["dweight"] = np.zeros(weight.shape, case.real("dtype"))
        np.add.at(results["dweight"], tokens, given["dy"].astype(case.real("dtype")))
    return results


def small():
    for dtype in FLOATS:
        yield f"embedding-{dtype}", Embedding(dict(vocab=11, cols=7, dtype=dtype), 30)
    for rows, vocab, cols in ((0, 4, 3), (1, 1, 1), (65, 3, 5), (9, 65, 9), (7, 5, 1)):
        yield f"embedding-shape-{rows}x{vocab}x{cols}", Embedding(dict(vocab=vocab, cols=cols), rows)
