"""Reproducible mode: the same bytes of a checkpoint, and the same printed numbers, on any number of ranks."""

import json
import os
import tempfile

import harness as h

folder = tempfile.TemporaryDirectory(prefix="tutti-reproducible-")
FASHION = ["--task", "fashion", "--data", h.small_data(), "--width", 24, "--epochs", 2, "--batch", 64]
BYTES = ["--task", "bytes", "--context", 4, "--width", 16, "--embedding", 8, "--epochs", 1, "--batch", 64]


def path(name):
    return os.path.join(folder.name, name)


def text():
    """A small corpus."""
    with open(path("corpus"), "w") as file:
        file.write("".join(f"{n} bottles of beer on the wall, {n} bottles of beer\n" for n in range(60)))
    return path("corpus")


def figures(result):
    """The step and epoch lines, without times."""
    lines = []
    for line in result.out.splitlines():
        parts = line.split(" | ")
        if line.startswith("step "):
            lines.append(" | ".join(parts[:4]))
        elif line.startswith("epoch "):
            lines.append(" | ".join(parts[:1] + parts[2:]))
    assert len(lines) > 4, result
    return lines


def logged(log):
    """The events of --log-json with all digits, without what depends on time or the number of ranks."""
    names = ("event", "step", "epoch", "epoch_step", "loss", "grad_norm", "learning_rate", "evaluation_loss", "accuracy")
    with open(log) as file:
        lines = [{name: line[name] for name in names if name in line} for line in map(json.loads, file)]
    lines = [line for line in lines if line["event"] in ("step", "evaluation", "end")]
    assert len(lines) > 4 and all("loss" in line and "grad_norm" in line for line in lines if line["event"] == "step"), lines
    return lines


def same_on_all(name, args, ranks, L=8):
    """Trains on each number of ranks; all must write the same file and print the same."""
    first = None
    for np in h.few(ranks):
        file, log = path(f"{name}.{np}"), path(f"{name}.{np}.json")
        made = h.run([*args, "--reproducible", L, "--checkpoint", file, "--log-json", log], np=np).want(0)
        said = (figures(made), logged(log))
        first = first or (file, said)
        assert h.same_file(file, first[0]), f"{name}: the checkpoint of {np} ranks differs from {ranks[0]} ranks'"
        assert said == first[1], f"{name}: {np} ranks say\n{said}\nand {ranks[0]} ranks\n{first[1]}"
    return first[0]


def transport():
    return ["--transport", "mpi"] if h.BACKEND == "cuda" else []


def test_fashion_f32():
    same_on_all("f32", FASHION + transport() + ["--clip", 0.5], [1, 2, 4, 8, 3])


@h.in_full
def test_fashion_bf16():
    same_on_all("bf16", FASHION + transport() + ["--dtype", "bf16"], [1, 3, 4])


def test_leaves_at_odd_offsets():
    """400 rows in 8 leaves of 50 rows of 10 classes."""
    args = ["--data", h.small_data(), "--width", 24, "--epochs", 4, "--batch", 400, "--dtype", "bf16"]
    same_on_all("odd", args + transport(), [1, 2, 4])


def test_micro_steps():
    """How many leaves a rank computes at once changes no byte, of weights or of scores, though some have fewer leaves than micro-steps."""
    for name, args in (("fashion", FASHION + ["--dropout", 0.1, "--clip", 0.5]), ("bytes", [*BYTES, "--dtype", "bf16", text()])):
        whole = same_on_all(f"micro-{name}", args + transport(), [1])
        for count, ranks in h.few(((2, [1, 3]), (8, [1, 4]), (3, [2]))):
            file = same_on_all(f"micro-{name}.{count}", [*args, *transport(), "--accumulate", count], ranks)
            assert h.same_file(whole, file), f"{name}: --accumulate {count} changes the file"
    sharded = same_on_all("micro.sharded", FASHION + transport() + ["--dropout", 0.1, "--clip", 0.5, "--shard", "--accumulate", 2], [3])
    assert h.same_file(path("micro-fashion.1"), sharded), "--shard and --accumulate change the file"


def test_bytes():
    if not h.SANITIZED:
        same_on_all("bytes", BYTES + transport() + [text()], [1, 2, 3])
    same_on_all("bytes16", BYTES + transport() + ["--dtype", "bf16", text()], [1, 4])


