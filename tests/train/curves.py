"""The loss curve does not depend on the number of ranks; a wrong scale on one rank shows."""

import os
import tempfile

from harness import *

RANKS = (1, 2, 3, 4)


def curve(np, dtype, arguments, fault=None):
    """The losses of all steps, with all digits."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "losses")
        arguments = [*arguments, "--dtype", dtype, "--log-every", 1, "--progress", "none", "--losses", path]
        run(arguments, np=np, fault=fault).want(0)
        with open(path) as file:
            return [float(line.split()[2]) for line in file]


def difference(a, b):
    assert len(a) == len(b), f"{len(a)} and {len(b)} steps"
    return max(abs(x - y) for x, y in zip(a, b))


def compare(dtype, bound, steps, arguments):
    one = curve(1, dtype, arguments)
    for np in RANKS[1:]:
        apart = difference(one[:steps], curve(np, dtype, arguments)[:steps])
        print(f"  {dtype}, np = {np}: {apart:.1e} apart from one rank over {len(one[:steps])} steps")
        assert apart <= bound, f"{dtype} np = {np}: {apart} apart, want {bound}"
    assert sum(one[-5:]) < sum(one[:5]), "nothing was learnt"


SMALL = ["--data", None, "--batch", 32, "--epochs", 1, "--width", 48, "--depth", 2]


def small(*more):
    SMALL[1] = small_data()
    return [*SMALL, *more]


def test_f64_small():
    compare("f64", 1e-9, None, small())


def test_f32_small():
    compare("f32", 1e-5, 20, small())


def test_f64_uneven():
    compare("f64", 1e-9, None, small("--batch", 31, "--clip", 0.5, "--norm", "rmsnorm", "--activation", "gelu"))


def test_tuned():
    """Rank 0's rehearsal leaves nothing behind, with even, uneven and empty shares, and micro-steps."""
    for more in ((), ("--batch", 31, "--dropout", 0.1), ("--batch", 3, "--hold-out", 550), ("--accumulate", 4)):
        usual = curve(1, "f64", small(*more))
        for np in (1, 3, 4):
            apart = difference(usual, curve(np, "f64", small(*more, "--tune")))
            print(f"  {more}, np = {np}: {apart:.1e} apart from one rank without --tune")
            assert apart <= 1e-9, apart


def test_empty_shards():
    """Three ranks with a batch of two, four ranks with one of three: a rank has no rows."""
    for batch in (2, 3):
        compare("f64", 1e-9, None, small("--batch", batch, "--hold-out", 550))


def test_accumulate():
    """Micro-steps are the same batch: also with ranks, uneven shares and micro-batches smaller than the ranks."""
    one = curve(1, "f64", small())
    for np, parts in ((1, 2), (1, 32), (2, 4), (3, 2), (3, 16)):
        apart = difference(one, curve(np, "f64", small("--accumulate", parts)))
        print(f"  {parts} micro-steps, np = {np}: {apart:.1e} apart from one")
        assert apart <= 1e-9, apart


def test_dropout():
    """Every number of ranks and of micro-steps drops the same, at other rates and seeds something else."""
    compare("f64", 1e-9, None, small("--dropout", 0.1, "--activation", "gelu"))
    compare("f32", 1e-5, 20, small("--dropout", 0.1))
    one = curve(1, "f64", small("--dropout", 0.1))
    for np, parts in ((1, 4), (3, 2)):
        apart = difference(one, curve(np, "f64", small("--dropout", 0.1, "--accumulate", parts)))
        assert apart <= 1e-9, f"{parts} micro-steps, np = {np}: {apart}"
    for other in (small(), small("--dropout", 0.2)):
        assert difference(one, curve(1, "f64", other)) > 1e-3, other


def test_dropout_bytes():
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        with open(text, "w") as file:
            file.write("".join(f"{n} bottles of beer on the wall\n" for n in range(60)))
        task = ["--task", "bytes", "--context", 4, "--width", 16, "--embedding", 8, "--epochs", 1, "--batch", 32]
        compare("f64", 1e-9, None, [*task, "--dropout", 0.1, text])
        assert difference(*(curve(1, "f64", [*task, *more, text]) for more in ([], ["--dropout", 0.1]))) > 1e-3


def test_accumulate_types():
    for dtype, bound in (("f32", 1e-5), ("bf16", 2e-2), ("f16", 5e-3)):
        apart = difference(curve(1, dtype, small())[:20], curve(1, dtype, small("--accumulate", 4))[:20])
        assert apart <= bound, f"{dtype}: {apart}"


def fashion():
    if SANITIZED:
        skip("takes minutes under a sanitizer")
    return ["--data", fashion_data(), "--epochs", 1]


def test_f64_fashion():
    compare("f64", 1e-9, None, fashion())


def test_f32_fashion():
    compare("f32", 1e-5, 20, fashion())


def test_wrong_scale_breaks_both():
    for dtype, bound, steps in (("f64", 1e-9, None), ("f32", 1e-5, 20)):
        one = curve(1, dtype, small())
        for rank in (0, 1):
            wrong = curve(2, dtype, small(), fault=f"scale:step:{rank}")
            apart = difference(one[:steps], wrong[:steps])
            assert apart > 100 * bound, f"{dtype}: a wrong scale on rank {rank} moves the curve by {apart} only"


def test_wrong_rank_of_fault_changes_nothing():
    """Without a selected fault, the program with faults behaves like the other."""
    assert curve(2, "f64", small(), fault="scale:step:7") == curve(2, "f64", small())


run_tests()
