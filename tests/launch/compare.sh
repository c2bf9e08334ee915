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
    for dtype in f64 f32 f16 bf16; do
        compare --no-bars --dtype "$dtype" --shapes "$shapes" --json "rows.$dtype" || fail "$dtype: $(<output)"
        expect_equal "rows of $dtype" "$(grep -cE '^[a-z_]+ +(forward|backward) ' output)" 82
    done
    python3 - <<'PYTHON' || fail "the JSON is not what it should be"
import json
rows = json.load(open("rows.f32"))
assert len(rows) == 82 and all(row["failed"] == [] and {"tutti", "roof", "torch"} <= row["ms"].keys() for row in rows), rows
PYTHON
}
test_the_roof_is_printed() {
    needs_torch
    OMP_NUM_THREADS=1 compare --no-bars --layers softmax --shapes 9x64 || fail "$(<output)"
    expect_match head "$(head -1 output)" '^host, f32; PyTorch .*, 1 threads, load [0-9.]+; a copy that reads and writes 128 MiB: [0-9]+\.[0-9] GB/s$'
    (unset OMP_NUM_THREADS && compare --no-bars --layers softmax --shapes 9x64) || fail "$(<output)"
    expect_match "head, all cores" "$(head -1 output)" ", $(env -u OMP_NUM_THREADS nproc) threads, load [0-9.]+; "
}
test_older_pytorch() { # without rms_norm and nbytes, and with no products of f16 on the host, as 1.13
    needs_torch
    mkdir modules
    cat >modules/sitecustomize.py <<'PYTHON'
import torch
vars(torch.nn.functional).pop("rms_norm", None)
torch.Tensor.nbytes = property()
whole = torch.matmul
def matmul(a, b, **out):
    if a.dtype == torch.float16:
        raise RuntimeError("not implemented for 'Half'")
    return whole(a, b, **out)
torch.matmul = matmul
PYTHON
    PYTHONPATH=$PWD/modules compare --no-bars --dtype f16 --layers rmsnorm,linear_none --shapes 33x257,17x256x64 --json rows || fail "$(<output)"
    expect_equal "rows without a roof" "$(grep -cE '^linear_none +(forward|backward) +17x256x64 +[0-9.]+ +– ' output)" 2
    grep -q "^– roof: RuntimeError: not implemented for 'Half' (first: linear 17 rows" output || fail "$(<output)"
    expect_equal "null shares" "$(grep -c '"share": null' rows)" 2
    PYTHONPATH=$PWD/modules compare --dtype f16 --layers linear_none --shapes 17x256x64 --least-share 1
    expect_equal "code without a roof" $? 1
}
test_the_bars_of_the_host() { # only these make a run fail
    (cd "$top/bench" && PYTHONDONTWRITEBYTECODE=1 python3 -) <<'PYTHON' || fail "the bars are not what they should be"
from compare_bars import missed
def of(layer, share, passes="forward", size=64e6, dtype="f32", **peers):
    ms = {"roof": share, "tutti": 1.0, **peers}
    return missed({"layer": layer, "pass": passes, "shape": "8192x2048", "rows": 8192, "cols": 2048, "dtype": dtype,
                   "backend": "host", "bytes": size, "ms": ms, "share": share})
for passes in "forward", "backward":
    for norm in "layernorm", "rmsnorm":
        assert of(norm, 0.79, passes) == ["want 80% of the roof"] and of(norm, 0.8, passes) == []
    assert of("softmax", 0.49, passes) == ["want 50% of the roof"] and of("softmax", 0.5, passes) == []
    for layer in "layernorm", "rmsnorm", "softmax":
        assert of(layer, 1, passes, torch=0.99) == ["slower than torch"] == of(layer, 1, passes, numpy=2, torch=0.99)
        assert of(layer, 1, passes, numpy=0.99) == ["slower than numpy"] and of(layer, 1, passes, numpy=1.01, torch=2) == []
        assert of(layer, 0.1, passes, size=63e6, torch=0.1) == []
        assert of(layer, 1, passes, compile=0.99) == ["slower than compile"]
        assert all(of(layer, 0.1, passes, dtype=dtype, torch=0.99) == ["slower than torch"] for dtype in ("f16", "bf16"))
        assert of(layer, 0.1, passes, dtype="f64", torch=0.1) == []
assert of("cross_entropy", 0.1, torch=0.1) == [] == of("glu_silu", 0.1, torch=0.1)
PYTHON
}
test_the_bars_of_f64_on_a_gpu() {
    (cd "$top/bench" && PYTHONDONTWRITEBYTECODE=1 python3 -) <<'PYTHON' || fail "the bars are not what they should be"
from compare_bars import missed
def of(layer, share, passes="forward", cols=4096, size=64e6, dtype="f64", rows=8192):
    return missed({"layer": layer, "pass": passes, "shape": f"{rows}x{cols}", "rows": rows, "cols": cols, "dtype": dtype,
                   "backend": "cuda", "bytes": size, "ms": {"roof": share, "tutti": 1.0, "torch": 0.1 if dtype == "f64" else 2}, "share": share})
for layer in "layernorm", "rmsnorm", "softmax":
    assert of(layer, 0.79) == ["want 80% of the roof"] and of(layer, 0.8) == [] == of(layer, 0.1, size=63e6)
    assert of(layer, 0.74, "backward") == ["want 75% of the roof"] and of(layer, 0.75, "backward") == []
    assert of(layer, 0.1, cols=65537) == [] and of(layer, 0.79, cols=65536) == ["want 80% of the roof"]
    assert of(layer, 0.96, dtype="bf16") == ["want 97% of the roof"]
assert of("layernorm", 0.1, "backward", rows=133, size=1e6) == [] == of("linear_gelu", 0.1) == of("cross_entropy", 0.1)
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
# no_torch: a PYTHONPATH with neither PyTorch nor Tutti's module
no_torch() {
    mkdir modules
    echo "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')" >modules/torch.py
    export TUTTI_BUILD_DIR=$PWD PYTHONPATH=$PWD/modules
}
test_without_pytorch() {
    no_torch
    python3 "$top/bench/compare.py" --help >output 2>&1 || fail "--help: $(<output)"
    expect_match help "$(<output)" '^usage: compare.py .*--dtype \{f64,f32,tf32,f16,bf16\}.*written anew after each layer and shape$'
    python3 "$top/bench/compare.py" --no-bars >output 2>&1
    expect_equal code $? 2
    expect_equal said "$(<output)" "compare.py: No module named 'torch'; Debian's package is python3-torch"
}
test_wrong_options_without_pytorch() {
    no_torch
    compare() { python3 "$top/bench/compare.py" "$@" >output 2>&1; }
    # refused WORDS OPTION VALUE
    refused() { expect_refusal compare.py "$1" compare "$2" "$3"; }
    refused "argument --repeats: '0', want a whole number from 1" --repeats 0
    refused "argument --repeats: '-3', want a whole number from 1" --repeats -3
    refused "argument --least-share: 'nan', want a number larger than 0" --least-share nan
    refused "argument --dtype: invalid choice: 'f8'" --dtype f8
    refused "unrecognized arguments: --repeat-all 3" --repeat-all 3
}
test_wrong_options() {
    needs_torch
    # refused WORDS OPTION VALUE
    refused() { expect_refusal compare.py "$1" compare "$2" "$3"; }
    refused "there is no 'norm'; layers: layernorm, " --layers norm
    refused "there is no 'nobody'; " --peers nobody
    refused "--shapes is '4x4x4x4x4': no layer has as many sizes" --shapes 4x4x4x4x4
    refused "--shapes is '4x', want ROWSxCOLS" --shapes 4x
    refused "--shapes is '4x99999999999', want ROWSxCOLS" --shapes 4x99999999999
}
test_the_file_of_json() {
    needs_torch
    compare --layers softmax --shapes 9x64 --json nowhere/rows
    expect_equal "code of a folder that is not there" $? 2
    expect_equal "said before anything is measured" "$(<output)" "compare.py: nowhere/rows: cannot be written: No such file or directory"
    echo before >rows
    compare --layers softmax --shapes 9x64,4x4x4 --json rows --repeats 0
    expect_equal "a file after a wrong option" "$(<rows)" before
    compare --no-bars --layers softmax --shapes 9x64 --json rows || fail "$(<output)"
    expect_equal "rows in its place" "$(grep -c '"layer": "softmax"' rows)" 2
    expect_equal files "$(echo rows*)" rows
    mkdir folder.part && : >folder
    compare --layers softmax --shapes 9x64 --json folder
    expect_equal "code where it cannot be replaced" $? 2
}
test_a_signal_stops_it_in_order() {
    local signal pid
    needs_torch
    for signal in INT TERM; do
        PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} setsid python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execvp("python3", sys.argv[1:])' python3 "$top/bench/compare.py" --backend host --no-bars --layers softmax --shapes "$(printf '9x64,%.0s' {1..2000})9x64" --json rows >output 2>&1 &
        pid=$!
        for _ in {1..300}; do
            [[ ! -s rows ]] || break
            sleep 0.1
        done
        kill -"$signal" "$pid"
        wait "$pid"
        expect_equal "code of SIG$signal" $? 75
        grep -q "^compare.py: stopped by SIG$signal$" output || fail "$(<output)"
        ! grep -q Traceback output || fail "$(<output)"
        python3 -c 'import json; assert json.load(open("rows"))' || fail "what was measured is lost"
        rm rows
    done
}
test_a_reader_that_goes() {
    local codes
    needs_torch
    PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} python3 "$top/bench/compare.py" --backend host --no-bars --layers softmax --repeats 1 --shapes "$(printf '9x64,%.0s' {1..50})9x64" 2>said | head -1 >/dev/null
    codes=${PIPESTATUS[*]}
    expect_equal codes "$codes" "141 0"
    expect_equal "said" "$(<said)" ""
    # the file is still wanted
    PYTHONPATH=$build/python${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 python3 "$top/bench/compare.py" --backend host --no-bars --layers softmax --repeats 1 --shapes 9x64,9x65,9x66 --json rows 2>said | true
    codes=${PIPESTATUS[*]}
    expect_equal codes "$codes" "0 0"
    expect_equal "said" "$(<said)" ""
    expect_equal rows "$(grep -c '"share"' rows)" 6
}
test_where_the_module_is() {
    needs_torch
    mkdir empty
    (unset PYTHONPATH && python3 -c 'import torch') 2>/dev/null || skip "PyTorch is in PYTHONPATH"
    env -u PYTHONPATH TUTTI_BUILD_DIR="$build" python3 "$top/bench/compare.py" --backend host --no-bars --repeats 1 --layers softmax --shapes 9x64 >output 2>&1 || fail "$(<output)"
    env -u PYTHONPATH TUTTI_BUILD_DIR="$PWD/empty" python3 "$top/bench/compare.py" >output 2>&1
    expect_equal "code without it" $? 2
    expect_equal said "$(<output)" "compare.py: No module named 'tutti'; build Tutti, or set PYTHONPATH: $PWD/empty/python has no module"
    TUTTI_LIBRARY=/nowhere/libtutti.so compare
    expect_equal "code without the library" $? 2
    expect_match said "$(<output)" "^compare.py: .*/nowhere/libtutti.so"
    ! grep -q Traceback output || fail "$(<output)"
}

run_tests
