"""The harness of the tests of tutti-train: running it, small data sets, and the count of tests.

A test is a function whose name begins with test_; run_tests() calls all of the script's in order.  A test fails by
an exception (assert) and is skipped by skip(reason).  The last line is `tests: N passed, M failed, K skipped`; the
exit code is 1 if one failed, 77 if none ran, otherwise 0.
"""

import gzip
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
import traceback

PROGRAM = os.environ["TUTTI_TRAIN"]
FAULTY = os.environ["TUTTI_TRAIN_FAULTY"]
MPIEXEC = os.environ.get("TUTTI_MPIEXEC")
BACKEND = os.environ.get("TUTTI_TEST_BACKEND", "host")
SANITIZED = "TUTTI_TEST_SANITIZED" in os.environ
FASHION = "/usr/share/datasets/fashion-mnist"

STEP = re.compile(
    r"^step (\d+)/(\d+) \| loss (\S+) \| norm \S+ \| lr \S+ \| \S+ ms \| \d+ (?:samples|tokens)/s"
    r"(?: \| ranks (\S+)-(\S+) ms)?$"
)
ACCURACY = re.compile(r"test accuracy (\d+\.\d\d) %$")


class Skip(Exception):
    pass


def few(runs):
    """Under a sanitizer, where a start under mpirun takes seconds, the last: the others show nothing more about memory."""
    return runs[-1:] if SANITIZED else runs


def in_full(test):
    """For a test that compares what runs leave whose code other tests run: a sanitizer would see nothing more in it."""
    return (lambda: skip("its code runs in other tests, too")) if SANITIZED else test


def skip(reason):
    raise Skip(reason)


class Result:
    def __init__(self, command, code, out, err, seconds):
        self.command, self.code, self.out, self.err, self.seconds = command, code, out, err, seconds

    def steps(self):
        """(step, steps an epoch, loss as printed) of each step line."""
        found = [STEP.match(line) for line in self.out.splitlines() if line.startswith("step ")]
        assert all(found), f"a step line of another form in\n{self}"
        return [(int(m[1]), int(m[2]), m[3]) for m in found]

    def accuracy(self):
        """The accuracy at the end of the last line."""
        match = ACCURACY.search(self.out.rstrip("\n").splitlines()[-1])
        assert match, f"the last line does not end in the test accuracy:\n{self}"
        return float(match[1])

    def want(self, code):
        assert self.code == code, f"exit code {self.code}, want {code}\n{self}"
        return self

    def __str__(self):
        return f"$ {' '.join(self.command)}   ({self.seconds:.1f} s, code {self.code})\n{self.out}{self.err}"


def command_line(args, np=1, program=PROGRAM):
    command = [program, "--backend", BACKEND, *map(str, args)]
    return command if np is None else launched(np) + command


def launched(np):
    """The launcher's command for np processes; empty for one."""
    if np == 1:
        return []
    if not MPIEXEC:
        skip("built without MPI")
    return [MPIEXEC, "-np", str(np)]


def start(command, fault=None, **environment):
    """A started process, for tests that do something to it."""
    environment = {**os.environ, **environment}
    if SANITIZED and "-np" not in command:
        environment["ASAN_OPTIONS"] = ""  # only to identify MPI's leaks does it take the slow unwinder
    if fault:
        environment["TUTTI_TRAIN_FAULT"] = fault
    # SIGPIPE stays ignored for mpirun, which at its end, without its handlers, still writes to its processes: of one that
    # was killed a broken pipe may be left.  Ranks do not inherit that.
    return subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        restore_signals=command[0] != MPIEXEC,
    )


def finish(process, command, limit=240):
    begin = time.monotonic()
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()  # on SIGTERM mpirun ends its ranks, on SIGKILL it could not
        try:
            out, err = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        raise AssertionError(f"still running after {limit} s: {' '.join(command)}\n{out}{err}")
    return Result(command, process.returncode, out, err, time.monotonic() - begin)


