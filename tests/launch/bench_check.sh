#!/usr/bin/env bash
# Tests of tutti-bench's check of every element, and of its rows, ranges, types and plots.
# usage: bench_check.sh BUILD-FOLDER [whole]; whole: the run without options, alone.
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
build=$(readlink -f "$1")
export ASAN_OPTIONS=detect_leaks=0 # memory that is in use until the programs' end is not freed

# bench ARGS …: tutti-bench on the host, once, to `output`
bench() {
    "$build/bin/tutti-bench" --backend host --repeats 1 "$@" >output 2>&1
}
# verdicts WORD [PATTERN]: the number of rows that end with it
verdicts() {
    grep -E "${2-}" output | grep -cE " $1\$"
}
# All kinds, passes and variants.
every=(--shape "70x33,5x18x6,3x4x5x6")

test_an_altered_element_is_found() {
    local place dtype rows
    bench "${every[@]}" || fail "$(<output)"
    rows=$(verdicts right)
    ((rows >= 60)) || fail "$rows rows"
    for place in "" =last =inside =unwritten; do
        for dtype in f64 f32 f16 bf16; do
            bench "${every[@]}" --dtype "$dtype" "--inject-fault$place"
            expect_equal "code of $dtype $place" $? 1
            expect_equal "wrong of $dtype $place" "$(verdicts WRONG)" "$rows"
        done
    done
}
# kinds TEXT: those in whose table a line contains it, as alternatives
kinds() {
    "$build/bin/tutti-validate" --layers | awk -v text="$1" 'index($0, text) { print $1 }' | sort -u | paste -sd'|'
}
# Gradients of parameters, and sums of losses.
test_an_altered_sum_is_found() {
    local dtype sums
    sums="^($(kinds ' parameter ')) +backward|^($(kinds 'sum over rows')) "
    for dtype in f64 f32 f16 bf16; do
        bench "${every[@]}" --dtype "$dtype" --inject-fault=sums
        expect_equal "code of $dtype" $? 1
        expect_equal "sums of $dtype" "$(verdicts WRONG "$sums")" "$(verdicts '(WRONG|right)' "$sums")"
        expect_equal "others of $dtype" "$(verdicts WRONG)" "$(verdicts WRONG "$sums")"
        (($(verdicts WRONG) >= 24)) || fail "$dtype: $(<output)"
    done
    bench --inject-fault=sums softmax
    expect_equal "code without sums" $? 2
    expect_match output "$(<output)" "--inject-fault: no result has such an element"
}
# Of as many rows reference/ computes few, and the check takes several blocks of them.
test_an_altered_element_of_many_is_found() {
    local place
    local -a many=(--shape "1100x8192,700x8192x128,9000x1024x512" layernorm softmax cross_entropy rope embedding)
    bench "${many[@]}" || fail "$(<output)"
    expect_equal rows "$(verdicts right)" 24
    for place in last inside unwritten; do
        bench "${many[@]}" "--inject-fault=$place"
        expect_equal "wrong of $place" "$(verdicts WRONG)" 24
    done
    bench "${many[@]}" --inject-fault=sums
    expect_equal "wrong sums" "$(verdicts WRONG)" 9
    # rows of which some allow far larger errors than the samples do
    bench --shape 300000x3 layernorm rmsnorm softmax || fail "$(<output)"
    expect_equal rows "$(verdicts right)" 12
}

