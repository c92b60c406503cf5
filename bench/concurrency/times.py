"""Times of the tasks of a step, within a budget; what each time model makes of them; the settings that are compared:
a schedule for every graph of a step, by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from bench.concurrency.step import Graph, Setting
from dwconv.concurrency.choosing.pair_schedule import at_once_schedule
from dwconv.concurrency.graph.task_graph import ScalingCurve, Task, TaskGraph
from dwconv.concurrency.graph.tasks import CutGraph
from dwconv.concurrency.running.lanes import one_at_a_time
from dwconv.concurrency.running.program import Program
from dwconv.concurrency.scheduling.list_scheduling import Curves
from dwconv.concurrency.scheduling.machine import Machine
from dwconv.concurrency.scheduling.schedule import Schedule
from dwconv.concurrency.scheduling.strategies import combined, manual, schedules
from dwconv.concurrency.times.accuracy import Accuracy, accuracy, sweep
from dwconv.concurrency.times.hill_climbing import HillClimbing
from dwconv.concurrency.times.task_timer import TaskTimer
from dwconv.concurrency.times.time_regression import Regression
from dwconv.measure.clock.timing import Call, Effort

_SWEPT = 40
"""Signatures against which the models are held, spread evenly over those there are."""


class HurriedTimer(TaskTimer):
    """Times tasks as long as there is time. Then each call is run twice, and the second time counts."""

    def __init__(self, cut: CutGraph, *, until_s: float) -> None:
        """``until_s``: by time.monotonic."""
        super().__init__(cut)
        self._until_s = until_s
        self.hurried = 0
        """Times that one run had to do for."""

    def in_turns(self, calls: dict[str, Call], *, effort: Effort) -> dict[str, float]:
        if time.monotonic() < self._until_s:
            return super().in_turns(calls, effort=effort)
        self.hurried += len(calls)
        return {name: _once_us(call) for name, call in calls.items()}


def _once_us(call: Call) -> float:
    with torch.no_grad():
        call()
        started = time.perf_counter()
        call()
        return (time.perf_counter() - started) * 1e6


class BudgetedTimer:
    """Times tasks of several graphs, for about so many seconds."""

    def __init__(self, cuts: Sequence[CutGraph], *, seconds: float) -> None:
        self._timers: dict[str, tuple[HurriedTimer, Task]] = {}
        self._all = [HurriedTimer(cut, until_s=time.monotonic() + seconds) for cut in cuts]
        for timer, cut in zip(self._all, cuts, strict=True):
            for task in cut.graph.tasks:
                self._timers.setdefault(task.signature, (timer, task))
        self.runs = 0
        """How many times a task was asked for with one number of threads."""

    def __call__(self, task: Task, threads: int) -> float:
        self.runs += 1
        timer, same = self._timers[task.signature]
        return timer.timed(same, threads)

    @property
    def tasks(self) -> list[Task]:
        """One task of each signature."""
        return [task for _, task in self._timers.values()]

    @property
    def hurried(self) -> int:
        """Times that one run had to do for."""
        return sum(timer.hurried for timer in self._all)


@dataclass(frozen=True, kw_only=True)
class Models:
    """Curves by signature of both models, each from measurements of its own, and how good they are."""

    curves: Mapping[str, Mapping[str, ScalingCurve]]
    """By model, then by signature."""
    accuracies: Mapping[str, Accuracy]
    learner: str
    """Who learnt the regression."""
    runs: Mapping[str, int]
    """By model, how many times a task was timed with one number of threads."""
    hurried: int


def measured_models(cuts: Sequence[CutGraph], *, cores: int, seconds: float) -> Models:
    """Fit both models to the tasks of ``cuts`` within about so many seconds, and sweep a part of them."""
    share_s = seconds / 3
    climbing_timer = BudgetedTimer(cuts, seconds=share_s)
    climbing = HillClimbing(cores=cores)
    climbed = {task.signature: climbing.curve(task, climbing_timer) for task in climbing_timer.tasks}
    regression_timer = BudgetedTimer(cuts, seconds=share_s)
    regression = Regression(cores=cores)
    regression.fit(regression_timer.tasks, regression_timer)
    regressed = {task.signature: regression.curve(task, regression_timer) for task in regression_timer.tasks}
    unvisited = {task.signature: regression.predicted(task, regression_timer) for task in regression_timer.tasks}
    sweep_timer = BudgetedTimer(cuts, seconds=share_s)
    swept = sweep(_spread(sweep_timer.tasks), sweep_timer, cores=cores)
    return Models(
        curves={"hill climbing": climbed, "regression": regressed},
        accuracies={
            "hill climbing": accuracy({signature: climbed[signature] for signature in swept}, swept),
            "regression": accuracy({signature: unvisited[signature] for signature in swept}, swept),
        },
        learner=regression.learnt.learner if regression.learnt else "none: one core",
        runs={"hill climbing": climbing.runs, "regression": regression_timer.runs},
        hurried=climbing_timer.hurried + regression_timer.hurried + sweep_timer.hurried,
    )


def curves_of(graph: TaskGraph, by_signature: Mapping[str, ScalingCurve]) -> dict[int, ScalingCurve]:
    """By task of ``graph``."""
    return {task.index: by_signature[task.signature] for task in graph.tasks}


def _spread(tasks: Sequence[Task]) -> list[Task]:
    ordered = sorted(tasks, key=lambda task: (task.flops + task.bytes, task.signature))
    every = max(1, -(-len(ordered) // _SWEPT))
    return ordered[::every]


RECOMMENDED = "recommended"
GRADIENTS = "gradients"
ALL = ("S1", "S2", "S3", "S4")
_FEW = 4


def all_settings(graphs: Sequence[Graph], models: Models, *, machine: Machine) -> list[Setting]:
    """Recommended first; then manual ones, both models with all strategies, and the strategies with hill climbing.
    Settings by hand keep the graphs as PyTorch hands them over."""
    made = [_made(RECOMMENDED, graphs, models, _one_at_a_time(machine.cores))]
    for workers in tried_by_hand(machine.cores):
        for threads in tried_by_hand(machine.cores):
            if (workers, threads) != (1, machine.cores):
                make = _by_hand(workers=workers, threads=threads, machine=machine)
                made.append(_made(f"manual {workers} × {threads}", graphs, models, make))
    for model in ("hill climbing", "regression"):
        made.append(_made(model, graphs, models, _by_strategies(ALL, machine), model=model))
    for names in combined():
        made.append(_made("+".join(names), graphs, models, _by_strategies(names, machine), model="hill climbing"))
    if any(pair.at_once_wins for graph in graphs for pair in graph.pairs):
        made.append(_gradients(graphs, models, cores=machine.cores))
    return made


def tried_by_hand(cores: int) -> list[int]:
    """The numbers of workers, and of threads, to try by hand: every one up to 4, then powers of two, and all cores."""
    return [number for number in range(1, cores + 1) if number <= _FEW or number & (number - 1) == 0 or number == cores]


Make = Callable[[Program, Curves], Schedule]


def _one_at_a_time(cores: int) -> Make:
    return lambda program, curves: manual(
        program.cut.graph, curves, threads=cores, workers=1, machine=Machine(cores=cores)
    )


def _by_hand(*, workers: int, threads: int, machine: Machine) -> Make:
    return lambda program, curves: manual(program.cut.graph, curves, threads=threads, workers=workers, machine=machine)


def _by_strategies(names: tuple[str, ...], machine: Machine) -> Make:
    return lambda program, curves: schedules(program.cut.graph, curves, strategies=names, machine=machine)


def _made(name: str, graphs: Sequence[Graph], models: Models, make: Make, *, model: str | None = None) -> Setting:
    """``model`` gives the times of the graphs with gradients apart; None keeps the graphs whole."""
    programs = tuple(graph.apart if model else graph.whole for graph in graphs)
    by_signature = models.curves[model or "hill climbing"]
    placed = tuple(make(program, curves_of(program.cut.graph, by_signature)) for program in programs)
    return Setting(name=name, programs=programs, schedules=placed)


def _gradients(graphs: Sequence[Graph], models: Models, *, cores: int) -> Setting:
    placed = []
    for graph in graphs:
        cut = graph.apart.cut
        curves = curves_of(cut.graph, models.curves["hill climbing"])
        placed.append(at_once_schedule(cut, curves, graph.pairs, cores=cores) if graph.pairs
                      else one_at_a_time(cut, threads=cores))  # fmt: skip
    return Setting(name=GRADIENTS, programs=tuple(graph.apart for graph in graphs), schedules=tuple(placed))
