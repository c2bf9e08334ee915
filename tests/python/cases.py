"""Every case of tests/data/cases.h5 by way of the Python module: so every kind of layer."""

from rig import *

from cases.numbers import FLOATS, NATIVE, pack, unpack
from simulate import cases

CTX = context()
STEP = {}


def raw(tensor):
    """As the memory has it, bf16 as bits."""
    return np.ascontiguousarray(pack(tensor.values, tensor.dtype))


def padded(array):
    """The same numbers, each row in a longer one."""
    if array.ndim < 2:
        return array
    wide = np.zeros((array.shape[0], array[:1].size + 3), array.dtype)
    rows = np.lib.stride_tricks.as_strided(wide, array.shape, (wide.strides[0], *array.strides[1:]))
    rows[...] = array
    return rows


class Place:
    """Where a test's arrays are, and by which interface the module sees them."""

    def __init__(self, share, read):
        self.share, self.read = share, read


PLACES = {
    "host": {
        "NumPy": Place(lambda array: array, lambda array: array),
        "padded rows": Place(padded, lambda array: array),
        "DLPack": Place(Exporter, lambda exporter: exporter.array),
    },
    "cuda": {
        "the CUDA array interface": Place(lambda array: DeviceArray(CTX, array), DeviceArray.numpy)
    },
}[BACKEND]


class Run:
    """A case's arrays, and its results once it is called."""

    def __init__(self, case, place):
        self.case, self.place, self.arrays = case, place, {}
        self.layer = tutti.Layer(case.layer, **case.options)
        self.rows = len(next(iter(case.inputs.values())).values)
        self.backward = bool(case.expected_grad)

    def tensor(self, name, array, dtype, contiguous=False):
        share = (lambda array: array) if contiguous and BACKEND == "host" else self.place.share
        self.arrays[name] = share(array)
        return tutti.Tensor(self.arrays[name], dtype if dtype == "bf16" else None)

    def given(self, tensors):
        return {
            name: self.tensor(name, raw(tensor), tensor.dtype) for name, tensor in tensors.items()
        }

    def result(self, name, like=None):
        """Room for a result, filled with NaN or other nonsense, in the case's own dimensions."""
        shape, dtype = self.layer.shape(name, self.rows)
        like = like and self.case.expected.get(name, self.case.expected_grad.get(name))
        shape, dtype = (
            (like.values.shape, like.dtype)
            if like and len(like.values.shape) > 1
            else (shape, dtype)
        )
        room = np.frombuffer(
            b"\xff" * (int(np.prod(shape)) * np.dtype(NATIVE[dtype]).itemsize), NATIVE[dtype]
        )
        return self.tensor(name, room.reshape(shape).copy(), dtype, name in self.params)

    @property
    def params(self):
        return {*self.layer.params, *("d" + name for name in self.layer.params)}

    def bind(self):
        for name, tensor in self.case.params.items():
            shape = self.layer.shape(name)[0]
            self.layer.bind(
                **{name: self.tensor(name, raw(tensor).reshape(shape), tensor.dtype, True)}
            )
            if "d" + name in self.case.expected_grad:
                self.layer.bind(**{"d" + name: self.result("d" + name)})

    def saved(self):
        return self.tensor(
            "saved", np.full(self.layer.shape("saved", self.rows)[0], 255, np.uint8), "u8", True
        )

    def __call__(self):
        case = self.case
        self.bind()
        inputs = self.given(case.inputs)
        wanted = {*case.expected, *(name[1:] for name in case.upstream)}
        common = {"first_row": int(case.attributes.get("first_row", 0)), "step": STEP[CTX]}
        common["saved"] = self.saved() if self.backward else None
        factors = {
            name: float(case.attributes.get(name, 1)) for name in ("loss_weight", "loss_scale")
        }
        STEP[CTX].set(CTX, **factors)
        outputs = {name: self.result(name, True) for name in sorted(wanted)}
        outputs = self.forward(inputs, outputs, common)
        if self.backward:
            inputs.update(self.replaced(outputs))
            gradients = self.given(case.upstream)
            gradients.update(
                (name, self.result(name, True))
                for name in case.expected_grad
                if name not in self.params
            )
            self.layer.backward(CTX, **inputs, **outputs, **gradients, **common)
        CTX.check()
        return {name: self.read(name) for name in (*case.expected, *case.expected_grad)}

    def forward(self, inputs, outputs, common):
        """With the outputs that are asked for, and those that the library says it needs."""
        while True:
            try:
                self.layer.forward(CTX, **inputs, **outputs, **common)
                return outputs
            except tutti.Error as refusal:
                missing = str(refusal).partition(": ")[2].removesuffix(" is NULL")
                if missing not in self.layer.tensors or missing in {**inputs, **outputs}:
                    raise
                outputs[missing] = self.result(missing)

    def replaced(self, outputs):
        """Inputs in whose place backward takes an output, as the library's table says."""
        kind = lib.tutti_layer_type_find(self.case.layer.encode())
        slots = [kind.slots[i] for i in range(kind.slot_count)]
        names = {
            ffi.string(slot.name).decode(): ffi.string(slot.replaces).decode()
            for slot in slots
            if slot.replaces
        }
        return {other: outputs[name] for name, other in names.items() if name in outputs}

    def read(self, name):
        tensor = {**self.case.expected, **self.case.expected_grad}[name]
        array = self.arrays[name]
        array = array if isinstance(array, np.ndarray) else self.place.read(array)
        return unpack(array, tensor.dtype).reshape(tensor.values.shape)


