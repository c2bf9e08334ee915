#!/usr/bin/env bash
# Tests of launch/night.sh.  usage: night.sh host|cuda BUILD-FOLDER
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
backend=$1
build=$(readlink -f "$2")
script=$top/launch/night.sh
if [[ $backend == host ]]; then
    export CUDA_VISIBLE_DEVICES=''
elif ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
    [[ ${TUTTI_TEST_REQUIRE_GPU-} != 1 ]] || fail "there is no GPU"
    skip "no GPU"
fi

test_a_small_night_holds() {
    [[ -r /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]] || skip "Fashion-MNIST is not installed"
    TUTTI_BUILD_DIR=$build "$script" --folder files --width 32 --epochs 4 --reproducible 4 >output 2>&1 ||
        fail "it ended with $?: $(<output)"
    expect_match "last line" "$(tail -n 1 output)" '^all [56] steps held in [0-9]+ s; the files are in files$'
    expect_equal "exit codes" "$(sed -n 's/.*exit code: //p' output | paste -sd ' ')" "137 75 0 0 0"
    [[ -s files/run.h5 && -s files/run.h5.1 ]] || fail "the checkpoints are not there: $(ls files)"
}

if [[ $backend == host ]]; then
    # A tutti-train that does nothing fails every step that runs it.
    test_says_what_did_not_hold() {
        mkdir -p build/bin
        printf '#!/bin/sh\nexit 0\n' >build/bin/tutti-train && chmod +x build/bin/tutti-train
        TUTTI_BUILD_DIR=$PWD/build "$script" --folder files >output 2>&1
        expect_equal code $? 1
        expect_match "last line" "$(tail -n 1 output)" '^(5 of 5|6 of 6) steps did not hold; the logs are in files$'
        expect_match output "$(<output)" 'DID NOT HOLD: exit code: 0, want 137'
    }
    test_leaves_another_run_alone() {
        mkdir files && echo precious >files/run.h5
        TUTTI_BUILD_DIR=$build "$script" --folder files >output 2>&1
        expect_equal code $? 2
        expect_match message "$(<output)" 'run.h5 is there already'
        expect_equal file "$(<files/run.h5)" precious
    }
    test_explains_itself() {
        "$script" --help >output || fail "it ended with $?"
        expect_match help "$(<output)" 'usage: launch/night.sh'
    }
fi

run_tests
