"""PlanKernels: the kernels of what a plan has decided, built and checked when they are first used.

decisions ──► chosen(decision) ──► process_kernels.kernel_at the size of the problem ──► checked ──► [pass]
                                        └── at(x_pitch): for an x that is a slice of a tensor of more channels
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Literal

import torch

from dwconv.call import process_kernels, spending
from dwconv.call.untuned_warnings import untuned
from dwconv.call.warned_once import kind_of, warn_of_first
from dwconv.dispatch import legality, locked
from dwconv.dispatch.decision import DispatchDecision
from dwconv.errors import Untuned
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import ITEMSIZE, Pass, Workload
from dwconv.system import versions

if TYPE_CHECKING:
    from dwconv.kernels.kernel import Kernel
    from dwconv.schedules.template import Candidate

MOST_PITCHES = 4
"""Tensors of other numbers of channels, of which x is a slice, to build kernels for, for each plan."""
SHORT_ROW = 8
"""Taps up to which a row reads an element once, into registers."""
_PAGE_BYTES, _FEWEST_PLACES = 4096, 16
"""Addresses that are a page apart share a set of the first cache; pixels have as many places in a page, at least."""


class _BuiltWhenFirstUsed(dict[Pass, "Kernel | None"]):
    def __init__(self, build: Callable[[Pass], Kernel | None]) -> None:
        super().__init__()
        self._build = build

    def __missing__(self, pass_: Pass) -> Kernel | None:
        with process_kernels.lock:
            if pass_ not in self:  # no other thread was faster
                began_s = time.monotonic()
                try:
                    self[pass_] = self._build(pass_)
                except process_kernels.NotNow:
                    return None
                finally:
                    spending.of_process.spend(time.monotonic() - began_s)
            return self[pass_]


class PlanKernels(_BuiltWhenFirstUsed):
    """dwconv's kernel that runs a pass of ``problem``; None where PyTorch's own op does."""

    def __init__(
        self,
        problem: Problem,
        device: torch.device,
        *,
        decisions: Mapping[Pass, DispatchDecision],
        refused: Collection[Pass],
    ) -> None:
        """``refused``: passes that must not run before they are tuned."""
        super().__init__(self._build_dense)
        self._problem, self._device, self._decisions, self._refused = problem, device, decisions, refused
        self.of_slices: dict[int, _BuiltWhenFirstUsed] = {}
        of_pytorch = [pass_ for pass_, decision in decisions.items() if decision.provider == "pytorch"]
        self.update({pass_: None for pass_ in of_pytorch if pass_ not in refused})

    def resized(self, problem: Problem) -> PlanKernels:
        """These kernels, all of any size, at the size of another problem."""
        made = PlanKernels.__new__(PlanKernels)
        made.__dict__.update(self.__dict__, _problem=problem, of_slices={})
        size = problem.input_shape[2:]
        made._build = lambda pass_: (kernel := self[pass_]) and process_kernels.at_size(kernel, size)
        return made

    def check(self, passes: Collection[Pass]) -> None:
        """Raises Untuned if one of ``passes`` must not run before it is tuned."""
        if refused := [pass_ for pass_ in passes if pass_ in self._refused]:
            fate = "must be tuned, as DWCONV_UNTUNED=error requires"
            raise Untuned(untuned(self._problem, {pass_: self._decisions[pass_] for pass_ in refused}, fate=fate))

    def code(self, pass_: Pass) -> str | None:
        """The digest of the code that runs a pass; empty if it was not used yet, None where PyTorch's op runs."""
        if pass_ not in self:
            return ""
        kernel = self[pass_]
        return None if kernel is None else locked.digest_of(kernel.artifact)

    def fault(self, decision: DispatchDecision) -> str:
        """What keeps the kernel of a decision from running here, which is built to find out; empty if nothing does."""
        known = chosen(self._problem, decision)
        return "" if known is None else self._kernel_of(*known)[1]

    def at(self, x_pitch: int) -> Mapping[Pass, Kernel | None]:
        """The kernels for an x of that ``Workload.x_pitch``. Those that read x do so in place, if they can be had; the
        others copy it."""
        if (found := self.of_slices.get(x_pitch)) is not None:
            return found
        with process_kernels.lock:
            if len(self.of_slices) < MOST_PITCHES:
                build = _BuiltWhenFirstUsed(lambda pass_: self._build_at(x_pitch, pass_))
                return self.of_slices.setdefault(x_pitch, build)
        return self

    def _build_dense(self, pass_: Pass) -> Kernel | None:
        self.check([pass_])
        decision = self._decisions[pass_]
        if process_kernels.lock.abandoned:  # nothing can be imported
            said = f"{self._problem.workload(pass_).key} runs on PyTorch's own op: {process_kernels.ABANDONED}"
            warn_of_first(process_kernels.ABANDONED, said)
            return None
        known = chosen(self._problem, decision)
        assert known is not None and decision.config is not None, "decided together with the provider"
        candidate, target = known
        self._note_predicted(decision, target)
        kernel, fault = self._kernel_of(candidate, target)
        if kernel is not None and decision.code and decision.code != locked.digest_of(kernel.artifact):
            said = f"the kernel of {self._named(candidate.workload)} is not the code that was locked: bits may differ"
            warn_of_first("lock", said)
        if fault:
            process_kernels.state.broken[dataclasses.replace(candidate, config=decision.config)] = f"it {fault}"
            known_as = "predicted" if decision.expected else "tuned"
            is_both = pass_ == "backward" and self._problem.block is None
            instead = "as dgrad and wgrad" if is_both else "on PyTorch's own op"
            said = f"{self._named(candidate.workload)} runs {instead}: its {known_as} kernel {fault}"
            warn_of_first(kind_of(fault), said)
        return None if fault else kernel

    def _build_at(self, x_pitch: int, pass_: Pass) -> Kernel | None:
        """The kernel of the decision, built for an x of that pitch; the one for a dense x where that is not to be
        had: without TVM a pack's kernel is as it came."""
        decision = self._decisions[pass_]
        if pass_ in self._refused or process_kernels.lock.abandoned or not reads_slices(decision, x_pitch):
            return self[pass_]
        known = chosen(self._problem, decision)
        assert known is not None, "it reads slices"
        candidate, target = known
        self._note_predicted(decision, target)
        sliced = dataclasses.replace(candidate.workload, x_pitch=x_pitch)
        kernel, fault = self._kernel_of(dataclasses.replace(candidate, workload=sliced), target)
        if not fault:
            return kernel
        said = f"{self._named(sliced)} has its x copied, since the kernel that would read it in place {fault}"
        warn_of_first(f"slices {kind_of(fault)}", said)
        return self[pass_]

    def _kernel_of(self, candidate: Candidate, target: Target) -> tuple[Kernel | None, str]:
        """The kernel, one of any size at the size of the problem; or what is wrong with it."""
        size = self._problem.input_shape[2:]
        kernel, reason = process_kernels.attempt(process_kernels.kernel_at, candidate, target, self._device, size)
        if kernel is None:
            return None, f"could not be built: {reason}"
        return kernel, process_kernels.fault_in(kernel, target, self._device)

    def _named(self, workload: Workload) -> str:
        """The key of what a kernel runs here, which may be one of any size."""
        return dataclasses.replace(workload, any_size=False, input_size=self._problem.input_shape[2:]).key

    @staticmethod
    def _note_predicted(decision: DispatchDecision, target: Target) -> None:
        from dwconv.schedules.template import Candidate

        assert decision.workload is not None and decision.config is not None, "decided together with the provider"
        if decision.record is None and not decision.workload.any_size:
            made = Candidate(decision.workload, decision.config)
            process_kernels.state.predicted.setdefault((made.workload.batchless_key, target.device), made)


