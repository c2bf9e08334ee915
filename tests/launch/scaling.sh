#!/usr/bin/env bash
# Tests of bench/scaling.sh on the host.  usage: scaling.sh BUILD-FOLDER
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
build=$(readlink -f "$1")
script=$top/bench/scaling.sh
export CUDA_VISIBLE_DEVICES=''

test_three_ranks_change_nothing() {
    compgen -G '/usr/share/common-licenses/*' >/dev/null || skip "there are no licence texts to train on"
    TUTTI_BUILD_DIR=$build "$script" --ranks '1 3' --folder files --backend host --width 32 --batch 2048 --epochs 1 \
        >output 2>&1 || fail "it ended with $?: $(<output)"
    expect_match table "$(<output)" '    3 \| +[0-9]+ \| [0-9.]+ % \| +[0-9]+ \| [0-9.]+ %'
    expect_match table "$(<output)" '3 ranks: the same bytes'
    expect_match chain "$(<output)" 'from 3 ranks down to 1, resumed in the middle: the same bytes'
    expect_equal "validated" "$(grep -c 'all hold' output)" 2
    expect_match "resumed run" "$(<files/chain1.log)" 'resumed +after step'
}
# A tutti-train whose result is its number of ranks.
test_says_what_differs() {
    mkdir -p build/bin
    cat >build/bin/tutti-train <<'EOF'
#!/usr/bin/env bash
[[ ${OMPI_COMM_WORLD_RANK:-0} == 0 ]] || exit 0
while (($#)); do
    case $1 in
        --checkpoint) for file in "$2" "$2.1" "$2.2"; do echo "${OMPI_COMM_WORLD_SIZE:-1}" >"$file"; done ;;
        --log-json) echo '{"event":"end","step":9,"rate":100.0}' >"$2" ;;
    esac
    shift
done
EOF
    chmod +x build/bin/tutti-train
    ln -s "$build/bin/tutti-validate" build/bin/
    TUTTI_BUILD_DIR=$PWD/build "$script" --ranks '1 2' --backend host >output 2>&1
    expect_equal code $? 1
    expect_match output "$(<output)" '2 ranks: DIFFERENT BYTES'
}
test_a_run_that_fails() {
    TUTTI_BUILD_DIR=$build "$script" --ranks 1 --backend host --width 0 >output 2>&1
    expect_equal code $? 2
    expect_match output "$(<output)" 'width.*tutti-train failed'
    "$script" --ranks >output 2>&1
    expect_equal code $? 64
    "$script" --help | grep -q 'usage: bench/scaling.sh' || fail "--help does not explain"
}

run_tests
