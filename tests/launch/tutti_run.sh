#!/usr/bin/env bash
# Tests of launch/tutti-run.  usage: tutti_run.sh RANKS-PROGRAM
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
ranks=$(readlink -f "$1")
run=("$top/launch/tutti-run")
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
    expect_equal code "$(code_of "${run[@]}" -np 2 "$ranks" exit -1 0)" 0
}
test_returns_the_code_of_all_ranks() {
    expect_equal code "$(code_of "${run[@]}" -np 2 "$ranks" exit -1 3)" 3
}
test_returns_the_code_of_rank_1() {
    expect_equal code "$(code_of "${run[@]}" -np 2 "$ranks" exit 1 77)" 77
}
test_returns_the_code_of_one_rank() {
    expect_equal code "$(code_of "${run[@]}" -np 1 "$ranks" exit 0 9)" 9
}
test_returns_137_if_a_rank_is_killed() {
    # shellcheck disable=SC2016
    expect_equal code "$(code_of "${run[@]}" -np 2 bash -c 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then kill -KILL $$; fi; sleep 30')" 137
}

# signal_reaches_ranks SIGNAL NP: all ranks get it within two seconds, and their code is returned.
signal_reaches_ranks() {
    local launcher tries code r sent heard
    "${run[@]}" -np "$2" "$ranks" wait "$PWD" >output 2>&1 &
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
        [[ -e got.$r ]] || fail "rank $r did not get SIG$1"
    done
    ((heard < 2000)) || fail "the ranks got SIG$1 after $heard ms"
}
test_sigterm_reaches_every_rank() { signal_reaches_ranks TERM 2; }
test_sigint_reaches_every_rank() { signal_reaches_ranks INT 2; }
test_sigusr1_is_passed_on() { signal_reaches_ranks USR1 2; }
test_sigterm_reaches_one_rank() { signal_reaches_ranks TERM 1; }

test_signal_before_the_ranks_are_up_ends_the_job() {
    local launcher began=$SECONDS
    "${run[@]}" -np 2 sleep 60 >output 2>&1 &
    launcher=$!
    sleep 0.05
    kill -TERM "$launcher"
    wait "$launcher"
    expect_match code "$?" '^[1-9]'
    ((SECONDS - began < 20)) || fail "the job ended after $((SECONDS - began)) s"
}

