"""Times of the host: while a benchmark takes them, the device rests.

    bench.gpu.host_turns.take_turns ──► at_rest: operators and launches return at once, with any numbers
                                            └──► rest.cc; the driver takes launches, which are not computed

At rest PyTorch's own operators take less than on a GPU: a ratio to them is at most too high.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.standin import compiled
from tests.standin.device import FOLDER_VARIABLE, Compute, device, driver


def rest_while_timed(module: ModuleType) -> None:
    """The function ``take_turns`` of a benchmark runs with the device at rest."""
    take_turns: Callable[..., Any] = module.take_turns
    _library()  # compiled before anything is timed, and in the process that has the time

    def at_rest_take_turns(*given: Any, **named: Any) -> Any:
        with at_rest():
            return take_turns(*given, **named)

    module.take_turns = at_rest_take_turns  # type: ignore[attr-defined]


@contextmanager
def at_rest() -> Iterator[None]:
    """Nothing is computed inside; all kernels are loaded before. An operator that was computed all the same goes to the
    journal as a problem."""
    from tests.standin import launches

    library = _library()
    driver().standin_compute_with(ctypes.cast(None, Compute))
    library.standin_begin_rest()
    device().standin_rest(1)
    try:
        yield
    finally:
        device().standin_rest(0)
        library.standin_end_rest()
        driver().standin_compute_with(launches.callback)
        if names := device().standin_computed_at_rest().decode():
            launches.write_down(what="problem", reason=f"computed at rest: {names}")


@dataclass(frozen=True)
class AtRest:
    """How often the device was used so far, where it was at rest: ``kernels`` are PyTorch's, one an operator;
    ``launches`` all of the driver."""

    allocations: int
    kernels: int
    launches: int

    @classmethod
    def so_far(cls) -> AtRest:
        library = _library()
        counts = library.standin_allocations, library.standin_kernels_of_pytorch, driver().standin_launches
        return cls(*(int(count()) for count in counts))

    def __sub__(self, before: AtRest) -> AtRest:
        return AtRest(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(compiled.rest(Path(os.environ[FOLDER_VARIABLE]))))
    for count in (library.standin_allocations, library.standin_kernels_of_pytorch, driver().standin_launches):
        count.restype = ctypes.c_uint64
    return library
