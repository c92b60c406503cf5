"""Choosing a way for the gradients, by measurement: every rank times the same steps, and all come to the same choice.

    the default's buckets    steps without communication, and by all-reduce, also compressed, in turns
    each other bucket size   steps without communication, and by all-reduce
    best size first          all other ways, likewise
    finals                   the two best and DistributedDataParallel's default, in turns

What is chosen beats the default in three of four rounds of the finals; else the default stays. Where steps take too
long for that, there are finals alone: of the first ways, as many as there is time for.

All of that is planned by how long steps take at first. Other work may make them slower: once the time is up, no step
begins any more on any rank.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dwconv.discovery.step import ExampleStep, outputs_in
from dwconv.discovery.unchanged import unchanged
from dwconv.errors import InvalidChoice
from dwconv.parallel.data.bucket_spans import BucketSpans, in_a_step
from dwconv.parallel.data.sending import wrapped
from dwconv.parallel.data.ways import Communication, CommunicationReport, WayTimes
from dwconv.parallel.data.ways_to_try import Compression, gradient_bytes, sent_as_bytes, worth_trying
from dwconv.parallel.joining import TimeLimit

DEFAULT = Communication()
_LOCAL = "no communication"
_WARM_UP = 2
"""Steps of a new wrapper: from the second one on it fills its buckets in the order of the gradients. One more with
PowerSGD, which begins then."""
_ROUNDS = (3, 15)
"""At least, and at most."""
_SPAN_ROUNDS = 2
"""Steps of the default that note when buckets are sent."""
_SHARE_OF_FINALS = 0.3
"""Of the time."""
_FINALISTS, _LEAST_ROUNDS_OF_FINALS = 2, 4
_SLOW_S, _ROUNDS_OF_SLOW = 1.0, 3
"""A step that takes longer needs one to warm up, and fewer rounds: what differs between ways is far above the noise."""
_ALWAYS_S = 10.0
"""What takes no longer is measured, whatever the time."""

Loss = Callable[[Any], Tensor]
"""From what the model returns."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A model and its example among the ranks of a group."""

    model: nn.Module
    example: ExampleStep
    loss: Loss | None
    """None: the mean of all outputs."""
    group: dist.ProcessGroup
    options: dict[str, Any]
    """Of DistributedDataParallel."""
    compression: Compression
    seconds: float

    def step(self, model: nn.Module) -> None:
        """One forward and backward pass of ``model``, which may be wrapped. The gradients are dropped."""
        with torch.enable_grad():
            outputs = model(*self.example.positional, **self.example.keywords)
            if self.loss is not None:
                self.loss(outputs).backward()  # type: ignore[no-untyped-call]
            elif found := outputs_in(outputs):
                torch.autograd.backward(found, [torch.full_like(each, 1 / max(each.numel(), 1)) for each in found])
            else:
                raise InvalidChoice(
                    f"no output of {type(self.example.model).__name__} requires a gradient; "
                    "give loss=, a function from what the model returns to a loss"
                )
        self.model.zero_grad(set_to_none=True)


def choose(contest: Contest) -> CommunicationReport:
    """Measure, and report the choice. The model, its gradients, buffers and the random numbers are what they were."""
    with unchanged(contest.model, contest.example.tensors):
        return _Choosing(contest).report()


