"""The bytes task: learning, held-out bytes, the same order on any number of ranks, bad files, samples."""

import math
import os
import random
import re
import signal
import tempfile

from harness import *

SMALL = ["--width", 32, "--depth", 2, "--embedding", 8, "--context", 6]
SHORT = [*SMALL, "--batch", 64, "--epochs", 1]
WORDS = "a the old red cat dog house sees likes leaves and never again".split()
HELD_OUT = re.compile(r"\| held-out loss (\d+\.\d{4}) nats \| (\d+\.\d{4}) bits a byte$")

_folder = tempfile.TemporaryDirectory(prefix="tutti-bytes-")


def path_of(name, content):
    """A file of this content."""
    write(_folder.name, name, content)
    return os.path.join(_folder.name, name)


def sentences(size, seed=1):
    """Random sentences of a few words: a language that a small model learns in a moment."""
    rng = random.Random(seed)
    text = ""
    while len(text) < size:
        text += " ".join(rng.choices(WORDS, k=6)) + ".\n"
    return text[:size].encode()


def train(args, files, np=1):
    """The result of a run, and its losses with all digits."""
    losses = os.path.join(_folder.name, "losses")
    result = run(["--task", "bytes", "--log-every", 1, "--losses", losses, *args, *files], np=np).want(0)
    with open(losses) as file:
        return result, [float(line.split()[2]) for line in file]


def held_out(result):
    match = HELD_OUT.search(result.out.rstrip("\n").splitlines()[-1])
    assert match, f"the last line does not end in the held-out loss:\n{result}"
    nats, bits = float(match[1]), float(match[2])
    assert abs(nats / math.log(2) - bits) < 2e-4, result
    return nats


