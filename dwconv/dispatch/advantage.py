"""Advantage: is dwconv's kernel faster than PyTorch's own op, as it was measured or as it is expected, and in which
words is that said?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dwconv import native
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import EVAL_PASSES, PASSES
from dwconv.records.record import in_us
from dwconv.untuned.gain import STALE_DISCOUNT, Expected

if TYPE_CHECKING:
    from dwconv.dispatch.decision import DispatchDecision
    from dwconv.problems.problem import Problem
    from dwconv.problems.workload import Pass, Workload
    from dwconv.records.record import TuningRecord
    from dwconv.schedules.space import Config

CALL_US = 10.0
"""Time that our op adds to the kernel's own call, in Python: half of it where the caches know the interpreter, several
times as much in a training step, where PyTorch's own op takes longer too. On a GPU it is hidden behind the work
queued."""
BLOCK_IN_PYTHON_US = 320.0
"""What a training step of a block takes without a C++ compiler, besides what is measured of both sides, more than one
of its parts one by one: 316 µs on two cores of an AMD EPYC (family 25 model 17) beside other work. With one it takes
no more: 0 to 17 µs less there."""
BLOCK_EVAL_IN_PYTHON_US = 100.0
"""In evaluation: 99 µs there."""
HOST_IN_PYTHON_US = 250.0
"""What a layer on the road through Python takes of the host in a training step on a GPU: 171 to 202 µs on an H200,
where all of its passes are dwconv's, PyTorch's op 87 to 107 (``python -m bench cuda host``). Where some are PyTorch's,
it pays for both: 55 to 175 µs more than PyTorch's op alone, on the stand-in for a GPU, whose launches cost nothing. On
the road through C++ no mixture takes more there than PyTorch's op with its 194 µs: 94 to 198, and 24 without a pass of
PyTorch's."""
TRANSPOSED_SHARE = 0.5
"""What PyTorch's transposed convolution takes of the time of its dgrad, at least, with a stride in channels_last: 0.52
to 1.0 in 1-D and 2-D on a core of an AMD EPYC (family 26 model 2). Contiguous and in 3-D it takes as long."""
MIXED_TRANSPOSED_US = 40.0
"""What a transposed layer on a CPU, of which some passes are kernels' and some PyTorch's op's, takes more of the host
in a training step than PyTorch's op alone: it goes through Python, and calls PyTorch's op besides."""
AS_FAST = 1.03
"""Times as long as its parts that a block takes at most which is as fast: such a difference is hardly seen in a
step."""
_OF_CALL = " for the call"
_BIAS = ", with a sweep for the bias"


# -- as it was measured ------------------------------------------------------------------------------------------------


def beats_pytorch(record: TuningRecord, target: Target) -> bool:
    """True if a call would run the candidate rather than PyTorch's op, by the times that were measured."""
    return record.measured and not why_not_faster(record, target, sweeps=False)


def why_not_faster(
    record: TuningRecord, target: Target, *, sweeps: bool, times: float = 1.0, share: float = 1.0
) -> str | None:
    """Why PyTorch's op should run rather than the candidate; None if the candidate is faster.

    ``sweeps``: the candidate leaves a bias to a sweep of its own. PyTorch's op does not, and may take longer with a
    bias than it was measured to take without: that is left uncounted. ``times``: how many times as long as measured
    both take. ``share``: of the time of the op that was measured, what another one of PyTorch's takes, which would run.
    """
    other = record.alternative
    if other is None:
        return "no PyTorch op was measured beside it"
    if record.settled:
        return _why_settled(record)
    if record.workload.epilogue == "silu_gradient":
        return None  # PyTorch's has z from its forward pass: it is judged with that, ``are_faster_together``
    ours_us, others_us = _median_us(record) * times, other[1].median_us * times * share
    added_us = _added_us(ours_us, record.workload, target, sweeps=sweeps)
    if ours_us + sum(added_us.values()) < others_us:
        return None
    sums = " + ".join(f"{in_us(taken_us)}{what}" for what, taken_us in {"": ours_us, **added_us}.items())
    whose = other[0] if share == 1 else "PyTorch's transposed convolution"
    return f"{whose} is faster: {in_us(others_us)}, dwconv {sums}"


def _why_settled(record: TuningRecord) -> str:
    assert record.alternative is not None and record.interval is not None, "it was timed beside PyTorch's op"
    low, high = record.interval
    return f"{record.alternative[0]} stays: dwconv was {low:.2f} to {high:.2f} times as fast beside other work"


