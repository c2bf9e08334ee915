#!/usr/bin/env python3
"""Breaks a copy of the library in many small ways and checks that the tests fail.

usage: tools/faults.py [--list] [--jobs N] [NAME ...]

Each fault of tools/fault_list.py is put into a copy of the tree (build-faults/tree, which is built in build-faults/build on the
host backend), its tests are run, and one of them must fail.  A fault is located by its text, anywhere in src/, apps/, include/,
reference/ or bindings/; white space does not matter.  NAME: only faults whose name contains it.
Exit code 0: all were caught, 1: one was not, 2: a text is not found in exactly one place, a fault does not compile, or a test
fails without any; 64: a wrong command line."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # leave the source tree as it is
from fault_list import FAULTS  # noqa: E402

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SCRATCH = os.path.join(TOP, "build-faults")
TREE = os.path.join(SCRATCH, "tree")
LIMIT = 300  # seconds for a fault's tests: a fault that makes them hang is caught, too


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def files_of_tree():
    listed = subprocess.run(
        ["git", "-C", TOP, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True
    )
    if listed.returncode == 0:
        names = listed.stdout.decode().split("\0")
    else:  # no git here: all but builds
        names = []
        for folder, folders, files in os.walk(TOP):
            folders[:] = [f for f in folders if f != ".git" and not f.startswith("build")]
            names += [os.path.relpath(os.path.join(folder, name), TOP) for name in files]
    return {name for name in names if name and os.path.isfile(os.path.join(TOP, name))}


def copy_tree():
    """Copies only files that differ, so that the others are not built again."""
    names = files_of_tree()
    for folder, _, files in os.walk(TREE):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.relpath(path, TREE) not in names:
                os.remove(path)
    for name in names:
        ours, theirs = os.path.join(TOP, name), os.path.join(TREE, name)
        if not os.path.exists(theirs) or read(ours) != read(theirs):
            write(theirs, read(ours))
            shutil.copymode(ours, theirs)


def pattern_of(text):
    """Matches a text with any white space between its words and after an opening parenthesis."""
    parts = [re.escape(word).replace(r"\(", r"\(\s*") for word in text.split()]
    return re.compile(r"\s*".join(parts))


def places_of(fault, sources):
    """The places of the first of its texts that is found: (path, begin, end)."""
    texts = [fault.find] if isinstance(fault.find, str) else fault.find
    for text in texts:
        pattern = pattern_of(text)
        places = [(path, m.start(), m.end()) for path, content in sources.items() for m in pattern.finditer(content)]
        if places:
            return places
    return []


def read_sources(tree):
    sources = {}
    for part in ("src", "apps", "include", "reference", "bindings"):
        for folder, _, files in os.walk(os.path.join(tree, part)):
            for name in files:
                if name.endswith((".c", ".h", ".py")):
                    path = os.path.join(folder, name)
                    sources[path] = read(path).decode()
    return sources


class Build:
    def __init__(self, name, options, jobs):
        self.folder, self.options, self.jobs = os.path.join(SCRATCH, name), options, str(jobs)

    def make(self):
        """Builds; returns an error or None."""
        log = os.path.join(SCRATCH, "build.log")
        if not os.path.exists(os.path.join(self.folder, "build.ninja")):
            command = ["cmake", "-S", TREE, "-B", self.folder, "-G", "Ninja", "-DTUTTI_WITH_CUDA=OFF"]
            command += ["-DTUTTI_BUILD_EXAMPLES=OFF", "-DCMAKE_LINK_DEPENDS_NO_SHARED=ON", *self.options]
            if shutil.which("ccache"):
                command.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")
            with open(log, "w") as file:
                if subprocess.run(command, stdout=file, stderr=file).returncode:
                    return f"cmake fails: {log}"
        with open(log, "w") as file:
            command = ["cmake", "--build", self.folder, "-j", self.jobs]
            return f"does not compile: {log}" if subprocess.run(command, stdout=file, stderr=file).returncode else None

    def test(self, tests, limit=LIMIT):
        """The first test that fails, or None."""
        names = "|".join(name.replace(".", "[.]") for name in tests)
        command = ["ctest", "-R", f"^({names})([.]|$)", "-j", self.jobs, "--stop-on-failure", "--no-tests=error"]
        environment = {**os.environ, "TUTTI_TEST_QUICK": "1"}
        with subprocess.Popen(
            command, cwd=self.folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                out, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 15)
                process.communicate()
                return f"hangs ({' '.join(tests)})"
        write(os.path.join(SCRATCH, "tests.log"), out.encode())
        failed = re.search(r"Test +#\d+: (\S+) [ .]*[A-Za-z ]*\*\*\*(?!Skipped|Not Run)", out)
        assert bool(process.returncode) == bool(failed), out
        return failed[1] if failed else None


def builds(jobs):
    asan = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1 -g", "-DTUTTI_SANITIZE=address,undefined"]
    return {False: Build("build", ["-DCMAKE_BUILD_TYPE=Release"], jobs), True: Build("asan", asan, jobs)}


def check_without_faults(faults, build):
    """Builds and tests without faults; returns an error or None."""
    problem = build.make()
    if problem:
        return problem
    names = sorted({name for fault in faults for name in fault.tests.split()})
    listed = subprocess.run(["ctest", "-N"], cwd=build.folder, capture_output=True, text=True).stdout
    for name in names:
        if not re.search(rf": {re.escape(name)}([.]|$)", listed, re.M):
            return f"there is no test {name}"
    failed = build.test(names, 6 * LIMIT)
    return f"{failed} fails without a fault: {SCRATCH}/tests.log" if failed else None


def try_fault(fault, sources, build):
    """(caught, text for the table); caught is None if the fault could not be tried."""
    places = places_of(fault, sources)
    if len(places) != 1:
        where = ", ".join(sorted({os.path.relpath(path, TREE) for path, _, _ in places}))
        return None, f"its text is in {len(places)} places" + (f": {where}" if where else "")
    path, begin, end = places[0]
    content = sources[path]
    try:
        write(path, (content[:begin] + fault.replace + content[end:]).encode())
        problem = build.make()
        if problem:
            return None, problem
        failed = build.test(fault.tests.split())
    finally:
        write(path, content.encode())
    where = os.path.relpath(path, TREE)
    return (True, f"{where}: {failed}") if failed else (False, f"{where}: NOT CAUGHT by {fault.tests}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="only list the faults and their places")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: cores)")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only faults whose name contains one of these")
    try:
        given = parser.parse_args()
        wanted = [f for f in FAULTS if not given.names or any(name in f.name for name in given.names)]
        if not wanted:
            parser.error("no fault has such a name")
    except SystemExit as left:
        return 64 if left.code else 0
    assert len({f.name for f in FAULTS}) == len(FAULTS), "two faults of one name"

    if given.list:
        missing, sources = 0, read_sources(TOP)
        for f in wanted:
            places = places_of(f, sources)
            missing += len(places) != 1
            where = os.path.relpath(places[0][0], TOP) if len(places) == 1 else f"in {len(places)} places"
            print(f"{f.name:20} {where:36} {f.breaks}")
        print(f"{len(wanted)} faults, {missing} whose text is not in exactly one place")
        return 2 if missing else 0

    begin = time.monotonic()
    copy_tree()
    sources = read_sources(TREE)
    counts = {True: 0, False: 0, None: 0}
    for asan, build in builds(given.jobs).items():
        some = [f for f in wanted if f.asan == asan]
        problem = check_without_faults(some, build) if some else None
        if problem:
            print(f"faults.py: {problem}", file=sys.stderr)
            return 2
        for f in some:
            start = time.monotonic()
            caught, said = try_fault(f, sources, build)
            counts[caught] += 1
            mark = {True: "caught", False: "MISSED", None: "NOT TRIED"}[caught]
            print(f"{mark:9} {f.name:20} {time.monotonic() - start:5.1f} s  {said}", flush=True)
    print(f"{counts[True]} caught, {counts[False]} missed, {counts[None]} not tried; {time.monotonic() - begin:.0f} s")
    return 2 if counts[None] else 1 if counts[False] else 0


if __name__ == "__main__":
    sys.exit(main())
