"""tools/same_tensors.py and tools/same_bytes.sh: equal files, differences, and files that cannot be compared."""

import os
import subprocess
import sys
import tempfile

import harness as h

import h5py
import numpy

folder = tempfile.TemporaryDirectory(prefix="tutti-same-")


def path(name):
    return os.path.join(folder.name, name)


def made(name, change=None):
    """A small file of two cases; change(file) makes it another."""
    with h5py.File(path(name), "w") as file:
        for case in ("one", "two"):
            group = file.create_group(f"cases/{case}")
            group.attrs["options"] = name  # may differ
            group["expected/y"] = numpy.arange(12, dtype="f8").reshape(3, 4)
            group["inputs/x"] = numpy.arange(4, dtype="i4")
        if change:
            change(file)
    return path(name)


def same(*args):
    command = [sys.executable, os.path.join(h.TOOLS, "same_tensors.py"), *args]
    return subprocess.run(command, text=True, capture_output=True)


def replaced(name, data):
    def change(file):
        del file[name]
        file[name] = data

    return change


def expect(change, line):
    done = same(made("base.h5"), made("new.h5", change))
    assert done.returncode == 1 and line in done.stdout, done


def test_the_same():
    done = same(made("base.h5"), made("new.h5"))
    assert done.returncode == 0 and done.stdout == "  0 of 4 tensors differ\n", done


def test_what_differs():
    def values(file):
        file["cases/two/expected/y"][1, 2] = 0.5
        file["cases/two/expected/y"][2, 3] = numpy.nextafter(11, 12)
        file["cases/two/inputs/x"][0] = 1

    expect(values, "cases/two: expected/y differs in 2 of 12 elements; inputs/x differs in 1 of 4 elements\n  2 of 4")
    expect(lambda file: file.__delitem__("cases/one/expected/y"), "cases/one: expected/y is missing")
    expect(replaced("cases/one/inputs/x", numpy.arange(4, dtype="i8")), "cases/one: inputs/x is int64, was int32")
    expect(replaced("cases/one/inputs/x", numpy.zeros((2, 2), "i4")), "cases/one: inputs/x has shape (2, 2), had (4,)")
    expect(replaced("cases/one/expected/y", -numpy.zeros((3, 4))), "cases/one: expected/y differs in 12 of 12")  # signs of 0


def test_what_is_new_is_named():
    done = same(made("base.h5"), made("new.h5", lambda file: file.create_dataset("cases/three/inputs/x", data=[1])))
    assert done.returncode == 0 and "only in the new file: cases/three" in done.stdout, done


def test_first():
    def change(file):
        file["cases/one/inputs/x"][0] = 1
        file["cases/two/inputs/x"][0] = 1

    done = same("--first", made("base.h5"), made("new.h5", change))
    assert done.returncode == 1 and done.stdout == "  cases/one: inputs/x differs in 1 of 4 elements\n", done


def test_what_cannot_be_compared():
    with open(path("text"), "w") as file:
        file.write("no HDF5")
    with h5py.File(path("empty.h5"), "w"):
        pass
    good = made("base.h5")
    for args in ([good, path("missing.h5")], [path("text"), good], [path("empty.h5"), good], [good], []):
        done = same(*args)
        assert done.returncode == 2 and done.stderr and "Traceback" not in done.stderr, (args, done)


def test_same_bytes_refuses():
    script = os.path.join(h.TOOLS, "same_bytes.sh")
    for args, code, word in (
        ([], 64, "no commit"),
        (["--other"], 64, "no option --other"),
        (["a", "b"], 64, "a second commit"),
        (["--builds", folder.name], 64, "two build folders"),
        (["HEAD", "--builds", folder.name, folder.name], 64, "a commit and --builds"),
        (["--builds", folder.name, folder.name], 2, "no tutti-train"),
    ):
        done = subprocess.run([script, *args], text=True, capture_output=True)
        assert done.returncode == code and word in done.stderr, (args, done)


h.run_tests()
