"""Every type trains; f16's loss scale falls after an overflow, with a message, and recovers; threads change nothing."""

from harness import *


def learn(dtype, np=1, *more):
    result = run(["--data", small_data(), "--batch", 32, "--epochs", 6, "--dtype", dtype, *more], np=np).want(0)
    assert f"dtype         {dtype}" in result.out, result
    assert result.accuracy() >= 80.0, result
    return result


def test_f64():
    learn("f64")


def test_f32():
    learn("f32")


def test_bf16():
    learn("bf16")
    learn("bf16", 2)


def test_f16():
    result = learn("f16")
    assert "loss scale    65536" in result.out, result


def test_sgd():
    """On one rank and on several, sharded or not."""
    for dtype, np, more in few((("f32", 1, []), ("f64", 2, []), ("bf16", 3, ["--shard"]), ("f16", 2, ["--shard", "--momentum", 0.8]))):
        result = learn(dtype, np, "--optimizer", "sgd", *more)
        assert f"optimizer     SGD, momentum {0.8 if more[1:] else 0.9}, weight decay 0.0005, no clipping" in result.out, result
        losses = [float(loss) for _, _, loss in result.steps()]
        assert sum(losses[-5:]) < 0.5 * sum(losses[:5]), losses
    for more in (["--momentum", 0], ["--momentum", 0.9, "--clip", 0.5]):
        learn("f32", 1, "--optimizer", "sgd", *more)


def test_every_norm_and_activation():
    for activation in ("none", "relu", "leaky_relu", "gelu", "gelu_erf", "squared_relu", "silu", "smelu", "star_relu"):
        for norm in few(("layernorm", "rmsnorm")):
            learn("f32", 1, "--activation", activation, "--norm", norm, "--depth", 2, "--width", 64)


def test_overflow_is_said_and_recovered():
    for np, more in few(((1, []), (2, []), (2, ["--shard"]), (2, ["--optimizer", "sgd", "--shard"]))):
        result = learn("f16", np, "--loss-scale", 2**30, *more)
        skipped = [line for line in result.out.splitlines() if line.startswith("skipped step ")]
        assert skipped and "1.07374e+09 -> 5.36871e+08" in skipped[0], result
        assert len(skipped) < 40, result


def test_scale_too_small_ends_the_run():
    result = run(["--data", small_data(), "--batch", 32, "--dtype", "f16", "--lr", 1000, "--epochs", 50]).want(2)
    assert "--lr" in result.err, result


def test_clip():
    learn("f32", 1, "--clip", 0.5)


def test_seed():
    arguments = ["--data", small_data(), "--batch", 32, "--epochs", 1, "--seed"]
    runs = [run([*arguments, seed]).want(0).steps() for seed in (7, 7, 8)]
    assert runs[0] == runs[1] and runs[0] != runs[2]


def test_threads_change_nothing():
    arguments = ["--data", small_data(), "--batch", 128, "--epochs", 2, "--threads"]
    runs = [run([*arguments, threads]).want(0).steps() for threads in (1, 2, 3)]
    assert runs[0] == runs[1] == runs[2]


run_tests()
