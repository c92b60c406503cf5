"""The short way of calls: from Python straight to a kernel, of a CPU or a GPU, and back through autograd, in C++; so
with the ops that compiled code calls. Beside it, the lanes of ``dwconv.concurrency``: ``program.cpp``.

The first kernel that is loaded for a call has it compiled. That takes half a minute, and delays no call:

    soon()      from the package or the cache at once; else None, and a thread has it compiled
    native()    blocks until it is there, for measurements of calls
                  │
                compile     the C++ next to this file, for the PyTorch and the Python that run it
                  │
                making      in a process of its own, one of this user at a time, and kept in the cache folder

That goes on if the process ends that needed it. Until it is there, calls take the way through Python: the same
results, some microseconds later. Then kernels use it from their next call on, and earlier calls are recorded at their
next repetition. Where it cannot be kept, it is used in this process alone, with a warning. Without a C++ compiler,
where the package does not bring it compiled for this PyTorch and this Python, or with ``DWCONV_NATIVE=0``, all calls go
through Python; so they do in a process forked during the compilation, and after a failed compilation, which one warning
reports.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from dwconv import settings
from dwconv.errors import BuildError, DwconvWarning, warn
from dwconv.native.build_once import Build, NoTimeToCompile
from dwconv.native.compile import LIMIT_S, Extension, LoadedModule, load, load_compiled, prebuilt
from dwconv.system import forks, private_files

_log = logging.getLogger(__name__)


def _no_result(*arguments: Any) -> None:
    return None


convolve: Any = _no_result
"""``convolve(input, weight, bias, stride, padding, dilation, groups, axes)``: y, or None if the call is new, or watched
by anything besides eager autograd and autocast."""
learn: Any = _no_result
"""``learn(call, argument of convolve…)``: from now on, the ``Call`` runs these arguments."""
forget: Any = _no_result
"""Forget all calls."""
run: Any = _no_result
"""``run(kernel, input…)``: the kernel's results, or None if the inputs do not have the strides that it reads."""
run_traced: Any = _no_result
"""``run_traced(members, x)``: z of a block of a traced forward pass; or None, and Python does it."""
holds: Any = _no_result
"""``holds(guard)``: whether all is as the guard has pinned it."""
FUNCTIONS = ("convolve", "learn", "forget", "run", "run_traced", "holds")
"""The names of these, which the compiled module has, too."""
transparent_modes: set[type] = set()
"""Classes of modes that let calls through: these run as if the mode were not there."""
module: Any | None = None
"""The compiled module once it is there. Set after the functions: once it is visible, they can be called."""

_lock = forks.Lock()
"""Held while it is loaded or compiled."""
_settled = False
"""True if it is there, or will not be in this process."""
_background: threading.Thread | None = None
_LONG_S = 4 * 3600.0
"""No caller blocks on it, and a busy machine leaves it little."""
_not_kept = ""
"""Why the next process has to compile it again, until a warning has reported it."""
_failed = ""
"""Why it could not be compiled, until a warning has reported it."""
_NOT_TRIED = "no kernel was loaded yet"
why_not = _NOT_TRIED
"""Why calls go through Python; empty if they do not."""


def native(*, may_compile: bool = True, limit_s: float = LIMIT_S) -> Any | None:
    """The compiled module, or None; then ``why_not`` is the reason. The first call may take half a minute until it is
    compiled, here or in the background, or ``limit_s`` on a busy machine; it is compiled further, and a later call may
    have it. Without ``may_compile`` it returns at once.
    Warns if it cannot be compiled, and if the next process has to compile it again."""
    until_s = time.monotonic() + limit_s
    if not _settled and _lock.acquire(timeout=limit_s if may_compile else 0):
        try:
            _load(lambda: load_compiled(may_compile=may_compile, limit_s=max(0.0, until_s - time.monotonic())))
        finally:
            _lock.release()
    _warn()
    return module


def soon() -> Any | None:
    """The module for a call, which does not wait. If it is not in the cache, a thread compiles it, and ``module``
    is there when that is done."""
    if not _settled and _background is None and _lock.acquire(blocking=False):
        try:
            _begin()
        finally:
            _lock.release()
    _warn()
    return module


