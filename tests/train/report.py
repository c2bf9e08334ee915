"""The output of a run: --log-json has the lines' contents, --plot draws them; losses and gradients that are not finite are reported
at once, with rank and tensor."""

import functools
import json
import math
import os
import shutil
import tempfile

from harness import *

FAULT_STEP = 3  # of faults.h
folder = tempfile.TemporaryDirectory(prefix="tutti-report-")
DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/trainer.md")


def arguments(*more):
    return ["--data", small_data(), "--batch", 32, "--epochs", 2, "--width", 32, "--depth", 1, *more]


def events(path, kind=None):
    with open(path) as file:
        found = [json.loads(line) for line in file]
    return [event for event in found if kind in (None, event["event"])]


RANKS = few((1, 3))


@functools.cache
def usual(np):
    """A run on np ranks that nothing disturbs, and its log."""
    path = os.path.join(folder.name, f"usual{np}")
    return run(arguments("--log-json", path), np=np).want(0), path


def test_ranks_on_the_line():
    for np in RANKS:
        result, _ = usual(np)
        ranks = [STEP.match(line).groups()[3:] for line in result.out.splitlines() if line.startswith("step ")]
        if np == 1:
            assert all(pair == (None, None) for pair in ranks), result
        else:
            assert all(0 < float(fast) <= float(slow) for fast, slow in ranks), result


def test_summary():
    for np in RANKS:
        result, _ = usual(np)
        summary, done = result.out.splitlines()[-2:]
        match = re.match(
            r"summary \| 1280 images in (\d+\.\d\d) s \| \d+ samples/s in the steps, "
            r"(\d+\.\d) % of their time waiting for the exchange \| 0 skipped$",
            summary,
        )
        assert match and done.startswith("done | 40 steps on "), result
        assert f" in {match[1]} s |" in done, result
        assert float(match[2]) == 0 if np == 1 else 0 <= float(match[2]) < 100, result


LATE = 300  # ms, of faults.h


def test_waiting_is_a_part_of_the_step():
    """Wherever a rank is late, also right before a line or a save: no rank waits longer than its steps take."""
    need_checkpoints()
    with tempfile.TemporaryDirectory() as folder:
        log, path = (os.path.join(folder, name) for name in ("log", "f"))
        more = ["--log-every", FAULT_STEP, "--save-every", FAULT_STEP, "--check-replicas", 5, "--log-json", log, "--checkpoint", path]
        for place, late, mode in few((("agree", 1, []), ("save", 1, []), ("step", 1, []), ("step", 2, ["--accumulate", 2]),
                                      ("step", 0, ["--reproducible", 4]))):
            result = run(arguments("--batch", 64, *more, *mode), np=3, fault=f"late:{place}:{late}").want(0)
            check_keys(log)
            for event in events(log, "step"):
                own, waiting = event["rank_ms"], event["rank_waiting_ms"]
                assert len(own) == len(waiting) == 3 and min(own) > 0 and min(waiting) >= 0, f"{event}{result}"
                assert math.isclose(own[0] + waiting[0], event["ms"], rel_tol=1e-6), event
                assert (min(own), max(own)) == (event["fastest_rank_ms"], event["slowest_rank_ms"]), event
            first, second = events(log, "step")[:2]
            assert (first["step"], second["step"]) == (1, FAULT_STEP), second
            steps = FAULT_STEP - 1  # since the line before
            if place == "step":
                for rank in range(3):
                    lost = "rank_ms" if rank == late else "rank_waiting_ms"
                    assert steps * second[lost][rank] > 0.9 * LATE, f"{place}, rank {rank}: {second}"
            (end,) = events(log, "end")
            assert 0 <= end["waiting_share"] <= 1, end


