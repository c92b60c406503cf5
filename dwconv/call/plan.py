"""Plan: what runs a call, pass by pass. ``plan_for`` is what the ops look up in every step.

A Plan decides once and builds a kernel when it is first used. Nothing is ever tuned here, and nothing that goes wrong
here stops a training step: PyTorch's own op can always run.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch

from dwconv.build.cpu import first_line
from dwconv.dispatch import DispatchDecision, database, decisions, tune_command
from dwconv.errors import DwconvWarning
from dwconv.legality import broken
from dwconv.memory_format import MEMORY_FORMAT
from dwconv.problem import Problem
from dwconv.schedules.space import Config
from dwconv.target import CpuTarget, Target
from dwconv.workload import PASSES, Pass, Workload

if TYPE_CHECKING:
    from dwconv.build.kernel import Kernel
    from dwconv.schedules.template import Candidate

Made = TypeVar("Made")
MOST_PLANS = 10_000
"""Sizes to remember at a time."""
MOST_NAMED = 20
"""Untuned sizes to warn of."""


class _BuiltWhenFirstUsed(dict[Pass, "Kernel | None"]):
    def __init__(self, build: Callable[[Pass], Kernel | None]) -> None:
        self._build = build

    def __missing__(self, pass_: Pass) -> Kernel | None:
        kernel = self[pass_] = self._build(pass_)
        return kernel


class Plan:
    """The kernels that run the passes of one Problem on one device: decided once, built when first used."""

    def __init__(
        self, problem: Problem, device: torch.device, *, decisions: dict[Pass, DispatchDecision], target: Target | None
    ) -> None:
        self.decisions = decisions
        self.is_pytorch = all(decision.provider == "pytorch" for decision in decisions.values())
        """True if PyTorch's own op runs every pass."""
        self.problem = problem
        self.memory_format = MEMORY_FORMAT[problem.layout]
        self._device = device
        self._target = target
        self.kernels = _BuiltWhenFirstUsed(self._build)
        """The tuned kernel that runs a pass; None where PyTorch's own op does."""
        self.kernels.update({pass_: None for pass_, each in decisions.items() if each.provider == "pytorch"})
        self._warn_of_untuned()

    def _build(self, pass_: Pass) -> Kernel | None:
        decision = self.decisions[pass_]
        record, config, target = decision.record, decision.config, decision.target
        assert record is not None and config is not None and target is not None, "a kernel is chosen for its record"
        from dwconv.schedules.template import Candidate

        candidate = Candidate(record.workload, self._on_all_threads(config, record.workload, target))
        kernel, reason = _attempt(lambda: _kernel(candidate, target, self._device))
        if kernel is None:
            broken[Candidate(record.workload, config)] = reason
            _warn(f"{record.workload.key} runs on PyTorch's own op: its tuned kernel could not be built: {reason}")
        return kernel

    def _on_all_threads(self, config: Config, measured: Workload, target: Target) -> Config:
        """The configuration; if it was fastest on few threads, with all of them at a larger batch."""
        larger = self.problem.input_shape[0] > measured.batch
        if not (larger and isinstance(target, CpuTarget) and "threads" in config.to_dict()):
            return config
        return Config.of(config.template, **{**dict(config.values), "threads": target.threads})

    def _warn_of_untuned(self) -> None:
        """Name the problem, once, with the command that tunes it."""
        if self._target is None:
            return
        workload = self.problem.workload("fprop")
        sizes = workload.for_pass("dgrad").family  # without its bias, as dgrad asks for a layer that has one
        if sizes in _met:
            return
        _met.add(sizes)
        untuned = [pass_ for pass_, decision in self.decisions.items() if decision.command]
        if not untuned or len(_untuned) > MOST_NAMED:
            return
        _untuned.add(sizes)
        if len(_untuned) > MOST_NAMED:  # sizes that change from step to step, as of sentences, would never end
            _warn(f"more than {MOST_NAMED} sizes are untuned; the others are not named")
        else:
            reasons = dict.fromkeys(self.decisions[pass_].reason for pass_ in untuned)
            _warn(
                f"{', '.join(untuned)} of {self.problem} run on PyTorch's own op: {'; '.join(reasons)}; "
                f"tune them: {tune_command(workload, untuned)}"
            )


def plan_for(problem: Problem, device: torch.device) -> Plan:
    """The plan for these sizes on ``device``. The look-up costs a microsecond or two; the first one decides."""
    key = (problem, device, torch.get_num_threads() if device.type == "cpu" else 0)
    found = _plans.get(key)
    if found is None:
        with _lock:
            if len(_plans) >= MOST_PLANS:
                _plans.clear()
                _met.clear()
            found = _plans[key] = _new_plan(problem, device)
    return found


def _new_plan(problem: Problem, device: torch.device) -> Plan:
    made, reason = _attempt(lambda: decisions(problem, device))
    if made is None and _is_first(reason):
        _warn(f"everything runs on PyTorch's own op: {reason}")
    chosen, target = made or (dict.fromkeys(PASSES, DispatchDecision(provider="pytorch", reason=reason)), None)
    for damage in database().problems if target else ():
        if _is_first(damage):
            _warn(damage)
    return Plan(problem, device, decisions=chosen, target=target)


def _attempt(make: Callable[[], Made]) -> tuple[Made | None, str]:
    """The result of ``make``; or None, and why there is none."""
    try:
        return make(), ""
    except Exception as error:  # noqa: BLE001  whatever a record, a cache or TVM makes go wrong: PyTorch can go on
        return None, first_line(error)


def forget() -> None:
    """Forget all decisions, kernels and warnings, and read the tuning logs again when they are next needed."""
    with _lock:
        _plans.clear()
        _met.clear()
        _untuned.clear()
        _named.clear()
        database.cache_clear()
        _kernels.clear()
        broken.clear()


# -- what this process has --------------------------------------------------------------------------------------------

_lock = threading.RLock()
_plans: dict[tuple[Problem, torch.device, int], Plan] = {}
_kernels: dict[tuple[Candidate, torch.device], Kernel] = {}
_met: set[str] = set()
"""Families of workloads that plans were made for, tuned or not."""
_untuned: set[str] = set()
"""Families of workloads that were named as untuned."""
_named: set[str] = set()
"""Other warnings that were given."""


def _kernel(candidate: Candidate, target: Target, device: torch.device) -> Kernel:
    """The kernel of a candidate, built once for each device. Raises BuildError, or what the loader raises."""
    from dwconv.build.cache import build_cached
    from dwconv.build.kernel import Kernel

    with _lock:
        if (candidate, device) not in _kernels:
            with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
                _kernels[candidate, device] = Kernel.load(build_cached(candidate, target))
        return _kernels[candidate, device]


def _is_first(name: str) -> bool:
    """True the first time in this process."""
    first = name not in _named
    _named.add(name)
    return first


def _warn(message: str) -> None:
    warnings.warn(message, DwconvWarning, stacklevel=_level_of_the_user())


def _level_of_the_user() -> int:
    """The stack level, as seen from the caller, of the line that called into PyTorch or dwconv."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in ("dwconv", "torch"):
        level, frame = level + 1, frame.f_back
    return level
