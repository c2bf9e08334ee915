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

# prints NAME RANKS WANTED ARG …: the example ends with 0, and rank 0 alone prints a last line that matches.
prints() {
    [[ -x $bin/$1 ]] || skip "the example $1 was not built"
    "$run" -np "$2" "$bin/$1" "${@:4}" >output 2>errors || fail "$1 on $2 ranks ended with $?: $(<output) $(<errors)"
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

# transformers STEPS RANKS …: the same lines and the same checkpoint, to the byte, on each number of ranks.
transformers() {
    local np
    cat "$top"/docs/*.md >text
    for np in "${@:2}"; do
        prints transformer "$np" "^step +$1  loss [0-9.]+$" text "$1" "run.$np"
        cp output "lines.$np"
        cmp "lines.$2" "lines.$np" || fail "the lines on $np ranks differ from those on $2"
        cmp "run.$2" "run.$np" || fail "the checkpoint of $np ranks differs from that of $2"
    done
}
# refuses CODE WORDS ARG …: what the transformer says, on one rank, and that it writes no file.
refuses() {
    "$bin/transformer" "${@:3}" >output 2>&1
    expect_equal "code of transformer ${*:3}" $? "$1"
    grep -qxF "transformer: $2" output || fail "transformer ${*:3}: $(<output)"
    [[ ! -e new.h5 ]] || fail "transformer ${*:3} has written its file"
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
    test_transformer() {
        local loss
        transformers 60 1 2 3
        loss=$(sed -n 's/^step *60  loss //p' output)
        # it has learned more than how frequent each byte is; below 1 it would have seen the next one, as without the mask
        python3 - "$loss" <<'END' || fail "loss $loss"
import collections, math, sys
text = open("text", "rb").read()
frequent = -sum(n / len(text) * math.log(n / len(text)) for n in collections.Counter(text).values())
sys.exit(not 1 < float(sys.argv[1]) < 0.85 * frequent)
END
        prints transformer 3 '^step   30 ' text 30 resumed
        prints transformer 2 '^step   60 ' text 60 resumed --resume
        cmp run.1 resumed || fail "the checkpoint of the resumed run differs"
    }
    test_transformer_refuses() {
        local usage="want TEXT STEPS FILE [--resume], and at least 1 step"
        [[ -x $bin/transformer ]] || skip "the example transformer was not built"
        head -c 64 "$top/README.md" >short
        head -c 65 "$top/README.md" >text
        refuses 64 "$usage"
        refuses 64 "$usage" text 1
        refuses 64 "$usage" text 0 new.h5
        refuses 64 "$usage" text 1x new.h5
        refuses 64 "$usage" text '' new.h5
        refuses 64 "$usage" text 1 new.h5 --again
        refuses 64 "$usage" text 1 new.h5 --resume more
        refuses 2 "short cannot be read, or is too short" short 1 new.h5
        refuses 2 "absent cannot be read, or is too short" absent 1 new.h5
        refuses 2 "checkpoint_own: cannot open folder/new.h5.lck: No such file or directory" text 1 folder/new.h5
        refuses 2 "checkpoint_load: new.h5: No such file or directory" text 1 new.h5 --resume
        prints transformer 1 '^step    1 ' text 1 new.h5
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
    test_transformer() { transformers 20 1 2; }
    test_cuda_stream() { prints cuda_stream 1 '^worst difference from a plain computation .*e-0[6-9]$'; }
fi

run_tests
