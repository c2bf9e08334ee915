"""The harness of the tests of tools/.  A test is a function whose name begins with test_; run_tests() calls all
of the script's in order.  A test fails by an exception (assert) and is skipped by skip(reason).  The last
line is `tests: N passed, M failed, K skipped`; the exit code is 1 if one failed, 77 if none ran, otherwise 0.

Importing this puts tools/ on the path and switches to an interpreter that has NumPy and h5py; without one the
script is skipped."""

import os
import sys
import time
import traceback

sys.dont_write_bytecode = True  # leave the source tree as it is
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOOLS = os.path.join(ROOT, "tools")
DATA = os.path.join(ROOT, "tests", "data")
CASES = os.path.join(DATA, "cases.h5")
sys.path.insert(0, TOOLS)

import interpreter  # noqa: E402


class Skip(Exception):
    pass


def skip(reason):
    raise Skip(reason)


_reason = interpreter.ensure(sys.argv)
if _reason:
    print(f"skipped: {_reason}\ntests: 0 passed, 0 failed, 1 skipped")
    sys.exit(77)


def run_tests():
    script = sys.modules["__main__"]
    tests = [(name, test) for name, test in vars(script).items() if name.startswith("test_")]
    passed = failed = skipped = 0
    for name, test in tests:
        begin = time.monotonic()
        try:
            test()
            passed += 1
            print(f"{name}: passed ({time.monotonic() - begin:.1f} s)", flush=True)
        except Skip as reason:
            skipped += 1
            print(f"{name}: skipped: {reason}", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc(file=sys.stdout)
            print(f"{name}: FAILED", flush=True)
    print(f"tests: {passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else 0 if passed else 77)
