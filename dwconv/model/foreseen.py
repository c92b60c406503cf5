"""Foreseen: kernels of a converted model that are known from measurements, built before its first step.

The sizes of images are not known before a call. Those that the records have of a layer are taken to come.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dwconv import settings
from dwconv.call import background_builds, process_kernels
from dwconv.call.arguments import Call, CallArguments
from dwconv.call.background_process import BackgroundProcess
from dwconv.call.call_plan import foresee
from dwconv.call.transposed_call import TransposedArguments, TransposedCall
from dwconv.dispatch.knowledge import database
from dwconv.errors import DwconvError
from dwconv.nn import LAYERS, TRANSPOSED_LAYERS
from dwconv.problems.problem import Problem
from dwconv.problems.target import target_of
from dwconv.records.database import Database
from dwconv.system.versions import can_build

_SHARED_BY = 3
"""Different layers for which one kernel that runs all takes less time to build than one for each."""
_MOST_SIZES = 4
"""Sizes of one layer to build for; the others come with their calls."""


def build_what_is_known(model: nn.Module) -> None:
    """Build, in the background, what the records have of the depthwise layers of ``model``. Of several ranks on a
    machine one does it."""
    layers = [module for module in model.modules() if isinstance(module, LAYERS)]
    calls = list(dict.fromkeys(call for layer in layers for call in _calls(layer)))
    if calls and settings.untuned() == "predict" and can_build() and not settings.local_rank():
        kinds = Counter(problem.workload(pass_).layer_kind for problem, _ in calls for pass_ in problem.passes)
        process_kernels.state.shared_kinds.update(kind for kind, count in kinds.items() if count >= _SHARED_BY)
        background_builds.predict(partial(_build, calls), device=calls[0][1], saves_us=math.inf)


def _calls(layer: Any) -> Iterator[tuple[Problem, torch.device]]:
    """Calls of a layer on small images, in both layouts; none of a layer whose calls would fail."""
    weight, axes = layer.weight, layer.axes
    if not isinstance(weight, Tensor) or is_lazy(weight) or weight.device.type not in ("cpu", "cuda"):
        return
    bias = None if layer.bias is None else layer.bias.detach().to("meta")
    padding = layer.padding if layer.padding_mode == "zeros" else 0
    try:
        size = [step * (taps - 1) + 2 for step, taps in zip(layer.dilation, weight.shape[2:], strict=True)]
        for is_contiguous in (True, False):
            x = torch.empty(1, layer.in_channels, *size, dtype=weight.dtype, device="meta")
            x = x if is_contiguous else x.movedim(1, -1).contiguous().movedim(-1, 1)
            tensors = x, weight.detach().to("meta"), bias
            if isinstance(layer, TRANSPOSED_LAYERS):
                numbers = layer.stride, padding, layer.output_padding, layer.groups, layer.dilation, axes
                if (call := TransposedCall.of(TransposedArguments(*tensors, *numbers))).is_ours:
                    yield call.problem, weight.device
            else:
                given = CallArguments(*tensors, layer.stride, padding, layer.dilation, layer.groups, axes)
                yield Call.of(given).problem, weight.device
    except (DwconvError, RuntimeError, ValueError):  # the call itself will say so
        return


def _build(calls: list[tuple[Problem, torch.device]], maker: BackgroundProcess) -> None:
    for problem, device in calls:
        for known in _at_known_sizes(problem, device, database()):
            foresee(known, device)


def _at_known_sizes(problem: Problem, device: torch.device, known: Database) -> Iterator[Problem]:
    """The problem at the sizes, and largest batches, that it was measured at on this device."""
    target = target_of(device)
    workload = problem.workload("fprop")
    for each in known.at_sizes(workload, target.device)[-_MOST_SIZES:]:
        batches = [record.workload.batch for record in known.at_any_batch(each, target.device) if record.measured]
        if batches:
            yield Problem.of(each.with_batch(max(batches)))
