#!/usr/bin/env bash
# Tests of bench-checkpoint and of examples that open files.  usage: bench.sh BUILD-FOLDER
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
build=$(readlink -f "$1")
export ASAN_OPTIONS=detect_leaks=0 # they leave to the end of the process what it frees anyway

# It would be removed at the end.
test_refuses_a_file_that_is_there() {
    [[ -x $build/bin/bench-checkpoint ]] || skip "built without MPI or HDF5"
    local there
    for there in f f.plain; do
        echo precious >"$there"
        "$build/bin/bench-checkpoint" --path f --bytes 10000 --rounds 1 --backend host >output 2>&1
        expect_equal code $? 64
        expect_match output "$(<output)" "$there is there"
        expect_equal "$there" "$(<"$there")" precious
        rm "$there"
    done
    "$build/bin/bench-checkpoint" --path f --bytes 10000 --rounds 1 --backend host >output 2>&1 || fail "$(<output)"
    expect_equal files "$(ls)" output
}
test_closed_standard_files() {
    [[ -x $build/bin/checkpoint ]] || skip "built without MPI, HDF5 or the examples"
    "$build/bin/checkpoint" open.h5 >output
    "$build/bin/checkpoint" closed.h5 <&- >&- 2>&- || fail "code $?"
    cmp open.h5 closed.h5 || fail "its lines are in the file"
    "$build/bin/bench-checkpoint" --path f --bytes 10000 --rounds 1 --backend host <&- >&- 2>&- || fail "code $?"
}

run_tests
