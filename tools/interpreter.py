"""Finds a Python that has NumPy and h5py: this one, $PYTHON, python3 or Debian's /usr/bin/python3."""

import importlib.util
import os
import shutil
import subprocess

MODULES = ("numpy", "h5py")
_TRIED = "TUTTI_INTERPRETER_TRIED"  # prevents a loop


def ensure(argv):
    """Returns None if this interpreter has the modules, otherwise becomes one that has, or returns why there is none."""
    if all(importlib.util.find_spec(module) for module in MODULES):
        return None
    if _TRIED not in os.environ:
        for candidate in (os.environ.get("PYTHON"), "python3", "/usr/bin/python3"):
            path = candidate and shutil.which(candidate)
            probe = [path, "-c", "import " + ", ".join(MODULES)]
            if path and subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 0:
                os.environ[_TRIED] = "1"
                os.execv(path, [path, *argv])
    return (
        "no Python with NumPy and h5py here ($PYTHON, python3, /usr/bin/python3); "
        "Debian's packages are python3-numpy and python3-h5py"
    )
