#!/usr/bin/env bash
# Tests of the Debian packages that `cpack` makes of a build folder: their fields and contents, compiling against them, and
# running the programs where they are unpacked.  usage: deb.sh BUILD-FOLDER
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/../launch/check.sh"
build=$(readlink -f "$1")
export LC_ALL=C # one order of names everywhere

# cached NAME: its value in the build folder's cache
cached() {
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}

# Why no packages can be made here; empty if they can.
obstacle=
for tool in cpack dpkg dpkg-deb dpkg-shlibdeps file; do
    type -P "$tool" >/dev/null || obstacle="no $tool"
done
[[ $(cached CMAKE_BUILD_TYPE) == Release ]] || obstacle="not a Release build"
[[ -e $build/libtutti.so ]] || obstacle="this build's library is static"

version=$(cached CMAKE_PROJECT_VERSION)
runtime=libtutti${version%.*}
runtime_so=libtutti.so.${version%.*}
root=$scratch/unpacked
# cpack's own folder for what goes into the packages
staged=$scratch/made/_CPack_Packages/Linux/DEB/tutti-$version-Linux
if [[ ! $obstacle ]] && (cd "$build" && cpack -B "$scratch/made" \
    -D "CPACK_PACKAGE_CONTACT=Tess Ter <tess@packages.debian.org>") >"$scratch/log" 2>&1; then
    for package in "$scratch"/made/*.deb; do
        dpkg-deb -x "$package" "$root"
    done
    lib=usr/lib/$(sed -n 's/.*CMAKE_LIBRARY_ARCHITECTURE "\(.*\)".*/\1/p' "$build"/CMakeFiles/[0-9]*/CMakeCCompiler.cmake)
fi
# each test calls this first
unpacked() {
    [[ ! $obstacle ]] || skip "$obstacle"
    [[ -d $root ]] || fail "cpack: $(<"$scratch/log")"
}
# deb PACKAGE: its file
deb() {
    echo "$scratch/made/${1}_${version}_$(dpkg --print-architecture).deb"
}
field() { # field PACKAGE NAME
    dpkg-deb -f "$(deb "$1")" "$2"
}
# Adds the folders of CUDA and NCCL, which are not in the packages' rpath.
loader_path() {
    unset TUTTI_BUILD_DIR
    export LD_LIBRARY_PATH
    LD_LIBRARY_PATH=$(dirname "$(cached CUDA_cudart_LIBRARY)"):$(dirname "$(cached NCCL_LIBRARY)")
}

