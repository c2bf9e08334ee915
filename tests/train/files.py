"""The files of a run: one file for two purposes, pipes whose reader is slow or gone, closed standard files, signals before the
first step.  In all cases no file is lost, and nothing waits for ever."""

import fcntl
import json
import os
import signal
import stat
import threading

from harness import *

LIMIT = 60  # seconds for a run that would hang
TEXT = bytes(random.Random(1).choices(b"abcdef \n", k=3000))
LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../launch/tutti-run")
LICENCES = "/usr/share/common-licenses"
BYTES = ["--task", "bytes", "--width", 16, "--depth", 1, "--context", 4, "--embedding", 4, "--batch", 100]


def fashion(*more):
    return ["--data", small_data(), "--batch", 50, "--width", 16, "--depth", 1, "--epochs", 2, *more]


def contents(folder):
    """All files of a folder; links by their targets, to detect one that was replaced."""
    found = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        found[name] = os.readlink(path) if os.path.islink(path) else read(path)
    return found


class Folder(tempfile.TemporaryDirectory):
    """Paths in a folder of its own."""

    def __enter__(self):
        super().__enter__()
        return self

    def __call__(self, name):
        return os.path.join(self.name, name)


def until(true, what):
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end, f"no {what} in {LIMIT} s"
        time.sleep(0.02)


# One file, one purpose


def refused(folder, args, words, np=1):
    before = contents(folder.name)
    result = run(args, np=np, limit=LIMIT).want(64)
    said = [line for line in result.err.splitlines() if line.startswith("tutti-train: ")]
    assert len(said) == 1 and all(word in said[0] for word in words), f"want {words} in one line of\n{result}"
    assert contents(folder.name) == before, f"something was changed: {contents(folder.name).keys()}"


def corpus_folder(folder):
    write(folder.name, "c.txt", TEXT)
    write(folder.name, "c.svg", TEXT)
    write(folder.name, "run.h5.1", TEXT)
    write(folder.name, "run.h5.tmp", TEXT)
    os.symlink("c.txt", folder("link"))
    os.link(folder("c.txt"), folder("hard"))


def test_an_output_is_no_input():
    with Folder() as folder:
        corpus_folder(folder)
        text, svg = folder("c.txt"), folder("c.svg")
        for option in ("--losses", "--log-json", "--checkpoint"):
            for name in ("c.txt", "link", "hard"):
                refused(folder, [*BYTES, option, folder(name), text], [f"{option} would overwrite {text}", "read"])
        refused(folder, [*BYTES, "--losses", text, folder("link")], [f"--losses would overwrite {folder('link')}"])
        refused(folder, [*BYTES, "--plot", svg, text, svg], [f"--plot would overwrite {svg}"])
        for name, more in (("run.h5.tmp", []), ("run.h5.1", ["--keep", 3])):
            wanted = [f"--checkpoint would overwrite {folder(name)}"]
            refused(folder, [*BYTES, "--checkpoint", folder("run.h5"), *more, folder(name)], wanted)
        refused(folder, [*BYTES, "--losses", text, text], ["--losses would overwrite"], np=2)


def test_an_output_is_no_data():
    with Folder() as folder:
        make_data(folder.name, 60, 10)
        for name in os.listdir(folder.name):
            wanted = [f"--losses would overwrite {folder(name)}"]
            refused(folder, ["--data", folder.name, "--batch", 10, "--losses", folder(name)], wanted)


def test_an_output_is_not_the_default_corpus():
    """With --dry-run, so that the system's files stay in any case."""
    if not os.path.isdir(LICENCES):
        skip(f"no {LICENCES} here")
    with Folder() as folder:
        paths = [f"{LICENCES}/{name}" for name in sorted(os.listdir(LICENCES))]
        name = next(path for path in paths if not os.path.islink(path))
        os.symlink(name, folder("link"))
        refused(folder, [*BYTES, "--dry-run", "--losses", folder("link")], [f"--losses would overwrite {name}"])


