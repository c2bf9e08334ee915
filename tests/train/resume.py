"""Checkpoints: a run that was stopped and resumed ends with the same bytes as one that was not; what a resumed run may change; and
the file when something goes wrong."""

import functools
import os
import resource
import shutil
import tempfile

from harness import *

FAULT_STEP = 3  # of faults.h


def with_folder(test):
    @functools.wraps(test)
    def wrapped():
        with tempfile.TemporaryDirectory(prefix="tutti-resume-") as folder:
            test(folder)

    return wrapped


def arguments(*more):
    return ["--data", small_data(), "--batch", 50, "--epochs", 2, "--width", 32, "--depth", 1, "--log-every", 4, *more]


def saving(path, *more):
    return arguments("--checkpoint", path, *more)


def interrupted_and_resumed(folder, np, *more):
    """The files of a run in one go, and of one that got a signal in its third step."""
    whole, parts = os.path.join(folder, "whole"), os.path.join(folder, "parts")
    run(saving(whole, *more), np=np).want(0)
    result = run(saving(parts, *more), np=np, fault=f"signal:step:{np - 1}").want(75)
    assert f"stopped by SIGUSR1 after step {FAULT_STEP}/" in result.out and parts in result.out, result
    assert "done |" not in result.out, result
    assert not same_file(whole, parts)
    result = run(saving(parts, "--resume", *more), np=np).want(0)
    assert f"resumed       after step {FAULT_STEP}, {FAULT_STEP}/" in result.out, result
    assert same_file(whole, parts), f"a resumed run ends with other bytes:\n{result}"


def check_exact(ranks, *more):
    for np in few(ranks):
        with tempfile.TemporaryDirectory() as folder:
            interrupted_and_resumed(folder, np, *more)


def test_exact_f32():
    check_exact((1, 2))


def test_exact_bf16():
    check_exact((2, 1), "--dtype", "bf16")


def test_exact_f16():
    """The loss scale, which is falling when the run is stopped, continues to fall."""
    check_exact((2, 1), "--dtype", "f16", "--loss-scale", 2**30)


def test_exact_f64_with_everything():
    more = ["--dtype", "f64", "--clip", 0.5, "--norm", "rmsnorm", "--accumulate", 5, "--hold-out", 100]
    check_exact((3, 1), *more)


def test_exact_dropout():
    check_exact((2, 1), "--dropout", 0.25)


def test_exact_sgd():
    check_exact((2, 1), "--optimizer", "sgd")
    check_exact((2,), "--optimizer", "sgd", "--momentum", 0, "--clip", 0.5)
    check_exact((2,), "--optimizer", "sgd", "--momentum", 0.5, "--shard", "--dtype", "f16", "--loss-scale", 2**30)


@with_folder
def test_optimizers_are_told_apart(folder):
    """A file of one is not read by the other, by another momentum neither, and stays as it is; AdamW's is as ever."""
    files = {}
    for name, more in (("adamw", []), ("sgd", ["--optimizer", "sgd"]), ("plain", ["--optimizer", "sgd", "--momentum", 0])):
        files[name] = os.path.join(folder, name), more
        run(saving(files[name][0], *more), fault="signal:step:0").want(75)
        assert (b"momentum" in read(files[name][0])) == (b"velocity" in read(files[name][0])) == (name == "sgd"), name
        result = run(saving(files[name][0], "--resume", "--dry-run", *more)).want(0)
        assert "resumed       after step 3" in result.out, result
    for file, given, words in (
        ("adamw", ["--optimizer", "sgd"], "was saved with --optimizer adamw; this run uses sgd"),
        ("sgd", [], "was saved with --optimizer sgd; this run uses adamw"),
        ("sgd", ["--optimizer", "sgd", "--momentum", 0.5], "was saved with --momentum 0.9; this run uses 0.5"),
        ("sgd", ["--optimizer", "sgd", "--momentum", 0], "was saved with --momentum 0.9; this run uses 0"),
        ("plain", [], "was saved with --optimizer sgd; this run uses adamw"),
        ("plain", ["--optimizer", "sgd"], "was saved with --momentum 0; this run uses 0.9"),
    ):
        path, before = files[file][0], read(files[file][0])
        for more, np in few((([], 1), (["--evaluate"], 1), (["--shard"], 2))):
            result = run(saving(path, "--resume", *given, *more), np=np).want(64)
            assert result.err.count(f"{path} {words}") == 1, f"no '{words}' in\n{result}"
        assert read(path) == before, file