test_json() {
    bench --json now.json --shape 7x33,5x18x6,1x8 layernorm linear softmax || fail "$(<output)"
    python3 - <<'END' || fail "$(<now.json)"
import json
keys = ["op", "pass", "variant", "dtype", "param_dtype", "shape", "us_median", "us_p10", "us_p90", None, "pct_roof", "host_us",
        "checked"]
with open("now.json") as file:
    rows = json.load(file)
assert isinstance(rows, list) and len(rows) == 20, len(rows)
elements = {}
for row in rows:
    product = row["op"] == "linear"
    assert list(row)[: len(keys)] == [key or ("tflops" if product else "gbps") for key in keys], row
    assert 0 < row["us_p10"] <= row["us_median"] <= row["us_p90"], row
    moved = row["operations"] * 1e-6 / row["tflops"] if product else row["bytes"] * 1e-3 / row["gbps"]
    assert abs(moved / row["us_median"] - 1) < 1e-9 and row["checked"] is True, row
    assert row["pct_roof"] > 0, row
    assert (row["host_us"] is None) != row["shape"].startswith("1x"), row
    elements[row["op"], row["pass"], row["shape"]] = row["elements_checked"]
assert elements["layernorm", "forward", "7x33"] == 7 * 33, elements
assert elements["layernorm", "backward", "7x33"] == 7 * 33 + 2 * 33, elements
assert elements["linear", "backward", "5x18x6"] == 5 * 18 + 18 * 6 + 6, elements
END
    bench --json wrong.json --shape 7x33 --inject-fault softmax
    expect_equal "wrong rows" "$(grep -c '"checked": false' wrong.json)" 4
}
# What an earlier tutti-bench wrote has other keys.
test_refuses_an_earlier_form() {
    printf '[\n  {"backend": "host", "device": "d", "repeats": 1, "layer": "softmax", "seconds": 1}\n]\n' >old.json
    bench --shape 7x33 --compare old.json softmax
    expect_equal code $? 2
    expect_match output "$(<output)" "old.json was not written by tutti-bench --json: line 2: want op"
    bench --shape 7x33 --json now.json softmax || fail "$(<output)"
    sed 's/"dtype": "f32"/"dtype": "f16"/' now.json >other.json
    bench --shape 7x33 --compare other.json softmax
    expect_equal "code for another type" $? 2
    expect_match output "$(<output)" "other.json has no row that was measured"
}

test_ranges() {
    local given wanted
    while read -r given wanted; do
        bench --shape "$given" softmax || fail "$(<output)"
        expect_equal "$given" "$(awk '/^softmax +forward/ { print $3 }' output | xargs)" "$wanted 1x8"
    done <<'END'
7x8..64 7x8 7x16 7x32 7x64
7x8..63 7x8 7x16 7x32
7x8..600*4 7x8 7x32 7x128 7x512
7x8..30+10 7x8 7x18 7x28
2..4x3..6 2x3 2x6 4x3 4x6
3x9..9,5x6 3x9 5x6
END
    while IFS='|' read -r given wanted; do
        bench --shape "$given" softmax
        expect_equal "code of $given" $? 64
        expect_match "output of $given" "$(<output)" "--shape is '.*', want $wanted"
    done <<'END'
7x8..4|ranges that rise, not '8..4'
7x8..|sizes from 1 .*, not '8..'
7x..8|sizes from 1 .*, not '..8'
7x8..64*1|factors above 1, not '8..64.1'
7x8..64*|sizes from 1 .*, not '8..64.'
7x8..64+0|sizes from 1 .*, not '8..64.0'
7x8...64|sizes from 1 .*, not '8...64'
7x8..64/2|sizes from 1 .*, not '8..64/2'
7x-8..64|sizes from 1 .*, not '-8..64'
5x6,7x1..1000+1|at most 256 shapes, which are full in '7x1..1000.1'
7x99999999999|sizes from 1 .*, not '99999999999'
END
}
test_types_of_parameters() {
    local x p
    for x in f64 f32 f16 bf16; do
        for p in f64 f32 f16 bf16; do
            bench --dtype "$x" --param-dtype "$p" --shape 70x33 --json "$x$p.json" layernorm rmsnorm || fail "$x $p: $(<output)"
            [[ $x == "$p" ]] || expect_equal "rows of $x/$p" "$(verdicts right " $x/$p ")" 8
            expect_equal "rows of $x, $p" "$(grep -c "\"dtype\": \"$x\", \"param_dtype\": \"$p\"" "$x$p.json")" 8
            bench --dtype "$x" --param-dtype "$p" --shape 70x33 --inject-fault=sums layernorm
            expect_equal "wrong sums of $x/$p" "$(verdicts WRONG)" 2
        done
    done
    bench --compare f32f64.json --dtype f32 --param-dtype f32 --shape 70x33 layernorm
    expect_equal "code for other types" $? 2
    bench --param-dtype f32 softmax linear
    expect_equal code $? 64
    expect_match output "$(<output)" "--param-dtype: no layer that is timed has parameters of a type of their own"
    bench --param-dtype f16 --shape 7x33 softmax rmsnorm || fail "$(<output)"
    expect_equal "rows of softmax" "$(verdicts right '^softmax .* f32 ')" 4
}