def test_two_outputs_are_two_files():
    with Folder() as folder:
        os.symlink("later", folder("dangling"))
        os.symlink("dangling", folder("twice"))
        os.symlink(folder.name, folder("same"))
        pairs = [
            ("--losses", "a", "--log-json", "a"),
            ("--losses", "a", "--log-json", "./a"),
            ("--losses", "a", "--log-json", "same/a"),
            ("--losses", "dangling", "--log-json", "later"),
            ("--losses", "twice", "--log-json", "dangling"),
            ("--log-json", "z.h5", "--checkpoint", "z.h5"),
            ("--losses", "z.h5.tmp", "--checkpoint", "z.h5"),
            ("--losses", "z.h5.lck", "--checkpoint", "z.h5"),
            ("--losses", "p.svg", "--plot", "p.svg"),
        ]
        for first, one, second, other in pairs:
            refused(folder, fashion(first, folder(one), second, folder(other)), [first, second, "same file"])
        wanted = ["--losses", "--checkpoint", "same file", "z.h5.2"]
        refused(folder, fashion("--losses", folder("z.h5.2"), "--checkpoint", folder("z.h5"), "--keep", 2), wanted)


def test_a_live_checkpoint_is_no_log():
    with Folder() as folder:
        save = ["--checkpoint", folder("z.h5")]
        run(fashion(*save)).want(0)
        os.link(folder("z.h5"), folder("hard"))
        refused(folder, fashion(*save, "--resume", "--log-json", folder("hard")), ["--log-json", "same file"])
        wanted = [f"--losses would overwrite {folder('z.h5')}"]
        refused(folder, fashion(*save, "--resume", "--evaluate", "--losses", folder("hard")), wanted)


def test_lines_are_no_file_either():
    """An output must not be the file that standard output or standard error is redirected to."""
    with Folder() as folder:
        for number, name in ((1, "standard output"), (2, "standard error")):
            command = command_line(fashion("--losses", folder("out")))
            with open(folder("out"), "wb") as out:
                streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, ("stdout", "stderr")[number - 1]: out}
                process = subprocess.Popen(command, text=True, **streams)
                out_text, err = process.communicate(timeout=LIMIT)
            said = err if number == 1 else read(folder("out")).decode()
            assert process.returncode == 64 and name in said and "same file" in said, (process.returncode, said)


def test_what_is_no_danger_is_allowed():
    """Devices; a file that a run itself resumes; FILE.1 as a second name of FILE, as a killed save leaves it."""
    with Folder() as folder:
        save = ["--checkpoint", folder("z.h5"), "--keep", 2]
        run(fashion(*save, "--losses", "/dev/null", "--log-json", "/dev/null")).want(0)
        os.link(folder("z.h5"), folder("z.h5.1"))
        run(fashion(*save, "--resume", "--epochs", 3)).want(0)
        write(folder.name, "beside", b"")
        write(folder.name, "c.txt", TEXT)
        run([*BYTES, "--epochs", 1, "--losses", folder("beside"), folder("c.txt"), folder("c.txt")]).want(0)


# Standard files


def check_logs(folder, steps, torn=0):
    """torn: how many lines the one file may have that the other lacks."""
    rows = [line.split() for line in read(folder("losses")).decode().splitlines()]
    assert len(rows) >= steps and all(len(row) == 3 for row in rows), rows
    events = [json.loads(line)["event"] for line in read(folder("json")).decode().splitlines()]
    assert events[0] == "start" and 0 <= len(rows) - events.count("step") <= torn, (events, len(rows))
    return events


def logged(folder, *more):
    return fashion("--losses", folder("losses"), "--log-json", folder("json"), "--checkpoint", folder("f"), *more)


def test_closed_standard_files():
    for closed in (">&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"):
        with Folder() as folder:
            command = command_line(logged(folder))
            result = finish(start(["bash", "-c", f'exec "$@" {closed}', "bash", *command]), command, LIMIT).want(0)
            assert check_logs(folder, 26)[-1] == "end" and result.out == "", result
            run(logged(folder, "--resume", "--epochs", 3)).want(0)


