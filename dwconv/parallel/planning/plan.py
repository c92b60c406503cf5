"""A plan of pipeline × data parallelism, as plain data: contiguous stages of layers, and how many ranks run each.

It needs neither torch nor a clock: partitions can be computed, tested and simulated for any number of devices.

The order in which a rank runs the passes of its stages and microbatches has a name: those of
torch.distributed.pipelining, ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B and ScheduleInterleavedZeroBubble.
They cannot run replicas that differ from stage to stage: for these as many microbatches are in flight as keep the
following ranks busy.
"""

from __future__ import annotations

import itertools
import math
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from dwconv.errors import NoPlan, one_line
from dwconv.system.new_file import replace_file

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """One layer of the sequence that a model is cut into, for one microbatch."""

    name: str
    forward_us: float
    dgrad_us: float
    wgrad_us: float
    """Gradients of its parameters; 0 for a layer without parameters."""
    output_bytes: int
    """The result, which the next layer reads: sent between ranks where a stage ends here; its gradient, as large, comes
    back."""
    saved_bytes: int
    """Kept from the forward pass of one microbatch for its backward pass."""
    parameter_bytes: int


@dataclass(frozen=True, kw_only=True)
class Link:
    """A connection between two ranks."""

    gb_s: float
    """Bandwidth in 10⁹ bytes a second, each way."""
    latency_us: float


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Layers ``first`` to ``last`` (``last`` excluded), run by ``replicas`` ranks that share out the batch."""

    first: int
    last: int
    replicas: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Stages that together hold every layer once, in order."""

    layers: tuple[LayerCost, ...]
    stages: tuple[Stage, ...]
    microbatches: int
    """Microbatches a rank's share of the batch is cut into; where replicas differ, a rank's of the first stage."""
    schedule: str
    """``gpipe``, ``1f1b``, ``interleaved`` or ``zero-bubble``; with one stage it does not matter."""
    link: Link
    stages_per_rank: int = 1
    """More than one for ``interleaved``: of p groups of ranks, group g runs the stages g, g + p, g + 2p, …; their
    replicas are the same ranks."""

    @property
    def groups(self) -> int:
        """Groups of ranks, each of which runs the same stages: as many as stages if a rank runs one."""
        return len(self.stages) // self.stages_per_rank

    @property
    def world(self) -> int:
        """Ranks in all."""
        return sum(stage.replicas for stage in self.stages[: self.groups])

    @property
    def is_even(self) -> bool:
        """True if every stage has as many replicas, as a DeviceMesh pipeline × data has: it can be run."""
        return len({stage.replicas for stage in self.stages}) == 1


def check_schedule(schedule: str) -> None:
    """Raises NoPlan if it is unknown."""
    if schedule not in SCHEDULES:
        raise NoPlan(f"schedule={schedule} is unknown; use one of {', '.join(SCHEDULES)}")


# -- plans in files: data only, checked when it is read ----------------------------------------------------------------


