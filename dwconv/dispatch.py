"""Dispatch: from a call to what runs it, a tuned kernel or PyTorch's own op, and why.

Deciding only reads the records: it builds nothing, tunes nothing, and warns of nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import torch

from dwconv import legality
from dwconv.arguments import workload_options
from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.problem import Problem
from dwconv.records.database import Database
from dwconv.records.record import Status
from dwconv.target import CpuTarget, Target, cpu_target, cuda_target
from dwconv.workload import DTYPES, PASSES, Pass, Workload

if TYPE_CHECKING:
    from dwconv.records.record import Measurement, TuningRecord
    from dwconv.schedules.space import Config

Provider = Literal["dwconv", "pytorch"]
MOST_ELEMENTS = 2**31 - 1
"""Kernels index their tensors with 32 bits."""
CALL_US = 10.0
"""Time that our op adds to the kernel's own call, in Python: half of it where the caches know the interpreter, several
times as much in a training step, where PyTorch's own op takes longer too. On a GPU it is hidden behind the work
queued."""


@dataclass(frozen=True, kw_only=True)
class DispatchDecision:
    """Who runs a workload, and why."""

    provider: Provider
    reason: str
    record: TuningRecord | None = None
    """The best that is known of the workload, also where PyTorch's own op is faster."""
    target: Target | None = None
    """The target that the record's kernel is built for; on a CPU perhaps with another number of threads than PyTorch
    uses now."""
    config: Config | None = None
    """The configuration that the kernel is built with: the record's, or the legal one that is nearest to it."""
    command: str = ""
    """The command that tunes it; empty unless nothing is known, or only of kernels without the bias, and tuning can
    change that."""

    def __str__(self) -> str:
        return f"{self.provider}: {self.reason}" + (f"; tune it: {self.command}" if self.command else "")


# -- deciding ------------------------------------------------------------------------------------------------------


def decide(workload: Workload, device: torch.device | str) -> DispatchDecision:
    """Who runs ``workload`` on ``device``, from the records alone."""
    return _decide(workload, target_of(torch.device(device)))


def decisions(problem: Problem, device: torch.device) -> tuple[dict[Pass, DispatchDecision], Target | None]:
    """Who runs each pass of ``problem`` on ``device``; and the target, None where there can be no kernels."""
    if reason := why_no_kernels(problem, device):
        return dict.fromkeys(PASSES, _pytorch(reason)), None
    target = target_of(device)
    return {pass_: _decide(problem.workload(pass_), target) for pass_ in PASSES}, target


def why_no_kernels(problem: Problem, device: torch.device) -> str:
    """Why no pass of ``problem`` can have kernels; empty if it may."""
    if device.type not in ("cpu", "cuda"):
        return f"dwconv has no kernels for {device.type}"
    if problem.dtype_name not in DTYPES:
        return f"dwconv has no kernels for {problem.dtype_name}"
    return "there is nothing to compute" if 0 in problem.input_shape else ""


def _decide(workload: Workload, target: Target) -> DispatchDecision:
    if max(math.prod(workload.input_shape), math.prod(workload.output_shape)) > MOST_ELEMENTS:
        return _pytorch(f"tensors of more than {MOST_ELEMENTS} elements have no kernels")
    refusals: list[str] = []
    decision = _decide_by_records(workload, target, refusals=refusals)
    if decision is None and workload.bias:
        without = dataclasses.replace(workload, bias=False)
        decision = _decide_by_records(without, target, refusals=refusals, sweep_for=workload)
    if decision is None and refusals:
        reason = f"no tuned configuration is legal any more; the fastest is out: {refusals[0]}"
        decision = _pytorch(reason, command=tune_command(workload))
    return decision or _unknown(workload, target)


def _decide_by_records(
    workload: Workload, asked: Target, *, refusals: list[str], sweep_for: Workload | None = None
) -> DispatchDecision | None:
    """Who runs ``workload``; None if nothing was measured that can run here. ``sweep_for``: the same with a bias, which
    a kernel without one runs too, with a sweep for the bias after it. Adds to ``refusals`` why records are out.

    What is legal as it stands comes first: the time of a record is that of its own configuration."""
    sweeps = sweep_for is not None
    for adopts in (False, True):
        for target, record in _measured(workload, asked):
            out = f"; the fastest is out: {refusals[0]}" if refusals else ""
            if reason := _why_not_faster(record, target, sweeps=sweeps):
                helps = sweep_for is not None and not _why_not_faster(record, target, sweeps=False)
                command = _unknown(sweep_for, asked).command if sweep_for is not None and helps else ""
                return _pytorch(reason + out, record=record, command=command)
            try:
                config, changes = legality.runnable(record, target, adopts=adopts)
            except InvalidConfig as error:
                refusals.append(str(error))
                continue
            out = f", as it was measured; here {changes}" if changes else out
            reason = _praise(record, workload, sweeps=sweeps) + _on_threads(target, asked) + out
            return DispatchDecision(provider="dwconv", reason=reason, record=record, target=target, config=config)
    return None


