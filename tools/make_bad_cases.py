#!/usr/bin/env python3
"""Writes malformed case files, one fault each, for tests of messages: tools/make_bad_cases.py FOLDER

FOLDER/index.txt lists each file's fault and the words that the message must contain.
"""

import os
import sys

sys.dont_write_bytecode = True  # leave the source tree as it is

import interpreter  # noqa: E402

_reason = interpreter.ensure(sys.argv)
if _reason:
    sys.exit(_reason)

import h5py  # noqa: E402
import numpy as np  # noqa: E402
from cases.record import CaseFile, make_group  # noqa: E402

FAULTS = []


def put(file, path, values, dtype, bound=None):
    make_group(file, f"cases/mine/{path}".rpartition("/")[0])
    dataset = mine(file).create_dataset(path, data=values, track_times=False)
    dataset.attrs["dtype"] = np.bytes_(dtype)
    if bound:
        dataset.attrs["atol"] = dataset.attrs["rtol"] = bound


def mine(file):
    return file["cases/mine"]


def case(file, layer, options):
    group = make_group(file, "cases/mine")
    group.attrs["layer"], group.attrs["options"] = np.bytes_(layer), np.bytes_(options)


# Right files


def softmax(file, dtype="f32"):
    """Of forward only."""
    case(file, "softmax", "cols=2" if dtype == "f32" else f"cols=2,dtype={dtype}")
    put(file, "inputs/x", np.zeros((3, 2)), dtype)
    put(file, "expected/y", np.full((3, 2), 0.5), dtype, 1e-6)


def softmax_and_back(file):
    softmax(file)
    put(file, "upstream/dy", np.ones((3, 2)), "f32")
    put(file, "expected_grad/dx", np.zeros((3, 2)), "f32", 1e-6)


def rmsnorm(file):
    case(file, "rmsnorm", "cols=2,eps=0")
    put(file, "inputs/x", np.ones((3, 2)), "f32")
    put(file, "params/gamma", np.ones(2), "f32")
    put(file, "expected/y", np.ones((3, 2)), "f32")


def cross_entropy(file):
    case(file, "cross_entropy", "cols=2")
    put(file, "inputs/logits", np.zeros((3, 2)), "f32")
    put(file, "inputs/labels", np.zeros(3, np.int32), "i32")
    put(file, "expected/loss", np.full(3, np.log(2)), "f32")


def embedding(file):
    case(file, "embedding", "vocab=4,cols=2")
    put(file, "inputs/tokens", np.array([0, 3], np.int32), "i32")
    put(file, "params/weight", np.ones((4, 2)), "f32")
    put(file, "expected/y", np.ones((2, 2)), "f32")


def fault(words, what, base=softmax):
    """Marks a function that damages a right file.  Its name is the file's; the message must contain the words."""

    def enlist(function):
        FAULTS.append((function.__name__.replace("_", "-"), words, what, base, function))
        return function

    return enlist


def replace(file, path, values, dtype="f32", **options):
    """Replaces a dataset of the case."""
    del mine(file)[path]
    dataset = mine(file).create_dataset(path, data=values, track_times=False, **options)
    dataset.attrs["dtype"] = np.bytes_(dtype)


def replace_by(file, path, dims, kind, prepare=lambda layout: None, values=None):
    """The same, with a type or a layout that h5py's high-level API does not offer."""
    del mine(file)[path]
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_obj_track_times(False)
    prepare(layout)
    made = h5py.h5d.create(mine(file).id, path.encode(), kind, h5py.h5s.create_simple(dims), layout)
    if values is not None:
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, values, kind)
    mine(file)[path].attrs["dtype"] = np.bytes_("f32")


# The file


@fault("format", "no attribute format")
def format_missing(file):
    del file.attrs["format"]


@fault("tutti-checkpoint", "another format")
def format_other(file):
    file.attrs["format"] = np.bytes_("tutti-checkpoint")


@fault("version", "a newer major version")
def version_newer(file):
    file.attrs["format_version"] = np.array([2, 0], np.int32)


@fault("cases", "no group cases")
def cases_missing(file):
    del file["cases"]


@fault("cases", "cases is a dataset")
def cases_dataset(file):
    del file["cases"]
    file["cases"] = np.zeros(3)


@fault("cases", "no case")
def cases_none(file):
    del file["cases/mine"]


# The case


@fault("layer", "no attribute layer")
def layer_missing(file):
    del mine(file).attrs["layer"]