def write_plan(plan: Plan, path: Path) -> None:
    """Write ``plan`` to a file. Raises NoPlan if it cannot be written."""
    try:
        replace_file(path, [msgspec.json.format(msgspec.json.encode(plan), indent=1), b"\n"], durable=False)
    except OSError as error:
        raise NoPlan(f"plan={path} cannot be written: {error.strerror}; name another file") from None


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises NoPlan if there is none, or if it is not whole."""
    try:
        plan = msgspec.json.decode(path.read_bytes().removeprefix(BOM_UTF8), type=Plan)
        check_plan(plan)
    except OSError as error:
        raise NoPlan(f"plan={path} cannot be read: {error.strerror}; {_WAY_OUT}") from None
    except (msgspec.DecodeError, NoPlan) as error:
        raise NoPlan(f"plan={path} is not a plan: {one_line(str(error))}; {_WAY_OUT}") from None
    return plan


_WAY_OUT = "write one with python -m dwconv.parallel plan --json FILE"


def check_plan(plan: Plan) -> None:
    """Raises NoPlan unless its stages hold every layer once, in order, and its numbers make sense."""
    check_schedule(plan.schedule)
    bounds = [0, *(stage.last for stage in plan.stages)]
    if not plan.stages or bounds[-1] != len(plan.layers) or any(one >= other for one, other in pairwise(bounds)):
        raise NoPlan(f"its stages do not hold each of its {len(plan.layers)} layers once")
    if [stage.first for stage in plan.stages] != bounds[:-1]:
        raise NoPlan("a stage does not begin where the one before ends")
    if min(stage.replicas for stage in plan.stages) < 1 or plan.microbatches < 1:
        raise NoPlan("replicas and microbatches are at least 1")
    if plan.stages_per_rank < 1 or len(plan.stages) % plan.stages_per_rank:
        raise NoPlan(f"{len(plan.stages)} stages are not {plan.stages_per_rank} for each rank")
    if plan.stages_per_rank > 1 and not plan.is_even:
        raise NoPlan("with several stages a rank, all have as many replicas")
    if not (plan.link.gb_s > 0 and 0 <= plan.link.latency_us < math.inf):
        raise NoPlan(f"a link of {plan.link.gb_s:g} GB/s and {plan.link.latency_us:g} µs carries nothing")


# -- prices: a stage by its layers, and a message by its link ----------------------------------------------------------


FREE_LINK = Link(gb_s=math.inf, latency_us=0.0)
"""A link that costs nothing."""
COPIES_OF_PARAMETERS = 3
"""A rank holds three numbers for each parameter: the value, its gradient, and the momentum of the optimizer."""
BUCKET_BYTES = 25 * 2**20
"""Gradients that plain data parallelism sums at a time: DistributedDataParallel's own size."""
_BYTES_A_US = 1e3
"""At one gigabyte a second."""


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """One stage, for one microbatch."""

    forward_us: float
    dgrad_us: float
    wgrad_us: float
    input_bytes: int
    """Received from the stage before: nothing in the first one, which reads the data."""
    output_bytes: int
    kept_bytes: int
    """From the forward pass to the backward pass: what it received, and what its layers save."""
    parameter_bytes: int


def stage_cost(layers: Sequence[LayerCost], *, first: int, last: int) -> StageCost:
    """The cost of layers ``first`` to ``last``, ``last`` excluded."""
    own = layers[first:last]
    input_bytes = layers[first - 1].output_bytes if first else 0
    return StageCost(
        forward_us=sum(layer.forward_us for layer in own),
        dgrad_us=sum(layer.dgrad_us for layer in own),
        wgrad_us=sum(layer.wgrad_us for layer in own),
        input_bytes=input_bytes,
        output_bytes=own[-1].output_bytes,
        kept_bytes=input_bytes + sum(layer.saved_bytes for layer in own),
        parameter_bytes=sum(layer.parameter_bytes for layer in own),
    )


def transfer_us(link: Link, size_bytes: int) -> float:
    """The time from one rank to another."""
    return link.latency_us + size_bytes / (link.gb_s * _BYTES_A_US)


def sum_us(link: Link, size_bytes: float, *, ranks: int) -> float:
    """The time to sum over ``ranks`` what each of them has, around a ring: each sends and receives a share in each
    of 2 (ranks − 1) rounds."""
    rounds = 2 * (ranks - 1)
    return rounds * (link.latency_us + size_bytes / ranks / (link.gb_s * _BYTES_A_US))


class Bucket(NamedTuple):
    """Gradients that are summed at a time."""

    ready_us: float
    """When they are there, from the beginning of the backward pass of the last microbatch."""
    size_bytes: int


def buckets(layers: Sequence[LayerCost]) -> list[Bucket]:
    """The buckets of plain data parallelism, which fill from the last layer to the first."""
    found: list[Bucket] = []
    passed_us, waiting_bytes = 0.0, 0
    for layer in reversed(layers):
        passed_us += layer.dgrad_us + layer.wgrad_us
        waiting_bytes += layer.parameter_bytes
        if waiting_bytes >= BUCKET_BYTES:
            found.append(Bucket(ready_us=passed_us, size_bytes=waiting_bytes))
            waiting_bytes = 0
    if waiting_bytes:
        found.append(Bucket(ready_us=passed_us, size_bytes=waiting_bytes))
    return found


