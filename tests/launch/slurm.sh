#!/usr/bin/env bash
# Tests of launch/slurm.sbatch with fake sbatch, srun and scontrol.
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
script=$top/launch/slurm.sbatch
unset OMP_NUM_THREADS OMP_WAIT_POLICY TUTTI_TRAIN TUTTI_CHECKPOINT TUTTI_LAUNCHER SLURM_CPUS_PER_TASK

# sbatch runs a copy of the script, like SLURM; srun records its arguments, its environment and each USR1, and ends with the
# code in the file `code` (if there is a file `hold`, after a first signal); scontrol records its arguments.
fake_slurm() {
    mkdir bin spool
    cat >bin/sbatch <<'FAKE'
#!/usr/bin/env bash
cp "$1" spool/slurm_script
shift
SLURM_JOB_ID=42 SLURM_SUBMIT_DIR=$PWD SLURM_JOB_NODELIST='n[1-2]' exec bash spool/slurm_script "$@"
FAKE
    cat >bin/srun <<'FAKE'
#!/usr/bin/env bash
[[ ! -e slow ]] || { touch up; sleep 1; }
trap 'echo USR1 >>signals' USR1
printf '%s\n' "$@" >arguments
env >environment
touch up
for ((i = 0; i < 500; i++)); do
    [[ -e hold && ! -e signals ]] || break
    sleep 0.02
done
sleep 0.1
exit "$(<code)"
FAKE
    printf '#!/bin/sh\necho "$*" >>scontrol.log\nexit %s\n' "${1-0}" >bin/scontrol
    chmod +x bin/*
    PATH=$PWD/bin:$PATH
}

# run_job CODE [ARGS …]: submits the script; the step ends with CODE by itself.  The job's code is in `got`.
run_job() {
    echo "$1" >code
    shift
    sbatch "$script" "$@" >output 2>&1
    got=$?
}
# stop_job CODE SIGNAL: the same, but the script gets SIGNAL once the step is up, which ends then.
stop_job() {
    local job tries
    echo "$1" >code
    [[ $2 != USR1 ]] || touch hold
    sbatch "$script" >output 2>&1 &
    job=$!
    for ((tries = 0; tries < 500; tries++)); do
        [[ -e up ]] && break
        sleep 0.02
    done
    kill "-$2" "$job"
    wait "$job"
    got=$?
}
not_requeued() {
    [[ ! -e scontrol.log ]] || fail "it called scontrol $(<scontrol.log)"
}

test_starts_the_ranks_by_srun() {
    fake_slurm
    run_job 0 --task fashion --epochs 100
    expect_equal code "$got" 0
    expect_equal arguments "$(paste -sd ' ' arguments)" "--mpi=pmix --kill-on-bad-exit=0 $PWD/build/bin/tutti-train \
--checkpoint $PWD/tutti-42.h5 --save-every 1000 --keep 1 --resume=auto --progress=plain --task fashion --epochs 100"
    expect_match output "$(<output)" 'start 0 of job 42 on n\[1-2\]: srun --mpi=pmix'
}
test_finds_the_program_on_path() {
    fake_slurm
    printf '#!/bin/sh\n' >bin/tutti-train && chmod +x bin/tutti-train
    run_job 0
    expect_match arguments "$(paste -sd ' ' arguments)" " $PWD/bin/tutti-train --checkpoint"
}
test_uses_its_environment() {
    fake_slurm
    ln -s srun bin/mpirun
    TUTTI_TRAIN='a program' TUTTI_CHECKPOINT='a file' TUTTI_LAUNCHER='mpirun --bind-to none' run_job 0
    expect_equal arguments "$(paste -sd , arguments)" \
        "--bind-to,none,a program,--checkpoint,a file,--save-every,1000,--keep,1,--resume=auto,--progress=plain"
}
test_gives_the_ranks_their_threads() {
    fake_slurm
    SLURM_CPUS_PER_TASK=6 run_job 0
    expect_equal environment "$(grep -E '^(OMP_|SRUN_)' environment | sort | paste -sd ' ')" \
        "OMP_NUM_THREADS=6 OMP_WAIT_POLICY=passive SRUN_CPUS_PER_TASK=6"
    OMP_NUM_THREADS=2 run_job 0
    expect_equal environment "$(grep -E '^(OMP_NUM|SRUN_)' environment)" "OMP_NUM_THREADS=2"
}

test_requeues_when_time_is_up() {
    fake_slurm
    stop_job 75 USR1
    expect_equal code "$got" 0
    expect_equal scontrol "$(<scontrol.log)" "requeue 42"
    expect_equal "signals of the step" "$(<signals)" USR1
}
test_requeues_when_time_is_up_at_once() {
    fake_slurm
    touch slow
    stop_job 75 USR1
    expect_equal code "$got" 0
    expect_equal scontrol "$(<scontrol.log)" "requeue 42"
}
test_says_what_to_do_where_a_requeue_is_refused() {
    fake_slurm 1
    stop_job 75 USR1
    expect_equal code "$got" 75
    expect_match output "$(<output)" "sbatch it again with TUTTI_CHECKPOINT=$PWD/tutti-42.h5"
}
test_does_not_requeue_a_success() {
    fake_slurm
    run_job 0
    expect_equal code "$got" 0
    not_requeued
}
test_does_not_requeue_a_failure() {
    local code
    fake_slurm
    for code in 1 2 64 137; do
        run_job "$code"
        expect_equal code "$got" "$code"
    done
    not_requeued
}
test_does_not_requeue_what_ended_beside_the_signal() {
    local code
    fake_slurm
    for code in 0 2; do
        rm -f up signals
        stop_job "$code" USR1
        expect_equal code "$got" "$code"
    done
    not_requeued
}
test_does_not_requeue_what_others_stopped() {
    fake_slurm
    run_job 75
    expect_equal code "$got" 75
    not_requeued
}
test_outlives_a_sigterm_until_the_ranks_have_stopped() {
    fake_slurm
    stop_job 75 TERM
    expect_equal code "$got" 75
    expect_match output "$(<output)" 'ended with 75'
    not_requeued
}

test_asks_slurm_for_what_it_needs() {
    expect_equal directives "$(sed -n 's/^#SBATCH //p' "$script" | sort | paste -sd ' ')" \
        "--job-name=tutti --open-mode=append --requeue --signal=B:USR1@120"
}
test_explains_itself_outside_slurm() {
    bash "$script" >output 2>&1
    expect_equal code $? 64
    expect_match output "$(<output)" 'sbatch --nodes'
}
test_shellcheck_passes() {
    type -P shellcheck >/dev/null || skip "no shellcheck"
    shellcheck -x "$script" || fail "shellcheck is not"
}

run_tests
