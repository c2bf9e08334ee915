#!/usr/bin/env bash
# Installs what is missing, builds, and trains a classifier of Fashion-MNIST's images, with one rank on each GPU it finds,
# otherwise with two ranks on the CPU.
# usage: launch/demo.sh [ARGS of tutti-train …]
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$here/setup.sh" --demo
"$here/build.sh"
ranks=$(gpu_count)
# a driver alone is not enough: the build must have found CUDA too
if ((ranks > 0)) && ! grep -qx 'CMAKE_CUDA_COMPILER:.*=.*nvcc' "$top/build/CMakeCache.txt"; then
    ranks=0
    set -- --backend host "$@"
fi
((ranks > 0)) && [[ $(option backend "$@") != host ]] || ranks=2
# Run the build just made, whatever the caller's environment names.
TUTTI_BUILD_DIR=$top/build exec "$here/tutti-run" -np "$ranks" tutti-train --task fashion "$@"
