"""``explain``: what runs the graphs of a compiled model, why, how long a step takes, and what memory it needs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dwconv.concurrency.backend import CompiledGraph, graphs
from dwconv.concurrency.choice import Choice
from dwconv.concurrency.options import PLAIN
from dwconv.concurrency.program import Program
from dwconv.concurrency.task_graph import Task
from dwconv.concurrency.timeline import Operation, TaskRun, expected, lines, operations, write_trace
from dwconv.errors import InvalidChoice, InvalidWorkload
from dwconv.records.record import Measurement, in_us

_MOST_LAYERS, _MOST_OPERATIONS = 5, 8


@dataclass(frozen=True, kw_only=True)
class GraphExplanation:
    """One graph: a model has several if torch.compile breaks it, or it was called with several sizes."""

    runs: str
    """``plain``, or the name of the schedule."""
    reason: str
    tasks: tuple[int, ...]
    """How many tasks there are: forward, and backward if that has run."""
    choice: Choice | None
    """All that was measured; None before the first call, and where there is nothing to choose."""
    source: str
    """Where the choice comes from."""
    operations: tuple[Operation, ...] = ()
    """Every task of what runs: threads, lane, start, neighbours, predicted and seen time. Plain execution as one task
    at a time. Empty where nothing was measured."""

    @property
    def steps(self) -> Mapping[str, Measurement]:
        """A step, forward and backward: plain, and with each schedule that was measured."""
        return self.choice.steps if self.choice else {}

    @property
    def peaks(self) -> Mapping[str, int]:
        """By schedule, and ``plain`` for plain order: bytes that the results of tasks take at most."""
        return self.choice.peaks if self.choice else {}

    def __str__(self) -> str:
        tasks = " + ".join(str(count) for count in self.tasks) or "no"
        said = [f"graph of {tasks} tasks runs {self.runs}: {self.reason}"]
        if self.choice is not None:
            said += self._measured(self.choice)
            said += self.choice.notes
        said += lines(self.operations, most=_MOST_OPERATIONS)
        return "\n  ".join(said + ([self.source] if self.source else []))

    def _measured(self, choice: Choice) -> list[str]:
        width = max((len(name) for name in choice.steps), default=0)
        said = []
        for name, step in sorted(choice.steps.items(), key=lambda item: (item[0] != PLAIN, item[1].median_us)):
            line = f"{name:<{width}}  {in_us(step.median_us)} (±{in_us(step.spread_us)}) a step"
            if name in choice.peaks:
                line += f", results take up to {choice.peaks[name] / 1e6:.1f} MB"
            said.append(line)
        if choice.steps:
            said.append(
                f"{choice.cores} threads; a hand-over takes {in_us(choice.handover_us)}, "
                f"another number of threads {in_us(choice.change_us)}"
            )
        return said


@dataclass(frozen=True, kw_only=True)
class ScheduleExplanation:
    """The graphs of a model. Prints as a short report."""

    graphs: tuple[GraphExplanation, ...]
    left_out: str = ""
    """Which parts of the model torch.compile has left out, by their parameters; empty if none."""

    def __str__(self) -> str:
        return "\n".join([*map(str, self.graphs), *([self.left_out] if self.left_out else [])])


def explain(
    model: torch.nn.Module | None = None, *, timeline: str | os.PathLike[str] | None = None
) -> ScheduleExplanation:
    """What ``dwconv_concurrent`` runs for ``model``, compiled or not; without one, for all graphs of this process. A
    graph belongs to the model whose parameters it takes. ``timeline``: a file to write a step to, as a trace that
    Perfetto and Chrome open.

    Raises InvalidWorkload for a model that has not run with the backend, and InvalidChoice if there is no timeline or
    it cannot be written."""
    found = sorted(graphs, key=lambda each: each.number)
    left_out = ""
    if model is not None:
        model = getattr(model, "_orig_mod", model)
        mine = {id(parameter) for parameter in model.parameters()}
        found = [graph for graph in found if not mine.isdisjoint(graph.parameters)]
        left_out = _left_out(model, used=set().union(*(graph.parameters for graph in found)))
        if not found and not any(isinstance(part, torch.nn.RNNBase) for part in model.modules()):
            raise InvalidWorkload(
                f'{type(model).__name__} has not run with torch.compile(model, backend="dwconv_concurrent") in this '
                "process, or nothing in it was compiled"
            )
    if timeline is not None:
        _write(Path(timeline), found)
    return ScheduleExplanation(graphs=tuple(_explained(graph) for graph in found), left_out=left_out)


def _write(path: Path, found: Sequence[CompiledGraph]) -> None:
    shown = [(f"graph {graph.number}", ran, _tasks(graph)) for graph in found if (ran := _ran(graph))]
    if not shown:
        raise InvalidChoice(f"timeline={path} has nothing to show: no graph was measured or has a schedule")
    write_trace(path, shown)


def _tasks(graph: CompiledGraph) -> list[Sequence[Task]]:
    return [program.cut.graph.tasks for program in _programs(graph)]


def _programs(graph: CompiledGraph) -> list[Program]:
    return [program for program in (graph.forward, graph.backward) if program is not None]


def _ran(graph: CompiledGraph) -> tuple[tuple[TaskRun, ...], ...]:
    """What runs the graph as it was recorded; or the schedules, if nothing was; empty if it does not fit."""
    if graph.why_plain or graph.choice is None:
        return ()
    engines = [program.engine for program in _programs(graph)]
    ran = graph.choice.timeline or expected([engine.schedule for engine in engines if engine is not None])
    tasks = _tasks(graph)
    fits = len(ran) <= len(tasks) and all(
        sorted(each.placed.task for each in runs) == list(range(len(known)))
        for runs, known in zip(ran, tasks, strict=False)
    )
    return ran if fits else ()


def _left_out(model: torch.nn.Module, *, used: set[int]) -> str:
    """Which layers' parameters went into no graph, in a line."""
    layers = []
    for name, layer in model.named_modules():
        own = [id(parameter) for parameter in layer.parameters(recurse=False)]
        if own and used.isdisjoint(own):
            layers.append((name or "the model", layer))
    if not layers:
        return ""
    total = len(list(model.parameters()))
    missing = total - len(used & {id(parameter) for parameter in model.parameters()})
    shown = ", ".join(f"{name} ({type(layer).__name__})" for name, layer in layers[:_MOST_LAYERS])
    more = f" and {len(layers) - _MOST_LAYERS} more" if len(layers) > _MOST_LAYERS else ""
    recurrent = sorted({type(layer).__name__ for _, layer in layers if isinstance(layer, torch.nn.RNNBase)})
    why = f"; torch.compile does not capture {' and '.join(recurrent)}" if recurrent else ""
    return (
        f"no graph has {missing} of {total} parameters, of {shown}{more}: "
        f"what torch.compile left out, or has not run yet, runs as without it{why}"
    )


def _explained(graph: CompiledGraph) -> GraphExplanation:
    tasks = _tasks(graph)
    choice = None if graph.why_plain else graph.choice
    reason = graph.why_plain or (choice.reason if choice else "it has not run yet")
    return GraphExplanation(
        runs=choice.winner if choice else PLAIN,
        reason=reason,
        tasks=tuple(map(len, tasks)),
        choice=choice,
        source=graph.source,
        operations=operations(_ran(graph), tasks),
    )
