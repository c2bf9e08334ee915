#!/usr/bin/env bash
# A night of training in one script: trains with checkpoints on two ranks, kills one of them, resumes on another number of
# ranks, is stopped by a signal, resumes again, finishes, and evaluates what it saved; with --reproducible, the file must
# be the same, byte for byte, as that of an undisturbed run.  Prints each step and its expectations; the last line says
# whether all held, and only then is the exit code 0.
# usage: launch/night.sh [--folder DIR] [ARGS of tutti-train …]
#   launch/night.sh                                               small: --task fashion --reproducible 4, seconds
#   launch/night.sh --epochs 60 --width 1024 --save-every 500     longer
#   launch/night.sh --task bytes --reproducible 8                 another task
# The files go to DIR (default: a new folder under /tmp), which keeps them.
set -u
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

folder=''
case ${1-} in
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --folder)
        folder=${2-}
        [[ $folder ]] || die "--folder requires a folder" 64
        shift 2
        ;;
esac

if [[ -z ${TUTTI_BUILD_DIR-} ]]; then
    "$here/setup.sh" --demo && "$here/build.sh" || exit
    export TUTTI_BUILD_DIR=$top/build
fi
if [[ $folder ]]; then mkdir -p "$folder" || exit 2; else folder=$(mktemp -d -t tutti-night.XXXXXX) || exit 2; fi
file=$folder/run.h5 plot=$folder/run.svg
[[ ! -e $file ]] || die "$file is there already: choose another folder"

# One rank a GPU while there are enough; ranks that share a GPU exchange through the host.
gpus=$(gpu_count)
if ((gpus > 0)) && ! grep -qsx 'CMAKE_CUDA_COMPILER:.*=.*nvcc' "$TUTTI_BUILD_DIR/CMakeCache.txt"; then
    gpus=0
    set -- --backend host "$@"
fi
[[ $(option backend "$@") != host ]] || gpus=0
ranks=(2 3 1)
if ((gpus >= 4)); then ranks=(2 4 1); elif ((gpus > 0)); then ranks=(2 1 2); fi
options=(--checkpoint "$file" --keep 1 --save-every 50)
if type -P gnuplot >/dev/null; then options+=(--plot "$plot"); fi
case $* in
    '' | '--backend host') set -- --task fashion --reproducible 4 --epochs $((gpus > 0 ? 20 : 6)) "$@" ;;
esac
options+=("$@")

steps=0 wrong=0 job='' log='' began=$SECONDS
trap '[[ -z $job ]] || kill -TERM "$job" 2>/dev/null' EXIT

# step TEXT: begins a step and announces it.
step() {
    steps=$((steps + 1)) ok=1
    log=$folder/$steps.log
    echo
    echo "$steps. $1"
}
# expect WHAT GOT WANTED; WANTED may be a glob pattern
expect() {
    # shellcheck disable=SC2053
    if [[ $2 == $3 ]]; then
        echo "   held: $1: ${2:-nothing}"
    else
        echo "   DID NOT HOLD: $1: ${2:-nothing}, want ${3:-nothing}"
        ok=0
    fi
}
# Closes the step with the last lines that tutti-train itself printed.
end_step() {
    sed -nE 's/^(step|epoch|summary|done|stopped|evaluated|tutti-train:) .*/   | &/p' "$log" | tail -n 3
    ((ok)) || wrong=$((wrong + 1))
}

# start RANKS ARGS …: tutti-train in the background.
start() {
    local -a command=("$here/tutti-run" -np "$1" tutti-train "${options[@]}")
    ((gpus == 0 || $1 <= gpus)) || command+=(--transport mpi)
    shift
    "${command[@]}" "$@" >"$log" 2>&1 &
    job=$!
}
# Waits for its end; its code is in `code`.
finish() {
    wait "$job"
    code=$?
    job=''
}
identity() {
    stat -c '%i %y' "$1" 2>/dev/null
}
# await_save FILE: waits until a save replaces the file; fails if the run ends first.
await_save() {
    local before
    before=$(identity "$1")
    while [[ $(identity "$1") == "$before" ]]; do
        if ! kill -0 "$job" 2>/dev/null; then
            [[ $(identity "$1") != "$before" ]] && return
            echo "   the run ended before it saved: use more steps or a smaller --save-every"
            return 1
        fi
        sleep 0.02
    done
}
# The process of a rank, a child of mpirun, which is a child of tutti-run.
process_of() {
    local child pid
    for child in $(children_of "$job"); do
        for pid in $(children_of "$child"); do
            grep -qsz "^OMPI_COMM_WORLD_RANK=$1\$" "/proc/$pid/environ" && echo "$pid"
        done
    done
}
# said PATTERN: what its parentheses match in the last such line of the log.
said() {
    sed -nE "s/.*$1.*/\1/p" "$log" | tail -n 1
}

echo "A night with ${ranks[0]}, then ${ranks[1]}, then ${ranks[2]} ranks on $gpus GPU(s); files in $folder"

step "Train on ${ranks[0]} ranks and kill one of them after the second save: the others end too, and the file exists"
start "${ranks[0]}"
await_save "$file" && victim=$(process_of 1) && await_save "$file" && kill -KILL "$victim"
finish
expect "exit code" "$code" 137
expect "file" "$([[ -s $file ]] && echo there)" there
end_step

step "Resume on ${ranks[1]} rank(s), and stop them by SIGTERM after a save: they save and end with 75"
start "${ranks[1]}" --resume
await_save "$file" && kill -TERM "$job"
finish
expect "exit code" "$code" 75
expect "resumed after step" "$(said 'resumed +after step ([0-9]+)')" '[1-9]*'
first=$(said 'resumed +after step ([0-9]+)')
end_step

step "Resume on ${ranks[2]} rank(s) with --resume=auto: the run completes"
start "${ranks[2]}" --resume=auto
finish
expect "exit code" "$code" 0
second=$(said 'resumed +after step ([0-9]+)')
expect "resumed further on" "$( ((${second:-0} > ${first:-0})) && echo "yes, after step $second")" 'yes*'
expect "files half written" "$(ls "$file".tmp* 2>/dev/null)" ''
score=$(said '^done \| [^|]*\| (.*)')
end_step

step "Evaluate the file without training: the same result as at the end"
before=$(sha256sum <"$file")
start "${ranks[2]}" --resume --evaluate
finish
expect "exit code" "$code" 0
expect "result" "$(said '^evaluated \| [^|]*\| (.*)')" "${score:-one that is there}"
expect "file untouched" "$([[ $(sha256sum <"$file") == "$before" ]] && echo yes)" yes
end_step

if [[ $(option reproducible "$@") ]]; then
    step "The same on ${ranks[0]} ranks, undisturbed: the same file, byte for byte"
    start "${ranks[0]}" --checkpoint "$folder/undisturbed.h5"
    finish
    expect "exit code" "$code" 0
    expect "files compared" "$(cmp "$file" "$folder/undisturbed.h5" 2>&1 && echo equal)" equal
    end_step
fi

if type -P gnuplot >/dev/null; then
    step "Check the plot: a complete SVG picture"
    tail -c 8 "$plot" >"$log" 2>&1
    expect "end of the picture" "$(<"$log")" '*</svg>'
    end_step
else
    echo
    echo "No plot: gnuplot is not installed (Debian's package is gnuplot-nox)"
fi

echo
if ((wrong == 0)); then
    echo "all $steps steps held in $((SECONDS - began)) s; the files are in $folder"
else
    echo "$wrong of $steps steps did not hold; the logs are in $folder"
    exit 1
fi
