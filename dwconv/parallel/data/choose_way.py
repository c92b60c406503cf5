"""Choosing a way for the gradients, by measurement: every rank times the same steps, and all come to the same choice.

    each bucket size     steps without communication, and by each way of that size, in turns
    finals               the two best and DistributedDataParallel's default, in turns

What is chosen beats the default in three of four rounds of the finals; else the default stays.
"""

from __future__ import annotations

import gc
import math
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
from dwconv.parallel.data.ways import Communication, CommunicationReport, StepTimes

DEFAULT = Communication()
_LOCAL = "no communication"
_BUCKETS_MB = (1.0, 5.0, 25.0)
"""Beside the default: those that are smaller than all gradients, and all gradients."""
_WARM_UP = 3
"""Steps of a new wrapper: from the second one on it fills its buckets in the order of the gradients."""
_ROUNDS = (5, 15)
"""At least, and at most."""
_SHARE_OF_FINALS = 0.3
"""Of the time."""
_FINALISTS = 2

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
    compress: bool
    """True where bfloat16 may be chosen."""
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


def gradient_bytes(model: nn.Module) -> int:
    """Of the parameters that are trained."""
    return sum(each.nbytes for each in model.parameters() if each.requires_grad)


def choose(contest: Contest) -> CommunicationReport:
    """Measure, and report the choice. The model, its gradients, buffers and the random numbers are what they were."""
    with unchanged(contest.model, contest.example.tensors):
        return _Choosing(contest).report()


def candidates(gradient_mb: float, *, compress: bool) -> list[list[Communication]]:
    """What is worth trying, by bucket size, the default's first. Below 1 MiB that is one bucket already."""
    sizes = [None, *(size for size in _BUCKETS_MB if size < gradient_mb)]
    if gradient_mb > 1:
        sizes.append(float(math.ceil(gradient_mb)))
    types = (False, True) if compress else (False,)
    return [[Communication(bucket_mb=size, compressed=compressed) for compressed in types] for size in sizes]


class _Choosing:
    """One measurement, from the first step to the choice."""

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._device = next(contest.model.parameters()).device
        self._step(contest.model)  # builds what is built for the first step
        self._started_s = time.perf_counter()
        self._rounds = 0
        self._local_us: list[float] = []

    def report(self) -> CommunicationReport:
        contest = self._contest
        by_size = candidates(gradient_bytes(contest.model) / 2**20, compress=contest.compress)
        rows: list[StepTimes] = []
        left: list[Communication] = []
        for ways in by_size:
            if rows and self._time_is_up():
                left += ways
            else:
                rows += self._measured(ways, of=sum(map(len, by_size)))
        report = CommunicationReport(
            chosen=DEFAULT,
            reason="there was no time to measure another way",
            world=dist.get_world_size(contest.group),
            gradient_bytes=gradient_bytes(contest.model),
            local_us=statistics.median(self._local_us),
            rows=tuple(rows),
            left=tuple(left),
        )
        return self._after_finals(report)

    def _measured(self, ways: Sequence[Communication], *, of: int) -> list[StepTimes]:
        """The rows of one bucket size. ``of``: how many ways there are in all, which the time is shared out to."""
        with self._steps(ways) as steps:
            self._rounds = self._rounds or self._rounds_for(steps, of=of)
            seconds = self._turns(steps, rounds=self._rounds)
        self._local_us += [each * 1e6 for each in seconds[_LOCAL]]
        return [_times(way, seconds) for way in ways]

    def _after_finals(self, report: CommunicationReport) -> CommunicationReport:
        best_first = sorted(report.rows, key=lambda row: row.exposed_share)
        finalists = [row.communication for row in best_first if row.communication != DEFAULT][:_FINALISTS]
        if not finalists:
            return report
        with self._steps([DEFAULT, *finalists]) as steps:
            seconds = self._turns(steps, rounds=2 * self._rounds)
        finals = tuple(_times(way, seconds) for way in (DEFAULT, *finalists))
        gains = {way: longer_by_us(seconds[str(DEFAULT)], seconds[str(way)]) for way in finalists}
        clear = [way for way in finalists if gains[way][0] > 0]
        if not clear:
            reason = "nothing beats DistributedDataParallel's default by more than the noise"
            return replace(report, reason=reason, finals=finals)
        chosen = max(clear, key=lambda way: gains[way][1])
        reason = f"{gains[chosen][1] / 1e3:.2f} ms a step less than DistributedDataParallel's default"
        return replace(report, chosen=chosen, reason=reason, finals=finals)

    @contextmanager
    def _steps(self, ways: Sequence[Communication]) -> Iterator[dict[str, Step]]:
        """A step without communication, and one of each way, warmed up."""
        contest = self._contest
        steps: dict[str, Step] = {_LOCAL: partial(self._step, contest.model)}
        try:
            for way in ways:
                steps[str(way)] = partial(self._step, way.wrapped(contest.model, **contest.options))
                for _ in range(_WARM_UP):
                    steps[str(way)]()
            steps[_LOCAL]()
            yield steps
        finally:
            steps.clear()
            gc.collect()  # wrappers are circular, have memory as large as all gradients, and hooks on the parameters

    def _step(self, model: nn.Module) -> None:
        self._contest.step(model)

    def _rounds_for(self, steps: Mapping[str, Step], *, of: int) -> int:
        """As many as the time allows, the same on every rank."""
        seconds = self._turns(steps, rounds=1)
        round_s = statistics.mean(each[0] for each in seconds.values()) * (of + 2)
        least, most = _ROUNDS
        return max(least, min(most, int((1 - _SHARE_OF_FINALS) * self._contest.seconds / round_s)))

    def _turns(self, steps: Mapping[str, Step], *, rounds: int) -> dict[str, list[float]]:
        return take_turns(steps, rounds=rounds, group=self._contest.group, device=self._device)

    def _time_is_up(self) -> bool:
        """For all but the finals; the same on every rank, so that all stop together."""
        mine = time.perf_counter() - self._started_s
        elapsed_s = _slowest([[mine]], group=self._contest.group, device=self._device)[0][0]
        return elapsed_s > (1 - _SHARE_OF_FINALS) * self._contest.seconds