def test_default_corpus():
    folder = "/usr/share/common-licenses"
    if not os.path.isdir(folder):
        skip(f"no {folder} here")
    entries = [entry for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
    total = sum(entry.stat().st_size for entry in entries)
    held = total // 10
    result = run(["--task", "bytes", "--dry-run"]).want(0)
    assert f"bytes: {total - held} training and {held} held-out bytes\n" in result.out, result
    assert f"{folder} ({len(entries)} files, {total} bytes)" in result.out, result


def test_learns():
    text = path_of("learn", sentences(20000))
    for np in few((1, 2)):
        result, losses = train([*SMALL, "--batch", 64, "--epochs", 2], [text], np)
        # of 13 equal words log 13 nats a word of 5 bytes: about half a nat a byte; 256 equal bytes: 5.5
        assert losses[0] > 5.0 and held_out(result) < 0.8, result
        assert f"bytes: 18000 training and 2000 held-out bytes" in result.out, result
        assert " tokens/s" in result.out, result


def test_types():
    text = path_of("types", sentences(12000))
    for dtype in ("f64", "bf16", "f16"):
        result, _ = train([*SMALL, "--depth", 1, "--batch", 32, "--epochs", 2, "--dtype", dtype], [text])
        assert held_out(result) < 1.0, result


def test_activations():
    text = path_of("activations", sentences(6000))
    for activation in ("none", "leaky_relu", "gelu", "gelu_erf", "squared_relu", "silu", "smelu", "star_relu"):
        result, losses = train([*SHORT, "--activation", activation], [text])
        assert losses[-1] < losses[0] - 1.0, result


def apart(a, b):
    assert len(a) == len(b), f"{len(a)} and {len(b)} steps"
    return max(abs(x - y) for x, y in zip(a, b))


def test_curves_f64():
    for batch, size in few(((64, 1500), (31, 1500), (2, 120))):
        args = [*SHORT, "--batch", batch, "--dtype", "f64"]
        text = path_of("curves", sentences(size))
        one_result, one = train(args, [text])
        for np in few((2, 3)):
            result, many = train(args, [text], np)
            distance = apart(one, many)
            print(f"  batch {batch}, np = {np}: {distance:.1e} apart over {len(one)} steps")
            assert distance <= 1e-9, f"np = {np}: {distance} apart"
            assert held_out(result) == held_out(one_result)


def test_reproducible():
    text = path_of("reproducible", sentences(1500))
    args = [*SHORT, "--batch", 48, "--reproducible", 4]
    one_result, one = train(args, [text])
    for np in few((4, 2)):
        result, many = train(args, [text], np)
        assert one == many, f"np = {np}: {apart(one, many)} apart\n{result}"
        assert abs(held_out(one_result) - held_out(result)) < 2e-4, result


def test_accumulate_f64():
    text = path_of("accumulate", sentences(1500))
    args = [*SHORT, "--batch", 60, "--dtype", "f64"]
    _, one = train(args, [text])
    for parts, np in ((3, 1), (4, 2), (60, 1)):
        _, many = train([*args, "--accumulate", parts], [text], np)
        assert apart(one, many) <= 1e-9, f"{parts} micro-steps, np = {np}: {apart(one, many)} apart"


def test_held_out_is_not_trained_on():
    """Other bytes in the last tenth change no bit of the training; another last training byte does."""
    content = bytearray(sentences(4000))
    result, losses = train(SHORT, [path_of("whole", content)])
    other = content[:3600] + sentences(400, seed=2).upper()
    other_result, other_losses = train(SHORT, [path_of("other", other)])
    assert losses == other_losses, "held-out bytes have a part in the training"
    assert held_out(other_result) > held_out(result) + 0.5, other_result
    content[3599] ^= 1
    _, touched = train([*SHORT, "--batch", 1], [path_of("touched", content)])
    _, untouched = train([*SHORT, "--batch", 1], [path_of("other", other)])
    assert touched != untouched, "the last training byte has no part in the training"


def test_hold_out():
    text = path_of("hold-out", sentences(4000))
    result = run(["--task", "bytes", *SHORT, "--hold-out", 600, text]).want(0)
    assert "bytes: 3000 training and 600 validation bytes" in result.out, result
    assert "validation loss" in result.out and "held-out loss" not in result.out, result
    for count in (6, 3594, 10**9):
        result = run(["--task", "bytes", *SHORT, "--hold-out", count, text]).want(64)
        assert f"--hold-out is {count}, want 0 or 7 to 3593 bytes" in result.err, result


def test_files_in_order():
    content = sentences(4000)
    _, whole = train(SHORT, [path_of("one", content)])
    parts = [path_of("b", content[:1]), path_of("a", content[1:1500]), path_of("c", content[1500:])]
    result, several = train(SHORT, parts)
    assert whole == several
    assert f"{parts[0]} and 2 more (3 files, 4000 bytes)" in result.out, result
    _, turned = train(SHORT, parts[::-1])
    assert whole != turned


def test_seed_and_epochs():
    text = path_of("seed", sentences(2000))
    runs = [train([*SHORT, "--seed", seed], [text])[1] for seed in (3, 3, 4)]
    assert runs[0] == runs[1] and runs[0] != runs[2]


def refused(code, files, *words, np=1, more=()):
    result = run(["--task", "bytes", *SHORT, *more, *files], np=np).want(code)
    for word in words:
        assert result.err.count(word) == 1, f"want '{word}' once in\n{result}"


def test_bad_files():
    good = path_of("good", sentences(2000))
    for np in few((1, 2)):
        refused(2, [good, "/nowhere/at/all"], "/nowhere/at/all: ", "No such file", np=np)
    refused(2, [good, path_of("empty", b"")], "/empty: is empty")
    refused(2, [_folder.name], f"{_folder.name}: is a folder")
    refused(2, ["/dev/null"], "/dev/null: is not a regular file")


def test_unreadable_file():
    text = path_of("secret", sentences(2000))
    os.chmod(text, 0)
    os.chmod(_folder.name, 0o755)
    command = command_line(["--task", "bytes", *SHORT, text])
    nobody = 65534 if os.geteuid() == 0 else None  # root reads every file
    try:
        process = subprocess.Popen(
            command, user=nobody, cwd="/", text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except PermissionError:
        skip("an unprivileged user cannot start the program")
    result = finish(process, command).want(2)
    assert f"{text}: cannot be opened: Permission denied" in result.err, result


def test_too_short():
    """A tenth is held out, and must hold a context and a byte: 10 x (6 + 1) bytes."""
    refused(2, [path_of("short", b"x" * 69)], "/short: 69 bytes, want at least 70")
    parts = [path_of("left", b"x" * 30), path_of("right", b"x" * 39)]
    refused(2, parts, "/left and 1 more: 69 bytes, want at least 70")
    train([*SHORT, "--batch", 1], [path_of("enough", b"x" * 70)])
    refused(64, [path_of("few", b"x" * 80)], "--batch is 67", more=["--batch", 67])


def test_options():
    text = path_of("options", sentences(2000))
    refused(64, [text], "--norm is 'layernorm', want rmsnorm", more=["--norm", "layernorm"])
    refused(64, [text], "--data does not apply to --task bytes", more=["--data", os.path.dirname(text)])
    result = run([*SHORT, text]).want(64)
    assert "--task fashion reads no files" in result.err, result
    result, losses = train([*SHORT, "--context", 1, "--embedding", 1, "--depth", 1, "--width", 1], [text])
    assert all(map(math.isfinite, losses)), result


def test_larger_than_memory():
    """A sparse file: mapped at once, and read only at the samples."""
    text = os.path.join(_folder.name, "huge")
    size = 1 << 40
    with open(text, "wb") as file:
        try:
            file.truncate(size)
        except OSError as error:
            skip(f"no file of {size} bytes here: {error}")
    command = command_line(["--task", "bytes", *SHORT, "--log-every", 1, text])
    process = start(command)
    line = ""
    while not line.startswith("step 3/"):
        line = process.stdout.readline()
        assert line, process.stderr.read()
    process.send_signal(signal.SIGTERM)
    result = finish(process, command).want(75)
    os.remove(text)


def test_evaluation_is_capped():
    text = path_of("long", b"0123456789" * 100000)
    result = run(["--task", "bytes", *SHORT, "--dry-run", text]).want(0)
    assert "evaluation    65536 of its 99994 bytes, evenly spaced" in result.out, result


def test_resume():
    """Resumes in mid-epoch, with the same bits, on other ranks too; another model or corpus is refused."""
    text = path_of("resume", sentences(3000))
    args = ["--task", "bytes", *SHORT, "--epochs", 2, "--dtype", "f64", "--checkpoint"]
    whole, part = (os.path.join(_folder.name, name) for name in ("whole.h5", "part.h5"))
    first = run([*args, whole, "--save-every", 25, "--keep", 2, text]).want(0)
    for np in few((1, 2)):
        os.replace(f"{whole}.{np}", part)
        second = run([*args, part, "--resume", text], np=np).want(0)
        assert np > 1 or same_file(whole, part), "the resumed run ends with other bits"
        assert held_out(first) == held_out(second), f"{first}\n{second}"
    files = ["--resume", text]
    other = path_of("resume-other", sentences(3010))
    for change, word in ((["--context", 5, *files], "context"), (["--resume", other], "2709 training")):
        result = run([*args, part, *change]).want(64)
        assert word in result.err, result


def test_evaluate_samples_again():
    """--evaluate --sample prints what the run printed at its end."""
    file = os.path.join(_folder.name, "again.h5")
    content = sentences(4000)
    first = sample(content, 100, more=["--checkpoint", file])
    assert first == sample(content, 100, more=["--checkpoint", file, "--resume", "--evaluate"])


def sample(content, count, seed=1, np=1, more=()):
    args = ["--task", "bytes", *SHORT, "--seed", seed, "--sample", count, *more, path_of("sample", content)]
    lines = run(args, np=np).want(0).out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("sample | "))
    end = next((i for i in range(at, len(lines)) if lines[i].startswith(("done | ", "evaluated | "))), len(lines))
    return lines[at], "\n".join(lines[at + 1 : end])


def test_sample():
    content = sentences(20000)
    head, text = sample(content, 300, more=["--epochs", 2])
    assert head == f'sample | 300 characters that follow "{content[18000:18006].decode()}"', head
    whole = sum(word in WORDS for word in re.findall(r"\w+", text))
    assert len(text) > 250 and whole > 30, text
    content = content[:4000]
    assert sample(content, 300) == sample(content, 300), "another sample from the same seed"
    assert sample(content, 300)[1] != sample(content, 300, seed=2)[1], "one sample from two seeds"
    sample(content, 40, np=2)


def test_sample_escapes():
    rng = random.Random(1)
    _, text = sample(rng.randbytes(4000), 200, more=["--dtype", "bf16"])
    shown = re.findall(r"\\x[0-9a-f]{2}|\\\\|[ -\[\]-~\n]", text)
    assert "".join(shown) == text and len(shown) == 200, text


run_tests()
