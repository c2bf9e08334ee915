"""Finds a Python that has NumPy, h5py and what else is asked for: this one, $PYTHON, python3 or Debian's /usr/bin/python3."""

import importlib.util
import os
import shutil
import subprocess

MODULES = ["numpy", "h5py"]  # a script may add to these before it calls ensure
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
        f"no Python with {', '.join(MODULES)} here ($PYTHON, python3, /usr/bin/python3); "
        f"Debian's packages are {', '.join('python3-' + module for module in MODULES)}"
    )
