#!/usr/bin/env python3
"""Writes reference cases for tutti-validate: inputs and expected results, computed by NumPy in f64 or better.

    tools/make_cases.py tests/data/cases.h5                     the set that the tests use
    tools/make_cases.py --set triton triton.h5                  a larger one: jax, triton, originals, long; xformers is 35 GB
    tools/make_cases.py --set xformers --filter '*-gelu-*' x.h5
    tools/make_cases.py --set long --list

The same set gives the same bytes, with one version of HDF5 (and, but for the small set, on one kind of
machine).  Where PyTorch can be imported, its autograd in f64 computes every case too, and a case on which the
two disagree is an error (exit code 1, no file).  docs/case-files.md describes the files, docs/numerics.md the
bounds in them.
"""

import argparse
import fnmatch
import importlib.util
import os
import sys

sys.dont_write_bytecode = True  # leave the source tree as it is

import interpreter  # noqa: E402


def parse(argv):
    description, _, epilog = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", default="small", choices=("small", "jax", "triton", "xformers", "originals", "long"))
    parser.add_argument("--filter", default="*", metavar="GLOB", help="only cases whose name matches")
    parser.add_argument("--list", action="store_true", help="print the cases' names, write nothing")
    parser.add_argument("--torch", default="auto", choices=("auto", "on", "off"), help="the second reference")
    parser.add_argument("out", nargs="?", metavar="OUT.h5")
    args = parser.parse_args(argv)
    if not args.list and not args.out:
        parser.error("OUT.h5 is missing")
    if args.out and os.path.exists(args.out) and not os.path.isfile(args.out):
        parser.error(f"{args.out} is not a regular file, and would be replaced")
    return args


def second_reference(wanted):
    if wanted == "off" or (wanted == "auto" and not importlib.util.find_spec("torch")):
        return None
    import torch

    return torch


def write(path, cases, torch):
    from cases.record import CaseFile, Recorder
    from cases.sets import REDRAWN

    partial = f"{path}.tmp"
    try:
        file = CaseFile(partial, torch)
        for name, case in cases:
            recorder = Recorder(file, name, case.layer, case.options, case.attributes, REDRAWN.get(name, 0))
            case.run(recorder)
            recorder.close()
        file.close()
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


def main(argv):
    args = parse(argv)
    reason = interpreter.ensure(sys.argv)
    if reason:
        sys.exit(reason)
    from cases.sets import SETS

    cases = [(name, case) for name, case in SETS[args.set]() if fnmatch.fnmatchcase(name, args.filter)]
    if args.list:
        print("\n".join(name for name, _ in cases))
        return
    try:
        torch = second_reference(args.torch)
        write(args.out, cases, torch)
    except (ArithmeticError, ImportError, OSError, ValueError) as error:
        sys.exit(f"make_cases.py: {error}")
    checked = f"agreed on with PyTorch {torch.__version__}" if torch else "without PyTorch"
    print(f"{args.out}: {len(cases)} cases, {checked}")


if __name__ == "__main__":
    main(sys.argv[1:])