class _Choosing:
    """One measurement, from the first step to the choice."""

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._world = dist.get_world_size(contest.group)
        self._device = next(contest.model.parameters()).device
        self._step(contest.model)  # builds what is built for the first step
        seconds = max(contest.seconds, _ALWAYS_S)
        self._limit = TimeLimit(seconds, group=contest.group, device=self._device)
        self._rounds = 0
        self._local_s = self._default_s = 0.0
        """Of a step without communication, and of the default, about."""
        self._local_us: list[float] = []
        self._rows: list[WayTimes] = []

    def report(self) -> CommunicationReport:
        contest = self._contest
        megabytes = gradient_bytes(contest.model) / 2**20
        by_size = worth_trying(megabytes, world=self._world, compression=contest.compression)
        self._look()
        first = list(filter(_is_first, by_size[0]))
        least_s = self._cost_s(first, rounds=_ROUNDS[0]) + self._cost_s([DEFAULT], rounds=_SPAN_ROUNDS)
        least_s += self._cost_s([DEFAULT] * (1 + _FINALISTS), rounds=_LEAST_ROUNDS_OF_FINALS)
        if self._limit.elapsed_s() + least_s > self._limit.seconds:
            return self._of_few(first, [way for ways in by_size for way in ways])
        count = sum(map(len, by_size))
        left: list[Communication] = []
        for first in by_size:
            left += self._unless_time_is_up(list(filter(_is_first, first)), of=count)
        plain = [row.communication for row in self._best_first() if _is_plain(row.communication)]
        sizes = [way.bucket_mb for way in plain]
        for others in sorted(by_size, key=lambda ways: _place_of(ways[0].bucket_mb, sizes)):
            left += self._unless_time_is_up([way for way in others if not _is_first(way)], of=count)
        return self._after_finals(self._so_far(left))

    def _so_far(self, left: Sequence[Communication]) -> CommunicationReport:
        """What was measured, without a choice."""
        taken = f"a step takes {self._default_s:.1f} s, so " if self._default_s > _SLOW_S else ""
        return CommunicationReport(
            chosen=DEFAULT,
            reason=f"{taken}there was no time to measure another way",
            world=self._world,
            gradient_bytes=gradient_bytes(self._contest.model),
            local_us=statistics.median(self._local_us or [1e6 * self._local_s]),
            rows=tuple(self._rows),
            left=tuple(left),
        )

    # -- where steps are slow ------------------------------------------------------------------------------------------

    def _of_few(self, first: Sequence[Communication], all_ways: Sequence[Communication]) -> CommunicationReport:
        """The choice among as many of the first ways as there is time for: their only turns are the finals."""
        ways = [DEFAULT]
        for way in first[1:]:
            needed_s = self._cost_s([*ways, way], rounds=_ROUNDS_OF_SLOW)
            if self._limit.elapsed_s() + needed_s <= self._limit.seconds:
                ways.append(way)
        seconds: dict[str, list[float]] = {}
        if len(ways) > 1:
            spans = {way: BucketSpans() if self._device.type == "cpu" else None for way in ways if way != DEFAULT}
            with self._steps(ways, spans) as steps:
                seconds = self._turns(steps, rounds=_ROUNDS_OF_SLOW)
            self._note(ways, seconds, spans)
        measured = [row.communication for row in self._rows]
        found = self._so_far([way for way in all_ways if way not in (DEFAULT, *measured)])
        return _decided(found, seconds, measured[1:]) if len(measured) > 1 else found

    def _look(self) -> None:
        """How long steps take, about: one of each. Afterwards all ranks have the parameters of the first."""
        try:
            default = wrapped(self._contest.model, DEFAULT, **self._contest.options)
            steps = {_LOCAL: partial(self._step, self._contest.model), str(DEFAULT): partial(self._step, default)}
            seconds = self._turns(steps, rounds=1)
            if seconds[_LOCAL]:
                self._local_s, self._default_s = seconds[_LOCAL][0], seconds[str(DEFAULT)][0]
        finally:
            del default, steps
            gc.collect()

    def _cost_s(self, ways: Sequence[Communication], *, rounds: int) -> float:
        """Of steps of these ways in turns, with what warms them up: by what each sends, on a link that sets the pace.
        PowerSGD warms up with whole gradients."""
        whole_bytes, local_s = gradient_bytes(self._contest.model), min(self._local_s, self._default_s)
        cost_s = (1 + rounds) * local_s
        for way in ways:
            share = sent_as_bytes(self._contest.model, way) / whole_bytes
            step_s = local_s + share * (self._default_s - local_s)
            warm_up_s = step_s if way.powersgd_rank is None else self._default_s
            cost_s += rounds * step_s + self._warm_up(way) * warm_up_s
        return cost_s

    # -- ways of one bucket size ---------------------------------------------------------------------------------------

    def _unless_time_is_up(self, ways: Sequence[Communication], *, of: int) -> Sequence[Communication]:
        """Measures ways of one bucket size, and returns those that there was no time for. ``of``: how many ways there
        are in all, which the time is shared out to."""
        if not ways or (self._rows and not self._fits(len(ways))):
            return ways
        spans = {way: BucketSpans() if self._device.type == "cpu" else None for way in ways if way != DEFAULT}
        with self._steps(ways, spans) as steps:
            seconds = self._turns(steps, rounds=1)
            if seconds[_LOCAL]:
                self._rounds = self._rounds or self._rounds_for(seconds, of=of)
                others = self._turns(steps, rounds=self._rounds - 1)
                seconds = {name: [*each, *others[name]] for name, each in seconds.items()}
        if seconds.get(str(DEFAULT)):
            spans[DEFAULT] = self._spans_of_the_default()
        return self._note(ways, seconds, spans)

    def _note(
        self, ways: Sequence[Communication], seconds: Mapping[str, Sequence[float]],
        spans: Mapping[Communication, BucketSpans | None],
    ) -> list[Communication]:  # fmt: skip
        """Makes rows of what was measured, and returns the other ways. ``seconds``: by name, as many of each."""
        measured = [way for way in ways if seconds.get(str(way))]
        if measured:
            self._local_us += [each * 1e6 for each in seconds[_LOCAL]]
        self._rows += [self._row(_times(way, seconds), spans.get(way)) for way in measured]
        return [way for way in ways if way not in measured]

    def _spans_of_the_default(self) -> BucketSpans | None:
        """By a wrapper with a hook, which the default does without; None on a GPU, and if there was no time."""
        if self._device.type != "cpu":
            return None
        spans = BucketSpans()
        with self._steps([DEFAULT], {DEFAULT: spans}) as steps:
            seconds = self._turns(steps, rounds=_SPAN_ROUNDS)
        return spans if seconds.get(str(DEFAULT)) else None

    def _row(self, times: WayTimes, spans: BucketSpans | None) -> WayTimes:
        way = times.communication
        times = replace(times, sent_bytes=way.sent_bytes(sent_as_bytes(self._contest.model, way), world=self._world))
        if spans is None:
            return times
        found = in_a_step(spans, self._contest.group)
        return replace(times, transfer_us=1e6 * found.transfer_s, waiting_us=1e6 * found.waiting_s)

    def _after_finals(self, report: CommunicationReport) -> CommunicationReport:
        finalists = [row.communication for row in self._best_first() if row.communication != DEFAULT][:_FINALISTS]
        if not finalists:
            return report
        with self._steps([DEFAULT, *finalists], {}) as steps:
            seconds = self._turns(steps, rounds=self._rounds_of_finals())
        finals = tuple(_times(way, seconds) for way in (DEFAULT, *finalists) if seconds.get(str(way)))
        return _decided(replace(report, finals=finals), seconds, [row.communication for row in finals[1:]])

    def _best_first(self) -> list[WayTimes]:
        return sorted(self._rows, key=lambda row: row.exposed_share)

    @contextmanager
    def _steps(
        self, ways: Sequence[Communication], spans: Mapping[Communication, BucketSpans | None]
    ) -> Iterator[dict[str, Step]]:
        """A step without communication, and one of each way, warmed up; of the first ways alone if the time is up
        before. ``spans``: where these note their buckets."""
        steps: dict[str, Step] = {_LOCAL: partial(self._step, self._contest.model)}
        try:
            for way in ways:
                warm = self._warmed_up(way, spans.get(way))
                if warm is None:
                    break
                steps[str(way)] = warm
            if len(steps) > 1:
                steps[_LOCAL]()
            yield steps
        finally:
            steps.clear()
            gc.collect()  # wrappers are circular, have memory as large as all gradients, and hooks on the parameters

    def _warmed_up(self, way: Communication, spans: BucketSpans | None) -> Step | None:
        # All ranks have the same parameters since the first look: to send them for each way takes as long as steps do.
        options = {**self._contest.options, "init_sync": False}
        model = wrapped(self._contest.model, way, spans=spans, **options)
        for _ in range(self._warm_up(way)):
            if self._limit.is_over():
                return None
            self._step(model)
        return partial(self._step, model, spans)

    def _warm_up(self, way: Communication) -> int:
        return (1 if self._default_s > _SLOW_S else _WARM_UP) + (way.powersgd_rank is not None)

    def _step(self, model: nn.Module, spans: BucketSpans | None = None) -> None:
        if spans is not None:
            spans.begin()
        self._contest.step(model)

    def _rounds_for(self, seconds: Mapping[str, Sequence[float]], *, of: int) -> int:
        """As many as the time allows, by one round."""
        round_s = statistics.mean(each[0] for each in seconds.values()) * (of + 2)
        least, most = _ROUNDS
        return max(least, min(most, int((1 - _SHARE_OF_FINALS) * self._contest.seconds / round_s)))

    def _rounds_of_finals(self) -> int:
        """Twice as many, or what the time allows, but so many that three of four can be better."""
        round_s = (_FINALISTS + 2) * self._rows[0].step_us / 1e6
        left_s = self._contest.seconds - self._limit.elapsed_s()
        return max(_LEAST_ROUNDS_OF_FINALS, min(2 * self._rounds, int(left_s / round_s)))

    def _turns(self, steps: Mapping[str, Step], *, rounds: int) -> dict[str, list[float]]:
        return take_turns(steps, rounds=rounds, limit=self._limit, device=self._device)

    def _fits(self, count: int) -> bool:
        """True where so many ways, each as slow as the default, leave the finals their time; the same on every rank."""
        needed_s = count * (_WARM_UP + self._rounds) * self._rows[0].step_us / 1e6
        return self._limit.elapsed_s() + needed_s < (1 - _SHARE_OF_FINALS) * self._contest.seconds


