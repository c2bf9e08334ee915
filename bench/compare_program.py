"""What bench/compare.py and compare_ddp.py share: the command line, signals, the file of --json."""

import argparse
import json
import math
import os
import signal
import sys

FAILED, USAGE, STOPPED = 2, 64, 75  # exit codes, as of Tutti's other programs: README.md
NAME = os.path.basename(sys.argv[0])


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"{NAME}: {message}\nTry `{NAME} --help' for more information.\n")


def count(text):
    """A whole number from 1."""
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r}, want a whole number from 1")
    return int(text)


def positive(text):
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}, want a number larger than 0")
    return number


def stop_in_order():
    """From now on SIGINT and SIGTERM end the program without a traceback, with STOPPED."""
    def stop(number, _):
        print(f"{NAME}: stopped by {signal.Signals(number).name}", file=sys.stderr)
        raise SystemExit(STOPPED)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def tell(*words):
    """A line of the table.  Where its reader has gone, the rows are still wanted in a file."""
    try:
        print(*words, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _beside(path):
    """The file that is written and then becomes `path`: `path` itself if it is no regular file."""
    path = os.path.realpath(path)
    return path if os.path.exists(path) and not os.path.isfile(path) else path + ".part"


def prepare_output(path):
    """Without a file of --json the program ends when the reader of its lines goes, as `| head`.
    With one it ends with FAILED where write_rows could not write; what is there stays as it is."""
    if not path:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        return
    try:
        part = _beside(path)
        with open(part, "a", encoding="utf-8"):
            pass
        if part != os.path.realpath(path):
            os.remove(part)
    except OSError as error:
        print(f"{NAME}: {path}: cannot be written: {error.strerror}", file=sys.stderr)
        raise SystemExit(FAILED) from error


def write_rows(path, rows):
    """All rows, anew; a signal meanwhile leaves those of before."""
    part = _beside(path)
    with open(part, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    if part != os.path.realpath(path):
        os.replace(part, os.path.realpath(path))
