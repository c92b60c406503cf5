"""``explain``: what runs the graphs of a compiled model, why, how long a step takes, and what memory it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from dwconv.advantage import in_us
from dwconv.concurrency.choosing.choice import Choice
from dwconv.concurrency.choosing.measured import PLAIN
from dwconv.concurrency.compiled_graph import CompiledGraph, graphs
from dwconv.errors import InvalidWorkload
from dwconv.records.record import Measurement

_MOST_GRADIENTS = 5


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
        lines = [f"graph of {tasks} tasks runs {self.runs}: {self.reason}"]
        if self.choice is not None:
            lines += self._measured(self.choice)
        return "\n  ".join(lines + ([self.source] if self.source else []))

    def _measured(self, choice: Choice) -> list[str]:
        width = max((len(name) for name in choice.steps), default=0)
        lines = []
        for name, step in sorted(choice.steps.items(), key=lambda item: (item[0] != PLAIN, item[1].median_us)):
            line = f"{name:<{width}}  {in_us(step.median_us)} (±{in_us(step.spread_us)}) a step"
            if name in choice.peaks:
                line += f", results take up to {choice.peaks[name] / 1e6:.1f} MB"
            lines.append(line + (f"; {choice.notes[name]}" if name in choice.notes else ""))
        if choice.steps:
            lines.append(
                f"{choice.cores} threads; a hand-over takes {in_us(choice.handover_us)}, "
                f"another number of threads {in_us(choice.change_us)}"
            )
        return lines + self._gradients(choice)

    def _gradients(self, choice: Choice) -> list[str]:
        faster = [each for each in choice.gradients if each.at_once_us < each.serial_us]
        if not choice.gradients:
            return []
        lines = [f"dgrad beside wgrad is faster for {len(faster)} of {len(choice.gradients)} convolutions"]
        faster.sort(key=lambda each: each.at_once_us - each.serial_us)
        for each in faster[:_MOST_GRADIENTS]:
            lines.append(
                f"  {each.name}: {in_us(each.at_once_us)} at once, {in_us(each.serial_us)} one after the other"
            )
        return lines


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The graphs of a model. Prints as a short report."""

    graphs: tuple[GraphExplanation, ...]

    def __str__(self) -> str:
        return "\n".join(str(graph) for graph in self.graphs)


def explain(model: torch.nn.Module | None = None) -> Explanation:
    """What ``dwconv_concurrent`` runs for ``model``, compiled or not; without one, for all graphs of this process. A
    graph belongs to the model whose parameters it takes.

    Raises InvalidWorkload for a model that has not run with the backend."""
    found = [graph for graph in graphs if model is None or graph.uses(model)]
    if model is not None and not found:
        name = type(getattr(model, "_orig_mod", model)).__name__
        raise InvalidWorkload(
            f'{name} has not run with torch.compile(model, backend="dwconv_concurrent") in this process, '
            "or nothing in it was compiled"
        )
    return Explanation(graphs=tuple(_explained(graph) for graph in sorted(found, key=lambda each: each.number)))


def _explained(graph: CompiledGraph) -> GraphExplanation:
    programs = [program for program in (graph.forward, graph.backward) if program is not None]
    choice = None if graph.why_plain else graph.choice
    reason = graph.why_plain or (choice.reason if choice else "it has not run yet")
    return GraphExplanation(
        runs=choice.winner if choice else PLAIN,
        reason=reason,
        tasks=tuple(len(program.cut.graph.tasks) for program in programs),
        choice=choice,
        source=graph.source,
    )