def is_out() -> bool:
    """True once it is certain that calls go through Python."""
    return _settled and module is None


def is_expected() -> bool:
    """True if calls take the short way, now or once it is compiled."""
    if _settled:
        return not is_out()
    compiler = settings.cpp_compiler() if sys.platform == "linux" else None
    return compiler is not None and (settings.program(compiler) is not None or prebuilt() is not None)


def take(content: bytes) -> None:
    """Use the module that a pack brings, compiled for this PyTorch and this Python, unless there is one, or
    ``DWCONV_NATIVE=0`` is set. Raises ImportError if it cannot be loaded."""
    if settings.cpp_compiler() is None or not _lock.acquire(blocking=False):  # it is just being compiled
        return
    try:
        if not _settled:
            _take(LoadedModule(module=load(content)))
    finally:
        _lock.release()


def leave_out(reason: str) -> None:
    """From now on calls go through Python in this process."""
    if module is None:
        _settle(reason)


def _begin() -> None:
    """Load it from the cache, or have it compiled."""
    global _background, why_not
    prepared: list[tuple[Extension, Build]] = []

    def look() -> LoadedModule | None:
        extension = Extension()
        if (found := extension.load_cached()) is None:
            prepared.append((extension, extension.build()))
        return found

    _load(look)
    if _settled:
        return
    why_not = "it is being compiled"
    _background = threading.Thread(target=_compile, args=prepared[0], name="dwconv-native", daemon=True)
    try:
        _background.start()
    except RuntimeError as error:
        _background = None
        _settle(f"no thread can compile it: {error}")


def _compile(extension: Extension, build: Build) -> None:
    """In the background."""
    with _lock:
        try:
            _load(lambda: extension.compile(build, limit_s=_LONG_S, in_background=True))
        finally:
            if not _settled:  # an unexpected error, which the thread prints
                _settle("compiling it ended unexpectedly")


def _load(make: Callable[[], LoadedModule | None]) -> None:
    """Take what ``make`` gives, unless it was settled meanwhile. The lock is held."""
    global why_not, _failed
    if _settled:
        return
    before, why_not = why_not, "it is being compiled"
    try:
        loaded = make()
    except NoTimeToCompile:  # it goes on, and may be there later
        pass
    except (BuildError, ImportError, OSError) as error:
        _failed = str(error) if is_expected() else ""
        _settle(str(error))
    except BaseException:
        why_not = "compiling it was interrupted"
        raise
    else:
        if loaded is None:
            why_not = before
        elif not _settled:
            _take(loaded)


def _take(loaded: LoadedModule) -> None:
    global module, _settled, _not_kept, why_not
    loaded.module.let_through(transparent_modes)
    globals().update({name: getattr(loaded.module, name) for name in FUNCTIONS})
    _settled, _not_kept, why_not = True, loaded.not_kept, ""
    module = loaded.module


def _settle(reason: str) -> None:
    """There will be none."""
    global _settled, why_not
    if not _settled:
        _settled, why_not = True, reason
        _log.info("calls go through Python: %s", reason)


def _warn() -> None:
    """In the thread of the caller: a warning of another thread would be lost."""
    global _not_kept, _failed
    if _failed:
        failed, _failed = _failed, ""
        what = "calls go through Python, on a GPU some 80 µs of the host more for each layer"
        warn(f"{what}: {failed}; to leave it at that: DWCONV_NATIVE=0")
    if _not_kept:
        not_kept, _not_kept = _not_kept, ""
        if not private_files.is_first_not_kept():
            return
        warnings.warn(
            f"the C++ of calls was compiled for this process alone, and each other process takes half a minute for it: "
            f"{not_kept}, or leave it out: DWCONV_NATIVE=0",
            DwconvWarning,
            stacklevel=3,
        )


def _after_fork() -> None:
    """A child has no thread that would go on. It does not begin anew: half of a library may be loaded."""
    if not _settled and (_background is not None or _lock.abandoned):
        _settle("this process was forked from one that was compiling it")


forks.in_child(_after_fork)
