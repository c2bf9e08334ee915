"""Layers and exchanges that are wrong are caught, in every kind of layer."""

from rig import *

FAULTY = os.environ.get("TUTTI_FAULTY")
KINDS = ("layernorm", "rmsnorm", "softmax", "log-softmax", "embedding", "cross-entropy", "linear", "matmul")


def faulty(fault, args, np=2):
    if not FAULTY:
        skip("the library is static, or has a sanitizer in it")
    return run(args, np, LD_PRELOAD=FAULTY, TUTTI_TEST_FAULT=fault)


def kinds_of(result, tensor):
    """The kinds of the cases in which this tensor did not hold."""
    cases = [line.split()[2].rstrip(":") for line in result.err.splitlines() if f": {tensor}: " in line]
    return {kind for kind in KINDS for case in cases if case.startswith(kind)}


def test_without_a_fault():
    faulty("none", ["--quiet", CASES]).want(0)


def test_a_bit_that_depends_on_the_shard():
    for np in (1, 2):  # one rank alone splits the rows over two calls
        result = faulty("bit", ["--filter", "-f32", CASES], np).want(1)
        assert kinds_of(result, "expected/y") >= set(KINDS) - {"cross-entropy", "linear", "matmul"}, result
        assert "differ from those of one rank alone" in result.err, result
        differs = [line for line in result.out.splitlines() if line.endswith("DIFFERS")]
        assert differs and all(" bits " in line for line in differs), result


def test_a_row_that_backward_leaves_out():
    result = faulty("row", ["--quiet", "--filter", "-f32", CASES]).want(1)
    for gradient, kinds in (("dx", {"layernorm", "rmsnorm", "softmax", "log-softmax", "linear"}), ("dgamma", {"layernorm", "rmsnorm"}),
                            ("dbeta", {"layernorm"}), ("dweight", {"linear", "embedding"}), ("dbias", {"linear"}), ("da", {"matmul"}), ("db", {"matmul"})):
        assert kinds_of(result, f"expected_grad/{gradient}") >= kinds, (gradient, result)


def test_a_rank_whose_gradients_are_missing():
    result = faulty("rank", ["--quiet", "--filter", "-f32", CASES]).want(1)
    for gradient, kinds in (("dgamma", {"layernorm", "rmsnorm"}), ("dbeta", {"layernorm"}), ("dweight", {"linear", "embedding"}),
                            ("dbias", {"linear"})):
        assert kinds_of(result, f"expected_grad/{gradient}") >= kinds, (gradient, result)
    assert not kinds_of(result, "expected/y") and not kinds_of(result, "expected_grad/dx"), result


def test_gradients_that_are_not_added():
    """A single rank computes the second run in two calls; the second call adds to the first's gradients."""
    result = faulty("keep", ["--quiet", "--filter", "-f32", CASES], 1).want(1)
    for gradient, kinds in (("dgamma", {"layernorm", "rmsnorm"}), ("dbeta", {"layernorm"}), ("dweight", {"linear", "embedding"}),
                            ("dbias", {"linear"})):
        assert kinds_of(result, f"expected_grad/{gradient}") >= kinds, (gradient, result)
    assert not kinds_of(result, "expected/y") and not kinds_of(result, "expected_grad/dx"), result


def test_a_layer_that_does_nothing():
    """Results that an earlier call has left in memory must not pass."""
    result = faulty("idle", ["--filter", "-f32", CASES], 1).want(1)
    lines = [line for line in result.out.splitlines() if " expected/y " in line and "0x" not in line]
    assert len(lines) > 50 and not any(line.endswith("holds") for line in lines), result


start()