@with_folder
def test_dropout(folder):
    """It may change, and is reported; files have it where it is not 0; evaluations drop nothing."""
    paths = plain, dropped = [os.path.join(folder, name) for name in ("plain", "dropped")]
    first = {path: run(saving(path, *more), np=2).want(0) for path, more in zip(paths, ([], ["--dropout", 0.5]))}
    has = [b"dropout" in open(path, "rb").read() for path in paths]
    assert has == [False, True], has
    for path in paths:
        again = run(saving(path, "--resume", "--evaluate")).want(0)
        scores = [result.out.rstrip().rpartition("test loss ")[2] for result in (first[path], again)]
        assert "resume:" not in again.out and scores[0] == scores[1] and " accuracy " in scores[0], (scores, again)
    for path, epochs, now, said in (
        (plain, 3, 0.5, "resume: --dropout was 0 and is now 0.5"),
        (plain, 4, 0.25, "resume: --dropout was 0.5 and is now 0.25"),
        (plain, 5, 0, "resume: --dropout was 0.25 and is now 0"),
        (dropped, 3, 0, "resume: --dropout was 0.5 and is now 0"),
    ):
        again = run(saving(path, "--resume", "--epochs", epochs, "--dropout", now)).want(0)
        assert said in again.out and "done | 13 steps" in again.out, again
    again = run(saving(dropped, "--resume", "--epochs", 4)).want(0)
    assert "--dropout" not in again.out and "done | 13 steps" in again.out, again
    assert "--dropout is '1.5', want" in run(arguments("--dropout", 1.5)).want(64).err
    assert ", dropout 0.5]" in run(arguments("--dropout", 0.5, "--dry-run")).want(0).out


def test_exact_bytes():
    """The order of the bytes continues, and the sample at the end is the same."""
    with tempfile.TemporaryDirectory() as folder:
        text, whole, parts = (os.path.join(folder, name) for name in ("text", "whole", "parts"))
        write(folder, "text", bytes(random.Random(1).choices(b"abcdef \n", k=3000)))
        task = ["--task", "bytes", "--width", 16, "--depth", 1, "--context", 4, "--embedding", 4, "--batch", 100]
        for dtype, np in few((("f32", 2), ("bf16", 1))):
            more = [*task, "--epochs", 1, "--dtype", dtype, "--sample", 50, text, "--checkpoint"]
            one = run([*more, whole], np=np).want(0)
            run([*more, parts], np=np, fault="signal:step:0").want(75)
            two = run([*more, parts, "--resume"], np=np).want(0)
            assert same_file(whole, parts), two
            sample = one.out[one.out.index("sample | ") : one.out.index("done | ")]
            assert len(sample) > 50 and sample in two.out, f"{one}{two}"
            evaluated = run([*more, parts, "--resume", "--evaluate"]).want(0)
            assert sample in evaluated.out and "| held-out loss " in evaluated.out, evaluated
        write(folder, "text", b"another text\n" * 300)
        result = run([*more, parts, "--resume"]).want(64)
        assert "data 2700 training and 300 held-out bytes; this run uses 3510 training" in result.err, result
        result = run(["--data", small_data(), "--checkpoint", parts, "--resume"]).want(64)
        assert "was saved with --task bytes; this run uses fashion" in result.err, result


def test_stopped_at_the_end_of_an_epoch():
    """Three steps an epoch: the signal comes before an evaluation, which the resumed run makes."""
    for epochs in (1, 2):
        check_exact((1,), "--batch", 216, "--epochs", epochs)


@with_folder
def test_every_step_is_a_good_place(folder):
    whole = os.path.join(folder, "whole")
    run(saving(whole), np=2).want(0)
    path = os.path.join(folder, "f")
    result = run(saving(path, "--save-every", 4, "--keep", 9), np=2).want(0)
    assert same_file(whole, path), "saving changes the run"
    files = sorted(name for name in os.listdir(folder) if name.startswith("f."))
    assert files == [f"f.{i}" for i in range(1, 7)], f"{files}\n{result}"  # steps 24, 20, ... 4, and 26 in f
    for name in few(files[1::4]):
        copy = os.path.join(folder, "copy")
        shutil.copy(os.path.join(folder, name), copy)
        run(saving(copy, "--resume"), np=2).want(0)
        assert same_file(whole, copy), f"resumed from {name}, a run ends elsewhere"


@with_folder
def test_keep(folder):
    path = os.path.join(folder, "f")
    run(saving(path, "--save-every", 5, "--keep", 2)).want(0)
    assert sorted(os.listdir(folder)) == ["f", "f.1", "f.2"], os.listdir(folder)
    run(saving(path, "--save-every", 5, "--keep", 2, "--resume", "--epochs", 3)).want(0)
    assert sorted(os.listdir(folder)) == ["f", "f.1", "f.2"], os.listdir(folder)


