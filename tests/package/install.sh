#!/usr/bin/env bash
# Tests of what `cmake --install` leaves: that it can be moved, and that projects in C and C++ build on it by
# find_package, pkg-config and add_subdirectory, shared and static.  usage: install.sh BUILD-FOLDER
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

# consume FOLDER OPTIONS …: configures and builds the project there, runs both programs
consume() {
    local folder=$1
    shift
    quietly cmake -S "$top/tests/package/consumer" -B "$folder" "${options[@]}" "$@"
    quietly cmake --build "$folder"
    runs "$folder/consumer_c" "$folder/consumer_cpp"
}
# runs C-PROGRAM C++-PROGRAM
runs() {
    local version
    version=$(cached CMAKE_PROJECT_VERSION)
    expect_equal "what $1 prints" "$("$1" 2>&1)" "tutti $version: 11"
    expect_equal "what $2 prints" "$("$2" 2>&1)" "tutti $version: 1"
}
# compile PREFIX [--static]: both programs by what pkg-config says, as consumer_c and consumer_cpp
compile() {
    local -a flags
    export PKG_CONFIG_PATH=$1/$libdir/pkgconfig
    read -ra flags < <(pkg-config --cflags --libs "${@:2}" tutti) || fail "pkg-config does not know tutti"
    quietly "$(cached CMAKE_C_COMPILER)" -std=c11 -o consumer_c "$top/tests/package/consumer/consumer.c" "${flags[@]}"
    quietly "${CXX:-c++}" -std=c++17 "-I$scratch" -o consumer_cpp "$top/tests/package/consumer/consumer.cpp" "${flags[@]}"
}
needs_shared() {
    [[ -e $tree/$libdir/libtutti.so ]] || skip "this build's library is static"
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

# What a project that adds the sources has built, in $scratch/subdirectory, and installed, moved to $scratch/static:
# the library is static there.  Made by the first test that asks.
subdirectory() {
    [[ -e $scratch/subdirectory.made ]] && return
    consume "$scratch/subdirectory" "-DTUTTI_SOURCE=$top" -DTUTTI_WITH_CUDA=OFF -DTUTTI_INSTALL=ON
    quietly cmake --install "$scratch/subdirectory" --prefix "$scratch/first/static"
    mv "$scratch/first/static" "$scratch/static"
    touch "$scratch/subdirectory.made"
}

test_installs() {
    ((installed)) || fail "$(<"$scratch/log")"
    local file
    for file in bin/tutti-run include/tutti/tutti.h include/tutti/cuda.h share/doc/tutti/README.md \
        share/doc/tutti/LICENSE "$libdir/pkgconfig/tutti.pc" "$libdir/cmake/tutti/tutti-config.cmake"; do
        [[ -s $tree/$file ]] || fail "$file is missing"
    done
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
    consume build "-DCMAKE_PREFIX_PATH=$tree" -DTUTTI_WANTED=0.1
    [[ ! -e $tree/$libdir/libtutti.so ]] ||
        expect_match "the program's library" "$(ldd build/consumer_c | grep libtutti)" "=> $tree/"
}
test_find_package_refuses_what_it_has_not() {
    compilers
    local output
    output=$(cmake -S "$top/tests/package/consumer" -B a "${options[@]}" "-DCMAKE_PREFIX_PATH=$tree" -DTUTTI_WANTED=7.0 2>&1) &&
        fail "it took version 0.1 for 7.0"
    expect_match message "$output" 'tutti-config.cmake, version: '
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
    runs ./consumer_c ./consumer_cpp
}
test_add_subdirectory() {
    compilers
    subdirectory
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
    ! ldd build/consumer_c | grep -q libtutti || fail "it is not linked statically"
}
test_static_pkg_config() {
    compilers
    type -P pkg-config >/dev/null || skip "no pkg-config"
    subdirectory
    compile "$scratch/static" --static
    runs ./consumer_c ./consumer_cpp
}

run_tests
