"""Choosing: measure a graph in its first step, on copies, and choose what runs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dwconv.concurrency.choice import Choice
from dwconv.concurrency.counters import available
from dwconv.concurrency.engine import Engine
from dwconv.concurrency.lanes import one_at_a_time
from dwconv.concurrency.machine_costs import GPU, this_machine
from dwconv.concurrency.options import PLAIN, Options
from dwconv.concurrency.program import Program
from dwconv.concurrency.schedules_to_try import GraphTimes, SchedulePair, known_curves, plain_schedules, worth_trying
from dwconv.concurrency.second_threads import NO_SLOTS
from dwconv.concurrency.task_graph import Machine, Schedule, peak_bytes
from dwconv.concurrency.task_timer import TaskTimer, TimeLeft
from dwconv.concurrency.time_regression import Counts
from dwconv.concurrency.timed_schedules import TimedSchedules, fastest
from dwconv.concurrency.timeline import TaskRun, expected, in_steps, recorded
from dwconv.concurrency.topology import ALIKE, topology
from dwconv.errors import OutOfTime
from dwconv.measure.clock.timing import Call, Clock, CpuClock
from dwconv.problems.target import cpu_target, cuda_target
from dwconv.system import versions

Graph = Callable[..., Any]


class Trial:
    """Steps on what a graph was called with. ``written``: places of the arguments that the graph writes to."""

    def __init__(self, args: Sequence[Any], *, written: Collection[int]) -> None:
        self._trains = torch.is_grad_enabled()
        self._args = [_apart(arg, copied=place in written) for place, arg in enumerate(args)]
        self._wanted = [arg for arg in self._args if isinstance(arg, Tensor) and self._trains and arg.requires_grad]
        self._gradients: dict[int, Tensor] = {}
        self._is_on_gpu = any(isinstance(arg, Tensor) and arg.is_cuda for arg in self._args)

    def step(self, graph: Graph) -> Callable[[], object]:
        """A call that runs ``graph`` and, where gradients are requested, back through it."""

        def run() -> object:
            with torch.set_grad_enabled(self._trains):
                found = self._back(graph(*self._args))
            if self._is_on_gpu:
                torch.cuda.synchronize()
            return found

        return run

    def _back(self, results: Sequence[Any]) -> object:
        outputs = [each for each in results if isinstance(each, Tensor) and each.requires_grad]
        if not outputs or not self._wanted:
            return None
        given = [self._gradient(place, each) for place, each in enumerate(outputs)]
        return torch.autograd.grad(outputs, self._wanted, given, allow_unused=True)

    def _gradient(self, place: int, result: Tensor) -> Tensor:
        """Ones, made once: not while a step is timed."""
        if place not in self._gradients:
            self._gradients[place] = torch.ones_like(result)
        return self._gradients[place]

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Random numbers go on afterwards as if nothing had run."""
        devices = [torch.cuda.current_device()] if self._is_on_gpu else []
        with torch.random.fork_rng(devices=devices):
            yield


def _apart(arg: Any, *, copied: bool) -> Any:
    """The argument with a history of its own; and with memory of its own, if the graph writes to it."""
    if not isinstance(arg, Tensor):
        return arg
    apart = arg.detach().clone() if copied else arg.detach()
    return apart.requires_grad_(arg.requires_grad)


# -- the choice --------------------------------------------------------------------------------------------------------


clock_of_steps: Callable[[], Clock] = partial(CpuClock, oversubscribed=True)
"""Makes the clock that steps are timed with. Every lane of a schedule has threads of its own."""
_TASKS_SHARE, _PLANNING_SHARE = 0.3, 0.2
"""Of the time that is left, what timing tasks, and making schedules, may take."""


def device_name(*, on_gpu: bool, cores: int) -> str:
    """The device as logs name it."""
    return (cuda_target() if on_gpu else cpu_target(threads=cores)).device


def kept_versions() -> dict[str, str]:
    """The versions on which the speed of a graph depends."""
    return {name: version for name, version in versions.installed().items() if name in ("torch", "dwconv")}