def why_not_transposed(decision: DispatchDecision, target: Target, *, sweeps: bool) -> str:
    """Why PyTorch's transposed convolution should run rather than the kernel of a decision, its dgrad, to whose result
    a sweep of its own adds a bias, if it ``sweeps``; empty if the kernel still is faster."""
    expected, workload, record = decision.expected, decision.workload, decision.record
    if decision.provider != "dwconv":
        return ""
    if expected and workload:
        share = _transposed_share(workload, target)
        least = dataclasses.replace(expected, gain=share * expected.gain, at_least=share * expected.at_least)
        is_slower = not is_safe(least, workload, target, sweeps=sweeps)
        return why_not_expected_faster(least, workload, target, sweeps=sweeps) if is_slower else ""
    if record is None or record.alternative is None:
        return ""
    share = _transposed_share(record.workload, target)
    if record.transposed and not record.contended:
        share = min(1.0, record.transposed.median_us / record.alternative[1].median_us)
    return why_not_faster(record, target, sweeps=sweeps, share=share) or ""


def _transposed_share(workload: Workload, target: Target) -> float:
    """What PyTorch's transposed convolution may take of the time of its dgrad, where it was not measured."""
    is_apart = isinstance(target, CpuTarget) and workload.layout == "nhwc" and workload.axes == 2
    return TRANSPOSED_SHARE if is_apart and max(workload.stride) > 1 else 1.0


def least_times(record: TuningRecord, target: Target, *, sweeps: bool) -> float:
    """How many times as long as measured both must take, at least, for the candidate to be faster by
    ``why_not_faster``; infinite if it never is."""
    if record.workload.epilogue == "silu_gradient":
        return 0.0
    ours_us = _median_us(record)
    added_us = _added_us(ours_us, record.workload, target, sweeps=sweeps)
    call_us = added_us.pop(_OF_CALL, 0.0)
    won_us = _alternative_us(record) - ours_us - sum(added_us.values())
    return call_us / won_us if won_us > 0 else math.inf


def are_faster_together(forward: TuningRecord, gradient: TuningRecord) -> bool:
    """True if a forward pass with an activation and the activation's gradient take less time together than PyTorch's
    ops. Alone, PyTorch's gradient is at an advantage: its forward pass has kept what ours computes again."""
    others = [record.alternative for record in (forward, gradient)]
    ours_us = sum(_median_us(record) + CALL_US for record in (forward, gradient))
    return all(others) and ours_us < sum(other[1].median_us for other in others if other)


def why_not_faster_as_one(
    block: Sequence[TuningRecord], convolution: Sequence[TuningRecord], target: Target, *, saves_memory: bool = False
) -> str:
    """Why a block should not run as one; empty if it should. ``block``: the records of its passes; ``convolution``:
    those of the passes of the convolution in it that run on dwconv's kernels where the block is not one.
    ``saves_memory``: being as fast is enough."""
    trains = all(record.workload.pass_ not in EVAL_PASSES for record in block)
    added_us = block_us(trains=trains) if isinstance(target, CpuTarget) else 0.0
    ours_us = sum(map(_median_us, block)) + added_us
    others_us = one_by_one_us(block, convolution, target, passes=len(PASSES) if trains else 1)
    if ours_us < others_us * (AS_FAST if saves_memory else 1.0):
        return ""
    reason = f"one after the other is faster, with the tuned convolution: {in_us(others_us)}, as one {in_us(ours_us)}"
    return reason + (f" with {in_us(added_us)} in Python" if added_us else "")


def why_faster_at_once(both: TuningRecord, apart: Sequence[tuple[TuningRecord, bool]], target: Target) -> str:
    """How long both gradients take in one kernel, and apart; empty unless one kernel takes less time. ``both``: its
    record; ``apart``: those of dgrad and wgrad, and whether dwconv's kernel runs the pass, or PyTorch's op. What was
    measured elsewhere, or at another size, compares with nothing."""
    for each, is_ours in apart:
        alike = each.workload.input_shape == both.workload.input_shape and each.device == both.device
        if not alike or not (is_ours or each.alternative):
            return ""
    call_us = CALL_US if isinstance(target, CpuTarget) else 0.0
    apart_us = sum(_median_us(each) + call_us if is_ours else _alternative_us(each) for each, is_ours in apart)
    ours_us = _median_us(both) + call_us
    return f"both gradients in one kernel: {in_us(ours_us)}, apart {in_us(apart_us)}" if ours_us < apart_us else ""


