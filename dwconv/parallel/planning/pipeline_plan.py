"""A plan of pipeline × data parallelism, as plain data: contiguous stages of layers, and how many ranks run each.

It needs neither torch nor a clock: partitions can be computed, tested and simulated for any number of devices.

The order in which a rank runs the passes of its stages and microbatches has a name: those of
torch.distributed.pipelining, ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B and ScheduleInterleavedZeroBubble.
Where stages have different numbers of replicas, as many microbatches are in flight as keep the stages after busy.

    2 + 1 ranks      rank 0   F0 F2 B0 B2          microbatch m of the batch goes to replica m mod r of a stage of r:
                     rank 1   F1 F3 B1 B3          each replica of the first stage has a share of the batch
            stage 1  rank 2   F0 B0 F1 B1 F2 B2 F3 B3
"""

from __future__ import annotations

import itertools
import math
from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from dwconv.errors import NoPlan, one_line
from dwconv.system.new_file import replace_file

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
_From1 = Annotated[int, msgspec.Meta(ge=1)]


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
    split_us: float = 0.0
    """What dgrad and, later, wgrad take beyond both in one pass."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """A connection between two ranks."""

    gb_s: Annotated[float, msgspec.Meta(gt=0)]
    """Bandwidth in 10⁹ bytes a second, of messages one way at a time."""
    latency_us: Annotated[float, msgspec.Meta(ge=0)]
    both_ways_gb_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Of each way while a rank sends and receives at once; None: as much as one way alone."""
    summing_us_a_mb: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """What a sum over ranks takes longer than its messages, for each 10⁶ bytes that a rank sends: copies, additions."""
    crowding_us_a_mb: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """What such a sum takes from the computing of its ranks, likewise: its threads may need the cores that compute."""

    @property
    def at_once(self) -> Link:
        """The link as it is to a rank that sends and receives at once."""
        return replace(self, gb_s=self.both_ways_gb_s or self.gb_s, both_ways_gb_s=None)

    def at(self, gb_s: float) -> Link:
        """One like it, of this bandwidth."""
        both = self.both_ways_gb_s
        return replace(self, gb_s=gb_s, both_ways_gb_s=None if both is None else gb_s * both / self.gb_s)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Layers ``first`` to ``last`` (``last`` excluded), run by ``replicas`` ranks that share out the microbatches."""

    first: int
    last: int
    replicas: _From1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Stages that together hold every layer once, in order."""

    layers: tuple[LayerCost, ...]
    stages: tuple[Stage, ...]
    microbatches: _From1
    """Microbatches a rank's share of the batch is cut into; where replicas differ, that of a rank of the first
    stage."""
    schedule: str
    """``gpipe``, ``1f1b``, ``interleaved`` or ``zero-bubble``; with one stage it does not matter."""
    link: Link
    stages_per_rank: _From1 = 1
    """More than one for ``interleaved``: of p groups of ranks, group g runs the stages g, g + p, g + 2p, …; their
    replicas are the same ranks."""

    @property
    def groups(self) -> int:
        """Groups of ranks, each of which runs the same stages: as many as stages if a rank runs one."""
        return len(self.stages) // self.stages_per_rank

    @property
    def replicas(self) -> int:
        """Of the first stage; of each, unless they differ."""
        return self.stages[0].replicas

    @property
    def counts(self) -> tuple[int, ...]:
        """The replicas of each group of ranks."""
        return tuple(stage.replicas for stage in self.stages[: self.groups])

    @property
    def is_even(self) -> bool:
        """True if every stage has as many replicas: ranks are a grid, pipeline × data."""
        return len(set(self.counts)) == 1

    @property
    def world(self) -> int:
        """Ranks in all."""
        return sum(self.counts)

    @property
    def parts(self) -> int:
        """Microbatches of the whole batch."""
        return self.microbatches * self.replicas

    def ranks(self, group: int) -> range:
        """The ranks of a group: one replica after the other."""
        first = sum(self.counts[:group])
        return range(first, first + self.counts[group])

    def place(self, rank: int) -> tuple[int, int]:
        """The group of a rank, and which of its replicas it is."""
        group = next(group for group in range(self.groups) if rank in self.ranks(group))
        return group, rank - self.ranks(group).start

    def runs(self, group: int, replica: int) -> range:
        """The microbatches of the whole batch that a rank runs, by number."""
        return range(replica, self.parts, self.counts[group])

    def rank_of(self, stage: int, microbatch: int) -> int:
        """The rank that runs a microbatch of the whole batch through a stage."""
        group = stage % self.groups
        return self.ranks(group)[microbatch % self.counts[group]]

    @property
    def on(self) -> str:
        """For people: how ranks are divided, such as ``2 × 2`` or ``2 + 1``."""
        return f"{self.groups} × {self.replicas}" if self.is_even else " + ".join(map(str, self.counts))


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
    """Raises NoPlan unless its stages hold every layer once, in order, and each rank has a microbatch."""
    check_schedule(plan.schedule)
    ends = [stage.last for stage in plan.stages]
    holds_all = ends and ends[-1] == len(plan.layers) and [stage.first for stage in plan.stages] == [0, *ends[:-1]]
    if not holds_all or any(stage.first >= stage.last for stage in plan.stages):
        raise NoPlan(f"its stages do not hold each of its {len(plan.layers)} layers once, in order")
    if len(plan.stages) % plan.stages_per_rank:
        raise NoPlan(f"{len(plan.stages)} stages are not {plan.stages_per_rank} for each rank")
    counts = [stage.replicas for stage in plan.stages]
    if plan.stages_per_rank > 1 and len(set(counts)) > 1:
        raise NoPlan("its stages have different numbers of replicas, and a rank runs several of them")
    if plan.parts < max(counts):
        raise NoPlan(f"{plan.parts} microbatches are fewer than the {max(counts)} replicas of a stage")


