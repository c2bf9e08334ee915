"""One run a file: a run that is killed and restarted at once while others read the file; a second run beside a live one; files that
cannot be saved; permissions."""

import contextlib
import shutil
import signal
import stat
import threading

from harness import *


def saving(path, *more):
    return ["--data", small_data(), "--batch", 50, "--width", 32, "--depth", 1, "--log-every", 1000, "--checkpoint", path,
            *more]


def wait_until(what, limit=30):
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def number_of(path):
    """The current file's inode: each save creates a new file."""
    return os.stat(path).st_ino if os.path.exists(path) else None


def owner_of(path):
    """The process that the lock names, once it exists."""
    try:
        return int(read(path + ".lck").split()[1])
    except (OSError, IndexError):
        return None


class Reader(threading.Thread):
    """Reads the file all the time, which must always be complete, and loads it now and then."""

    def __init__(self, path):
        super().__init__()
        self.path, self.stop, self.seen, self.loaded, self.faults = path, False, set(), 0, []

    def look(self):
        with open(self.path, "rb") as file:
            inode, content = os.fstat(file.fileno()).st_ino, file.read()
        length = struct.unpack_from("<Q", content, 28)[0] if len(content) > 36 else None
        if content[:8] != b"\x89HDF\r\n\x1a\n" or length != len(content):
            self.faults.append(f"{len(content)} bytes, which begin with {content[:36]}")
        self.seen.add(inode)

    def run(self):
        while not os.path.exists(self.path):
            time.sleep(0.001)
        while not self.stop and not self.faults:
            try:
                for _ in range(200):
                    self.look()
                result = run(saving(self.path, "--evaluate", "--resume", "--epochs", 100))
                self.loaded += 1
                if result.code != 0:
                    self.faults.append(str(result))
            except OSError as error:
                self.faults.append(str(error))


def kill_in_its_middle(path, whom, dying):
    """Starts a run and kills it with SIGKILL: one of its processes at once, or all of them after a while, like ranks whose launcher
    was killed."""
    command = command_line(saving(path, "--epochs", 100, "--save-every", 1, "--keep", 2, "--resume=auto", "--timeout", 5),
                           np=2)
    process = start(command)
    wait_until(lambda: owner_of(path) in children_of(process.pid) or process.poll() is not None)
    before = number_of(path)
    wait_until(lambda: number_of(path) != before or process.poll() is not None)
    time.sleep(random.Random(before).uniform(0, 0.1))
    ranks = children_of(process.pid)
    victims = {"launcher": [process.pid], "rank": [owner_of(path)], "all": [process.pid, *ranks]}[whom]

    def kill():
        for victim in victims if process.poll() is None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)

    timer = threading.Timer(dying, kill)
    timer.start()
    if not dying:
        timer.join()
    return process, command, timer


def test_killed_and_restarted_at_once():
    if SANITIZED:
        skip("processes that are killed show nothing about memory")
    with tempfile.TemporaryDirectory(prefix="tutti-owner-", ignore_cleanup_errors=True) as folder:
        whole, path = os.path.join(folder, "whole"), os.path.join(folder, "f")
        run(saving(whole, "--epochs", 100), np=2).want(0)
        reader = Reader(path)
        reader.start()
        runs = []
        try:
            for whom, dying in (("launcher", 0), ("rank", 0), ("all", 2), ("all", 2)):
                runs.append(kill_in_its_middle(path, whom, dying))
            run(saving(path, "--epochs", 100, "--resume=auto", "--keep", 2), np=2).want(0)
        finally:
            reader.stop = True
            reader.join()
            for process, command, timer in runs:
                timer.join()
                result = finish(process, command, 30)
                assert result.code in (-signal.SIGKILL, 128 + signal.SIGKILL), f"it ended before it was killed:\n{result}"
        assert not reader.faults, reader.faults
        assert len(reader.seen) > 3 and reader.loaded > 3, "nobody has looked"
        assert same_file(whole, path), "it did not end as a run that nobody has killed"
        left = sorted(os.listdir(folder))
        assert left == ["f", "f.1", "f.2", "whole"], left