@h.in_full
def test_dropout():
    """A sample's mask is the same on every rank."""
    plain = same_on_all("plain", FASHION + transport() + ["--activation", "gelu"], [1])
    args = FASHION + transport() + ["--activation", "gelu", "--dropout", 0.2]
    assert not h.same_file(plain, same_on_all("dropout", args, [1, 3, 4])), "nothing was dropped"
    same_on_all("dropout16", args + ["--dtype", "bf16"], [1, 2])
    same_on_all("dropout-bytes", BYTES + transport() + ["--dropout", 0.1, text()], [1, 2, 3])


def test_nccl():
    if h.BACKEND != "cuda":
        h.skip("nccl is for GPUs")
    ranks = []
    for np in (1, 2, 4):
        probe = h.run(FASHION + ["--dry-run"], np=np)
        if probe.code == 0 and (np == 1 or "transport nccl" in probe.out):
            ranks.append(np)
    if len(ranks) < 2:
        h.skip("one GPU only")
    same_on_all("nccl", FASHION, ranks)
    same_on_all("nccl16", FASHION + ["--dtype", "bf16"], ranks)


@h.in_full
def test_threads_do_not_matter():
    files = []
    for threads in (1, 2, 3):
        files.append(path(f"threads.{threads}"))
        args = FASHION + ["--width", 300, "--threads", threads, "--reproducible", 4, "--checkpoint", files[-1]]
        h.run(args).want(0)
    assert h.same_file(files[0], files[1]) and h.same_file(files[0], files[2])


def sharded(name, args, ranks):
    """--shard changes no byte, and neither do ranks, of which some have no slice or several."""
    args = [*args, "--width", 256, "--clip", 0.5, "--check-replicas", 3]
    whole = same_on_all(name, args, [2])
    file = same_on_all(f"{name}.sharded", [*args, "--shard"], ranks)
    assert h.same_file(whole, file), f"{name}: --shard changes the file"


def test_sharded():
    for name, args, ranks in h.few((
        ("shard16", FASHION + ["--dtype", "bf16"], [1, 2, 3, 5]),
        ("shard-bytes", BYTES + ["--dtype", "f16", text()], [2, 3]),
        ("shard", FASHION, [1, 8, 3]),
    )):
        sharded(name, args + transport(), ranks)


def test_sgd():
    for name, args, ranks in h.few((
        ("sgd", FASHION, [1, 3]),
        ("sgd-bytes", BYTES + ["--dtype", "f16", "--accumulate", 2, text()], [1, 3]),
        ("sgd16", FASHION + ["--dtype", "bf16", "--momentum", 0.5], [1, 2, 3]),
    )):
        sharded(name, args + transport() + ["--optimizer", "sgd"], ranks)


@h.in_full
def test_sharded_accumulates():
    """In fast mode too the numbers are those of a rank-ordered sum: on two ranks any sum's."""
    args = FASHION + transport() + ["--width", 256, "--accumulate", 4, "--dtype", "bf16", "--dropout", 0.1]
    files = [path(f"accumulated.{i}") for i in range(2)]
    for file, more in zip(files, ([], ["--shard"])):
        h.run([*args, *more, "--checkpoint", file], np=2).want(0)
    assert h.same_file(*files)


def test_wire():
    """What travels in bf16 is added in rank order, sharded or not, and one rank sends nothing."""
    args = FASHION + transport() + ["--width", 256, "--dtype", "bf16"]
    files = {}
    for np, more in ((3, ()), (3, ("--wire", "bf16")), (3, ("--wire", "bf16", "--shard")), (1, ()), (1, ("--wire", "bf16"))):
        file = files[np, more] = path(f"wire.{len(files)}")
        said = h.run([*args, *more, "--checkpoint", file], np=np).want(0).out
        assert ("gradients travel in bf16" in said) == ("--wire" in more), said
    assert h.same_file(files[3, ("--wire", "bf16")], files[3, ("--wire", "bf16", "--shard")]), "sharded or not"
    assert not h.same_file(files[3, ()], files[3, ("--wire", "bf16")]), "f32 and bf16"
    assert h.same_file(files[1, ()], files[1, ("--wire", "bf16")]), "one rank"
    for more in (["--reproducible", 8], ["--dtype", "f64"]):
        bad = h.run(FASHION + ["--wire", "bf16", *more]).want(64)
        assert "--wire bf16 does not go with " + more[0] in bad.err, bad


