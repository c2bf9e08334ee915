#!/usr/bin/env bash
# Tests of the public headers' comments: every function has one, and Doxygen reads them without a warning.
# usage: headers.sh
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/../launch/check.sh"

# uncommented HEADER …: lines "HEADER:LINE: DECLARATION" of functions without a comment above, which adjacent functions may
# share.  tutti/api.h documents every tutti_x_desc_default().
uncommented() {
    awk '
        FNR == 1 { commented = 0; declaring = 0 }
        /^ *\/?\*.*\*\/$/ { commented = 1; next }
        /^TUTTI_API.*_desc_default\(void\);$/ { next }
        /^TUTTI_API/ { if (!commented) print FILENAME ":" FNR ": " $0; declaring = 1 }
        !declaring { commented = 0 }
        /;$/ { declaring = 0 }' "$@"
}

test_every_function_has_a_comment() {
    local found
    found=$(uncommented "$top"/include/tutti/*.h)
    [[ ! $found ]] || fail "without a comment: $found"
}
test_a_missing_comment_is_noticed() {
    cat >made_up.h <<'TEXT'
/* A made-up header. */
#ifndef MADE_UP_H
#define MADE_UP_H

/* Has one. */
TUTTI_API int tutti_first(int a,
                          int b);
TUTTI_API int tutti_shares_it(void);

TUTTI_API int tutti_has_none(void);
typedef struct made_up {
    int a; /* not a function's */
} made_up;
TUTTI_API int tutti_has_none_either(void);
#endif
TEXT
    expect_equal findings "$(uncommented made_up.h | sed 's/.*int \(.*\)(.*/\1/' | xargs)" "tutti_has_none tutti_has_none_either"
}

# reference FOLDER: Doxygen's pages of the headers under FOLDER/include, in ./pages
reference() {
    (cd "$1" && { cat docs/Doxyfile && echo "OUTPUT_DIRECTORY = $OLDPWD/pages"; } | doxygen - 2>&1)
}
test_doxygen_has_no_complaint() {
    type -P doxygen >/dev/null || skip "no doxygen (launch/setup.sh --lint installs it)"
    local output
    output=$(reference "$top") || fail "code $?: $output"
    expect_equal "what it says" "$output" ""
    local page
    page=$(sed 's/<[^>]*>//g' pages/html/tensor_8h.html)
    expect_match "the page of tensor.h" "$page" 'tutti_tensor_make.*A contiguous view of data\..*The same for one and two dimensions\..*The same for one and two'
}
test_doxygen_would_complain() {
    type -P doxygen >/dev/null || skip "no doxygen (launch/setup.sh --lint installs it)"
    mkdir -p wrong/include/tutti
    cp -r "$top/docs" wrong/
    printf '/* A header. */\n\n/* See @ref nowhere. */\nint tutti_made_up(void);\n' >wrong/include/tutti/wrong.h
    local output
    output=$(reference "$PWD/wrong") && fail "it took a reference to nothing"
    expect_match "what it says" "$output" 'wrong.h:3: .*nowhere'
}

run_tests
