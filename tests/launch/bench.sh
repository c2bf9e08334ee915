#!/usr/bin/env bash
# Tests of tutti-bench, and of examples that open files.  usage: bench.sh BUILD-FOLDER
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
build=$(readlink -f "$1")
export ASAN_OPTIONS=detect_leaks=0 # memory that is in use until the programs' end is not freed

# The file would be removed at the end.
test_refuses_an_existing_file() {
    "$build/bin/tutti-bench" --version | grep -q "^files: hdf5" || skip "built without HDF5"
    local there
    for there in f f.plain; do
        echo precious >"$there"
        "$build/bin/tutti-bench" checkpoint --path f --bytes 10000 --rounds 1 --backend host >output 2>&1
        expect_equal code $? 64
        expect_match output "$(<output)" "$there exists and would be removed"
        expect_equal "$there" "$(<"$there")" precious
        rm "$there"
    done
    "$build/bin/tutti-bench" checkpoint --path f --bytes 10000 --rounds 1 --backend host >output 2>&1 || fail "$(<output)"
    expect_equal files "$(ls)" output
}
test_closed_standard_files() {
    [[ -x $build/bin/checkpoint ]] || skip "built without MPI, HDF5 or the examples"
    "$build/bin/checkpoint" open.h5 >output
    "$build/bin/checkpoint" closed.h5 <&- >&- 2>&- || fail "code $?"
    cmp open.h5 closed.h5 || fail "its lines are in the file"
    "$build/bin/tutti-bench" checkpoint --path f --bytes 10000 --rounds 1 --backend host <&- >&- 2>&- || fail "code $?"
}
# expect_right LEAST: every row of the output is right, and there are so many at least.
expect_right() {
    local rows
    rows=$(grep -cE ' (right|WRONG)$' output)
    expect_equal right "$(grep -c ' right$' output)" "$rows"
    ((rows >= $1)) || fail "$rows rows, want $1 at least"
}

test_finds_what_is_wrong() {
    local faulty
    local -a all=("$build/bin/tutti-bench" --backend host --repeats 1 --shape "7x33,5x18x6")
    "${all[@]}" >output 2>&1 || fail "$(<output)"
    expect_right 32
    # the same with a layer whose backward leaves its last row out
    faulty=$(find "$build/tests/validate" -name 'libtutti_faulty.so')
    if [[ ! $faulty ]] || grep -q '^TUTTI_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then
        skip "the library is static, or has a sanitizer in it"
    fi
    LD_PRELOAD=$faulty TUTTI_TEST_FAULT=row "${all[@]}" >output 2>&1
    expect_equal code $? 1
    expect_equal wrong "$(grep -c ' backward .* WRONG$' output)" "$(grep -cE ' backward .* (right|WRONG)$' output)"
    grep -v ' backward ' output | grep ' WRONG$' && fail "forward is wrong too"
    grep -q ' right$' output || fail "nothing is right: $(<output)"
}


# bench ARGS …: tutti-bench on the host, once, to `output`
bench() {
    "$build/bin/tutti-bench" --backend host --repeats 1 "$@" >output 2>&1
}
# As a kind that the bench has nothing for.
test_knows_a_layer_by_its_table() {
    local dtype faulty
    for dtype in f64 f32 f16 bf16; do
        bench --plain --dtype "$dtype" --shape 7x33,5x18x6 || fail "$(<output)"
        expect_right 30
        bench --plain --dtype "$dtype" --shape 5x9x17 embedding linear || fail "$(<output)"
        expect_right 8
    done
    bench --plain softmax cross_entropy embedding || fail "$(<output)"
    expect_match "a shape of its own" "$(<output)" "softmax +forward +1024x256 "
    expect_match "a shape of its own" "$(<output)" "cross_entropy +loss[+]grad +1024x256 "
    expect_match "a shape of its own" "$(<output)" "embedding +backward +1024x256x256 "
    faulty=$(find "$build/tests/validate" -name 'libtutti_faulty.so')
    if [[ ! $faulty ]] || grep -q '^TUTTI_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then
        skip "the library is static, or has a sanitizer in it"
    fi
    # every second forward does nothing, a reference's too
    LD_PRELOAD=$faulty TUTTI_TEST_FAULT=idle bench --plain --shape 7x33
    expect_equal code $? 1
    grep -q ' WRONG$' output || fail "$(<output)"
}
test_bytes_of_a_pass() {
    bench --json now.json --shape 7x33,5x18x6,3x4x5x6 --dtype f64 || fail "$(<output)"
    local line
    while read -r line; do
        # shellcheck disable=SC2086
        set -- $line
        grep -q "\"op\": \"$1\", \"pass\": \"$2\", .*\"shape\": \"$3\", .*\"$4\": $5," now.json ||
            fail "not $line: $(grep "\"$1\"" now.json)"
    done <<END
