"""``convert``: lets the depthwise layers of a model run on tuned kernels.

layers   ──► each a class of the same kind (swaps: converted_classes, same_padding) ──────────────────┐
example  ──► discovered (discovery) ──► functional calls ──► raced (tuner.race) ──► blocks (swaps) ───┤
                                                               └── of several ranks: ranks_agree      ▼
summary  ◄── what was done (conversion) ◄───────────────────────────────────────────────────────── swapped
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from dwconv import settings
from dwconv.call import process_kernels
from dwconv.call.background_builds import build_fastest
from dwconv.call.process_decisions import reset
from dwconv.call.untuned_warnings import LayerOfExample, expect
from dwconv.discovery.step import check_model, unwrapped
from dwconv.dispatch import locked
from dwconv.dispatch.of_problem import save_memory
from dwconv.errors import InvalidChoice
from dwconv.model.conversion import ConvertedLayer, Kept, remember, shown_name, without_wrappers
from dwconv.model.foreseen import build_what_is_known
from dwconv.model.swaps import Swaps, decide_blocks, decide_layers, trace_blocks, why_not_traced
from dwconv.problems.target import target_of
from dwconv.system import given

if TYPE_CHECKING:
    from dwconv.discovery import Discovery
    from dwconv.tuner.race_result import RaceResult

Model = TypeVar("Model", bound=nn.Module)


def convert(
    model: Model,
    example_inputs: Any = None,
    *,
    seconds: float | None = None,
    functional: bool | None = None,
    blocks: bool | None = None,
    memory: str | None = None,
) -> Model:
    """Let the depthwise ``nn.Conv1d``, ``Conv2d``, ``Conv3d`` and ``ConvTranspose1d``, ``ConvTranspose2d``,
    ``ConvTranspose3d`` of ``model`` run on tuned kernels, in place.

    Returns ``model``, the same object; ``dwconv.summary(model)`` lists what was done. The layers stay the objects they
    are, with their parameters, hooks, mode and names; only their class changes, to a subclass of what it was. So
    optimizers, state dicts and checkpoints made before keep working. Numbers agree with PyTorch's within rounding.
    Converting again changes nothing. A subclass of PyTorch's layers is converted if its forward pass is theirs.

    With ``example_inputs`` (a tensor, a tuple of positional arguments, or a dict of keyword arguments, on the model's
    device) the model takes one step on them, which changes nothing in it. A few known configurations of each pass that
    ran, and that are untuned on this device, are then raced against PyTorch's op. The fastest kernel runs from the next
    call on, and is recorded in the user's own log. After ``seconds``, 60 by default, no further pass is begun; those
    with the largest expected gain come first. Call it on every rank of a distributed job: one races for all, and ranks
    on devices of one name then run the same kernels at the sizes of the example, at any batch; one line reports where
    they would have differed.

    ``functional``: what becomes of calls of ``F.conv1d``, ``F.conv_transpose1d`` and so on in the model's own code, on
    the weight of a layer or on any other. True: the forward pass of the model runs under ``dwconv.active``. None, the
    default: so do the modules that made such calls in the example; without an example none. False: these calls stay on
    PyTorch's op.

    ``blocks``: a norm before such a layer, an activation between them, and norm and activation after it train as one op
    from then on, forward and backward, where the example shows that each hands its result to the next one alone, and
    where one op was measured to be faster, in the race or before. Layers, names, hooks and statistics stay as they are.
    The summary names each block, or why there is none. None, the default: those of the example that are faster at its
    sizes; without an example none. True: those as well that may be faster at other sizes; it needs the example. False:
    none.

    ``memory``: "less": a block that is as fast as its parts, within 3 %, runs as one as well, since it keeps less for
    the backward pass; the summary has what a step on the example keeps, in MB. It needs the example. None, the default:
    only what is faster.

    Raises the model's own error if it fails on the example, InvalidWorkload for an example on another device,
    InvalidArgument for what is no model and for other arguments of another type, and InvalidChoice for ``seconds`` that
    are no time, for ``blocks`` and ``memory`` without an example, and for a ``memory`` that is unknown or has no
    blocks. Then, and after ctrl-C, nothing in the model has changed; what was measured is kept. If it cannot race for
    another reason, the summary gives the reason, and the model is converted.
    """
    check_model(model)
    functional = None if functional is None else given.flag("functional", functional)
    blocks = None if blocks is None else given.flag("blocks", blocks)
    if example_inputs is None and seconds is not None:
        raise InvalidChoice(f"seconds={seconds} is for a race, and without example_inputs there is none; give them")
    if example_inputs is None and blocks:
        raise InvalidChoice("blocks=True needs example_inputs, which show what comes before and after each layer")
    _check_memory(memory, has_example=example_inputs is not None, blocks=blocks)
    seconds = settings.RACE_SECONDS if seconds is None else given.seconds("seconds", seconds)
    swaps, inner = Swaps(), unwrapped(model)
    outcome = decide_layers(model, swaps)
    if functional:
        swaps.make_functional(inner)
        outcome = dataclasses.replace(outcome, functional=True)
    rows, one = tuple[ConvertedLayer, ...](), list[str]()
    if example_inputs is not None:
        from dwconv.discovery import discover  # late, as the race is: converting alone needs neither

        converted = {*inner.modules()} if functional else swaps.wanted.keys()
        discovery = discover(model, example_inputs, converted=converted)
        called = _called(discovery, inner, swaps, functional=functional)
        raced = discovery if functional is not False else discovery.without_functional()
        modules = dict(inner.named_modules())
        separate = {each.name for each in discovery.blocks if why_not_traced(modules[each.parent], each, swaps)}
        raced = raced.with_blocks(all_of_them=blocks is not False, left_out=separate)
        for problem in [block.problem for block in discovery.blocks if block.problem]:
            save_memory(problem, wanted=memory is not None)
        races = race_and_build(raced, seconds=0 if settings.lock_path() else seconds)
        if blocks is not False:
            rows, one = decide_blocks(inner, discovery, swaps, only_faster=blocks is None)
        skipped = tuple(layer for layer in outcome.skipped if without_wrappers(layer.name) not in called)
        outcome = dataclasses.replace(
            outcome,
            skipped=skipped,
            called=tuple(called.values()),
            discovery=discovery,
            races=tuple(races),
            blocks=rows,
        )
    try:
        swaps.swap()
        if outcome.discovery is not None:
            trace_blocks(inner, outcome.discovery, swaps, names=one)
            swaps.swap()
        if memory:
            outcome = dataclasses.replace(outcome, kept=_kept(model, example_inputs))
    except BaseException:
        swaps.undo()
        raise
    remember(model, outcome)
    if outcome.discovery is not None:
        _count_untuned_together(outcome.discovery)
    else:
        build_what_is_known(model)
    return model


def _check_memory(memory: str | None, *, has_example: bool, blocks: bool | None) -> None:
    if memory is None:
        return
    if memory != "less":
        raise InvalidChoice(f'memory={given.shown(memory)} is unknown; give "less", or leave it out')
    if not has_example:
        raise InvalidChoice('memory="less" needs example_inputs, which show the blocks')
    if blocks is False:
        raise InvalidChoice('memory="less" is for blocks, and blocks=False fuses none; leave one of them out')


def _kept(model: nn.Module, example_inputs: Any) -> Kept:
    from dwconv.discovery.kept import kept_bytes  # late, as discovery is

    one_by_one, as_one = (kept_bytes(model, example_inputs, as_one=as_one) for as_one in (False, True))
    return Kept(one_by_one_bytes=one_by_one, as_one_bytes=as_one)


def _count_untuned_together(discovery: Discovery) -> None:
    """One warning, at the first call of one of them, counts the layers of the example that are untuned."""
    layers = (layer for layer in discovery.layers if layer not in discovery.left_out)
    once = {layer.name: layer for layer in layers}.values()
    expect(
        [LayerOfExample(name=each.name, problem=each.problem, device=each.device, passes=each.passes) for each in once]
    )


def race_and_build(discovery: Discovery, *, seconds: float) -> list[RaceResult]:
    """Race what is untuned, and build what won, unless there are no ``seconds``. The next call decides anew."""
    from dwconv.tuner.model_race import are_several, race_for

    counts = discovery.counts_by_device()
    races = race_for(counts, seconds=seconds, state=process_kernels.state)
    agreed = dict(locked.agreed)
    reset()
    locked.agreed.update(agreed)  # of models that were converted before
    if are_several():
        from dwconv.model.ranks_agree import agree

        agree(discovery)
    if seconds:
        for device, workloads in counts.items():
            build_fastest(workloads, target_of(device), threads=torch.get_num_threads())
    return races


def _called(
    discovery: Discovery, model: nn.Module, swaps: Swaps, *, functional: bool | None
) -> dict[str, ConvertedLayer]:
    """What ran through functional calls, by name. The modules that made them run these on dwconv, if that is left to
    the example."""
    modules = dict(model.named_modules())
    fate = "stays on PyTorch's op: functional=False" if functional is False else "runs on dwconv"
    called = {}
    for layer in discovery.layers:
        if layer.is_functional:
            where = f"a functional call in {shown_name(layer.caller)} ({type(modules[layer.caller]).__name__})"
            called[layer.name] = ConvertedLayer(layer.name, f"{where} {fate}")
            if functional is None:
                swaps.make_functional(modules[layer.caller])
    return called
