"""Blocks of a model: the forward passes that have them are traced ones from now on. The summary says what becomes of
each."""

from __future__ import annotations

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from dwconv.call import blocks
from dwconv.call.call_plan import plan_for
from dwconv.call.traces import is_written
from dwconv.discovery import DiscoveredBlock, Discovery
from dwconv.discovery.step import unwrapped
from dwconv.discovery.unchanged import unchanged
from dwconv.model.conversion import ConvertedLayer, shown_name
from dwconv.model.converted_classes import is_functional
from dwconv.model.swaps import Swaps
from dwconv.problems.problem import Problem


def swap_blocks(
    model: nn.Module, discovery: Discovery, swaps: Swaps, *, only_faster: bool = False
) -> tuple[ConvertedLayer, ...]:
    """Every block that was seen in the example may run as one; or those that are faster as one at its sizes. A row for
    each convolution with a norm next to it."""
    modules = dict(unwrapped(model).named_modules())
    rows, wanted = [], []
    for block in discovery.blocks:
        is_left = only_faster and not any(_is_faster(block, problem) for problem in _problems(block))
        why = block.why_not if block.problem is None else "" if is_left else _why_not(modules[block.parent], block)
        if not why and not is_left:
            wanted.append(block.name)
        rows.append(ConvertedLayer(block.name, f"no block: {why}" if why else _runs(block)))
    if wanted and discovery.tracing is not None:
        with unchanged(unwrapped(model), []):
            traced = discovery.tracing.traces(wanted)
        for path, traces in traced.items():
            if not is_written(modules[path]):
                swaps.trace(modules[path], traces)
    return tuple(rows)


def running_as_one(discovery: Discovery) -> set[str]:
    """The layers of the example whose block is faster as one at its sizes."""
    return {each.name for each in discovery.blocks if each.problem and _is_faster(each, each.problem)}


def _problems(block: DiscoveredBlock) -> list[Problem]:
    """That of the block as the example ran it, and in evaluation."""
    return list(dict.fromkeys([block.problem, block.problem.in_evaluation])) if block.problem else []


def _is_faster(block: DiscoveredBlock, problem: Problem) -> bool:
    return blocks.is_at_once(plan_for(problem, block.device))


def _why_not(parent: nn.Module, block: DiscoveredBlock) -> str:
    """Why the forward pass around a block stays as it is; empty if it may be a traced one."""
    if is_parametrized(parent):
        return f"{shown_name(block.parent)} is parametrised"
    if is_functional(parent):
        return f"{shown_name(block.parent)} convolves by functional calls"
    return ""


def _runs(block: DiscoveredBlock) -> str:
    """Whether a block runs as one at the sizes of the example, and why; in evaluation only where it does."""
    first, *others = _problems(block)
    told = f"block {first.block} from {shown_name(block.starts)} {_runs_as(block, first)}"
    told += "".join(f"; in evaluation {_runs_as(block, each)}" for each in others if _is_faster(block, each))
    return f"{told}; left out: {block.why_not}" if block.why_not else told


def _runs_as(block: DiscoveredBlock, problem: Problem) -> str:
    decisions = plan_for(problem, block.device).decisions
    if _is_faster(block, problem):
        return f"runs as one: {', '.join(f'{pass_} {each.reason}' for pass_, each in decisions.items())}"
    slow, decision = next((pass_, each) for pass_, each in decisions.items() if each.provider != "dwconv")
    return f"runs one after the other: {slow}: {decision.reason}"