# -- in which order a rank runs passes -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Action:
    """A pass of one microbatch through one stage."""

    what: Literal["forward", "backward", "dgrad", "wgrad"]
    """``backward``: both gradients; dgrad and wgrad apart where the weights' can wait, in ``zero-bubble``."""
    stage: int
    microbatch: int
    """Numbered over those that this rank runs."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """One group of ranks in a pipeline, and how much it runs."""

    group: int
    groups: int
    stages_per_rank: int
    microbatches: int
    """Those of one rank."""
    ahead: int
    """Microbatches that may be on their way from here to the last stage and back, this group's own included."""
    behind: int
    """The same for the groups before this one, without its own."""


def place_of(plan: Plan, *, group: int, replica: int = 0) -> Place:
    """The place of one rank of ``plan``."""
    replicas = [stage.replicas for stage in plan.stages[: plan.groups]]
    return Place(
        group=group,
        groups=plan.groups,
        stages_per_rank=plan.stages_per_rank,
        microbatches=len(range(replica, plan.microbatches * replicas[0], replicas[group])),
        ahead=math.ceil(sum(replicas[group:]) / replicas[group]),
        behind=math.ceil(sum(replicas[:group]) / replicas[group]),
    )


def why_not(plan: Plan) -> str:
    """Why its schedule does not fit its microbatches; empty if it does. With one stage every schedule does."""
    groups, microbatches = plan.groups, plan.microbatches
    if len(plan.stages) == 1:
        return ""
    if plan.schedule == "1f1b" and microbatches < groups:
        return f"1f1b needs at least as many microbatches as stages: {microbatches} are fewer than {groups}"
    rounds = max(1, microbatches // groups)
    if plan.schedule in ("interleaved", "zero-bubble") and microbatches % rounds:
        return (
            f"{plan.schedule} runs {microbatches} microbatches in {rounds} rounds of {groups} ranks, which does not "
            "divide evenly"
        )
    return ""


def actions(schedule: str, place: Place) -> list[Action]:
    """The passes that a rank runs, in order. Raises NoPlan for an unknown schedule."""
    check_schedule(schedule)
    if schedule == "gpipe":
        return [*_passes(place, what="forward"), *_passes(place, what="backward")]
    if schedule == "1f1b":
        return _one_by_one(place, warmup=place.ahead - 1)
    before = (place.stages_per_rank - 1) * _round(place)
    if schedule == "interleaved":
        return _one_by_one(place, warmup=before + 2 * (place.ahead - 1))
    return _apart(_one_by_one(place, warmup=before + place.ahead - 1), lag=place.behind)


def _round(place: Place) -> int:
    """Microbatches that go through one of a rank's stages before its next stage has its turn."""
    return max(1, place.microbatches // max(1, place.microbatches // place.groups))


def _stage_order(place: Place) -> list[int]:
    """By number of forward pass, the position of the stage among the rank's."""
    turns = range(math.ceil(place.microbatches / _round(place)) * place.stages_per_rank)
    positions = [turn % place.stages_per_rank for turn in turns for _ in range(_round(place))]
    return positions[: place.microbatches * place.stages_per_rank]


def _passes(place: Place, *, what: Literal["forward", "backward"]) -> list[Action]:
    """All passes of one kind, in order."""
    seen: Counter[int] = Counter()
    found = []
    for position in _stage_order(place):
        stage = position if what == "forward" else place.stages_per_rank - 1 - position
        found.append(Action(what=what, stage=stage * place.groups + place.group, microbatch=seen[stage]))
        seen[stage] += 1
    return found


def _one_by_one(place: Place, *, warmup: int) -> list[Action]:
    """Some forward passes, then one forward and one backward in turns."""
    forwards, backwards = _passes(place, what="forward"), _passes(place, what="backward")
    warmup = min(warmup, len(forwards))
    pairs = itertools.zip_longest(forwards[warmup:], backwards)
    return [*forwards[:warmup], *(action for pair in pairs for action in pair if action)]


def _apart(order: Sequence[Action], *, lag: int) -> list[Action]:
    """The same with dgrad and wgrad apart: each wgrad comes ``lag`` backward passes later, or at the end."""
    found: list[Action] = []
    waiting: list[Action] = []
    for action in order:
        if action.what == "forward":
            found.append(action)
            continue
        found.append(Action(what="dgrad", stage=action.stage, microbatch=action.microbatch))
        waiting.append(Action(what="wgrad", stage=action.stage, microbatch=action.microbatch))
        if len(waiting) > lag:
            found.append(waiting.pop(0))
    return [*found, *waiting]
