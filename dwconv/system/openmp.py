"""OpenMP: the runtime that PyTorch has loaded, on whose threads kernels and lanes run, too."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path


@cache
def openmp_is_here() -> bool:
    """True if PyTorch brought an OpenMP runtime with GNU's entry points, as it does on Linux. Its wheel for Arm keeps
    the runtime to its own libraries: after this call all of the process sees it."""
    process = ctypes.CDLL(None)
    if not hasattr(process, _OPENMP[0]) and (path := _openmp_of_pytorch()):
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW | os.RTLD_GLOBAL)
    return all(hasattr(process, name) for name in _OPENMP)


_OPENMP = ("GOMP_parallel", "omp_get_max_threads", "omp_in_parallel")


class _Place(ctypes.Structure):
    """The result of ``dladdr`` for an address."""

    _fields_ = [
        ("path", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("start", ctypes.c_void_p),
    ]  # fmt: skip


def _openmp_of_pytorch() -> str | None:
    """The path of the runtime that PyTorch has loaded, which others may have brought, too; None if there is none."""
    import torch

    if not hasattr(os, "RTLD_NOLOAD"):
        return None
    try:
        library = ctypes.CDLL(
            str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"), mode=os.RTLD_NOLOAD | os.RTLD_NOW
        )
        place = _Place()
        known = ctypes.CDLL(None).dladdr(ctypes.cast(library[_OPENMP[0]], ctypes.c_void_p), ctypes.byref(place))
    except (OSError, AttributeError):
        return None
    return os.fsdecode(place.path) if known and place.path else None
