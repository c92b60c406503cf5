"""Choosing: measure a graph in its first step, on copies, and choose what runs it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dwconv.concurrency.candidates import Candidate, Part, candidates, known_curves
from dwconv.concurrency.choice import Choice, GradientTimes
from dwconv.concurrency.hill_climbing import Timed, estimated_us
from dwconv.concurrency.lanes import one_at_a_time
from dwconv.concurrency.machine_costs import gpu, this_machine
from dwconv.concurrency.measured import Ranking, fastest
from dwconv.concurrency.options import PLAIN, Options
from dwconv.concurrency.program import Program
from dwconv.concurrency.schedule import Machine, Task, peak_bytes
from dwconv.concurrency.task_timer import Budget, Known, PairTimes, TaskTimer, pair_times
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
        """The same in every step, and not made while one is timed."""
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
_PAIRS_SHARE, _TASKS_SHARE, _PLANNING_SHARE = 0.2, 0.3, 0.2
"""Of the time that is left, what timing pairs of gradients, tasks, and making schedules may take."""


def device_name(*, on_gpu: bool, cores: int) -> str:
    """The device as logs name it."""
    return (cuda_target() if on_gpu else cpu_target(threads=cores)).device


def kept_versions() -> dict[str, str]:
    """The versions on which the speed of a graph depends."""
    return {name: version for name, version in versions.installed().items() if name in ("torch", "dwconv")}


class Chooser:
    """Chooses for one graph. ``programs``: forward, and backward if there is one."""

    def __init__(self, programs: Sequence[Program], *, options: Options, cores: int) -> None:
        self._programs = programs
        self._options = options
        self._cores = cores
        self._found: list[Candidate] = []
        self._gradients: tuple[GradientTimes, ...] = ()
        self._machine = Machine(cores=cores)

    def choose(self, step: Call) -> tuple[Ranking, Candidate | None]:
        """The ranking, and the candidate that won, or None for plain execution. ``step`` runs the programs."""
        budget = Budget(self._options.seconds)
        try:
            self._machine = gpu() if self._programs[0].on_gpu else this_machine(self._cores, budget=budget)
            parts = self._parts(budget)
            for_planning = budget.part(_PLANNING_SHARE)
            self._found = candidates(parts, options=self._options, machine=self._machine, budget=for_planning)
            calls = {PLAIN: self._step(step)}
            calls |= {each.name: self._step(step, each) for each in self._found}
            ranking = fastest(calls, clock=clock_of_steps(), budget=budget, fall_back=self._options.fall_back)
        except OutOfTime:
            said = f"seconds={self._options.seconds:g} are too few to measure it here; give it more"
            ranking = Ranking(winner=PLAIN, reason=said, steps={}, trusted=False)
        return ranking, next((each for each in self._found if each.name == ranking.winner), None)

    def choice(self, ranking: Ranking, winner: Candidate | None, *, graph: str) -> Choice:
        """What was found, as data."""
        plain = [peak_bytes(each.cut.held, one_at_a_time(each.cut, threads=self._cores)) for each in self._programs]
        return Choice(
            graph=graph,
            device=device_name(on_gpu=self._programs[0].on_gpu, cores=self._cores),
            cores=self._cores,
            asked=self._options.asked,
            winner=ranking.winner,
            reason=ranking.reason,
            schedules=winner.schedules if winner else (),
            kept_whole=self._programs[-1].kept_whole,
            steps=ranking.steps,
            peaks={PLAIN: max(plain), **{each.name: each.peak_bytes for each in self._found}},
            notes={each.name: each.note for each in self._found if each.note},
            gradients=self._gradients,
            handover_us=self._machine.handover_us,
            change_us=self._machine.change_us,
            trusted=ranking.trusted,
            versions=kept_versions(),
            created=versions.now(),
        )

    def _parts(self, budget: Budget) -> list[Part]:
        """The graphs with the times of their tasks; gradients apart where that costs nothing."""
        known: Known = {}
        pairs = []
        for_pairs = budget.part(_PAIRS_SHARE)
        for program in self._programs:
            found = self._pairs(program, for_pairs, known)
            whole = {each.pair.convolution for each in found if each.is_better_whole}
            if kept := [place for place in whole if place is not None]:
                program.split_all_but(kept)
                found = self._pairs(program, for_pairs, known)
            pairs.append(found)
        self._gradients = tuple(
            GradientTimes(name=each.pair.name, serial_us=each.serial_us, at_once_us=each.at_once_us)
            for found in pairs
            for each in found
        )
        graphs = [program.cut.graph for program in self._programs]
        timed = self._timed(budget.part(_TASKS_SHARE))
        curves = known_curves(graphs, timed, cores=self._machine.cores, options=self._options)
        return [
            Part(cut=program.cut, curves=curve, pairs=found)
            for program, curve, found in zip(self._programs, curves, pairs, strict=True)
        ]

    def _pairs(self, program: Program, budget: Budget, known: Known) -> list[PairTimes]:
        timer = TaskTimer(program.cut, budget=budget)
        return pair_times(program.cut, timer, cores=self._machine.cores, known=known)

    def _timed(self, budget: Budget) -> Timed:
        """Times any task of the graphs. Once the budget is used up, it estimates them, by those that were timed."""
        home: dict[str, tuple[TaskTimer, Task]] = {}
        for program in self._programs:
            timer = TaskTimer(program.cut, budget=budget)
            home |= {task.signature: (timer, task) for task in reversed(program.cut.graph.tasks)}
        ratios = [1.0]

        def timed(task: Task, threads: int) -> float:
            timer, same = home[task.signature]
            estimate_us = estimated_us(task, threads)
            try:
                us = timer.timed(same, threads)
            except OutOfTime:
                return estimate_us * statistics.median(ratios)
            ratios.append(us / estimate_us)
            return us

        return timed

    def _step(self, step: Call, candidate: Candidate | None = None) -> Call:
        """A step by the schedules of a candidate, or of plain execution."""
        engines = [
            program.prepared(schedule)
            for program, schedule in zip(self._programs, candidate.schedules if candidate else (), strict=False)
        ]

        def run() -> object:
            for program in self._programs:
                program.run_plainly()
            for program, engine in zip(self._programs, engines, strict=False):
                program.engine = engine
            return step()

        return run
