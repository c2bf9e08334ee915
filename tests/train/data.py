"""The data files, gzip or not, and every way in which they can be wrong: exit code 2 and a message that names the file."""

import gzip
import os
import shutil
import struct
import tempfile

from harness import *

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def attempt(change, np=1):
    """Runs on a copy of the small data after change(folder, images, labels), which gets the plain contents."""
    with tempfile.TemporaryDirectory(prefix="tutti-data-") as folder:
        for name in os.listdir(small_data()):
            shutil.copy(os.path.join(small_data(), name), folder)
        contents = []
        for name in (IMAGES, LABELS):
            with gzip.open(os.path.join(folder, name + ".gz")) as file:
                contents.append(file.read())
        change(folder, *contents)
        return run(["--data", folder, "--batch", 32, "--epochs", 1], np=np)


def replace(folder, name, content):
    """The plain file instead of the packed one."""
    os.remove(os.path.join(folder, name + ".gz"))
    write(folder, name, content)


def refused(change, name, words, np=1):
    result = attempt(change, np).want(2)
    assert name in result.err and words in result.err, f"want '{name}' and '{words}' in\n{result}"
    assert result.err.count(name) == 1, f"said more than once:\n{result}"


def test_packed_and_plain_are_the_same():
    with tempfile.TemporaryDirectory() as folder:
        make_data(folder, pack=False)
        plain = run(["--data", folder, "--batch", 32, "--epochs", 1]).want(0)
    packed = run(["--data", small_data(), "--batch", 32, "--epochs", 1]).want(0)
    assert plain.steps() == packed.steps()


def test_missing_folder():
    for np in few((1, 2)):
        result = run(["--data", "/nowhere/at/all"], np=np).want(2)
        assert "/nowhere/at/all/" in result.err and "dataset-fashion-mnist" in result.err, result
        assert result.err.count("/nowhere") == 1, result


def test_missing_file():
    name = "t10k-labels-idx1-ubyte"
    refused(lambda folder, *_: os.remove(os.path.join(folder, name + ".gz")), name, "does not exist", np=2)


def test_folder_for_a_file():
    def change(folder, *_):
        os.remove(os.path.join(folder, IMAGES + ".gz"))
        os.mkdir(os.path.join(folder, IMAGES + ".gz"))

    refused(change, IMAGES, "not a regular file")


def damage(where, keep=None):
    """Changes one byte of the packed images, or cuts the file there."""

    def change(folder, *_):
        path = os.path.join(folder, IMAGES + ".gz")
        with open(path, "rb") as file:
            content = bytearray(file.read())
        at = where(len(content))
        content[at] ^= 0x55
        write(folder, IMAGES + ".gz", content if keep is None else content[:at])

    return change


def test_corrupt_gzip():
    refused(damage(lambda size: size // 2), IMAGES + ".gz", "cannot be read")


def test_corrupt_checksum():
    refused(damage(lambda size: size - 6), IMAGES + ".gz", "cannot be read")


def test_truncated_gzip():
    refused(damage(lambda size: size // 2, "cut"), IMAGES + ".gz", "too early")
    refused(damage(lambda size: 2, "cut"), IMAGES + ".gz", "")


def test_truncated_checksum():
    refused(damage(lambda size: size - 3, "cut"), IMAGES + ".gz", "cannot be read")


def test_truncated_idx():
    refused(lambda folder, images, _: replace(folder, IMAGES, images[:-1]), IMAGES, "")
    refused(lambda folder, images, _: replace(folder, IMAGES, images[:10]), IMAGES, "too early")
    refused(lambda folder, images, _: replace(folder, IMAGES, b""), IMAGES, "too early")
    refused(lambda folder, images, _: write(folder, IMAGES + ".gz", gzip.compress(images[:-1])), IMAGES, "too early")


def test_trailing_bytes():
    refused(lambda folder, images, _: replace(folder, IMAGES, images + b"x"), IMAGES, "continues after")


def test_wrong_magic():
    refused(lambda folder, images, labels: replace(folder, IMAGES, labels), IMAGES, "want 0x00000803")
    refused(lambda folder, images, labels: replace(folder, LABELS, images), LABELS, "want 0x00000801")


def test_wrong_dimensions():
    def change(folder, images, _):
        replace(folder, IMAGES, images[:8] + struct.pack(">II", 14, 56) + images[16:])

    refused(change, IMAGES, "dimension 1 is 14, want 28")


def test_no_images():
    refused(lambda folder, images, _: replace(folder, IMAGES, idx_images([])), IMAGES, "is empty")


def test_promises_too_much():
    """A damaged header must not make the program allocate terabytes, packed or not."""

    def promise(images):
        return images[:4] + struct.pack(">I", 0xFFFFFFFF) + images[8:]

    refused(lambda folder, images, _: replace(folder, IMAGES, promise(images)), IMAGES, "declares")
    refused(
        lambda folder, images, _: write(folder, IMAGES + ".gz", gzip.compress(promise(images))), IMAGES, "declares"
    )


def test_label_out_of_range():
    def change(folder, _, labels):
        replace(folder, LABELS, labels[:20] + bytes([10]) + labels[21:])

    refused(change, LABELS, "label 12 is 10, want 0 to 9")


def test_counts_differ():
    refused(lambda folder, _, labels: replace(folder, LABELS, idx_labels(labels[8:-1])), LABELS, "649 labels for 650")


def test_one_rank_has_no_data():
    """Each rank gets its own arguments: the other one must not wait for it."""
    arguments = ["--batch", "32", "--epochs", "1"]
    good = command_line([*arguments, "--data", small_data()], np=None)
    bad = command_line([*arguments, "--data", "/nowhere"], np=None)
    for first, second, rank in ((good, bad, 1), (bad, good, 0)):
        command = [*launched(2)[:1], "-np", "1", *first, ":", "-np", "1", *second]
        result = finish(start(command), command).want(2)
        assert "/nowhere" in result.err and ("rank 1: " in result.err) == (rank == 1), result


run_tests()