@with_folder
def test_other_number_of_ranks(folder):
    """The losses continue as in an uninterrupted run."""
    losses = os.path.join(folder, "whole.losses")
    run(arguments("--dtype", "f64", "--losses", losses)).want(0)
    wanted = [float(line.split()[2]) for line in open(losses)]
    for before, after in few(((1, 2), (3, 1))):
        path, losses = (os.path.join(folder, f"{before}{after}{end}") for end in ("", ".losses"))
        more = ["--dtype", "f64", "--losses", losses]
        run(saving(path, *more), np=before, fault="signal:step:0").want(75)
        run(saving(path, "--resume", *more), np=after).want(0)
        got = [float(line.split()[2]) for line in open(losses)]
        assert len(got) == len(wanted) and max(abs(a - b) for a, b in zip(got, wanted)) < 1e-9, (got, wanted)


@with_folder
def test_longer_run(folder):
    path = os.path.join(folder, "f")
    run(saving(path)).want(0)
    again = run(saving(path, "--resume")).want(0)
    assert "done | 0 steps" in again.out and again.steps() == [], again
    longer = run(saving(path, "--resume", "--epochs", 3)).want(0)
    assert "was 2 epochs long and is now 3: the learning rate" in longer.out, longer
    assert "done | 13 steps" in longer.out, longer
    shorter = run(saving(path, "--resume", "--epochs", 1), np=2).want(64)
    assert "--epochs is 1" in shorter.err and "39" in shorter.err, shorter
    run(saving(path, "--resume", "--epochs", 1, "--evaluate")).want(0)


REFUSED = {
    "--width=48": "was saved with --width 32; this run uses 48",
    "--depth=2": "was saved with --depth 1; this run uses 2",
    "--norm=rmsnorm": "was saved with --norm layernorm; this run uses rmsnorm",
    "--activation=gelu": "was saved with --activation relu; this run uses gelu",
    "--dtype=bf16": "was saved with --dtype f32; this run uses bf16",
    "--batch=25": "was saved with --batch 50; this run uses 25",
    "--seed=18446744073709551615": "was saved with --seed 1; this run uses 18446744073709551615",
    "--hold-out=100": "data 650 training and 103 test images; this run uses 550 training and 100 validation images",
}
REPORTED = {
    "--lr=0.002": "--lr was 0.003 and is now 0.002",
    "--weight-decay=0": "--weight-decay was 0.01 and is now 0",
    "--clip=1": "--clip was 0 and is now 1",
    "--warmup=5": "--warmup was a tenth of the run and is now 5",
}


@with_folder
def test_another_run_is_refused(folder):
    path = os.path.join(folder, "f")
    run(saving(path), fault="signal:step:0").want(75)
    before = read(path)
    for option, words in REFUSED.items():
        result = run(saving(path, "--resume", option)).want(64)
        assert words in result.err and path in result.err, f"no '{words}' in\n{result}"
    result = run(saving(path, "--resume", "--width=48"), np=2).want(64)
    assert result.err.count("--width") == 1, result
    assert read(path) == before


@with_folder
def test_what_may_change_is_reported(folder):
    path, copy = os.path.join(folder, "f"), os.path.join(folder, "copy")
    run(saving(path), fault="signal:step:0").want(75)
    for option, words in REPORTED.items():
        shutil.copy(path, copy)
        result = run(saving(copy, "--resume", option)).want(0)
        assert words in result.out, f"no '{words}' in\n{result}"
    shutil.copy(path, copy)
    result = run(saving(copy, "--resume", "--accumulate", 2, "--log-every", 1, "--save-every", 7, "--threads", 2)).want(0)
    assert "resume:" not in result.out, result


@with_folder
def test_resume_wants_the_file(folder):
    path = os.path.join(folder, "f")
    for np in few((1, 2)):
        result = run(saving(path, "--resume"), np=np).want(2)
        assert path in result.err and "step " not in result.out, result
    result = run(saving(path, "--resume=auto")).want(0)
    assert "a fresh start" in result.out, result
    result = run(saving(path, "--resume=auto", "--epochs", 3)).want(0)
    assert "resumed       after step 26" in result.out, result