def holds(got, tensor):
    """Elements within the case's bound, or what they round to beyond the type's range."""
    with np.errstate(invalid="ignore"):
        within = np.abs(got - tensor.values) <= tensor.bound()
        beyond = np.abs(tensor.values) + tensor.bound() > FLOATS[tensor.dtype].most
        infinite = np.isinf(got) & beyond & (np.sign(got) == np.sign(tensor.values))
    same = (got == tensor.values) | (np.isnan(got) & np.isnan(tensor.values))
    return within | infinite | same


ALL = cases(CASES)


def run_all(place, wanted=lambda case: True):
    STEP[CTX] = tutti.Step(CTX)
    compared, kinds = 0, set()
    for case in filter(wanted, ALL):
        results = Run(case, place)()
        for name, tensor in {**case.expected, **case.expected_grad}.items():
            assert tensor.atol is not None, f"{case.name}: {name} has no bound"
            wrong = ~holds(results[name], tensor)
            first, want = np.argwhere(wrong)[:1].tolist(), tensor.values[wrong][:1]
            assert (
                not wrong.any()
            ), f"{case.name}: {name}{first} is {results[name][wrong][:1]}, want {want}"
            compared += 1
        kinds.add(case.layer)
    return compared, kinds


def test_every_case():
    for name, place in PLACES.items():
        compared, kinds = run_all(place)
        without = set(tutti.kinds()) ^ kinds
        assert not without, f"kinds without cases in tests/data/cases.h5, or cases of none: {without}"
        assert compared > 2 * len(ALL), compared
        print(f"  {len(ALL)} cases, {compared} tensors by way of {name}")


def test_a_wrong_result_is_noticed():
    STEP[CTX] = tutti.Step(CTX)
    noticed = 0
    for case in ALL:
        if not case.name.endswith(("-f32", "-bf16")) or not case.expected_grad:
            continue
        results = Run(case, next(iter(PLACES.values())))()
        for name, tensor in {**case.expected, **case.expected_grad}.items():
            magnitudes = np.where(np.isfinite(tensor.values), np.abs(tensor.values), 0)
            if not magnitudes.any():
                continue
            at = np.unravel_index(np.argmax(magnitudes), magnitudes.shape)
            results[name][at] += max(3 * tensor.bound()[at], 1e-3 * abs(tensor.values[at]))
            assert not holds(results[name], tensor).all(), (case.name, name)
            noticed += 1
    assert noticed > 50, noticed


run_tests()
