#!/usr/bin/env bash
# Tests of bench/compare_ddp.py on the host, two ranks, beside PyTorch over gloo.
# usage: compare_ddp.sh BUILD-FOLDER
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
build=$(readlink -f "$1")

# compare ARGS …: once, on the host, to `output`
compare() {
    TUTTI_BUILD_DIR=$build python3 "$top/bench/compare_ddp.py" --backend host --ranks 2 --steps 2 --models 32x2x64 "$@" >output 2>&1
}
needs_torch() {
    python3 -c 'import torch.distributed as d; assert d.is_gloo_available()' 2>/dev/null || skip "no PyTorch with gloo for python3"
}

test_modes_of_tutti() {
    compare --peers '' --leaves 4 --wire bf16 || fail "$(<output)"
    expect_match output "$(<output)" "32x2x64 tutti sharded, bf16 wire +[0-9.]+ "
    compare --peers '' --leaves 4 --json rows || fail "$(<output)"
    for who in tutti "tutti sharded" "tutti 4 leaves"; do
        expect_match output "$(<output)" "32x2x64 $who +[0-9.]+ +[0-9.]+ +[0-9.]+%"
    done
    python3 - <<'PYTHON' || fail "the JSON is not what it should be"
import json
rows = json.load(open("rows"))
assert [row["who"] for row in rows] == ["tutti", "tutti sharded", "tutti 4 leaves"], rows
assert all(row["ranks"] == 2 and abs(row["kept"] - row["alone_ms"] / row["step_ms"]) < 1e-9 for row in rows), rows
PYTHON
}
test_peers() {
    needs_torch
    compare --peers ddp_f32,zero --wire bf16 || fail "$(<output)"
    for who in ddp_f32 zero; do
        expect_match output "$(<output)" "32x2x64 $who +[0-9.]+ +[0-9.]+ +[0-9.]+% +[0-9.]+"
    done
}
test_a_peer_that_does_not_run_is_named() {
    mkdir -p modules
    echo 'raise ImportError("no such torch")' >modules/torch.py
    PYTHONPATH=$PWD/modules compare --peers ddp_f32
    expect_equal code $? 0
    expect_match output "$(<output)" '32x2x64 all +– +– +–  no such torch'
    PYTHONPATH=$PWD/modules compare --peers ddp_f32 --no-slower 100
    expect_equal "code without ddp_f32" $? 2
    grep -q "32x2x64: --no-slower: ddp_f32 did not run" output || fail "$(<output)"
}
test_a_faster_peer_is_a_failure() {
    needs_torch
    compare --peers ddp_f32 --no-slower 1e9
    expect_equal code $? 1
    expect_match output "$(<output)" "of tutti's time, want 1e\+09 %"
}
test_wrong_options() {
    compare --peers nobody && fail "an unknown peer: $(<output)"
    grep -q "there is no 'nobody'; peers: ddp_f32, " output || fail "$(<output)"
    compare --models 32x2 && fail "a model of two numbers: $(<output)"
    grep -q "want DIMxBLOCKSxROWS" output || fail "$(<output)"
    compare --peers '' --leaves 3
    expect_equal code $? 2
    grep -q "32x2x64: tutti-bench step: --leaves is 3, want a multiple of the ranks " output || fail "$(<output)"
}

run_tests
