"""Tutti's layers by name, on NumPy arrays and on anything with DLPack or the CUDA array interface.

docs/python.md is the guide.  Kinds of layer, their options and tensors come from the library's own
tables: a new kind changes nothing here.
"""

import functools
import math
import operator

from tutti_arrays import Tensor, convert, empty
from tutti_library import NAMES, Error, Uncopied, check, ffi, lib, text, __version__

__all__ = ["Call", "Context", "Error", "Layer", "Step", "Tensor", "build_info", "convert", "kinds"]

_BACKENDS = {code: name.rpartition("_")[2].lower()
             for code, name in sorted(ffi.typeof("tutti_backend").elements.items())}
# where each part of a call's tensors begins, in pointers
_PARTS = {part: ffi.offsetof("tutti_call", part) // ffi.sizeof("void *")
          for part in ("in", "out", "upstream", "din")}
_INT64 = -(1 << 63), (1 << 63) - 1


def __dir__():
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


def _whole(what, value, least=-(1 << 31), most=(1 << 31) - 1):
    try:
        number = operator.index(value)
    except TypeError as refusal:
        raise Error(f"{what} is {value!r}, want a whole number") from refusal
    if not least <= number <= most:
        raise Error(f"{what} is {number}, want {least} to {most}")
    return number


def _truth(what, value):
    try:
        if value in (False, True):
            return bool(value)
    except (TypeError, ValueError):  # of an array's own
        pass
    raise Error(f"{what} is {value!r}, want True or False")


def _live(ctx):
    """A context's handle."""
    if not isinstance(ctx, Context):
        raise Error(f"the context is {ctx!r}, want a tutti.Context")
    return ctx._live()


def build_info():
    """What the library was built with and what it finds here, one line a component."""
    return text(lib.tutti_build_info())


@functools.lru_cache(maxsize=None)
def kinds():
    """{name: {option: (type, default)}} of all kinds of layer; without a default it must be given.
    """
    types = map(lib.tutti_layer_type_get, range(lib.tutti_layer_type_count()))
    return {text(kind.name): {text(option.name): (text(option.type), text(option.default_value))
                               for option in kind.options[0 : kind.option_count]}
            for kind in types}


class _Owned:
    """A handle that is destroyed once its context's work is complete, as its header asks."""

    def __init__(self, pointer, destroy, ctx):
        box = ffi.getctype(ffi.typeof(pointer), "*")
        self.pointer = ffi.gc(pointer, lambda handle: destroy(ffi.new(box, handle)))
        self.ctx = ctx

    def __del__(self):
        if self.ctx._retired is not None:
            self.ctx._retired.append(self.pointer)


