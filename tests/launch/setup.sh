#!/usr/bin/env bash
# Tests of launch/setup.sh and of how launch/test.sh counts.
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"

# A PATH with only the programs that setup.sh itself runs, and an apt-get that only records its arguments.
bare_path() {
    mkdir bin
    local tool
    for tool in bash env sh sed sort grep id dirname basename cat; do
        ln -s "$(type -P "$tool")" bin/
    done
    printf '#!/bin/sh\necho "$@" >>%q\n' "$PWD/asked" >bin/apt-get
    chmod +x bin/apt-get
    PATH=$PWD/bin
}

# names_after SECONDS: a getent that takes so long.
names_after() {
    mkdir names
    printf '#!/bin/sh\nexec sleep %s\n' "$1" >names/getent && chmod +x names/getent
    PATH=$PWD/names:$PATH
}

test_second_run_is_quick_and_says_nothing() {
    names_after 0
    "$top/launch/setup.sh" >/dev/null 2>&1 || skip "the first run could not install everything"
    local began output
    began=$(date +%s%N)
    output=$("$top/launch/setup.sh" 2>&1) || fail "it failed: $output"
    (($(date +%s%N) - began < 2000000000)) || fail "it took $((($(date +%s%N) - began) / 1000000)) ms"
    expect_equal output "$output" ""
}
test_touches_no_network_if_all_is_there() {
    "$top/launch/setup.sh" >/dev/null 2>&1 || skip "the first run could not install everything"
    mkdir bin
    printf '#!/bin/sh\ntouch %q\n' "$PWD/asked" | tee bin/apt-get >bin/sudo
    chmod +x bin/apt-get bin/sudo
    PATH=$PWD/bin:$PATH "$top/launch/setup.sh" || fail "it failed"
    [[ ! -e asked ]] || fail "it asked apt-get or sudo"
}
test_says_how_to_fix_slow_names() {
    "$top/launch/setup.sh" >/dev/null 2>&1 || skip "the first run could not install everything"
    names_after 9
    local output
    output=$("$top/launch/setup.sh" 2>&1) || fail "it failed: $output"
    expect_match output "$output" "^setup.sh: the names localhost .*"$'\n'"echo '127.0.0.1 localhost $(uname -n)' >>/etc/hosts\$"
}
test_installs_what_is_missing_or_says_how() {
    bare_path
    local output code
    output=$("$top/launch/setup.sh" 2>&1)
    code=$?
    # nothing was really installed, so it must not claim success
    expect_equal code "$code" 2
    if [[ $(id -u) -eq 0 ]]; then
        expect_match "apt-get's first arguments" "$(sed -n 1p asked)" '^update'
        expect_match "apt-get's second arguments" "$(sed -n 2p asked)" 'install .*gcc .*cmake .*libopenmpi-dev .*libopenblas-dev'
        expect_match message "$output" 'still missing'
    else
        expect_match message "$output" 'As root, run:.*apt-get install .*gcc'
        [[ ! -e asked ]] || fail "it ran apt-get without being root"
    fi
}
# without_data: the scripts, in ./tree, on a machine that lacks only Fashion-MNIST, with a cmake and an apt-get that only
# record that they were called.
without_data() {
    "$top/launch/setup.sh" >/dev/null 2>&1 || skip "the first run could not install everything"
    mkdir -p tree/launch bin
    cp "$top"/launch/*.sh "$top/launch/tutti-run" tree/launch
    sed -i 's|/usr/share/datasets|/nowhere|' tree/launch/setup.sh
    printf '#!/bin/sh\necho apt-get >>%q; exit 1\n' "$PWD/asked" | tee bin/apt-get >bin/sudo
    # shellcheck disable=SC2016
    printf '#!/bin/sh\n[ "$1" = --version ] && exec %q --version\necho cmake >>%q\n' "$(type -P cmake)" "$PWD/asked" >bin/cmake
    chmod +x bin/*
    PATH=$PWD/bin:$PATH
}
test_build_needs_no_data() {
    without_data
    local output
    output=$(tree/launch/build.sh 2>&1) || fail "it failed: $output"
    expect_equal "what it ran" "$(xargs <asked)" "cmake cmake"
    expect_match output "$output" '^built build/ in [0-9]+ s$'
}
test_demo_and_tests_need_the_data() {
    without_data
    local script output code
    for script in demo test; do
        : >asked
        output=$(tree/launch/"$script".sh 2>&1)
        code=$?
        expect_equal "code of $script.sh" "$code" 2
        expect_match "output of $script.sh" "$output" '^setup.sh: missing: Fashion-MNIST \(share/datasets/fashion-mnist\)'
        expect_match "output of $script.sh" "$output" 'apt-get install -y --no-install-recommends dataset-fashion-mnist'
        ! grep -q cmake asked || fail "$script.sh built"
    done
}
test_python_modules_are_of_one_python() {
    without_data
    sed -i 's|/usr/bin/python3|/nowhere/python3|; s|/nowhere/fashion|/usr/share/datasets/fashion|' tree/launch/setup.sh
    # shellcheck disable=SC2016
    printf '#!/bin/sh\ncase "$*" in *numpy*) exit 1 ;; esac\n' >bin/python3 # it has h5py and cffi
    chmod +x bin/python3
    expect_match output "$(tree/launch/setup.sh 2>&1)" '^setup.sh: missing: NumPy for python3; h5py for python3; cffi for python3'
}
test_refuses_unknown_options() {
    "$top/launch/setup.sh" --bogus >/dev/null 2>&1
    expect_equal code $? 64
    "$top/launch/build.sh" no-such-preset >/dev/null 2>&1
    expect_equal "code of build.sh" $? 64
}

# A folder with CTest entries of each outcome.
entries() {
    cat >CTestTestfile.cmake <<'TEXT'
add_test(good sh -c "echo 'tests: 5 passed, 0 failed, 0 skipped'")
add_test(some sh -c "echo '  Test: a ...skipped: no moon ... passed'; echo 'tests: 2 passed, 0 failed, 1 skipped'")
add_test(skip sh -c "echo 'skipped: no sun'; echo 'tests: 0 passed, 0 failed, 4 skipped'; exit 77")
set_tests_properties(skip PROPERTIES SKIP_RETURN_CODE 77)
TEXT
}
count() {
    # shellcheck source=launch/lib.sh
    source "$top/launch/lib.sh"
    run_ctest "$PWD" && report_tests
}
test_counts_test_functions() {
    entries
    local output
    output=$(count 2>&1) || fail "it failed: $output"
    expect_equal "last line" "$(tail -n 1 <<<"$output")" "7 passed, 0 failed, 5 skipped"
    expect_match reasons "$output" 'skipped 1: no moon'
    expect_match reasons "$output" 'skipped 4: no sun'
}
# counts_a_failure COMMAND [PROPERTY VALUE]: an entry that fails in this way is one failure more.
counts_a_failure() {
    entries
    echo "add_test(bad sh -c \"$1\")" >>CTestTestfile.cmake
    if (($# > 1)); then echo "set_tests_properties(bad PROPERTIES $2 $3)" >>CTestTestfile.cmake; fi
    local output
    output=$(count 2>&1) && fail "it did not fail: $output"
    expect_equal "last line" "$(tail -n 1 <<<"$output")" "7 passed, 1 failed, 5 skipped"
}
test_counts_a_missing_line() { counts_a_failure "true"; }
test_counts_a_crash() { counts_a_failure "kill -SEGV \$\$"; }
test_counts_a_time_limit() { counts_a_failure "sleep 20" TIMEOUT 1; }
test_counts_a_code_without_failures() {
    entries
    echo 'add_test(bad sh -c "echo tests: 1 passed, 0 failed, 0 skipped; exit 1")' >>CTestTestfile.cmake
    local output
    output=$(count 2>&1) && fail "it did not fail: $output"
    expect_equal "last line" "$(tail -n 1 <<<"$output")" "8 passed, 1 failed, 5 skipped"
}
test_counts_failed_functions() {
    entries
    echo 'add_test(bad sh -c "echo tests: 1 passed, 3 failed, 0 skipped; exit 1")' >>CTestTestfile.cmake
    local output
    output=$(count 2>&1) && fail "it did not fail: $output"
    expect_equal "last line" "$(tail -n 1 <<<"$output")" "8 passed, 3 failed, 5 skipped"
}
test_fails_if_nothing_ran() {
    touch CTestTestfile.cmake
    local output
    output=$(count 2>&1) && fail "it did not fail: $output"
    expect_match "last line" "$(tail -n 1 <<<"$output")" '^0 passed, 1 failed'
}

run_tests