test_say_what_they_are() {
    unpacked
    local package
    expect_equal "the packages" "$(cd "$scratch/made" && echo *.deb)" \
        "$(cd "$scratch/made" && echo libtutti-dev_"$version"_*.deb "$runtime"_"$version"_*.deb python3-tutti_"$version"_*.deb tutti_"$version"_*.deb)"
    for package in "$runtime" libtutti-dev python3-tutti tutti; do
        expect_equal Package "$(field "$package" Package)" "$package"
        expect_match Description "$(field "$package" Description)" $'^[A-Z][^\n]{10,79}\n [A-Z]'
        for page in copyright changelog.gz; do
            [[ -s $root/usr/share/doc/$package/$page ]] || fail "$package has no $page"
        done
        expect_match "changelog of $package" "$(zcat "$root/usr/share/doc/$package/changelog.gz")" \
            "^tutti \($version\) .*-- Tess Ter <tess@packages.debian.org>  [A-Z][a-z][a-z], [0-9]"
    done
}
test_name_their_dependencies() {
    unpacked
    local depends name
    depends=$(field "$runtime" Depends)
    for name in libc6 libgomp1 libopenblas0; do
        expect_match "Depends of $runtime" "$depends" "(^|, )$name"
    done
    for name in libtutti-dev python3-tutti tutti; do
        expect_match "Depends of $name" "$(field "$name" Depends)" "(^|, )$runtime \(= $version\)"
    done
    expect_match "Depends of tutti" "$(field tutti Depends)" '(^|, )zlib1g'
    expect_match "Depends of python3-tutti" "$(field python3-tutti Depends)" '(^|, )python3-cffi(,|$)'
    if ldd "$root/$lib/$runtime_so" | grep -q libmpi; then
        expect_match "Depends of tutti" "$(field tutti Depends)" '(^|, )openmpi-bin(,|$)'
        expect_match "Depends of $runtime" "$depends" '(^|, )libopenmpi'
    fi
    expect_match "Recommends of tutti" "$(field tutti Recommends)" '(^|, )dataset-fashion-mnist(,|$)'
}
test_hold_what_they_should() {
    unpacked
    local package pattern found
    # a package and what is in it alone
    while read -r package pattern; do
        found=$(for deb in "$scratch"/made/*.deb; do
            dpkg-deb --fsys-tarfile "$deb" | tar -t | grep "^\./$pattern\$" >listed && dpkg-deb -f "$deb" Package
        done | xargs)
        expect_equal "who has $pattern" "$found" "$package"
    done <<LIST
$runtime $lib/$runtime_so
$runtime $lib/libtutti.so.$version
libtutti-dev $lib/libtutti.so
libtutti-dev $lib/pkgconfig/tutti.pc
libtutti-dev $lib/cmake/tutti/tutti-config.cmake
libtutti-dev usr/include/tutti/tutti.h
python3-tutti usr/lib/python3/dist-packages/tutti.py
python3-tutti usr/lib/python3/dist-packages/tutti_build.py
tutti usr/bin/tutti-run
tutti usr/bin/tutti-train
tutti usr/bin/tutti-validate
tutti usr/bin/tutti-bench
tutti usr/share/doc/tutti/docs/install.md
LIST
    found=$(find "$root" -type f \( -perm /022 -o ! -perm -444 \))
    [[ ! $found ]] || fail "wrong permissions: $found"
    found=$(find "$root" -mindepth 1 -maxdepth 2 ! -path "$root/usr" ! -path "$root/usr/*")
    [[ ! $found ]] || fail "outside /usr: $found"
}
test_loader_hears_of_the_library() {
    unpacked
    mkdir control
    dpkg-deb -e "$(deb "$runtime")" control
    expect_equal triggers "$(<control/triggers)" "activate-noawait ldconfig"
    expect_equal shlibs "$(<control/shlibs)" "libtutti ${version%.*} $runtime (>= $version)"
    expect_match "the library's name" "$(readelf -d "$root/$lib/$runtime_so")" "SONAME.*\[$runtime_so\]"
}
test_look_for_libraries_where_the_loader_does() {
    unpacked
    local program
    ! readelf -d "$root/$lib/$runtime_so" | grep -E 'R(UN)?PATH' || fail "the library has folders of its own"
    for program in train validate bench; do
        expect_equal "where tutti-$program looks" "$(readelf -d "$root/usr/bin/tutti-$program" |
            sed -nE 's/.*\(R(UN)?PATH\).*\[(.*)\]/\2/p')" "\$ORIGIN/../${lib#usr/}"
    done
}
test_every_program_is_named() {
    unpacked
    local file
    for file in "$root"/usr/bin/*; do
        expect_match Description "$(field tutti Description)" "${file##*/}[, .]"
        grep -qF "\`${file##*/}\`" "$top/docs/install.md" || fail "docs/install.md does not name ${file##*/}"
    done
}
test_every_program_has_a_page() {
    unpacked
    type -P help2man >/dev/null || skip "no help2man (launch/setup.sh --lint installs it)"
    local file page
    for file in "$root"/usr/bin/*; do
        page=$(zcat "$root/usr/share/man/man1/${file##*/}.1.gz") || fail "${file##*/} has none"
        expect_match "the page of ${file##*/}" "$page" "${file##*/} \\\\- [a-z].*[Ee]xit"
    done
}
test_say_when_they_have_no_pages() {
    unpacked
    cp -r "$staged" stage
    rm -rf stage/deb_tools/usr/share/man
    local said
    said=$(cmake -D "CMAKE_IGNORE_PATH=$(tr : ';' <<<"$PATH");/bin;/usr/bin" -D "CPACK_TEMPORARY_DIRECTORY=$PWD/stage" \
        -D "CPACK_TUTTI_BIN_DIR=$build/bin" -D "CPACK_TUTTI_LIB_DIR=${lib#usr/}" -D "CPACK_PACKAGE_VERSION=$version" \
        -P "$top/cmake/TuttiPackageFinish.cmake" 2>&1) || fail "code $?: $said"
    expect_match "what it says" "$said" 'help2man was not found: package tutti has no manual pages'
    [[ ! -e stage/deb_tools/usr/share/man ]] || fail "it has pages"
}
test_lintian_finds_no_error() {
    unpacked
    type -P lintian >/dev/null || skip "no lintian (launch/setup.sh --lint installs it)"
    type -P help2man >/dev/null || skip "no help2man (launch/setup.sh --lint installs it)"
    local found
    found=$(lintian --allow-root --fail-on error "$scratch"/made/*.deb 2>&1) || fail "$found"
}
test_name_no_path_of_the_build() {
    unpacked
    local found
    found=$(grep -rlaF -e "$top" -e "$build" -e "$scratch" "$root") && fail "paths of the build in $found"
    return 0
}
test_compile_a_program() {
    unpacked
    type -P pkg-config >/dev/null || skip "no pkg-config"
    loader_path
    local -a flags
    read -ra flags < <(PKG_CONFIG_PATH=$root/$lib/pkgconfig pkg-config --cflags --libs tutti)
    "$(cached CMAKE_C_COMPILER)" -o by_pkg_config "$top/tests/package/consumer/consumer.c" "${flags[@]}" || fail "by pkg-config"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.24)' 'project(a LANGUAGES C)' "find_package(tutti ${version%.*} CONFIG REQUIRED)" \
        "add_executable(by_cmake $top/tests/package/consumer/consumer.c)" 'target_link_libraries(by_cmake tutti::tutti)' >CMakeLists.txt
    { cmake -G "$(cached CMAKE_GENERATOR)" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$root/usr" . && cmake --build .; } \
        >output 2>&1 || fail "by CMake: $(<output)"
    LD_LIBRARY_PATH+=:$root/$lib
    local program
    for program in by_pkg_config by_cmake; do
        expect_match "the library of $program" "$(ldd "$program")" "$runtime_so => $root/"
        expect_equal "what $program prints" "$(./"$program")" "tutti $version: 11"
    done
}
test_python_module_where_it_is_unpacked() {
    unpacked
    local python
    for python in python3 /usr/bin/python3 ''; do
        [[ $python ]] || skip "no Python with cffi"
        ! "$python" -c 'import cffi' 2>/dev/null || break
    done
    loader_path
    expect_equal "the version of its library" "$(PYTHONPATH=$root/usr/lib/python3/dist-packages PYTHONDONTWRITEBYTECODE=1 \
        "$python" -c 'import tutti; print(tutti.__version__)' 2>&1)" "$version"
}
test_train_from_where_they_are_unpacked() {
    unpacked
    [[ -r /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]] || skip "no Fashion-MNIST"
    ldd "$root/usr/bin/tutti-train" | grep -q libmpi || skip "this build has no MPI"
    type -P mpirun >/dev/null || skip "no mpirun"
    loader_path
    expect_match "its library" "$(ldd "$root/usr/bin/tutti-train")" "libtutti[^ ]* => $root/usr/"
    "$root/usr/bin/tutti-run" -np 2 tutti-train --task fashion --epochs 1 --width 32 --backend host >output 2>errors ||
        fail "code $?: $(tail -n 5 output) $(<errors)"
    expect_match "what is run" "$(<errors)" " $root/usr/bin/tutti-train "
    expect_match "last line" "$(tail -n 1 output)" 'done \| .* on 2 ranks .*test accuracy [78][0-9]\.'
}

run_tests
