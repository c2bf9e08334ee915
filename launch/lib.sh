# shellcheck shell=bash
# Shared by the scripts: the project's folder, this machine's GPUs, building a preset, and running CTest while counting
# test functions.  Sourced, never run.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(dirname "$here")

die() {
    printf '%s: %s\n' "$(basename "$0")" "$1" >&2
    exit "${2:-2}"
}

# gpu_count and root_may_run are defined in tutti-run, which is installed without this file.
# shellcheck source=launch/tutti-run
source "$here/tutti-run"

# preset_dir PRESET: its build folder in CMakePresets.json.
preset_dir() {
    if [[ $1 == default ]]; then echo "$top/build"; else echo "$top/build-$1"; fi
}

# build_preset PRESET: configures and builds it.
build_preset() {
    local dir began=$SECONDS
    dir=$(preset_dir "$1")
    # A folder made by another generator or at another place cannot be configured again.
    if [[ -f $dir/CMakeCache.txt ]] &&
        ! { grep -qx 'CMAKE_GENERATOR:INTERNAL=Ninja' "$dir/CMakeCache.txt" &&
            grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$top" "$dir/CMakeCache.txt"; }; then
        echo "${dir##*/}/ was made by another generator or elsewhere: removing it"
        rm -rf "$dir"
    fi
    local -a options=()
    if command -v ccache >/dev/null; then
        options=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
    fi
    (cd "$top" && cmake --preset "$1" "${options[@]}" && cmake --build "$dir") || return
    echo "built ${dir##*/}/ in $((SECONDS - began)) s"
}

# Counts of test functions, which run_ctest adds to, and of skipped ones by reason.
passed=0 failed=0 skipped=0
declare -A skip_reasons=()

most_starts=40 # processes at a time: more wait in CUDA's driver until they miss deadlines, however many GPUs there are

# The GPUs that a program started here would see, as CUDA_VISIBLE_DEVICES names them.
visible_gpus() {
    cut -d, "-f1-$(gpu_count)" <<<"${CUDA_VISIBLE_DEVICES-$(seq -s, 0 $(($(gpu_count) - 1)))}"
}

# run_ctest DIR [CTEST ARGS …]: runs CTest in the build folder DIR.  Each test program closes with the line
# "tests: N passed, M failed, K skipped"; a crash, a time limit or a missing line counts as one failure.
# Prints a line an entry and what failed entries printed; the whole output stays in DIR/tests.log.
run_ctest() {
    local dir=$1 line id text ctest_pid failed_before=$failed gpus slots jobs
    shift
    gpus=$(gpu_count)
    if ((gpus > 0)); then # what tests/CMakeLists.txt calls gpu_processes; which GPUs an entry sees says tests/support/on_gpus.sh
        # Most processes wait for the host most of the time; with 40 on four GPUs ranks missed deadlines.  An entry asks for up to 6 of a GPU.
        slots=$((gpus < 4 ? 24 / gpus : 6))
        printf '{"version": {"major": 1, "minor": 0}, "local": [{"gpu_processes": [%s]}]}\n' \
            "$(seq 0 $((gpus - 1)) | sed "s/.*/{\"id\": \"&\", \"slots\": $slots}/" | paste -sd,)" >"$dir/gpu_processes.json"
        set -- --resource-spec-file gpu_processes.json "$@"
        TUTTI_TEST_GPUS=$(visible_gpus)
        export TUTTI_TEST_GPUS
    fi
    jobs=$(($(cores) + 3)) # more than cores, as ranks often wait for each other, and scripts for programs
    ((jobs <= most_starts)) || jobs=$most_starts
    local -A output=() counts=() reason=() reasons=()
    while IFS= read -r line; do
        printf '%s\n' "$line" >&3
        if [[ $line =~ ^([0-9]+):\ ?(.*)$ ]]; then
            id=${BASH_REMATCH[1]} text=${BASH_REMATCH[2]}
            output[$id]+="        $text"$'\n'
            if [[ $text =~ ^tests:\ ([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped ]]; then
                counts[$id]="${BASH_REMATCH[*]:1:3}"
            elif [[ $text == 'Test command: '* ]]; then
                continue # it may hold any of these words
            elif [[ $text =~ (^|.*[^a-z])skipped:\ (.*)$ ]]; then
                text=${BASH_REMATCH[2]}
                text=${text%% ... *}
                [[ $text =~ ^(.*)\ \([0-9.]+\ s\)$ ]] && text=${BASH_REMATCH[1]} # without the time it took
                reason[$id]=$text
                reasons[$id]+="${reason[$id]}"$'\n'
            fi
        elif [[ $line =~ ^\ *[0-9]+/[0-9]+\ Test\ +\#([0-9]+):\ ([^ ]+)\ [.\ ]*([^.\ ].*[^ ])\ +([0-9.]+)\ sec ]]; then
            id=${BASH_REMATCH[1]}
            count_entry "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}" "${BASH_REMATCH[4]}" \
                "${counts[$id]-}" "${reason[$id]-}" "${reasons[$id]-}" "${output[$id]-}"
            unset "output[$id]"
        fi
    done 3>"$dir/tests.log" < <(cd "$dir" && exec ctest -V -j "$jobs" --no-tests=error "$@" 2>&1)
    ctest_pid=$!
    if ! wait "$ctest_pid" && ((failed == failed_before)); then
        failed=$((failed + 1))
        echo "  FAILED   ctest itself:"
        tail -n 5 "$dir/tests.log"
    fi
}

# count_entry NAME VERDICT SECONDS "P F K" LAST-REASON REASONS OUTPUT: one entry of CTest.  If all of it was skipped, the
# last reason is that of all; otherwise each reason is one function's.
count_entry() {
    local name=$1 verdict=$2 p=0 f=0 k=0 line
    read -r p f k <<<"${4:-0 0 0}"
    case $verdict in
        *Skipped* | *Disabled*)
            ((k > 0)) || k=1
            note_skipped "${5:-$name gave no reason}" "$k"
            ;;
        Passed)
            [[ $4 ]] || f=1 verdict='no line "tests: …"'
            while IFS= read -r line; do
                [[ -z $line ]] || note_skipped "$line" 1
            done <<<"$6"
            ;;
        *) ((f > 0)) || f=1 ;;
    esac
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + k))
    if ((f > 0)); then
        printf '  FAILED   %-34s %s, %s s: %d failed\n' "$name" "${verdict#\*\*\*}" "$3" "$f"
        printf '%s' "$7" | tail -n 100
    elif ((p == 0)); then
        printf '  skipped  %-34s %s\n' "$name" "$5"
    else
        printf '  ok       %-34s %d passed%s, %s s\n' "$name" "$p" "$( ((k == 0)) || echo ", $k skipped")" "$3"
    fi
}

note_skipped() {
    skip_reasons[$1]=$((${skip_reasons[$1]-0} + $2))
}

# The closing lines; fails if a test failed or none ran.
report_tests() {
    local reason
    for reason in "${!skip_reasons[@]}"; do
        echo "skipped ${skip_reasons[$reason]}: $reason"
    done | sort
    echo "$passed passed, $failed failed, $skipped skipped"
    ((failed == 0 && passed > 0))
}