class Context(Uncopied):
    """A backend ("host", "cuda", "auto"), a device and a stream on it: the caller's, or its own.

    stream: a number, or one of PyTorch's, which is kept alive and says its device.
    What is called on the caller's stream is in order with the caller's own work there.  A context
    with a stream of its own keeps alive what its calls use until `synchronize`, `check` or `close`,
    before which nobody may read their results.
    """

    _handle = _retired = _used = None

    def __init__(self, backend="auto", device=None, stream=None, threads=0):
        if backend not in _BACKENDS.values():
            raise Error(f"context: backend is {backend!r}, want {', '.join(_BACKENDS.values())}")
        box = ffi.new("tutti_context **")
        device = getattr(stream, "device_index", 0) if device is None else device
        device, threads = _whole("context: device", device), _whole("context: threads", threads)
        if stream is None:
            code = next(code for code, name in _BACKENDS.items() if name == backend)
            size = ffi.sizeof("tutti_context_desc")
            desc = ffi.new("tutti_context_desc *", (size, code, device, threads))
            check(lib.tutti_context_create(desc, box))
        elif backend == "host" or not hasattr(lib, "tutti_context_create_on_stream"):
            raise Error("context: a stream is given, want None on the host or without CUDA")
        else:
            number = _whole("context: stream", getattr(stream, "cuda_stream", stream), 0, 2**64 - 1)
            number = ffi.cast("cudaStream_t", number)
            check(lib.tutti_context_create_on_stream(device, number, box))
        destroy = lib.tutti_context_destroy
        self._handle = ffi.gc(box[0], lambda made: destroy(ffi.new("tutti_context **", made)))
        self.backend = _BACKENDS[lib.tutti_context_backend(box[0])]
        self.device = lib.tutti_context_device(box[0])
        self.stream, self._owner = None, stream
        if self.backend == "cuda":
            self.stream = int(ffi.cast("uintptr_t", lib.tutti_context_stream(box[0])))
            self._retired, self._used = [], set() if stream is None else None

    def _live(self):
        if self._handle is None:
            raise Error("context: it is closed", "TUTTI_ERR_STATE")
        return self._handle

    def _wait(self, function):
        check(function(self._live()))
        for done in (self._retired, self._used):
            if done:
                done.clear()

    def synchronize(self):
        """Waits until all work is complete."""
        self._wait(lib.tutti_context_synchronize)

    def check(self):
        """Waits, then raises an Error for faults found in the data: a label out of range, say."""
        self._wait(lib.tutti_context_check)

    def close(self):
        """Waits and destroys the context; closing it again does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            ffi.release(handle)
            self._retired = self._used = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    __del__ = close


@functools.lru_cache(maxsize=None)
def _host():
    """Where options and parameters are checked, whatever the device of the calls."""
    return Context("host", threads=1)


class Step(Uncopied):
    """A step block: numbers that change from step to step, in memory of a context's device.

    values: fields of tutti_step_values; step and loss_weight are 1 unless given, the others 0.
    """

    def __init__(self, ctx, **values):
        box = ffi.new("tutti_step_block **")
        check(lib.tutti_step_block_create(_live(ctx), box))
        self._owned = _Owned(box[0], lib.tutti_step_block_destroy, ctx)
        self.values = {"step": 1, "loss_weight": 1}
        self.set(ctx, **values)

    def set(self, ctx, **values):
        """Changes these values, in the order of the context's stream."""
        values = {**self.values, **values}
        try:
            block = ffi.new("tutti_step_values *", values)
        except (KeyError, OverflowError, TypeError) as refusal:
            fields = ", ".join(dict(ffi.typeof("tutti_step_values").fields))
            raise Error(f"step: {refusal}; want numbers named {fields}") from refusal
        check(lib.tutti_step_block_set(self._owned.pointer, _live(ctx), block))
        self.values = values


class Call(Uncopied):
    """Forward or backward with certain arrays, to be called any number of times (Layer.prepare).
    It keeps alive the arrays, and the parameters that were bound when it was prepared."""

    __slots__ = ("_run", "_ctx", "_layer", "_struct", "_kept")

    def __call__(self):
        if self._ctx._used is not None:
            self._ctx._used.add(self)
        check(self._run(self._layer, self._ctx._live(), self._struct))

    def plan(self):
        """Does every search and allocation, so that the call may be captured in a CUDA graph."""
        check(lib.tutti_layer_plan(self._layer, self._ctx._live(), self._struct))


