"""Dispatch: from a workload to what runs it, dwconv's kernel or PyTorch's own op, and why.

What was measured here decides. Where nothing was, dwconv's kernel runs only if it is sure enough to be faster. Deciding
only reads the records: it builds nothing, tunes nothing, and warns of nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from dwconv import settings
from dwconv.dispatch import at_any_size, legality, loaded_packs
from dwconv.dispatch.advantage import (
    expected_again,
    is_safe,
    why_expected_faster,
    why_faster,
    why_not_expected_faster,
    why_not_faster,
)
from dwconv.dispatch.decision import DispatchDecision
from dwconv.dispatch.kernel_state import MOST_SIZES, KernelState
from dwconv.dispatch.knowledge import at_other_sizes, database, failed, inconclusive, is_computed, measured
from dwconv.errors import InvalidConfig, NoTemplate
from dwconv.kernels.operand import MOST_ELEMENTS
from dwconv.problems.as_written import tune_command
from dwconv.problems.block import NOTHING
from dwconv.problems.target import CpuTarget, Target, target_of
from dwconv.problems.workload import Workload, by
from dwconv.records.record import made_with
from dwconv.system import versions
from dwconv.untuned import gain, other_size

if TYPE_CHECKING:
    from dwconv.records.database import Database
    from dwconv.records.record import TuningRecord


def decide(workload: Workload, device: torch.device | str) -> DispatchDecision:
    """What runs ``workload`` on ``device``, from the records alone. Raises InvalidSetting."""
    return decide_on(target_of(torch.device(device)), workload)


def decide_on(
    target: Target,
    workload: Workload,
    *,
    known: Database | None = None,
    state: KernelState | None = None,
    predicts: bool | None = None,
    later: bool = False,
) -> DispatchDecision:
    """What runs ``workload`` on ``target``. ``known``: the records to read, those of this process by default.
    ``predicts``: whether unmeasured workloads may run on what is expected to be best; by default as the settings say,
    and only where kernels can be built. ``later``: such a workload stays open. Raises InvalidSetting."""
    if max(math.prod(workload.input_shape), math.prod(workload.output_shape)) > MOST_ELEMENTS:
        return on_pytorch(f"tensors of more than {MOST_ELEMENTS} elements have no kernels")
    way = _Way(
        asked=workload,
        kernel=workload,
        target=target,
        known=database() if known is None else known,
        state=KernelState() if state is None else state,
    )
    ways = [way]
    if workload.bias and workload.epilogue == "none":  # which comes after the bias
        ways.append(replace(way, kernel=replace(workload, bias=False)))
    if predicts is None:
        predicts = settings.predicts() and versions.can_build()
    deciders: list[_Decider] = [_by_measurements, _by_measured_any_size, _by_pack]
    if predicts and not workload.block:  # of which nothing is known that was not measured
        of_predictions = [_by_other_versions, _by_number_of_sizes, _by_other_size, _by_expectation]
        deciders += [_by_any_size, *([_by_nobody_yet] if later else of_predictions)]
    refusals: list[str] = []
    for decide_by in deciders:
        for way in ways:
            if decision := decide_by(way, refusals):
                return decision
    if refusals:
        reason = f"no tuned configuration is valid any more; the fastest is out: {refusals[0]}"
        return on_pytorch(reason, command=tune_command(workload))
    return _unknown(way)


@dataclass(frozen=True, kw_only=True)
class _Way:
    """A way to run a workload: a kernel for it, or for the same without a bias, and a sweep for the bias after it."""

    asked: Workload
    kernel: Workload
    target: Target
    """What the call runs on."""
    known: Database
    state: KernelState

    @property
    def sweeps(self) -> bool:
        return self.kernel.bias != self.asked.bias

    @property
    def command(self) -> str:
        return tune_command(self.asked)

    @property
    def was_inconclusive(self) -> bool:
        """True if times of a kernel that could run are known, and do not count, for other work disturbed them."""
        return any(inconclusive(each, self.target, known=self.known) for each in {self.asked, self.kernel})

    def where(self, record: TuningRecord, target: Target) -> str:
        """Said where a record was measured at another batch size, or with another number of threads, than the call
        has."""
        batch = "" if record.workload.batch == self.asked.batch else f" at batch {record.workload.batch}"
        kind = ", by a kernel of any size" if record.workload.any_size and not self.kernel.any_size else ""
        return f"{batch}{self.on_threads(target)}{kind}"

    def on_threads(self, target: Target) -> str:
        """Said where a record was measured with the number of threads of ``target``, and the call has another."""
        if not isinstance(target, CpuTarget) or target == self.target:
            return ""
        return f" on {target.threads} thread{'s' if target.threads > 1 else ''}"


_INCONCLUSIVE = "measured only while the machine was busy; convert again, with the example, when it is quiet"

_Decider = Callable[[_Way, list[str]], DispatchDecision | None]
"""What runs a workload in this way; None if that cannot be said. Adds to the list why configurations are out."""


def _by_measurements(way: _Way, refusals: list[str]) -> DispatchDecision | None:
    """What was measured with the versions installed. What is legal as it stands comes first: the time of a record is
    that of its own configuration."""
    for adopts in (False, True):
        for target, record in measured(way.kernel, way.target, current=True, known=way.known):
            out = f"; the fastest is out: {refusals[0]}" if refusals else ""
            if reason := why_not_faster(record, target, sweeps=way.sweeps):
                helps = way.sweeps and not why_not_faster(record, target, sweeps=False)
                command = _unknown(way).command if helps else ""
                where = way.where(record, target)
                return on_pytorch(
                    reason + (f", measured{where}" if where else "") + out, record=record, command=command
                )
            try:
                config, changes = legality.runnable(record, target, adopts=adopts, broken=way.state.broken)
            except InvalidConfig as error:
                refusals.append(str(error))
                continue
            out = f", as it was measured; here {changes}" if changes else out
            return DispatchDecision(
                provider="dwconv",
                reason=why_faster(record, where=way.where(record, target), sweeps=way.sweeps) + out,
                record=record,
                workload=record.workload,
                target=target,
                config=config,
            )
    return None


def _by_measured_any_size(way: _Way, refusals: list[str]) -> DispatchDecision | None:
    """The kernel of any size that was measured at the nearest other size of the layer."""
    from dwconv.schedules.template import fitting

    if way.kernel.block == NOTHING:  # there are none
        return None
    for target, record, nearest in at_any_size.measured_nearest(way.kernel, way.target, known=way.known):
        times = at_any_size.times_of(way.kernel, nearest.workload)
        where = f", measured at {by(nearest.workload.input_shape)}{way.on_threads(target)}"
        if reason := why_not_faster(nearest, target, sweeps=way.sweeps, times=times):
            return on_pytorch(f"{reason}{where} and computed for this size", record=record)
        try:
            config, _ = legality.runnable(record, target, adopts=False, broken=way.state.broken)
            if way.kernel.block or not isinstance(way.target, CpuTarget):  # images may be too large, or too many
                fitting(config.template, way.kernel.with_any_size(), target)
        except InvalidConfig as error:
            refusals.append(str(error))
            continue
        return DispatchDecision(
            provider="dwconv",
            reason=why_faster(nearest, where=f", by a kernel of any size{where}", sweeps=way.sweeps),
            record=record,
            workload=record.workload,
            target=target,
            config=config,
        )
    return None


def _by_pack(way: _Way, refusals: list[str]) -> DispatchDecision | None:
    """A kernel that was never measured, of a pack that the user has loaded all the same; or one for every layer, by
    what was measured of the layer at the nearest other size."""
    from dwconv.schedules.template import Candidate

    kernel, reason = loaded_packs.unmeasured(way.kernel, way.target), "it is from a pack, and was never measured"
    if kernel is None and (record := _of_nearest_size(way)):
        reason = f"as it was measured at {by(record.workload.input_shape)}"
        if slower := why_not_faster(record, way.target, sweeps=way.sweeps):
            return on_pytorch(f"{slower}, {reason}")
        kernel = Candidate(way.kernel, record.config)
    if kernel is None or kernel in way.state.broken:
        return None
    return DispatchDecision(
        provider="dwconv",
        reason=reason,
        workload=kernel.workload,
        target=way.target,
        config=kernel.config,
        command=way.command,
    )


def _of_nearest_size(way: _Way) -> TuningRecord | None:
    """What was measured of the layer at the nearest other size with a kernel that a pack has for every layer."""
    if not way.known.other_sizes(way.kernel, way.target.device):
        return None
    configs = loaded_packs.configs_for(way.kernel, way.target)
    found = at_other_sizes(way.kernel, way.target, known=way.known) if configs else ()
    return min(
        (record for record in found if record.config in configs),
        key=lambda record: other_size.octaves_between(record.workload, way.kernel),
        default=None,
    )


def _by_any_size(way: _Way, refusals: list[str]) -> DispatchDecision | None:
    """The kernel of any size that the layer has, if its expected gain at its own size holds here. Takes less than a
    millisecond."""
    of_layer = way.state.any_size.get((way.kernel.layer, way.target.device), ())
    if (found := at_any_size.nearest_of_any_size(of_layer, way.kernel)) is None:
        return None
    from dwconv.schedules.template import fitting

    own, expected = found.candidate.workload, found.expected
    try:
        legality.check(found.candidate, way.target, broken=way.state.broken)
        if not isinstance(way.target, CpuTarget):  # so many images
            fitting(found.candidate.config.template, way.kernel.with_any_size(), way.target)
    except InvalidConfig as error:
        return on_pytorch(f"the predicted kernel is out: {error}", expected=expected, command=way.command)
    if own.input_size != way.kernel.input_size:
        us = expected.us * way.kernel.flops / own.flops
        reason = f"{expected.reason}; the same kernel at another size"
        expected = replace(expected, us=us, reason=reason, source=by(own.input_shape))
    return _predicted(way, expected, workload=own, target=way.target)


def _by_nobody_yet(way: _Way, refusals: list[str]) -> DispatchDecision:
    """PyTorch's op, until a prediction is made."""
    reason = "untuned: PyTorch's op runs until a kernel is predicted and built, in the background, if its size recurs"
    return replace(on_pytorch(reason, command=way.command), is_open=True)


