"""The command line: help, version, dry run, usage errors, and the format of the output."""

import math
import os
import tempfile

from harness import *

DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/trainer.md")


def test_help():
    result = run(["--help"]).want(0)
    assert "Examples:" in result.out and result.err == "", result
    usage = run(["--usage"]).want(0)
    assert usage.out.startswith("Usage: tutti-train [") and "[--width=N]" in usage.out, usage


def test_the_document_lists_the_options():
    with open(DOCUMENT) as file:
        listed = re.search(r"## Options by group\n(.*?)\n## ", file.read(), re.S)[1]
    shown = re.findall(r"^ +(?:-., )?--([a-z-]+)", run(["--help"]).out, re.M)
    documented = re.findall(r"--([a-z][a-z-]+)", listed.partition("\n\n`--")[0])
    assert len(shown) > 30 and set(shown) == set(documented), set(shown) ^ set(documented)


def test_help_is_printed_once():
    assert run(["--help"], np=3).want(0).out.count("Examples:") == 1


def test_version():
    result = run(["--version"]).want(0)
    assert result.out.startswith("tutti-train ") and "host" in result.out, result


def test_dry_run():
    result = run(["--data", small_data(), "--batch", 32, "--dry-run"]).want(0)
    assert result.out.startswith("configuration\n"), result
    for word in ("layernorm", "relu", "f32", "transport self", "20 steps", "drops its last 10 images"):
        assert word in result.out, f"no '{word}' in\n{result}"
    assert "step " not in result.out and "accuracy" not in result.out, result


def test_dry_run_ranks():
    result = run(["--data", small_data(), "--batch", 32, "--dry-run"], np=2).want(0)
    assert "ranks         2, transport mpi" in result.out, result


WRONG = {
    "--batch=0": "--batch is '0', want",
    "--batch=x": "--batch is 'x', want",
    "--batch=3.5": "--batch is '3.5', want",
    "--batch=651": "want at most the 650 training images",
    "--hold-out=650": "want fewer than the 650 training images",
    "--epochs=-1": "--epochs is '-1', want",
    "--lr=0": "--lr is '0', want",
    "--lr=nan": "--lr is 'nan', want",
    "--lr=1e-3x": "--lr is '1e-3x', want",
    "--clip=-1": "--clip is '-1', want",
    "--loss-scale=3": "want a power of two",
    "--loss-scale=1024": "--loss-scale does not apply to --dtype f32",
    "--seed=-1": "--seed is '-1', want",
    "--norm=batchnorm": "want layernorm or rmsnorm",
    "--activation=tanh": "silu",
    "--dtype=f8": "bf16",
    "--backend=tpu": "want auto, host or cuda",
    "--transport=tcp": "want auto, self, mpi or nccl",
    "--progress=much": "want plain, bar or none",
    "--task=digits": "--task is 'digits', want fashion or bytes",
    "--optimizer=adam": "--optimizer is 'adam', want adamw or sgd",
    "--momentum=1": "--momentum is '1', want",
    "--momentum=-0.1": "--momentum is '-0.1', want",
    "--momentum=0.9": "--momentum does not apply to --optimizer adamw",
    "--on-nonfinite=go": "--on-nonfinite is 'go', want stop or skip",
    "--plot=run.png": "--plot is 'run.png', want a name that ends in .svg",
    "--plot=.svg": "want a name that ends in .svg",
    "--sample=3": "--sample does not apply to --task fashion",
    "--sample=0": "--sample is '0', want",
    "--context=4": "--context does not apply to --task fashion",
    "--embedding=4": "--embedding does not apply to --task fashion",
    "--checkpoint=": "--checkpoint is empty, want a name",
    "--context=0": "--context is '0', want",
    "--embedding=x": "--embedding is 'x', want",
    "--accumulate=0": "--accumulate is '0', want",
    "--accumulate=3": "--accumulate is 3, want a divisor of --batch, 256",
    "--timeout=0": "--timeout is '0', want",
    "--depth": "requires an argument",
    "--no-such-option": "no-such-option",
    "stray": "'stray' is not an option",
}


def test_optimizer():
    """Its defaults, wherever it stands on the command line, and what else was given."""
    data = ["--data", small_data(), "--batch", 32, "--dry-run"]
    for given, rate, line in (
        ([], "0.003", "AdamW, weight decay 0.01, no clipping"),
        (["--weight-decay", 0, "--clip", 2, "--optimizer", "adamw"], "0.003", "AdamW, weight decay 0, gradients clipped to norm 2"),
        (["--optimizer=sgd"], "0.1", "SGD, momentum 0.9, weight decay 0.0005, no clipping"),
        (["--momentum", 0, "--lr", 0.02, "--optimizer", "sgd"], "0.02", "SGD, momentum 0, weight decay 0.0005, no clipping"),
    ):
        result = run([*data, *given]).want(0)
        assert f"learning rate {rate} at most," in result.out and f"optimizer     {line}\n" in result.out, result
    corpus = ["--task", "bytes", "--batch", 32, "--dry-run"]
    for given, rate in (([], "0.004"), (["--width", 512], "0.004"), (["--width", 1024], "0.002"), (["--width=2000", "--optimizer", "adamw"], "0.001024"),
                        (["--width", 1024, "--lr", 0.004], "0.004"), (["--width", 1024, "--optimizer", "sgd"], "0.1")):
        result = run([*corpus, *given]).want(0)
        assert f"learning rate {rate} at most," in result.out, result
    for steps, said in ((60, 0), (61, 1)):
        result = run(["--data", small_data(), "--batch", 32, "--epochs", 3, "--warmup", steps, "--dry-run"], np=2).want(0)
        words = f"--warmup is {steps}, more than the 60 steps of the run: the rate never reaches 0.003"
        assert result.err.count(words) == said, result
    shown = " ".join(run(["--help"]).want(0).out.split())
    for words in ("(default 0.003; bytes: 0.004; sgd: 0.1)", "(default 0.01; bytes: 1; sgd: 0.0005)", "0 for none (default 0.9)"):
        assert words in shown, f"no '{words}' in {shown}"