def _times(way: Communication, seconds: Mapping[str, Sequence[float]]) -> StepTimes:
    mine, local = seconds[str(way)], seconds[_LOCAL]
    return StepTimes(
        communication=way,
        step_us=statistics.median(mine) * 1e6,
        exposed_us=longer_by_us(mine, local)[1],
        exposed_share=statistics.median(step / alone - 1 for step, alone in zip(mine, local, strict=True)),
        rounds=len(mine),
    )


# -- steps in turns, on all ranks at once, timed by the slowest rank ---------------------------------------------------


Step = Callable[[], object]


def take_turns(
    steps: Mapping[str, Step], *, rounds: int, group: dist.ProcessGroup, device: torch.device
) -> dict[str, list[float]]:
    """The seconds of ``rounds`` steps of each kind, the same on every rank. In a round each kind comes once, in an
    order that changes from round to round; a step begins on all ranks together. Every rank has to call it."""
    names = list(steps)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in [*names[first:], *names[:first]]:
            seconds[name].append(_seconds(steps[name], group=group, device=device))
    return dict(zip(names, _slowest([seconds[name] for name in names], group=group, device=device), strict=True))


def _slowest(
    seconds: Sequence[Sequence[float]], *, group: dist.ProcessGroup, device: torch.device
) -> list[list[float]]:
    """Each of these numbers as it is on the rank where it is the largest."""
    numbers = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=group)
    return numbers.tolist()


def longer_by_us(seconds: Sequence[float], than: Sequence[float]) -> tuple[float, float, float]:
    """How much longer, round by round: lower quartile, median and upper quartile."""
    apart_us = [(one - other) * 1e6 for one, other in zip(seconds, than, strict=True)]
    low, middle, high = statistics.quantiles(apart_us, n=4, method="inclusive")
    return low, middle, high


def _seconds(step: Step, *, group: dist.ProcessGroup, device: torch.device) -> float:
    _until_done(device)
    dist.barrier(group=group)
    started = time.perf_counter()
    step()
    _until_done(device)
    return time.perf_counter() - started


def _until_done(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