def _by_other_versions(way: _Way, refusals: list[str]) -> DispatchDecision | None:
    """What was measured here with other versions of PyTorch, TVM or the template is a prediction."""
    for adopts in (False, True):
        for target, record in measured(way.kernel, way.target, current=False, known=way.known):
            try:
                config, changes = legality.runnable(record, target, adopts=adopts, broken=way.state.broken)
            except InvalidConfig as error:
                refusals.append(str(error))
                continue
            reason = f"measured with {made_with(record, versions.installed())}{way.where(record, target)}: "
            reason += "predicted until it is raced again" + (f"; here {changes}" if changes else "")
            if expected := expected_again(record, config=config, reason=reason):
                return _predicted(way, expected, workload=record.workload, target=target, record=record)
    return None


def _by_number_of_sizes(way: _Way, refusals: list[str]) -> DispatchDecision | None:
    """PyTorch's op, if predictions were made for too many other sizes of the layer. Decided before anything is
    expected, which takes longer than a step."""
    if not way.state.has_too_many_sizes(way.asked, way.target):
        return None
    reason = f"{MOST_SIZES} other sizes of this layer were predicted, and a process predicts no more"
    return replace(on_pytorch(reason, command=way.command), too_many_sizes=True)


def _by_other_size(way: _Way, refusals: list[str]) -> DispatchDecision | None:
    """The expected gain of a layer that was measured here at other sizes: from the nearest that gives one."""
    if failed(way.kernel, way.target, known=way.known):
        return None
    expected = other_size.expected_from_nearest(
        at_other_sizes(way.kernel, way.target, known=way.known), way.kernel, way.target
    )
    return _from(expected, way) if expected else None


