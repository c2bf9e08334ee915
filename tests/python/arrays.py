"""What the Python module takes for an array, by which interface, and what it keeps alive."""

import ctypes
import gc
import types
import weakref

from rig import *

ctypes.pythonapi.PyCapsule_New.restype = ctypes.py_object
ctypes.pythonapi.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Producer:
    """Makes DLPack capsules of a flat array's memory; notes how it was asked, what came back."""

    def __init__(
        self, array, shape, strides=None, code=(2, 32, 1), device=(1, 0), offset=0, flags=0, major=1
    ):
        self.array, self.device, self.asked, self.returned = array, device, [], 0
        self.shape = ffi.new("int64_t[]", shape)
        self.strides = ffi.new("int64_t[]", strides) if strides else ffi.NULL
        address = array.ctypes.data - offset
        tensor = (
            ffi.cast("void *", address),
            device,
            len(shape),
            code,
            self.shape,
            self.strides,
            offset,
        )
        self.versioned = ffi.new(
            "dltensor_versioned *", {"major": major, "flags": flags, "tensor": tensor}
        )
        self.plain = ffi.new("dltensor *", {"tensor": tensor})
        self.destructor = DESTRUCTOR(self.note)

    def note(self, capsule):
        self.returned += 1

    def __dlpack_device__(self):
        return self.device

    def capsule(self, managed, name):
        address = int(ffi.cast("uintptr_t", managed))
        return ctypes.pythonapi.PyCapsule_New(
            address, name, ctypes.cast(self.destructor, ctypes.c_void_p)
        )

    def __dlpack__(self, **how):
        self.asked.append(how)
        return self.capsule(self.versioned, b"dltensor_versioned")


class OldProducer(Producer):
    def __dlpack__(self, stream=None):
        self.asked.append({"stream": stream})
        return self.capsule(self.plain, b"dltensor")


def copied(array):
    """What the module reads of a float array: each row, multiplied by one."""
    tensor = array if isinstance(array, tutti.Tensor) else tutti.Tensor(array)
    layer = tutti.Layer("matmul", m=1, n=tensor.shape[-1], k=1, dtype=tensor.dtype)
    rows = int(np.prod(tensor.shape[:-1]))
    ones, made = np.ones((rows, 1, 1)), layer.empty("c", rows)
    layer.forward(CTX, a=tutti.convert(ones, tensor.dtype), b=tensor, c=made)
    return tutti.convert(made, "f64").reshape(tensor.shape)


CTX = tutti.Context("host")
NUMBERS = np.arange(24, dtype=np.float32)


def test_types_of_numpy():
    for dtype, name in (
        ("float16", "f16"),
        ("float32", "f32"),
        ("float64", "f64"),
        ("int32", "i32"),
        ("uint8", "u8"),
    ):
        tensor = tutti.Tensor(np.zeros((2, 3), dtype))
        assert (tensor.dtype, tensor.shape, tensor.device) == (
            name,
            (2, 3),
            ("host", 0),
        ), tensor.dtype
    for dtype in ("int64", "bool", "complex64", "uint16", ">f4", "datetime64[ns]", "V2"):
        refused(
            lambda: tutti.Tensor(np.zeros(3, dtype)),
            str(np.dtype(dtype)),
            "want one of f32, f64, f16, bf16",
        )


def test_bits_are_named():
    bits = np.zeros((2, 3), np.uint16)
    assert (
        tutti.Tensor(bits, "bf16").dtype == "bf16"
        and tutti.Tensor(bits, dtype="f16").dtype == "f16"
    )
    refused(lambda: tutti.Tensor(bits, "f32"), "uint16", "2 bytes", "'f32'")
    refused(lambda: tutti.Tensor(bits, "bfloat16"), "'bfloat16'")


def test_bf16_of_ml_dtypes():
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        skip("no ml_dtypes here")
    array = NUMBERS.astype(bfloat16).reshape(2, 12)
    assert tutti.Tensor(array).dtype == "bf16" and tutti.Tensor(array[:, :4]).dtype == "bf16"
    assert np.array_equal(copied(array[:, :4]), NUMBERS.reshape(2, 12)[:, :4])
    assert tutti.Layer("softmax", cols=4, dtype="bf16").empty("y", 2).dtype == bfloat16