def _decided(
    report: CommunicationReport, seconds: Mapping[str, Sequence[float]], others: Sequence[Communication]
) -> CommunicationReport:
    """With the choice between the default and others, by turns of all of them: too few decide nothing."""
    if len(seconds[_LOCAL]) < _ROUNDS_OF_SLOW:
        return replace(
            report, reason="time was up before another way had surely beaten DistributedDataParallel's default"
        )
    gains_us = {way: longer_by_us(seconds[str(DEFAULT)], seconds[str(way)]) for way in others}
    clear = [way for way in others if _is_clear(gains_us[way])]
    if not clear:
        return replace(report, reason="nothing beats DistributedDataParallel's default by more than the noise")
    chosen = max(clear, key=lambda way: statistics.median(gains_us[way]))
    reason = f"{statistics.median(gains_us[chosen]) / 1e3:.2f} ms a step less than DistributedDataParallel's default"
    if chosen.compression:
        reason += f"; {chosen.compression} changes the gradients"
    return replace(report, chosen=chosen, reason=reason)


def _is_clear(gains_us: Sequence[float]) -> bool:
    """Whether there is one in three rounds of four; where these are three, in all."""
    return sum(gain > 0 for gain in gains_us) >= 0.75 * len(gains_us)


def _is_first(way: Communication) -> bool:
    """True for what is measured at each bucket size before anything else."""
    return way.collective in ("all-reduce", "after-backward") and not (way.compression and way.bucket_mb)


