#!/usr/bin/env bash
# Tests of launch/tutti-run.  usage: tutti_run.sh RANKS-PROGRAM
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
ranks=$(readlink -f "$1")
run=$top/launch/tutti-run
unset TUTTI_BUILD_DIR OMP_NUM_THREADS OMP_WAIT_POLICY

# A nvidia-smi that lists $1 GPUs.
fake_gpus() {
    mkdir -p fake
    { echo '#!/bin/sh'; for ((i = 0; i < $1; i++)); do echo "echo 'GPU $i: a GPU'"; done; } >fake/nvidia-smi
    chmod +x fake/nvidia-smi
    PATH=$PWD/fake:$PATH
    unset CUDA_VISIBLE_DEVICES
}

# code_of COMMAND …: its exit code; what it prints goes to the file output.
code_of() {
    "$@" >output 2>&1
    echo $?
}

test_returns_0() {
    expect_equal code "$(code_of "$run" -np 2 "$ranks" exit -1 0)" 0
}
test_returns_the_code_of_all_ranks() {
    expect_equal code "$(code_of "$run" -np 2 "$ranks" exit -1 3)" 3
}
test_returns_the_code_of_rank_1() {
    expect_equal code "$(code_of "$run" -np 2 "$ranks" exit 1 77)" 77
}
test_returns_the_code_of_one_rank() {
    expect_equal code "$(code_of "$run" -np 1 "$ranks" exit 0 9)" 9
}
test_returns_137_if_a_rank_is_killed() {
    # shellcheck disable=SC2016
    expect_equal code "$(code_of "$run" -np 2 bash -c 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then kill -KILL $$; fi; sleep 30')" 137
}

# signal_reaches_ranks SIGNAL NP: all ranks hear of it within two seconds and their code comes back.
signal_reaches_ranks() {
    local launcher tries code r sent heard
    "$run" -np "$2" "$ranks" wait "$PWD" >output 2>&1 &
    launcher=$!
    for ((tries = 0; tries < 1000; tries++)); do
        [[ -e up.$(($2 - 1)) && -e up.0 ]] && break
        sleep 0.02
    done
    kill "-$1" "$launcher"
    sent=$(date +%s%N)
    for ((tries = 0; tries < 1000; tries++)); do
        [[ -e got.$(($2 - 1)) && -e got.0 ]] && break
        sleep 0.02
    done
    heard=$((($(date +%s%N) - sent) / 1000000))
    wait "$launcher"
    code=$?
    expect_equal "code after SIG$1" "$code" 75
    for ((r = 0; r < $2; r++)); do
        [[ -e got.$r ]] || fail "rank $r did not hear of SIG$1"
    done
    ((heard < 2000)) || fail "the ranks heard of SIG$1 after $heard ms"
}
test_sigterm_reaches_every_rank() { signal_reaches_ranks TERM 2; }
test_sigint_reaches_every_rank() { signal_reaches_ranks INT 2; }
test_sigusr1_is_passed_on() { signal_reaches_ranks USR1 2; }
test_sigterm_reaches_one_rank() { signal_reaches_ranks TERM 1; }

test_signal_before_the_ranks_are_up_ends_the_job() {
    local launcher began=$SECONDS
    "$run" -np 2 sleep 60 >output 2>&1 &
    launcher=$!
    sleep 0.05
    kill -TERM "$launcher"
    wait "$launcher"
    expect_match code "$?" '^[1-9]'
    ((SECONDS - began < 20)) || fail "the job ended after $((SECONDS - began)) s"
}

