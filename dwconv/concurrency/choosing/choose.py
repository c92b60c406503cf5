"""Choosing: measure a graph in its first step, on copies that leave no trace, and choose what runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dwconv import versions
from dwconv.concurrency.choosing.candidates import Candidate, Part, candidates
from dwconv.concurrency.choosing.choice import Choice, GradientTimes
from dwconv.concurrency.choosing.measured import PLAIN, Ranking, fastest
from dwconv.concurrency.choosing.options import Options
from dwconv.concurrency.choosing.planner import Planner, gpu, this_machine
from dwconv.concurrency.choosing.trial import Trial
from dwconv.concurrency.graph.task_graph import Task
from dwconv.concurrency.running.lanes import one_at_a_time
from dwconv.concurrency.running.program import Program
from dwconv.concurrency.scheduling.memory import peak_bytes
from dwconv.concurrency.times.pair_times import Known, pair_times
from dwconv.concurrency.times.task_timer import TaskTimer
from dwconv.measure.stamp import now
from dwconv.measure.timing import Call, Clock, CpuClock
from dwconv.target import cpu_target, cuda_target

clock_of_steps: Callable[[], Clock] = partial(CpuClock, crowded=True)
"""Makes the clock that steps are timed with. Every lane of a schedule has threads of its own."""


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
        self._started = time.perf_counter()
        machine = gpu() if programs[0].on_gpu else this_machine(cores)
        self._planner = Planner(machine, options)

    def choose(self, trial: Trial, *, plain: Callable[..., Any], compiled: Callable[..., Any]) -> tuple[Ranking, Any]:
        """The ranking, and the candidate that won, or None for plain execution."""
        self._found = candidates(self._parts(), options=self._options, planner=self._planner)
        calls = {PLAIN: trial.step(plain)}
        calls |= {each.name: self._step(each, trial.step(compiled)) for each in self._found}
        left_s = self._options.seconds - (time.perf_counter() - self._started)
        ranking = fastest(
            calls,
            clock=clock_of_steps(),
            seconds=max(left_s, self._options.seconds / 2),
            fall_back=self._options.fall_back,
        )
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
            handover_us=self._planner.machine.handover_us,
            change_us=self._planner.machine.change_us,
            trusted=ranking.trusted,
            versions=kept_versions(),
            created=now(),
        )

    def _parts(self) -> list[Part]:
        """The graphs with the times of their tasks; gradients apart where that costs nothing."""
        known: Known = {}
        pairs, timers = [], []
        for program in self._programs:
            timer = TaskTimer(program.cut)
            found = pair_times(program.cut, timer, cores=self._planner.machine.cores, known=known)
            whole = {each.pair.convolution for each in found if each.is_better_whole}
            if kept := [place for place in whole if place is not None]:
                program.split_all_but(kept)
                timer = TaskTimer(program.cut)
                found = pair_times(program.cut, timer, cores=self._planner.machine.cores, known=known)
            pairs.append(found)
            timers.append(timer)
        self._gradients = tuple(
            GradientTimes(name=each.name, serial_us=each.serial_us, at_once_us=each.at_once_us)
            for found in pairs
            for each in found
        )
        graphs = [program.cut.graph for program in self._programs]
        home = {
            task.signature: (timer, task)
            for graph, timer in zip(graphs, timers, strict=True)
            for task in reversed(graph.tasks)
        }

        def timed(task: Task, threads: int) -> float:
            timer, same = home[task.signature]
            return timer.timed(same, threads)

        curves = self._planner.curves(graphs, timed)
        return [
            Part(cut=program.cut, curves=curve, pairs=found)
            for program, curve, found in zip(self._programs, curves, pairs, strict=True)
        ]

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
