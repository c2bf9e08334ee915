#!/usr/bin/env bash
# Installs the Debian packages that the build, the tests and the demo need and this machine lacks.
# Looks for programs and files, not packages, so any installation counts; uses no network if all are there.
# Warns if host names are slow to look up, which makes mpirun start slowly, and prints the remedy.
# usage: launch/setup.sh [--build | --demo | --lint]
#   --build   only what the build needs       --demo   that, and what the demo needs
#   --lint    also what .ci/run checks the sources with, and what tests are skipped without: doxygen, h5dump, xxhash
#             for Python, gnuplot, ip and Debian's packaging tools
set -euo pipefail

missing=() packages=() python=''
# need PACKAGE "what it is" COMMAND …: notes the package unless the command succeeds.
need() {
    local package=$1 what=$2
    shift 2
    "$@" >/dev/null 2>&1 && return
    missing+=("$what")
    packages+=("$package")
}

program() { type -P "$1"; }
system_program() { PATH=$PATH:/usr/sbin:/sbin type -P "$1"; }
header() { type -P gcc && echo "#include <$1>" | gcc -E -x c -o /dev/null -; }
library() { # gcc prints the bare name if it finds nothing
    type -P gcc && [[ $(gcc -print-file-name="lib$1.so") == /* ]]
}
all_of() { # all_of CHECK NAME [CHECK NAME …]
    while (($#)); do
        "$1" "$2" || return
        shift 2
    done
}
recent_cmake() {
    local version
    version=$(cmake --version | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
    printf '3.24\n%s\n' "$version" | sort -VC
}
# Debian installs HDF5 outside of the compiler's search path; h5cc and pkg-config know where.
hdf5() {
    program h5cc || program h5pcc || pkg-config --exists hdf5 || pkg-config --exists hdf5-serial ||
        all_of header hdf5.h library hdf5
}
has_modules() { # has_modules PYTHON NAME …
    "$1" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' "${@:2}"
}
# One Python must have all modules, as tools/interpreter.py chooses it: another python3 may precede Debian's on PATH.
python_module() {
    [[ $python ]] || python=$(has_modules python3 numpy h5py cffi && echo python3 || echo /usr/bin/python3)
    has_modules "$python" "$1"
}
fashion_mnist() {
    local part
    for part in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
        [[ -r /usr/share/datasets/fashion-mnist/$part-ubyte.gz ]] || return
    done
}

look() {
    missing=() packages=()
    need gcc "gcc" program gcc
    need g++ "g++" program g++
    need libc6-dev "the C library's headers" header stdlib.h
    need cmake "cmake 3.24 or newer" recent_cmake
    need ninja-build "ninja" program ninja
    need libopenmpi-dev "mpicc" program mpicc
    need libopenblas-dev "OpenBLAS (cblas.h, libopenblas.so)" all_of header cblas.h library openblas
    need zlib1g-dev "zlib (zlib.h, libz.so)" all_of header zlib.h library z
    need libhdf5-dev "HDF5 (hdf5.h, libhdf5.so)" hdf5
    need libxxhash-dev "xxhash (xxhash.h, libxxhash.so)" all_of header xxhash.h library xxhash
    need libcunit1-dev "CUnit (CUnit/Basic.h, libcunit.so)" all_of header CUnit/Basic.h library cunit
    need python3 "python3" program python3
    [[ $purpose != build ]] || return 0
    need openmpi-bin "mpirun" program mpirun
    need dataset-fashion-mnist "Fashion-MNIST (share/datasets/fashion-mnist)" fashion_mnist
    [[ $purpose != demo ]] || return 0
    need pkg-config "pkg-config" program pkg-config
    need binutils "nm" program nm
    need python3-numpy "NumPy for python3" python_module numpy
    need python3-h5py "h5py for python3" python_module h5py
    need python3-cffi "cffi for python3" python_module cffi
    [[ $purpose == lint ]] || return 0
    need shellcheck "shellcheck" program shellcheck
    need clang-format "clang-format" program clang-format
    need doxygen "doxygen" program doxygen
    need dpkg-dev "dpkg-shlibdeps" program dpkg-shlibdeps
    need file "file" program file
    need lintian "lintian" program lintian
    need help2man "help2man" program help2man
    need hdf5-tools "h5dump" program h5dump
    need python3-xxhash "xxhash for python3" python_module xxhash
    need gnuplot-nox "gnuplot" program gnuplot
    need iproute2 "ip" system_program ip
}

purpose='test'
case ${1-} in
    '') ;;
    --build | --demo | --lint) purpose=${1#--} ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 64 ;;
esac

# shellcheck source=launch/tutti-run
source "$(dirname "${BASH_SOURCE[0]}")/tutti-run"
[[ $purpose == build ]] || warn_of_slow_names setup.sh

look
if ((${#packages[@]} == 0)); then
    exit 0
fi
echo "setup.sh: missing: $(printf '%s; ' "${missing[@]}" | sed 's/; $//')"

install="apt-get update && apt-get install -y --no-install-recommends ${packages[*]}"
if ! type -P apt-get >/dev/null; then
    echo "setup.sh: this is not Debian; install the equivalents of ${packages[*]}" >&2
    exit 2
fi
if [[ $(id -u) -eq 0 ]]; then
    as_root=()
elif type -P sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    as_root=(sudo)
else
    echo "setup.sh: not root, and sudo needs a password or is missing.  As root, run:" >&2
    echo "$install" >&2
    exit 2
fi
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c "$install"; then
    echo "setup.sh: Debian's packages could not be installed (see above).  As root, run:" >&2
    echo "$install" >&2
    exit 2
fi

look
if ((${#missing[@]} > 0)); then
    echo "setup.sh: still missing after the installation: $(printf '%s; ' "${missing[@]}" | sed 's/; $//')" >&2
    exit 2
fi