@fault("softmaxx", "no such layer")
def layer_unknown(file):
    mine(file).attrs["layer"] = np.bytes_("softmaxx")


@fault("cols", "no attribute options, though cols must be given")
def options_missing(file):
    del mine(file).attrs["options"]


@fault("option", "options of 1100 letters")
def options_long(file):
    mine(file).attrs["options"] = np.bytes_("cols=2" + " " * 1100)


@fault("colls", "no such option")
def option_unknown(file):
    mine(file).attrs["options"] = np.bytes_("cols=2,colls=3")


@fault("cols", "an option that must be given is not")
def option_missing(file):
    mine(file).attrs["options"] = np.bytes_("log=1")


@fault("cols", "an option that is no number")
def option_value(file):
    mine(file).attrs["options"] = np.bytes_("cols=two")


@fault("first_row", "a negative first row")
def first_row_negative(file):
    mine(file).attrs["first_row"] = -1


@fault("first_row", "a first row that does not fit")
def first_row_huge(file):
    mine(file).attrs["first_row"] = 2**62


@fault("loss_scale", "a loss scale of 0", cross_entropy)
def loss_scale_zero(file):
    mine(file).attrs["loss_scale"] = 0.0


@fault("loss_weight", "a loss weight that is not a number", cross_entropy)
def loss_weight_nan(file):
    mine(file).attrs["loss_weight"] = np.nan


@fault("name", "a line break in the name of a case")
def name_line(file):
    file.move("cases/mine", "cases/so\nft")


@fault("name", "a name of 300 letters")
def name_long(file):
    file.move("cases/mine", "cases/" + 300 * "s")


@fault("notes", "a dataset that nobody asks for")
def stray_dataset(file):
    mine(file)["notes"] = np.zeros(3)


@fault("output", "a group that nobody asks for")
def stray_group(file):
    make_group(file, "cases/mine/output")


# Which tensors there are


@fault("inputs", "no inputs")
def inputs_missing(file):
    del mine(file)["inputs"]


@fault("inputs/x is missing", "an input is missing")
def input_missing(file):
    del mine(file)["inputs/x"]


@fault("mask", "an input that the layer does not have")
def input_unknown(file):
    put(file, "inputs/mask", np.zeros((3, 2)), "f32")


@fault("gamma", "a parameter is missing", rmsnorm)
def param_missing(file):
    del mine(file)["params/gamma"]


@fault("beta", "a parameter that the layer does not have", rmsnorm)
def param_unknown(file):
    put(file, "params/beta", np.ones(2), "f32")


@fault("dy", "an upstream gradient is missing", softmax_and_back)
def upstream_missing(file):
    del mine(file)["upstream/dy"]


@fault("upstream", "gradients expected, but no upstream", softmax_and_back)
def upstream_none(file):
    del mine(file)["upstream"]


@fault("expected", "nothing is expected")
def expected_none(file):
    del mine(file)["expected"]


@fault("z", "a result that the layer does not have")
def expected_unknown(file):
    put(file, "expected/z", np.zeros((3, 2)), "f32")


@fault("dgamma", "the gradient of a parameter that the layer does not have", softmax_and_back)
def grad_unknown(file):
    put(file, "expected_grad/dgamma", np.zeros(2), "f32")


@fault("inputs/x", "a group in the place of a tensor")
def tensor_group(file):
    del mine(file)["inputs/x"]
    make_group(file, "cases/mine/inputs/x")


@fault("inputs", "a tensor in the place of a group")
def group_tensor(file):
    del mine(file)["inputs"]
    put(file, "inputs", np.zeros((3, 2)), "f32")


# Shapes


@fault("upstream/dy", "fewer rows than x", softmax_and_back)
def rows_differ(file):
    replace(file, "upstream/dy", np.ones((2, 2)))


@fault("y", "other columns than x")
def cols_differ(file):
    replace(file, "expected/y", np.full((3, 3), 1 / 3))


@fault("x", "other columns than the layer's")
def cols_not_the_layers(file):
    replace(file, "inputs/x", np.zeros((3, 5)))


@fault("gamma", "a parameter of another shape", rmsnorm)
def param_shape(file):
    replace(file, "params/gamma", np.ones((2, 1)))


@fault("dgamma", "a parameter's gradient of another shape", rmsnorm)
def param_grad_shape(file):
    put(file, "upstream/dy", np.ones((3, 2)), "f32")
    put(file, "expected_grad/dgamma", np.ones(3), "f32")


