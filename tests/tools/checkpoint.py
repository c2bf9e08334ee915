"""Checkpoints written with h5py and xxhash, by the programs in docs/file-formats.md, are loaded.
usage: checkpoint.py TUTTI-TRAIN"""

import os
import re
import subprocess
import sys
import tempfile

import harness  # first: it finds the interpreter that has the others

import h5py

TRAIN = sys.argv[1]


def page():
    """The functions that the page defines."""
    try:
        import xxhash  # noqa: F401
    except ImportError:
        harness.skip("no xxhash for Python (launch/setup.sh --lint installs it)")
    text = open(os.path.join(harness.ROOT, "docs", "file-formats.md")).read()
    # the last statement of the first one reads run.h5
    one = re.search(r"```python\n(import h5py, xxhash\n.*?)\nwith h5py.*?```", text, re.S).group(1)
    other = re.search(r"```python\n(import numpy as np\n.*?)```", text, re.S).group(1)
    defined = {}
    exec(compile(one + "\n" + other, "file-formats.md", "exec"), defined)
    return defined


def train(folder, *args, code=0):
    result = subprocess.run(
        [TRAIN, "--backend", "host", "--task", "bytes", "--context", "2", "--width", "8", "--batch", "64", "text", *args],
        cwd=folder, text=True, capture_output=True
    )
    assert result.returncode == code, f"{args}: code {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout + result.stderr


def evaluated(folder, name):
    said = train(folder, "--checkpoint", name, "--resume", "--evaluate")
    return float(re.search(r"held-out loss ([0-9.]+)", said).group(1))


def trained(folder):
    """A run's file, and all datasets of it: name -> (values, dtype)."""
    with open(os.path.join(folder, "text"), "w") as file:
        file.write("It is a truth universally acknowledged. " * 200)
    train(folder, "--epochs", "1", "--checkpoint", "run.h5")
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = (item[()], item.attrs.get("dtype"))

    with h5py.File(os.path.join(folder, "run.h5"), "r") as file:
        file.visititems(visit)
    return found


def test_the_same_is_loaded():
    write = page()["write"]
    with tempfile.TemporaryDirectory() as folder:
        write(os.path.join(folder, "mine.h5"), trained(folder))
        assert evaluated(folder, "mine.h5") == evaluated(folder, "run.h5")


def test_what_was_changed_is_loaded():
    """A model without an opinion: each of 256 bytes is equally likely, and the loss is log 256."""
    write = page()["write"]
    with tempfile.TemporaryDirectory() as folder:
        objects = trained(folder)
        changed = [name for name in objects if re.match("model/head/", name)]
        assert changed
        for name in changed:
            objects[name] = (0 * objects[name][0], objects[name][1])
        write(os.path.join(folder, "mine.h5"), objects)
        loss = evaluated(folder, "mine.h5")
        assert abs(loss - 5.5452) < 1e-4, loss


def test_a_wrong_checksum_is_refused():
    write = page()["write"]
    with tempfile.TemporaryDirectory() as folder:
        objects = trained(folder)
        path = os.path.join(folder, "mine.h5")
        write(path, objects)
        with h5py.File(path, "r+") as file:
            file["model/head/weight"][0, 0] += 1
        said = train(folder, "--checkpoint", "mine.h5", "--resume", "--evaluate", code=2)
        assert "the checksum of model/head/weight is" in said, said


harness.run_tests()
