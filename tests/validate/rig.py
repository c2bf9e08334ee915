"""Runs tutti-validate for its tests, which use tests/tools/harness.py."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tools"))

from harness import CASES, DATA, ROOT, TOOLS, run_tests, skip  # noqa: E402,F401

import h5py  # noqa: E402
import numpy as np  # noqa: E402,F401

PROGRAM = os.environ["TUTTI_VALIDATE"]
MPIEXEC = os.environ.get("TUTTI_MPIEXEC")
BACKEND = os.environ.get("TUTTI_TEST_BACKEND", "host")
SANITIZED = "TUTTI_TEST_SANITIZED" in os.environ
_folder = tempfile.TemporaryDirectory(prefix="tutti-validate-")


def path(name):
    return os.path.join(_folder.name, name)


def few(runs):
    """Under a sanitizer, where a start under mpirun takes seconds, the last: the others show nothing more about memory."""
    return runs[-1:] if SANITIZED else runs


class Result:
    def __init__(self, command, done):
        self.command, self.code, self.out, self.err = command, done.returncode, done.stdout, done.stderr

    def want(self, code):
        assert self.code == code, f"exit code {self.code}, want {code}\n{self}"
        return self

    def __str__(self):
        return f"$ {' '.join(self.command)}   (code {self.code})\n{self.out}{self.err}"


def gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    except OSError:
        return 0
    there = listed.stdout.count("GPU ") if listed.returncode == 0 else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return there
    valid = itertools.takewhile(lambda entry: entry not in ("", "-1"), visible.split(","))
    return min(there, len(list(valid)))


def run(args, np=1, limit=300, **more):
    """Runs tutti-validate on np ranks, which share GPUs if there are too few.  more: environment variables."""
    command = [PROGRAM, "--backend", BACKEND, *map(str, args)]
    if np > 1:
        if not MPIEXEC:
            skip("built without MPI")
        if BACKEND == "cuda" and gpus() < np:
            command[1:1] = ["--transport", "mpi"]
        command = [MPIEXEC, "-np", str(np), *command]
    # look for leaks on one rank only: identifying MPI's own takes the slow unwinder
    environment = {**os.environ, "ASAN_OPTIONS": f"detect_leaks={int(np == 1)}", **more}
    return Result(command, subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment))


def report(args, np=1, code=0):
    """The contents of --json."""
    run([*args, "--quiet", "--json", path("report.json")], np).want(code)
    with open(path("report.json")) as file:
        return json.load(file)


def findings(said):
    """The tensors by case and name."""
    return {(case["case"], tensor["tensor"]): tensor for case in said["cases"] for tensor in case["tensors"]}


def edited(change, name="edited.h5", original=CASES):
    """A copy of a file of cases, modified by change(file)."""
    shutil.copy(original, path(name))
    with h5py.File(path(name), "r+") as file:
        change(file)
    return path(name)


def count(name):
    """The numbers of cases in a file and of their results."""
    with h5py.File(name) as file:
        cases = list(file["cases"].values())
        return len(cases), sum(len(case.get(part, ())) for case in cases for part in ("expected", "expected_grad"))


def without_bounds(file):
    def strip(name, item):
        for bound in ("atol", "rtol"):
            if bound in item.attrs:
                del item.attrs[bound]

    file.visititems(strip)


def start():
    """Runs the script's tests, if the backend is available."""
    if BACKEND == "cuda" and gpus() == 0:
        required = os.environ.get("TUTTI_TEST_REQUIRE_GPU") == "1"
        print(f"no GPU\ntests: 0 passed, {int(required)} failed, {int(not required)} skipped")
        sys.exit(1 if required else 77)
    run_tests()