def _is_plain(way: Communication) -> bool:
    return way.collective == "all-reduce" and not way.compression


def _place_of(size: float | None, sizes: Sequence[float | None]) -> int:
    return sizes.index(size) if size in sizes else len(sizes)


def _times(way: Communication, seconds: Mapping[str, Sequence[float]]) -> WayTimes:
    mine, local = seconds[str(way)], seconds[_LOCAL]
    return WayTimes(
        communication=way,
        step_us=statistics.median(mine) * 1e6,
        exposed_us=statistics.median(longer_by_us(mine, local)),
        exposed_share=statistics.median(step / alone - 1 for step, alone in zip(mine, local, strict=True)),
        rounds=len(mine),
    )


# -- steps in turns, on all ranks at once, timed by the slowest rank ---------------------------------------------------


Step = Callable[[], object]


def take_turns(
    steps: Mapping[str, Step], *, rounds: int, limit: TimeLimit, device: torch.device
) -> dict[str, list[float]]:
    """The seconds of ``rounds`` steps of each kind, the same on every rank. In a round each kind comes once, in an
    order that changes from round to round; a step begins on all ranks together, unless the time is up: then there are
    fewer rounds, or none. Every rank has to call it."""
    names = list(steps)
    taken: list[list[float]] = []
    for number in range(rounds):
        first = number % len(names)
        seconds: dict[str, float] = {}
        for name in [*names[first:], *names[:first]]:
            _until_done(device)
            if limit.is_over():  # where all ranks meet
                break
            seconds[name] = _seconds(steps[name], device=device)
        if len(seconds) < len(names):
            break
        taken.append([seconds[name] for name in names])
    slowest = limit.longest(taken) if taken else []
    return {name: [each[place] for each in slowest] for place, name in enumerate(names)}


def longer_by_us(seconds: Sequence[float], than: Sequence[float]) -> list[float]:
    """How much longer, round by round."""
    return [(one - other) * 1e6 for one, other in zip(seconds, than, strict=True)]


def _seconds(step: Step, *, device: torch.device) -> float:
    started = time.perf_counter()
    step()
    _until_done(device)
    return time.perf_counter() - started


def _until_done(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