@fault("inputs/x", "five dimensions")
def dims_five(file):
    replace(file, "inputs/x", np.zeros((3, 1, 1, 1, 2)))


@fault("inputs/x", "no dimension")
def dims_none(file):
    replace(file, "inputs/x", 0.0)


@fault("inputs/x", "no dataspace")
def dims_null(file):
    replace(file, "inputs/x", h5py.Empty("f4"))


@fault("inputs/x", "a tensor that was never written")
def unwritten(file):
    replace_by(file, "inputs/x", (3, 2), h5py.h5t.IEEE_F32LE)


@fault("inputs/x", "2^41 rows, never written")
def rows_huge(file):
    replace_by(file, "inputs/x", (2**41, 2), h5py.h5t.IEEE_F32LE)


@fault("inputs/x", "more bytes than 2^64")
def dims_overflow(file):
    replace_by(file, "inputs/x", (2**31, 2**31, 2**2), h5py.h5t.IEEE_F32LE)


# Types


@fault("x", "integers where the layer wants f32")
def type_integer(file):
    replace(file, "inputs/x", np.zeros((3, 2), np.int32), "i32")


@fault("inputs/x", "text")
def type_text(file):
    replace(file, "inputs/x", np.full((3, 2), b"zero"))


@fault("inputs/x: is of another type, want little-endian numbers", "a compound type")
def type_compound(file):
    replace(file, "inputs/x", np.zeros((3, 2), [("re", "f4"), ("im", "f4")]))


@fault("inputs/x: is of another type, want little-endian numbers", "big-endian numbers")
def type_big_endian(file):
    replace(file, "inputs/x", np.zeros((3, 2), ">f4"))


@fault("inputs/x: is of another type, want little-endian numbers", "floats of 19 bits")
def type_other_float(file):
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(18, 10, 8, 0, 10)
    kind.set_precision(19)
    kind.set_ebias(127)
    replace_by(file, "inputs/x", (3, 2), kind, values=np.zeros((3, 2), np.uint32))


@fault("f8", "no such dtype")
def dtype_unknown(file):
    mine(file)["inputs/x"].attrs["dtype"] = np.bytes_("f8")


@fault("dtype", "dtype is a number")
def dtype_number(file):
    mine(file)["inputs/x"].attrs["dtype"] = 32


@fault("inputs/x", "stored in a narrower type than its own", lambda file: softmax(file, "f64"))
def dtype_wider(file):
    replace(file, "inputs/x", np.zeros((3, 2), np.float32), "f64")


@fault("x", "another type than the layer's")
def dtype_not_the_layers(file):
    mine(file)["inputs/x"].attrs["dtype"] = np.bytes_("bf16")


@fault("y", "a result of another type than the layer's")
def dtype_of_result(file):
    mine(file)["expected/y"].attrs["dtype"] = np.bytes_("f64")


# Values


@fault("inputs/x", "0.1, which is no number of bf16", lambda file: softmax(file, "bf16"))
def value_not_bf16(file):
    replace(file, "inputs/x", np.full((3, 2), 0.1, np.float32), "bf16")


@fault("inputs/x", "10^6, which is beyond f16", lambda file: softmax(file, "f16"))
def value_beyond_f16(file):
    replace(file, "inputs/x", np.full((3, 2), 1e6, np.float32), "f16")


@fault("inputs/x", "0.1 in f64, which is no number of f32")
def value_not_f32(file):
    replace(file, "inputs/x", np.full((3, 2), 0.1))


@fault("labels", "a label that does not fit in 32 bits", cross_entropy)
def value_label(file):
    replace(file, "inputs/labels", np.array([0, 1, 2**40]), "i32")


@fault("labels", "labels in floats", cross_entropy)
def label_float(file):
    replace(file, "inputs/labels", np.zeros(3), "f32")


@fault("label", "a label that is no class", cross_entropy)
def label_outside(file):
    replace(file, "inputs/labels", np.array([0, 1, 2], np.int32), "i32")


@fault("token", "a token that is not in the table", embedding)
def token_outside(file):
    replace(file, "inputs/tokens", np.array([0, 4], np.int32), "i32")


# Bounds


def _bound(file, **attributes):
    for key, value in attributes.items():
        mine(file)["expected/y"].attrs[key] = value


@fault("atol", "a bound that is not a number")
def bound_nan(file):
    _bound(file, atol=np.nan)


@fault("atol", "a negative bound")
def bound_negative(file):
    _bound(file, atol=-1e-6)


