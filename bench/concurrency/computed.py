"""A step on machines that are not here, computed from times measured on this one: 8, 16 or 64 cores.

    t(threads) = serial + parallel / threads + fork · log2(threads)

``serial`` and ``parallel`` are fitted to each task's measured times (Amdahl); ``fork`` is what starting and joining
twice as many threads adds, measured here. What the form leaves out makes real machines slower: caches that are shared,
memory of several sockets, clocks that fall when all cores work. With a curve of two counts the fit has no error left
to show, so an extrapolation from one and two threads is a guess that nothing here can judge.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import nnls

from bench.concurrency.step import ALL, RECOMMENDED, Graph, Setting
from bench.concurrency.times import Models, curves_of
from dwconv.concurrency.list_scheduling import Curves
from dwconv.concurrency.schedule import Machine, ScalingCurve, Task, TaskGraph
from dwconv.concurrency.strategies import manual, schedules
from dwconv.errors import InvalidChoice
from dwconv.measure.clock.timing import GLANCE, CpuClock, time_in_turns


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The form, fitted to one task."""

    serial_us: float
    parallel_us: float
    fork_us: float

    def us(self, threads: int) -> float:
        """The time with ``threads`` threads."""
        return self.serial_us + self.parallel_us / threads + self.fork_us * math.log2(threads)


def fitted(task: Task, curve: ScalingCurve, *, fork_us: float = 0.0) -> Fit:
    """The least-squares fit to the measured times, relative errors, with no negative part. Raises InvalidChoice for a
    curve of one count."""
    if len(curve.median_us) < 2:
        raise InvalidChoice(f"task {task.name} was timed with one thread only; more cores need two counts or more")
    counts = np.array(sorted(curve.median_us), dtype=np.float64)
    us = np.array([curve.median_us[int(count)] for count in counts])
    columns = np.stack([1 / us, 1 / (counts * us)], axis=1)
    serial_us, parallel_us = nnls(columns, 1 - fork_us * np.log2(counts) / us)[0].tolist()
    return Fit(serial_us=serial_us, parallel_us=parallel_us, fork_us=fork_us)


def extrapolated(graph: TaskGraph, curves: Curves, *, cores: int, fork_us: float = 0.0) -> dict[int, ScalingCurve]:
    """By task, its curve up to ``cores`` threads: as measured where it was, computed beyond. Raises InvalidChoice."""
    extended: dict[int, ScalingCurve] = {}
    for task in graph.tasks:
        measured = curves[task.index].median_us
        fit = fitted(task, curves[task.index], fork_us=fork_us)
        extended[task.index] = ScalingCurve(
            median_us={count: measured.get(count, fit.us(count)) for count in range(1, cores + 1)}
        )
    return extended


@dataclass(frozen=True, kw_only=True)
class Computed:
    """A step with so many cores, computed, in microseconds."""

    recommended_us: float
    """One task at a time on all cores."""
    manual_us: float
    """The best of all settings of so many tasks at a time with so many threads each, within the cores."""
    manual: tuple[int, int]
    """That setting: tasks at a time, threads each."""
    strategies_us: Mapping[tuple[str, ...], float]


def computed(
    graph: TaskGraph, curves: Curves, *, machine: Machine, strategies: Sequence[tuple[str, ...]], fork_us: float = 0.0
) -> Computed:
    """The step on ``machine``, from curves that were measured with fewer cores. Raises InvalidChoice."""
    cores = machine.cores
    extended = extrapolated(graph, curves, cores=cores, fork_us=fork_us)
    manual_us, setting = min(
        (manual(graph, extended, threads=threads, workers=workers, machine=machine).makespan_us, (workers, threads))
        for workers in _powers_of_two(cores)
        for threads in _powers_of_two(cores // workers)
    )
    return Computed(
        recommended_us=schedules(graph, extended, strategies=(), machine=machine).makespan_us,
        manual_us=manual_us,
        manual=setting,
        strategies_us={
            chosen: schedules(graph, extended, strategies=chosen, machine=machine).makespan_us for chosen in strategies
        },
    )


def joined(parts: Sequence[Computed]) -> Computed:
    """The graphs of one step, one after the other: forward, then backward. The manual setting is the best of those
    that each graph likes best, so it may differ from graph to graph; that of the longest is named."""
    longest = max(parts, key=lambda part: part.recommended_us)
    return replace(
        longest,
        recommended_us=sum(part.recommended_us for part in parts),
        manual_us=sum(part.manual_us for part in parts),
        strategies_us={
            chosen: sum(part.strategies_us[chosen] for part in parts) for chosen in longest.strategies_us
        },
    )  # fmt: skip


def _powers_of_two(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length())]


