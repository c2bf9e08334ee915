#!/usr/bin/env bash
# The main job: sets this machine up, builds, and trains a classifier of Fashion-MNIST's images, with one rank on
# each GPU it finds, otherwise with two ranks on the CPU.
# usage: launch/demo.sh [ARGS of tutti-train …]
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$here/build.sh"
ranks=$(gpu_count)
((ranks > 0)) && [[ $(option backend "$@") != host ]] || ranks=2
# The build that was just made, whatever else the caller's environment names.
TUTTI_BUILD_DIR=$top/build exec "$here/tutti-run" -np "$ranks" tutti-train --task fashion "$@"