def test_a_reader_that_goes_away():
    """The run has files to keep."""
    with Folder() as folder:
        command = command_line(logged(folder, "--log-every", 1))
        process = start(command)
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(LIMIT) == 0 and err.count("standard output") == 1, (process.returncode, err)
        assert check_logs(folder, 26)[-1] == "end"
        run(logged(folder, "--resume", "--epochs", 3)).want(0)


def test_a_reader_that_goes_away_ends_a_run_without_files():
    command = command_line(fashion("--epochs", 100000))
    process = start(command)
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(LIMIT) == -signal.SIGPIPE and err == "", (process.returncode, err)


def test_what_writes_no_file_ends_with_its_reader():
    """And leaves no lock."""
    with Folder() as folder:
        run(fashion("--checkpoint", folder("f"))).want(0)
        for name, more in (("new", ["--dry-run"]), ("f", ["--resume", "--evaluate"])):
            ends = os.pipe()
            os.close(ends[0])
            command = command_line(fashion("--checkpoint", folder(name), *more))
            done = subprocess.run(command, stdout=ends[1], stderr=subprocess.PIPE, timeout=LIMIT)
            os.close(ends[1])
            assert done.returncode == -signal.SIGPIPE and done.stderr == b"", (more, done.returncode, done.stderr)
            assert os.listdir(folder.name) == ["f"], os.listdir(folder.name)


def test_a_reader_that_goes_away_from_the_launcher():
    if not MPIEXEC:
        skip("built without MPI")
    with Folder() as folder:
        command = [LAUNCHER, "-np", "2", *command_line(logged(folder, "--log-every", 1, "--epochs", 20), np=None)]
        process = start(command)
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(LIMIT) == 0, (process.returncode, err)
        assert check_logs(folder, 260)[-1] == "end"


def small_pipe(read_end):
    """A pipe that is soon full: two pages."""
    fcntl.fcntl(read_end, fcntl.F_SETPIPE_SZ, 8192)


def asleep(args, **more):
    """A run whose standard output is a pipe that is full after some lines and that nobody reads."""
    ends = os.pipe()
    small_pipe(ends[0])
    process = subprocess.Popen(command_line(args), text=True, stdout=ends[1], stderr=subprocess.PIPE, **more)
    os.close(ends[1])
    return process, ends[0]


def test_a_reader_that_sleeps():
    """The lines stop after the deadline, but the run continues; missing lines are a failure."""
    with Folder() as folder:
        process, reader = asleep(logged(folder, "--log-every", 1, "--epochs", 10, "--timeout", 1))
        err = process.communicate(timeout=LIMIT)[1]
        os.close(reader)
        assert process.returncode == 2 and "standard output" in err, (process.returncode, err)
        assert check_logs(folder, 130)[-1] == "end"
        run(logged(folder, "--resume", "--epochs", 11)).want(0)


def test_one_signal_ends_the_wait_for_a_reader():
    with Folder() as folder:
        process, reader = asleep(logged(folder, "--log-every", 1, "--epochs", 100000, "--timeout", 1000))
        rows = lambda: len(read(folder("losses"))) if os.path.exists(folder("losses")) else 0
        until(lambda: rows() > 0, "line")
        before = -1
        while rows() != before:  # until nothing moves
            before = rows()
            time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        os.close(reader)
        assert process.returncode == 75, process.returncode
        assert check_logs(folder, 1)[-1] == "stopped"
        run(logged(folder, "--resume", "--dry-run", "--epochs", 100000)).want(0)


# Pipes


def test_a_pipe_without_a_reader():
    with Folder() as folder:
        for name in ("pipe", "pipe.svg"):
            os.mkfifo(folder(name))
        for option, name in (("--losses", "pipe"), ("--log-json", "pipe"), ("--plot", "pipe.svg")):
            for np in few((1, 2)):
                result = run(fashion(option, folder(name)), np=np, limit=LIMIT)
                if "built without" in result.err:
                    continue
                result.want(2)
                assert f"{folder(name)}: is a pipe without a reader" in result.err, result
                assert "step " not in result.out and stat.S_ISFIFO(os.stat(folder(name)).st_mode), result