KEYS = {
    "start": """version task data backend ranks transport dtype optimizer epochs steps_per_epoch batch accumulate leaves wire
        rate_unit resumed_from_step""",
    "step": """step epoch epoch_step loss grad_norm learning_rate ms rate fastest_rank_ms slowest_rank_ms rank_ms rank_waiting_ms
        rank_rows rank_bytes_sent""",
    "evaluation": "step epoch epoch_step seconds evaluation_loss accuracy",
    "saved": "step epoch epoch_step seconds",
    "stopped": "step epoch epoch_step why",
    "skipped": "step why",
    "end": "step epoch epoch_step steps seconds rate waiting_share skipped evaluation_loss accuracy",
}


def check_keys(path):
    for event in events(path):
        event.pop("loss_scale", None)  # f16's steps have it
        assert set(event) == {"event", *KEYS[event["event"]].split()}, event


def test_keys_are_documented():
    with open(DOCUMENT) as file:
        text = file.read()
    for event, keys in KEYS.items():
        assert f"| `{event}` | `{' '.join(keys.split())}`" in text, event


def test_json_says_what_the_lines_say():
    for np in RANKS:
        result, path = usual(np)
        check_keys(path)
        lines = [line for line in result.out.splitlines() if line.startswith("step ")]
        steps = events(path, "step")
        assert len(lines) == len(steps) >= 20, result
        for line, event in zip(lines, steps):
            said = (
                f"step {event['epoch_step']}/20 | loss {event['loss']:.6f} | norm {event['grad_norm']:.4f} | "
                f"lr {event['learning_rate']:.3e} | {event['ms']:.2f} ms | {event['rate']:.0f} samples/s"
            )
            if np > 1:
                said += f" | ranks {event['fastest_rank_ms']:.2f}-{event['slowest_rank_ms']:.2f} ms"
            assert line == said, f"{line}\n{event}"
            assert event["step"] == 20 * (event["epoch"] - 1) + event["epoch_step"], event
        epochs = [line for line in result.out.splitlines() if line.startswith("epoch ")]
        for line, event in zip(epochs, events(path, "evaluation")):
            words = f"test loss {event['evaluation_loss']:.4f} | test accuracy {100 * event['accuracy']:.2f} %"
            assert line.endswith(words), f"{line}\n{event}"
        (start,), (end,) = events(path, "start"), events(path, "end")
        assert start["ranks"] == np and start["rate_unit"] == "samples/s" and start["resumed_from_step"] == 0
        assert end["steps"] == 40 and 100 * end["accuracy"] == result.accuracy(), end


def test_json_is_appended_to():
    need_checkpoints()
    with tempfile.TemporaryDirectory() as folder:
        path, log = (os.path.join(folder, name) for name in ("f", "log"))
        more = ["--checkpoint", path, "--log-json", log, "--log-every", 1]
        run(arguments(*more), fault="signal:step:0").want(75)
        first = read(log)
        (stopped,) = events(log, "stopped")
        assert stopped["step"] == FAULT_STEP and stopped["why"].startswith("stopped by SIGUSR1"), stopped
        run(arguments("--resume", *more)).want(0)
        check_keys(log)
        assert read(log).startswith(first)
        assert [event["step"] for event in events(log, "step")] == list(range(1, 41))
        assert [event["resumed_from_step"] for event in events(log, "start")] == [0, FAULT_STEP]
        assert [event["step"] for event in events(log, "saved")] == [FAULT_STEP, 40]
        run(arguments("--resume", "--evaluate", *more)).want(0)
        check_keys(log)
        first, *_, last = (event["evaluation_loss"] for event in events(log, "evaluation"))
        assert last == events(log, "end")[0]["evaluation_loss"] != first
        with open(log, "a") as file:
            file.write('{"event":"st')
        run(arguments("--resume", *more)).want(0)
        lines = open(log).read().splitlines()
        assert lines.count('{"event":"st') == 1, lines
        assert json.loads(lines[lines.index('{"event":"st') + 1])["event"] == "start", lines
        run(arguments("--log-json", log)).want(0)
        assert len(events(log, "start")) == 1, "a fresh run begins a fresh log"


