#!/usr/bin/env bash
# Tests of the dependency rule of docs/architecture.md, and that the library never prints or exits.
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"

# includes FOLDER …: lines "FILE:LINE:INCLUDED" of the sources there; BODY is what each_real.h includes.
includes() {
    (cd "$top" && find "$@" -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
        xargs -0 -r grep -HnE '^ *# *(include|define BODY)' | sed -E 's/# *(include|define BODY) *[<"]([^>"]*)[>"].*/\2/; s/: +/:/')
}

# only WHAT PATTERN FOLDER …: every include there matches; all others are printed.
only() {
    local what=$1 pattern=$2 bad
    shift 2
    [[ $(includes "$@") ]] || fail "no includes in $*: this test looks at nothing"
    bad=$(includes "$@" | grep -vE ":[0-9]+:($pattern)$")
    [[ -z $bad ]] || fail "$what, but:"$'\n'"$bad"
}
# nowhere_but WHAT PATTERN ALLOWED-FILES FOLDER …: only allowed files have includes that match.
nowhere_but() {
    local what=$1 pattern=$2 allowed=$3 bad
    shift 3
    bad=$(includes "$@" | grep -E ":[0-9]+:($pattern)$" | grep -vE "^($allowed)")
    [[ -z $bad ]] || fail "$what, but:"$'\n'"$bad"
}

# ours WHAT ALLOWED FOLDER …: the only private headers of the project that files there include are those that match.
ours() {
    local what=$1 allowed=$2 bad
    shift 2
    [[ $(includes "$@") ]] || fail "no includes in $*: this test looks at nothing"
    bad=$(includes "$@" | grep -E ':[0-9]+:(\.\.?/|(core|ops|layers|comm|optim|files|io|kernels|apps|tests)/)' |
        grep -vE ":[0-9]+:($allowed)$")
    [[ -z $bad ]] || fail "$what, but:"$'\n'"$bad"
}

