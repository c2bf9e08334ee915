#!/usr/bin/env bash
# Runs the examples, which check their own results: each by itself and on several ranks.
# usage: examples.sh host|cuda FOLDER-OF-PROGRAMS
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/../launch/check.sh"
backend=$1
bin=$(readlink -f "$2")
run=$top/launch/tutti-run

# An example takes a GPU where it finds one.
if [[ $backend == host ]]; then
    export CUDA_VISIBLE_DEVICES=''
elif ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
    [[ ${TUTTI_TEST_REQUIRE_GPU-} != 1 ]] || fail "there is no GPU"
    skip "no GPU"
fi

# prints NAME RANKS WANTED: the example ends with 0, and rank 0 alone prints a last line that matches.
prints() {
    [[ -x $bin/$1 ]] || skip "the example $1 was not built"
    "$run" -np "$2" "$bin/$1" >output 2>errors || fail "$1 on $2 ranks ended with $?: $(<output) $(<errors)"
    expect_match "last line of $1 on $2 ranks" "$(tail -n 1 output)" "$3"
}
# does_not_depend_on_ranks NAME WANTED: the same lines on 1, 2 and 3 ranks.
does_not_depend_on_ranks() {
    local np one
    prints "$1" 1 "$2"
    one=$(<output)
    for np in 2 3; do
        prints "$1" "$np" "$2"
        expect_equal "lines of $1 on $np ranks" "$(<output)" "$one"
    done
}

if [[ $backend == host ]]; then
    test_embed() { does_not_depend_on_ranks embed '^weight 0.100 0.100 0.100 0.100$'; }
    test_data_parallel() { does_not_depend_on_ranks data_parallel '^step 150 +loss 0\.036'; }
    test_own_buffers() {
        does_not_depend_on_ranks own_buffers '^weight 0.500000 -1.250000 2.000000, bias -0.750000$'
    }
    test_own_update() { prints own_update 1 '^weight 0.5000 -1.2500 2.0000, bias -0.7500$'; }
    test_reproducible() { does_not_depend_on_ranks reproducible '^loss 0.000..., weights [0-9a-f]{16}$'; }
    test_own_layer() {
        local np
        for np in 1 2 3; do
            prints own_layer "$np" '^the gradient of the factor is the loss.s slope to .e-1'
            head -n 3 output >"losses.$np"
            cmp losses.1 "losses.$np" || fail "the losses on $np ranks differ from those on one"
        done
    }

    test_checkpoint() {
        local np=1 size
        prints checkpoint 1 '^resumed at step 25, loss 0.0*[1-9][0-9]* at the end, weights equal to the bit$'
        size=$(stat -c %s run.h5)
        for np in 2 3; do
            prints checkpoint "$np" '^resumed at step 25, .*, weights equal to the bit$'
            expect_equal "size of the file of $np ranks" "$(stat -c %s run.h5)" "$size"
        done
    }
    test_more_ranks_than_cores() { prints data_parallel 7 '^step 150 +loss 0\.036'; }
    test_the_smallest_step_is_small() {
        local lines
        lines=$(wc -l <"$top/examples/data_parallel.c")
        ((lines < 100)) || fail "data_parallel.c has $lines lines"
        lines=$(wc -l <"$top/examples/reproducible.c")
        ((lines <= 100)) || fail "reproducible.c has $lines lines"
    }
else
    test_data_parallel() {
        prints data_parallel 1 '^step 150 +loss 0\.036'
        local one
        one=$(<output)
        # ranks that find fewer GPUs than they are share them
        prints data_parallel 2 '^step 150 +loss 0\.036'
        expect_equal "lines on 2 ranks" "$(<output)" "$one"
        CUDA_VISIBLE_DEVICES='' prints data_parallel 2 '^step 150 +loss 0\.036'
        expect_equal "lines on the host" "$(<output)" "$one"
    }
    test_cuda_stream() { prints cuda_stream 1 '^worst difference from a plain computation .*e-0[6-9]$'; }
fi

run_tests
