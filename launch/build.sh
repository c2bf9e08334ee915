#!/usr/bin/env bash
# Installs what is missing and builds build/ with everything that the machine has, or the named presets
# (cmake --list-presets), each in build-PRESET/.
# usage: launch/build.sh [PRESET …]
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for preset in "$@"; do
    grep -q "\"name\": \"$preset\"" "$top/CMakePresets.json" ||
        die "no preset '$preset' in CMakePresets.json (usage: launch/build.sh [PRESET …])" 64
done

"$here/setup.sh" --build
for preset in "${@:-default}"; do
    build_preset "$preset" || die "the build of preset '$preset' failed"
done