def wait_for(process, word):
    """Reads lines until one contains the word; returns all of them."""
    head = ""
    while word not in head:
        line = process.stdout.readline()
        assert line, f"{head}{process.communicate()}"
        head += line
    return head


def run(args, np=1, fault=None, limit=240, **environment):
    """Runs tutti-train on np ranks; with a fault, the program that has faults."""
    command = command_line(args, np, FAULTY if fault else PROGRAM)
    return finish(start(command, fault, **environment), command, limit)


def children_of(parent):
    """The child processes: mpirun's are the ranks."""
    children = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[1]) == parent:
            children.append(int(pid))
    return children


def idx_images(images):
    return struct.pack(">IIII", 0x803, len(images), 28, 28) + b"".join(images)


def idx_labels(labels):
    return struct.pack(">II", 0x801, len(labels)) + bytes(labels)


def write(folder, name, content):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(content)


def make_data(folder, train=650, test=103, pack=True):
    """Ten patterns with noise: learnt quickly, but not at once."""
    rng = random.Random(1)
    patterns = [rng.randbytes(784) for _ in range(10)]
    for kind, count in (("train", train), ("t10k", test)):
        labels = [rng.randrange(10) for _ in range(count)]
        images = [bytes((p + 3 * n) // 4 for p, n in zip(patterns[k], rng.randbytes(784))) for k in labels]
        for name, content in (("images-idx3", idx_images(images)), ("labels-idx1", idx_labels(labels))):
            ending = ".gz" if pack else ""
            write(folder, f"{kind}-{name}-ubyte{ending}", gzip.compress(content, 1) if pack else content)
    return folder


def read(path):
    with open(path, "rb") as file:
        return file.read()


def same_file(a, b):
    return read(a) == read(b)


_folder = None


def small_data():
    """A folder with make_data's files, made once."""
    global _folder
    if _folder is None:
        _folder = tempfile.TemporaryDirectory(prefix="tutti-train-")
        make_data(_folder.name)
    return _folder.name


def fashion_data():
    if not os.path.exists(f"{FASHION}/train-images-idx3-ubyte.gz"):
        skip("no Fashion-MNIST here; Debian's package is dataset-fashion-mnist")
    return FASHION


def need_checkpoints():
    """Skips where the program was built without HDF5, and says so."""
    with tempfile.TemporaryDirectory() as folder:
        result = run(["--data", small_data(), "--batch", 600, "--epochs", 1, "--checkpoint", os.path.join(folder, "file")])
    if result.code == 2 and "built without" in result.err:
        skip(result.err.strip())
    result.want(0)


def skip_all(reason):
    print(f"skipped: {reason}\ntests: 0 passed, 0 failed, 1 skipped")
    sys.exit(77)


def run_tests(probe=None):
    """probe: if it skips, all tests are skipped."""
    if BACKEND == "cuda":
        dry = run(["--data", small_data(), "--batch", 1, "--dry-run"])
        if dry.code != 0 and os.environ.get("TUTTI_TEST_REQUIRE_GPU") == "1":
            print(f"failed: {dry}\ntests: 0 passed, 1 failed, 0 skipped")
            sys.exit(1)
        if dry.code != 0:
            skip_all(dry.err.strip())
    if probe:
        try:
            probe()
        except Skip as reason:
            skip_all(reason)
    passed = failed = skipped = 0
    module = sys.modules["__main__"]
    for name in [name for name in vars(module) if name.startswith("test_")]:
        begin = time.monotonic()
        try:
            getattr(module, name)()
            passed += 1
            verdict = "passed"
        except Skip as reason:
            skipped += 1
            verdict = f"skipped: {reason}"
        except Exception:
            failed += 1
            verdict = "FAILED\n" + traceback.format_exc()
        print(f"{name[5:]}: {verdict} ({time.monotonic() - begin:.1f} s)", flush=True)
    print(f"tests: {passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0 if passed else 77)
