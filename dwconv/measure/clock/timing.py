"""Time calls in rounds, in turns with the calls they are compared to.

A disturbance of the machine then affects all of them alike. A round is many calls, so that reading the clock costs
nothing, and the median over the rounds ignores rounds that were interrupted. On a busy machine there are more and
shorter rounds, which fit between two interruptions, and only the uncontended ones are kept.

A timed call finds the caches as the call before left them, as a training step leaves them, or empty. In a training step
the layer before has just written what a kernel reads, the result goes to memory that was last used long ago, and the
input that was saved for the weight gradient has left the cache. A kernel that is the fastest on warm memory need not be
the fastest there.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from dwconv.measure.clock import contention
from dwconv.problems.target import Target
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.records.record import CONTENDED, Measurement
from dwconv.system.memory import free_bytes

Call = Callable[[], object]

_LEAST_ROUNDS = 3
_LEAST_OF_CONTENDED = 5
"""Uncontended rounds to keep if others were contended."""
_SHORTEST_ROUND_S = 0.0003
"""A scheduler lets a thread run for milliseconds, so some rounds of this length fit between two interruptions."""
_TRIES = 5
_UNSURE = 0.01


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much time to spend on timing."""

    round_s: float
    """A round takes at least this long, on a quiet machine."""
    rounds: int
    """Enough uncontended rounds of each call."""
    budget_s: float
    """After this time the rounds so far must do, if there are three."""
    patience_s: float = 0.0
    """Extra time if too few rounds were uncontended."""
    turns: int = 0
    """So many turns are taken if too few rounds were uncontended even then, which ``Taken.at_least`` reports."""
    turns_s: float = 0.0
    """At most so long."""


# For one trial, for the finalists, for the few known candidates of a race, and for a first impression.
TRIAL = Effort(round_s=0.002, rounds=15, budget_s=0.15, patience_s=0.45)
FINAL = Effort(round_s=0.004, rounds=31, budget_s=1.5, patience_s=4.0)
RACE = Effort(round_s=0.001, rounds=9, budget_s=0.1, patience_s=0.2, turns=20, turns_s=1.5)
GLANCE = Effort(round_s=0.001, rounds=5, budget_s=0.05, patience_s=0.25)


@dataclass(frozen=True, kw_only=True)
class Lap:
    """Some calls in a row; of a round, the time of one call."""

    seconds: float
    lost: float = 0.0
    """The share of this time that other work took from us. A parallel kernel waits for its slowest thread, which may be
    milliseconds if that thread has no core."""

    @property
    def contended(self) -> bool:
        return self.lost > CONTENDED


class Clock(Protocol):
    """Times calls that run on a device."""

    def ready(self, call: Call) -> Call:
        """Make a call ready for laps, once for many laps. A call that is ready stays as it is."""
        ...

    def lap(self, call: Call, *, times: int) -> Lap: ...

    def enough(self, effort: Effort) -> Effort:
        """As much of ``effort`` as this clock needs."""
        ...

    def overall(self) -> Callable[[], float]:
        """Watch the machine from now on. The returned function gives the share of the time since then that other work
        took, by signs that are too coarse for a single lap."""
        ...


class CpuClock:
    """The wall clock, for kernels that run on PyTorch's threads. ``oversubscribed`` says that this process has more
    threads than cores; by default it has as many as PyTorch now uses."""

    def __init__(self, *, oversubscribed: bool | None = None) -> None:
        # Our own threads waiting for each other look like other work taking their cores.
        if oversubscribed is None:
            oversubscribed = bool(contention.oversubscription(torch.get_num_threads()))
        self._oversubscribed = oversubscribed

    def ready(self, call: Call) -> Call:
        return call

    def lap(self, call: Call, *, times: int) -> Lap:
        before = contention.read()
        started = time.perf_counter()
        for _ in range(times):
            call()
        seconds = time.perf_counter() - started
        after = contention.read()
        return Lap(seconds=seconds, lost=0.0 if self._oversubscribed else contention.lost(before, after))

    def enough(self, effort: Effort) -> Effort:
        return effort

    def overall(self) -> Callable[[], float]:
        before = contention.load()
        return lambda: contention.lost_to_the_machine(before, contention.load(), oversubscribed=self._oversubscribed)


