"""Exit codes for failures of any rank at any point; no rank waits for a stopped one; signals end a run in order."""

import os
import signal

from harness import *

# Seconds that a wait may last (a GPU is slow to start), and a margin on top.
DEADLINE = 20 if BACKEND == "cuda" else 6 if SANITIZED else 4
GRACE = 5
MPI_START = 120  # the deadline of MPI's own start


def arguments(*more):
    return ["--data", small_data(), "--batch", 32, "--epochs", 3, "--timeout", DEADLINE, *more]


def test_good():
    for np in (1, 2, 3):
        run(arguments(), np=np).want(0)


def test_one_rank_fails():
    everywhere = ((1, (0,)), (2, (0, 1)), (3, (0, 1, 2)))
    for np, ranks in ((2, (1,)),) if BACKEND == "cuda" else everywhere:
        for rank in ranks:
            for place in ("setup", "step", "end"):
                result = run(arguments("--timeout", 100), np=np, fault=f"fail:{place}:{rank}", limit=90).want(2)
                assert result.err.count(f"asked for at '{place}'") == 1, f"not said once:\n{result}"
                assert rank == 0 or f"rank {rank}: " in result.err, result


def test_rank_gives_up():
    """A rank that fails alone in a step, without joining the sums, tells the others: they do not wait for the deadline."""
    for np in (2,) if BACKEND == "cuda" else (2, 3):
        for more in ((), ("--reproducible", 4)):
            result = run(arguments("--timeout", 100, *more), np=np, fault="mute:step:1", limit=60).want(2)
            assert "rank 1 gave up: " in result.err, result


def test_slow_start():
    """The deadline does not apply to MPI's start.  (NCCL's start may take a second and is part of the run.)"""
    command = command_line(arguments("--epochs", 1, "--timeout", 1, "--transport", "mpi"), np=None)
    late = ["sh", "-c", 'sleep 2.5; exec "$@"', "sh", *command]
    command = [*launched(2)[:1], "-np", "1", *command, ":", "-np", "1", *late]
    result = finish(start(command), command).want(0)
    assert result.seconds > 2.5, result


def test_usage_on_one_rank():
    good, bad = command_line(arguments(), np=None), command_line(arguments("--batch", "x"), np=None)
    for first, second in ((good, bad), (bad, good)):
        command = [*launched(2)[:1], "-np", "1", *first, ":", "-np", "1", *second]
        result = finish(start(command), command).want(64)
        assert "tutti-train: " in result.err, result


def test_nan_ends_the_run():
    for np in (1, 2):
        result = run(arguments(), np=np, fault=f"nan:step:{np - 1}").want(2)
        assert "the loss is" in result.err and "nan" in result.err, result
        assert result.err.count("the loss is") == 1, result


def test_killed_rank():
    result = run(arguments(), np=2, fault="exit:step:1")
    assert result.code != 0, result


def stopped(place, rank, np=3):
    usual = run(arguments(), np=np, fault="none").want(0).seconds
    hurry = {"TUTTI_TRAIN_HURRY": str(MPI_START // DEADLINE)} if place == "start" else {}
    result = run(arguments(), np=np, fault=f"stop:{place}:{rank}", limit=60, **hurry).want(2)
    print(f"  {place}, rank {rank}: {result.seconds:.1f} s, a good run takes {usual:.1f} s")
    assert result.seconds < usual + DEADLINE + GRACE, result
    if place == "start":  # MPI does not say whom it waits for
        assert f"MPI_Init_thread did not return within {MPI_START} s" in result.err, result
        return
    assert "tutti-train: " in result.err, result
    named = [line for line in result.err.splitlines() if line.startswith("tutti-train: ")]
    assert any(f"rank {rank}" in line.split(": ", 2)[2] for line in named), f"nobody names it:\n{result}"


def test_stopped_in_setup():
    for place in ("comm", "setup") if BACKEND == "cuda" else ("start", "comm", "setup", "exchange"):
        stopped(place, 1)


def test_deadlines_too_short():
    """A missed deadline, mostly while the first communicator is created, is reported with exit code 2."""
    runs = missed = 0  # with the shortest
    for timeout, times in ((1e-4, 4), (1e-3, 2), (0.01, 1)):
        for np in (2, 3) * (1 if BACKEND == "cuda" else times):
            result = run(arguments("--epochs", 1, "--timeout", timeout), np=np, limit=60)
            runs += timeout == 1e-4
            if result.code == 0:  # each wait ended sooner, or within the first polls
                assert "done | 20 steps" in result.out, result
                continue
            said = "not finished after" in result.want(2).err or "did not return within" in result.err
            assert said and "signal" not in result.err, result
            missed += timeout == 1e-4
    assert 2 * missed >= runs > 0, f"{missed} of {runs} deadlines of 0.1 ms were missed"


def test_stopped_in_step():
    stopped("step", 1)


def test_stopped_at_the_end():
    stopped("end", 1)


def test_rank_0_stopped():
    stopped("step", 0)


def interrupted(number, np):
    """Sends a signal to the program, or to every rank, after the first step line."""
    command = command_line(arguments("--epochs", 100000), np=np)
    process = start(command)
    head = ""
    while "step 1/" not in head:
        line = process.stdout.readline()
        assert line, process.communicate()
        head += line
    for pid in [process.pid] if np == 1 else children_of(process.pid):
        os.kill(pid, number)
    result = finish(process, command, 30)
    result.out = head + result.out
    return result


def test_signals_one_process():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        result = interrupted(number, 1).want(75)
        assert f"stopped by {signal.Signals(number).name} after step" in result.out, result


def test_signal_to_all_ranks():
    for np in (2, 3):
        result = interrupted(signal.SIGUSR1, np).want(75)
        assert result.out.count("stopped by SIGUSR1 after step") == 1, result


run_tests()