test_core_includes_core_only() {
    ours "core includes core, the list of operations and the sum of a tree" '(core/[a-z_]+|ops/(ops|tree_sum))\.h' src/core
    ours "ops includes core and itself" '(core|ops)/[a-z_]+\.h' src/ops
}
test_kernels_include_core_and_their_own() {
    ours "kernels/host includes core, ops and itself" '(core|ops|kernels/host)/[a-z_]+\.h' src/kernels/host
    if [[ $(includes src/kernels/cuda) ]]; then
        ours "kernels/cuda includes core, ops and itself" '(core|ops|kernels/cuda|kernels/cuda/sm90a)/[a-z_]+\.(h|cuh)' src/kernels/cuda
    fi
}
test_layers_and_optim_include_core_and_their_own() {
    ours "layers includes core, ops and itself" '(core|ops|layers)/[a-z_]+\.h' src/layers
    ours "optim includes core, ops and itself" '(core|ops|optim)/[a-z_]+\.h' src/optim
}
test_comm_includes_core_and_its_own() {
    ours "comm includes core, ops and itself" '(core|ops|comm|comm/mpi|comm/nccl)/[a-z_]+\.h' src/comm
}
test_io_includes_core_comm_files_and_its_own() {
    ours "files includes core/internal.h and itself" '(core/internal|files/[a-z0-9_]+)\.h' src/files
    ours "io includes core, comm, files and itself" '(core|comm|files|io)/[a-z0-9_]+\.h' src/io
}
test_comm_io_and_optim_know_no_kind_of_layer() {
    local kinds
    kinds=$(sed -n '/define TUTTI__KINDS/,/^$/s/^ *X(\([a-z_]*\)).*/\1/p' "$top/src/ops/ops.h" | paste -sd'|')
    [[ $kinds == *softmax* ]] || fail "src/ops/ops.h lists no kinds: $kinds"
    nowhere_but "comm, io and optim know parameters, not kinds of layer" "tutti/($kinds|tutti)\.h" none src/comm src/files src/io src/optim
    nowhere_but "io does not know the optimizer" 'tutti/adamw\.h' none src/io
}
test_hdf5_stays_in_its_room() {
    nowhere_but "HDF5 is files' and io's" '(hdf5|H5.*|xxhash)\.h' 'src/(files|io)/' src include apps examples bench
}
test_cuda_stays_in_its_rooms() {
    nowhere_but "CUDA's headers appear in kernels/cuda and comm/nccl only" '(cuda|cublas|cuda_|math_constants|nv).*' \
        'src/kernels/cuda/|src/comm/nccl/|include/tutti/cuda\.h' src include
    nowhere_but "tutti/cuda.h is for kernels/cuda and comm/nccl" 'tutti/cuda\.h' \
        'src/kernels/cuda/|src/comm/nccl/' src include
}
test_nccl_stays_in_its_room() {
    nowhere_but "NCCL's headers appear in comm/nccl only" 'nccl.*|tutti/nccl\.h' \
        'src/comm/nccl/|include/tutti/nccl\.h' src include
}
test_mpi_stays_in_its_room() {
    nowhere_but "MPI's headers appear in comm only" 'mpi.*|tutti/mpi\.h' 'src/comm/|include/tutti/mpi\.h' src include
}
test_blas_stays_in_its_room() {
    nowhere_but "BLAS is the host backend's, and tutti-bench measures it" 'cblas.*' 'src/kernels/host/|apps/tutti-bench/products\.c' \
        src include apps examples
}
test_public_headers_include_public_headers() {
    only "public headers include each other and C's" \
        'tutti/[a-z_]+\.h|std(def|int|bool)\.h|mpi\.h|nccl\.h|cuda_runtime_api\.h' include
}
test_programs_use_public_headers_only() {
    local folders=(apps examples) bad
    [[ -d $top/bench ]] && folders+=(bench)
    # case files use the same helpers as checkpoints, and times beside the library's the same way to cuBLASLt
    bad=$(includes "${folders[@]}" | grep -E ':[0-9]+:(\.\./)*(src/)?(core|ops|kernels|layers|comm|optim|files|io)/' |
        grep -vE '^apps/tutti-validate/cases/[^:]*:[0-9]+:files/|^apps/tutti-bench/machine_cuda\.cu:[0-9]+:kernels/cuda/cublaslt\.h')
    [[ -z $bad ]] || fail "programs use the public headers only, but:"$'\n'"$bad"
}

test_the_reference_is_private_and_stands_alone() {
    only "reference includes public headers, C's and its own" '(tutti/)?[a-z_]+\.h' reference
    nowhere_but "reference is for tutti-validate, tutti-bench and tests" '(\.\./)*reference/.*' 'apps/tutti-(validate|bench)/|tests/' \
        include src apps bench examples tests
}

test_the_library_never_prints_or_leaves() {
    local bad
    # the child process in which HDF5 reads a file may exit
    bad=$(cd "$top" && grep -rnE '(^|[^a-zA-Z_>.])(v?f?printf|puts|putchar|perror|exit|_exit|abort|MPI_Abort|MPI_Init|MPI_Finalize)\(' \
        src --include='*.[ch]' --include='*.cu' --include='*.cuh' | grep -vE '^[^:]+:[0-9]+: *(/\*|\*|//)' |
        grep -vE '^src/files/structure_child\.c:[0-9]+:.*\b_exit\(')
    [[ -z $bad ]] || fail "the library never prints, exits or aborts, but:"$'\n'"$bad"
}
test_sources_open_with_a_comment() {
    local file bad=''
    while read -r file; do
        [[ $(sed -n 1p "$top/$file") == '/*'* || $(sed -n 1p "$top/$file") == '//'* ]] || bad+="$file"$'\n'
    done < <(cd "$top" && find src include apps bench examples reference tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh')
    [[ -z $bad ]] || fail "every source opens with a comment that says what it is, but:"$'\n'"$bad"
}

run_tests