class InTurn:
    """Makes one of several calls, in turn, and holds on to the last results, so that the next ones go to other
    memory."""

    def __init__(self, calls: Sequence[Call], *, held: int) -> None:
        self._calls = tuple(calls)
        self._next = 0
        self._held: deque[object] = deque(maxlen=held)
        self.turns = max(len(self._calls), held + 1)
        """After so many calls everything repeats."""

    def __call__(self) -> None:
        self._held.append(self._calls[self._next]())
        self._next = (self._next + 1) % len(self._calls)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What some calls took, and the rounds that say so."""

    measurements: dict[str, Measurement]
    rounds_us: dict[str, tuple[float, ...]]
    """Microseconds per call, as many rounds of each call. Those at one place are of one turn, unless so few turns were
    uncontended that rounds were kept one by one."""
    turns_us: dict[str, tuple[float, ...]]
    """Times of all rounds, contended ones too: those at one place are of one turn."""

    def at_least(self, slower: str, faster: str) -> float:
        """How many times as long as ``faster`` the call ``slower`` takes, at least: the median over all turns is larger
        with a certainty of 99 %. Other work that takes rounds of both calls alike does not change it. 0 if the turns
        are too few to decide."""
        ratios = sorted(a / b for a, b in zip(self.turns_us[slower], self.turns_us[faster], strict=True))
        place, chance = -1, 0.0
        while (chance := chance + math.comb(len(ratios), place + 1) / 2 ** len(ratios)) <= _UNSURE:
            place += 1
        return ratios[place] if place >= 0 else 0.0


def time_in_turns(
    calls: Mapping[str, Call], *, clock: Clock, effort: Effort, hopeless_above_us: float | None = None
) -> dict[str, Measurement]:
    """The measurements of ``rounds_in_turns``."""
    return rounds_in_turns(calls, clock=clock, effort=effort, hopeless_above_us=hopeless_above_us).measurements


def rounds_in_turns(
    calls: Mapping[str, Call], *, clock: Clock, effort: Effort, hopeless_above_us: float | None = None
) -> Taken:
    """Measure ``calls`` round by round, in turns: A B B A A B …, so that a machine that gets slower or faster does so
    for all of them alike, and each comes as often before the others as after them.

    Contended rounds are set aside, the same ones for all calls, if enough others are left; ``Measurement.contention``
    is that of the kept ones. Ends early if the first of ``calls`` is clearly slower than
    ``hopeless_above_us`` in its uncontended rounds."""
    effort = clock.enough(effort)
    started = time.perf_counter()
    overall_lost = clock.overall()
    turns = _Turns(calls, clock=clock, round_s=effort.round_s)
    while True:
        turns.take()
        if turns.uncontended >= effort.rounds:
            break
        if turns.count < _LEAST_ROUNDS:
            continue
        if hopeless_above_us is not None and turns.first_is_slower_than(hopeless_above_us):
            break
        taken_s = time.perf_counter() - started
        may_end = turns.suffice or turns.count >= effort.turns or taken_s > effort.turns_s
        if may_end and taken_s > effort.budget_s + (0.0 if turns.suffice else effort.patience_s):
            break
    lost = overall_lost()
    kept = turns.kept()
    return Taken(
        measurements={
            name: Measurement.of(
                [each.seconds * 1e6 for each in rounds],
                contention=max(lost, statistics.mean(each.lost for each in rounds)),
            )
            for name, rounds in kept.items()
        },
        rounds_us={name: tuple(each.seconds * 1e6 for each in rounds) for name, rounds in kept.items()},
        turns_us=turns.all_us(),
    )


class _Turns:
    """Rounds of some calls, in turns."""

    def __init__(self, calls: Mapping[str, Call], *, clock: Clock, round_s: float) -> None:
        self._calls = {name: clock.ready(call) for name, call in calls.items()}
        self._clock = clock
        self._usual_round_s = self._round_s = round_s
        self._least_s = {name: self._warm_up(call) for name, call in self._calls.items()}
        self._turns: list[dict[str, Lap]] = []
        self.uncontended = 0
        """Turns in which no round was contended."""

    @property
    def count(self) -> int:
        return len(self._turns)

    @property
    def _least(self) -> int:
        """How many uncontended rounds each call needs."""
        return _LEAST_ROUNDS if self.uncontended == self.count else _LEAST_OF_CONTENDED

    @property
    def suffice(self) -> bool:
        """True if there are enough uncontended rounds of each call."""
        return min(self._uncontended_rounds(name) for name in self._calls) >= self._least

    def take(self) -> None:
        """Take a round of each call, in every second turn from the last call to the first."""
        names = list(self._calls)
        turn = {name: self._round(name) for name in (names[::-1] if self.count % 2 else names)}
        self._turns.append(turn)
        self.uncontended += not any(round_.contended for round_ in turn.values())
        if self.count >= _LEAST_ROUNDS and 2 * self.uncontended < self.count:
            self._round_s = min(self._round_s, max(self._round_s / 2, _SHORTEST_ROUND_S))

    def first_is_slower_than(self, us: float) -> bool:
        """True if all uncontended rounds of the first call are slower; False if there are too few to decide."""
        first = next(iter(self._calls))
        uncontended_s = [turn[first].seconds for turn in self._turns if not turn[first].contended]
        return len(uncontended_s) >= _LEAST_ROUNDS and min(uncontended_s) * 1e6 > us

    def kept(self) -> dict[str, list[Lap]]:
        """The uncontended turns. If they are too few, equally many uncontended rounds of each call; if even those are
        too few, the least contended quarter of all rounds."""
        if self.uncontended >= self._least:
            uncontended = [turn for turn in self._turns if not any(round_.contended for round_ in turn.values())]
            return {name: [turn[name] for turn in uncontended] for name in self._calls}
        count = min(self._uncontended_rounds(name) for name in self._calls)
        if count < self._least:
            count = max(self._least, self.count // 4)
        return {
            name: sorted((turn[name] for turn in self._turns), key=lambda round_: round_.lost)[:count]
            for name in self._calls
        }

    def all_us(self) -> dict[str, tuple[float, ...]]:
        return {name: tuple(turn[name].seconds * 1e6 for turn in self._turns) for name in self._calls}

    def _uncontended_rounds(self, name: str) -> int:
        return sum(not turn[name].contended for turn in self._turns)

    def _warm_up(self, call: Call) -> float:
        """The seconds of one call, roughly."""
        call()
        laps = []
        for _ in range(_TRIES):
            laps.append(self._clock.lap(call, times=1))
            if not laps[-1].contended:  # a contended lap may have taken any time
                break
        once_s = max(min(lap.seconds for lap in laps), 1e-7)
        if once_s < self._round_s:  # a single short call is mostly clock and cold caches
            times = math.ceil(self._round_s / 2 / once_s)
            once_s = min(once_s, max(self._clock.lap(call, times=times).seconds / times, 1e-7))
        return once_s

    def _round(self, name: str) -> Lap:
        call = self._calls[name]
        if self._least_s[name] < self._usual_round_s:
            call()  # fill the caches, which the call before has used; if one call fills a round, that hardly matters
        times = max(1, math.ceil(self._round_s / self._least_s[name]))
        lap = self._clock.lap(call, times=times)
        self._least_s[name] = max(min(self._least_s[name], lap.seconds / times), 1e-7)
        return dataclasses.replace(lap, seconds=lap.seconds / times)


_CLEAR, _SLOWER = 1.2, 1.0
"""Times as fast as PyTorch's op from which on a kernel counts as faster beside other work, in all turns but few; and
PyTorch's op as the faster one."""