@fault("rtol", "an infinite bound")
def bound_infinite(file):
    _bound(file, rtol=np.inf)


@fault("rtol", "atol without rtol")
def bound_half(file):
    del mine(file)["expected/y"].attrs["rtol"]


@fault("atol", "two numbers for atol")
def bound_two(file):
    _bound(file, atol=np.array([1e-6, 1e-6]))


# Storage


@fault("inputs/x", "compressed")
def storage_compressed(file):
    replace(file, "inputs/x", np.zeros((3, 2), np.float32), chunks=(3, 2), compression="gzip")


@fault("inputs/x", "compact: in the object's header")
def storage_compact(file):
    kind = h5py.h5t.IEEE_F32LE
    replace_by(
        file,
        "inputs/x",
        (3, 2),
        kind,
        lambda layout: layout.set_layout(h5py.h5d.COMPACT),
        np.zeros((3, 2), "<f4"),
    )


@fault("inputs/x", "values in another file")
def storage_external(file):
    del mine(file)["inputs/x"]
    dataset = mine(file).create_dataset(
        "inputs/x", (3, 2), "<f4", external=[("elsewhere.bin", 0, 24)], track_times=False
    )
    dataset.attrs["dtype"] = np.bytes_("f32")


@fault("inputs/x", "a virtual dataset")
def storage_virtual(file):
    space = h5py.h5s.create_simple((3, 2))
    replace_by(
        file,
        "inputs/x",
        (3, 2),
        h5py.h5t.IEEE_F32LE,
        lambda layout: layout.set_virtual(space, b"elsewhere.h5", b"x", space),
    )


# Links


@fault("inputs/x", "a soft link")
def link_soft(file):
    file.move("cases/mine/inputs/x", "elsewhere")
    mine(file)["inputs/x"] = h5py.SoftLink("/elsewhere")


@fault("inputs/x", "a soft link to nothing")
def link_dangling(file):
    del mine(file)["inputs/x"]
    mine(file)["inputs/x"] = h5py.SoftLink("/nowhere")


@fault("inputs/x", "an external link")
def link_external(file):
    del mine(file)["inputs/x"]
    mine(file)["inputs/x"] = h5py.ExternalLink("elsewhere.h5", "/x")


@fault("inputs", "a group that is its own ancestor, by a hard link")
def link_loop(file):
    del mine(file)["inputs"]
    mine(file)["inputs"] = file["cases"]


@fault("upstream/dy", "one tensor under two names", softmax_and_back)
def link_shared(file):
    del mine(file)["upstream/dy"]
    mine(file)["upstream/dy"] = mine(file)["inputs/x"]


# Bytes of the file


def _whole(path):
    with open(path, "rb") as file:
        return file.read()


def spoil_bytes(folder, good):
    """Writes files that HDF5 itself cannot read; yields lines of the index."""
    content = _whole(good)
    header = content.index(b"dtype") - 8
    flipped = bytearray(content)
    flipped[header] ^= 0x10
    files = (
        ("empty", b"", "no bytes"),
        ("text", b"These are not the cases you are looking for.\n" * 20, "a text"),
        ("truncated-half", content[: len(content) // 2], "the first half of a file"),
        ("truncated-tail", content[:-40], "the last 40 bytes are missing"),
        ("signature-only", content[:8], "the first 8 bytes of a file"),
        ("header-bit", bytes(flipped), "one bit of an object's header is flipped"),
    )
    for name, data, what in files:
        with open(os.path.join(folder, f"{name}.h5"), "wb") as file:
            file.write(data)
        yield name, "", what


def main(folder):
    os.makedirs(folder, exist_ok=True)
    good = os.path.join(folder, "good.h5")
    lines = []
    for name, words, what, base, spoil in [
        ("good", "", "nothing: exit code 0", softmax, lambda file: None),
        *FAULTS,
    ]:
        file = CaseFile(os.path.join(folder, f"{name}.h5"))
        base(file.file)
        spoil(file.file)
        file.close()
        lines.append((name, words, what))
    lines += spoil_bytes(folder, good)
    with open(os.path.join(folder, "index.txt"), "w") as index:
        index.write(
            "# file | the message contains (besides the file's name) | what is wrong.  By tools/make_bad_cases.py\n"
        )
        index.writelines(f"{name}.h5 | {words} | {what}\n" for name, words, what in lines)
    print(f"{folder}: {len(lines)} files")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: tools/make_bad_cases.py FOLDER")
    main(sys.argv[1])
