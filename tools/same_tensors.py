#!/usr/bin/env python3
"""Compares the tensors of two HDF5 files: name, type, shape and bytes, but not attributes.
usage: tools/same_tensors.py [--first] BASE.h5 NEW.h5
For files of cases (cases/NAME/…): a line for each case that differs, with its tensors.  Tensors and cases that only NEW has are named,
but are not a difference.  --first: only the first tensor that differs.  Exit code 0: equal, 1: different, 2: a file cannot be read."""

import sys

import interpreter

reason = interpreter.ensure(sys.argv)
if reason:
    print(f"same_tensors.py: {reason}", file=sys.stderr)
    sys.exit(2)

import h5py  # noqa: E402
import numpy  # noqa: E402


def tensors(file):
    found = {}
    file.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
    return found


def raw(path, dataset):
    """The bytes in the file: NumPy has no bf16."""
    offset, size = dataset.id.get_offset(), dataset.id.get_type().get_size()
    if offset is None:
        return numpy.frombuffer(dataset[()].tobytes(), numpy.uint8).reshape(-1, size)
    with open(path, "rb") as file:
        file.seek(offset)
        return numpy.frombuffer(file.read(dataset.size * size), numpy.uint8).reshape(-1, size)


def difference(paths, a, b):
    """Why they differ, or None."""
    if b is None:
        return "is missing"
    if not a.id.get_type().equal(b.id.get_type()):
        return f"is {b.dtype}, was {a.dtype}"
    if a.shape != b.shape:
        return f"has shape {b.shape}, had {a.shape}"
    x, y = raw(paths[0], a), raw(paths[1], b)
    if len(x) != a.size or len(y) != a.size:
        return "is cut short"
    count = int((x != y).any(axis=1).sum())
    return f"differs in {count} of {a.size} elements" if count else None


def case_of(name):
    parts = name.split("/")
    return ("/".join(parts[:2]), "/".join(parts[2:])) if parts[0] == "cases" else (name, "")


def main():
    arguments = [a for a in sys.argv[1:] if a != "--first"]
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with h5py.File(arguments[0], "r") as base, h5py.File(arguments[1], "r") as new:
        was, now = tensors(base), tensors(new)
        if not was:
            print(f"same_tensors.py: {arguments[0]} has no tensors", file=sys.stderr)
            return 2
        found = {}
        # a checkpoint's parameters before what follows from them
        for name, dataset in sorted(was.items(), key=lambda item: not item[0].startswith("model/")):
            what = difference(arguments, dataset, now.get(name))
            if what:
                case, tensor = case_of(name)
                found.setdefault(case, []).append(f"{tensor} {what}".strip())
                if "--first" in sys.argv:
                    break
        for case, lines in found.items():
            print(f"  {case}: {'; '.join(lines)}")
        more = sorted({case_of(name)[0] for name in now.keys() - was.keys()})
        if more:
            print(f"  only in the new file: {', '.join(more)}")
        if "--first" not in sys.argv:
            print(f"  {sum(map(len, found.values()))} of {len(was)} tensors differ")
        return 1 if found else 0


try:
    sys.exit(main())
except OSError as error:
    print(f"same_tensors.py: {error}", file=sys.stderr)
    sys.exit(2)
