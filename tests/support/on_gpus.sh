#!/usr/bin/env bash
# on_gpus.sh N COMMAND …: runs COMMAND where it sees N GPUs, from the one on that CTest gives the entry room, of those that
# launch/test.sh counted; otherwise all.  Entries of one process so run on all GPUs, and a process that sees eight
# takes many times longer to start, while the driver lets others wait.
set -euo pipefail
seen=$1
shift
# Where there is no driver and no device (of a card, of Tegra, of WSL) no start under mpirun is needed to find that.
if [[ ${TUTTI_TEST_REQUIRE_GPU-} != 1 ]] && ! compgen -G '/dev/nvidia*' >/dev/null && ! compgen -G '/dev/nvhost*' >/dev/null && [[ ! -e /dev/nvmap && ! -e /dev/dxg && ! -e /proc/driver/nvidia/version ]]; then
    printf 'skipped: no CUDA device\ntests: 0 passed, 0 failed, 1 skipped\n'
    exit 77
fi
IFS=, read -ra gpus <<<"${TUTTI_TEST_GPUS-}"
if [[ ${CTEST_RESOURCE_GROUP_0_GPU_PROCESSES-} =~ ^id:([0-9]+), ]] && ((seen < ${#gpus[@]})); then
    first=${BASH_REMATCH[1]} visible=''
    for ((i = 0; i < seen; i++)); do
        visible+=,${gpus[(first + i) % ${#gpus[@]}]}
    done
    export CUDA_VISIBLE_DEVICES=${visible#,}
fi
exec "$@"
