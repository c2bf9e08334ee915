#!/usr/bin/env bash
# Builds each example against an installed Tutti with the command that its comment gives, and runs it.
# usage: installed.sh BUILD-FOLDER LIB-FOLDER-OF-AN-INSTALLATION
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/../launch/check.sh"
build=$(readlink -f "$1")
prefix=$scratch/prefix
run=$top/launch/tutti-run
export CUDA_VISIBLE_DEVICES=''

cmake --install "$build" --prefix "$prefix" >"$scratch/install.log" 2>&1 || fail "installing failed: $(<"$scratch/install.log")"
[[ -e $prefix/$2/pkgconfig/tutti.pc ]] || skip "tutti.pc is not installed"
export PKG_CONFIG_PATH=$prefix/$2/pkgconfig LD_LIBRARY_PATH=$prefix/$2

# builds NAME: by the command in its comment, in a folder that has nothing else.
builds() {
    local command
    command=$(sed -n 's/^.* Build: \([^;]*\).*$/\1/p' "$top/examples/$1.c")
    [[ $command ]] || fail "$1.c does not say how it is built"
    cp "$top/examples/$1.c" .
    eval "$command" >log 2>&1 || fail "$command: $(<log)"
}
# builds_and_runs NAME ARG …: on two ranks, and it says that its result is right.
builds_and_runs() {
    local program=$1
    builds "$1"
    [[ -x $program ]] || program=a.out
    "$run" -np 2 "./$program" "${@:2}" >log 2>&1 || fail "$1 ended with $?: $(<log)"
}

test_embed() { builds_and_runs embed; }
test_data_parallel() { builds_and_runs data_parallel; }
test_own_buffers() { builds_and_runs own_buffers; }
test_own_update() { builds_and_runs own_update; }
test_reproducible() { builds_and_runs reproducible; }
test_own_layer() { builds_and_runs own_layer; }
test_checkpoint() {
    [[ -x $build/bin/checkpoint ]] || skip "this build has no HDF5"
    builds_and_runs checkpoint
}
test_transformer() {
    [[ -x $build/bin/transformer ]] || skip "this build has no HDF5"
    builds_and_runs transformer "$top/README.md" 2 run.h5
}
test_cuda_stream() {
    [[ -x $build/bin/cuda_stream ]] || skip "this build has no CUDA"
    type -P nvcc >/dev/null || skip "nvcc is not on PATH"
    builds cuda_stream
    ./cuda_stream >log 2>&1
    expect_equal "code without a GPU" $? 77
}
test_every_example_is_built_here() {
    local file
    for file in "$top"/examples/*.c; do
        declare -F "test_$(basename "$file" .c)" >/dev/null || fail "no test builds ${file##*/}"
    done
}

run_tests