def test_a_second_run_is_refused():
    with tempfile.TemporaryDirectory(prefix="tutti-owner-") as folder:
        path = os.path.join(folder, "f")
        run(saving(path, "--epochs", 1)).want(0)
        before = read(path)
        command = command_line(saving(path, "--epochs", 2, "--resume"), program=FAULTY)
        living = start(command, fault="hang:save:0")
        try:
            wait_until(lambda: os.path.exists(path + ".lck"))
            result = run(saving(path, "--epochs", 2, "--resume=auto", "--timeout", 2), np=2).want(2)
            named = f"process {living.pid} on host {os.uname().nodename} writes this file"
            assert named in result.err and path in result.err and "step " not in result.out, result
            assert 9 < result.seconds < 30, result
            run(saving(path, "--evaluate", "--resume")).want(0)
            assert read(path) == before and sorted(os.listdir(folder)) == ["f", "f.lck"], os.listdir(folder)
        finally:
            living.kill()
            finish(living, command)
        result = run(saving(path, "--epochs", 2, "--resume")).want(0)
        assert result.seconds < 9 and os.listdir(folder) == ["f"], f"{os.listdir(folder)}\n{result}"


def test_unfit_targets():
    with tempfile.TemporaryDirectory(prefix="tutti-owner-") as folder:
        path = os.path.join(folder, "f")
        write(folder, "f.1", b"not to be touched")
        os.mkdir(path + ".2")
        for wrong, keep, words in (("/proc/tutti-f", 0, "/proc/tutti-f"), (path, 3, "f.2: is a folder"), (path, 2, "f.2: is a")):
            for np in few((1, 2)):
                result = run(saving(wrong, "--keep", keep), np=np).want(2)
                assert words in result.err and "step " not in result.out, f"not seen at the start:\n{result}"
        assert sorted(os.listdir(folder)) == ["f.1", "f.2"], os.listdir(folder)
        assert read(path + ".1") == b"not to be touched"


def as_nobody(args):
    """Runs as an unprivileged user; skips if that is not possible."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        skip("needs root and setpriv, to become another user")
    prefix = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if subprocess.run([*prefix, PROGRAM, "--version"], capture_output=True).returncode != 0:
        skip("another user cannot start the program here")
    command = [*prefix, *command_line(args)]
    return finish(start(command), command)


def test_sticky_folder():
    os.chmod(small_data(), 0o755)
    with tempfile.TemporaryDirectory(prefix="tutti-owner-") as folder:
        for name in ("mine", "temporary.tmp", "older.1"):
            write(folder, name, b"not to be touched")
        os.chmod(folder, 0o1777)
        for name, more, words in (("mine", [], "mine: cannot be replaced: Operation not permitted"),
                                  ("temporary", [], "cannot remove"),
                                  ("older", ["--keep", 1], "older.1: cannot be replaced: Operation not permitted")):
            result = as_nobody(saving(os.path.join(folder, name), *more)).want(2)
            assert words in result.err and "step " not in result.out, f"not seen at the start:\n{result}"
        assert sorted(os.listdir(folder)) == ["mine", "older.1", "temporary.tmp"], os.listdir(folder)
        as_nobody(saving(os.path.join(folder, "older"), "--epochs", 1)).want(0)


def test_permissions_stay():
    with tempfile.TemporaryDirectory(prefix="tutti-owner-") as folder:
        path = os.path.join(folder, "f")
        run(saving(path, "--epochs", 1)).want(0)
        umask = os.umask(0)
        os.umask(umask)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o666 & ~umask
        for mode in few((0o600, 0o640)):
            os.chmod(path, mode)
            run(saving(path, "--epochs", 2, "--save-every", 5, "--keep", 2), np=2).want(0)
            for name in sorted(os.listdir(folder)):
                given = stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode)
                assert given == mode, f"{name} is {given:o}, want {mode:o}"


run_tests(need_checkpoints)
