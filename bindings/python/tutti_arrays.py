"""Where an array's memory is: NumPy's array interface, DLPack, the CUDA array interface."""

import collections
import ctypes
import math
import sys

from tutti_library import DTYPES, NAMES, Error, Uncopied, check, ffi, lib

# The owner keeps the memory alive.  device: ("host", 0) or ("cuda", 1), or ("cuda", None) where the
# array does not say it.  type: its name ("bf16"), or what the array calls it.  size: bytes of an
# element.  strides: in elements.
View = collections.namedtuple("View", "owner device read_only address type size shape strides")

# [DLPack 1.0, dlpack.h]; the structs are named as their capsules
ffi.cdef("""
typedef struct { int32_t type, id; } DLDevice;
typedef struct { uint8_t code, bits; uint16_t lanes; } DLDataType;
typedef struct { void *data; DLDevice device; int32_t ndim; DLDataType dtype;
                 int64_t *shape, *strides; uint64_t byte_offset; } DLTensor;
typedef struct { DLTensor tensor; void *manager_ctx, *deleter; } dltensor;
typedef struct { uint32_t major, minor; void *manager_ctx, *deleter; uint64_t flags;
                 DLTensor tensor; } dltensor_versioned;
int cuStreamSynchronize(void *stream);
""")
_READ_ONLY, _COPIED = 1, 2
_STRUCTS = {name: ffi.typeof(name.decode() + " *") for name in (b"dltensor", b"dltensor_versioned")}
_ADDRESS = ffi.typeof("uintptr_t")
_HOST, _CUDA = ("host", 0), 2
_DEVICES = {1: "host", _CUDA: "cuda", 3: "host", 13: "cuda"}  # 3: pinned, 13: managed memory
_CODES = {(2, 16): "f16", (2, 32): "f32", (2, 64): "f64", (4, 16): "bf16", (0, 32): "i32",
          (1, 8): "u8"}
_WORDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_TYPESTRS = {"<f2": "f16", "<f4": "f32", "<f8": "f64", "<i4": "i32", "|u1": "u8"}

_NUMPY = {"f16": "float16", "f32": "float32", "f64": "float64", "i32": "int32", "u8": "uint8"}
_MAX_DIMS = dict(ffi.typeof("tutti_tensor").fields)["dims"].type.length

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes, _pointer_of.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.argtypes, _name_of.restype = (ctypes.py_object,), ctypes.c_char_p


def look(array, stream):
    """The View of an array.  stream: a CUDA stream that is to wait for the array's; None: nobody
    waits.  TypeError and other exceptions of the array's own where it has no memory to share."""
    table = getattr(array, "__array_interface__", None)
    if table is not None:
        numpy = sys.modules.get("numpy")
        if numpy and isinstance(array, (numpy.generic, numpy.ma.MaskedArray)):
            raise TypeError("a scalar has no memory that lasts, and a mask would be ignored")
        return _interface(array, table, _HOST)
    if hasattr(array, "__dlpack__"):
        return _dlpack(array, stream)
    if hasattr(array, "__cuda_array_interface__"):
        return _cuda_interface(array, stream)
    raise TypeError(f"{type(array).__name__} has neither DLPack nor an array interface")