def test_json_cannot_be_written():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "no", "log")
        result = run(arguments("--log-json", path), np=2).want(2)
        assert path in result.err and "step " not in result.out, result
    if os.path.exists("/dev/full"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.h5")
            result = run(arguments("--log-json", "/dev/full", "--checkpoint", path)).want(2)
            assert "/dev/full: cannot be written" in result.err and "no more lines are written" in result.err, result
            assert os.path.exists(path) and "done" in result.out, "the run goes on, and is saved"


def drawn(path):
    svg = read(path).decode()
    assert svg.startswith("<?xml") and svg.rstrip().endswith("</svg>"), svg[:200]
    return svg


def need_gnuplot():
    if not shutil.which("gnuplot"):
        skip("no gnuplot here; Debian's package is gnuplot-nox")


def test_plot():
    need_gnuplot()
    with tempfile.TemporaryDirectory() as folder:
        # no name of the user's reaches a shell or a script
        path = os.path.join(folder, "a'b\"; $(touch x) `id`.svg")
        result = run(arguments("--plot", path), np=2).want(0)
        svg = drawn(path)
        for title in ("training loss", "test loss", "test accuracy", "step"):
            assert f">{title}<" in svg, title
        assert result.accuracy() >= 0 and "arning" not in result.err, result
        assert os.listdir(folder) == [os.path.basename(path)]


def test_plot_without_accuracy():
    """The bytes task has none, so there is no axis for it."""
    need_gnuplot()
    with tempfile.TemporaryDirectory() as folder:
        write(folder, "text", bytes(random.Random(1).choices(b"abcdef \n", k=3000)))
        text, path = (os.path.join(folder, name) for name in ("text", "p.svg"))
        model = ["--width", 16, "--depth", 1, "--context", 4, "--embedding", 4, "--batch", 100, "--epochs", 1]
        run(["--task", "bytes", *model, "--plot", path, text]).want(0)
        svg = drawn(path)
        assert ">training loss<" in svg and ">held-out loss<" in svg and "ccuracy" not in svg, svg


def test_plot_goes_on_after_resume():
    """The plot of a resumed run is that of an uninterrupted one."""
    need_checkpoints()
    need_gnuplot()
    with tempfile.TemporaryDirectory() as folder:
        whole, parts, path = (os.path.join(folder, name) for name in ("whole.svg", "parts.svg", "f"))
        run(arguments("--plot", whole)).want(0)
        run(arguments("--plot", parts, "--checkpoint", path), fault="signal:step:0").want(75)
        assert ">training loss<" in drawn(parts) and ">test loss<" not in drawn(parts)
        run(arguments("--plot", parts, "--checkpoint", path, "--resume")).want(0)
        assert drawn(whole) == drawn(parts)


def test_plot_is_refused_at_the_start():
    with tempfile.TemporaryDirectory() as folder:
        result = run(arguments("--plot", os.path.join(folder, "no", "p.svg")), np=2).want(2)
        assert "p.svg: cannot be written" in result.err and "step " not in result.out, result
        path = os.path.join(folder, "p.svg")
        result = run(arguments("--plot", path), PATH=folder).want(2)
        assert "requires gnuplot" in result.err and "step " not in result.out, result
        if shutil.which("gnuplot"):
            run(arguments("--plot", path, "--dry-run")).want(0)
        assert os.listdir(folder) == [], "an empty file is left behind"


def test_nonfinite_stops_at_once():
    for np in RANKS:
        result = run(arguments("--log-every", 1000), np=np, fault=f"nan:step:{np - 1}").want(2)
        words = f"step {FAULT_STEP}/20 of epoch 1/2: the loss is "
        assert words in result.err and f"nan on rank {np - 1};" in result.err, result
        assert "the first gradient that is not finite is head/" in result.err, result
        assert result.err.count("of epoch 1/2") == 1 and "--on-nonfinite skip" in result.err, result
        assert [step for step, _, _ in result.steps()] == [1], result


def test_nonfinite_gradient_alone():
    """Its rank is found by computing the step again, which does not change the run: the steps that follow are those of a run
    whose rank is known at once."""
    sharded = [(3, ["--shard"]), (2, ["--reproducible", 4, "--shard"])]
    for np, more in few([(1, []), (3, []), (2, ["--accumulate", 4]), (2, ["--reproducible", 4]), *sharded]):
        fault = f"overflow:step:{np - 1}"
        result = run(arguments("--log-every", 1000, *more), np=np, fault=fault).want(2)
        words = f"step {FAULT_STEP}/20 of epoch 1/2: the loss is finite on every rank, but not all gradients are; the first is head/"
        assert words in result.err and f", on rank {np - 1};" in result.err, result
        again = ["--on-nonfinite", "skip", "--log-every", 1, *more]
        lines = run(arguments(*again), np=np, fault=fault).want(0)
        assert lines.out.count(f"skipped step {FAULT_STEP}/20: the loss is finite on every rank") == 1, lines
        seen = run(arguments("--on-nonfinite", "skip", "--log-every", 100, *more), np=np, fault=fault).want(0)
        assert lines.accuracy() == seen.accuracy() and lines.steps()[-1] == seen.steps()[-1], f"{lines}{seen}"
        known = run(arguments(*again), np=np, fault=f"nan:step:{np - 1}").want(0)
        assert lines.steps()[FAULT_STEP:20] == known.steps()[FAULT_STEP:20], f"{lines}{known}"


def test_nonfinite_skips():
    """The step does not change the model; all others are made."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        for np, dtype, shard in few(((1, "f32", 0), (2, "f32", 0), (2, "f16", 0), (1, "bf16", 0), (2, "f16", 1))):
            more = ["--on-nonfinite", "skip", "--dtype", dtype, "--log-json", log, "--log-every", 1]
            more += ["--shard"] * shard
            result = run(arguments(*more), np=np, fault=f"nan:step:{np - 1}").want(0)
            skipped = [line for line in result.out.splitlines() if line.startswith("skipped step ")]
            assert len(skipped) == 2 and "nan on rank" in skipped[0] and "head/" in skipped[0], result
            assert f"skipped step {FAULT_STEP}/20: " in skipped[1] and " | 2 skipped" in result.out, result
            assert [event["step"] for event in events(log, "skipped")] == [FAULT_STEP, 20 + FAULT_STEP]
            losses = [event["loss"] for event in events(log, "step")]
            assert [i + 1 for i, loss in enumerate(losses) if loss is None] == [FAULT_STEP, 20 + FAULT_STEP], losses
            assert math.isfinite(losses[-1]) and losses[-1] < losses[0], losses
            scales = {event.get("loss_scale") for event in events(log, "step")}
            assert scales == ({65536.0} if dtype == "f16" else {None}), "the loss scale was not at fault"


def test_nonfinite_gives_up():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.h5")
        more = ["--optimizer", "sgd", "--lr", 1000, "--epochs", 8, "--on-nonfinite", "skip", "--checkpoint", path]
        for np in few((1, 2)):
            result = run(arguments(*more), np=np).want(2)
            assert result.err.count("100 steps in a row were skipped") == 1, result
            assert not os.path.exists(path), "what no longer trains is saved"


def test_nonfinite_loss_alone():
    """Only its rank knows; the gradients are good, so there is nothing to skip."""
    for np in few((1, 2)):
        words = f"step {FAULT_STEP}/20 of epoch 1/2: the loss is inf on rank {np - 1}, but all gradients are finite"
        result = run(arguments(), np=np, fault=f"loss:step:{np - 1}").want(2)
        assert result.err.count(words) == 1, result
        result = run(arguments("--on-nonfinite", "skip"), np=np, fault=f"loss:step:{np - 1}").want(0)
        assert result.err.count(f"{words}: the update was made") == 1 and " | 0 skipped" in result.out, result


def test_nonfinite_in_a_checkpointed_run():
    """The last file stays, and the run can be resumed from it."""
    need_checkpoints()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f")
        more = ["--epochs", 1, "--checkpoint", path]
        run(arguments("--save-every", 1, *more), np=2, fault="nan:step:1").want(2)
        result = run(arguments("--resume", *more)).want(0)
        assert f"resumed       after step {FAULT_STEP - 1}," in result.out, result


run_tests()
