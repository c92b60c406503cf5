"""The short way of calls: from Python straight to a kernel, of a CPU or a GPU, and back through autograd, in C++.

It is compiled when the first kernel is loaded, which takes half a minute, and kept in the cache folder: see ``compile``
and ``once``. Where it cannot be kept, it serves this process, and a warning says so. Without a C++ compiler, or with
``DWCONV_NATIVE=0``, calls take the way through Python: the same results, some microseconds later.
"""

from __future__ import annotations

import logging
import threading
import warnings
from typing import Any

from dwconv.errors import BuildError, DwconvWarning
from dwconv.native.compile import LIMIT_S, load_compiled

_log = logging.getLogger(__name__)


def _no_result(*arguments: Any) -> None:
    return None


def _no_effect(*arguments: Any) -> None:
    return None


convolve: Any = _no_result
"""``convolve(input, weight, bias, stride, padding, dilation, groups, axes)``: y, or None if it was not learnt, or if
anybody looks at the call besides eager autograd."""
learn: Any = _no_effect
"""``learn(call, argument of convolve…)``: from now on, these arguments are run as a ``Call`` says."""
forget: Any = _no_effect
"""Forget all calls."""
run: Any = _no_result
"""``run(kernel, input…)``: what the kernel gives, or None if the inputs do not lie as it reads them."""

_lock = threading.Lock()
_tried = False
_NOT_TRIED = "no kernel was loaded yet"
why_not = _NOT_TRIED
"""Why calls take the way through Python; empty if they do not."""


def native(*, may_compile: bool = True, limit_s: float = LIMIT_S) -> Any | None:
    """The compiled module, or None; then ``why_not`` says why. The first call may take half a minute to compile it, or
    ``limit_s`` on a busy machine, and warns if the next process has to do so again."""
    with _lock:
        not_kept = "" if _tried else _load(may_compile=may_compile, limit_s=limit_s)
    if not_kept:
        warnings.warn(
            f"the short way of calls was compiled for this process alone, and every other takes half a minute for it, "
            f"too: {not_kept}, or do without it: DWCONV_NATIVE=0",
            DwconvWarning,
            stacklevel=2,
        )
    return _module


def leave_out(reason: str) -> None:
    """From now on calls take the way through Python in this process."""
    global _tried, why_not
    with _lock:
        if _module is None:
            _tried, why_not = True, reason


def _load(*, may_compile: bool, limit_s: float) -> str:
    """Why it was not kept; usually empty."""
    global _tried, why_not, convolve, learn, forget, run, _module
    why_not = "compiling it was interrupted"
    try:
        loaded = load_compiled(may_compile=may_compile, limit_s=limit_s)
    except (BuildError, ImportError, OSError) as error:
        _tried, why_not = True, str(error)
        _log.info("calls take the way through Python: %s", why_not)
        return ""
    if loaded is None:
        why_not = _NOT_TRIED
        return ""
    _tried, why_not, _module = True, "", loaded.module
    convolve, learn, forget, run = _module.convolve, _module.learn, _module.forget, _module.run
    return loaded.not_kept


_module: Any | None = None
