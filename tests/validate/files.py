"""The files of tutti-validate and tutti-bench: one file for two purposes, pipes whose reader is slow or gone, closed standard files,
signals.  tests/train/files.py has tutti-train's."""

import fcntl
import signal
import threading
import time

from rig import *

BENCH = os.environ["TUTTI_BENCH"]
SMALL = ["--quiet", "--filter", "softmax-f32", CASES]
LIMIT = 60  # seconds for a run that would hang


def validate(*args):
    return [PROGRAM, "--backend", "host", *args]


def bench(*args):
    return [BENCH, "--backend", "host", "--repeats", "1", "--shape", "8x8", *args, "softmax"]


def programs(option, name):
    yield validate(option, name, *SMALL)
    if option == "--json":
        yield bench(option, name)


def finish(command, **more):
    """more: for Popen.  The exit code is -N for signal N."""
    done = subprocess.run(command, text=True, capture_output=True, timeout=LIMIT, **more)
    return Result(command, done)


def fresh(name):
    """A path in a new, empty folder."""
    return os.path.join(tempfile.mkdtemp(dir=os.path.dirname(path("x"))), name)


def good_json(name):
    with open(name) as file:
        return json.load(file)


def test_names_in_a_report():
    """Quotes and control characters are escaped; a byte that is not UTF-8 becomes U+FFFD."""
    name = os.fsencode(fresh("x"))[:-1] + b'q"b\\n\n\x7f\xc3\xa9\xff\xc3'
    shutil.copy(CASES, name)
    report = fresh("report.json")
    finish([*validate("--json", report, "--quiet", "--filter", "softmax-f32"), name]).want(0)
    made = good_json(report)
    assert made["cases"][0]["file"] == name.decode(errors="replace"), made["cases"][0]["file"]


def test_two_outputs_are_two_files():
    """Whatever their names; a temporary file is an output too."""
    for first, one, second, other in (
        ("--json", "a", "--junit", "a"),
        ("--json", "a", "--junit", "./a"),
        ("--json", "dangling", "--record", "later"),
        ("--json", "a.h5.tmp", "--record", "a.h5"),
        ("--emit", "a.h5", "--junit", "a.h5.tmp"),
    ):
        folder = os.path.dirname(fresh("x"))
        os.symlink("later", os.path.join(folder, "dangling"))
        names = [os.path.join(folder, name) for name in (one, other)]
        result = run([first, names[0], second, names[1], *SMALL], 2 if one == "a" else 1).want(64)
        assert result.err.count("same file") == 1 and first in result.err and second in result.err, result
        assert os.listdir(folder) == ["dangling"], os.listdir(folder)


def test_an_output_is_no_checkpoint_and_no_case():
    mine = fresh("cases.h5.tmp")
    shutil.copy(CASES, mine)
    for args in (["--record", mine[:-4], mine], ["--json", mine, "--checkpoint", mine], ["--emit", mine[:-4], mine]):
        result = run(args, 1).want(64)
        assert f"{args[0]} would overwrite {mine}" in result.err, result
    with open(CASES, "rb") as was, open(mine, "rb") as now:
        assert was.read() == now.read()


def test_standard_output_is_no_report():
    name = fresh("report")
    for command in programs("--json", name):
        with open(name, "w") as file:
            done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
        assert done.returncode == 64 and "standard output" in done.stderr, (done.returncode, done.stderr)


def test_devices_are_no_files():
    run(["--json", "/dev/null", "--junit", "/dev/null", *SMALL]).want(0)


def test_closed_standard_files():
    for closed in (">&-", "<&- >&- 2>&-"):
        name = fresh("report.json")
        for command in programs("--json", name):
            finish(["bash", "-c", f'exec "$@" {closed}', "bash", *command]).want(0)
            assert good_json(name), name


def gone(command):
    """Runs with a pipe as standard output whose reader has gone."""
    ends = os.pipe()
    os.close(ends[0])
    done = subprocess.run(command, text=True, stdout=ends[1], stderr=subprocess.PIPE, timeout=LIMIT)
    os.close(ends[1])
    return done


def test_a_reader_that_goes_away():
    """With a file to write the program continues, without one it ends."""
    name = fresh("report.json")
    for command in programs("--json", name):
        done = gone(command)
        assert done.returncode == 0 and done.stderr.count("standard output") == 1, (done.returncode, done.stderr)
        assert good_json(name), name
    for command in (validate(*SMALL), bench()):
        done = gone(command)
        assert done.returncode == -signal.SIGPIPE and done.stderr == "", (done.returncode, done.stderr)


def test_a_full_standard_output():
    for command in (validate(*SMALL), bench()):
        with open("/dev/full", "w") as full:
            assert subprocess.run(command, stdout=full, stderr=subprocess.DEVNULL, timeout=LIMIT).returncode == 2


def test_pipes_for_reports():
    for option in ("--json", "--junit"):
        name = fresh("pipe")
        os.mkfifo(name)
        for command in programs(option, name):
            result = finish(command).want(2)
            assert f"{name}: is a pipe without a reader" in result.err, result
            got = []
            reader = threading.Thread(target=lambda: got.append(open(name).read()))
            reader.start()
            finish(command).want(0)
            reader.join(LIMIT)
            assert got[0].startswith("<?xml") if option == "--junit" else json.loads(got[0]), got


def test_a_reader_that_sleeps():
    """The program waits for --timeout, and at most a second after a signal."""
    name = fresh("pipe")
    os.mkfifo(name)
    end = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 4096)
    args = ["--json", name, "--quiet", "--filter", "softmax", CASES]
    result = finish(validate("--timeout", "1", *args)).want(2)
    assert f"{name}: its reader has stopped reading" in result.err, result
    command = validate("--timeout", "1000", *args)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while "cases, " not in process.stdout.readline():
        pass
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 2, process.returncode
    os.close(end)


def test_a_pipe_is_no_input():
    name = fresh("pipe.h5")
    os.mkfifo(name)
    for np in few((1, 2)):
        for args in ([name], ["--checkpoint", name]):
            result = run(args, np, LIMIT).want(2)
            assert f"{name}: is not a regular file" in result.err, result


def interrupted(command, word, number):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while word not in process.stdout.readline():
        pass
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT)
    return process.returncode, out + err


def long_bench(*args):
    """Many short measurements."""
    return [BENCH, "--backend", "host", "--repeats", "10000", "--shape", ",".join(["8x8"] * 30), *args]


def test_signals():
    """75, and nothing half done: no partial report, no temporary file; but the measurements made so far."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        record = fresh("record.h5")
        many = [CASES] * 2
        code, said = interrupted(validate("--record", record, *many), "verdict", number)
        assert code == 75 and "stopped by" in said and os.listdir(os.path.dirname(record)) == [], (code, said[-300:])
        report = fresh("bench.json")
        code, said = interrupted(long_bench("--json", report), "layernorm", number)
        assert code == 75 and "stopped by" in said and good_json(report), (code, said[-300:])


def test_abort():
    for command, word in (
        (validate(*[CASES] * 2), "verdict"),
        (long_bench(), "layernorm"),
    ):
        code, said = interrupted(command, word, signal.SIGABRT)
        assert code == 2 and "SIGABRT" in said, (code, said[-300:])


def test_a_stray_variable_of_a_launcher():
    for stray in ({"OMPI_COMM_WORLD_RANK": "7"}, {"PMIX_RANK": "7"}, {"OMPI_COMM_WORLD_SIZE": "4"}):
        assert "all hold" in run(SMALL, 1, **stray).want(0).out
        assert "no-such" in run(["--no-such"], 1, **stray).want(64).err


start()