def test_a_pipe_with_a_reader():
    with Folder() as folder:
        for option in ("--losses", "--log-json"):
            got, path = [], folder(option)
            os.mkfifo(path)
            reader = threading.Thread(target=lambda: got.append(read(path)))
            reader.start()
            result = run(fashion(option, path), limit=LIMIT).want(0)
            reader.join(LIMIT)
            lines = got[0].decode().splitlines()
            steps = lines if option == "--losses" else [line for line in lines if '"event":"step"' in line]
            assert len(steps) == len(result.steps()), result


def test_a_substituted_process():
    """>(…), a pipe of the shell's."""
    with Folder() as folder:
        command = command_line(fashion("--log-json"))
        script = f'"$@" >(cat >{folder("copy")}) && while ! grep -q \'"end"\' {folder("copy")}; do sleep 0.1; done'
        finish(start(["bash", "-c", script, "bash", *command]), command, LIMIT).want(0)


def readers_end(path):
    """The end of a FIFO that is read, opened before there is a writer."""
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    small_pipe(end)
    return end


def test_the_reader_of_a_log_goes_away():
    """Its lines stop; the run is saved, and reports at its end that lines are missing."""
    with Folder() as folder:
        for option in ("--losses", "--log-json"):
            end = readers_end(folder(option))
            save = ["--checkpoint", folder("f"), "--log-every", 1]
            command = command_line(fashion(*save, "--epochs", 20, option, folder(option)))
            process = start(command)
            wait_for(process, "step 2/")
            os.close(end)
            result = finish(process, command, LIMIT).want(2)
            assert folder(option) in result.err and "reader" in result.err, result
            assert "260 steps" in result.out, result
            run(fashion(*save, "--resume", "--epochs", 21)).want(0)
            os.remove(folder("f"))


def test_the_reader_of_a_log_sleeps():
    with Folder() as folder:
        save = ["--checkpoint", folder("f"), "--log-every", 1]
        for np in few((1, 2)):
            end = readers_end(folder(f"pipe{np}"))
            args = ["--epochs", 10, "--timeout", 4 if np > 1 else 1, "--log-json", folder(f"pipe{np}")]
            result = run(fashion(*save, *args), np, limit=LIMIT)
            os.close(end)
            result.want(2)
            assert "130 steps" in result.out and folder(f"pipe{np}") in result.err and "reader" in result.err, result
        run(fashion(*save, "--resume", "--epochs", 11)).want(0)
        end = readers_end(folder("pipe"))
        command = command_line(fashion("--epochs", 100000, "--timeout", 1000, "--log-json", folder("pipe"), *save))
        process = start(command)
        wait_for(process, "step 9/")
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        result = finish(process, command, 20).want(75)
        os.close(end)
        assert "--resume continues from" in result.out, result


def test_a_pipe_is_no_input():
    with Folder() as folder:
        os.mkfifo(folder("pipe"))
        make_data(folder.name, 60, 10)
        images = folder("train-images-idx3-ubyte.gz")
        os.remove(images)
        os.mkfifo(images)
        for np in few((1, 2)):
            for args, name in (
                ([*BYTES, folder("pipe")], folder("pipe")),
                (["--data", folder.name, "--batch", 10], images),
                (fashion("--checkpoint", folder("pipe"), "--resume"), folder("pipe")),
            ):
                result = run(args, np=np, limit=LIMIT).want(2)
                assert f"{name}: is not a regular file" in result.err, result


def fake_gnuplot(folder, when):
    """A gnuplot that sleeps: when it is asked for its version ("start"), or when it should draw ("end")."""
    condition = "=" if when == "start" else "!="
    script = f'#!/bin/sh\n[ "$1" {condition} --version ] || exit 0\n: >{folder("sleeps")}\nexec sleep 1000\n'
    write(folder.name, "gnuplot", script.encode())
    os.chmod(folder("gnuplot"), 0o755)
    return ["env", f"PATH={folder.name}:{os.environ['PATH']}"]  # in the rank: mpirun puts its own folder first


