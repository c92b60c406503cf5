"""The kernels that this process has: built or from a pack, once for each device, and checked before they run.

A kernel runs only once it was found right on this machine:

    one that a race or a search confirmed here              counts as right: nothing is done
    one that was checked here before                        counts as right, or as wrong
    any other: predicted, from a record of another machine  is checked, and the result is kept with its artifact
    or of other versions, the nearest legal one, a pack's

One lock guards all of it: decisions and builds import TVM and run LLVM, and a child that is forked meanwhile can do
neither.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import torch

from dwconv.call.warned_once import warn_once
from dwconv.dispatch import legality, loaded_packs
from dwconv.dispatch.kernel_state import KernelState
from dwconv.errors import BuildError
from dwconv.kernels.cpu_build import telling_line
from dwconv.problems.target import Target
from dwconv.system import forks

if TYPE_CHECKING:
    from dwconv.kernels.cache import CheckResults
    from dwconv.kernels.kernel import Kernel
    from dwconv.problems.workload import Sizes
    from dwconv.schedules.template import Candidate

Given = ParamSpec("Given")
Made = TypeVar("Made")
ABANDONED = "this process was forked while another thread was building a kernel, and can build none"
_CAPTURED = (
    "a CUDA graph keeps PyTorch's own op for kernels that were not loaded and checked before its capture; warm up "
    "first: take a step before the capture"
)
lock = forks.Lock(threading.RLock, holds_up_forks=True)
state = KernelState()
kernels: dict[tuple[Candidate, torch.device], Kernel] = {}
unbuilt: dict[tuple[Candidate, torch.device], str] = {}
"""Why kernels could not be built in the background."""
_seen: dict[tuple[Candidate, torch.device], CheckResults] = {}
"""Verdicts of this process: without a cache on disk each kernel is checked once."""


class NotNow(Exception):
    """A kernel cannot be loaded or checked now: PyTorch's op runs in its place, this time."""


def _not_now() -> NotNow:
    warn_once(_CAPTURED)
    return NotNow()


def attempt(make: Callable[Given, Made], *given: Given.args, **named: Given.kwargs) -> tuple[Made | None, str]:
    """The result of ``make`` with these arguments; or None, and why there is none."""
    try:
        return make(*given, **named), ""
    except NotNow:
        raise
    except Exception as error:  # noqa: BLE001  whatever a record, a cache or TVM makes go wrong: PyTorch can go on
        return None, telling_line(error)


def kernel_of(candidate: Candidate, target: Target, device: torch.device) -> Kernel:
    """The kernel of a candidate, from a pack or built, once for each device. Raises BuildError, or what the loader
    raises; NotNow while a CUDA graph is captured, which a driver that loads a kernel spoils."""
    with lock:
        if (candidate, device) not in kernels:
            if is_captured(device):
                raise _not_now()
            if fault := unbuilt.get((candidate, device)):
                raise BuildError(fault)
            kernels[candidate, device] = load(candidate, target, device)
        return kernels[candidate, device]


def kernel_at(candidate: Candidate, target: Target, device: torch.device, size: Sizes) -> Kernel:
    """The kernel of a candidate, one of any size at this one. Raises what ``kernel_of`` raises."""
    return at_size(kernel_of(candidate, target, device), size)


def at_size(kernel: Kernel, size: Sizes) -> Kernel:
    """A kernel of any size at one; another kernel as it is."""
    return kernel if kernel.any_size is None else kernel.any_size.at(kernel.workload.with_input_size(size))


def is_ready(candidate: Candidate, target: Target, device: torch.device) -> bool:
    """True if nothing has to be built before the kernel runs."""
    from dwconv.kernels.cache import kept_linked

    if (candidate, device) in kernels or loaded_packs.artifact_of(candidate, target):
        return True
    return kept_linked(candidate, target) is not None


def lacks(candidate: Candidate, target: Target, *, threads: int) -> Candidate | None:
    """What has to be built, or checked on so many ``threads``, before a CPU's kernel runs; None if nothing has to be.
    What a pack that was loaded brings is checked when it is first used."""
    from dwconv.kernels.cache import checked, kept_linked

    built = loaded_packs.for_every_layer(candidate, target) or loaded_packs.artifact_of(candidate, target)
    built = built or kept_linked(candidate, target)
    if built is None:
        return legality.built_for(candidate, target)
    known = checked(built, target)
    if (known is not None and known.tells({threads, 1})) or loaded_packs.kept(built.candidate, target) is None:
        return None
    return built.candidate


def load(candidate: Candidate, target: Target, device: torch.device) -> Kernel:
    from dwconv.kernels.cache import build_cached, build_linked, kept_linked
    from dwconv.kernels.kernel import Kernel

    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        own = loaded_packs.artifact_of(candidate, target) or kept_linked(candidate, target)
        if own is None and (general := legality.built_for(candidate, target)) != candidate:
            build_linked(general, target)
            loaded_packs.note_built()
        if every := loaded_packs.for_every_layer(candidate, target):  # one machine code for all sizes, checked once
            of_all = every.candidate, device
            whole = kernels.get(of_all) or kernels.setdefault(of_all, Kernel.load(every))
            assert whole.any_size is not None
            return whole.any_size.at(candidate.workload)
        return Kernel.load(own or build_cached(candidate, target))


def fault_in(kernel: Kernel, target: Target, device: torch.device) -> str:
    """What is wrong with a kernel, before it is used; empty if nothing is. Raises NotNow."""
    fault, error = attempt(fault_of, kernel, target, device)
    if error:
        return f"could not be checked: {error}"
    if fault is None:
        raise _not_now()
    return f"gave wrong results when it was checked here: {fault}" if fault else ""


def forget() -> None:
    """Forget all kernels and their verdicts."""
    kernels.clear()
    unbuilt.clear()
    _seen.clear()
    state.clear()


# -- checked at first use ----------------------------------------------------------------------------------------------


def fault_of(kernel: Kernel, target: Target, device: torch.device) -> str | None:
    """What is wrong with a kernel, on the threads that it is about to run on and on one; empty if nothing is. None if
    that cannot be found out now, since the call is being captured in a CUDA graph. Raises what the kernel raises,
    MemoryError, and NotNow where the process is about to end."""
    from dwconv.kernels.cache import CheckResults, checked, remember_checked
    from dwconv.measure.verify.first_use import NoThread, fault_at_first_use

    artifact = kernel.any_size.artifact if kernel.any_size else kernel.artifact
    key = artifact.candidate, device
    wanted = {torch.get_num_threads(), 1} if device.type == "cpu" else set[int]()

    known = _seen.get(key)
    if known is None or not known.tells(wanted):
        known = checked(artifact, target)  # reads a file
    if known is not None and known.tells(wanted):
        _seen[key] = known
        return known.fault
    if is_captured(device):
        return None
    try:
        fault = fault_at_first_use(kernel, device, threads=sorted(wanted, reverse=True), fast_math=target.fast_math)
    except NoThread:
        raise NotNow from None
    remember_checked(artifact, target, threads=wanted, fault=fault)
    _seen[key] = CheckResults(threads=frozenset(wanted) | (_seen[key].threads if key in _seen else set()), fault=fault)
    return fault


def is_captured(device: torch.device) -> bool:
    """True while a CUDA graph is captured: nothing can be loaded or checked."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