@with_folder
def test_a_bad_file_is_refused(folder):
    path = os.path.join(folder, "f")
    run(saving(path)).want(0)
    good = read(path)
    bad = {"cut": good[: len(good) // 2], "text": b"no checkpoint\n" * 100, "empty": b""}
    bad["flipped"] = good[:-200] + bytes([good[-200] ^ 1]) + good[-199:]
    for name, content in bad.items():
        write(folder, "f", content)
        for how in ("--resume", "--resume=auto"):
            result = run(saving(path, how, "--epochs", 3), np=2 if name == "cut" else 1).want(2)
            assert path in result.err and "step " not in result.out, f"{name}: {result}"
        assert read(path) == content, f"{name}: it was overwritten"


def test_options_that_want_a_checkpoint():
    for wrong, words in {
        "--resume": "--resume requires --checkpoint",
        "--save-every=3": "--save-every requires --checkpoint",
        "--keep=3": "--keep requires --checkpoint",
        "--evaluate": "--evaluate requires --resume",
        "--resume=yes": "--resume is 'yes', want auto",
        "--save-every=0": "--save-every is '0', want",
        "--keep=-1": "--keep is '-1', want",
    }.items():
        result = run(arguments(wrong)).want(64)
        assert words in result.err, f"no '{words}' in\n{result}"


@with_folder
def test_no_place_for_the_file(folder):
    missing = os.path.join(folder, "no", "f")
    for np in few((1, 2)):
        result = run(saving(missing), np=np).want(2)
        assert missing in result.err and "step " not in result.out, f"not seen at the start:\n{result}"
    for wrong in (folder, os.path.join(folder, "f/")):
        result = run(saving(wrong)).want(2)
        assert f"{wrong}: is not a regular file" in result.err and "step " not in result.out, result
    longest = os.path.join(folder, "f" * 255)
    for path, more in ((longest[:-3], []), (longest[:-4], ["--keep", 1000])):
        result = run(saving(path, *more)).want(2)
        assert "File name too long" in result.err and "step " not in result.out, result
    os.mkdir(longest[:-5] + ".tmp")
    result = run(saving(longest[:-5])).want(2)
    assert ".tmp: is a folder" in result.err and "step " not in result.out, result
    run(saving(longest[:-4], "--keep", 1)).want(0)


@with_folder
def test_an_existing_file_is_mentioned(folder):
    path = os.path.join(folder, "f")
    write(folder, "f", b"old")
    result = run(saving(path)).want(0)
    assert f"{path} exists and will be replaced" in result.err, result
    run(saving(path, "--resume", "--epochs", 3)).want(0)


@with_folder
def test_full_disk(folder):
    """By a limit on the size of files; the previous file is unchanged, and the run can be resumed from it."""
    path = os.path.join(folder, "f")
    run(saving(path), fault="signal:step:0").want(75)
    before = read(path)
    command = command_line(saving(path, "--resume", "--save-every", 5))
    process = subprocess.Popen(
        command,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, len(before) // 2)),
    )
    result = finish(process, command).want(2)
    assert path in result.err and "RLIMIT_FSIZE" in result.err, result
    assert read(path) == before, "the file before is damaged"
    run(saving(path, "--resume")).want(0)


@with_folder
def test_evaluate(folder):
    path = os.path.join(folder, "f")
    end = run(saving(path)).want(0).out.splitlines()[-1]
    before = read(path)
    for np in few((1, 3)):
        result = run(saving(path, "--resume", "--evaluate"), np=np).want(0)
        last = result.out.splitlines()[-1]
        assert last.startswith("evaluated | after step 26 | test loss "), result
        assert last.split(" | ")[2:] == end.split(" | ")[2:], f"{end}\n{result}"
        assert "\nstep " not in result.out and read(path) == before, result
    assert "resume: " not in run(saving(path, "--resume", "--evaluate", "--lr", 0.01)).want(0).out  # nothing is trained
    os.remove(path)
    for how in ("--resume", "--resume=auto"):
        result = run(saving(path, how, "--evaluate")).want(2)
        assert path in result.err, result


@with_folder
def test_dry_run_writes_nothing(folder):
    path = os.path.join(folder, "f")
    run(saving(path, "--dry-run")).want(0)
    assert os.listdir(folder) == []
    run(saving(path), fault="signal:step:0").want(75)
    before = read(path)
    result = run(saving(path, "--resume", "--dry-run")).want(0)
    assert "resumed       after step 3" in result.out and read(path) == before, result


@with_folder
def test_nothing_of_the_machine_is_in_the_file(folder):
    paths = [os.path.join(folder, name) for name in ("one", "two")]
    run(saving(paths[0], "--threads", 1)).want(0)
    run(saving(paths[1], "--threads", 2, "--timeout", 30, "--save-every", 9)).want(0)
    assert same_file(*paths)
    content = read(paths[0])
    for word in (folder, small_data(), os.uname().nodename, "host", "OMP_"):
        if len(word) > 3:  # a shorter name is found among the weights
            assert word.encode() not in content, word


run_tests(need_checkpoints)