class Layer(Uncopied):
    """A layer of a kind, with the options of the library's table (`kinds`), on any context.

    dtype, where a kind has no option of that name, sets all its types that are not given.  An
    option that is a word of Python's has a _ behind it: in_=4.
    """

    def __init__(self, kind, /, **options):
        self.kind, self._options = kind, _options_text(kind, options)
        self._bound, self._made = {}, {}
        self._model = self._make(_host(), {}).pointer
        # {name: (whether it has rows, dims of a row, type)}, {name: (place, whether it is written)}
        self._shapes, self._forward, self._backward = {}, {}, {}
        self._read_params(self._read_slots())

    def __repr__(self):
        return f"<tutti.Layer {self.kind} {self._options}>"

    def _read_slots(self):
        """Returns the types that options have set, which determine the arithmetic's."""
        kind, types, gradients = lib.tutti_layer_type_of(self._model), set(), {}
        for i in range(kind.slot_count):
            slot, shape = kind.slots[i], ffi.new("tutti_slot_shape *")
            check(lib.tutti_layer_slot_shape(self._model, i, shape))
            if text(slot.dtype) in kinds()[self.kind]:
                types.add(shape.dtype)
            if slot.role == lib.TUTTI_SLOT_KEPT:
                continue
            name, is_in = text(slot.name), slot.role == lib.TUTTI_SLOT_IN
            lines = (shape.lines, shape.cols // shape.lines)
            dims = lines if slot.lines else lines[1:] if slot.cols else ()
            of_rows = not shape.flags & lib.TUTTI_SLOT_SUM
            self._shapes[name] = (of_rows, dims, NAMES[shape.dtype])
            place = _PARTS["in" if is_in else "out"] + shape.index
            self._forward[name], self._backward[name] = (place, not is_in), (place, False)
            if shape.flags & lib.TUTTI_SLOT_GRAD:
                place = _PARTS["din" if is_in else "upstream"] + shape.index
                gradients["d" + name] = (place, is_in)
                self._shapes["d" + name] = self._shapes[name]
        self._backward.update(gradients)
        return types

    def _read_params(self, types):
        params = self._params_of(self._model)
        self.params = tuple(text(param.name) for param in params)
        types.update(param.value.dtype for param in params)
        for name, param in zip(self.params, params):
            dims = tuple(param.value.dims[0 : param.value.ndim])
            self._shapes[name] = (False, dims, NAMES[param.value.dtype])
            wide = lib.TUTTI_F64 in types
            self._shapes["d" + name] = (False, dims, "f64" if wide else "f32")

    @staticmethod
    def _params_of(layer):
        return [lib.tutti_layer_param(layer, i) for i in range(lib.tutti_layer_param_count(layer))]

    def _make(self, ctx, bound):
        box = ffi.new("tutti_layer **")
        kind, options = self.kind.encode(), self._options.encode()
        check(lib.tutti_layer_create_by_name(ctx._live(), kind, options, box))
        made = _Owned(box[0], lib.tutti_layer_destroy, ctx)
        for param in self._params_of(made.pointer):
            name = text(param.name)
            if name in bound:
                grad = bound["d" + name]._struct if "d" + name in bound else ffi.NULL
                check(lib.tutti_param_bind(param, bound[name]._struct, grad))
        return made

    def _tensor(self, name, array, ctx=None, gaps=True):
        try:
            if type(array) is Tensor:
                tensor = array
            else:
                want = self._shapes[name][2] if name in self._shapes else None
                tensor = Tensor(array, ctx=ctx, _want=want)
            if not gaps:
                tensor._bytes()
            return tensor
        except Error as refusal:
            raise Error(f"{self.kind}: {name}: {refusal}") from refusal

    def _require(self, name, tensor, ctx, written):
        """That the context reaches the tensor and, where it is to, may write it."""
        backend, device = tensor.device
        if backend != ctx.backend or device not in (None, ctx.device):
            raise Error(f"{self.kind}: {name} is on {backend} {'?' if device is None else device}, "
                        f"the context is on {ctx.backend} {ctx.device}")
        if written and tensor.read_only:
            raise Error(f"{self.kind}: {name} is read-only")

    @property
    def tensors(self):
        """The names of all tensors of the calls, then of the parameters."""
        return tuple(self._shapes)

    def shape(self, name, rows=()):
        """(shape, type) of a tensor or parameter, or of "saved", for so many rows: a number, or
        a tuple of dimensions."""
        rows = rows if isinstance(rows, tuple) else (rows,)
        rows = tuple(_whole(f"{self.kind}: rows", number, 0, 2**59) for number in rows)
        if name == "saved":
            return (lib.tutti_layer_saved_bytes(self._model, math.prod(rows)),), "u8"
        if name not in self._shapes:
            raise self._unknown(name, self._shapes)
        has_rows, dims, dtype = self._shapes[name]
        return (rows + dims if has_rows else dims) or (1,), dtype

    def empty(self, name, rows=()):
        """A new NumPy array for a tensor (`shape`).  Of bf16, where there is no ml_dtypes: a Tensor
        of an array of uint16, its bits."""
        return empty(*self.shape(name, rows))

    def bind(self, **arrays):
        """Gives parameters the caller's arrays, which the layer keeps alive, and their gradients:
        gamma=…, dgamma=….  None takes one back; a gradient without an array is not computed.
        Calls prepared before keep theirs."""
        known, bound = {*self.params, *("d" + name for name in self.params)}, dict(self._bound)
        for name, array in arrays.items():
            if name not in known:
                raise self._unknown(name, sorted(known))
            bound[name] = None if array is None else self._tensor(name, array)
        bound = {name: tensor for name, tensor in bound.items() if tensor is not None}
        for name in bound:
            if name not in self.params and name[1:] not in bound:
                raise Error(f"{self.kind}: {name} is given without {name[1:]}")
        self._make(_host(), bound)
        self._bound, self._made = bound, {}

    def prepare(self, ctx, backward=False, *, saved=None, first_row=None, leaves=(), step=None,
                accumulate=False, **arrays):
        """A Call of forward or backward, with their arguments."""
        places = self._backward if backward else self._forward
        _live(ctx)
        if ctx not in self._made:
            for name, tensor in self._bound.items():
                self._require(name, tensor, ctx, name not in self.params)
            self._made[ctx] = self._make(ctx, self._bound)
        made = self._made[ctx]
        struct = ffi.new("tutti_call *")
        slots, kept = ffi.cast("const tutti_tensor **", struct), [made, self._bound, step]
        for name, array in arrays.items():
            if name not in places:
                raise self._unknown(name, places)
            if array is None:
                continue
            place, written = places[name]
            tensor = self._tensor(name, array, ctx)
            self._require(name, tensor, ctx, written)
            slots[place] = tensor._struct
            kept.append(tensor)
        if saved is not None:
            kept.append(self._tensor("saved", saved, ctx, gaps=False))
            self._require("saved", kept[-1], ctx, not backward)
            struct.saved, struct.saved_bytes = kept[-1]._struct.data, kept[-1]._bytes()
        if first_row is not None:
            first_row = _whole(f"{self.kind}: first_row", first_row, *_INT64)
            kept.append(ffi.new("int64_t *", first_row))
            struct.first_row = kept[-1]
        try:
            leaves = list(leaves)
        except TypeError as refusal:
            raise Error(f"{self.kind}: leaves is {leaves!r}, want the first row of each") from refusal
        if leaves:
            leaves = [_whole(f"{self.kind}: a row of leaves", row, *_INT64) for row in leaves]
            kept.append(ffi.new("int64_t[]", leaves))
            struct.leaves, struct.leaf_rows = len(leaves), kept[-1]
        if step is not None:
            if not isinstance(step, Step):
                raise Error(f"{self.kind}: step is {step!r}, want a tutti.Step")
            struct.step = step._owned.pointer
        accumulate = _truth(f"{self.kind}: accumulate", accumulate)
        struct.flags = lib.TUTTI_GRAD_ACCUMULATE if accumulate else 0
        call = Call()
        call._run = lib.tutti_layer_backward if backward else lib.tutti_layer_forward
        call._ctx, call._layer, call._struct, call._kept = ctx, made.pointer, struct, kept
        return call

    def forward(self, ctx, **arrays):
        """Computes the outputs given, from the inputs given.  saved: memory for what backward
        needs, in bytes (`shape`).  first_row, leaves (the first row of each) and step: as
        tutti/layer.h says."""
        self.prepare(ctx, False, **arrays)()

    def backward(self, ctx, **arrays):
        """Computes the gradients of inputs that are given, from those of outputs, and those of
        parameters that are bound, which it overwrites or, with accumulate=True, adds to."""
        self.prepare(ctx, True, **arrays)()

    def _unknown(self, name, known):
        bound = "; parameters are bound" if name in self._shapes else ""
        there = ", ".join(known) or "none"
        return Error(f"{self.kind}: there is no {name!r} here{bound}; there are {there}")


def _options_text(kind, options):
    if kind not in kinds():
        raise Error(f"there is no kind of layer {kind!r}; there are {', '.join(kinds())}")
    known, given = kinds()[kind], {}
    for name, value in options.items():
        name = name.rstrip("_") if name not in known else name
        given[name] = str(value)
        if "," in given[name]:
            raise Error(f"{kind}: {name} is {value!r}, want no comma")
    types = [name for name, (type_, _) in known.items() if type_ == "dtype"]
    if "dtype" in given and "dtype" not in known and types:
        dtype = given.pop("dtype")
        given = {**dict.fromkeys(types, dtype), **given}
    return ",".join(f"{name}={value}" for name, value in given.items())
