#!/usr/bin/env bash
# Tests of `cmake --install`: that the tree can be moved, and that projects in C and C++ can use it by find_package,
# pkg-config and add_subdirectory, shared and static.  usage: install.sh BUILD-FOLDER
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/../launch/check.sh"
build=$(readlink -f "$1")

# cached NAME: its value in the build folder's cache
cached() {
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}
# quietly COMMAND …: fails with what it printed
quietly() {
    local output
    output=$("$@" 2>&1) || fail "$*: $output"
}

libdir=$(cached CMAKE_INSTALL_LIBDIR)
options=(-G "$(cached CMAKE_GENERATOR)" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_COMPILER=$(cached CMAKE_C_COMPILER)"
    "-DEVERY_HEADER_DIR=$scratch")
if type -P ccache >/dev/null; then
    options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
compilers() {
    type -P "${CXX:-c++}" >/dev/null || skip "no C++ compiler"
}
for header in "$top"/include/tutti/*.h; do
    case ${header##*/} in
        cuda.h | mpi.h | nccl.h) ;;
        *) echo "#include <tutti/${header##*/}>" ;;
    esac
done >"$scratch/every_header.h"

# has PREFIX COMPONENT: whether the installation there was built with it
has() {
    grep -q "^set(tutti_HAVE_$2 ON)" "$1/$libdir/cmake/tutti/tutti-config.cmake"
}
# consume FOLDER OPTIONS …: configures and builds the project there
consume() {
    local folder=$1
    shift
    quietly cmake -S "$top/tests/package/consumer" -B "$folder" "${options[@]}" "$@"
    quietly cmake --build "$folder"
}
# runs FOLDER PREFIX: runs the programs there, which were built on the installation at PREFIX
runs() {
    local version components='' component
    version=$(cached CMAKE_PROJECT_VERSION)
    expect_equal "what consumer_c prints" "$("$1/consumer_c" 2>&1)" "tutti $version: 11"
    expect_equal "what consumer_cpp prints" "$("$1/consumer_cpp" 2>&1)" "tutti $version: 1"
    for component in MPI NCCL CUDA; do
        ! has "$2" "$component" || components+="${component,,} "
    done
    expect_equal "what interop_c prints" "$("$1/interop_c" 2>&1)" "${components}tutti"
    expect_equal "what interop_cpp prints" "$("$1/interop_cpp" 2>&1)" "${components}tutti"
}
# compile PREFIX [--static]: compiles the programs with pkg-config's flags, in this folder
compile() {
    local from=$top/tests/package/consumer cuda
    local -a flags others=()
    export PKG_CONFIG_PATH=$1/$libdir/pkgconfig
    read -ra flags < <(pkg-config --cflags --libs "${@:2}" tutti) || fail "pkg-config does not know tutti"
    if has "$1" MPI; then
        mpicc --showme:link >/dev/null 2>&1 || skip "no mpicc that says what it adds"
        read -ra others < <(echo "-DWITH_MPI $(mpicc --showme:compile) $(mpicc --showme:link)")
    fi
    if has "$1" CUDA; then
        cuda=$(dirname "$(dirname "$(cached CMAKE_CUDA_COMPILER)")")
        others+=(-DWITH_CUDA "-I$cuda/include" "-L$cuda/lib64" -lcudart)
    fi
    if has "$1" NCCL; then
        others+=(-DWITH_NCCL "-I$(cached NCCL_INCLUDE_DIR)" "$(cached NCCL_LIBRARY)")
    fi
    quietly "$(cached CMAKE_C_COMPILER)" -std=c11 -o consumer_c "$from/consumer.c" "${flags[@]}"
    quietly "${CXX:-c++}" -std=c++17 "-I$scratch" -o consumer_cpp "$from/consumer.cpp" "${flags[@]}"
    quietly "$(cached CMAKE_C_COMPILER)" -std=c11 -o interop_c "$from/interop.c" "${flags[@]}" "${others[@]}"
    quietly "${CXX:-c++}" -std=c++17 -o interop_cpp "$from/interop.cpp" "${flags[@]}" "${others[@]}"
}
needs_shared() {
    [[ -e $tree/$libdir/libtutti.so ]] || skip "this build's library is static"
}