def chosen(problem: Problem, decision: DispatchDecision) -> tuple[Candidate, Target] | None:
    """The kernel of a decision, and what it is built for; None where there is none. A configuration that was fastest on
    few threads runs on all of them at a larger batch."""
    from dwconv.schedules.template import Candidate

    workload, config, target = decision.workload, decision.config, decision.target
    if decision.provider != "dwconv" or workload is None or config is None or target is None:
        return None
    is_larger = problem.input_shape[0] > workload.batch
    return Candidate(workload, legality.on_all_threads(config, target) if is_larger else config), target


State = Literal["ready", "building", ""]


def state_of(problem: Problem, decision: DispatchDecision, device: torch.device) -> State:
    """Of the kernel of a decision; empty where there is none. One that is not built counts as building."""
    if (known := chosen(problem, decision)) is None:
        return ""
    return "ready" if process_kernels.is_ready(*known, device) else "building"


def reads_slices(decision: DispatchDecision, x_pitch: int) -> bool:
    """True if the kernel of a decision can be built for an x of that pitch, and is faster than a copy before the kernel
    of a dense x."""
    from dwconv.schedules.template import template

    workload, config = decision.workload, decision.config
    if workload is None or config is None or not isinstance(decision.target, CpuTarget):
        return False
    lies_so = template(config.template).layout == workload.layout
    return "x" in workload.inputs and lies_so and _is_faster_in_place(workload, x_pitch) and versions.can_build()


def _is_faster_in_place(workload: Workload, x_pitch: int) -> bool:
    """False where pixels would share few sets of the cache, and would be read again and again. Measured on one core
    with AVX2, time in place over time of a copy and the kernel of a dense x: pitches of 2048 and 4096 bytes, and of 512
    with 7×7, take 0.8 to 2.4, those with no such factor 0.5 to 1.0. Mamba's, of 12288, takes 0.5 to 0.9: a short row
    reads an element once."""
    if workload.layout == "nchw" or (workload.is_row and workload.kernel[-1] <= SHORT_ROW):
        return True
    return math.gcd(x_pitch * ITEMSIZE[workload.dtype], _PAGE_BYTES) <= _PAGE_BYTES // _FEWEST_PLACES
