"""A run as the reference of another: --record; and the layers of a checkpoint: --checkpoint."""

import filecmp

from rig import *

RANKS = 2 if BACKEND == "cuda" else 3
TRAIN = os.environ.get("TUTTI_TRAIN")


def test_a_recorded_run_holds_on_other_ranks():
    for first, other in few(((1, RANKS), (RANKS, 1))):
        run(["--quiet", "--record", path("one.h5"), CASES], first).want(0)
        assert "%d cases, %d tensors" % count(CASES) in run(["--quiet", path("one.h5")], other).want(0).out


def test_a_recorded_file_is_a_case_file():
    run(["--quiet", "--filter", "rmsnorm-types", "--record", path("some.h5"), CASES]).want(0)
    with h5py.File(path("some.h5")) as made, h5py.File(CASES) as original:
        for name, case in made["cases"].items():
            before = original[f"cases/{name}"]
            assert case.attrs["options"] == before.attrs["options"], name
            assert np.array_equal(case["inputs/x"][...], before["inputs/x"][...]), name
            bound = before["expected/y"].attrs["atol"] + before["expected/y"].attrs["rtol"] * np.abs(before["expected/y"][...])
            assert np.all(np.abs(case["expected/y"][...] - before["expected/y"][...]) <= bound), name
            assert case["expected/y"].attrs["atol"] >= before["expected/y"].attrs["atol"], name


def test_equal_runs_record_equal_bytes():
    for name in ("a.h5", "b.h5"):
        run(["--quiet", "--filter", "softmax", "--record", path(name), CASES]).want(0)
    assert filecmp.cmp(path("a.h5"), path("b.h5"), shallow=False)


def test_a_wrong_recorded_run_is_caught():
    run(["--quiet", "--filter", "linear-gelu-f32", "--record", path("one.h5"), CASES]).want(0)

    def spoil(file):
        file["cases/linear-gelu-f32/expected_grad/dweight"][3, 4] += 1e-3

    result = run(["--quiet", edited(spoil, original=path("one.h5"))], RANKS).want(1)
    assert "expected_grad/dweight" in result.err and "[3,4]" in result.err, result


def test_a_run_that_does_not_hold_is_not_recorded():
    def spoil(file):
        file["cases/softmax-f32/expected/y"][0, 0] += 1

    run(["--quiet", "--filter", "softmax-f32", "--record", path("never.h5"), edited(spoil)]).want(1)
    assert not os.path.exists(path("never.h5")) and not os.path.exists(path("never.h5.tmp"))


def test_a_recorded_file_keeps_its_permissions():
    record = ["--quiet", "--filter", "softmax-f32", "--record", path("private.h5"), CASES]
    umask = os.umask(0o027)
    run(record).want(0)
    os.umask(umask)
    assert os.stat(path("private.h5")).st_mode & 0o777 == 0o640
    os.chmod(path("private.h5"), 0o600)
    run(record).want(0)
    assert os.stat(path("private.h5")).st_mode & 0o777 == 0o600