# expect_softmax_in_python FOLDER: the module there imports, finds its library and computes.
expect_softmax_in_python() {
    local python
    for python in python3 /usr/bin/python3 ''; do
        [[ $python ]] || skip "no Python with cffi and NumPy"
        ! "$python" -c 'import cffi, numpy' 2>/dev/null || break
    done
    expect_equal "what Python prints" "$(PYTHONPATH=$1 PYTHONDONTWRITEBYTECODE=1 "$python" 2>&1 <<'PYTHON'
import numpy, tutti
x, y = numpy.zeros((1, 2), "f"), numpy.ones((1, 2), "f")
tutti.Layer("softmax", cols=2).forward(tutti.Context("host"), x=x, y=y)
print(tutti.__version__, y.tolist())
PYTHON
    )" "$(cached CMAKE_PROJECT_VERSION) [[0.5, 0.5]]"
}

# The build's tree, installed at one place and moved to another.
tree=$scratch/moved
installed=1
mkdir "$scratch/first"
if cmake --install "$build" --prefix "$scratch/first/tree" >"$scratch/log" 2>&1; then
    mv "$scratch/first/tree" "$tree"
else
    installed=0
fi

# Builds a project that adds the sources, in $scratch/subdirectory, installs it and moves it to $scratch/static, where the
# library is static.  Done by the first test that needs it.
subdirectory() {
    [[ -e $scratch/subdirectory.made ]] && return
    # optimised little: all of it is compiled, and is run for a moment
    consume "$scratch/subdirectory" "-DTUTTI_SOURCE=$top" -DTUTTI_WITH_CUDA=OFF -DTUTTI_INSTALL=ON "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG"
    quietly cmake --install "$scratch/subdirectory" --prefix "$scratch/first/static"
    mv "$scratch/first/static" "$scratch/static"
    touch "$scratch/subdirectory.made"
    runs "$scratch/subdirectory" "$scratch/static"
}

