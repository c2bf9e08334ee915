#!/usr/bin/env bash
# Tests of bench/compare.py on the host, beside PyTorch.
# usage: compare.sh BUILD-FOLDER
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
build=$(readlink -f "$1")

# compare ARGS …: once, on the host, to `output`
shapes=33x257,9x64,17x256x64,3x33x17x20
compare() {
    PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} OMP_WAIT_POLICY=passive python3 "$top/bench/compare.py" --backend host --repeats 1 "$@" >output 2>&1
}
needs_torch() {
    [[ -e $build/python/tutti_build.py ]] || skip "this build has no Python module"
    python3 -c 'import torch, cffi' 2>/dev/null || skip "no PyTorch, or no cffi, for python3"
}

test_every_layer_and_type() {
    local dtype
    needs_torch
    for dtype in f32 f16 bf16; do
        compare --no-bars --dtype "$dtype" --shapes "$shapes" --json "rows.$dtype" || fail "$dtype: $(<output)"
        expect_equal "rows of $dtype" "$(grep -cE '^[a-z_]+ +(forward|backward) ' output)" 56
    done
    python3 - <<'PYTHON' || fail "the JSON is not what it should be"
import json
rows = json.load(open("rows.f32"))
assert len(rows) == 56 and all(row["failed"] == [] and {"tutti", "roof", "torch"} <= row["ms"].keys() for row in rows), rows
PYTHON
}
test_other_variants() {
    needs_torch
    compare --no-bars --shapes 33x257,17x256x64,9x64x96x40 --layers softmax_log,mlp_leaky_relu,mlp_silu,linear_smelu,linear_star_relu,linear_leaky_relu,linear_gelu_erf,linear_silu,dropout_relu,glu_none ||
        fail "$(<output)"
    expect_equal rows "$(grep -cE '^[a-z_]+ +(forward|backward) ' output)" 20
}
test_wrong_results_are_found() {
    needs_torch
    compare --no-bars --shapes 33x257,17x256x64,3x33x17x20 --inject-fault
    expect_equal code $? 1
    expect_equal wrong "$(grep -c ' is wrong, ' output)" 39
}
test_peers_of_the_host() {
    needs_torch
    python3 -c 'import numpy' 2>/dev/null || skip "no NumPy for python3"
    compare --no-bars --shapes 33x257 --layers layernorm,rmsnorm,softmax --peers torch,numpy,triton
    expect_equal code $? 0
    expect_equal "ratios of torch and numpy" "$(grep -cE '%( +[0-9.]+){2} +– *$' output)" 6
}
test_a_missed_bar_is_a_failure() {
    needs_torch
    compare --layers softmax --shapes 64x64 --least-share 1e6
    expect_equal code $? 1
    expect_equal missed "$(grep -c 'want 1e+06 % of the roof' output)" 2
}
test_wrong_options() {
    needs_torch
    compare --layers norm && fail "an unknown layer: $(<output)"
    grep -q "there is no 'norm'; layers: layernorm, " output || fail "$(<output)"
    compare --peers nobody && fail "an unknown peer: $(<output)"
    grep -q "there is no 'nobody'; " output || fail "$(<output)"
    compare --shapes 4x4x4x4x4 && fail "shapes that no layer has: $(<output)"
    grep -q "no layer has as many sizes" output || fail "$(<output)"
}

run_tests