def _by_expectation(way: _Way, refusals: list[str]) -> DispatchDecision | None:
    """What is expected of a workload that was never measured here."""
    from dwconv.schedules.template import templates_for

    if failed(way.kernel, way.target, known=way.known):
        return None
    try:
        templates_for(way.kernel, way.target)
    except NoTemplate:
        return None
    expect = way.state.expect
    expected = (
        expect(way.kernel, way.target)
        if expect
        else gain.expected(way.kernel, way.target, way.known.bests_of_kind(way.kernel))
    )
    return _from(expected, way) if expected else None


def _from(expected: gain.Expected, way: _Way) -> DispatchDecision:
    """Runs the predicted kernel that the process has at another batch size, or the one that is expected to be best."""
    from dwconv.schedules.template import Candidate

    known = way.state.predicted.get((way.kernel.batchless_key, way.target.device))
    general = None
    if known is None and way.state.meets_several_sizes(way.kernel):
        known = general = at_any_size.of_any_size(way.kernel, expected.config, way.target)
        expected = expected if known is None else at_any_size.expected_of_any_size(expected, way.kernel, way.target)
    candidate = known or Candidate(way.kernel, expected.config)
    try:
        legality.check(candidate, way.target, broken=way.state.broken)
    except InvalidConfig as error:
        reason = f"the predicted kernel is out: {error}"
        return on_pytorch(reason, expected=expected, command=way.command)
    expected = replace(expected, config=candidate.config)
    return replace(_predicted(way, expected, workload=candidate.workload, target=way.target), any_size=general)