test_installs() {
    ((installed)) || fail "$(<"$scratch/log")"
    local file
    for file in bin/tutti-run include/tutti/tutti.h include/tutti/cuda.h share/doc/tutti/README.md \
        share/doc/tutti/LICENSE "$libdir/pkgconfig/tutti.pc" "$libdir/cmake/tutti/tutti-config.cmake"; do
        [[ -s $tree/$file ]] || fail "$file is missing"
    done
}
test_python_module_where_it_was_moved_to() {
    needs_shared
    expect_softmax_in_python "$tree/lib/python3/dist-packages"
}
test_links_between_documents_hold() {
    local page link
    while IFS= read -r page; do
        while IFS= read -r link; do
            [[ -e ${page%/*}/${link%%#*} ]] || fail "${page#"$tree"/} links to $link, which is not installed"
        done < <(grep -oP '\]\(\K(?!https?:|#)[^)]+' "$page")
    done < <(find "$tree/share/doc/tutti" -name '*.md')
}
test_names_no_path_of_the_build() {
    [[ $(cached CMAKE_BUILD_TYPE) == Release ]] || skip "only a Release build is free of debug information"
    local found
    found=$(grep -rlaF -e "$top" -e "$build" -e "$scratch" "$tree") && fail "paths of the build in $found"
    return 0
}
test_shows_the_public_functions_alone() {
    needs_shared
    local -a headers=()
    local header node
    for header in "$tree"/include/tutti/*.h; do
        case ${header##*/} in
            cuda.h) has "$tree" CUDA ;;
            mpi.h) has "$tree" MPI ;;
            nccl.h) has "$tree" NCCL ;;
        esac && headers+=("$header")
    done
    node=TUTTI_$(cut -d. -f1,2 <<<"$(cached CMAKE_PROJECT_VERSION)")
    # the node itself is a symbol, too
    diff <(sed -n '/^TUTTI_API/{:more; /(/!{N; b more}; s/.*\b\(tutti_[a-z0-9_]*\)(.*/\1/p}' "${headers[@]}" |
        sed "s/\$/@@$node/" | sort) \
        <(nm -D --defined-only --with-symbol-versions "$tree/$libdir/libtutti.so" | awk '$2 != "A" { print $3 }' | sort) >difference ||
        fail "declared (<) and exported (>) differ: $(head difference)"
}
test_programs_run_where_they_were_moved_to() {
    needs_shared
    [[ -e $tree/bin/tutti-train ]] || skip "this build has no programs"
    local libraries
    libraries=$(ldd "$tree/bin/tutti-train")
    expect_match "the library of tutti-train" "$libraries" "libtutti[^ ]* => $tree/"
    [[ $libraries != *'not found'* ]] || fail "$libraries"
    quietly env -u TUTTI_BUILD_DIR "$tree/bin/tutti-run" tutti-train --help
}
test_find_package() {
    compilers
    consume build "-DCMAKE_PREFIX_PATH=$tree" -DTUTTI_WANTED=0.2
    runs build "$tree"
    [[ ! -e $tree/$libdir/libtutti.so ]] ||
        expect_match "the program's library" "$(ldd build/consumer_c | grep 'libtutti\.so')" "=> $tree/"
}
test_find_package_refuses_what_it_has_not() {
    compilers
    local output wanted
    for wanted in 0.1 0.3 7.0; do # before 1.0 each minor version is another interface
        output=$(cmake -S "$top/tests/package/consumer" -B a "${options[@]}" "-DCMAKE_PREFIX_PATH=$tree" "-DTUTTI_WANTED=$wanted" 2>&1) &&
            fail "it took its version for $wanted"
        expect_match message "$output" 'tutti-config.cmake, version: '
    done
    output=$(cmake -S "$top/tests/package/consumer" -B b "${options[@]}" "-DCMAKE_PREFIX_PATH=$tree" -DTUTTI_COMPONENTS=Abacus 2>&1) &&
        fail "it found a component that there is not"
    expect_match message "$output" 'Abacus'
}
test_pkg_config() {
    compilers
    needs_shared
    type -P pkg-config >/dev/null || skip "no pkg-config"
    compile "$tree"
    export LD_LIBRARY_PATH=$tree/$libdir
    runs . "$tree"
}
test_add_subdirectory() {
    compilers
    subdirectory
}
test_add_subdirectory_to_a_project_in_c() {
    # no language but C, and options that nvcc does not know
    mkdir parent
    # shellcheck disable=SC2016
    printf '%s\n' 'cmake_minimum_required(VERSION 3.24)' 'project(parent LANGUAGES C ${MORE})' \
        'add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Wundef -Werror)' \
        "add_subdirectory($top tutti)" >parent/CMakeLists.txt
    local said source
    local -a objects=()
    said=$(cmake -S parent -B unasked "${options[@]}" 2>&1) || fail "$said"
    expect_match "what CMake says" "$said" 'CUDA backend   no: the parent project .*-DTUTTI_WITH_CUDA=ON'
    [[ $(cached CMAKE_CUDA_COMPILER) == */* ]] || return 0
    options+=("-DCMAKE_CUDA_ARCHITECTURES=$(cached CMAKE_CUDA_ARCHITECTURES)")
    said=$(cmake -S parent -B with_cuda "${options[@]}" -DMORE=CUDA \
        "-DCMAKE_CUDA_COMPILER=$(cached CMAKE_CUDA_COMPILER)" 2>&1) || fail "$said"
    expect_match "what CMake says of a parent with CUDA" "$said" 'CUDA backend   yes'
    said=$(cmake -S parent -B asked "${options[@]}" -DTUTTI_WITH_CUDA=ON 2>&1) || fail "$said"
    expect_match "what CMake says when it is asked" "$said" 'CUDA backend   yes'
    # what no other test compiles so strictly, and one of the kernels
    [[ $(cached CMAKE_GENERATOR) == Ninja ]] || return 0
    has "$tree" NCCL && for source in "$top"/src/comm/nccl/*.c; do objects+=("${source#"$top"/}"); done
    for source in "${objects[@]}" src/kernels/cuda/convert.cu; do echo "tutti/CMakeFiles/tutti.dir/$source.o"; done >objects
    quietly xargs -a objects cmake --build asked --target
}
test_add_subdirectory_without_a_build_type() {
    compilers
    local said
    said=$(cmake -S "$top/tests/package/consumer" -B untyped "${options[@]}" "-DTUTTI_SOURCE=$top" \
        -DTUTTI_WITH_CUDA=OFF -DTUTTI_WITH_MPI=OFF -DTUTTI_WITH_HDF5=OFF -DCMAKE_BUILD_TYPE= 2>&1) || fail "$said"
    expect_match "what CMake says" "$said" "CMAKE_BUILD_TYPE is not set"
}
test_static_find_package() {
    compilers
    subdirectory
    consume build "-DCMAKE_PREFIX_PATH=$scratch/static"
    runs build "$scratch/static"
    ! ldd build/consumer_c | grep -q 'libtutti\.so' || fail "it is not linked statically"
}
test_static_pkg_config() {
    compilers
    type -P pkg-config >/dev/null || skip "no pkg-config"
    subdirectory
    compile "$scratch/static" --static
    runs . "$scratch/static"
}

run_tests
