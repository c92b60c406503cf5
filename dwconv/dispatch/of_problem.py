"""What runs each pass of a problem: what runs each workload, together.

Both gradients may come from one kernel. A block is faster as one or not at all. Kernels that win less than their calls
cost the host lose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from dwconv import settings
from dwconv.dispatch import locked
from dwconv.dispatch.advantage import (
    why_faster_at_once,
    why_not_beside_host,
    why_not_faster_as_one,
    why_not_mixed,
    why_not_transposed,
)
from dwconv.dispatch.at_any_size import as_at
from dwconv.dispatch.decide import decide_on, on_pytorch
from dwconv.dispatch.decision import DispatchDecision
from dwconv.dispatch.kernel_state import KernelState
from dwconv.dispatch.knowledge import database
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, Target, is_rocm, target_of
from dwconv.problems.workload import DTYPES, PASSES, Pass, Workload
from dwconv.records.record import TuningRecord

MOST_STRIDE, MOST_REACH = 1024, 65_536
"""Of dilation and padding the second. Beyond these no known layer makes sense, and a prediction would walk along them
for hours."""


def decisions(
    problem: Problem,
    device: torch.device,
    *,
    state: KernelState | None = None,
    target: Target | None = None,
    later: bool = False,
) -> tuple[dict[Pass, DispatchDecision], Target | None]:
    """What runs each pass of ``problem`` on ``device``; and the target, None where there can be no kernels. Of a layer
    also ``backward``, if both gradients are faster in one kernel: where both are wanted, it runs in the place of dgrad
    and wgrad. ``state``: what the process has learnt of its kernels. ``target``: the device's, as it was; by default
    as it is now. ``later``: nothing is predicted now, which takes longer than a step; what would be predicted stays
    open. Raises InvalidSetting."""
    if reason := why_no_kernels(problem, device):
        return dict.fromkeys(problem.passes, on_pytorch(reason)), None
    settings.nan()  # raises at once, not when the first kernel comes that spreads NaN
    target = target_of(device) if target is None else target
    if agreed := locked.agreed_on(problem, device):
        return dict(agreed), target
    if lock := locked.current():
        return lock.decisions(problem, target, broken={} if state is None else state.broken), target
    found = {pass_: decide_on(target, problem.workload(pass_), state=state, later=later) for pass_ in problem.passes}
    if problem.block and (reason := _why_not_as_one(found, problem, target, state=state)):
        found = {pass_: on_pytorch(reason, record=decision.record) for pass_, decision in found.items()}
    is_open = any(each.is_open for each in found.values())
    if not is_open and (both := _both_gradients(found, problem, target, state=state)):
        found["backward"] = both
    if not is_open and not problem.block and (reason := why_not_beside_host(found, problem, target)):
        found = _without_ours(found, reason)
    return found, target


def as_transposed(
    found: Mapping[Pass, DispatchDecision],
    problem: Problem,
    target: Target | None,
    *,
    bias: bool,
    trains: bool = True,
) -> dict[Pass, DispatchDecision]:
    """What runs the passes of ``problem`` as those of the transposed convolution that it undoes: see
    ``workload.TRANSPOSED``. Its calls go through Python, a sweep adds its ``bias``, and no kernel has both of its
    gradients. ``found``: what runs them as those of the problem. ``trains``: gradients are needed, too."""
    made = dict(found)
    made.pop("backward", None)
    if target is None:
        return made
    if reason := why_not_beside_host(made, problem, target, in_python=True):
        return _without_ours(made, reason)
    if reason := why_not_transposed(made["dgrad"], target, sweeps=bias):
        made |= _without_ours({"dgrad": made["dgrad"]}, reason)
    if trains and (reason := why_not_mixed(made, problem, target)):
        return _without_ours(made, reason)
    return made


def _without_ours(found: Mapping[Pass, DispatchDecision], reason: str) -> dict[Pass, DispatchDecision]:
    """PyTorch's op for each pass in the place of kernels."""
    return {
        pass_: replace(each, provider="pytorch", reason=reason, config=None) if each.provider == "dwconv" else each
        for pass_, each in found.items()
        if pass_ != "backward"
    }