# A program that takes a second to be ready for signals is not killed by one that comes before.
test_signal_waits_for_a_program_that_is_being_loaded() {
    local np launcher tries
    for np in 1 2; do
        # shellcheck disable=SC2016
        "$run" -np "$np" bash -c 'touch "$0/up.$PPID.$$"; sleep 1; trap "exit 75" USR1; while :; do sleep 0.05; done' "$PWD" >output 2>&1 &
        launcher=$!
        for ((tries = 0; tries < 1000; tries++)); do
            (($(compgen -G 'up.*' | wc -l) >= np)) && break
            sleep 0.02
        done
        rm -f up.*
        kill -TERM "$launcher"
        wait "$launcher"
        expect_equal "code of $np ranks" $? 75
    done
}
test_signal_while_it_looks_for_gpus() {
    mkdir fake
    printf '#!/bin/sh\ntouch "%s/asked"\nsleep 1\n' "$PWD" >fake/nvidia-smi
    chmod +x fake/nvidia-smi
    local launcher tries
    PATH=$PWD/fake:$PATH "$run" -np 1 touch ran >output 2>&1 &
    launcher=$!
    for ((tries = 0; tries < 500; tries++)); do
        [[ -e asked ]] && break
        sleep 0.02
    done
    kill -TERM "$launcher"
    wait "$launcher"
    expect_equal code $? 75
    [[ ! -e ran ]] || fail "it ran"
}

test_killed_launcher_takes_the_ranks_along() {
    setpriv --pdeathsig TERM true 2>/dev/null || skip "setpriv knows no --pdeathsig"
    local launcher tries pid
    # shellcheck disable=SC2016
    "$run" -np 1 bash -c 'echo $$ >pid; exec sleep 60' >output 2>&1 &
    launcher=$!
    for ((tries = 0; tries < 500; tries++)); do
        [[ -s pid ]] && break
        sleep 0.02
    done
    pid=$(<pid)
    kill -KILL "$launcher"
    for ((tries = 0; tries < 500; tries++)); do
        [[ $(ps_state "$pid") == [ZX] || -z $(ps_state "$pid") ]] && return
        sleep 0.02
    done
    kill -KILL "$pid"
    fail "the rank outlived its killed launcher"
}
ps_state() {
    sed -n 's/^State:\t\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null
}

test_runs_one_rank_without_mpirun() {
    mkdir bin
    local tool
    for tool in bash env nproc setsid setpriv sleep id grep readlink dirname cat; do
        ln -s "$(type -P "$tool")" bin/
    done
    printf '#!/bin/sh\nexit 5\n' >program && chmod +x program
    expect_equal code "$(PATH=$PWD/bin code_of "$run" -np 1 ./program)" 5
    expect_equal "code of two ranks" "$(PATH=$PWD/bin code_of "$run" -np 2 ./program)" 2
    expect_match message "$(<output)" 'need mpirun'
}

test_dry_run_prints_and_runs_nothing() {
    expect_equal code "$(code_of "$run" --dry-run -np 2 touch 'a file')" 0
    expect_match command "$(<output)" 'mpirun -np 2 .*/touch a\\ file'
    [[ ! -e 'a file' ]] || fail "it ran"
}
test_prints_the_command() {
    expect_equal code "$(code_of "$run" -np 1 "$ranks" exit 0 0)" 0
    expect_match command "$(<output)" 'tutti-run: .*mpirun -np 1 .* exit 0 0'
}

test_keeps_the_callers_threads() {
    OMP_NUM_THREADS=5 "$run" -np 2 "$ranks" threads >output 2>/dev/null
    expect_equal threads "$(sort -u output)" "threads 5"
}
test_gives_each_rank_its_share_of_the_cores() {
    local cores
    cores=$(source "$run" && cores)
    "$run" -np 1 "$ranks" threads >output 2>/dev/null
    expect_equal "threads of one rank" "$(<output)" "threads $cores"
    "$run" -np $((cores + 1)) "$ranks" threads >output 2>/dev/null
    expect_equal "threads of too many ranks" "$(sort -u output)" "threads 1"
}

test_finds_programs_in_the_build_folder_that_is_named() {
    mkdir -p here/bin
    printf '#!/bin/sh\nexit 6\n' >here/bin/program && chmod +x here/bin/program
    expect_equal code "$(TUTTI_BUILD_DIR=here code_of "$run" program)" 6
    expect_equal "code elsewhere" "$(TUTTI_BUILD_DIR=there code_of "$run" program)" 64
    expect_equal "code for a program on PATH only" "$(TUTTI_BUILD_DIR=here code_of "$run" true)" 64
}
test_finds_programs_in_build_or_beside_itself() {
    mkdir -p tree/launch tree/build/bin prefix/bin
    cp "$run" tree/launch/ && cp "$run" prefix/bin/ && touch tree/CMakePresets.json
    printf '#!/bin/sh\nexit 6\n' >tree/build/bin/program
    printf '#!/bin/sh\nexit 8\n' >prefix/bin/program
    chmod +x tree/build/bin/program prefix/bin/program
    expect_equal "code from build/" "$(code_of tree/launch/tutti-run program)" 6
    expect_equal "code from where it is installed" "$(code_of prefix/bin/tutti-run program)" 8
    expect_equal "code from PATH" "$(code_of prefix/bin/tutti-run true)" 0
}

