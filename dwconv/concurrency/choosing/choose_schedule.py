"""Choosing: measure a graph in its first step, on copies that leave no trace, and choose what runs it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

from dwconv.concurrency.choosing.candidates import Candidate, Part, candidates
from dwconv.concurrency.choosing.choice import Choice, GradientTimes
from dwconv.concurrency.choosing.measured import Ranking, fastest
from dwconv.concurrency.choosing.options import PLAIN, Options
from dwconv.concurrency.choosing.planner import Planner, gpu, this_machine
from dwconv.concurrency.graph.task_graph import Task
from dwconv.concurrency.running.lanes import one_at_a_time
from dwconv.concurrency.running.program import Program
from dwconv.concurrency.scheduling.machine import Machine
from dwconv.concurrency.scheduling.memory import peak_bytes
from dwconv.concurrency.times.budget import Budget
from dwconv.concurrency.times.estimate import estimated_us
from dwconv.concurrency.times.hill_climbing import Timed
from dwconv.concurrency.times.pair_times import Known, PairTimes, pair_times
from dwconv.concurrency.times.task_timer import TaskTimer
from dwconv.errors import OutOfTime
from dwconv.measure.clock.timing import Call, Clock, CpuClock
from dwconv.problems.target import cpu_target, cuda_target
from dwconv.system import versions

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
            planner = Planner(self._machine, self._options)
            parts = self._parts(planner, budget)
            self._found = candidates(parts, options=self._options, planner=planner, budget=budget.part(_PLANNING_SHARE))
            calls = {PLAIN: self._plain_step(step)}
            calls |= {each.name: self._step(each, step) for each in self._found}
            ranking = fastest(calls, clock=clock_of_steps(), budget=budget, fall_back=self._options.fall_back)
        except OutOfTime:
            said = f"seconds={self._options.seconds:g} are too few to measure it here; give it more"
            ranking = Ranking(winner=PLAIN, reason=said, steps={}, trusted=False)
        return ranking, next((each for each in self._found if each.name == ranking.winner), None)

    def choice(self, ranking: Ranking, winner: Candidate | None, *, graph: str) -> Choice:
        """What was found, as data."""
        peaks = {each.name: each.peak_bytes for each in self._found}
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
            peaks={PLAIN: max(self._plain_peak(program) for program in self._programs), **peaks},
            notes={each.name: each.note for each in self._found if each.note},
            gradients=self._gradients,
            handover_us=self._machine.handover_us,
            change_us=self._machine.change_us,
            trusted=ranking.trusted,
            versions=kept_versions(),
            created=versions.now(),
        )

    def _parts(self, planner: Planner, budget: Budget) -> list[Part]:
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
            GradientTimes(name=each.name, serial_us=each.serial_us, at_once_us=each.at_once_us)
            for found in pairs
            for each in found
        )
        graphs = [program.cut.graph for program in self._programs]
        curves = planner.curves(graphs, self._timed(budget.part(_TASKS_SHARE)))
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

    def _plain_step(self, step: Call) -> Call:
        """A step of plain execution."""

        def run() -> object:
            for program in self._programs:
                program.run_plainly()
            return step()

        return run

    def _step(self, candidate: Candidate, step: Call) -> Call:
        """A step by the schedules of a candidate."""
        engines = [
            program.prepared(schedule) for program, schedule in zip(self._programs, candidate.schedules, strict=True)
        ]

        def run() -> object:
            for program, engine in zip(self._programs, engines, strict=True):
                program.engine = engine
            return step()

        return run

    def _plain_peak(self, program: Program) -> int:
        return peak_bytes(program.cut.held, one_at_a_time(program.cut, threads=self._cores))
