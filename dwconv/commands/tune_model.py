"""The passes of a whole model that are worth tuning, for the command and for ``dwconv.tune``; prints the possible
gain."""

from __future__ import annotations

import argparse
import contextlib
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from dwconv.commands.command_line import note
from dwconv.commands.tune_arguments import passes_that_run
from dwconv.discovery import Discovery, discover
from dwconv.discovery.step import ExampleStep
from dwconv.discovery.unchanged import unchanged
from dwconv.errors import DwconvError, DwconvWarning, InvalidWorkload, described_error
from dwconv.measure.step_share import step_ratio_at_most
from dwconv.model.by_name import load_model
from dwconv.problems.problem import memory_format
from dwconv.problems.target import Target, target_of
from dwconv.problems.workload import Workload, by

_TOKENS = 2
"""Made-up tokens are below it: any vocabulary has as many."""


def counts_and_target(
    model: nn.Module, example_inputs: Any, *, trains: bool | None
) -> tuple[Mapping[Workload, int], Target]:
    """How often a step of ``model`` runs each workload, and the target that it runs on. Raises InvalidWorkload if there
    is nothing to tune, or layers run on devices of several kinds."""
    discovery = discover(model, example_inputs, trains=trains).with_blocks()
    counts = _counts(discovery, name=type(model).__name__)
    devices = list(dict.fromkeys(layer.device for layer in discovery.layers if layer not in discovery.left_out))
    if len({device.type for device in devices}) > 1:
        raise InvalidWorkload(
            f"the depthwise layers run on {' and '.join(map(str, devices))}; move the model to one of them, and tune "
            "it on each in turn"
        )
    _say_what_can_be_won(ExampleStep.of(model, example_inputs, trains=trains))
    return counts, target_of(devices[0])


def counts_of(args: argparse.Namespace, target: Target, input_shape: tuple[int, ...]) -> Mapping[Workload, int]:
    """How often each workload runs in the model that a command line names, made here with a random example. Where the
    target is not in this machine, the model runs on the CPU."""
    device = "cuda" if target.kind == "cuda" and target.present else "cpu"
    format = memory_format("nhwc", axes=len(input_shape) - 2) if args.channels_last else torch.preserve_format
    model = load_model(args.model).train(not args.infer)
    model = model.to(device).to(memory_format=format)  # type: ignore[call-overload]
    tokens = torch.randint(0, _TOKENS, input_shape)
    example = (tokens if args.input_dtype == "int64" else torch.randn(input_shape)).to(device).to(memory_format=format)
    with contextlib.ExitStack() as stack:
        if args.dtype != "float32":
            stack.enter_context(torch.autocast(device, dtype=getattr(torch, args.dtype)))
        try:
            discovery = discover(model, example, trains=not args.infer).with_blocks(all_of_them=args.blocks)
        except DwconvError:
            raise
        except Exception as error:
            raise InvalidWorkload(
                f"model={args.model} does not run on an input of {by(input_shape)}: {described_error(error)}"
            ) from error
        if args.blocks and not discovery.counted_blocks:
            reasons = dict.fromkeys(block.why_not for block in discovery.blocks)
            why = "; ".join(reasons) or "no norm is next to a layer"
            raise InvalidWorkload(f"no block of {args.model} can run as one: {why}")
        counts = _counts(discovery, name=args.model)
        if target.present:
            _say_what_can_be_won(ExampleStep.of(model, example, trains=not args.infer))
    wanted = {workload: count for workload, count in counts.items() if workload.pass_ in passes_that_run(args)}
    if not wanted:
        ran = dict.fromkeys(workload.pass_ for workload in counts)
        raise InvalidWorkload(f"passes={args.passes}: the layers of {args.model} ran {','.join(ran)} only")
    return wanted


def _counts(discovery: Discovery, *, name: str) -> Mapping[Workload, int]:
    """Prints what is left out. Raises InvalidWorkload if nothing remains."""
    if not discovery.layers:
        raise InvalidWorkload(f"no depthwise convolution ran in {name}: there is nothing to tune")
    reasons = dict.fromkeys(layer.why_no_kernels for layer in discovery.left_out)
    counts = discovery.counts()
    if not counts:
        raise InvalidWorkload(f"no depthwise convolution of {name} can be tuned: {'; '.join(reasons)}")
    if reasons:
        left_out = len({layer.name for layer in discovery.left_out})
        note(f"{_plural(left_out, 'layer is', 'layers are')} left out: {'; '.join(reasons)}")
    layers = _plural(len({layer.name for layer in discovery.layers}), "depthwise layer", "depthwise layers")
    passes = _plural(len(counts), "pass to tune", "different passes to tune")
    note(f"{layers} in {name}, {passes}")
    return counts


def _say_what_can_be_won(step: ExampleStep) -> None:
    with unchanged(step.model, step.tensors), warnings.catch_warnings():
        warnings.simplefilter("ignore", DwconvWarning)  # of what is about to be tuned
        at_most = step_ratio_at_most(step, device=step.device)
    share = f"depthwise convolution takes {1 - 1 / at_most:.0%} of a step, without the optimizer"
    note(f"{share}: tuning can speed up a step at most {at_most:.2f}×")


def _plural(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
