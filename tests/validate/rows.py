"""Rows that are long, constant, or too large for a norm: layers hold, by the file's bounds and by the validator's own."""

from rig import *

from cases.layers.cross_entropy import CrossEntropy  # noqa: E402
from cases.layers.norm import Norm  # noqa: E402
from cases.layers.softmax import Softmax  # noqa: E402
from cases.record import CaseFile, Recorder  # noqa: E402


def written(name, chosen):
    """A file of these cases."""
    file = CaseFile(path(name))
    with np.errstate(over="ignore", invalid="ignore"):
        for case_name, case in chosen.items():
            case.run(Recorder(file, case_name, case.layer, case.options, case.attributes))
    file.close()
    return path(name)


def norms(types, shape, **more):
    x, param, y = types
    options = dict(cols=shape[1], x_dtype=x, param_dtype=param, y_dtype=y)
    return {layer: Norm(layer, dict(options), shape, **more) for layer in ("layernorm", "rmsnorm")}


def check(file):
    """Checks with both kinds of bounds; returns the recorded results."""
    run(["--quiet", file]).want(0)
    own = edited(without_bounds, "own.h5", file)
    run(["--quiet", "--record", path("recorded.h5"), own]).want(0)
    return h5py.File(path("recorded.h5"), "r")


def test_long_rows_of_f64():
    cols = 1 << 20
    chosen = norms(("f64",) * 3, (1, cols), mean=3.0)
    for log, name in ((False, "softmax"), (True, "log-softmax")):
        chosen[name] = Softmax(dict(cols=cols, log=log, dtype="f64"), (1, cols))
    chosen["cross-entropy"] = CrossEntropy(dict(cols=cols, dtype="f64"), 1)
    check(written("long.h5", chosen))


def test_rows_of_one_value():
    for dtype, value in (("f32", 0.1), ("f32", 1e30 / 3), ("bf16", 12345.0), ("f64", 0.1)):
        chosen = norms((dtype,) * 3, (5, 1000), mean=value, deviation=0.0)
        del chosen["rmsnorm"]  # whose squares overflow, and which subtracts no mean
        with check(written("one.h5", chosen)) as file:
            case = file["cases/layernorm"]
            assert np.array_equal(case["expected/y"][...], np.tile(case["params/beta"][...], (5, 1))), (dtype, value)
            assert not case["expected_grad/dgamma"][...].any(), (dtype, value)


def test_norms_that_overflow():
    for dtype, deviation in (("f32", 1e19), ("f64", 1e153)):
        with check(written("large.h5", norms((dtype,) * 3, (4, 1000), mean=0.0, deviation=deviation))) as file:
            for case in file["cases"].values():
                for name in ("expected/y", "expected_grad/dx", "expected_grad/dgamma"):
                    assert np.isnan(case[name][...]).all(), (case.name, name)
        with check(written("large.h5", norms((dtype,) * 3, (4, 1000), mean=0.0, deviation=deviation / 100))) as file:
            for case in file["cases"].values():
                assert np.isfinite(case["expected/y"][...]).all(), case.name


def test_numbers_where_a_norm_overflows_are_wrong():
    """A reference that ignores the overflow."""

    def spoil(file):
        values = file["cases/rmsnorm/expected/y"]
        values[...] = np.zeros(values.shape)

    file = written("large.h5", norms(("f32",) * 3, (4, 100), mean=0.0, deviation=1e20))
    result = run(["--quiet", "--filter", "rmsnorm", edited(spoil, "zeros.h5", file)]).want(1)
    assert "expected/y" in result.err, result


start()