def why_not_beside_host(
    decisions: Mapping[Pass, DispatchDecision], problem: Problem, target: Target, *, in_python: bool = False
) -> str:
    """Why a layer should run on PyTorch's op although kernels are faster; empty if it should not. On a GPU a step may
    wait for the host: where PyTorch's own kernels take less time than the host does, faster ones win nothing.
    ``in_python``: C++ takes no calls of the layer."""
    known_us = {pass_: us for pass_, each in decisions.items() if (us := _pytorch_us(each)) is not None}
    if known_us.keys() >= {"dgrad", "wgrad"}:
        known_us.pop("backward", None)
    pytorch_us = sum(known_us.values())
    if isinstance(target, CpuTarget) or not known_us or pytorch_us >= HOST_IN_PYTHON_US:
        return ""
    ours = {pass_ for pass_, each in decisions.items() if each.provider == "dwconv"}
    ours |= {"dgrad", "wgrad"} if "backward" in ours else set()
    is_mixed = not ours.issuperset(problem.passes)
    is_simple = problem.padding[::2] == problem.padding[1::2] and not problem.workload("fprop").is_row
    if not ours or (native.is_expected() and not in_python and (is_simple or not is_mixed)):
        return ""
    mixed = "a layer of which some passes are PyTorch's" if is_mixed else "it"
    return (
        f"the host is slower: through Python {mixed} takes {in_us(HOST_IN_PYTHON_US)} of it, PyTorch's kernels "
        f"{in_us(pytorch_us)} of the GPU"
    )


def why_not_mixed(decisions: Mapping[Pass, DispatchDecision], problem: Problem, target: Target) -> str:
    """Why a transposed layer of which some passes are PyTorch's should run on its op in all; empty if it should not.
    What is not known to save little may save enough."""
    ours = {pass_: each for pass_, each in decisions.items() if each.provider == "dwconv"}
    if not isinstance(target, CpuTarget) or not ours or ours.keys() >= {*problem.passes}:
        return ""
    if any(_pytorch_us(each) is None for each in ours.values()):
        return ""
    saved_us = sum(map(saves_us, ours.values()))
    if saved_us > MIXED_TRANSPOSED_US:
        return ""
    return (
        f"the host is slower: a transposed layer of which some passes are PyTorch's takes "
        f"{in_us(MIXED_TRANSPOSED_US)} more of it, kernels save {in_us(saved_us)}"
    )


def _pytorch_us(decision: DispatchDecision) -> float | None:
    """What PyTorch's op takes of the device; None if that is not known."""
    record, expected = decision.record, decision.expected
    if expected:
        return expected.us * expected.gain
    return record.alternative[1].median_us if record and record.alternative else None


def one_by_one_us(
    block: Sequence[TuningRecord], convolution: Sequence[TuningRecord], target: Target, *, passes: int
) -> float:
    """What a block is measured to take where it is not one: the ops around the convolution, and its tuned passes. Where
    not all of this was measured, at least what was; or what PyTorch's ops of the whole block take without what the
    tuned passes win: a small difference of large times, if PyTorch's convolution is slow."""
    least_us = _least_one_by_one_us(block, convolution, target, passes=passes)
    if least_us and len(convolution) == passes:
        return least_us
    won_us = sum(max(0.0, _alternative_us(record) - _median_us(record)) for record in convolution)
    return max(least_us, sum(map(_alternative_us, block)) - won_us)


def is_one_in_any_case(block: Sequence[TuningRecord], target: Target) -> bool:
    """Whether a block in training runs as one however fast the convolution in it is: that takes less time than the ops
    around the convolution, and the calls of what takes none. ``block``: the records of its passes."""
    ours_us = sum(map(_median_us, block)) + block_us(trains=True)
    return ours_us < _least_one_by_one_us(block, [], target, passes=len(PASSES))


def _least_one_by_one_us(
    block: Sequence[TuningRecord], convolution: Sequence[TuningRecord], target: Target, *, passes: int
) -> float:
    """The ops around the convolution, the passes of it that are known, and the calls of all; 0 where the ops around it
    were not measured."""
    around = [record.around.median_us for record in block if record.around]
    if len(around) < len(block):
        return 0.0
    calls_us = passes * CALL_US if isinstance(target, CpuTarget) else 0.0
    return sum(around) + sum(map(_median_us, convolution)) + calls_us


def block_us(*, trains: bool) -> float:
    """What is added to what a block is measured to take, on a CPU."""
    if native.is_expected():
        return 0.0
    return BLOCK_IN_PYTHON_US if trains else BLOCK_EVAL_IN_PYTHON_US


def why_faster(record: TuningRecord, *, where: str, sweeps: bool) -> str:
    """How much faster the candidate was measured to be, of a record for which there is no ``why_not_faster``.
    ``where``: what was different from the call, as `` at batch 8``."""
    other = record.alternative
    assert other is not None, "only what is faster than PyTorch's op has such words"
    ours_us = kernel_us(record, sweeps=sweeps)
    times = f"{other[1].median_us / ours_us:.2f}× as fast as {other[0]}"
    busy = ", measured while the machine was busy" if record.contended else ""
    return f"{'at least ' if busy else ''}{times}{where}{_BIAS if sweeps else ''}{busy}"


def kernel_us(record: TuningRecord, *, sweeps: bool) -> float:
    """The candidate's time, with the sweep for the bias, if it takes one."""
    ours_us = _median_us(record)
    return ours_us + (_sweep_us(ours_us, record.workload) if sweeps else 0.0)