def clearly_faster(
    taken: Taken, kernels: Sequence[str], others: Iterable[str], *, parts: Iterable[str] = ()
) -> dict[str, Measurement]:
    """Beside other work times say little, but turns say which call is the faster one. Where the fastest of ``kernels``
    is faster than all ``others``: its least time, and for the others, and for ``parts`` of what they do, as many times
    that as their turns make sure. Where one of the others is faster than all kernels: the same the other way round,
    without the parts. Empty where nothing disturbed them, and where it is not clear."""
    times = taken.measurements
    if not kernels or max(each.contention for each in times.values()) <= CONTENDED:
        return {}
    others = list(others)
    least_us = {name: min(taken.turns_us[name]) for name in taken.turns_us}
    fastest = min(kernels, key=least_us.__getitem__)
    found = {name: least_us[name] for name in kernels}
    sure = {name: taken.at_least(name, fastest) for name in others}
    if sure and min(sure.values()) >= _CLEAR:
        sure |= {name: taken.at_least(name, fastest) for name in parts}
        found |= {name: ratio * least_us[fastest] for name, ratio in sure.items()}
        return {name: dataclasses.replace(times[name], median_us=us) for name, us in found.items()}
    for name in sorted(others, key=least_us.__getitem__):
        slower = {kernel: taken.at_least(kernel, name) for kernel in kernels}
        if min(slower.values()) > _SLOWER:
            found = {other: least_us[other] for other in others}
            found |= {kernel: ratio * least_us[name] for kernel, ratio in slower.items()}
            return {each: dataclasses.replace(times[each], median_us=us) for each, us in found.items()}
    return {}


Caches = Literal["warm", "training", "cold"]
"""``warm``: the same tensors again and again. ``training``: as a training step does. ``cold``: always others."""
TIMES_THE_CACHE = 2
"""Copies of the tensors fill so many times the last cache."""
MOST_TENSORS = 512
"""But there are no more copies of each."""


def inputs_in_turn(
    workload: Workload, inputs: tuple[torch.Tensor, ...], *, caches: Caches, target: Target
) -> list[tuple[torch.Tensor, ...]]:
    """The inputs; and as many copies as drive each other from the last cache: of all of them, or of one that a pass
    reads long after it was saved."""
    if caches == "cold":
        count = _count(sum(tensor.nbytes for tensor in inputs), target)
        return [inputs, *(tuple(tensor.clone() for tensor in inputs) for _ in range(count - 1))]
    if caches == "warm" or workload.pass_ != "wgrad":
        return [inputs]
    saved, *others = inputs
    return [inputs, *((saved.clone(), *others) for _ in range(_count(saved.nbytes, target) - 1))]


def results_held(workload: Workload, *, caches: Caches, target: Target) -> int:
    """How many results to hold on to. Weight gradients are small, and overwritten in every step."""
    if caches == "warm" or workload.pass_ == "wgrad":
        return 0
    result_bytes = math.prod(workload.shape_of(workload.results[0])) * ITEMSIZE[workload.dtype]
    return _count(result_bytes, target)


def _count(tensor_bytes: int, target: Target) -> int:
    """How many tensors of that size drive each other from the last cache."""
    largest_bytes = target.cache_bytes + target.others_cache_bytes
    room = min(TIMES_THE_CACHE * largest_bytes, free_bytes(target.kind) // 8)
    return max(1, min(MOST_TENSORS, math.ceil(room / tensor_bytes)))
