"""Road: which way calls take to a kernel. It decides what a call costs beside the kernel, which no time of the log has.

through C++      eager calls that C++ has seen before
through Python   the first calls of a kind, calls that something watches, and all where the C++ is not there
PyTorch's op     calls without a kernel of dwconv's
"""

from __future__ import annotations

from collections.abc import Collection

from dwconv import native, settings
from dwconv.call.call_plan import plans
from dwconv.dispatch.decision import Provider


def of_calls(providers: Collection[Provider], *, is_transposed: bool = False) -> str:
    """The road of a call whose passes these run, and why: ``through Python: it is being compiled``."""
    if providers and all(each == "pytorch" for each in providers):
        return "to PyTorch's op, as without dwconv"
    if is_transposed:
        return "through Python, as those of all transposed convolutions"
    if native.module is not None:
        return "through C++, after the first of their kind"
    return f"through Python: {_why()}"


def _why() -> str:
    if settings.cpp_compiler() is None:
        return "DWCONV_NATIVE=0 is set"
    return f"the C++ is not there, {native.why_not}"


def calls_so_far() -> tuple[int, int]:
    """Forward calls of dwconv's kernels since the last decisions: in C++, and through Python."""
    in_cpp = in_python = 0
    for plan in plans():
        if not plan.is_pytorch:
            cpp, python = plan.tally.roads()
            in_cpp, in_python = in_cpp + cpp, in_python + python
    return in_cpp, in_python