def saves_us(decision: DispatchDecision) -> float:
    """What a call of the kernel that was decided takes less than PyTorch's op, as it was measured or is expected; 0.0
    where PyTorch's op runs, or where nothing is known."""
    pytorch_us = _pytorch_us(decision)
    if decision.provider != "dwconv" or pytorch_us is None:
        return 0.0
    if decision.expected:
        return pytorch_us - decision.expected.us
    assert decision.record is not None, "what PyTorch's op takes was known from it"
    return pytorch_us - _median_us(decision.record)


# -- as it is expected -------------------------------------------------------------------------------------------------


def expected_again(record: TuningRecord, *, config: Config, reason: str) -> Expected | None:
    """What is expected of a record of this device that is not current: about what it says; None if no op of PyTorch was
    measured beside it. ``config``: the record's, or the legal one that is nearest; ``reason``: what differs now."""
    other = record.alternative
    if other is None:
        return None
    gain = other[1].median_us / _median_us(record)
    return Expected(config=config, us=_median_us(record), gain=gain, at_least=gain / STALE_DISCOUNT, reason=reason)


def is_safe(expected: Expected, workload: Workload, target: Target, *, sweeps: bool) -> bool:
    """True if even the gain that 95 of 100 cases exceed leaves the kernel for ``workload`` faster than PyTorch's op,
    with all that is added to the kernel's time. ``sweeps`` is as for ``why_not_faster``."""
    saved_us, added_us = _at_least_us(expected, workload, target, sweeps=sweeps)
    return saved_us > sum(added_us.values())


def why_expected_faster(expected: Expected, *, sweeps: bool) -> str:
    """Said where the kernel runs without having been measured here."""
    likely, least = f"{_times(expected.gain)} as fast as PyTorch's op", _times(expected.at_least)
    source = f" from {expected.source}" if expected.source else ""
    return (
        f"predicted{source}: {likely}, at least {least} in 95 of 100 cases{_BIAS if sweeps else ''} ({expected.reason})"
    )


def why_not_expected_faster(expected: Expected, workload: Workload, target: Target, *, sweeps: bool) -> str:
    """Said where PyTorch's op runs, because the kernel is not ``is_safe``: with the two times that decided, where the
    kernel alone is sure to be faster."""
    said = f"predicted {_times(expected.gain)}" + (f" from {expected.source}" if expected.source else "")
    if expected.at_least > 1:
        saved_us, added_us = _at_least_us(expected, workload, target, sweeps=sweeps)
        takes = " + ".join(f"{in_us(taken_us)}{what}" for what, taken_us in added_us.items())
        said += f", at least {_times(expected.at_least)}, which saves {in_us(saved_us)} and takes {takes}"
    elif expected.gain > 1:
        said += f", but perhaps only {_times(expected.at_least)}"
    return f"{said}: PyTorch's op runs until it is measured ({expected.reason})"


def _at_least_us(
    expected: Expected, workload: Workload, target: Target, *, sweeps: bool
) -> tuple[float, dict[str, float]]:
    """What the kernel saves in 95 of 100 cases, if anything, and what is added to its time, by what it is for."""
    if expected.at_least <= 0:
        return -math.inf, {}
    pytorch_us = expected.us * expected.gain
    ours_us = pytorch_us / expected.at_least
    return pytorch_us - ours_us, _added_us(ours_us, workload, target, sweeps=sweeps)


def _times(gain: float) -> str:
    return f"{gain:.1f}×" if gain >= 2 else f"{gain:.2f}×"


# -- times -------------------------------------------------------------------------------------------------------------


def _added_us(kernel_us: float, workload: Workload, target: Target, *, sweeps: bool) -> dict[str, float]:
    """What a call of the kernel takes besides the kernel's own time, by what it is for."""
    added_us = {}
    if sweeps:
        added_us[" for the bias"] = _sweep_us(kernel_us, workload)
    if isinstance(target, CpuTarget):
        added_us[_OF_CALL] = CALL_US
    return added_us


def _sweep_us(kernel_us: float, workload: Workload) -> float:
    """At most what a bias takes after the kernel: reading and writing y again, or summing up dy, which is no faster,
    at the bandwidth that the kernel itself reached. After dgrad, of a transposed convolution, it is added to dx."""
    of_x, of_y = math.prod(workload.input_shape), math.prod(workload.output_shape)
    swept, moved = of_x if workload.pass_ == "dgrad" else of_y, of_x + of_y
    return kernel_us * 2 * swept / moved


def _alternative_us(record: TuningRecord) -> float:
    assert record.alternative is not None, "only for what was measured beside PyTorch's op"
    return record.alternative[1].median_us


def _median_us(record: TuningRecord) -> float:
    assert record.measurement is not None, "only measured records are ranked"
    return record.measurement.median_us
