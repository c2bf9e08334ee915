#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that this machine can run.  The last line is
# "N passed, M failed, K skipped", counting test functions; the exit code is 1 if one failed or none ran.
# usage: launch/test.sh [--gpu] [--sanitize] [ARGS of ctest …]
#   --gpu        a missing GPU is a failure, not a reason to skip
#   --sanitize   instead: the GPU tests' smallest shape of each code path under compute-sanitizer: memcheck for the
#                layers and the exchange, racecheck for the kernels of both, initcheck for the layers'
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

gpu='' sanitize=''
while (($#)); do
    case $1 in
        --gpu) gpu=1 ;;
        --sanitize) sanitize=1 ;;
        -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0" && exit 0 ;;
        *) break ;;
    esac
    shift
done

findings_max=100000
# sanitize_entry TOOL NAME COMMAND GPU: one entry of CTest, each of its ranks under a tool; what it prints goes to a file.
# It sees GPUs from number GPU on.
sanitize_entry() {
    local log=$top/build/sanitize/$1.$2.log began=$SECONDS code=0 tool
    export CTEST_RESOURCE_GROUP_0_GPU_PROCESSES=id:$4,slots:1 # as CTest tells tests/support/on_gpus.sh
    tool="compute-sanitizer --tool $1 --error-exitcode 99 --report-api-errors no --print-limit $findings_max"
    if [[ $1 == initcheck ]]; then
        tool+=" --show-backtrace device" # of findings that may be many thousands
        export TUTTI_TEST_INITCHECK=1
    fi
    # shellcheck disable=SC2001
    eval "$(sed "s|\"\?[^\" ]*/tests/bin/test_|$tool &|" <<<"$3")" >"$log" 2>&1 || code=$?
    printf 'exit %d\nseconds %d\n' "$code" $((SECONDS - began)) >>"$log"
}

# races_of_cublas LOG: all findings, and none is left out, are races inside cuBLAS's own kernels (nvjet_…), as racecheck of CUDA 13.0 reports of them.
# It cannot be told to leave those out: with a filter of kernels' names it fails by itself.
races_of_cublas() {
    local found
    found=$(grep -oE '(Error|Warning): .*|and (Read|Write) access at .*' "$1") &&
        (($(grep -cE '^(Error|Warning): ' <<<"$found") < findings_max)) && ! grep -qvE '(Read|Write) access at nvjet_' <<<"$found"
}

# reads_of_products LOG KERNELS: all findings, and none is left out, are reads by kernels (a pattern) that read what a product wrote.
# initcheck of CUDA 13.0 sees no store by TMA: it reports every element of a bulk copy and of cuBLAS's products (nvjet_…) in fresh memory.
reads_of_products() {
    local found
    found=$(grep -cE '=+ (Uninitialized|Error|Warning)' "$1") &&
        ((found < findings_max)) && (($(grep -cE "^=+ +at (void )?$2_kernel" "$1") == found))
}

# count_sanitized TOOL NAME: adds the entry's test functions; a finding makes a failure.
count_sanitized() {
    local log=$top/build/sanitize/$1.$2.log code seconds verdict=Passed counts reason
    code=$(sed -n 's/^exit //p' "$log" | tail -n 1)
    seconds=$(sed -n 's/^seconds //p' "$log" | tail -n 1)
    counts=$(sed -n 's/^tests: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped.*/\1 \2 \3/p' "$log" | tail -n 1)
    reason=$(sed -n 's/^skipped: //p' "$log" | tail -n 1)
    if [[ $code == 99 && $counts =~ ^[0-9]+\ 0\  ]]; then
        case $1 in
            racecheck) races_of_cublas "$log" && code=0 ;;
            initcheck)
                case $2 in # whose leaves are products; MLP has one behind the other besides
                    layers.linear.*) reads_of_products "$log" '(tree_sum|cublasLt::splitKreduce)' && code=0 ;;
                    layers.mlp.*) reads_of_products "$log" '(tree_sum|activation|dz|cublasLt::splitKreduce)' && code=0 ;;
                esac
                ;;
        esac
    fi
    case $code in
        0) ;;
        77) verdict=Skipped ;;
        *) verdict="exit code ${code:-none}" ;;
    esac
    count_entry "$1.$2" "$verdict" "${seconds:-0}" "$counts" "$reason" '' "$(sed 's/^/        /' "$log")"$'\n'
}

