"""Choosing a way for the gradients, by measurement: every rank times the same steps, and all come to the same choice.

    each bucket size     steps without communication, and by an all-reduce, in turns
    the other ways       at each bucket size, the best one first, beside steps without communication
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
from torch.nn.parallel import DistributedDataParallel

from dwconv.discovery.step import ExampleStep, outputs_in
from dwconv.discovery.unchanged import unchanged
from dwconv.errors import InvalidChoice
from dwconv.parallel.data.ways import (
    COLLECTIVES,
    Communication,
    CommunicationReport,
    GradientHook,
    StepTimes,
)

DEFAULT = Communication()
_LOCAL = "no communication"
_SYNCHRONOUS = "all-reduce after the backward pass"
_BUCKETS_MB = (1.0, 5.0, 25.0)
"""Beside the default: those that are smaller than all gradients, and all gradients."""
_WARM_UP = 3
"""Steps of a new wrapper: from the second one on it fills its buckets in the order of the gradients."""
_ROUNDS = (5, 15)
"""At least, and at most."""
_SHARE_OF_FINALS = 0.3
"""Of the time."""
_FINALISTS = 2


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A model and its example among the ranks of a group."""

    model: nn.Module
    example: TrainingExample
    group: dist.ProcessGroup
    hook: GradientHook
    options: dict[str, Any]
    """Of DistributedDataParallel."""
    compress: bool
    """True where bfloat16 may be chosen."""
    seconds: float

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.example.parameters[0].device

    @property
    def gradient_bytes(self) -> int:
        """Of all gradients together."""
        return gradient_bytes(self.model)

    def wrapped(self, communication: Communication) -> DistributedDataParallel:
        """The model, its gradients sent that way. What DistributedDataParallel does by itself is left to it."""
        found = DistributedDataParallel(self.model, bucket_cap_mb=communication.bucket_mb, **self.options)
        if needs_hook(communication):
            self.hook.register(found)
        return found


def needs_hook(communication: Communication) -> bool:
    """False for what DistributedDataParallel does by itself."""
    return communication.compressed or communication.collective != "all-reduce"


def backend_of(group: dist.ProcessGroup, device: torch.device) -> str:
    """What communicates tensors on ``device``."""
    of_devices = dict(pair.split(":") for pair in dist.get_backend_config(group).split(","))
    return of_devices.get(device.type, "unknown")


def gradient_bytes(model: nn.Module) -> int:
    """Of the parameters that are trained."""
    return sum(each.nbytes for each in model.parameters() if each.requires_grad)


def choose(contest: Contest) -> CommunicationReport:
    """Measure, and report the choice. The model, its gradients, buffers and the random numbers are what they were."""
    with unchanged(contest.model, contest.example.example.tensors):
        return _Choosing(contest).report()


def candidates(gradient_mb: float, *, compress: bool) -> dict[float | None, list[Communication]]:
    """What is worth trying, by bucket size, the default's first, all-reduce first. Below 1 MiB that is one bucket
    already."""
    sizes = [None, *(size for size in _BUCKETS_MB if size < gradient_mb)]
    if gradient_mb > 1:
        sizes.append(float(math.ceil(gradient_mb)))
    return {
        size: [
            Communication(collective=collective, bucket_mb=size, compressed=compressed)
            for compressed in ((False, True) if compress else (False,))
            for collective in COLLECTIVES
        ]
        for size in sizes
    }