def _measured(workload: Workload, target: Target) -> Iterator[tuple[Target, TuningRecord]]:
    """The records that may decide, those that count most first, with what they were measured on: ``target``, then the
    same CPU with other numbers of threads, the nearest first; a kernel runs on as many threads as PyTorch uses,
    whatever it was tuned for. On each of them all batch sizes, the nearest first."""
    others: list[CpuTarget] = []
    if isinstance(target, CpuTarget):
        names = (device for device in database().devices(workload) if device != target.device)
        others = [other for name in names if (other := target.named(name)) is not None]
        others.sort(key=lambda other: (abs(math.log(other.threads / target.threads)), -other.threads))
    for one in (target, *others):
        for records in database().ranked_by_batch(workload, one.device):
            yield from ((one, record) for record in records)


def _pytorch(reason: str, *, record: TuningRecord | None = None, command: str = "") -> DispatchDecision:
    return DispatchDecision(provider="pytorch", reason=reason, record=record, command=command)


def _unknown(workload: Workload, target: Target) -> DispatchDecision:
    """Nothing was measured. Imports TVM, to say whether tuning could change that."""
    from dwconv.schedules.template import templates_for

    known = database().family(workload, target.device)
    if failed := [record for record in known if record.status is not Status.OK]:
        return _pytorch(f"none of {len(failed)} candidates worked: {failed[-1].detail or failed[-1].status.value}")
    try:
        templates_for(workload, target)
    except NoTemplate as error:
        return _pytorch(str(error))
    state = "only predicted" if known else "untuned"
    return _pytorch(f"{state} on {target.device}", command=tune_command(workload))


def alternative(record: TuningRecord) -> tuple[str, Measurement] | None:
    """PyTorch's op as it would run instead of the candidate: in the workload's own layout, if that was measured.

    The baseline of a record is PyTorch's better layout; but a call has the layout it has, and changing it costs a copy.
    """
    own = {name: taken for name, taken in record.providers.items() if name.endswith(f"-{record.workload.layout}")}
    return min(own.items(), key=lambda item: item[1].median_us, default=record.baseline)


def beats_pytorch(record: TuningRecord, target: Target) -> bool:
    """True if a call would run the candidate rather than PyTorch's op, by the times that were measured."""
    return record.measured and not _why_not_faster(record, target, sweeps=False)


def _why_not_faster(record: TuningRecord, target: Target, *, sweeps: bool) -> str | None:
    """Why PyTorch's op should run rather than the candidate; None if the candidate is faster.

    ``sweeps``: the candidate leaves a bias to a sweep of its own. PyTorch's op does not, and may take longer with a
    bias than it was measured to take without: that is left uncounted."""
    other = alternative(record)
    if other is None:
        return "no PyTorch op was measured beside it"
    ours = {"": _median_us(record)}
    if sweeps:
        ours[" for the bias"] = _sweep_us(record)
    if target.kind == "cpu":
        ours[" for the call"] = CALL_US
    if sum(ours.values()) < other[1].median_us:
        return None
    sums = " + ".join(f"{in_us(taken_us)}{what}" for what, taken_us in ours.items())
    return f"{other[0]} is faster: {in_us(other[1].median_us)}, dwconv {sums}"


def _sweep_us(record: TuningRecord) -> float:
    """At most what a bias takes after the kernel: reading and writing y again, or summing up dy, which is no faster,
    at the bandwidth that the kernel itself reached."""
    swept = math.prod(record.workload.output_shape)
    moved = swept + math.prod(record.workload.input_shape)
    return _median_us(record) * 2 * swept / moved


def _praise(record: TuningRecord, workload: Workload, *, sweeps: bool) -> str:
    other = alternative(record)
    assert other is not None, "only what is faster than PyTorch's op is praised"
    where = "" if record.workload.batch == workload.batch else f" at batch {record.workload.batch}"
    ours_us = _median_us(record) + (_sweep_us(record) if sweeps else 0.0)
    bias = ", with a sweep for the bias" if sweeps else ""
    return f"{other[1].median_us / ours_us:.2f}× as fast as {other[0]}{where}{bias}"


def _on_threads(target: Target, asked: Target) -> str:
    """Said where it was measured with another number of threads than the call has."""
    if not isinstance(target, CpuTarget) or target == asked:
        return ""
    return f" on {target.threads} thread{'s' if target.threads > 1 else ''}"


def _median_us(record: TuningRecord) -> float:
    assert record.measurement is not None, "only measured records are ranked"
    return record.measurement.median_us


def tune_command(workload: Workload, passes: Sequence[Pass] | None = None) -> str:
    """The command that tunes ``workload``, or several of its passes."""
    return f"python -m dwconv.tune {workload_options(workload)} --passes {','.join(passes or [workload.pass_])}"


# -- what is known ---------------------------------------------------------------------------------------------------


@cache
def database() -> Database:
    """The records of this process, read when they are first needed."""
    return Database.usual()


def target_of(device: torch.device) -> Target:
    """The target of a PyTorch device: a CPU (with as many threads as PyTorch uses now) or a GPU."""
    if device.type == "cpu":
        return cpu_target()
    with torch.cuda.device(device):
        return cuda_target()


def in_us(time_us: float) -> str:
    """A time as people read it: ``7.3 µs``, ``1240 µs``."""
    return f"{time_us:.0f} µs" if time_us >= 100 else f"{time_us:.1f} µs"