def test_strides_and_shapes_of_numpy():
    array = np.arange(48, dtype=np.float64).reshape(4, 12)
    assert np.array_equal(copied(array[::2, 3:9]), array[::2, 3:9])
    assert tutti.Tensor(np.zeros((), "f")).shape == (1,)
    assert tutti.Tensor(np.zeros((0, 5))).shape == (0, 5)
    refused(lambda: tutti.Tensor(np.zeros((1, 1, 1, 1, 1))), "has 5 dimensions, want at most 4")
    fields = np.zeros(4, [("a", "<f4"), ("b", "u1")])["a"]
    refused(lambda: tutti.Tensor(fields), "parts of larger ones")
    layer = tutti.Layer("softmax", cols=6)
    for wrong in (
        array.astype("f")[:, ::2],
        array.astype("f")[:, 5::-1],
        np.asfortranarray(array.astype("f")[:, :6]),
    ):
        refused(lambda: layer.forward(CTX, x=wrong, y=np.empty((4, 6), "f")), "x has strides")


def test_what_is_no_array():
    objects = np.array([1.0, None], object)
    refused(lambda: tutti.Tensor(objects), "cannot be used: its elements are objects of Python's")
    for thing in ([1.0, 2.0], 3.0, None, "text", object()):
        refused(lambda: tutti.Tensor(thing), "neither DLPack nor an array interface")
    for thing in (np.float32(3), np.ma.masked_array([1.0, 2.0], mask=[0, 1])):
        refused(lambda: tutti.Tensor(thing), "a scalar has no memory that lasts")
    deleted = types.SimpleNamespace(__dlpack__=None, __dlpack_device__=lambda: (1, 0))
    deleted.__dlpack__ = lambda **how: (_ for _ in ()).throw(RuntimeError("Array has been deleted"))
    refused(lambda: tutti.Tensor(deleted), "Array has been deleted")
    masked = types.SimpleNamespace(
        __cuda_array_interface__={
            "shape": (1,),
            "typestr": "<f4",
            "data": (256, False),
            "mask": 1,
            "version": 3,
        }
    )
    refused(lambda: tutti.Tensor(masked), "mask")


def test_read_only_arrays():
    x, y = np.ones((2, 4), "f"), np.ones((2, 4), "f")
    layer = tutti.Layer("softmax", cols=4)
    x.flags.writeable = False
    layer.forward(CTX, x=x, y=y)
    refused(lambda: layer.forward(CTX, x=y, y=x), "softmax: y is read-only")
    refused(lambda: layer.backward(CTX, y=y, dy=y, dx=x), "softmax: dx is read-only")
    layer.backward(CTX, y=x, dy=y, dx=np.empty_like(y))
    for flags in (1, 2):  # read-only, copied: nobody would see what is written
        producer = Producer(y.reshape(-1), (2, 4), flags=flags)
        layer.forward(CTX, x=producer, y=np.empty_like(y))
        refused(lambda: layer.forward(CTX, x=x, y=producer), "y is read-only")
    layer = tutti.Layer("rmsnorm", cols=4)
    gamma = np.ones(4, "f")
    gamma.flags.writeable = False
    layer.bind(gamma=gamma, dgamma=gamma)
    refused(lambda: layer.forward(CTX, x=x, y=y), "dgamma is read-only")


def test_dlpack_of_both_versions():
    for kind in (Producer, OldProducer):
        assert np.array_equal(copied(kind(NUMBERS, (4, 6))), NUMBERS.reshape(4, 6))
        producer = kind(NUMBERS, (2, 5), strides=(12, 1), offset=64)
        assert np.array_equal(copied(producer), NUMBERS.reshape(2, 12)[:, :5])
        bits = np.array([0x3F80, 0xC000], np.uint16)
        assert copied(kind(bits, (1, 2), code=(4, 16, 1))).tolist() == [[1, -2]]
        assert tutti.Tensor(kind(NUMBERS, ())).shape == (1,)
        assert tutti.Tensor(kind(NUMBERS, (0, 6), strides=(0, 0))).shape == (0, 6)
        for code, dtype in (
            ((2, 16, 1), "f16"),
            ((2, 64, 1), "f64"),
            ((0, 32, 1), "i32"),
            ((1, 8, 1), "u8"),
        ):
            assert tutti.Tensor(kind(NUMBERS, (2,), code=code)).dtype == dtype
        for code, said in (
            ((0, 64, 1), "int64"),
            ((1, 16, 1), "uint16"),
            ((2, 32, 4), "DLPack's type 2 of 4 times 32 bits"),
            ((3, 64, 1), "DLPack's type 3 of 1 times 64 bits"),
            ((5, 64, 1), "complex64"),
        ):
            refused(
                lambda: tutti.Tensor(kind(NUMBERS, (2,), code=code)), f"the array is {said}, want"
            )
        assert tutti.Tensor(kind(bits, (2,), code=(1, 16, 1)), "bf16").dtype == "bf16"
        refused(lambda: tutti.Tensor(kind(NUMBERS, (2,), device=(10, 0))), "DLPack's type 10")
    refused(lambda: tutti.Tensor(Producer(NUMBERS, (2,), major=2)), "version 2")


