#!/usr/bin/env bash
# Checks that this tree computes the same bytes as an earlier commit.  Builds both on this machine with the same options (in
# build-same-bytes/), runs both, and compares checkpoints of tutti-train's tasks, of reproducible runs on one and several
# ranks, and all results of tutti-validate over each tree's own cases.
# usage: tools/same_bytes.sh [--cuda] BASE
#        tools/same_bytes.sh [--cuda] --builds BASE-BUILD NEW-BUILD
#   BASE       a commit
#   --cuda     on the cuda backend; the reproducible runs on as many GPUs as there are (one GPU: three ranks share it)
#   --builds   two existing build folders, whose sources still exist
# Exit code 0: the same bytes, 1: a difference, 2: something could not run, 64: a wrong command line.
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launch/lib.sh"

backend=host
builds=()
base=
while (($#)); do
    case $1 in
        --cuda) backend=cuda ;;
        --builds)
            (($# >= 3)) || die "--builds requires two build folders" 64
            builds=("$2" "$3")
            shift 2
            ;;
        -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0" && exit 0 ;;
        -*) die "there is no option $1 (--help)" 64 ;;
        *)
            [[ -z $base ]] || die "a second commit: $1" 64
            base=$1
            ;;
    esac
    shift
done
if ((${#builds[@]})); then
    [[ -z $base ]] || die "a commit and --builds" 64
else
    [[ $base ]] || die "there is no commit to compare with (--help)" 64
fi

# build_tree SOURCE BUILD: the programs alone.
build_tree() {
    local cuda=OFF log=$2.log
    [[ $backend == host ]] || cuda=ON
    local -a options=()
    if command -v ccache >/dev/null; then
        options=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
    fi
    { cmake -S "$1" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTUTTI_WITH_CUDA=$cuda -DTUTTI_BUILD_TESTS=OFF \
        -DTUTTI_BUILD_EXAMPLES=OFF "${options[@]}" && cmake --build "$2"; } >"$log" 2>&1 || die "the build of $1 failed: $log"
}

if [[ $base ]]; then
    commit=$(git -C "$top" rev-parse --verify --quiet "$base^{commit}") || die "there is no commit $base" 64
    at=$top/build-same-bytes
    mkdir -p "$at"
    if [[ ! -d $at/$commit ]]; then
        rm -rf "$at/unpacked"
        mkdir "$at/unpacked"
        git -C "$top" archive "$commit" | tar -x -C "$at/unpacked"
        mv "$at/unpacked" "$at/$commit"
    fi
    builds=("$at/$commit/build" "$at/new-$backend")
    [[ $backend == host ]] || builds[0]+=-cuda
    build_tree "$at/$commit" "${builds[0]}"
    build_tree "$top" "${builds[1]}"
fi

sources=()
for i in 0 1; do
    [[ -x ${builds[i]}/bin/tutti-train && -x ${builds[i]}/bin/tutti-validate ]] || die "there is no tutti-train and tutti-validate in ${builds[i]}/bin"
    builds[i]=$(realpath "${builds[i]}")
    sources[i]=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "${builds[i]}/CMakeCache.txt")
    [[ -d ${sources[i]}/src ]] || die "the sources of ${builds[i]} are not in ${sources[i]:-CMakeCache.txt}"
done
type -P python3 >/dev/null || die "python3 was not found"

export OMP_WAIT_POLICY=${OMP_WAIT_POLICY-passive} # threads that spin are slow on a busy machine
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/base" "$work/new"
names=(base new)
differ=0 compared=0

# both NAME RANKS PROGRAM ARGS …: runs a program of both trees.  In ARGS, OUT is its file, TREE its sources.  Fails if results
# of the new tree do not hold (tutti-validate's exit code 1).
both() {
    local name=$1 ranks=$2 program=$3 i log code
    shift 3
    for i in 0 1; do
        local -a command=("${builds[i]}/bin/$program" --backend "$backend" "${@//OUT/$work/${names[i]}/$name}")
        ((ranks == 1)) || command=("${sources[i]}/launch/tutti-run" -np "$ranks" "${command[@]}")
        log=$work/${names[i]}/$name.log
        code=0
        "${command[@]//TREE/${sources[i]}}" >"$log" 2>&1 || code=$?
        ((code == 0)) && continue
        tail -n 20 "$log" | sed 's/^/    /'
        [[ $program == tutti-validate && $i == 1 && $code == 1 ]] && return 1
        die "$name: exit code $code of ${names[i]}'s ${command[*]//TREE/${sources[i]}}"
    done
}
# compare NAME A B: two checkpoints
compare() {
    compared=$((compared + 1))
    if cmp -s "$2" "$3"; then
        printf '  same     %-32s %s bytes\n' "$1" "$(stat -c %s "$2")"
        return
    fi
    printf '  DIFFERS  %s\n' "$1"
    differ=$((differ + 1))
    # Another layout or other attributes change the file's bytes, too.
    python3 "$top/tools/same_tensors.py" --first "$2" "$3" && echo "  the tensors are the same: attributes or the file's layout differ"
    (($? < 2)) || die "$1 cannot be read"
}
trained() {
    local name=$1
    both "$@" --progress none --checkpoint OUT
    compare "$name" "$work/base/$name" "$work/new/$name"
}

# Fashion-MNIST, or random images if it is not installed
data=/usr/share/datasets/fashion-mnist
if [[ ! -f $data/train-images-idx3-ubyte.gz ]]; then
    echo "no Fashion-MNIST here: random images instead"
    data=$work/images
    mkdir "$data"
    python3 - "$data" <<'END'
import random, struct, sys
random.seed(1)
for kind, count in (("train", 20000), ("t10k", 1000)):
    for name, head, size in (("images-idx3", (0x803, count, 28, 28), 784), ("labels-idx1", (0x801, count), 1)):
        values = random.randbytes(count * size)
        with open(f"{sys.argv[1]}/{kind}-{name}-ubyte", "wb") as file:
            file.write(struct.pack(f">{len(head)}I", *head) + (values if size > 1 else bytes(v % 10 for v in values)))
END
fi
# One corpus for both: the sources of the base.
corpus=$work/corpus
find "${sources[0]}/include" "${sources[0]}/src/core" -type f | LC_ALL=C sort | xargs cat >"$corpus"
truncate -s '<150000' "$corpus"

fashion=(tutti-train --task fashion --data "$data" --epochs 1)
bytes=(tutti-train --task bytes --epochs 1)
echo "checkpoints, backend $backend"
trained fashion-f32 1 "${fashion[@]}" --clip 0.5
trained fashion-bf16 1 "${fashion[@]}" --dtype bf16 --norm rmsnorm --activation gelu
trained fashion-f16 1 "${fashion[@]}" --dtype f16 --activation silu --width 100 --depth 1
trained fashion-f64 1 "${fashion[@]}" --dtype f64 --activation squared_relu --batch 1000 --accumulate 2
trained bytes-f32 1 "${bytes[@]}" "$corpus"
trained bytes-bf16 1 "${bytes[@]}" --dtype bf16 --activation gelu_erf "$corpus"

ranks=3 shared=()
if [[ $backend == cuda ]]; then
    ranks=$(gpu_count)
    # the eight leaves need at most eight ranks
    ((ranks <= 8)) || ranks=8
    ((ranks > 1)) || { ranks=3 shared=(--transport mpi); }
fi
for np in 1 "$ranks"; do
    trained "reproducible-fashion-f32-np$np" "$np" "${fashion[@]}" --reproducible 8 "${shared[@]}"
    trained "reproducible-bytes-bf16-np$np" "$np" "${bytes[@]}" --reproducible 8 --dtype bf16 "${shared[@]}" "$corpus"
done
for kind in fashion-f32 bytes-bf16; do
    compare "new: $kind, 1 and $ranks ranks" "$work/new/reproducible-$kind-np1" "$work/new/reproducible-$kind-np$ranks"
done

echo "results of tutti-validate"
for file in "${sources[0]}"/tests/data/*.h5; do
    name=$(basename "$file")
    [[ -f ${sources[1]}/tests/data/$name ]] || die "the new tree has no tests/data/$name"
    compared=$((compared + 1))
    code=0
    if both "$name" 1 tutti-validate --quiet --record OUT "TREE/tests/data/$name"; then
        python3 "$top/tools/same_tensors.py" "$work/base/$name" "$work/new/$name" || code=$?
        ((code < 2)) || die "$name cannot be compared"
    else
        code=1 # nothing is recorded then
    fi
    ((code == 0)) || differ=$((differ + 1))
    printf '  %-8s %-32s\n' "$( ((code == 0)) && echo same || echo DIFFERS)" "$name"
done

echo "$compared compared, $differ differ; $SECONDS s"
((differ == 0)) || exit 1