# -- beside the measured steps -----------------------------------------------------------------------------------------


CORES = (8, 16, 64)
STRATEGIES = (("S1",), ("S2",), ("S3",), ALL)
SINGLE = "manual 1 × 1"
"""One task at a time, with one thread."""
_FORKED = 1 << 15
"""Elements of the least operation that PyTorch divides among threads."""


@dataclass(frozen=True, kw_only=True)
class Simulator:
    """Computes steps from the times of tasks. A task was timed by itself, with its data in the caches; in a step it
    takes longer. So all times are multiplied by what one task at a time with one thread takes longer than computed."""

    in_place: float
    """That factor."""
    errors: Mapping[str, float]
    """By setting, how far the computed time of both graphs is off, as a share of the measured time."""

    @classmethod
    def checked(
        cls, settings: Sequence[Setting], graphs_ms: Mapping[str, Sequence[float]], *, machine: Machine
    ) -> Simulator:
        """Held against the measured times of the settings' graphs. Settings with more threads than cores are left out:
        nothing is computed for them."""
        fits = [each for each in settings if all(schedule.cores <= machine.cores for schedule in each.schedules)]
        measured_us = {each.name: 1e3 * statistics.median(graphs_ms[each.name]) for each in fits}
        expected_us = {each.name: each.expected_us for each in fits}
        reference = SINGLE if SINGLE in measured_us else RECOMMENDED
        in_place = measured_us[reference] / expected_us[reference]
        return cls(
            in_place=in_place,
            errors={name: in_place * expected_us[name] / us - 1 for name, us in measured_us.items()
                    if name != reference},
        )  # fmt: skip

    def steps_ms(self, graphs: Sequence[Graph], models: Models, *, machine: Machine) -> dict[str, dict[str, float]]:
        """By number of cores, the milliseconds of both graphs: recommended, best manual setting, strategies. Nothing
        with a single core here, whose times say nothing of more."""
        if machine.cores < 2:
            return {}
        fork_us = _fork_us(machine.cores)
        return {str(cores): self._step_ms(graphs, models, machine=replace(machine, cores=cores), fork_us=fork_us)
                for cores in CORES}  # fmt: skip

    def _step_ms(
        self, graphs: Sequence[Graph], models: Models, *, machine: Machine, fork_us: float
    ) -> dict[str, float]:
        by_hand: list[Computed] = []
        strategies: list[Computed] = []
        for graph in graphs:
            for program, parts, chosen in ((graph.whole, by_hand, ()), (graph.apart, strategies, STRATEGIES)):
                tasks = program.cut.graph
                curves = curves_of(tasks, models.curves["hill climbing"])
                parts.append(computed(tasks, curves, machine=machine, strategies=chosen, fork_us=fork_us))
        whole, apart = joined(by_hand), joined(strategies)
        us = {
            RECOMMENDED: whole.recommended_us,
            f"manual {whole.manual[0]} × {whole.manual[1]}": whole.manual_us,
            **{"+".join(names): each_us for names, each_us in apart.strategies_us.items()},
        }
        return {name: self.in_place * each_us / 1e3 for name, each_us in us.items()}


def _fork_us(cores: int) -> float:
    """What starting and joining threads adds to the least operation that is divided, for twice as many threads."""
    data = torch.ones(_FORKED)
    result = torch.empty_like(data)
    before = torch.get_num_threads()
    us = {}
    try:
        for threads in (1, cores):
            torch.set_num_threads(threads)
            calls = {"add": lambda: torch.add(data, 1.0, out=result)}
            us[threads] = statistics.median(
                time_in_turns(calls, clock=CpuClock(), effort=GLANCE)["add"].median_us for _ in range(3)
            )
    finally:
        torch.set_num_threads(before)
    return max(0.0, us[cores] - us[1] / cores)