def _both_gradients(
    found: Mapping[Pass, DispatchDecision], problem: Problem, target: Target, *, state: KernelState | None
) -> DispatchDecision | None:
    """The kernel of both gradients of a layer; None if it is not known to be faster than dgrad and wgrad are, each as
    it was ``found``. A bias has a gradient of its own, which takes wgrad."""
    if problem.block or problem.bias or problem.epilogue != "none":
        return None
    if isinstance(target, CpuTarget) and not database().knows("backward"):
        return None
    both = decide_on(target, problem.workload("backward"), state=state, predicts=False)
    if both.provider != "dwconv":
        return None
    apart = [found["dgrad"], found["wgrad"]]
    if not any(each.record or each.expected for each in apart):
        return both  # it is faster than PyTorch's op for both; or a pack has it, which has none that is slower
    records = [(each.record, each.provider == "dwconv") for each in apart if each.record and not each.expected]
    if both.record is None or len(records) < len(apart):
        return None
    reason = why_faster_at_once(both.record, records, target)
    return replace(both, reason=reason) if reason else None


def _why_not_as_one(
    found: dict[Pass, DispatchDecision], problem: Problem, target: Target, *, state: KernelState | None
) -> str:
    """Why a block runs one after the other although each of its kernels is faster than PyTorch's ops; empty if it does
    not, or if they are not."""
    block = _at_size({problem.workload(pass_): each for pass_, each in found.items()})
    if len(block) < len(found):
        return ""
    passes: tuple[Pass, ...] = PASSES if problem.trains else ("fprop",)
    alone = [problem.alone.workload(pass_) for pass_ in passes]
    tuned = _at_size({each: decide_on(target, each, state=state, predicts=False) for each in alone})
    saves_memory = problem.trains and _layer_of(problem) in _saving
    return why_not_faster_as_one(block, tuned, target, saves_memory=saves_memory)


_saving: set[tuple[object, ...]] = set()


def save_memory(problem: Problem, *, wanted: bool) -> None:
    """Whether, from the next decision on, its block runs as one, at any size, also where it is only as fast as its
    parts: it keeps less for the backward pass."""
    (_saving.add if wanted else _saving.discard)(_layer_of(problem))


def saving() -> str:
    """Which blocks do, as text."""
    return repr(sorted(map(repr, _saving)))


def _layer_of(problem: Problem) -> tuple[object, ...]:
    """What is the same at every size."""
    block = problem.block and str(problem.block.thawed)
    return (block, problem.weight_shape, problem.stride, problem.dilation, problem.dtype_name)


def _at_size(decisions: Mapping[Workload, DispatchDecision]) -> list[TuningRecord]:
    """What the kernels that run workloads were measured to take, at the size of these."""
    ours = {workload: each.record for workload, each in decisions.items() if each.provider == "dwconv"}
    return [as_at(record, workload) for workload, record in ours.items() if record]


def why_no_kernels(problem: Problem, device: torch.device) -> str:
    """Why no pass of ``problem`` can have kernels; empty if it may."""
    if device.type not in ("cpu", "cuda"):
        return f"dwconv has no kernels for {device.type}"
    if device.type == "cuda" and is_rocm():
        return "dwconv has no kernels for AMD GPUs"
    if problem.dtype_name not in DTYPES:
        return f"dwconv has no kernels for {problem.dtype_name}"
    if max(problem.stride) > MOST_STRIDE:
        return f"dwconv has no kernels for a stride above {MOST_STRIDE}"
    if max(*problem.dilation, *problem.padding) > MOST_REACH:
        return f"dwconv has no kernels for a dilation or padding above {MOST_REACH}"
    return "there is nothing to compute" if 0 in problem.input_shape else ""
