#!/usr/bin/env bash
# Tests of README's example, and of the links, paths and names in all documents.  usage: readme.sh EMBED-PROGRAM
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
embed=$(readlink -f "$1")

documents() {
    (cd "$top" && ls ./*.md docs/*.md)
}

test_readme_shows_the_example() {
    # shellcheck disable=SC2016
    sed -n '/^```c$/,/^```$/p' "$top/README.md" | sed '1d;$d' >shown.c
    sed -n '/^static int train(/,/^}$/p' "$top/examples/embed.c" >train.c
    cmp shown.c train.c || fail "README's block and examples/embed.c differ"
    (($(wc -l <shown.c) <= 30)) || fail "the example has $(wc -l <shown.c) lines"
}
test_the_example_runs_on_any_number_of_ranks() {
    local np
    for np in 1 2 3; do
        "$top/launch/tutti-run" -np "$np" "$embed" >output 2>errors || fail "$np ranks: $(<output) $(<errors)"
        expect_equal "output of $np ranks" "$(<output)" "weight 0.100 0.100 0.100 0.100"
    done
}

test_links_lead_somewhere() {
    local document link
    while read -r document; do
        while read -r link; do
            [[ -e $top/$(dirname "$document")/${link%%#*} ]] || fail "$document links to $link, which does not exist"
        done < <(grep -oE '\]\([^)]+\)' "$top/$document" | sed 's/^](//; s/)$//' | grep -vE '^(https?:|#)')
    done < <(documents)
}
test_paths_are_there() {
    local document path
    while read -r document; do
        while read -r path; do
            compgen -G "$top/$path" >/dev/null || fail "$document names $path, which does not exist"
        done < <(grep -oE '(^|[^A-Za-z0-9_./-])(include|src|apps|tests|launch|examples|docs|cmake|\.ci)/[A-Za-z0-9_./*-]*[A-Za-z0-9_*]' "$top/$document" |
            sed 's/^[^a-z.]*//' | sort -u)
    done < <(documents)
}
test_names_are_in_the_headers() {
    local document name
    while read -r document; do
        [[ $document != *from-0.1-to-0.2.md ]] || continue # it names what was removed
        while read -r name; do
            grep -rqw -- "$name" "$top/include" "$top/src" "$top/CMakeLists.txt" "$top/cmake" "$top/launch" "$top/tests" ||
                fail "$document names $name, which is not in the sources"
        done < <(grep -oE '\b(tutti_[a-z0-9_]+[a-z0-9]|tutti__[a-z0-9_]+[a-z0-9]|TUTTI_[A-Z0-9_]+[A-Z0-9])\b' "$top/$document" | sort -u)
    done < <(documents)
}

run_tests
