#!/usr/bin/env bash
# Line coverage of src/ under the host tests, by file and by folder, with gcov.  Builds in build-coverage/, with only the library
# instrumented.  Processes that are killed or leave by _exit (the reader of a file's structure) are not counted, nor are CUDA's
# sources.  Tests of scripts and those with a time limit are left out.
# usage: tools/coverage.sh [ARGS of ctest …]
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launch/lib.sh"
if [[ ${1-} == -h || ${1-} == --help ]]; then
    sed -n '2,5s/^# \{0,1\}//p' "$0"
    exit 0
fi
for tool in cmake ninja gcov; do
    type -P "$tool" >/dev/null || die "$tool was not found"
done

build=$top/build-coverage
mkdir -p "$build"
cat >"$build/instrument.cmake" <<'END'
cmake_language(DEFER CALL target_compile_options tutti PRIVATE --coverage -fprofile-update=atomic)
cmake_language(DEFER CALL target_link_options tutti PRIVATE --coverage)
END
cmake -S "$top" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_C_FLAGS_DEBUG=-O1 -g" -DTUTTI_WITH_CUDA=OFF \
    "-DCMAKE_PROJECT_tutti_INCLUDE=$build/instrument.cmake" >"$build/configure.log" || die "cmake failed: $build/configure.log"
cmake --build "$build" >"$build/build.log" || die "the build failed: $build/build.log"
find "$build" -name '*.gcda' -delete

run_ctest "$build" -L '^(cpu|mpi)$' -E '^(launch|package|tools)[.]|^train[.](bytes_)?demo$' "$@"

# A line of a header counts once, however often it was compiled, and is covered if any of its copies ran.
mapfile -d '' notes < <(find "$build/CMakeFiles/tutti.dir" -name '*.gcno' -print0)
((${#notes[@]} > 0)) || die "the build left no .gcno files in $build"
(cd "$build" && gcov --stdout "${notes[@]}" 2>"$build/gcov.log") >"$build/coverage.txt" || die "gcov failed: $build/gcov.log"
awk -v top="$top/" '
    match($0, /^ *[^:]*: *0:Source:/) {
        file = substr($0, RLENGTH + 1)
        ours = index(file, top "src/") == 1
        file = substr(file, length(top) + 1)
        next
    }
    ours && match($0, /^ *[^:]*: *[0-9]+:/) {
        split(substr($0, 1, RLENGTH), part, ":")
        gsub(/ /, "", part[1])
        if (part[1] == "-") next
        key = file ":" part[2] + 0
        if (!(key in ran)) { ran[key] = 0; lines[file]++ }
        if (part[1] ~ /^[0-9]/ && !ran[key]) { ran[key] = 1; hit[file]++ }
    }
    function row(name) { printf "%-36s %6d of %6d  %5.1f %%\n", name, hit[name], lines[name], 100 * hit[name] / lines[name] | "sort" }
    END {
        for (file in lines) files[file]
        for (file in files) {
            row(file)
            folder = file
            sub(/\/[^\/]*$/, "/", folder)
            lines[folder] += lines[file]; hit[folder] += hit[file]; folders[folder]
            lines["src/, all of it"] += lines[file]; hit["src/, all of it"] += hit[file]
        }
        close("sort")
        if (!("src/, all of it" in lines)) exit 1
        print "\nby folder"; fflush()
        for (folder in folders) row(folder)
        close("sort")
        row("src/, all of it")
    }' "$build/coverage.txt" || die "gcov knows no line of src/"
report_tests || exit 1