rmsnorm forward 7x33 bytes $((2 * 7 * 33 * 8))
layernorm backward 7x33 bytes $((3 * 7 * 33 * 8))
softmax forward 7x33 bytes $((2 * 7 * 33 * 8))
softmax backward 7x33 bytes $((3 * 7 * 33 * 8))
glu forward 7x33 bytes $((3 * 7 * 33 * 8))
glu backward 7x33 bytes $((5 * 7 * 33 * 8))
cross_entropy loss+grad 7x33 bytes $((2 * 7 * 33 * 8))
bce_with_logits loss+grad 7x33 bytes $((3 * 7 * 33 * 8))
embedding forward 5x18x6 bytes $((5 * (4 + 2 * 6 * 8)))
embedding backward 5x18x6 bytes $((5 * (4 + 6 * 8) + 18 * 6 * 8))
rope backward 5x18x6 bytes $((2 * 5 * 18 * 8))
linear forward 5x18x6 operations $((2 * 5 * 18 * 6))
linear backward 5x18x6 operations $((4 * 5 * 18 * 6))
mlp forward 3x4x5x6 operations $((2 * 3 * 5 * (4 + 6)))
mlp backward 3x4x5x6 operations $((4 * 3 * 5 * (4 + 6)))
matmul forward 3x4x5x6 operations $((2 * 3 * 4 * 5 * 6))
matmul backward 3x4x5x6 operations $((4 * 3 * 4 * 5 * 6))
END
}
test_variants() {
    bench --activation relu,leaky_relu,gelu,gelu_erf,squared_relu,silu,smelu,star_relu --shape 5x9x17 linear || fail "$(<output)"
    expect_equal rows "$(grep -c 'linear .* 5x9x17 .* right$' output)" 16
    expect_match output "$(<output)" "linear +backward +squared_relu +5x9x17 "
    bench -a silu --shape 5x9x17 linear || fail "$(<output)"
    expect_equal rows "$(grep -c ' silu .* right$' output)" 4
    bench -a star_relu --shape 7x33,5x9x17 linear glu || fail "$(<output)" # kinds share the option
    expect_equal rows "$(grep -cE '^(linear|glu) .* star_relu .* right$' output)" 8
    local dtype variant
    for dtype in f64 f32 f16 bf16; do
        bench --dtype "$dtype" --shape 3x5x7x9,2x1x4x33 matmul || fail "$(<output)"
        for variant in NN TN NT TT; do
            expect_equal "rows of $variant" "$(grep -c "matmul .*ward  *$variant  *[0-9x]*  *$dtype .* right$" output)" 6
        done
    done
}
test_optional_tensors_and_options() {
    local dtype line
    for dtype in f64 f32 f16 bf16; do
        bench --dtype "$dtype" --with residual --shape 7x33,40x130 --json now.json layernorm rmsnorm dropout || fail "$(<output)"
        expect_equal rows "$(grep -c ' residual  *[0-9x]*  *[a-z0-9]* .* right$' output)" 12
        expect_equal rows "$(grep -c 'dropout .* [a-z_]*[+]residual [0-9x]*  *[a-z0-9]* .* right$' output)" 12
    done
    for pass in forward backward; do
        grep -q "\"op\": \"rmsnorm\", \"pass\": \"$pass\", .*\"shape\": \"7x33\", .*\"bytes\": $((4 * 7 * 33 * 2))," now.json ||
            fail "bytes of rmsnorm: $(<now.json)"
    done
    bench --with lengths,bias --set log=1 --shape 7x33 softmax || fail "$(<output)"
    expect_equal rows "$(grep -c ' lengths[+]bias,log=1 .* right$' output)" 4
    bench --inject-fault=inside --with residual --shape 7x33 rmsnorm && fail "a fault was not found"
    "$build/bin/tutti-bench" --help >help
    for line in "rope rows x cols x head_size \\[positions\\]" "softmax rows x cols \\[lengths\\] \\[bias\\]"; do
        grep -q "^  ${line/ /  *}\$" help || fail "help has no $line"
    done
    bench --with residue --shape 7x33 rmsnorm && fail "there is no residue"
    expect_match output "$(<output)" "--with: no layer that is timed has an optional input residue"
    bench --set zero_centred=1 --shape 7x33 rmsnorm && fail "there is no zero_centred"
    expect_match output "$(<output)" "--set: no layer that is timed has an option zero_centred"
    bench --set activation=relu --shape 5x9x17 linear && fail "activations are variants"
    expect_match output "$(<output)" "--set: no layer that is timed has an option activation that is free"
    bench --set zero_centered=1,log=1 --shape 7x33 layernorm softmax glu || fail "$(<output)"
    for line in "layernorm .* zero_centered=1" "softmax .* log=1" "glu .* silu"; do
        expect_equal "$line" "$(grep -c "^$line  *[0-9x]*  *f32 .* right$" output)" 4
    done
    bench -a leaky_relu --set no_bias=1,slope=0.3 --shape 5x9x17,3x4x5x6 linear mlp || fail "$(<output)"
    expect_equal rows "$(grep -c ' leaky_relu,no_bias=1,slope=0.3 .* right$' output)" 8
    bench --inject-fault=sums -a leaky_relu --set no_bias=1,slope=0.3 --shape 5x9x17,3x4x5x6 linear mlp
    expect_equal wrong "$(grep -c ' backward .* WRONG$' output)" 4
    for dtype in bf16 f16; do
        bench --dtype "$dtype" -a relu --shape 5x9x17,3x4x5x6 linear mlp || fail "$(<output)" # most sums are 0
        for line in recompute=1 activation=leaky_relu recompute=1,activation=gelu; do
            bench --plain --dtype "$dtype" --set "$line" --shape 5x9x17,3x4x5x6 linear mlp || fail "$(<output)"
        done
    done
}
# On the host they are OpenBLAS's, which complains of wrong arguments and returns at once.
test_bare_products() {
    local dtype
    for dtype in f64 f32; do
        bench --dtype "$dtype" --repeats 15 --json "$dtype.json" --shape 50x180x61,31x40x50x60,7x33 linear mlp matmul softmax ||
            fail "$(<output)"
        grep -i "on entry\|illegal" output && fail "wrong arguments"
        python3 - "$dtype" <<'END' || fail "$(<"$dtype.json")"
import json, sys
with open(sys.argv[1] + ".json") as file:
    rows = json.load(file)
products = [row for row in rows if row["op"] != "softmax" and not row["shape"].startswith("1x")]
assert len(products) == 4 + 2 + 8, products
for row in products:
    gflops = 1e3 * row["tflops"] / (row["pct_roof"] / 100)
    assert 0.01 < gflops < 1000, (gflops, row)
END
        bench --dtype "$dtype" --repeats 15 --least-share 1 --shape 50x180x61,7x33 linear softmax || fail "$(<output)"
        bench --dtype "$dtype" --least-share 1000 --shape 50x180x61,7x33 linear softmax
        expect_equal "code of $dtype" $? 1
        expect_match "output of $dtype" "$(<output)" "linear (for|back)ward .* of the bare products' speed, want at least 1000 %"
        expect_match "output of $dtype" "$(<output)" "[1-4] of 4 times are longer than --least-share allows" # not 1x8x8
    done
    bench --dtype bf16 --json bf16.json --shape 5x18x6 linear || fail "$(<output)"
    expect_equal "rows without" "$(grep -c '"pct_roof": null' bf16.json)" 8
    for dtype in f16 bf16; do
        bench --dtype "$dtype" --least-share 1 --shape 5x18x6 linear
        expect_equal "code of $dtype" $? 64
        expect_match "output of $dtype" "$(<output)" "--least-share: the host has no bare products in $dtype"
        grep -q " right$" output && fail "it was timed first"
    done
    true
}
# Every second forward takes no time.
test_times_that_differ() {
    local faulty
    bench --shape 64x4096 softmax || fail "$(<output)"
    grep "times mean little" output && fail "of a single run"
    faulty=$(find "$build/tests/validate" -name 'libtutti_faulty.so')
    if [[ ! $faulty ]] || grep -q '^TUTTI_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then
        skip "the library is static, or has a sanitizer in it"
    fi
    LD_PRELOAD=$faulty TUTTI_TEST_FAULT=idle bench --repeats 20 --shape 64x4096,64x8192 softmax
    expect_equal code $? 1
    expect_match output "$(<output)" "[2-6] of 6 rows have a p90 of more than twice the p10, .*: their times mean little"
    expect_match output "$(tail -n 1 output)" "tutti-bench: [1-6] of 6 results are wrong\$" # without --fail-over
}
# The host has nothing to measure.
test_tune() {
    bench --tune --shape 5x9x17,3x5x7x9 linear matmul || fail "$(<output)"
    [[ $(grep -c ' right$' output) -gt 0 ]] || fail "$(<output)"
}
test_least_share_on_a_gpu() {
    nvidia-smi -L 2>/dev/null | grep -q '^GPU ' || skip "no GPU"
    "$build/bin/tutti-bench" --version | grep -q '^cuda: toolkit' || skip "this build has no CUDA"
    local -a gpu=("$build/bin/tutti-bench" --backend cuda --repeats 3 --shape "4x256x256x256,5x33x65x17" matmul)
    "${gpu[@]}" --least-share 1 >output 2>&1 || fail "$(<output)"
    expect_equal right "$(grep -c ' right$' output)" 16
    "${gpu[@]}" --tune >output 2>&1 || fail "$(<output)"
    expect_equal "right, tuned" "$(grep -c ' right$' output)" 16
    "${gpu[@]}" --least-share 1000 >output 2>&1
    expect_equal code $? 1
    expect_match output "$(<output)" "16 of 16 times are longer than --least-share allows"
}
test_wrong_options() {
    local given
    while IFS='|' read -r given wanted; do
        # shellcheck disable=SC2086
        bench $given
        expect_equal "code of $given" $? 64
        expect_match "output of $given" "$(<output)" "$wanted"
        grep "^layer" output && fail "$given: the header came first"
        expect_equal "files of $given" "$(ls)" output
    done <<'END'
batchnorm|there is no layer batchnorm
--activation tanh|--activation is 'tanh', want none
--activation relu,|--activation is 'relu,', want none
--activation=|--activation is '', want none
--activation gel|--activation is 'gel', want none
--shape 5|--shape: 5 fits no layer that is timed
--shape 7x33,5x6x7x8x9|--shape: 5x6x7x8x9 fits no layer that is timed
--shape 64x64 linear|--shape: 64x64 fits no layer that is timed
--shape 64x64,64x64x64 rmsnorm|--shape: 64x64x64 fits no layer that is timed
--shape 64x64 linear rmsnorm|--shape has none for linear: rows x in x out
--shape 8x10x7 rope|rope: head_size is 7, want an even divisor of cols, 10
--activation gelu rmsnorm|--activation: no layer that is timed has variants of it
--activation gelu --plain linear|--activation: no layer that is timed has variants of it
--label_smoothing 0.1 linear|--label_smoothing: no layer that is timed has variants of it
--label_smoothing 2 cross_entropy|cross_entropy: label_smoothing is 2, want finite and >= 0 and <= 1
--set eps=-1 rmsnorm|rmsnorm: eps is -1, want finite and >= 0
--set zero_centered rmsnorm|rmsnorm: option 'zero_centered' has no value, want name=value
--json - softmax|--json is '-', want a file, such as /dev/stdout
--plot p.png softmax|--plot is 'p.png', want a name that ends in .svg
--plot .svg softmax|--plot is '.svg', want a name that ends in .svg
--plot p.svg linear|--plot: no layer that is timed is compared with a copy
--plot p.svg --shape 3x4x5x6|--plot: no layer that is timed is compared with a copy
--least-share 50 rmsnorm|--least-share: no layer that is timed is compared with bare products
--least-share 50 --shape 7x33|--least-share: no layer that is timed is compared with bare products
--least-share 50 --plain linear|--least-share: no layer that is timed is compared with bare products
--least-share 0|--least-share is '0', want 1% to 1000%
--least-share fast|--least-share is 'fast', want 1%
--shape 5x0|--shape is '5x0', want sizes from 1 to 2147483647 or ranges of them, not '0'
--shape 5x|--shape is '5x', want sizes from 1 to 2147483647 or ranges of them, not ''
--shape 64xx5|--shape is '64xx5', want sizes from 1 to 2147483647 or ranges of them, not ''
--shape 5x6,7x8y|--shape is '5x6,7x8y', want sizes from 1 to 2147483647 or ranges of them, not '8y'
--shape 1x2x3x4x5x6x7x8x9|--shape is '1x2x3x4x5x6x7x8x9', want at most 8 sizes, not '9'
--dtype i32|--dtype is 'i32', want f64
END
}
# These are commands with options of their own; all but adamw run on several ranks, too.
test_commands() {
    local command given wanted
    for command in adamw step exchange checkpoint; do
        "$build/bin/tutti-bench" "$command" --help >output 2>&1 || fail "$(<output)"
        expect_match "help of $command" "$(<output)" "Usage: tutti-bench $command \\[OPTION"
    done
    while IFS='|' read -r given wanted; do
        # shellcheck disable=SC2086
        "$build/bin/tutti-bench" $given >output 2>&1
        expect_equal "code of $given" $? 64
        expect_match "output of $given" "$(<output)" "$wanted"
    done <<'END'
adamw --dtype f64|--dtype is 'f64', want
adamw --elements 0|--elements is '0', want
adamw --fail-over 5|--fail-over requires --compare FILE
step odd|tutti-bench step: 'odd' is not an option
step --wire bf16 --dtype f64|--wire bf16 does not go with --dtype f64
step --engine both|--engine both requires --shard
step --dim 32 odd|'odd' is not an option
step --dim 0|--dim is '0', want
step --dtype i32|--dtype is 'i32', want f64
step --wire f16|--wire is 'f16', want f32
step --backend host --leaves 3 --rows 64|--leaves is 3, want a multiple of the ranks .1. that divides the rows of all .64.
step softmax|'softmax' is not an option
exchange --sizes 6|--sizes is '6', want
exchange --sizes 4K,|--sizes is '4K,', want
exchange --sizes 4T|--sizes is '4T', want
exchange --fail-over 5|--fail-over requires --compare FILE
checkpoint --bytes 10000|--path FILE is missing
checkpoint --path f --bytes 10|--bytes is '10', want
stap|there is no layer stap
END
}
test_adamw() {
    local dtype
    for dtype in f32 f16 bf16; do
        "$build/bin/tutti-bench" adamw --backend host --dtype "$dtype" --elements 2000000 --repeats 3 --json "adamw.$dtype" >output 2>&1 || fail "$(<output)"
        expect_match "row of $dtype" "$(grep '^[0-9]' output)" "^2002944 +$dtype .* right"
    done
    expect_match "bytes an element" "$(<adamw.bf16)" '"checked": true, "bytes": 68100096'
}
# on RANKS ARGS …: tutti-bench on the host, on RANKS ranks, to `output`
on() {
    local ranks=$1
    shift
    OMP_NUM_THREADS=1 "$top/launch/tutti-run" -np "$ranks" "$build/bin/tutti-bench" "$@" --backend host >output 2>&1
}
# sent TYPE: the bytes that travelled, in kB
sent() {
    sed -n "s/.* | wire $1, 0\\.\\([0-9]*\\) MB a step | .* | sums good\$/\\1/p" output
}
test_step_on_ranks() {
    local ranks whole half
    for ranks in 1 2; do
        local -a step=(step --dim 32 --blocks 2 --rows 64 --dtype f32 --steps 2 --leaves 4 --shard)
        on "$ranks" "${step[@]}" || fail "$(<output)"
        expect_match output "$(<output)" "ranks $ranks \\| .* \\| kept .* \\| reproducible, 4 leaves .* \\| sums good"
        whole=$(sent f32)
        on "$ranks" "${step[@]}" --wire bf16 || fail "$(<output)"
        half=$(sent bf16)
        expect_equal "kB of bf16 beside $whole" "$((10#$half))" "$(((10#$whole + 1) / 2))"
    done
    ((10#$whole > 50)) || fail "$whole kB"
    on 1 "${step[@]}" --graph
    expect_equal "code of graphs on the host" $? 2
    expect_match output "$(<output)" "graphs need a GPU"
    on 2 softmax
    expect_equal "code of layers on two ranks" $? 64
}
test_exchange_on_ranks() {
    local ranks
    for ranks in 1 2; do
        on "$ranks" exchange --transport mpi --repeats 2 --sizes 4,4K,5M --json "$ranks.json" || fail "$(<output)"
        expect_equal right "$(grep -cE "^mpi +$ranks rank.* right$" output)" 3
        python3 - "$ranks" <<'END' || fail "$(<"$ranks.json")"
import json, sys
ranks = int(sys.argv[1])
with open(f"{ranks}.json") as file:
    rows = json.load(file)
assert [row["bytes"] for row in rows] == [4, 4096, 5 << 20], rows
for row in rows:
    algorithm, bus = row["gbps"], row["bus_gbps"]
    assert abs(algorithm * 1e3 * row["us_median"] / row["bytes"] - 1) < 1e-9, row
    assert abs(bus - algorithm * 2 * (ranks - 1) / ranks) <= 1e-9 * algorithm, row
    assert 0 < row["us_p10"] <= row["us_median"] <= row["us_p90"], row
    assert 0 < row["host_us"] <= row["us_median"] and row["error"] == 0 and row["checked"] is True, row
    assert row["elements_checked"] == row["bytes"] // 4 and row["pct_roof"] is None, row
END
    done
    doctor 2.json slow.json 's/"us_median": [^,]*/"us_median": 9e6/; s/"host_us": [^,]*/"host_us": 9e6/'
    on 2 exchange --transport mpi --repeats 2 --sizes 4,4K,5M --compare slow.json --fail-over 5% || fail "$(<output)"
    expect_match output "$(<output)" " 4096 .* 9000000.0 us -100.0 %"
    doctor slow.json fast.json '/"4096"/s/"us_median": 9e6/"us_median": 1e-6/'
    on 2 exchange --transport mpi --repeats 2 --sizes 4,4K,5M --compare fast.json --fail-over 5%
    expect_equal code $? 1
    expect_match output "$(<output)" "exchange mpi 2 ranks 4096: the time is .* want at most 5 %"
}
# Only a layer's own file names it, and rows of kinds.c; step.c builds a model of layers.
test_names_no_layer() {
    "$build/bin/tutti-bench" --help >output
    local name names
    names=$(sed -n 's/^  \([a-z_0-9]*\)  *rows x .*/\1/p' output)
    expect_equal layers "$(sort <<<"$names" | xargs)" "$("$build/bin/tutti-validate" --layers | cut -d' ' -f1 | sort -u | xargs)"
    for name in $names; do
        grep -rn --exclude=step.c "\"$name\"" "$top/apps/tutti-bench" && fail "$name is named"
    done
    true
}

# measure ARGS …: tutti-bench over two shapes, to `output`; returns its code.
measure() {
    "$build/bin/tutti-bench" --backend host --repeats 3 --shape 8x8,16x8 "$@" softmax >output 2>&1
}
# doctor FROM TO SED-SCRIPT: a modified copy of a file
doctor() {
    sed "$3" "$1" >"$2"
    cmp -s "$1" "$2" && fail "'$3' changes nothing in $1"
    true
}
# The earlier file's times are so slow, or so fast, that noise does not matter.
test_compares() {
    measure --json now.json || fail "$(<output)"
    expect_equal rows "$(grep -c host_us now.json)" 6
    expect_equal "calls of one row" "$(grep -c '"shape": "1x8".*"host_us": [0-9]' now.json)" 2
    expect_equal "other calls" "$(grep -c '"host_us": null,' now.json)" 4
    doctor now.json slow.json 's/"us_median": [^,]*/"us_median": 9e6/; s/"host_us": [0-9][^,]*/"host_us": 9e6/'
    measure --compare slow.json --fail-over 5% || fail "$(<output)"
    expect_match output "$(<output)" "16x8 .* 9000000.0 us -100.0 %"
    # a time; the host cost of a call
    doctor slow.json time.json '/16x8/s/"us_median": 9e6/"us_median": 1e-6/'
    measure --compare time.json --fail-over 5%
    expect_equal code $? 1
    expect_match output "$(<output)" "softmax forward  16x8: the time is .* us, was 0.00 us: .*want at most 5 %"
    doctor slow.json call.json '/1x8/s/"host_us": 9e6/"host_us": 1e-6/'
    measure --compare call.json --fail-over 5
    expect_equal code $? 1
    expect_match output "$(<output)" "softmax backward  1x8: the host cost of a call is"
    measure --compare call.json || fail "without --fail-over: $(<output)"
    doctor slow.json pretty.json 's/, "/ ,\n\t"/g; s/"checked"/"another": null, &/'
    measure --compare pretty.json --fail-over 0 || fail "other white space: $(<output)"
}
test_compares_rows() {
    measure --json now.json || fail "$(<output)"
    doctor now.json rows.json 's/"us_median": [^,]*/"us_median": 9e6/; s/16x8/32x8/; s/"host_us": [0-9][^,]*/"host_us": 9e6/'
    measure --compare rows.json --fail-over 5% || fail "$(<output)"
    expect_equal new "$(grep -c '16x8 .*not in the earlier file' output)" 2
    expect_equal gone "$(grep -c 'softmax .*32x8 f32 of rows.json was not measured' output)" 2
    doctor now.json none.json 's/"op": "softmax"/"op": "other"/'
    measure --compare none.json --fail-over 5%
    expect_equal code $? 2
    expect_match output "$(<output)" "none.json has no row that was measured"
}
test_refuses_what_does_not_compare() {
    local change
    measure --json now.json || fail "$(<output)"
    doctor now.json device.json 's/"device": "/&other /'
    measure --compare device.json
    expect_equal code $? 2
    expect_match output "$(<output)" "device.json was measured on host \(other host: .*this is host \(host: "
    doctor now.json backend.json 's/"backend": "host"/"backend": "cuda"/'
    measure --compare backend.json
    expect_equal code $? 2
    doctor now.json repeats.json 's/"repeats": 3/"repeats": 30/'
    measure --compare repeats.json || fail "$(<output)"
    expect_equal warnings "$(grep -c 'repeats.json has medians of 30 repeats, these are of 3' output)" 1
    # empty, incomplete, wrong numbers, a missing key, something after the end
    : >empty.json
    head -c 700 now.json >half.json
    doctor now.json nan.json 's/"us_median": [^,]*/"us_median": nan/'
    doctor now.json text.json 's/"us_median": [^,]*/"us_median": "9"/'
    doctor now.json zero.json 's/"us_median": [^,]*/"us_median": 0/'
    doctor now.json negative.json 's/"host_us": [^,]*/"host_us": -1/'
    doctor now.json key.json 's/"host_us"/"calls"/'
    doctor now.json tail.json '/^]/s/$/ more/'
    doctor now.json comma.json 's/,$//'
    printf '[\n]\n' >none.json
    head -c 20000 /dev/zero >zeros.json
    for change in empty half nan text zero negative key tail comma none zeros; do
        measure --compare "$change.json"
        expect_equal "code of $change" $? 2
        expect_match "output of $change" "$(<output)" "$change.json was not written by tutti-bench --json"
    done
    measure --compare key.json
    expect_match output "$(<output)" "line 2: want host_us"
    measure --compare missing.json
    expect_equal code $? 2
    expect_match output "$(<output)" "missing.json: No such file"
    measure --compare .
    expect_equal code $? 2
}
test_wrong_options_of_compare() {
    local given
    measure --json now.json || fail "$(<output)"
    for given in "--fail-over 5" "--compare= --fail-over 5" "--compare now.json --fail-over -1" \
        "--compare now.json --fail-over 5%%" "--compare now.json --fail-over nan" "--compare now.json --fail-over=" \
        "--compare now.json --json now.json"; do
        # shellcheck disable=SC2086
        measure $given
        expect_equal "code of $given" $? 64
    done
    measure --fail-over 5
    expect_match output "$(<output)" "--fail-over requires --compare FILE"
}

run_tests