def choose(programs: Sequence[Program], *, options: Options, cores: int, step: Call, graph: str) -> Choice:
    """What runs the graph of this digest. ``programs``: forward, and backward if there is one, which ``step`` runs."""
    budget, found, parts = TimeLeft(options.seconds), list[SchedulePair](), list[GraphTimes]()
    on_gpu = programs[0].on_gpu
    machine = GPU if on_gpu else Machine(cores=cores)
    cuts = [program.cut for program in programs]
    notes: list[str] = []
    try:
        if not on_gpu:
            machine = this_machine(cores, budget=budget)
        notes += _notes_on(machine, options)
        where = ALIKE if on_gpu else topology(cores)
        timed = TaskTimer(cuts, budget=budget.part(_TASKS_SHARE), topology=where)
        counts = None if on_gpu else Counts(events=available().events, of=timed.counts)
        graphs = [each.graph for each in cuts]
        known = known_curves(graphs, timed, cores=machine.cores, options=options, counts=counts, topology=where)
        notes += [known.note] if known.note else []
        parts = [GraphTimes(cut=each, curves=curve) for each, curve in zip(cuts, known.curves, strict=True)]
        if not on_gpu:
            curves = in_steps(programs, known.curves, step, machine=machine, budget=budget)
            parts = [replace(part, curves=curve) for part, curve in zip(parts, curves, strict=True)]
        found = worth_trying(parts, options=options, machine=machine, budget=budget.part(_PLANNING_SHARE))
        calls = {PLAIN: _step(programs, step), **{each.name: _step(programs, step, each) for each in found}}
        ranking = fastest(calls, clock=clock_of_steps(), budget=budget, fall_back=options.fall_back)
    except OutOfTime:
        said = f"seconds={options.seconds:g} are too few to measure it here; give it more"
        ranking = TimedSchedules(winner=PLAIN, reason=said, steps={}, trusted=False)
    schedules = next((each.schedules for each in found if each.name == ranking.winner), ())
    return Choice(
        graph=graph,
        device=device_name(on_gpu=on_gpu, cores=cores),
        cores=cores,
        asked=options.asked,
        winner=ranking.winner,
        reason=ranking.reason,
        schedules=schedules,
        steps=ranking.steps,
        peaks={
            PLAIN: max(peak_bytes(each.held, one_at_a_time(each, threads=cores)) for each in cuts),
            **{each.name: each.peak_bytes for each in found},
        },
        notes=tuple(notes),
        timeline=_timeline(programs, schedules or plain_schedules(parts, machine=machine), step, budget=budget),
        handover_us=machine.handover_us,
        change_us=machine.change_us,
        trusted=ranking.trusted,
        versions=kept_versions(),
        created=versions.now(),
    )


def _notes_on(machine: Machine, options: Options) -> list[str]:
    """What the strategies and the model of times do without here."""
    notes = []
    if "S4" in options.strategies and not machine.slots.count and machine.cores > 1:
        notes.append(NO_SLOTS)
    if options.model == "regression" and machine is not GPU and available().note:
        notes.append(available().note)
    return notes


def _timeline(
    programs: Sequence[Program], schedules: Sequence[Schedule], step: Call, *, budget: TimeLeft
) -> tuple[tuple[TaskRun, ...], ...]:
    """What runs, as expected, and as it ran if there is time to look. On a GPU the caller only issues the tasks."""
    try:
        if schedules and not programs[0].on_gpu:
            return recorded(programs, schedules, budget.bounded(step))
    except OutOfTime:
        pass
    return expected(schedules)


def _step(programs: Sequence[Program], step: Call, candidate: SchedulePair | None = None) -> Call:
    """A step by the schedules of a candidate, or of plain execution."""
    engines: list[Engine | None] = [None] * len(programs)
    if candidate is not None:
        engines = [program.prepared(schedule) for program, schedule in zip(programs, candidate.schedules, strict=True)]

    def run() -> object:
        for program, engine in zip(programs, engines, strict=True):
            program.engine = engine
        return step()

    return run
