"""Warnings of untuned layers: a line names the first of a process. Of the layers of an example one line counts those
that are untuned."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch

from dwconv.call import process_kernels
from dwconv.call.warned_once import is_first, warn_of_first
from dwconv.dispatch.decision import DispatchDecision
from dwconv.dispatch.of_problem import decisions
from dwconv.errors import warn
from dwconv.problems.as_written import tune_command
from dwconv.problems.problem import Problem
from dwconv.problems.workload import PASSES, Pass
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
_met: set[str] = set()
"""``sizes_of`` all that plans were made for, tuned or not."""


def warn_of_untuned(problem: Problem, made: Mapping[Pass, DispatchDecision]) -> None:
    """Warn of the first layer that is untuned, by what was decided; of one of an example, with all others that are. No
    warning for predicted kernels: ``explain`` names the command. None for epilogues and blocks: without a kernel the
    plan without one runs."""
    if problem.epilogue != "none" or problem.block or (sizes := sizes_of(problem)) in _met:
        return
    _met.add(sizes)
    if refused := [each for each in made.values() if each.too_many_sizes]:
        warn_of_first(
            "sizes",
            f"{problem} and further sizes of this layer run on PyTorch's own op: {refused[0].reason}; pad to fewer "
            f"sizes, or tune those that matter: {tune_command(problem.workload('fprop'), PASSES)}",
        )
    slow = _left_to_pytorch(made)
    if slow and (message := _of_an_example(sizes)):
        is_first("untuned")
        warn(message)
    elif slow:
        warn_of_first("untuned", untuned(problem, slow, fate="run on PyTorch's own op"))


def untuned(problem: Problem, made: Mapping[Pass, DispatchDecision], *, fate: str) -> str:
    """What becomes of untuned passes, why, and the command that tunes them."""
    reasons = "; ".join(dict.fromkeys(each.reason for each in made.values()))
    command = tune_command(problem.workload("fprop"), list(made))
    return f"{', '.join(made)} of {problem} {fate}: {reasons}; tune them{versions.where_to_tune()}: {command}"


def _left_to_pytorch(made: Mapping[Pass, DispatchDecision]) -> dict[Pass, DispatchDecision]:
    """Those of passes that are untuned, and not only of too many sizes."""
    return {
        pass_: each
        for pass_, each in made.items()
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


def _of_an_example(sizes: str) -> str:
    """The warning that counts the untuned layers of the example that has a layer of these sizes; empty if no example
    has one, and if it is the only one."""

    def slow_passes(layer: LayerOfExample) -> Collection[Pass]:
        found, _ = decisions(layer.problem, layer.device, state=process_kernels.state)
        return () if any(each.is_open for each in found.values()) else _left_to_pytorch(found)

    example = next((each for each in _examples if sizes in each), None)
    if example is None:
        return ""
    _examples.remove(example)
    slow = {key: slow_passes(alike[0]) for key, alike in example.items()}
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


def forget_sizes() -> None:
    """Forget which sizes plans were made for."""
    _met.clear()
