"""The settings that are compared: a schedule for every graph of a step, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.concurrency.step import Graph, Setting
from bench.concurrency.times import Models, curves_of
from dwconv.concurrency.choosing.pair_schedule import at_once_schedule
from dwconv.concurrency.running.lanes import one_at_a_time
from dwconv.concurrency.running.program import Program
from dwconv.concurrency.scheduling.list_scheduling import Curves
from dwconv.concurrency.scheduling.machine import Machine
from dwconv.concurrency.scheduling.schedule import Schedule
from dwconv.concurrency.scheduling.strategies import combined, manual, schedules

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
