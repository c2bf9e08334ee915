"""A run that is stopped from outside, by signals or by the death of a rank: the last checkpoint is good, no rank hangs, and
another number of ranks can resume."""

import os
import signal
import tempfile

from harness import *

FAULT_STEP = 3  # of faults.h
DEADLINE = 20 if BACKEND == "cuda" else 6 if SANITIZED else 3  # a GPU takes its time to start
GRACE = 5
LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../launch/tutti-run")


def arguments(path, *more):
    small = ["--data", small_data(), "--batch", 50, "--width", 32, "--depth", 1, "--checkpoint", path]
    return [*small, "--timeout", DEADLINE, *more]


def resumes(path, np=1):
    """The file is good: the steps made, and a run that resumes from them."""
    result = run(arguments(path, "--resume", "--evaluate"), np=np).want(0)
    step = int(re.search(r"resumed       after step (\d+),", result.out)[1])
    epochs = step // 13 + 2
    result = run(arguments(path, "--resume", "--epochs", epochs), np=np).want(0)
    assert f"done | {13 * epochs - step} steps" in result.out, result
    return step


def test_signal_to_one_rank():
    with tempfile.TemporaryDirectory() as folder:
        for np in (2, 3):
            path = os.path.join(folder, f"f{np}")
            command = command_line(arguments(path, "--epochs", 100000), np=np)
            process = start(command)
            wait_for(process, "step 1/")
            os.kill(children_of(process.pid)[-1], signal.SIGUSR1)
            result = finish(process, command, 30).want(75)
            assert f"--resume continues from {path}" in result.out, result
            resumes(path, np=np - 1)


def test_second_signal_leaves_at_once():
    """A rank hangs in its step, so that the first signal has no effect; nothing is saved."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f")
        for np in (1, 2):
            command = command_line(arguments(path, "--timeout", 100), np=np, program=FAULTY)
            process = start(command, fault=f"hang:step:{np - 1}")
            wait_for(process, "step 1/")
            for _ in range(2):
                time.sleep(0.5)
                for pid in [process.pid] if np == 1 else children_of(process.pid):
                    os.kill(pid, signal.SIGTERM)
            result = finish(process, command, 15).want(75)
            assert "a second signal" in result.err and not os.path.exists(path), result


def through_launcher(path, program, *more):
    if not MPIEXEC:
        skip("built without MPI")
    share = ["--transport", "mpi"] if BACKEND == "cuda" else []  # a GPU, if there is but one
    return [LAUNCHER, "-np", "2", *command_line(arguments(path, *share, *more), np=None, program=program)]


def test_signal_in_a_sample():
    """Everything has been saved, or nothing is trained, so the first signal ends the run."""
    with tempfile.TemporaryDirectory() as folder:
        write(folder, "text", bytes(random.Random(1).choices(b"abcdef \n", k=3000)))
        text, path = (os.path.join(folder, name) for name in ("text", "f"))
        model = ["--width", 16, "--depth", 1, "--context", 4, "--embedding", 4, "--batch", 100, "--epochs", 1]
        task = ["--task", "bytes", *model, "--checkpoint", path, "--sample", 10**8, text]
        for np in (1, 2):
            for more in ([], ["--resume", "--evaluate"]):
                command = command_line([*task, *more], np=np)
                process = start(command)
                wait_for(process, "sample | ")
                time.sleep(0.2)
                for pid in [process.pid] if np == 1 else children_of(process.pid):
                    os.kill(pid, signal.SIGTERM)
                result = finish(process, command, 15).want(75)
                assert "stopped by a signal" in result.err and "nothing was saved" not in result.err, result
            result = run([*task[:-3], text, "--resume", "--evaluate"], np=np).want(0)
            assert "resumed       after step 26," in result.out, result


def test_last_to_leave():
    """mpirun ends the last rank by SIGTERM, which does not count as a second signal."""
    if not MPIEXEC:
        skip("built without MPI")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f")
        command = command_line(arguments(path, "--epochs", 100000), np=2, program=FAULTY)
        process = start(command, fault="hang:left:1")
        wait_for(process, "step 1/")
        for pid in children_of(process.pid):
            os.kill(pid, signal.SIGUSR1)
        result = finish(process, command, 30).want(75)
        assert f"--resume continues from {path}" in result.out and "second signal" not in result.err, result
        resumes(path)


def test_second_signal_through_the_launcher():
    with tempfile.TemporaryDirectory() as folder:
        command = through_launcher(os.path.join(folder, "f"), FAULTY, "--timeout", 100)
        process = start(command, fault="hang:step:1")
        wait_for(process, "step 1/")
        for _ in range(2):
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
        result = finish(process, command, 15).want(75)
        assert "a second signal" in result.err and os.listdir(folder) == [], result


def test_through_the_launcher():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f")
        command = through_launcher(path, PROGRAM, "--epochs", 100000)
        process = start(command)
        wait_for(process, "step 1/")
        process.send_signal(signal.SIGTERM)
        finish(process, command, 30).want(75)
        resumes(path)


def test_killed_rank():
    """SIGKILL, as the system does it when memory runs out."""
    with tempfile.TemporaryDirectory() as folder:
        for rank in (0, 1):
            path = os.path.join(folder, f"f{rank}")
            command = command_line(arguments(path, "--epochs", 100000, "--save-every", 5), np=2)
            process = start(command)
            wait_for(process, "epoch 1/")
            os.kill(children_of(process.pid)[rank], signal.SIGKILL)
            result = finish(process, command, DEADLINE + GRACE)
            assert result.code == 137, result
            assert resumes(path) % 5 == 0


def test_silent_rank_in_a_save():
    """A rank stops answering: all leave within the deadline and a margin."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f")
        usual = run(arguments(path), np=2, fault="none").want(0).seconds
        run(arguments(path), np=2, fault="signal:step:0").want(75)
        result = run(arguments(path, "--resume"), np=2, fault="stop:save:1", limit=60).want(2)
        assert result.seconds < usual + DEADLINE + GRACE, result
        assert resumes(path) == FAULT_STEP


def test_silent_rank_in_a_step():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f")
        result = run(arguments(path, "--save-every", 1), np=3, fault="stop:step:1", limit=60).want(2)
        assert "rank 1" in result.err, result
        assert resumes(path, np=2) == FAULT_STEP - 1


def test_vanished_rank():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f")
        result = run(arguments(path, "--save-every", 1), np=2, fault="exit:step:0", limit=60)
        assert result.code != 0, result
        assert resumes(path) == FAULT_STEP - 1


run_tests(need_checkpoints)