# The GPU tests as lines "NAME<tab>COMMAND", from CTest's dry run.
gpu_entries() {
    (cd "$top/build" && ctest -N -V -L '^gpu$' "$@") | awk '
        sub(/^[0-9]+: Test command: /, "") { command = $0 }
        sub(/^ +Test +#[0-9]+: /, "") { print $1 "\t" command }'
}

run_sanitized() {
    local tool name command jobs most
    local -a entries=()
    TUTTI_TEST_GPUS=$(visible_gpus)
    export TUTTI_TEST_GPUS
    rm -rf "$top/build/sanitize"
    mkdir "$top/build/sanitize"
    export TUTTI_TEST_QUICK=1 OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    most=$((12 * gpus)) # that many share an H200
    ((most <= most_starts)) || most=$most_starts
    jobs=$(($(cores) / 2))
    jobs=$((jobs < 1 ? 1 : jobs > most ? most : jobs))
    for tool in racecheck initcheck memcheck; do # the longest first
        while IFS=$'\t' read -r name command; do
            # The layers' tests cover the layers' kernels, and three of the exchange's its own.  Of the others, those on one
            # and two ranks cover each code path; programs and ranks that are stopped on purpose show nothing about memory.
            case $name in
                layers.tune.*) [[ $tool != initcheck ]] || continue ;; # products of linear and gemm, by other algorithms
                layers.*) ;;
                comm.hop_kernel.* | comm.peers_kernels.* | comm.sums.*) [[ $tool != initcheck ]] || continue ;;
                comm.*.np[12]) [[ $tool == memcheck ]] || continue ;;
                *) continue ;;
            esac
            entries+=("$tool $name")
            sanitize_entry "$tool" "$name" "$command" \
                $((${#entries[@]} % gpus)) </dev/null & # mpirun would read the list
            while (($(jobs -rp | wc -l) >= jobs)); do wait -n || true; done
        done < <(gpu_entries "$@")
    done
    wait
    for name in "${entries[@]}"; do
        count_sanitized "${name% *}" "${name#* }"
    done
}

"$here/setup.sh"
"$here/build.sh"
if ((EUID == 0)) && root_may_run ''; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
gpus=$(gpu_count)
if [[ $gpu ]]; then
    export TUTTI_TEST_REQUIRE_GPU=1
    if ((gpus == 0)); then
        echo "  FAILED   --gpu was given, and there is no GPU (nvidia-smi -L lists none)"
        failed=1
    elif ! grep -qx 'CMAKE_CUDA_COMPILER:.*=.*nvcc' "$top/build/CMakeCache.txt"; then
        echo "  FAILED   --gpu was given, and this build has no CUDA (nvcc was not found)"
        failed=1
    fi
fi

began=$SECONDS
if [[ $sanitize ]]; then
    if ((gpus == 0)); then
        note_skipped "--sanitize needs a GPU" 1
        skipped=1
    elif ! type -P compute-sanitizer >/dev/null; then
        echo "  FAILED   compute-sanitizer was not found; it comes with the CUDA toolkit"
        failed=1
    else
        run_sanitized "$@"
    fi
else
    run_ctest "$top/build" "$@"
fi
echo "tests took $((SECONDS - began)) s; $gpus GPU(s)"
grep -qx 'CMAKE_CUDA_COMPILER:.*=.*nvcc' "$top/build/CMakeCache.txt" ||
    echo "built without CUDA: the tests labelled gpu are not in this build"
report_tests || exit 1
