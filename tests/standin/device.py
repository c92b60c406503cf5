"""The two libraries of the stand-in, for Python to call."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

FOLDER_VARIABLE = "STAND_IN_FOLDER"
"""The environment variable that names the folder of the libraries."""
TOTAL_BYTES = 64 << 30
STREAM_CAPTURE_IMPLICIT = 906
"""CUDA's error code for a call that is not allowed while a graph is captured."""


class Launch(ctypes.Structure):
    """A launch, as the driver received it."""

    _fields_ = (
        ("image", ctypes.c_void_p),
        ("image_bytes", ctypes.c_uint64),
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("shared_allowed", ctypes.c_uint32),
        ("stream", ctypes.c_uint64),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
    )


Compute = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Launch))


@cache
def driver() -> ctypes.CDLL:
    """libcuda.so.1, the one that everything in this process finds by that name."""
    return ctypes.CDLL("libcuda.so.1")


@cache
def device() -> ctypes.CDLL:
    """PyTorch's device "cuda". Load it before PyTorch looks for a device."""
    library = ctypes.CDLL(str(Path(os.environ[FOLDER_VARIABLE], "device.so")))
    for name, result, *arguments in (
        ("open", None, ctypes.c_void_p, ctypes.c_uint64),
        ("clock_ns", ctypes.c_double),
        ("spend", None, ctypes.c_double),
        ("note", None, ctypes.c_char_p, ctypes.c_double),
        ("free_bytes", ctypes.c_uint64),
        ("peak_bytes", ctypes.c_uint64),
        ("reset_peak", None),
        ("bytes_from", ctypes.c_uint64, ctypes.c_uint64),
        ("refuse_memory", None),
        ("stream", ctypes.c_int64),
        ("set_stream", None, ctypes.c_int64),
        ("rest", None, ctypes.c_int),
        ("computed_at_rest", ctypes.c_char_p),
        ("begin_capture", None),
        ("capturing", ctypes.c_int),
        ("captured_steps", ctypes.c_uint64),
        ("spoil_capture", None),
        ("end_capture", ctypes.c_void_p),
        ("lost", ctypes.c_int, ctypes.c_void_p),
        ("graph_ns", ctypes.c_double, ctypes.c_void_p),
        ("replay", None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64),
        ("forget", None, ctypes.c_void_p),
    ):
        call = getattr(library, f"standin_{name}")
        call.restype, call.argtypes = result, arguments
    status = ctypes.cast(driver().standin_status, ctypes.c_void_p)
    library.standin_open(status, TOTAL_BYTES)
    of_captures = (library.standin_capturing, library.standin_spoil_capture)
    driver().standin_captures_with(*(ctypes.cast(each, ctypes.c_void_p) for each in of_captures))
    return library


def is_captured() -> bool:
    """True if this thread's current stream is being captured."""
    return bool(device().standin_capturing() == 2)
