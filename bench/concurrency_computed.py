"""What is computed beside the measured steps: how far the simulator is off here, and steps on more cores."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from bench.concurrency_settings import ALL, Setting
from bench.concurrency_step import Graph, SwitchedStep
from bench.concurrency_times import Models, curves_of
from dwconv.concurrency.engine import Engine
from dwconv.concurrency.machine import Machine
from dwconv.concurrency.simulation import Form, computed, error, joined
from dwconv.measure.timing import GLANCE, CpuClock, time_in_turns

CORES = (8, 16, 64)
STRATEGIES = (("S1",), ("S2",), ("S3",), ALL)
_STEPS = 5
_FORKED = 1 << 15
"""Elements of the least operation that PyTorch divides among threads."""


def errors_of_the_simulator(
    step: SwitchedStep, settings: Sequence[Setting], engines: Mapping[str, Sequence[Engine]]
) -> dict[str, float]:
    """By setting, how far the computed time of both graphs is off from their measured time. Settings with more threads
    than cores are left out: nothing is computed for them."""
    cores = torch.get_num_threads()
    fits = [setting for setting in settings if all(schedule.cores <= cores for schedule in setting.schedules)]
    return {
        setting.name: error(setting.expected_us / 1e3, step.graphs_ms(engines[setting.name], steps=_STEPS))
        for setting in fits
    }


def computed_steps(graphs: Sequence[Graph], models: Models, *, machine: Machine) -> dict[str, dict[str, Any]]:
    """By number of cores, the milliseconds of both graphs: recommended, best manual setting, strategies. Nothing with a
    single core here, whose times say nothing of more."""
    if machine.cores < 2:
        return {}
    form = Form(fork_us=_fork_us(machine.cores))
    steps: dict[str, dict[str, Any]] = {}
    for cores in CORES:
        larger = replace(machine, cores=cores)
        parts = [
            computed(
                graph.apart.cut.graph, curves_of(graph.apart.cut.graph, models.curves["hill climbing"]),
                machine=larger, strategies=STRATEGIES, form=form,
            )
            for graph in graphs
        ]  # fmt: skip
        whole = joined(parts)
        steps[str(cores)] = {
            "recommended": whole.recommended_us / 1e3,
            f"manual {whole.manual[0]} × {whole.manual[1]}": whole.manual_us / 1e3,
            **{"+".join(names): us / 1e3 for names, us in whole.strategies_us.items()},
        }
    return steps


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