# A program that catches signals only after a second is not killed by an earlier one.
test_signal_waits_for_a_program_that_is_being_loaded() {
    local np launcher tries
    for np in 1 2; do
        # shellcheck disable=SC2016
        "${run[@]}" -np "$np" bash -c 'touch "$0/up.$PPID.$$"; sleep 1; trap "exit 75" USR1; while :; do sleep 0.05; done' "$PWD" >output 2>&1 &
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
    PATH=$PWD/fake:$PATH "${run[@]}" -np 1 touch ran >output 2>&1 &
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

# A PATH whose setpriv fails.
no_setpriv() {
    mkdir -p fake
    printf '#!/bin/sh\nexit 1\n' >fake/setpriv && chmod +x fake/setpriv
    PATH=$PWD/fake:$PATH
}
# Runs tutti-run with a PATH without mpirun.
no_mpirun() {
    mkdir bin
    local tool
    for tool in bash sh env nproc setsid setpriv sleep id grep readlink dirname cat getconf mktemp; do
        ln -s "$(type -P "$tool")" bin/
    done
    run=(env PATH="$PWD/bin" "${run[@]}")
}
# start_stubborn NP: ranks that ignore all signals, each with a child; their process ids are in `ranks_up`, tutti-run's in
# `launcher`, mpirun's (or without it the rank's) in `leader`.  mpirun's files are in tmp/.
start_stubborn() {
    local tries
    mkdir -p tmp
    # shellcheck disable=SC2016
    TMPDIR=$PWD/tmp "${run[@]}" -np "$1" bash -c 'trap "" TERM INT HUP USR1 USR2; sleep 60 & echo $$ $! >up.$$; while :; do sleep 0.05; done' \
        >output 2>&1 &
    launcher=$!
    for ((tries = 0; tries < 1000; tries++)); do
        ranks_up=$(cat up.* 2>/dev/null)
        (($(wc -w <<<"$ranks_up") == 2 * $1)) && break
        sleep 0.02
    done
    rm -f up.*
    leader=$(ps_field 6 "${ranks_up%% *}")
}
# ps_field N PID: that field of /proc/PID/stat; 3 is the state, 6 the session.
ps_field() {
    sed 's/.*) //' "/proc/$2/stat" 2>/dev/null | cut -d ' ' -f $(($1 - 2))
}
# ranks_end_within MS WHEN: all processes of the ranks end within that time.
ranks_end_within() {
    local began pid left=begin ms=0
    began=$(date +%s%N)
    while [[ $left ]] && ((ms < 5000)); do
        left=''
        for pid in $ranks_up; do
            [[ -e /proc/$pid && $(ps_field 3 "$pid") == [^ZX] ]] && left+=" $pid"
        done
        ms=$((($(date +%s%N) - began) / 1000000))
        sleep 0.01
    done
    # shellcheck disable=SC2086
    [[ -z $left ]] || kill -KILL $left
    ((ms < $1)) || fail "$2: ranks lived on for $ms ms"
}
# mpirun_leaves_nothing: waits until neither a process nor a file is left.
mpirun_leaves_nothing() {
    local tries
    for ((tries = 0; tries < 500; tries++)); do
        [[ -z $(find tmp -mindepth 2) && ($(ps_field 3 "$leader") == '' || $(ps_field 3 "$leader") == [ZX]) ]] && return
        sleep 0.02
    done
    fail "mpirun has left $(find tmp -mindepth 2), its state is '$(ps_field 3 "$leader")'"
}
test_killed_launcher_takes_the_ranks_along() {
    local np
    for np in 1 3; do
        start_stubborn "$np"
        kill -KILL "$launcher"
        ranks_end_within 500 "$np rank(s)"
        mpirun_leaves_nothing
    done
    no_setpriv
    start_stubborn 2
    kill -KILL "$launcher"
    ranks_end_within 500 "without setpriv"
    mpirun_leaves_nothing
    expect_match message "$(<output)" 'no setpriv with --pdeathsig'
}
test_killed_launcher_takes_a_rank_without_mpirun_along() {
    no_mpirun
    start_stubborn 1
    kill -KILL "$launcher"
    ranks_end_within 500 "without mpirun"
}
test_killed_mpirun_takes_the_ranks_along() {
    start_stubborn 2
    kill -KILL "$leader"
    ranks_end_within 500 "after mpirun"
    wait "$launcher"
    expect_equal code $? 137
    start_stubborn 2
    kill -KILL "$leader" "$launcher"
    ranks_end_within 500 "after both"
}
# mpirun starts many ranks from threads, whose end must not count as its own.
test_many_ranks_outlive_mpiruns_threads() {
    expect_equal code "$(code_of "${run[@]}" -np 40 bash -c 'sleep 1; exit 0')" 0
}

# A pipe that is open for reading by `sleeper`, which does not read.
open_pipe() {
    mkfifo pipe
    sleep 300 <>pipe &
    sleeper=$!
}
# writers_of_pipe: the other processes that have it open.
writers_of_pipe() {
    find /proc/[0-9]*/fd -lname "$PWD/pipe" 2>/dev/null | cut -d / -f 3 | sort -u | grep -vx "$sleeper"
}
test_lines_find_their_reader_or_nobody() {
    # shellcheck disable=SC2016
    local np program='for ((i = 0; i < 20000; i++)); do echo "line $i" || exit 9; done; exit 5'
    local -a codes
    for np in 1 2; do
        "${run[@]}" -np "$np" bash -c "$program" 2>output | head -1 >line
        codes=("${PIPESTATUS[@]}")
        expect_equal "code of $np rank(s)" "${codes[0]}" 5
        expect_equal "lines of $np rank(s) for a late reader" \
            "$("${run[@]}" -np "$np" bash -c "${program%5}0" 2>output | { sleep 1 && wc -l; })" $((20000 * np))
    done
}
test_a_full_disk_under_the_lines_is_2() {
    local np
    for np in 1 2; do
        "${run[@]}" -np "$np" bash -c 'seq 20000; touch "done.$$"' >/dev/full 2>output
        expect_equal "code of $np rank(s)" $? 2
        expect_equal "ranks that went on" "$(compgen -G 'done.*' | wc -l)" "$np"
        expect_match message "$(<output)" 'tutti-run: standard output cannot be written: No space left on device; no more lines are written'
        expect_match "last message" "$(tail -1 output)" '^tutti-run: standard output is incomplete$'
        rm done.*
        "${run[@]}" -np "$np" bash -c 'echo a line; exit 5' >/dev/full 2>output
        expect_equal "another code of $np rank(s)" $? 5
        "${run[@]}" -np "$np" true >/dev/full 2>output
        expect_equal "code of $np rank(s) without lines" $? 0
        "${run[@]}" -np "$np" seq 20000 >lines 2>output
        expect_equal "code of $np rank(s) with a file" $? 0
        expect_equal "its lines, at the end" "$(wc -l <lines)" $((20000 * np))
    done
    no_mpirun
    "${run[@]}" -np 1 cat lines >/dev/full 2>output
    expect_equal "cat's own code" $? 1
}
test_killed_launcher_takes_the_reader_of_its_lines_along() {
    local launcher tries writers=''
    open_pipe
    "${run[@]}" -np 2 bash -c 'while :; do echo "a line that nobody reads"; done' >pipe 2>output &
    launcher=$!
    for ((tries = 0; tries < 500; tries++)); do
        writers=$(writers_of_pipe)
        [[ $writers && $writers != "$launcher" ]] && break
        sleep 0.02
    done
    sleep 1 # it is full by now
    kill -KILL "$launcher"
    for ((tries = 0; tries < 100; tries++)); do
        writers=$(writers_of_pipe)
        [[ $writers ]] || break
        sleep 0.02
    done
    [[ -z $writers ]] || writers=$(ps -o pid,stat,args -p "$(paste -sd, <<<"$writers")")
    kill "$sleeper"
    expect_equal "what holds the pipe" "$writers" ''
}

# show_words FILE: creates a program that prints its arguments.
show_words() {
    # shellcheck disable=SC2016
    printf '#!/usr/bin/env bash\nprintf "%%q " "${0##*/}" "$@"\n' >"$1"
    chmod +x "$1"
}
test_words_arrive_byte_for_byte() {
    local -a words=('' : x : :: '=' '=a' '' '&' '*' -mca btl none --mca btl none --gmca a b -am no-file -x Y --app z -np 9 -- - '%h'
        "\$HOME" \' \" \\ $'a\nb' $'\n' $'\377\1' 'é  è')
    local path wanted
    show_words ./show
    show_words ./-odd:name
    for path in ./show -odd:name; do
        wanted=$(printf '%q ' "${path#./}" "${words[@]}")
        PATH=$PATH:. "${run[@]}" -np 1 -- "$path" "${words[@]}" >words 2>output
        expect_equal "words of $path" "$(<words)" "$wanted"
        expect_equal "what mpirun said" "$(grep -cv '^tutti-run: ' output)" 0
    done
    "${run[@]}" -np 1 ./show x : touch pwned >words 2>output
    expect_equal words "$(<words)" "show x : touch pwned "
    [[ ! -e pwned ]] || fail "it ran what stands behind a colon"
    no_mpirun
    wanted=$(printf '%q ' show "${words[@]}")
    expect_equal "words without mpirun" "$("${run[@]}" -np 1 ./show "${words[@]}" 2>/dev/null)" "$wanted"
}

test_pipes_of_the_shell_reach_the_ranks() {
    # shellcheck disable=SC2016
    local np program='[[ $OMPI_COMM_WORLD_RANK == 0 ]] || exit 0; read -r line <"${1#--in=}" && echo "$line, again" >"${2#--out=}"'
    for np in 1 2; do
        "${run[@]}" -np "$np" bash -c "$program" bash "--in="<(echo "one line") --out=>(cat >got) 2>output
        expect_equal "code of $np rank(s)" $? 0
        sleep 0.2
        expect_equal "what came through with $np rank(s)" "$(<got)" "one line, again"
    done
}

test_a_fatal_signal_of_a_rank_is_137_and_named() {
    local name
    for name in ABRT SEGV TERM; do
        # shellcheck disable=SC2016
        expect_equal "code after SIG$name" "$(code_of "${run[@]}" -np 2 bash -c 'ulimit -c 0; [ "$OMPI_COMM_WORLD_RANK" = 0 ] && kill -"$0" $$; sleep 30' "$name")" 137
        expect_match message "$(<output)" "tutti-run: a rank was killed by SIG$name"
    done
}

# signal_after MS NAME [OUTPUT]: sends a signal, MS after tutti-run has begun to catch it; the exit code must be 75.
signal_after() {
    local key value=0 launcher
    env --default-signal=INT "${run[@]}" -np 2 "$ranks" wait "$PWD" >"${3:-output}" 2>&1 &
    launcher=$!
    until ((16#${value:-0} >> 14 & 1)) || [[ ! -e /proc/$launcher/status ]]; do
        while read -r key value; do [[ $key != SigCgt: ]] || break; done <"/proc/$launcher/status"
    done
    sleep "$(printf '0.%03d' "$1")"
    kill "-$2" "$launcher"
    wait "$launcher"
    expect_equal "code of SIG$2 after $1 ms" "$?" 75
}
test_a_signal_at_any_moment_is_75() {
    local ms name
    for name in TERM INT HUP USR1; do
        for ms in 0 1 2 3 4 5 7 9 12; do signal_after "$ms" "$name"; done
    done
    signal_after 20 TERM
    signal_after 35 INT
    signal_after 50 USR1
    signal_after 80 HUP
    open_pipe
    for ms in 0 2 4 7 10 15; do signal_after "$ms" USR1 pipe; done
    kill "$sleeper"
}
test_three_signals_end_ranks_that_ignore_them() {
    local tries
    start_stubborn 2
    for ((tries = 0; tries < 3; tries++)); do
        kill -TERM "$launcher"
        sleep 0.1
    done
    wait "$launcher"
    expect_equal code $? 75
    ranks_end_within 500 "three signals"
}
# launcher_ends CODE: it ends with that soon, and mpirun is gone.
launcher_ends() {
    local tries
    for ((tries = 0; tries < 250; tries++)); do
        kill -0 "$launcher" 2>/dev/null || break
        sleep 0.02
    done
    ((tries < 250)) || { kill -KILL "$launcher" "$leader"; fail "it did not end"; }
    wait "$launcher"
    expect_equal code $? "$1"
    [[ $(ps_field 3 "$leader") == [ZX] || ! -e /proc/$leader ]] || fail "mpirun is there, in state $(ps_field 3 "$leader")"
}
# signal_until_it_ends N: SIGTERM to the launcher, N times; it ends with 75 after the last.
signal_until_it_ends() {
    local tries
    for ((tries = 1; tries <= $1; tries++)); do
        kill -0 "$launcher" 2>/dev/null || fail "it ended before signal $tries"
        kill -TERM "$launcher"
        sleep 0.3
    done
    launcher_ends 75
}
test_a_signal_continues_a_stopped_mpirun() {
    start_stubborn 2
    kill -STOP "$leader"
    # shellcheck disable=SC2086
    kill -KILL $ranks_up
    kill -TERM "$launcher"
    launcher_ends 137
    mpirun_leaves_nothing
}
test_four_signals_end_an_mpirun_that_hangs() {
    mkdir fake && mkfifo fake/silent # no sleep: a child of mpirun would count as a rank
    # shellcheck disable=SC2016
    printf '#!/usr/bin/env bash\ntrap "" TERM INT HUP USR1 USR2\n"${@:6}" &\nwait\nwhile :; do read -rt 60 <>%q; done\n' "$PWD/fake/silent" >fake/mpirun
    chmod +x fake/mpirun
    local PATH=$PWD/fake:$PATH launcher leader stop
    for stop in CONT STOP; do
        # shellcheck disable=SC2016
        "${run[@]}" -np 1 bash -c 'echo $PPID >up.part && mv up.part up' >output 2>&1 &
        launcher=$!
        until [[ -e up ]]; do sleep 0.02; done
        leader=$(<up)
        rm up
        kill "-$stop" "$leader"
        signal_until_it_ends 4
    done
    start_stubborn 1
    signal_until_it_ends 4
    ranks_end_within 500 "four signals"
}
# A program's time to load begins with its own start, not with that of a slow mpirun.
test_a_signal_waits_for_a_slow_mpirun() {
    mkdir fake && mkfifo fake/silent # no sleep: a child of mpirun would count as a rank
    printf '#!/usr/bin/env bash\nread -rt 6 <>%q\nexec %q "$@"\n' "$PWD/fake/silent" "$(type -P mpirun)" >fake/mpirun
    chmod +x fake/mpirun
    # shellcheck disable=SC2016
    PATH=$PWD/fake:$PATH "${run[@]}" -np 1 bash -c 'sleep 0.5; trap "exit 75" USR1; while :; do sleep 0.05; done' >output 2>&1 &
    local launcher=$!
    sleep 0.5
    kill -TERM "$launcher"
    wait "$launcher"
    expect_equal code $? 75
    [[ $(<output) != *"signal 10"* ]] || fail "the program was killed: $(<output)"
}
# Until a child of mpirun becomes its program, it has mpirun's handlers: a signal sent to it then is lost.
test_a_signal_waits_until_ranks_are_no_copies_of_mpirun() {
    mkdir fake && mkfifo fake/silent
    # the words before the program are mpirun's: -np 1 --oversubscribe --bind-to none
    # shellcheck disable=SC2016
    printf '#!/usr/bin/env bash\n(trap : USR1; read -rt 2 <>%q; exec "${@:6}") & wait $!\n' "$PWD/fake/silent" >fake/mpirun
    chmod +x fake/mpirun
    PATH=$PWD/fake:$PATH "${run[@]}" -np 1 "$ranks" wait "$PWD" >output 2>&1 &
    local launcher=$!
    sleep 0.5
    kill -TERM "$launcher"
    wait "$launcher"
    expect_equal code $? 75
}

# As Open MPI's may at its end, where a rank was killed.
test_a_broken_pipe_of_mpirun_is_not_a_killed_rank() {
    mkdir fake
    # shellcheck disable=SC2016
    printf '#!/usr/bin/env bash\n(trap - PIPE; exec "${@:6}"); code=$?; kill -PIPE $$; exit $code\n' >fake/mpirun
    chmod +x fake/mpirun
    expect_equal code "$(PATH=$PWD/fake:$PATH code_of "${run[@]}" -np 1 bash -c 'exit 2')" 2
    # shellcheck disable=SC2016
    expect_equal "what ranks ignore" "$("${run[@]}" -np 1 bash -c 'grep SigIgn: "/proc/$$/status"' 2>output)" $'SigIgn:\t0000000000000000'
}

test_closed_descriptors_are_nobodys_file() {
    # shellcheck disable=SC2016
    printf '%s\n' '#!/bin/sh' 'seen=$(readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2)' 'echo "$seen" >seen' >links && chmod +x links
    no_mpirun
    "${run[@]}" -np 1 ./links <&- >&- 2>&-
    expect_equal code $? 0
    expect_equal descriptors "$(<seen)" $'/dev/null\n/dev/null\n/dev/null'
}

test_says_how_to_fix_a_slow_name() {
    mkdir fake
    printf '#!/bin/sh\nexec sleep 5\n' >fake/getent && chmod +x fake/getent
    local began
    began=$(date +%s%N)
    expect_equal code "$(PATH=$PWD/fake:$PATH code_of "${run[@]}" -np 1 true)" 0
    (($(date +%s%N) - began < 4000000000)) || fail "it waited for the name"
    expect_match message "$(<output)" "names localhost and $(uname -n) take more than a second .*As root, run:"$'\n'"echo '127.0.0.1 localhost $(uname -n)' >>/etc/hosts"
    printf '#!/bin/sh\nexit 2\n' >fake/getent
    expect_equal code "$(PATH=$PWD/fake:$PATH code_of "${run[@]}" -np 1 true)" 0
    [[ $(<output) != *hosts* ]] || fail "it complains of a name that is quickly unknown"
}

test_runs_one_rank_without_mpirun() {
    printf '#!/bin/sh\nexit 5\n' >program && chmod +x program
    no_mpirun
    expect_equal code "$(code_of "${run[@]}" -np 1 ./program)" 5
    expect_equal "code of two ranks" "$(code_of "${run[@]}" -np 2 ./program)" 2
    expect_match message "$(<output)" 'need mpirun'
}

test_dry_run_prints_and_runs_nothing() {
    expect_equal code "$(code_of "${run[@]}" --dry-run -np 2 touch 'a file')" 0
    expect_match command "$(<output)" 'mpirun -np 2 .*/touch a\\ file'
    [[ ! -e 'a file' ]] || fail "it ran"
}
test_prints_the_command() {
    expect_equal code "$(code_of "${run[@]}" -np 1 "$ranks" exit 0 0)" 0
    expect_match command "$(<output)" 'tutti-run: .*mpirun -np 1 .* exit 0 0'
}

test_keeps_the_callers_threads() {
    OMP_NUM_THREADS=5 "${run[@]}" -np 2 "$ranks" threads >output 2>/dev/null
    expect_equal threads "$(sort -u output)" "threads 5"
}
test_gives_each_rank_its_share_of_the_cores() {
    local cores
    cores=$(source "${run[0]}" && cores)
    "${run[@]}" -np 1 "$ranks" threads >output 2>/dev/null
    expect_equal "threads of one rank" "$(<output)" "threads $cores"
    "${run[@]}" -np $((cores + 1)) "$ranks" threads >output 2>/dev/null
    expect_equal "threads of too many ranks" "$(sort -u output)" "threads 1"
}

test_finds_programs_in_the_build_folder_that_is_named() {
    mkdir -p here/bin
    printf '#!/bin/sh\nexit 6\n' >here/bin/program && chmod +x here/bin/program
    expect_equal code "$(TUTTI_BUILD_DIR=here code_of "${run[@]}" program)" 6
    expect_equal "code elsewhere" "$(TUTTI_BUILD_DIR=there code_of "${run[@]}" program)" 64
    expect_equal "code for a program on PATH only" "$(TUTTI_BUILD_DIR=here code_of "${run[@]}" true)" 64
}
test_finds_programs_in_build_or_beside_itself() {
    mkdir -p tree/launch tree/build/bin prefix/bin
    cp "${run[0]}" tree/launch/ && cp "${run[0]}" prefix/bin/ && touch tree/CMakePresets.json
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
        expect_equal "code of tutti-run $wrong" "$(code_of "${run[@]}" $wrong)" 64
        expect_match message "$(<output)" '^tutti-run: .+'
    done
}

test_gives_one_rank_a_gpu() {
    fake_gpus 2
    expect_equal code "$(code_of "${run[@]}" --dry-run -np 2 "$ranks" --backend cuda)" 0
    expect_equal "code of three ranks" "$(code_of "${run[@]}" --dry-run -np 3 "$ranks" --backend cuda)" 64
    expect_match message "$(<output)" '3 ranks, but 2 GPU'
    expect_equal "code of three that share" \
        "$(OMP_NUM_THREADS=1 code_of "${run[@]}" --dry-run -np 2 "$ranks" --backend=cuda --transport=mpi)" 0
    expect_equal "code of three on the host" "$(code_of "${run[@]}" --dry-run -np 3 "$ranks" --backend host)" 0
    expect_equal "code with one visible" \
        "$(CUDA_VISIBLE_DEVICES=1 code_of "${run[@]}" --dry-run -np 2 "$ranks" --backend cuda)" 64
}
test_takes_as_many_ranks_as_gpus_unless_told() {
    fake_gpus 2
    cp "$ranks" tutti-program
    code_of "${run[@]}" --dry-run ./tutti-program >/dev/null
    expect_match command "$(<output)" 'mpirun -np 2 '
    code_of "${run[@]}" --dry-run ./tutti-program --backend host >/dev/null
    expect_match command "$(<output)" 'mpirun -np 1 '
}
test_oversubscribes_on_the_host_backend_only() {
    local many=4096
    fake_gpus "$many"
    expect_equal code "$(code_of "${run[@]}" --dry-run -np "$many" "$ranks" --backend cuda)" 64
    expect_match message "$(<output)" 'more ranks than cores'
    expect_equal code "$(code_of "${run[@]}" --dry-run -np "$many" "$ranks" --backend host)" 0
}

test_decides_on_the_progress_bar() {
    cp "$ranks" tutti-train
    code_of "${run[@]}" --dry-run -np 1 ./tutti-train --epochs 1 >/dev/null
    expect_match command "$(<output)" 'tutti-train --progress=plain --epochs 1'
    code_of "${run[@]}" --dry-run -np 1 ./tutti-train --progress none >/dev/null
    expect_match command "$(<output)" 'tutti-train --progress none$'
    code_of "${run[@]}" --dry-run -np 1 "$ranks" >/dev/null
    [[ $(<output) != *progress* ]] || fail "it told another program about progress"
}

test_lets_root_run_in_containers_only() {
    # shellcheck source=launch/tutti-run
    source "${run[0]}"
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