def test_resumed_sharded_or_not():
    whole, part = path("unstopped"), path("stopped")
    for optimizer in ("sgd", "adamw"):
        args = FASHION + transport() + ["--dtype", "bf16", "--width", 256, "--reproducible", 8, "--optimizer", optimizer]
        h.run([*args, "--checkpoint", whole]).want(0)
        for stopped, resumed in h.few(((["--shard"], []), ([], ["--shard"]), (["--shard"], ["--shard"]))):
            h.run([*args, *stopped, "--checkpoint", part], np=2, fault="signal:step:1").want(75)
            h.run([*args, *resumed, "--checkpoint", part, "--resume"], np=3).want(0)
            assert h.same_file(whole, part), f"{optimizer}, stopped with {stopped}, resumed with {resumed}"


def resumed_on_other_ranks(name, args):
    whole = same_on_all(name, args, [1])
    part = path(f"{name}.part")
    # after the third step a rank asks to stop; then three ranks go on
    stopped = h.run([*args, "--reproducible", 8, "--checkpoint", part], np=2, fault="signal:step:1")
    stopped.want(75)
    h.run([*args, "--reproducible", 8, "--checkpoint", part, "--resume"], np=3).want(0)
    assert h.same_file(whole, part), name


def test_resumed_on_other_ranks():
    if not h.SANITIZED:
        resumed_on_other_ranks("whole", FASHION + transport())
    resumed_on_other_ranks("whole16", BYTES + transport() + ["--dtype", "bf16", "--clip", 0.5, text()])


@h.in_full
def test_resumed_with_dropout():
    resumed_on_other_ranks("dropped", FASHION + transport() + ["--dropout", 0.1])
    resumed_on_other_ranks("dropped16", BYTES + transport() + ["--dtype", "bf16", "--dropout", 0.1, text()])


@h.in_full
def test_fast_mode_would_be_seen():
    """With these data the order of summation matters: the comparisons above can fail."""
    files = []
    for np, extra in ((1, []), (3, []), (3, ["--reproducible", 8])):
        files.append(path(f"fast.{len(files)}"))
        h.run(FASHION + transport() + ["--dtype", "f32", "--checkpoint", files[-1], *extra], np=np).want(0)
    assert not h.same_file(files[0], files[1]), "fast mode on 1 and 3 ranks"
    assert not h.same_file(files[1], files[2]), "fast and reproducible mode"


def test_rows_and_bytes_are_counted():
    counts = {}
    for np in (1, 3) if h.SANITIZED else (1, 2, 3, 4):
        log = path(f"log.{np}")
        h.run(FASHION + transport() + ["--width", 400, "--reproducible", 8, "--log-json", log], np=np).want(0)
        with open(log) as file:
            steps = [line for line in map(json.loads, file) if line["event"] == "step"]
        for line in steps:
            assert sum(line["rank_rows"]) == 64, line
            assert all(rows == 8 * (8 * (r + 1) // np - 8 * r // np) for r, rows in enumerate(line["rank_rows"])), line
        counts[np] = steps[-1]["rank_bytes_sent"]
    # 4 bytes of each parameter's gradient; a little is padding or sent whole
    gradient = 4 * (784 * 2 + 784 * 400 + 400 + 400 * 2 + 400 * 400 + 400 + 400 * 10 + 10)
    assert counts[1] == [0], counts
    for np in counts.keys() & {2, 4}:
        ring = 2 * gradient * (np - 1) / np
        assert all(ring * 0.99 < sent < ring * 1.2 + 65536 * np for sent in counts[np]), (np, ring, counts)
    # of 3 ranks some have two subtrees: less than twice a ring's bytes
    assert all(sent < 2 * 2 * gradient * 2 / 3 for sent in counts[3]), counts


def test_wrong_numbers():
    bad = h.run(FASHION + ["--reproducible", 6]).want(64)
    assert "power of two" in bad.err, bad
    bad = h.run(FASHION + ["--batch", 100, "--reproducible", 8]).want(64)
    assert "100" in bad.err and "8" in bad.err, bad
    bad = h.run(FASHION + ["--accumulate", 16, "--reproducible", 8]).want(64)
    assert "--accumulate is 16" in bad.err and "whole leaves" in bad.err, bad
    h.run(FASHION + ["--reproducible", 512]).want(64)
    bad = h.run(FASHION + transport() + ["--reproducible", 2], np=3).want(64)
    assert "3 ranks" in bad.err, bad


def test_replicas_are_checked():
    args = FASHION + transport() + ["--check-replicas", 2]
    h.run(args, np=3).want(0)
    found = h.run(args, np=3, fault="corrupt:step:1").want(1)
    assert "after step 4" in found.err and "on rank 1 differs" in found.err, found
    # one bit of one weight, in a run that does not look
    h.run(FASHION + transport(), np=3, fault="corrupt:step:1").want(0)


h.run_tests()
