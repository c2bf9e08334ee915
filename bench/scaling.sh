#!/usr/bin/env bash
# Measures scaling, and checks that the number of ranks changes no result: the language model in fast mode on each number of
# ranks (tokens a second, and the share of linear scaling); the same with --reproducible (its cost, and cmp of the checkpoints);
# a run that is resumed on ever fewer ranks (cmp again); tutti-validate; and on GPUs tutti-bench step.
# Exit code 1 if two files differ or a case does not hold.
# usage: bench/scaling.sh [--ranks "1 2 4"] [--folder DIR] [ARGS of tutti-train …]
#   bench/scaling.sh                       on 1, 2, 4 … GPUs, as many as there are: 278 M parameters in bf16
#   bench/scaling.sh --backend host --width 64 --batch 512 --epochs 1
# The files go to DIR (default: a new folder under /tmp, removed at the end): up to six checkpoints at a time, 3.3 GB each on GPUs.
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launch/lib.sh"

ranks='' folder=''
while (($#)); do
    case $1 in
        --ranks) ranks=${2-} ;;
        --folder) folder=${2-} ;;
        -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 0 ;;
        *) break ;;
    esac
    [[ ${2-} ]] || die "$1 requires a value" 64
    shift 2
done

gpus=$(gpu_count)
[[ $(option backend "$@") != host ]] || gpus=0
if [[ -z $ranks ]]; then
    for ((n = 1; n == 1 || n <= (gpus ? gpus : 2); n *= 2)); do ranks+="$n "; done
fi
(($#)) || set -- --width 4096 --depth 4 --batch 32768 --dtype bf16 --epochs 20
if [[ $folder ]]; then
    mkdir -p "$folder"
else
    folder=$(mktemp -d -t tutti-scaling.XXXXXX)
    trap 'rm -rf "$folder"' EXIT
fi
leaves=8 wrong=0 backend=host
((gpus == 0)) || backend=cuda

# train NAME RANKS ARGS …: the rate, in tokens a second; everything else goes to NAME.log.
train() {
    local name=$folder/$1 np=$2
    shift 2
    rm -f "$name.json"
    "$here/tutti-run" -np "$np" tutti-train --task bytes --log-json "$name.json" "$@" >"$name.log" 2>&1 || {
        tail -n 5 "$name.log" >&2
        die "$name: tutti-train failed"
    }
    sed -nE 's/.*"event":"end".*"rate":([0-9.e+]+).*/\1/p' "$name.json"
}
# same FILE FILE WHAT
same() {
    if cmp -s "$1" "$2"; then
        echo "  $3: the same bytes"
    else
        echo "  $3: DIFFERENT BYTES"
        wrong=1
    fi
}
ratio() {
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", 100 * a / b }'
}

read -ra counts <<<"$ranks"
most=${counts[-1]} files=''
echo "tutti-train --task bytes $*; $gpus GPU(s)"
echo "ranks | tokens/s | kept | --reproducible $leaves, tokens/s | of fast mode"
for n in "${counts[@]}"; do
    fast=$(train "fast$n" "$n" "$@")
    slow=$(train "reproducible$n" "$n" "$@" --reproducible "$leaves" --checkpoint "$folder/$n.h5")
    one=${one-$(awk -v rate="$fast" -v n="$n" 'BEGIN { print rate / n }')}
    printf '%5d | %8.0f | %s %% | %8.0f | %s %%\n' "$n" "$fast" \
        "$(ratio "$fast" "$(awk -v one="$one" -v n="$n" 'BEGIN { print one * n }')")" "$slow" "$(ratio "$slow" "$fast")"
    [[ $files ]] || files=$folder/$n.h5
    [[ $files == "$folder/$n.h5" ]] || { same "$files" "$folder/$n.h5" "$n ranks" && rm -f "$folder/$n.h5"; }
done

# Each part of the chain runs to the end; the next one resumes from the file that it saved in the middle.
steps=$(sed -nE 's/.*"event":"end","step":([0-9]+).*/\1/p' "$folder/fast$most.json")
part=$((steps / (${#counts[@]} + 1)))
((part > 0)) || die "$steps steps are too few to stop in their middle"
chain=$folder/chain.h5
resume=()
for ((i = ${#counts[@]} - 1; i >= 0; i--)); do
    n=${counts[i]}
    train "chain$n" "$n" "$@" --reproducible "$leaves" --checkpoint "$chain" --save-every "$part" \
        --keep $((${#counts[@]} + 2)) "${resume[@]}" >/dev/null
    ((i == 0)) && break
    # The oldest file is the one that this part resumed from, if it did, and the next is its first save.
    number=1
    while [[ -e $chain.$((number + 1)) ]]; do number=$((number + 1)); done
    mv "$chain.$((number - ${#resume[@]}))" "$folder/next.h5"
    resume=(--resume)
    rm -f "$chain" "$chain".*
    mv "$folder/next.h5" "$chain"
done
same "$files" "$chain" "from $most ranks down to ${counts[0]}, resumed in the middle"
rm -f "$folder"/*.h5*

for n in "${counts[@]}"; do
    if ! "$here/tutti-run" -np "$n" tutti-validate --quiet --backend "$backend" "$top/tests/data/cases.h5" \
        >"$folder/validate$n.log" 2>&1; then
        wrong=1
        tail -n 5 "$folder/validate$n.log"
    fi
    tail -n 1 "$folder/validate$n.log"
done
if ((gpus)); then
    for n in "${counts[@]}"; do "$here/tutti-run" -np "$n" tutti-bench step --leaves "$leaves" 2>/dev/null; done
fi
exit "$wrong"