def _predicted(
    way: _Way, expected: gain.Expected, *, workload: Workload, target: Target, record: TuningRecord | None = None
) -> DispatchDecision:
    """dwconv's kernel for ``workload`` where what is expected makes it sure enough to be faster, else PyTorch's op."""
    if not is_safe(expected, workload, target, sweeps=way.sweeps):
        reason = why_not_expected_faster(expected, workload, target, sweeps=way.sweeps)
        if way.was_inconclusive:
            reason = f"{_INCONCLUSIVE}; {reason}"
        return on_pytorch(reason, record=record, expected=expected, command=way.command)
    return DispatchDecision(
        provider="dwconv",
        reason=why_expected_faster(expected, sweeps=way.sweeps),
        record=record,
        expected=expected,
        workload=workload,
        target=target,
        config=expected.config,
        command=way.command,
    )


def on_pytorch(
    reason: str, *, record: TuningRecord | None = None, expected: gain.Expected | None = None, command: str = ""
) -> DispatchDecision:
    return DispatchDecision(provider="pytorch", reason=reason, record=record, expected=expected, command=command)


def _unknown(way: _Way) -> DispatchDecision:
    """Nothing that was measured decides, and nothing is expected: says whether tuning could change that."""
    from dwconv.schedules.template import templates_for

    workload, target = way.asked, way.target
    if failures := failed(workload, target, known=way.known):
        latest = failures[-1]
        return on_pytorch(f"none of {len(failures)} candidates worked: {latest.detail or latest.status.value}")
    try:
        templates_for(workload, target)
    except NoTemplate as error:
        return on_pytorch(str(error))
    if not versions.can_build() and loaded_packs.configs_for(workload, target):
        return on_pytorch("no race has shown that a pack's kernel is faster; convert again, with an example")
    if not versions.can_build():
        return on_pytorch(f"no loaded pack has it, and {versions.NO_TVM}", command=tune_command(workload))
    if way.was_inconclusive:
        return on_pytorch(_INCONCLUSIVE, command=tune_command(workload))
    known = way.known.at_any_batch(workload, target.device)
    state = "only computed" if any(map(is_computed, known)) else "untuned"
    for record in known:
        if record.measured and (other := made_with(record, versions.installed())):
            state = f"measured with {other} only"
    return on_pytorch(f"{state} on {target.device}", command=tune_command(workload))