def test_dlpack_memory_goes_back_once():
    for kind in (Producer, OldProducer):
        producer = kind(NUMBERS, (4, 6))
        tensor = tutti.Tensor(producer)
        layer, out = tutti.Layer("softmax", cols=6), np.empty((4, 6), "f")
        call = layer.prepare(CTX, x=tensor, y=out)
        del tensor
        gc.collect()
        assert producer.returned == 0
        call()
        del call
        gc.collect()
        assert producer.returned == 1
        layer.forward(CTX, x=producer, y=out)
        gc.collect()
        assert producer.returned == 2 and np.allclose(out.sum(axis=1), 1)


def test_who_waits_for_whose_stream():
    def asked(stream, kind=Producer, device=(2, 0)):
        producer = kind(NUMBERS, (2, 4), device=device)
        tensor = tutti.Tensor(producer, ctx=types.SimpleNamespace(stream=stream))
        assert tensor.device == ("cuda", device[1])
        return producer.asked[-1]["stream"]

    assert [asked(stream) for stream in (None, 0, 1, 77)] == [-1, 1, 1, 77]
    assert asked(77, OldProducer, (2, 3)) == 77
    host = Producer(NUMBERS, (2, 4))
    tutti.Tensor(host, ctx=types.SimpleNamespace(stream=77))
    assert host.asked == [{"max_version": (1, 0)}], "an array on the host is asked for no stream"


def test_arrays_elsewhere_are_refused():
    layer, y = tutti.Layer("softmax", cols=4), np.empty((2, 4), "f")
    on_gpu = Producer(NUMBERS, (2, 4), device=(2, 1))
    refused(
        lambda: layer.forward(CTX, x=on_gpu, y=y),
        "softmax: x is on cuda 1, the context is on host 0",
    )
    interface = {
        "shape": (2, 4),
        "typestr": "<f4",
        "data": (NUMBERS.ctypes.data, False),
        "version": 2,
    }
    on_gpu = types.SimpleNamespace(__cuda_array_interface__=interface)
    refused(
        lambda: layer.forward(CTX, x=on_gpu, y=y),
        "softmax: x is on cuda ?, the context is on host 0",
    )


def test_what_is_bound_or_prepared_lives():
    x, y = np.arange(8, dtype="f").reshape(2, 4), np.empty((2, 4), "f")
    layer, gamma = tutti.Layer("rmsnorm", cols=4), np.full(4, 2, "f")
    seen = weakref.ref(gamma)
    layer.bind(gamma=gamma)
    del gamma
    gc.collect()
    call = layer.prepare(CTX, x=x, y=y)
    layer.bind(gamma=np.ones(4, "f"))
    gc.collect()
    assert seen() is not None, "the prepared call still reads it"
    call()
    twice = y.copy()
    layer.forward(CTX, x=x, y=y)
    assert np.array_equal(twice, 2 * y) and y.any()
    del call
    gc.collect()
    assert seen() is None
    seen = weakref.ref(x)
    tensor = tutti.Tensor(x)
    del x
    gc.collect()
    assert seen() is not None and tensor.shape == (2, 4)
    try:
        tensor.array.resize(100)
    except ValueError:
        pass
    else:
        raise AssertionError("memory that is seen was moved")


def test_convert():
    x = np.random.default_rng(1).standard_normal((3, 5)) * 1e3
    for dtype, numpy_name in (("f16", "float16"), ("f32", "float32"), ("f64", "float64")):
        assert np.array_equal(tutti.convert(x, dtype), x.astype(numpy_name))
    bits = np.float32([1 + 2**-8, 1 + 3 * 2**-8, -2, np.inf])  # ties to even
    made = tutti.convert(bits, "bf16")
    assert tutti.convert(made, "f32").tolist() == [1, 1 + 2**-6, -2, np.inf]
    assert tutti.convert(np.float32([2.5, -7, 300]), "u8").tolist() == [2, 0, 255]
    refused(lambda: tutti.convert(x[:, :2], "f32"), "not contiguous")
    refused(lambda: tutti.convert(x, "f8"), "want", "f16")


run_tests()