test_refuses_bad_use() {
    local wrong
    for wrong in "" "-np" "-np 0 true" "-np x true" "--bogus true" "no-such-program" "./no-such-program"; do
        # shellcheck disable=SC2086
        expect_equal "code of tutti-run $wrong" "$(code_of "$run" $wrong)" 64
        expect_match message "$(<output)" '^tutti-run: .+'
    done
}

test_gives_one_rank_a_gpu() {
    fake_gpus 2
    expect_equal code "$(code_of "$run" --dry-run -np 2 "$ranks" --backend cuda)" 0
    expect_equal "code of three ranks" "$(code_of "$run" --dry-run -np 3 "$ranks" --backend cuda)" 64
    expect_match message "$(<output)" '3 ranks, but 2 GPU'
    expect_equal "code of three that share" \
        "$(OMP_NUM_THREADS=1 code_of "$run" --dry-run -np 2 "$ranks" --backend=cuda --transport=mpi)" 0
    expect_equal "code of three on the host" "$(code_of "$run" --dry-run -np 3 "$ranks" --backend host)" 0
    expect_equal "code with one visible" \
        "$(CUDA_VISIBLE_DEVICES=1 code_of "$run" --dry-run -np 2 "$ranks" --backend cuda)" 64
}
test_takes_as_many_ranks_as_gpus_unless_told() {
    fake_gpus 2
    cp "$ranks" tutti-program
    code_of "$run" --dry-run ./tutti-program >/dev/null
    expect_match command "$(<output)" 'mpirun -np 2 '
    code_of "$run" --dry-run ./tutti-program --backend host >/dev/null
    expect_match command "$(<output)" 'mpirun -np 1 '
}
test_oversubscribes_on_the_host_backend_only() {
    local many=4096
    fake_gpus "$many"
    expect_equal code "$(code_of "$run" --dry-run -np "$many" "$ranks" --backend cuda)" 64
    expect_match message "$(<output)" 'more ranks than cores'
    expect_equal code "$(code_of "$run" --dry-run -np "$many" "$ranks" --backend host)" 0
}

test_decides_on_the_progress_bar() {
    cp "$ranks" tutti-train
    code_of "$run" --dry-run -np 1 ./tutti-train --epochs 1 >/dev/null
    expect_match command "$(<output)" 'tutti-train --progress=plain --epochs 1'
    code_of "$run" --dry-run -np 1 ./tutti-train --progress none >/dev/null
    expect_match command "$(<output)" 'tutti-train --progress none$'
    code_of "$run" --dry-run -np 1 "$ranks" >/dev/null
    [[ $(<output) != *progress* ]] || fail "it told another program about progress"
}

test_lets_root_run_in_containers_only() {
    # shellcheck source=launch/tutti-run
    source "$run"
    unset CI TUTTI_ALLOW_ROOT OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
    mkdir -p machine/run/systemd/system docker/run/systemd/system podman/run/systemd/system image/run \
        kubernetes/proc/1 kubernetes/run/systemd/system
    touch docker/.dockerenv podman/run/.containerenv
    echo '1:cpu:/kubepods/besteffort/x' >kubernetes/proc/1/cgroup
    root_may_run machine && fail "root may run on a whole machine"
    local place
    for place in docker podman image kubernetes; do
        root_may_run "$place" || fail "root may not run in $place"
    done
    TUTTI_ALLOW_ROOT=1 root_may_run machine || fail "TUTTI_ALLOW_ROOT=1 is not heard"
    CI=true root_may_run machine || fail "CI=true is not heard"
}

run_tests