test_plot() {
    bench --plot it.svg --shape "20x8..512*4,40x100,3x4x5" softmax cross_entropy linear || fail "$(<output)"
    python3 - <<'END' || fail "$(<it.svg)"
import xml.etree.ElementTree as tree
root = tree.parse("it.svg").getroot()
name = "{http://www.w3.org/2000/svg}"
assert root.tag == name + "svg", root.tag
lines = [line.get("points").split() for line in root.iter(name + "polyline")]
width, height = float(root.get("width")), float(root.get("height"))
assert len(lines) == 5 and all(len(line) == 5 for line in lines), lines  # the copy, softmax's passes, cross_entropy's variants
for x, y in (point.split(",") for line in lines for point in line):
    assert 0 < float(x) < width and 0 < float(y) < height, (x, y)
texts = {text.text for text in root.iter(name + "text")}
assert {"softmax forward", "softmax backward", "cross_entropy loss+grad, 0.1", "columns", "GB/s"} <= texts, texts
assert {"8", "32", "128", "512", "copy of the same bytes"} <= texts, texts
END
    bench --plot one.svg --shape 20x8 softmax || fail "$(<output)"
    python3 -c 'import xml.etree.ElementTree as tree; tree.parse("one.svg")' || fail "$(<one.svg)"
    # several points of as many columns: a line through the best of them
    bench --plot rows.svg --shape 20x8..32,200x8..32,2000x8..32 softmax || fail "$(<output)"
    python3 - <<'END' || fail "$(<rows.svg)"
import re, xml.etree.ElementTree as tree
root = tree.parse("rows.svg").getroot()
name = "{http://www.w3.org/2000/svg}"
circles = {}
for circle in root.iter(name + "circle"):
    circles.setdefault(circle.get("fill"), []).append((float(circle.get("cx")), float(circle.get("cy"))))
lines = [line for line in root.iter(name + "polyline") if line.get("stroke") != "black"]
assert len(lines) == len(circles) == 2, circles
for line in lines:
    assert re.fullmatch("#[0-9a-f]{6}", line.get("stroke")), line.get("stroke")
    points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    own = circles[line.get("stroke")]
    assert len(own) == 9 and points == [min(p for p in own if p[0] == x) for x in sorted({x for x, _ in own})], (points, own)
title = next(text.text for text in root.iter(name + "text"))
assert title.startswith("tutti-bench, host: ") and title.count("host") == 1, title
END
    bench --plot now.svg --json now.svg --shape 20x8 softmax
    expect_equal "code for one file" $? 64
    bench --plot /proc/none.svg --shape 20x8 softmax
    expect_equal "code for a file that cannot be written" $? 2
}
test_a_slow_machine() {
    local given
    echo old >now.json
    bench --least-copy 999999 --json now.json --shape 7x33 softmax
    expect_equal code $? 2
    expect_match output "$(<output)" "a copy of 256 MiB has [0-9]+ GB/s on host .*, want 999999 at least"
    expect_equal rows "$(verdicts '(right|WRONG)')" 0
    expect_equal now.json "$(<now.json)" old
    bench --least-copy 0.001 --shape 7x33 softmax || fail "$(<output)"
    expect_match output "$(<output)" "a copy of 256 MiB: [0-9]+ GB/s, at least 0.001 wanted"
    for given in "" fast -1 nan 2e6 4000x; do
        bench "--least-copy=$given" --shape 7x33 softmax
        expect_equal "code of '$given'" $? 64
    done
    bench --inject-fault=everywhere softmax
    expect_equal "code of a place" $? 64
    expect_match output "$(<output)" "--inject-fault is 'everywhere', want last, inside, unwritten or sums"
}
# A program that is linked to cuBLASLt takes 0.1 s longer to start.
test_cublaslt_is_loaded_when_it_is_called() {
    local version
    version=$("$build/bin/tutti-bench" --version)
    [[ $version == *'cuda: toolkit'* ]] || skip "this build has no CUDA"
    expect_match version "$version" "cuda: toolkit [^,]*, cuBLASLt [1-9][0-9]*\.[0-9]+\.[0-9]+,"
    ! ldd "$build/bin/tutti-bench" | grep cublas || fail "it is linked to cuBLASLt"
    no_cublaslt
    expect_match "version without it" "$(LD_LIBRARY_PATH=$PWD/none "$build/bin/tutti-bench" --version)" \
        "cuda: toolkit [^,]*, no cuBLASLt,"
    LD_LIBRARY_PATH=$PWD/none bench --shape 7x33x4 linear || fail "$(<output)"
}
# Makes ./none, a folder with a library of cuBLASLt's name that cannot be loaded.
no_cublaslt() {
    local major
    mkdir none
    for major in {12..20}; do : >"none/libcublasLt.so.$major"; done
}
test_on_a_gpu() {
    nvidia-smi -L 2>/dev/null | grep -q '^GPU ' || skip "no GPU"
    "$build/bin/tutti-bench" --version | grep -q '^cuda: toolkit' || skip "this build has no CUDA"
    local place dtype
    local -a gpu=("$build/bin/tutti-bench" --backend cuda --least-copy 0 --repeats 3
        --shape "70x33,1100x8192,5x18x6,700x8192x128,3x4x5x6,4x256x256x256")
    for dtype in f64 f32 f16 bf16; do
        "${gpu[@]}" --dtype "$dtype" >output 2>&1 || fail "$(<output)"
        expect_equal "wrong of $dtype" "$(verdicts WRONG)" 0
        for place in last inside unwritten; do
            "${gpu[@]}" --dtype "$dtype" "--inject-fault=$place" >output 2>&1
            expect_equal "code of $dtype $place" $? 1
            expect_equal "right of $dtype $place" "$(verdicts right)" 0
        done
        "${gpu[@]}" --dtype "$dtype" --inject-fault=sums >output 2>&1
        expect_equal "code of $dtype sums" $? 1
    done
    "${gpu[@]}" --plot it.svg --json it.json >output 2>&1 || fail "$(<output)"
    python3 -c 'import json, xml.etree.ElementTree as tree; tree.parse("it.svg"); rows = json.load(open("it.json"))
assert all(row["checked"] and row["host_us"] > 0 and row["pct_roof"] > 0 for row in rows), rows' || fail "$(<it.json)"
    "${gpu[@]}" --least-copy 999999 >output 2>&1
    expect_equal "code of a slow GPU" $? 2
    no_cublaslt
    LD_LIBRARY_PATH=$PWD/none "$build/bin/tutti-bench" --backend cuda --shape 7x33x4 linear >output 2>&1
    expect_equal "code without cuBLASLt" $? 2
    expect_match output "$(<output)" "libcublasLt\.so"
}
test_the_whole_run() {
    grep -q '^CMAKE_BUILD_TYPE:STRING=Rel' "$build/CMakeCache.txt" || skip "not an optimised build"
    grep -q '^TUTTI_SANITIZE:STRING=.' "$build/CMakeCache.txt" && skip "a sanitizer is slower"
    (($(nproc) >= 2)) || skip "one core"
    "$build/bin/tutti-bench" --backend host >output 2>&1 || fail "$(<output)"
    expect_equal wrong "$(verdicts WRONG)" 0
    (($(verdicts right) >= 10)) || fail "$(<output)"
    ((SECONDS <= 120)) || fail "$SECONDS s, want 120 at most"
}
# It needs two cores for itself; the other tests share one.
if [[ ${2-} == whole ]]; then
    for name in $(declare -F | sed -n 's/^declare -f \(test_.*\)/\1/p'); do
        [[ $name == test_the_whole_run ]] || unset -f "$name"
    done
else
    unset -f test_the_whole_run
fi

run_tests
