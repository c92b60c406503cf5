"""First use: a kernel runs only once it was found right on this machine.

a kernel that a race or a search confirmed here         is remembered as right: nothing is done
a kernel that was checked here before                   is remembered as right, or as wrong
any other: predicted, from a record of another machine  is checked, and that is remembered with its artifact
or of other versions, the nearest legal one, a pack's
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from dwconv.kernels.cache import Checked
    from dwconv.kernels.kernel import Kernel
    from dwconv.problems.target import Target
    from dwconv.schedules.template import Candidate

_seen: dict[tuple[Candidate, torch.device], Checked] = {}
"""What this process knows: a cache that cannot be read or written costs one check of each kernel."""


def fault_of(kernel: Kernel, target: Target, device: torch.device) -> str | None:
    """What is wrong with a kernel, on the threads that it is about to run on and on one; empty if nothing is. None if
    that cannot be found out now, since the call is being captured in a CUDA graph. Raises what the kernel raises, and
    MemoryError."""
    from dwconv.kernels.cache import Checked, checked, remember_checked
    from dwconv.measure.verify.first_use import fault_at_first_use

    artifact = kernel.any_size.artifact if kernel.any_size else kernel.artifact
    key = artifact.candidate, device
    wanted = {torch.get_num_threads(), 1} if device.type == "cpu" else set[int]()
    for known in (_seen.get(key), checked(artifact, target)):
        if known is not None and (known.fault or wanted <= known.threads):
            _seen[key] = known
            return known.fault
    if is_captured(device):
        return None
    fault = fault_at_first_use(kernel, device, threads=sorted(wanted, reverse=True), fast_math=target.fast_math)
    remember_checked(artifact, target, threads=wanted, fault=fault)
    _seen[key] = Checked(threads=frozenset(wanted) | (_seen[key].threads if key in _seen else set()), fault=fault)
    return fault


def is_captured(device: torch.device) -> bool:
    """True while a CUDA graph is captured: nothing can be loaded or checked."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def forget() -> None:
    """Forget what this process knows, but not what is remembered on disk."""
    _seen.clear()
