"""What is computed beside the measured steps: how far the simulator is off here, and steps on more cores."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from bench.concurrency.settings import ALL, RECOMMENDED
from bench.concurrency.simulation import Computed, Form, computed, error, joined
from bench.concurrency.step import Graph, Setting
from bench.concurrency.times import Models, curves_of
from dwconv.concurrency.scheduling.machine import Machine
from dwconv.measure.clock.timing import GLANCE, CpuClock, time_in_turns

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
            errors={name: error(in_place * expected_us[name], us) for name, us in measured_us.items()
                    if name != reference},
        )  # fmt: skip

    def steps_ms(self, graphs: Sequence[Graph], models: Models, *, machine: Machine) -> dict[str, dict[str, float]]:
        """By number of cores, the milliseconds of both graphs: recommended, best manual setting, strategies. Nothing
        with a single core here, whose times say nothing of more."""
        if machine.cores < 2:
            return {}
        form = Form(fork_us=_fork_us(machine.cores))
        return {str(cores): self._step_ms(graphs, models, machine=replace(machine, cores=cores), form=form)
                for cores in CORES}  # fmt: skip

    def _step_ms(self, graphs: Sequence[Graph], models: Models, *, machine: Machine, form: Form) -> dict[str, float]:
        by_hand: list[Computed] = []
        strategies: list[Computed] = []
        for graph in graphs:
            for program, parts, chosen in ((graph.whole, by_hand, ()), (graph.apart, strategies, STRATEGIES)):
                tasks = program.cut.graph
                curves = curves_of(tasks, models.curves["hill climbing"])
                parts.append(computed(tasks, curves, machine=machine, strategies=chosen, form=form))
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