# -- prices: a stage by its layers, and a message by its link ----------------------------------------------------------


FREE_LINK = Link(gb_s=math.inf, latency_us=0.0)
"""A link that costs nothing."""
COPIES_OF_PARAMETERS = 3
"""A rank holds three numbers for each parameter: the value, its gradient, and the momentum of the optimizer."""
BUCKET_BYTES = 25 * 2**20
"""Gradients that plain data parallelism sums at a time: DistributedDataParallel's own size."""
_BYTES_A_US = 1e3
"""At one gigabyte a second."""
_BYTES_OF_A_MB = 1e6


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
    split_us: float
    """Of a wgrad apart from its dgrad, beyond ``wgrad_us``. The first stage has no dgrad to send: it splits nothing."""


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
        split_us=sum(layer.split_us for layer in own) if first else 0.0,
    )


def transfer_us(link: Link, size_bytes: int) -> float:
    """The time from one rank to another."""
    return link.latency_us + size_bytes / (link.gb_s * _BYTES_A_US)


def sum_us(link: Link, size_bytes: float, *, ranks: int) -> float:
    """The time to sum over ``ranks`` what each of them has, around a ring: each sends and receives a share in each
    of 2 (ranks − 1) rounds. No less than what it takes from computing."""
    rounds, both = 2 * (ranks - 1), link.at_once
    share_us = (
        size_bytes / ranks / (both.gb_s * _BYTES_A_US) + size_bytes / ranks * link.summing_us_a_mb / _BYTES_OF_A_MB
    )
    return max(rounds * (both.latency_us + share_us), crowding_us(link, size_bytes, ranks=ranks))


def crowding_us(link: Link, size_bytes: float, *, ranks: int) -> float:
    """The computing time that each of the ranks loses meanwhile."""
    return 2 * (ranks - 1) * size_bytes / ranks * link.crowding_us_a_mb / _BYTES_OF_A_MB


def bucket_sizes(layers: Sequence[LayerCost]) -> list[int]:
    """The bytes of gradients that plain data parallelism begins to sum once it has those of each layer: buckets fill
    from the last layer to the first."""
    sizes, waiting = [0] * len(layers), 0
    for number in reversed(range(len(layers))):
        waiting += layers[number].parameter_bytes
        if waiting >= BUCKET_BYTES or number == 0:
            sizes[number], waiting = waiting, 0
    return sizes


# -- in which order a rank runs passes -----------------------------------------------------------------------------


