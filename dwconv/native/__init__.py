"""The short way of calls: from Python straight to a CPU kernel, and back through autograd, in C++.

It is compiled when the first kernel is loaded, which takes half a minute, and kept in the cache folder. Without a C++
compiler, or with ``DWCONV_NATIVE=0``, calls take the way through Python: the same results, some microseconds later.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from dwconv.errors import BuildError
from dwconv.native.compile import is_compiled, load_compiled

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
why_not = "no kernel was loaded yet"
"""Why calls take the way through Python; empty if they do not."""


def native(*, may_compile: bool = True) -> Any | None:
    """The compiled module, or None; then ``why_not`` says why. The first call may take half a minute to compile it."""
    with _lock:
        if not _tried and (may_compile or is_compiled()):
            _load()
        return _module


def _load() -> None:
    global _tried, why_not, convolve, learn, forget, run, _module
    _tried = True
    try:
        _module = load_compiled()
    except (BuildError, ImportError, OSError) as error:
        why_not = str(error)
        _log.info("calls take the way through Python: %s", why_not)
        return
    why_not = ""
    convolve, learn, forget, run = _module.convolve, _module.learn, _module.forget, _module.run


_module: Any | None = None
