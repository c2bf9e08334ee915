"""The backend and the arrays of the Python module's tests, which use tests/tools/harness.py.

Environment: PYTHONPATH, which has the module; TUTTI_TEST_BACKEND."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("tools", "tests/tools"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), folder))

import interpreter  # noqa: E402

interpreter.MODULES.append("cffi")

from harness import CASES, ROOT, run_tests, skip  # noqa: E402,F401

import numpy as np  # noqa: E402

import tutti  # noqa: E402
from tutti_library import check, ffi, lib  # noqa: E402

BACKEND = os.environ.get("TUTTI_TEST_BACKEND", "host")


def context(**more):
    """A context on the backend, or the end of the script where there is no device."""
    try:
        return tutti.Context(BACKEND, **more)
    except tutti.Error as refusal:
        if refusal.status != "TUTTI_ERR_DEVICE" or os.environ.get("TUTTI_TEST_REQUIRE_GPU") == "1":
            raise
        print(f"skipped: {refusal}\ntests: 0 passed, 0 failed, 1 skipped")
        sys.exit(77)


class DeviceArray:
    """A NumPy array's copy in device memory, with the CUDA array interface alone."""

    def __init__(self, ctx, array):
        self.ctx, self.like = ctx, array
        self.data = ffi.new("void **")
        check(lib.tutti_alloc(ctx._live(), array.nbytes, self.data))
        check(lib.tutti_copy(ctx._live(), self.data[0], ffi.from_buffer(array), array.nbytes))

    def __del__(self):
        if self.ctx._handle is not None:
            lib.tutti_free(self.ctx._handle, self.data)

    @property
    def __cuda_array_interface__(self):
        address = int(ffi.cast("uintptr_t", self.data[0]))
        return {
            "version": 3,
            "shape": self.like.shape,
            "typestr": self.like.dtype.str,
            "strides": None,
            "data": (address, False),
            "stream": None,
        }

    def numpy(self):
        made = np.empty_like(self.like)
        check(lib.tutti_copy(self.ctx._live(), ffi.from_buffer(made), self.data[0], made.nbytes))
        self.ctx.synchronize()
        return made


class Exporter:
    """An array that shares its memory by DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def refused(function, *words, status="TUTTI_ERR_ARG"):
    """The call fails with a tutti.Error of this status, whose message has all the words."""
    try:
        function()
    except tutti.Error as refusal:
        assert refusal.status == status, (refusal.status, refusal)
        missing = [word for word in words if word not in str(refusal)]
        assert not missing, f"no {missing} in: {refusal}"
        return
    raise AssertionError(f"it was not refused, want a message with {words}")