class Action(NamedTuple):
    """A pass of one microbatch through one stage."""

    what: Literal["forward", "backward", "dgrad", "wgrad"]
    """``backward``: both gradients; dgrad and wgrad apart where the weights' can wait, in ``zero-bubble``."""
    stage: int
    microbatch: int
    """Numbered over those that this rank runs."""


def why_not(plan: Plan) -> str:
    """Why its schedule does not fit its microbatches; empty if it does. With one stage every schedule does."""
    groups, microbatches = plan.groups, plan.microbatches
    if len(plan.stages) == 1:
        return ""
    if not plan.is_even:
        return "interleaved needs as many replicas of each stage" if plan.schedule == "interleaved" else ""
    if plan.schedule == "1f1b" and microbatches < groups:
        return f"1f1b needs at least as many microbatches as stages: {microbatches} are fewer than {groups}"
    rounds = max(1, microbatches // groups)
    if plan.schedule in ("interleaved", "zero-bubble") and microbatches % rounds:
        return (
            f"{plan.schedule} runs {microbatches} microbatches in {rounds} rounds of {groups} ranks, which does not "
            "divide evenly"
        )
    return ""


def actions(plan: Plan, group: int, replica: int = 0) -> list[Action]:
    """The passes of a rank, in order. Raises NoPlan for an unknown schedule."""
    check_schedule(plan.schedule)
    count = len(plan.runs(group, replica))
    forwards, backwards = (_passes(plan, group, what=what, count=count) for what in ("forward", "backward"))
    after, again = warmup(plan, group), (plan.stages_per_rank - 1) * _round(plan)
    if plan.schedule == "gpipe":
        return [*forwards, *backwards]
    if plan.schedule == "1f1b":
        return _one_by_one(forwards, backwards, warmup=after)
    if plan.schedule == "interleaved":
        return _one_by_one(forwards, backwards, warmup=again + 2 * after)
    return _apart(_one_by_one(forwards, backwards, warmup=again + after), lag=lag(plan, group))


def warmup(plan: Plan, group: int) -> int:
    """Forward passes of a rank before those that take turns with backward passes, with one stage a rank: enough for the
    first backward pass of every rank of the group after, so that no rank waits for another in a circle."""
    counts, before = plan.counts, 0
    for after in reversed(range(group, plan.groups)):
        before = math.ceil(counts[after + 1] * (before + 1) / counts[after]) if after + 1 < plan.groups else 0
    return before


def lag(plan: Plan, group: int) -> int:
    """By how many backward passes wgrad comes later, in ``zero-bubble``: those that the groups before have to run."""
    return math.ceil(sum(plan.counts[:group]) / plan.counts[group])


def _round(plan: Plan) -> int:
    """Microbatches that go through one of a rank's stages before its next stage has its turn."""
    return max(1, plan.microbatches // max(1, plan.microbatches // plan.groups))


def _passes(plan: Plan, group: int, *, what: Literal["forward", "backward"], count: int) -> list[Action]:
    """All passes of one kind, in order, of ``count`` microbatches."""
    found = []
    for first in range(0, count, _round(plan)):
        for turn in range(plan.stages_per_rank):
            position = turn if what == "forward" else plan.stages_per_rank - 1 - turn
            for microbatch in range(first, min(first + _round(plan), count)):
                found.append(Action(what=what, stage=position * plan.groups + group, microbatch=microbatch))
    return found


def _one_by_one(forwards: Sequence[Action], backwards: Sequence[Action], *, warmup: int) -> list[Action]:
    """Some forward passes, then one forward and one backward in turns."""
    warmup = min(warmup, len(forwards))
    pairs = itertools.zip_longest(forwards[warmup:], backwards)
    return [*forwards[:warmup], *(action for pair in pairs for action in pair if action)]


def _apart(order: Sequence[Action], *, lag: int) -> list[Action]:
    """``order`` with dgrad and wgrad apart: each wgrad comes ``lag`` backward passes later, or at the end."""
    found: list[Action] = []
    waiting: list[Action] = []
    for action in order:
        if action.what == "forward":
            found.append(action)
            continue
        found.append(action._replace(what="dgrad"))
        waiting.append(action._replace(what="wgrad"))
        if len(waiting) > lag:
            found.append(waiting.pop(0))
    return [*found, *waiting]