def checkpoint(task):
    """A few steps of training."""
    made = path(f"{task}.ckpt")
    if os.path.exists(made):
        return made
    if not TRAIN:
        skip("there is no tutti-train")
    command = [TRAIN, "--backend", BACKEND, "--task", task, "--epochs", "1", "--width", "24", "--checkpoint", made]
    with open(path("corpus"), "wb") as corpus:
        corpus.write(b"All together, in time. " * 900)
    if task == "fashion" and not os.path.exists("/usr/share/datasets/fashion-mnist"):
        skip("no Fashion-MNIST here")
    done = subprocess.run(command + ([path("corpus")] if task == "bytes" else []), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


def test_layers_of_a_checkpoint():
    for task, layers in (("bytes", {"embedding", "linear", "rmsnorm"}), ("fashion", {"linear", "layernorm"})):
        for np in few((1, RANKS)):
            said = report(["--checkpoint", checkpoint(task)], np)
            assert said["holds"] and {case["layer"] for case in said["cases"]} == layers, said
            assert all(tensor["abs"] > 0 for (_, name), tensor in findings(said).items() if name == "dx"), said


def test_kinds_by_parameters():
    """Names and dimensions determine the kind, and the layer's name only where they do not."""
    made = path("kinds.ckpt")
    for layer, params, want in (
        ("a", {"gamma": 3, "beta": 3}, "layernorm cols=3,x_dtype=f32,param_dtype=f32,y_dtype=f32"),
        ("layernorm", {"gamma": 3}, "rmsnorm cols=3,x_dtype=f32,param_dtype=f32,y_dtype=f32"),
        ("a/rmsnorm", {"gamma": 3, "beta": 3}, "layernorm cols=3,x_dtype=f32,param_dtype=f32,y_dtype=f32"),
        ("a", {"weight": (2, 3)}, "linear in=3,out=2,dtype=f32,no_bias=1"),
        ("my_embedding.in", {"weight": (2, 3)}, "embedding vocab=2,cols=3,dtype=f32"),
        ("embedding", {"weight": (2, 3), "bias": 2}, "linear in=3,out=2,dtype=f32"),
        ("embedding", {"weight": 3}, None),
        ("linear", {"weight": (2, 3), "bias": 3}, None),
        ("norm", {"gamma": (3, 3)}, None),
        ("norm", {"gamma": 3, "beta": 4}, None),
        ("norm", {"gamma": 3, "bias": 3}, None),
        ("norm", {"gamma": 3, "beta": 3, "bias": 3}, None),
        ("softmax", {"x": 3}, None),
    ):
        shutil.copy(checkpoint("bytes"), made)
        with h5py.File(made, "r+") as file:
            del file["model"]
            for name, shape in params.items():
                file.create_dataset(f"model/{layer}/{name}", data=np.zeros(shape, np.float32)).attrs["checksum"] = np.uint64(0)
        result = run(["--list", "--checkpoint", made]).want(0 if want else 2)
        if want:
            assert result.out.split() == [layer.replace("/", "."), want.split()[0], "64", "rows", want.split()[1]], result
        else:
            assert f"model/{layer}: its parameters match no kind" in result.err, result


def test_options_of_a_checkpoints_inputs():
    file = checkpoint("bytes")
    listed = run(["--list", "--checkpoint", file, "--rows", "7"]).want(0)
    assert " 7 rows" in listed.out and "block0.norm" in listed.out, listed
    one = findings(report(["--checkpoint", file, "--rows", "7", "--filter", "head"], RANKS))
    two = findings(report(["--checkpoint", file, "--rows", "7", "--filter", "head", "--seed", "2"], RANKS))
    assert one[("head", "y")]["elements"] == 7 * 256 and one != two
    run(["--quiet", "--checkpoint", file, "--rows", "0"], RANKS).want(0)


def test_a_recorded_checkpoint():
    run(["--quiet", "--checkpoint", checkpoint("bytes"), "--record", path("trained.h5")]).want(0)
    run(["--quiet", path("trained.h5")], RANKS).want(0)
    with h5py.File(path("trained.h5")) as made, h5py.File(checkpoint("bytes")) as file:
        assert np.array_equal(made["cases/head/params/weight"][...], file["model/head/weight"][...])


def test_files_that_are_no_checkpoints():
    result = run(["--checkpoint", CASES]).want(2)
    assert "not a Tutti checkpoint" in result.err, result
    with open(checkpoint("bytes"), "rb") as file:
        content = bytearray(file.read())
    with h5py.File(checkpoint("bytes")) as file:
        at = file["model/head/weight"].id.get_offset()
    content[at + 5] ^= 0x10
    with open(path("spoilt.ckpt"), "wb") as file:
        file.write(content)
    result = run(["--checkpoint", path("spoilt.ckpt")], RANKS).want(2)
    assert "head/weight" in result.err and "checksum" in result.err, result


start()