def _interface(array, table, device):
    typestr, strides, (address, read_only) = table["typestr"], table.get("strides"), table["data"]
    if not typestr[2:]:
        raise TypeError("its elements are objects of Python's")
    size, shape = int(typestr[2:].partition("[")[0]), tuple(table["shape"])
    if table.get("mask") is not None:
        raise TypeError("it has a mask")
    if strides and any(stride % size for stride in strides):
        raise TypeError("its elements are parts of larger ones")
    found = _TYPESTRS.get(typestr) or str(getattr(array, "dtype", typestr))
    found = "bf16" if found == "bfloat16" else found  # of ml_dtypes, whose typestr says nothing
    strides = tuple(stride // size for stride in strides) if strides else _without_gaps(shape)
    return View(array, device, read_only, address, found, size, shape, strides)


def _cuda_interface(array, stream):
    table = array.__cuda_array_interface__
    other = table.get("stream")
    if other is not None and other != (1 if stream == 0 else stream):
        if ffi.dlopen("libcuda.so.1").cuStreamSynchronize(ffi.cast("void *", other)):
            raise RuntimeError(f"its stream {other} cannot be waited for")
    return _interface(array, table, ("cuda", None))  # it does not say which


def _dlpack(array, stream):
    wait = {}
    if array.__dlpack_device__()[0] == _CUDA:  # -1: no waiting; 1: the default stream
        wait["stream"] = -1 if stream is None else stream or 1
    try:
        capsule = array.__dlpack__(max_version=(1, 0), **wait)
    except TypeError:  # older than versions
        capsule = array.__dlpack__(**wait)
    # Nobody else consumes the capsule: when it goes, its maker gets the memory back.
    name = _name_of(capsule)
    if name not in _STRUCTS:
        raise TypeError(f"its DLPack capsule is named {name}")
    managed = ffi.cast(_STRUCTS[name], _pointer_of(capsule, name))
    read_only = False
    if name == b"dltensor_versioned":
        if managed.major != 1:
            raise TypeError(f"its DLPack has version {managed.major}, want 1")
        read_only = bool(managed.flags & (_READ_ONLY | _COPIED))  # nobody sees writes to a copy
    tensor = managed.tensor
    device, dtype = tensor.device, tensor.dtype
    if device.type not in _DEVICES:
        raise TypeError(f"its device has DLPack's type {device.type}, want a CPU or CUDA")
    found = f"DLPack's type {dtype.code} of {dtype.lanes} times {dtype.bits} bits"
    if dtype.lanes == 1 and dtype.code in _WORDS:
        found = f"{_WORDS[dtype.code]}{dtype.bits}"
        found = _CODES.get((dtype.code, dtype.bits), found)
    shape, strides = (tuple(ffi.unpack(numbers, tensor.ndim)) if numbers else ()
                      for numbers in (tensor.shape, tensor.strides))
    address = int(ffi.cast(_ADDRESS, tensor.data)) + tensor.byte_offset
    place = ("cuda", device.id) if _DEVICES[device.type] == "cuda" else _HOST
    if not strides or 0 in shape:  # NumPy's strides of no elements are 0
        strides = _without_gaps(shape)
    return View(capsule, place, read_only, address, found, dtype.bits * dtype.lanes // 8, shape,
                strides)


def _without_gaps(shape):
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


class Tensor(Uncopied):
    """A view of an array's memory, which it keeps alive: what every array of a call becomes.

    Made once for many calls it saves them the look at the array.  dtype: the type of bits whose
    array cannot say it, such as "bf16" of uint16.  ctx: a context whose stream is to wait for the
    array's; without it nothing waits.
    """

    __slots__ = ("array", "device", "read_only", "_owner", "_struct", "__weakref__")

    def __init__(self, array, dtype=None, ctx=None, *, _want=None):
        try:
            view = look(array, ctx and ctx.stream)
        except Exception as refusal:  # of any producer's
            raise Error(f"the array cannot be used: {refusal}") from refusal
        if dtype is not None and lib.tutti_dtype_size(DTYPES.get(dtype, 0)) != view.size:
            raise Error(f"the array is {view.type}, {view.size} bytes an element, not {dtype!r}")
        code = DTYPES.get(dtype or view.type)
        if code is None:
            how = ", or bits of such a type: Tensor(array, dtype)"
            if _want == "i32":
                how = ": .to(torch.int32) of PyTorch's tensors, .astype('int32') of NumPy's arrays"
            raise Error(f"the array is {view.type}, want {_want or 'one of ' + ', '.join(DTYPES)}"
                        f"{how}")
        if len(view.shape) > _MAX_DIMS:
            raise Error(f"the array has {len(view.shape)} dimensions, want at most {_MAX_DIMS}")
        self.array, self.device, self.read_only = array, view.device, view.read_only
        self._owner = view.owner
        shape, strides = view.shape or (1,), view.strides or (1,)  # a number is one row
        data = ffi.cast("void *", view.address)
        self._struct = ffi.new("tutti_tensor *", (data, code, len(shape), shape, strides))

    def __repr__(self):
        return f"<tutti.Tensor {self.dtype} {list(self.shape)}>"

    @property
    def dtype(self):
        return NAMES[self._struct.dtype]

    @property
    def shape(self):
        return tuple(self._struct.dims[0 : self._struct.ndim])

    def _bytes(self):
        """The bytes of memory without gaps."""
        shape, strides = self.shape, self._struct.strides
        for i in range(len(shape)):
            if shape[i] > 1 and strides[i] != math.prod(shape[i + 1 :]):
                raise Error("the array is not contiguous")
        return math.prod(shape) * lib.tutti_dtype_size(self._struct.dtype)


def empty(shape, dtype):
    import numpy

    if dtype != "bf16":
        return numpy.empty(shape, _NUMPY[dtype])
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return Tensor(numpy.empty(shape, numpy.uint16), dtype)
    return numpy.empty(shape, bfloat16)


def convert(array, dtype):
    """A copy of a host array as another type, rounded to nearest even; bf16 as in Layer.empty."""
    given = array if isinstance(array, Tensor) else Tensor(array)
    if given.device != ("host", 0) or dtype not in DTYPES:
        raise Error(f"convert: want an array on the host, and one of {', '.join(DTYPES)}")
    given._bytes()  # an Error where there are gaps
    made = empty(given.shape, dtype)
    into, of = (made if isinstance(made, Tensor) else Tensor(made))._struct, given._struct
    check(lib.tutti_convert(into.data, into.dtype, of.data, of.dtype, lib.tutti_tensor_count(of)))
    return made


