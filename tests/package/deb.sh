#!/usr/bin/env bash
# Tests of the Debian package that `cpack -G DEB` makes of a build folder: what it says of itself, and that its
# programs run from wherever it is unpacked.  usage: deb.sh BUILD-FOLDER
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/../launch/check.sh"
build=$(readlink -f "$1")

# Why no package can be made here; empty if it can.
obstacle=
for tool in cpack dpkg dpkg-deb dpkg-shlibdeps file; do
    type -P "$tool" >/dev/null || obstacle="no $tool"
done
grep -qx 'CMAKE_BUILD_TYPE:[A-Z]*=Release' "$build/CMakeCache.txt" || obstacle="not a Release build"

root=$scratch/unpacked
if [[ ! $obstacle ]] && (cd "$build" && cpack -G DEB -B "$scratch/made") >"$scratch/log" 2>&1; then
    package=$(compgen -G "$scratch/made/*.deb")
    dpkg-deb -x "$package" "$root"
fi
# every test begins so
unpacked() {
    [[ ! $obstacle ]] || skip "$obstacle"
    [[ -d $root ]] || fail "cpack: $(<"$scratch/log")"
}
field() {
    dpkg-deb -f "$package" "$1"
}

test_says_what_it_is() {
    unpacked
    expect_match "file name" "${package##*/}" "^tutti_[0-9.]+_$(dpkg --print-architecture)\.deb$"
    expect_equal Package "$(field Package)" tutti
    expect_match Maintainer "$(field Maintainer)" '^The Tutti authors'
    # shellcheck disable=SC2016
    expect_match Description "$(field Description)" $'^[A-Z][^\n]{10,79}\n [A-Z]'
}
test_names_its_dependencies() {
    unpacked
    local depends name
    depends=$(field Depends)
    for name in libc6 libgomp1 libopenblas0 zlib1g; do
        expect_match Depends "$depends" "(^|, )$name"
    done
    if ldd "$root/usr/lib/libtutti.so" | grep -q libmpi; then
        expect_match Depends "$depends" '(^|, )openmpi-bin(,|$)'
        expect_match Depends "$depends" '(^|, )libopenmpi'
    fi
    expect_match Recommends "$(field Recommends)" '(^|, )dataset-fashion-mnist(,|$)'
}
test_holds_what_it_should() {
    unpacked
    local file
    for file in bin/tutti-run bin/tutti-train bin/tutti-validate bin/tutti-bench lib/libtutti.so include/tutti/tutti.h \
        lib/pkgconfig/tutti.pc lib/cmake/tutti/tutti-config.cmake share/doc/tutti/copyright; do
        [[ -s $root/usr/$file ]] || fail "$file is missing"
    done
    file=$(find "$root" -type f \( -perm /022 -o ! -perm -444 \))
    [[ ! $file ]] || fail "wrong permissions: $file"
    file=$(find "$root" -mindepth 1 -maxdepth 2 ! -path "$root/usr" ! -path "$root/usr/*")
    [[ ! $file ]] || fail "outside /usr: $file"
}
test_every_program_is_named() {
    unpacked
    local file
    for file in "$root"/usr/bin/*; do
        expect_match Description "$(field Description)" "${file##*/}[, .]"
        grep -qF "\`${file##*/}\`" "$top/docs/install.md" || fail "docs/install.md does not name ${file##*/}"
    done
}
test_names_no_path_of_the_build() {
    unpacked
    local found
    found=$(grep -rlaF -e "$top" -e "$build" -e "$scratch" "$root") && fail "paths of the build in $found"
    return 0
}
test_trains_from_where_it_is_unpacked() {
    unpacked
    [[ -r /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]] || skip "no Fashion-MNIST"
    ldd "$root/usr/bin/tutti-train" | grep -q libmpi || skip "this build has no MPI"
    type -P mpirun >/dev/null || skip "no mpirun"
    unset LD_LIBRARY_PATH TUTTI_BUILD_DIR
    expect_match "its library" "$(ldd "$root/usr/bin/tutti-train")" "libtutti[^ ]* => $root/usr/"
    "$root/usr/bin/tutti-run" -np 2 tutti-train --task fashion --epochs 1 --width 32 --backend host >output 2>errors ||
        fail "code $?: $(tail -n 5 output) $(<errors)"
    expect_match "what is run" "$(<errors)" " $root/usr/bin/tutti-train "
    expect_match "last line" "$(tail -n 1 output)" 'done \| .* on 2 ranks .*test accuracy [78][0-9]\.'
}

run_tests
