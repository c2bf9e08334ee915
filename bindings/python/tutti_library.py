"""The library: its functions and structs as the build preprocessed its headers, and its errors."""

import os

import tutti_build

try:
    import cffi
except ImportError:
    raise ImportError("tutti needs cffi, which is not installed: Debian's package python3-cffi, "
                      "or pip install cffi", name="cffi") from None

ffi = cffi.FFI()
ffi.cdef(tutti_build.DECLARATIONS)
lib = ffi.dlopen(os.environ.get("TUTTI_LIBRARY") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), tutti_build.LIBRARY))


def text(chars):
    return ffi.string(chars).decode() if chars else None


__version__ = text(lib.tutti_version())
if __version__ != tutti_build.VERSION:
    raise ImportError(f"libtutti is {__version__}, this module is of {tutti_build.VERSION}")

_STATUSES = ffi.typeof("tutti_status").elements
_CODES = sorted(ffi.typeof("tutti_dtype").elements)
NAMES = {code: text(lib.tutti_dtype_name(code)) for code in _CODES}
DTYPES = {name: code for code, name in NAMES.items()}


class Error(RuntimeError):
    """What the library or this module refused.  status: its name there, such as TUTTI_ERR_ARG."""

    __module__ = "tutti"

    def __init__(self, message, status="TUTTI_ERR_ARG"):
        super().__init__(message)
        self.status = status


class Uncopied:
    """What stands for memory of the library's: two copies would free it twice."""

    __slots__ = ()

    def __reduce_ex__(self, protocol):
        raise Error(f"a tutti.{type(self).__name__} cannot be copied or pickled, want a new one")


def check(status):
    if status:
        raise Error(text(lib.tutti_last_error()), _STATUSES[status])