def test_usage():
    for wrong, message in list(WRONG.items())[:: 4 if SANITIZED else 1]:
        result = run(["--data", small_data(), wrong]).want(64)
        assert message in result.err and "step" not in result.out, f"no '{message}' in\n{result}"


def test_tune():
    """Not with bits that must be the same; without effect on the host, on any number of ranks."""
    result = run(["--data", small_data(), "--batch", 32, "--reproducible", 4, "--tune"]).want(64)
    assert "--tune does not go with --reproducible" in result.err, result
    arguments = ["--data", small_data(), "--batch", 32, "--epochs", 1, "--dropout", 0.1]
    for np in few((1, 3)):
        usual, tuned = (run([*arguments, *more], np=np).want(0) for more in ((), ("--tune",)))
        assert "nothing to measure on the host" in tuned.out, tuned
        assert usual.steps() == tuned.steps() and usual.accuracy() == tuned.accuracy(), (usual, tuned)


def test_usage_is_said_once_by_all_ranks():
    for wrong in few(("--batch=x", "--no-such-option", "--batch=651")):
        result = run(["--data", small_data(), wrong], np=3).want(64)
        assert result.err.count("tutti-train: ") + result.err.count("tutti-train': ") >= 1, result
        assert result.err.count(WRONG[wrong]) == 1, f"{wrong} is not said once:\n{result}"


def test_self_with_ranks():
    result = run(["--data", small_data(), "--batch", 32, "--transport", "self"], np=2).want(64)
    assert "there are 2 ranks" in result.err, result


def test_lines():
    result = run(["--data", small_data(), "--batch", 32, "--epochs", 3]).want(0)
    lines = result.out.splitlines()
    assert lines[0] == "configuration", result
    steps = result.steps()
    assert len(steps) >= 3 * 10 and steps[-1][:2] == (20, 20), result
    assert all(len(loss.split(".")[1]) == 6 for _, _, loss in steps), result
    epochs = [line for line in lines if line.startswith("epoch ")]
    assert len(epochs) == 3 and all(ACCURACY.search(line) for line in epochs), result
    assert ACCURACY.search(epochs[-1])[1] == ACCURACY.search(lines[-1])[1], result


def test_few_steps_all_get_a_line():
    result = run(["--data", small_data(), "--batch", 100, "--epochs", 1]).want(0)
    assert [step for step, _, _ in result.steps()] == [1, 2, 3, 4, 5, 6], result


def test_same_steps_for_every_np():
    runs = [run(["--data", small_data(), "--batch", 32, "--epochs", 2], np=np).want(0) for np in few((1, 2, 3))]
    assert len({tuple(step for step, _, _ in result.steps()) for result in runs}) == 1


def test_progress():
    arguments = ["--data", small_data(), "--batch", 32, "--epochs", 2, "--progress"]
    assert "\033" not in run([*arguments, "plain"]).want(0).out
    none = run([*arguments, "none"]).want(0)
    assert none.steps() == [] and none.out.count("\nepoch ") == 2, none
    bar = run([*arguments, "bar"]).want(0)
    assert "\033[K[####" in bar.out and " 50 %" in bar.out and bar.accuracy() >= 0, bar


def test_hold_out():
    result = run(["--data", small_data(), "--batch", 32, "--hold-out", 100, "--epochs", 1]).want(0)
    assert "550 training and 100 validation images" in result.out, result
    assert "test accuracy" not in result.out and "validation accuracy" in result.out, result


def test_schedule():
    """A linear rise over the warm-up, then half a cosine over the rest of the run, epochs and all."""
    warmup, peak = 7, 0.01
    arguments = ["--data", small_data(), "--batch", 32, "--epochs", 2, "--log-every", 1]
    result = run([*arguments, "--warmup", warmup, "--lr", peak]).want(0)
    printed = re.findall(r"\| lr (\S+) \|", result.out)
    total = 40
    rise = [peak * step / warmup for step in range(1, warmup + 1)]
    fall = [peak * (1 + math.cos(math.pi * i / (total - warmup))) / 2 for i in range(total - warmup)]
    assert printed == [f"{lr:.3e}" for lr in rise + fall], result


def test_losses_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "losses")
        result = run(["--data", small_data(), "--batch", 32, "--epochs", 1, "--losses", path]).want(0)
        with open(path) as file:
            rows = [line.split() for line in file]
        printed = [(step, loss) for step, _, loss in result.steps()]
        assert [(int(step), f"{float(loss):.6f}") for _, step, loss in rows] == printed, result
        missing = os.path.join(folder, "no", "folder")
        result = run(["--data", small_data(), "--batch", 32, "--losses", missing], np=2).want(2)
        assert missing in result.err, result


def test_full_output():
    if not os.path.exists("/dev/full"):
        skip("no /dev/full")
    with open("/dev/full", "w") as full:
        code = subprocess.call(command_line(["--data", small_data(), "--batch", 32, "--dry-run"]), stdout=full)
    assert code == 2, code


run_tests()
