"""Writes case files; docs/case-files.md defines the format."""

import h5py
import numpy as np

from .bounds import Cover
from .numbers import file_type, pack

FORMAT = "tutti-cases"
VERSION = (1, 0)
AGREEMENT = 1e-12  # how far references may differ, relative to the sum of an element's terms


def text(value):
    return np.bytes_(value)


def made_by():
    """What the bytes of a file depend on besides the names of its cases."""
    digits = np.finfo(np.longdouble).nmant + 1
    return f"make_cases.py, HDF5 {h5py.version.hdf5_version}, long double of {digits} digits"


def _no_times(kind):
    plist = h5py.h5p.create(kind)
    plist.set_obj_track_times(False)
    return plist


def make_group(file, path):
    """The group, created with its parents."""
    if path in file:
        return file[path]
    parent, _, name = path.rpartition("/")
    above = make_group(file, parent) if parent else file
    return h5py.Group(h5py.h5g.create(above.id, name.encode(), gcpl=_no_times(h5py.h5p.GROUP_CREATE)))


class CaseFile:
    """A new file, whose bytes depend only on names and values."""

    def __init__(self, path, torch=None):
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_libver_bounds(h5py.h5f.LIBVER_V18, h5py.h5f.LIBVER_LATEST)
        access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
        create = _no_times(h5py.h5p.FILE_CREATE)
        self.file = h5py.File(h5py.h5f.create(str(path).encode(), h5py.h5f.ACC_TRUNC, create, access))
        self.torch = torch
        self.file.attrs["format"] = text(FORMAT)
        self.file.attrs["format_version"] = np.array(VERSION, np.int32)
        self.file.attrs["made_by"] = text(made_by())
        make_group(self.file, "cases")

    def close(self):
        self.file.close()


class Recorder:
    """One case of a file."""

    def __init__(self, file, name, layer, options, attributes, draw=0):
        """draw: selects the case's random numbers."""
        self.file, self.name, self.torch = file, name, file.torch
        self.data = f"{name}#{draw}" if draw else name  # of its random numbers
        self.root = f"cases/{name}"
        self.covers = {}
        group = make_group(file.file, self.root)
        group.attrs["layer"] = text(layer)
        group.attrs["options"] = text(",".join(f"{key}={_word(value)}" for key, value in options.items()))
        for key, value in attributes.items():
            group.attrs[key] = value

    def _write(self, path, dtype, shape, packed, stored_type, start, axis):
        full = f"{self.root}/{path}"
        if full not in self.file.file:
            parent, _, name = full.rpartition("/")
            layout = _no_times(h5py.h5p.DATASET_CREATE)
            layout.set_layout(h5py.h5d.CONTIGUOUS)
            layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            space = h5py.h5s.create_simple(shape)
            h5py.h5d.create(make_group(self.file.file, parent).id, name.encode(), stored_type, space, layout)
            self.file.file[full].attrs["dtype"] = text(dtype)
        if packed.size == 0:
            return
        dataset = self.file.file[full].id
        begin = [0] * len(shape)
        begin[axis] = start
        space = dataset.get_space()
        space.select_hyperslab(tuple(begin), packed.shape)
        # the file's own type in memory: HDF5 1.10 narrows floats wrongly
        dataset.write(h5py.h5s.create_simple(packed.shape), space, np.ascontiguousarray(packed), stored_type)

    def exact(self, path, dtype, shape, values, start=0, axis=0):
        """Values that are numbers of the type, in its own format."""
        self._write(
            path, dtype, shape, _shaped(pack(values, dtype), shape, axis), file_type(dtype), start, axis
        )

    def expect(self, path, dtype, shape, result, start=0, axis=0, second=None):
        """A result of the reference; second: the other reference's."""
        value = np.asarray(result.value, np.float64)
        if second is not None:
            self._agree(path, result, second)
        self.covers.setdefault(path, Cover()).add(value, result.bound)
        self._write(path, dtype, shape, _shaped(value, shape, axis), file_type("f64"), start, axis)

    def _agree(self, path, result, second):
        value = np.asarray(result.value)
        second = np.asarray(second).reshape(value.shape)
        finite = np.isfinite(value)
        same = np.array_equal(value[~finite], second[~finite], equal_nan=True)
        apart = np.abs(value[finite] - second[finite])
        allowed = AGREEMENT * np.asarray(result.terms, value.dtype)[finite]
        if not same or (apart > allowed).any():
            worst = np.max(apart - allowed, initial=0)
            raise ArithmeticError(f"{self.name}: {path}: the references disagree by up to {float(worst)}")

    def close(self):
        for path, cover in self.covers.items():
            for key, value in cover.attributes().items():
                self.file.file[f"{self.root}/{path}"].attrs[key] = value


def _word(value):
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.17g}" if isinstance(value, float) else str(value)


def _shaped(block, shape, axis):
    """A block of rows (or, axis 1, of columns) as a block of the tensor."""
    if axis == 1:
        return block
    return block.reshape((-1 if block.size else 0, *shape[1:]))
