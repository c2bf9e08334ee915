#!/usr/bin/env bash
# on_gpus.sh N COMMAND …: runs COMMAND where it sees N GPUs, from the one on that CTest gives the entry room, of those that
# launch/test.sh counted; otherwise all.  Entries of one process so run on all GPUs, and a process that sees eight
# takes many times longer to start, while the driver lets others wait.
set -euo pipefail
seen=$1
shift
IFS=, read -ra gpus <<<"${TUTTI_TEST_GPUS-}"
if [[ ${CTEST_RESOURCE_GROUP_0_GPU_PROCESSES-} =~ ^id:([0-9]+), ]] && ((seen < ${#gpus[@]})); then
    first=${BASH_REMATCH[1]} visible=''
    for ((i = 0; i < seen; i++)); do
        visible+=,${gpus[(first + i) % ${#gpus[@]}]}
    done
    export CUDA_VISIBLE_DEVICES=${visible#,}
fi
exec "$@"