class _Choosing:
    """One measurement, from the first step to the choice."""

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._local()  # builds what is built for the first step
        self._started = time.perf_counter()
        self._rounds = _ROUNDS[0]
        self._rows: list[StepTimes] = []
        self._local_us: list[float] = []

    def report(self) -> CommunicationReport:
        contest = self._contest
        by_size = candidates(contest.gradient_bytes / 2**20, compress=contest.compress)
        count = sum(map(len, by_size.values()))
        left: list[Communication] = []
        for usual, *others in by_size.values():
            if self._rows and self._time_is_up():
                left += [usual, *others]
            else:
                self._measure([usual], of=count, first=not self._rows)
        for way in self._best_first():
            _, *others = by_size[way.bucket_mb]
            if self._time_is_up():
                left += others
            else:
                self._measure(others, of=count, first=False)
        report = CommunicationReport(
            chosen=DEFAULT,
            reason="there was no time to measure another way",
            world=dist.get_world_size(contest.group),
            backend=backend_of(contest.group, contest.device),
            gradient_bytes=contest.gradient_bytes,
            local_us=statistics.median(self._local_us),
            rows=tuple(self._rows),
            left=tuple(left),
        )
        return self._after_finals(report)

    def _measure(self, tried: Sequence[Communication], *, of: int, first: bool) -> None:
        """The rows of one bucket size. ``of``: how many ways there are in all, which the time is shared out to."""
        with self._steps(tried) as steps:
            if first:
                self._rounds = self._rounds_for(steps, of=of)
                steps = {_SYNCHRONOUS: self._synchronous, **steps}
            seconds = self._turns({_LOCAL: self._local, **steps}, rounds=self._rounds)
        self._local_us += [each * 1e6 for each in seconds[_LOCAL]]
        if first:
            self._rows.append(_times(_SYNCHRONOUS, None, seconds))
        self._rows += [_times(str(way), way, seconds) for way in tried]

    def _after_finals(self, report: CommunicationReport) -> CommunicationReport:
        finalists = [way for way in self._best_first() if way != DEFAULT][:_FINALISTS]
        if not finalists:
            return report
        with self._steps([DEFAULT, *finalists]) as steps:
            seconds = self._turns({_LOCAL: self._local, **steps}, rounds=2 * self._rounds)
        finals = tuple(_times(str(way), way, seconds) for way in (DEFAULT, *finalists))
        gains = {way: longer_by_us(seconds[str(DEFAULT)], seconds[str(way)]) for way in finalists}
        clear = [way for way in finalists if gains[way][0] > 0]
        if not clear:
            reason = "nothing beats DistributedDataParallel's default by more than the noise"
            return replace(report, reason=reason, finals=finals)
        chosen = max(clear, key=lambda way: gains[way][1])
        reason = f"{gains[chosen][1] / 1e3:.2f} ms a step less than DistributedDataParallel's default"
        return replace(report, chosen=chosen, reason=reason, finals=finals)

    def _best_first(self) -> list[Communication]:
        """The ways that were measured."""
        rows = sorted(self._rows, key=lambda row: row.exposed_share)
        return [row.communication for row in rows if row.communication is not None]

    @contextmanager
    def _steps(self, ways: Sequence[Communication]) -> Iterator[dict[str, Step]]:
        """A step of each way, warmed up. Ways that need the hook and have buckets of one size share a wrapper."""
        contest = self._contest
        wrapped: dict[tuple[float | None, bool], DistributedDataParallel] = {}

        def step(way: Communication) -> None:
            contest.hook.communication = way
            contest.example.step(wrapped[way.bucket_mb, needs_hook(way)])

        try:
            steps: dict[str, Step] = {}
            for way in ways:
                is_new = (way.bucket_mb, needs_hook(way)) not in wrapped
                if is_new:
                    wrapped[way.bucket_mb, needs_hook(way)] = contest.wrapped(way)
                steps[str(way)] = partial(step, way)
                for _ in range(_WARM_UP if is_new else 1):
                    step(way)
            self._local()
            yield steps
        finally:
            wrapped.clear()
            gc.collect()  # they are circular, have memory as large as all gradients, and hooks on the parameters

    def _rounds_for(self, steps: dict[str, Step], *, of: int) -> int:
        """As many as the time allows, the same on every rank."""
        seconds = self._turns(steps, rounds=1)
        round_s = statistics.mean(each[0] for each in seconds.values()) * (of + 2)
        least, most = _ROUNDS
        return max(least, min(most, int((1 - _SHARE_OF_FINALS) * self._contest.seconds / round_s)))

    def _turns(self, steps: dict[str, Step], *, rounds: int) -> dict[str, list[float]]:
        return take_turns(steps, rounds=rounds, group=self._contest.group, device=self._contest.device)

    def _local(self) -> None:
        self._contest.example.step(self._contest.model)

    def _synchronous(self) -> None:
        self._contest.example.synchronous_step(self._contest.model, self._contest.group)

    def _time_is_up(self) -> bool:
        """For all but the finals; the same on every rank, so that all stop together."""
        mine = time.perf_counter() - self._started
        elapsed_s = slowest([[mine]], group=self._contest.group, device=self._contest.device)[0][0]
        return elapsed_s > (1 - _SHARE_OF_FINALS) * self._contest.seconds


