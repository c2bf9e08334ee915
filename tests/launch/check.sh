# shellcheck shell=bash
# The harness of the script tests: source it, define functions test_*, end with run_tests.  Each runs in a shell of its
# own, in an empty folder; it fails by `fail` or a non-zero status.  Sourced, never run.
set -u

# shellcheck disable=SC2034 # for the scripts that source this
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "    $1"
    exit 1
}
skip() {
    echo "skipped: $1"
    exit 77
}

# expect_equal WHAT GOT WANTED
expect_equal() {
    [[ $2 == "$3" ]] || fail "$1: got '$2', want '$3'"
}
# expect_match WHAT GOT PATTERN (a regular expression)
expect_match() {
    [[ $2 =~ $3 ]] || fail "$1: got '$2', want a match of '$3'"
}

# expect_refusal PROGRAM WORDS COMMAND …: a wrong command line, which the command's file `output` explains without a traceback.
expect_refusal() {
    local program=$1 words=$2
    shift 2
    "$@"
    expect_equal "code of ${*:2}" $? 64
    grep -qF -- "$program: $words" output || fail "${*:2}: $(<output)"
    ! grep -q Traceback output || fail "$(<output)"
}

run_tests() {
    local name code began passed=0 failed=0 skipped=0
    for name in $(declare -F | sed -n 's/^declare -f \(test_.*\)/\1/p'); do
        mkdir "$scratch/$name"
        began=$SECONDS
        (cd "$scratch/$name" && "$name")
        code=$?
        case $code in
            0) echo "  $name ... passed, $((SECONDS - began)) s" && passed=$((passed + 1)) ;;
            77) skipped=$((skipped + 1)) ;;
            *) echo "  $name ... FAILED" && failed=$((failed + 1)) ;;
        esac
    done
    echo "tests: $passed passed, $failed failed, $skipped skipped"
    ((failed == 0)) || exit 1
    ((passed > 0)) || exit 77
    exit 0
}