def test_gnuplot_that_never_ends():
    with Folder() as folder:
        plot = ["--plot", folder("p.svg"), "--checkpoint", folder("f")]
        for when in ("start", "end"):
            for np in few((1, 2)):
                args = fashion(*plot, "--timeout", 6 if np > 1 else 2)
                command = [*launched(np), *fake_gnuplot(folder, when), *command_line(args)]
                result = finish(start(command), command, LIMIT).want(2)
                assert "gnuplot did not end within" in result.err, result
                os.remove(folder("sleeps"))
        run(fashion(*plot[2:], "--resume", "--epochs", 3)).want(0)
        command = [*fake_gnuplot(folder, "end"), *command_line(fashion(*plot, "--timeout", 1000))]
        process = start(command)
        wait_for(process, "summary")
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        finish(process, command, 20).want(75)


# Before the first step


def handles(pid, number):
    try:
        with open(f"/proc/{pid}/status") as status:
            caught = re.search(r"^SigCgt:\s*(\S+)", status.read(), re.M)
    except OSError:
        return True  # it has ended
    return bool(caught and int(caught[1], 16) >> (number - 1) & 1)


def test_a_signal_before_the_first_step():
    """Nothing is written, and what is there stays."""
    with Folder() as folder:
        for name in ("losses", "json", "f"):
            write(folder.name, name, b"before\n")
        before = contents(folder.name)
        for np in few((1, 2)):
            result = run(logged(folder), np=np, fault=f"signal:setup:{np - 1}", limit=LIMIT).want(75)
            assert "before anything was written" in result.out and "\nstep " not in result.out, result
            assert contents(folder.name) == before, contents(folder.name)


def test_a_signal_as_early_as_there_is_a_handler():
    """The model is large enough that there is time before the first step."""
    with Folder() as folder:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            command = command_line(logged(folder, "--width", 2000, "--depth", 2))
            process = start(command)
            while not handles(process.pid, number):
                pass
            process.send_signal(number)
            finish(process, command, LIMIT).want(75)
            assert os.listdir(folder.name) == [], os.listdir(folder.name)


def test_abort():
    """SIGABRT, as an assertion of a library sends it."""
    with Folder() as folder:
        for np in few((1, 2)):
            command = command_line(logged(folder, "--save-every", 5, "--epochs", 100000), np=np)
            process = start(command)
            wait_for(process, "epoch 1/")
            os.kill(process.pid if np == 1 else children_of(process.pid)[-1], signal.SIGABRT)
            result = finish(process, command, LIMIT).want(2)
            assert "SIGABRT" in result.err, result
            assert np > 1 or not os.path.exists(folder("f.lck")), "the lock is left"
            check_logs(folder, 10, torn=1)  # it may come between two files' lines
            run(logged(folder, "--resume", "--dry-run", "--epochs", 100000)).want(0)


def test_a_stray_variable_of_a_launcher():
    """A single launcher variable does not make a process a rank: it is alone, and prints."""
    usual = run(fashion()).want(0)
    for stray in (
        {"OMPI_COMM_WORLD_RANK": "7"},
        {"PMIX_RANK": "7"},
        {"PMI_RANK": "7"},
        {"OMPI_COMM_WORLD_SIZE": "4"},
        {"OMPI_COMM_WORLD_RANK": "7", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "7"},
        {"PMI_SIZE": "4"},
    ):
        result = run(fashion(), **stray).want(0)
        assert result.steps() == usual.steps() and "ranks         1," in result.out, f"{stray}\n{result}"
        result = run(fashion("--batch", "x"), **stray).want(64)
        assert "--batch is 'x', want" in result.err, f"{stray}\n{result}"


def probe():
    need_checkpoints()


run_tests(probe)