def _times(name: str, way: Communication | None, seconds: dict[str, list[float]]) -> StepTimes:
    low, middle, high = longer_by_us(seconds[name], seconds[_LOCAL])
    return StepTimes(
        name=name,
        communication=way,
        step_us=statistics.median(seconds[name]) * 1e6,
        exposed_us=middle,
        exposed_share=statistics.median(
            step / local - 1 for step, local in zip(seconds[name], seconds[_LOCAL], strict=True)
        ),
        exposed_quartiles_us=(low, high),
        rounds=len(seconds[name]),
    )


# -- steps on an example, forward and backward -------------------------------------------------------------------------


Loss = Callable[[Any], Tensor]
"""From what the model returns."""


@dataclass(frozen=True, kw_only=True)
class TrainingExample:
    """What a step trains on, without an optimizer."""

    example: ExampleStep
    loss: Loss | None
    """None: the mean of all outputs."""
    parameters: tuple[nn.Parameter, ...]
    """Those that are trained."""

    @classmethod
    def of(cls, model: nn.Module, example_inputs: Any, *, loss: Loss | None) -> TrainingExample:
        """Raises InvalidWorkload for an example that is not on the model's device, or of another kind."""
        trained = tuple(parameter for parameter in model.parameters() if parameter.requires_grad)
        return cls(example=ExampleStep.of(model, example_inputs, trains=True), loss=loss, parameters=trained)

    def step(self, model: nn.Module) -> None:
        """One forward and backward pass of ``model``, which may be wrapped. The gradients are dropped."""
        self._gradients(model)
        self._forget()

    def synchronous_step(self, model: nn.Module, group: dist.ProcessGroup) -> None:
        """The same, and then all gradients in one all-reduce, which nothing hides."""
        self._gradients(model)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        for dtype in dict.fromkeys(gradient.dtype for gradient in gradients):
            alike = [gradient for gradient in gradients if gradient.dtype is dtype]
            flat = torch.cat([gradient.reshape(-1) for gradient in alike]).div_(dist.get_world_size(group))
            dist.all_reduce(flat, group=group)
            for gradient, mean in zip(alike, torch.split(flat, [each.numel() for each in alike]), strict=True):
                gradient.copy_(mean.view_as(gradient))
        self._forget()

    def _gradients(self, model: nn.Module) -> None:
        with torch.enable_grad():
            outputs = model(*self.example.positional, **self.example.keywords)
            if self.loss is not None:
                self.loss(outputs).backward()  # type: ignore[no-untyped-call]
                return
            found = outputs_in(outputs)
            if not found:
                raise InvalidChoice(
                    f"no output of {type(self.example.model).__name__} requires a gradient; "
                    "give loss=, a function from what the model returns to a loss"
                )
            torch.autograd.backward(found, [torch.full_like(each, 1 / max(each.numel(), 1)) for each in found])

    def _forget(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


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
    return dict(zip(names, slowest([seconds[name] for name in names], group=group, device=device), strict=True))


def slowest(seconds: Sequence[Sequence[float]], *, group: dist.ProcessGroup, device: torch.device) -> list[list[float]]:
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
