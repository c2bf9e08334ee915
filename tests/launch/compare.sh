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
        expect_equal "rows of $dtype" "$(grep -cE '^[a-z_]+ +(forward|backward) ' output)" 82
    done
    python3 - <<'PYTHON' || fail "the JSON is not what it should be"
import json
rows = json.load(open("rows.f32"))
assert len(rows) == 82 and all(row["failed"] == [] and {"tutti", "roof", "torch"} <= row["ms"].keys() for row in rows), rows
PYTHON
}
test_other_variants() {
    needs_torch
    compare --no-bars --shapes 33x257 --layers softmax_log,dropout_relu,glu_none || fail "$(<output)"
    expect_equal rows "$(grep -cE '^[a-z_]+ +(forward|backward) ' output)" 6
}
test_every_activation_at_a_size_where_rounding_adds_up() {
    needs_torch
    compare --no-bars --dtype bf16 --shapes 2048x256x512,2048x256x512x256 --layers "$(printf 'linear_%s,mlp_%s,' {none,relu,leaky_relu,gelu,gelu_erf,squared_relu,silu,smelu,star_relu}{,} | sed 's/,$//')" ||
        fail "$(<output)"
    expect_equal rows "$(grep -cE '^[a-z_]+ +(forward|backward) ' output)" 36
}
test_tf32() {
    needs_torch
    compare --no-bars --dtype tf32 --shapes 17x256x64,9x64x96x40,33x257 --layers linear_gelu,mlp_gelu,matmul_nt,layernorm --json rows
    expect_equal "code, as a norm has no products" $? 2
    grep -q "layernorm: there is no option 'allow_tf32'" output || fail "$(<output)"
    expect_equal "rows written before" "$(grep -c '"dtype": "tf32"' rows)" 6
}
test_products_of_quack() { # whose place modules of these names take
    needs_torch
    mkdir -p modules/quack
    cat >modules/quack/linear.py <<'PYTHON'
import torch.nn.functional as F
def linear_func(x, weight, bias=None, fuse_grad_accum=False, tuned=True):
    return F.linear(x, weight, bias)
def linear_act_func(x, weight, activation, bias=None, store_preact=True, fuse_grad_accum=False, tuned=True):
    z = F.linear(x, weight, bias)
    return z, {"relu": F.relu}[activation](z)
PYTHON
    cat >modules/quack/mlp.py <<'PYTHON'
from quack.linear import F, linear_act_func
def mlp_func(x, weight1, weight2, activation, bias1=None, bias2=None, fuse_grad_accum=False, tuned=True):
    return F.linear(linear_act_func(x, weight1, activation, bias1)[1], weight2, bias2)
PYTHON
    PYTHONPATH=$PWD/modules compare --no-bars --shapes 17x256x64,9x64x96x40 --peers quack --layers linear_none,linear_relu,mlp_relu,mlp_smelu || fail "$(<output)"
    expect_equal "rows with a ratio" "$(grep -cE '%( +[0-9.]+) *$' output)" 5
    expect_equal "rows without" "$(grep -cE '% +– *$' output)" 3
    grep -q 'quack: LookupError: has no smelu ' output || fail "$(<output)"
}
test_wrong_results_are_found() {
    needs_torch
    compare --no-bars --shapes 33x257,17x256x64,3x33x17x20 --inject-fault
    expect_equal code $? 1
    expect_equal wrong "$(grep -c ' is wrong, ' output)" 65
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
