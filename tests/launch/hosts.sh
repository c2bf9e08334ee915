#!/usr/bin/env bash
# Tests of a run on several hosts: network namespaces of this machine, each with a name of its own, joined by a cable of two
# virtual interfaces.  Ranks have no other way to each other: no shared memory.  usage: hosts.sh BUILD-FOLDER
# shellcheck source=tests/launch/check.sh disable=SC2317
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"
build=$(readlink -f "$1")
train=$build/bin/tutti-train
deadline=4 # seconds

on_host() {
    local host=$1
    shift
    ip netns exec "$space-$host" "$@"
}
hosts_down() {
    local host pid
    for host in a b; do
        for pid in $(ip netns pids "$space-$host" 2>/dev/null); do kill -KILL "$pid"; done
        ip netns del "$space-$host" 2>/dev/null
    done
}
# Hosts a and b, and ./agent, mpirun's way to start a daemon on one of them.
hosts_up() {
    local tool host number=1 why
    ((EUID == 0)) || skip "only root may make network namespaces"
    for tool in ip tc; do type -P "$tool" >/dev/null || skip "$tool (iproute2) is not installed"; done
    space=tutti-$BASHPID
    trap hosts_down EXIT
    for host in a b; do
        why=$(ip netns add "$space-$host" 2>&1) || skip "no network namespaces here: $why"
    done
    why=$(ip link add cable netns "$space-a" type veth peer name cable netns "$space-b" 2>&1) ||
        skip "no virtual interfaces here: $why"
    for host in a b; do
        ip -n "$space-$host" addr add "10.213.0.$number/24" dev cable
        ip -n "$space-$host" link set lo up
        ip -n "$space-$host" link set cable up
        # mpirun itself waits until TCP gives its daemon up: after a second or two, not a quarter of an hour
        on_host "$host" sh -c 'echo 3 >/proc/sys/net/ipv4/tcp_retries2'
        number=$((number + 1))
    done
    cat >agent <<'AGENT'
#!/bin/sh
space=$1 host=$2
shift 2
exec ip netns exec "$space-$host" unshare --uts sh -c 'hostname "$1" && exec sh -c "$2"' sh "$host" "$*"
AGENT
    chmod +x agent
    head -c 30000 /usr/share/common-licenses/GPL-3 >text
    options=(--task bytes text --epochs 2 --reproducible 4 --backend host --timeout "$deadline")
}
# across RANKS ARGS …: tutti-train with ranks in turn on a and b
across() {
    local ranks=$1
    shift
    on_host a unshare --uts sh -c 'hostname a && exec "$@"' sh \
        mpirun -np "$ranks" --map-by node --host "a:$ranks,b:$ranks" --mca plm rsh --mca plm_rsh_agent "$PWD/agent $space" \
        --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include cable --mca oob_tcp_if_include cable \
        "$train" "${options[@]}" "$@"
}
# The file of one rank that nothing disturbs.
train_alone() {
    "$train" "${options[@]}" --transport self --checkpoint alone.h5 >alone.log 2>&1 || fail "alone: $(<alone.log)"
}
expect_same_bytes() {
    cmp "$1" alone.h5 || fail "$1 is not what one rank alone writes"
}
sent_by() {
    on_host "$1" cat /sys/class/net/cable/statistics/tx_bytes
}

test_the_same_bytes_over_a_network() {
    local host least
    hosts_up
    train_alone
    across 4 --checkpoint four.h5 >output 2>&1 || fail "it ended with $?: $(<output)"
    expect_same_bytes four.h5
    # each host sends every gradient at least once a step
    least=$(awk '/^  parameters/ { count = $2 } /^done/ { steps = $3 } END { print 4 * count * steps }' output)
    ((least > 0)) || fail "no parameters or steps in $(<output)"
    for host in a b; do
        (($(sent_by "$host") > least)) || fail "$host sent $(sent_by "$host") bytes, want more than $least"
    done
}

test_a_cable_is_cut() {
    local job code began
    hosts_up
    train_alone
    across 4 --checkpoint cut.h5 --save-every 10 >output 2>&1 &
    job=$!
    until [[ -e cut.h5 ]]; do
        kill -0 "$job" 2>/dev/null || fail "the run ended before it saved: $(<output)"
        sleep 0.02
    done
    ip -n "$space-b" link set cable down
    began=$SECONDS
    until grep -q 'nothing heard from' output; do
        ((SECONDS - began <= deadline + 4)) || fail "nobody is named $deadline s after the cut: $(<output)"
        sleep 0.1
    done
    wait "$job"
    code=$?
    expect_equal code "$code" 2
    # those of a name those of b, and nobody else
    grep 'nothing heard from' output | grep -vE '^tutti-train: rank [02]: .*nothing heard from (rank [13]|ranks 1, 3)$' >other &&
        fail "wrongly named: $(<other)"
    began=$SECONDS
    while [[ $(ip netns pids "$space-a") || $(ip netns pids "$space-b") ]]; do
        ((SECONDS - began <= 10)) || fail "left behind: $(pgrep -af 'tutti-train|orted')"
        sleep 0.1
    done
    ip -n "$space-b" link set cable up
    across 2 --checkpoint cut.h5 --resume >resumed 2>&1 || fail "resumed, it ended with $?: $(<resumed)"
    expect_match resumed "$(<resumed)" 'done \|'
    expect_same_bytes cut.h5
}

# A queue that is too short for its rate: what does not fit is dropped.
test_packets_are_lost() {
    local host why dropped
    hosts_up
    for host in a b; do
        why=$(tc -n "$space-$host" qdisc add dev cable root tbf rate 200mbit burst 20kb limit 30kb 2>&1) ||
            skip "no token bucket here: $why"
    done
    train_alone
    across 2 --checkpoint lossy.h5 >output 2>&1 || fail "it ended with $?: $(<output)"
    expect_same_bytes lossy.h5
    for host in a b; do
        dropped=$(tc -s -n "$space-$host" qdisc show dev cable | sed -n 's/.*dropped \([0-9]*\).*/\1/p')
        ((dropped > 0)) || fail "$host dropped no packet"
    done
}

run_tests
