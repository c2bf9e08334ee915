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
    PYTHONPATH=$PWD/modules compare --help || fail "--help: $(<output)"
    expect_match help "$(<output)" '^usage: compare_ddp.py .*written anew after each model$'
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
    # refused WORDS OPTION VALUE
    refused() { expect_refusal compare_ddp.py "$1" compare "$2" "$3"; }
    refused "there is no 'nobody'; peers: ddp_f32, " --peers nobody
    refused "--models has '32x2', want DIMxBLOCKSxROWS" --models 32x2
    refused "argument --steps: '0', want a whole number from 1" --steps 0
    refused "argument --ranks: '-1', want a whole number from 1" --ranks -1
    refused "argument --leaves: '2.5', want a whole number from 1" --leaves 2.5
    refused "argument --timeout: '0', want a number larger than 0" --timeout 0
    refused "argument --no-slower: 'inf', want a number larger than 0" --no-slower inf
    refused "unrecognized arguments: --frobnicate 3" --frobnicate 3
    compare --peers '' --leaves 3
    expect_equal code $? 2
    grep -q "32x2x64: tutti-bench step: --leaves is 3, want a multiple of the ranks " output || fail "$(<output)"
}
test_results_are_not_lost() {
    compare --json nowhere/rows
    expect_equal "code of a folder that is not there" $? 2
    expect_equal "said before anything is measured" "$(<output)" "compare_ddp.py: nowhere/rows: cannot be written: No such file or directory"
    mkdir modules
    echo 'raise ImportError("no such torch")' >modules/torch.py
    PYTHONPATH=$PWD/modules compare --peers ddp_f32 --no-slower 100 --json rows
    expect_equal "code without ddp_f32" $? 2
    expect_equal "rows of Tutti's" "$(grep -c '"who": "tutti' rows)" 3
}
test_a_signal_stops_it_in_order() {
    local pid
    TUTTI_BUILD_DIR=$build python3 "$top/bench/compare_ddp.py" --backend host --ranks 2 --steps 100000 --models 32x2x64 --peers '' >output 2>&1 &
    pid=$!
    for _ in {1..100}; do
        [[ $(pgrep -fc "tutti-bench step .*--steps 100000") -le 1 ]] || break
        sleep 0.1
    done
    kill -TERM "$pid"
    wait "$pid"
    expect_equal code $? 75
    expect_match output "$(<output)" "compare_ddp.py: stopped by SIGTERM"
    ! grep -q Traceback output || fail "$(<output)"
}

run_tests
