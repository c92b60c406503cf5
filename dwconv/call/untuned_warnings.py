"""Warnings of calls, each given once in a process. Of layers of a kind a line names the first. Of the layers of an
example one line counts those that are untuned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import torch

from dwconv.dispatch.decision import DispatchDecision
from dwconv.errors import warn
from dwconv.problems.as_written import tune_command
from dwconv.problems.problem import Problem
from dwconv.problems.workload import Pass
from dwconv.system import versions

_MOST_NAMED = 3
_MOST_EXAMPLES = 8


@dataclass(frozen=True, kw_only=True)
class LayerOfExample:
    """A layer that a step on the example of ``convert`` ran."""

    name: str
    problem: Problem
    device: torch.device
    passes: tuple[Pass, ...]
    """Those that ran."""


_examples: list[dict[str, list[LayerOfExample]]] = []
"""The layers of each example whose untuned ones were not counted yet, by ``sizes_of`` their problems."""
_named: set[str] = set()
"""The warnings that were given."""


def untuned(problem: Problem, decisions: Mapping[Pass, DispatchDecision], *, fate: str) -> str:
    """What becomes of untuned passes, why, and the command that tunes them."""
    reasons = "; ".join(dict.fromkeys(each.reason for each in decisions.values()))
    command = tune_command(problem.workload("fprop"), list(decisions))
    return f"{', '.join(decisions)} of {problem} {fate}: {reasons}; tune them{versions.where_to_tune()}: {command}"


def left_to_pytorch(decisions: Mapping[Pass, DispatchDecision]) -> dict[Pass, DispatchDecision]:
    """Those of passes that are untuned, and not only of too many sizes."""
    return {
        pass_: each
        for pass_, each in decisions.items()
        if each.command and each.provider == "pytorch" and not each.too_many_sizes
    }


def sizes_of(problem: Problem) -> str:
    """A key of the layer and its size: equal for all batch sizes, with a bias or without."""
    return problem.alone.workload("fprop").for_pass("dgrad").batchless_key


def expect(layers: Iterable[LayerOfExample]) -> None:
    """The first call of an untuned one of these layers counts all that are untuned, in one warning."""
    found: dict[str, list[LayerOfExample]] = {}
    for layer in layers:
        found.setdefault(sizes_of(layer.problem), []).append(layer)
    if found:
        _examples.append(found)
        del _examples[:-_MOST_EXAMPLES]


def of_an_example(sizes: str, slow_passes: Callable[[Problem, torch.device], Collection[Pass]]) -> str:
    """The warning that counts the untuned layers of the example that has a layer of these sizes; empty if no example
    has one, and if it is the only one. ``slow_passes``: those that an untuned layer leaves to PyTorch's op."""
    example = next((each for each in _examples if sizes in each), None)
    if example is None:
        return ""
    _examples.remove(example)
    slow = {key: slow_passes(alike[0].problem, alike[0].device) for key, alike in example.items()}
    counts = {
        layer.name or "(the model itself)": len({*slow[key]} & {*layer.passes})
        for key, alike in example.items()
        for layer in alike
    }
    names = [name for name, count in counts.items() if count]
    if len(names) < 2:
        return ""
    passes = sum(counts.values())
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (
        f"{passes} passes of {len(names)} depthwise layers run on PyTorch's own op, untuned: "
        f"{', '.join(names[:_MOST_NAMED])}{more}; tune them{versions.where_to_tune()}: "
        "dwconv.tune(model, example_inputs); dwconv.report(model) lists all"
    )


def is_first(name: str) -> bool:
    """True the first time in this process."""
    first = name not in _named
    _named.add(name)
    return first


def warn_of_first(kind: str, message: str) -> None:
    """Warn once of what may happen in every layer of a model."""
    if is_first(kind):
        warn(f"{message}; others are not named: dwconv.report(model) lists those of a model")


def kind_of(fault: str) -> str:
    """The fault of a kernel, without the part that differs between kernels."""
    return fault.partition(":")[0]


def warn_once(message: str) -> None:
    """Warn, the first time in this process, where the user called."""
    if is_first(message):
        warn(message)


def forget() -> None:
    """Give all warnings again."""
    _named.clear()
