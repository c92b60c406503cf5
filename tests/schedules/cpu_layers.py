"""Layers that the CPU templates are tried on, and the check that a kernel is right on them."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import torch
import tvm_ffi
from tvm import ir, sym, tirx

from dwconv.kernels import build
from dwconv.kernels.kernel import Kernel
from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.verify import verify
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.right_answers import right_answers
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import IMAGES, Layout, Sizes, Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, ScheduleTemplate, templates_for

TARGETS = {
    vector_bytes: CpuTarget(device="test", threads=2, vector_bytes=vector_bytes) for vector_bytes in (16, 32, 64)
}
TARGET = TARGETS[64]


def layer(channels: int, size: Sizes, kernel: Sizes, **other: object) -> Workload:
    fields = {
        "pass_": "fprop",
        "batch": 2,
        "channels": channels,
        "input_size": size,
        "kernel": kernel,
        "stride": (1,) * len(size),
        "padding": ((0, 0),) * len(size),
        "dilation": (1,) * len(size),
        "layout": "nhwc",
    }
    return Workload(**{**fields, **other})  # type: ignore[arg-type]


def lying(workload: Workload, layout: Layout) -> Workload:
    """``workload`` in that layout. In NCHW it has the NCHW template, where that can run it, as its first."""
    return dataclasses.replace(workload, layout=layout)


SHAPES = {
    "ragged channels": layer(58, (9, 11), (3, 3), padding=((1, 1), (1, 1))),
    "three channels": layer(3, (8, 9), (2, 3), padding=((1, 0), (1, 1)), stride=(1, 2)),
    "one channel": layer(1, (7, 7), (3, 3), padding=((1, 1), (1, 1))),
    "asymmetric padding": layer(24, (10, 13), (3, 5), padding=((0, 2), (3, 1)), stride=(2, 2)),
    "dilation and stride": layer(20, (15, 14), (5, 3), padding=((3, 3), (2, 2)), dilation=(2, 3), stride=(3, 2)),
    "dilation is the stride": layer(16, (14, 15), (3, 3), padding=((2, 2), (2, 2)), dilation=(2, 2), stride=(2, 2)),
    "multiplier": layer(6, (9, 8), (3, 3), padding=((1, 1), (1, 1)), stride=(2, 1), multiplier=3),
    "1-D, causal": layer(32, (1, 40), (1, 7), padding=((0, 0), (6, 0)), dilation=(1, 2)),
    "1-D, wide": layer(5, (1, 90), (1, 65), padding=((0, 0), (32, 32)), multiplier=2),
    "kernel beyond the image": layer(16, (1, 9), (3, 5), padding=((1, 1), (4, 4))),
    "taps beside the image alone": layer(6, (1, 1), (3, 2), padding=((1, 1), (1, 1)), dilation=(1, 2)),
    "31 by 31": layer(16, (20, 17), (31, 31), padding=((15, 15), (15, 15))),
    "large kernel and stride": layer(20, (23, 40), (17, 35), padding=((8, 8), (17, 17)), stride=(2, 2)),
    "stride beyond the kernel": layer(4, (40, 41), (3, 3), padding=((1, 1), (1, 1)), stride=(17, 26)),
    "1 by 1": layer(17, (12, 12), (1, 1), stride=(2, 3)),
}  # fmt: skip
WIDE = layer(3, (7, 75), (3, 3), padding=((1, 1), (1, 2)))


def built(workload: Workload, config: Config, target: CpuTarget = TARGET) -> Kernel:
    return Kernel.load(build(Candidate(workload, config), target))


def run(kernel: Kernel, workload: Workload, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """The kernel's results in PyTorch's shapes; what it starts from, and what it does not write, is NaN."""
    built = kernel.artifact
    channel_axis = 1 if built.candidate.template.layout == "nchw" else -1
    given = [
        misaligned(tensor.movedim(1, channel_axis) if argument.name in IMAGES else tensor.view(argument.shape_at(1)))
        for argument, tensor in zip(built.inputs, inputs, strict=True)
    ]
    results, workspaces = (
        [
            torch.full(argument.shape_at(workload.batch), float("nan"), dtype=getattr(torch, argument.dtype))
            for argument in arguments
        ]
        for arguments in (built.results, built.workspaces)
    )
    kernel.run_into(given, results, workspaces)
    return [
        result.movedim(channel_axis, 1) if name in IMAGES else result.view(workload.shape_of(name))
        for result, name in zip(results, workload.results, strict=True)
    ]


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """A dense copy at an address that is a multiple of one element, and of no more."""
    return torch.empty(tensor.numel() + 1, dtype=tensor.dtype)[1:].view(tensor.shape).copy_(tensor)


def assert_right(kernel: Kernel, workload: Workload) -> None:
    """Exactly, on whole numbers; all sums of them fit into float32. A kernel of the other layout is called as users
    call it, through copies."""
    inputs = operands(workload, data="integers", seed=1)
    answers = right_answers(workload, *inputs)
    if kernel.artifact.candidate.template.layout == workload.layout:
        results = run(kernel, workload, inputs)
    else:
        given = kernel(*inputs)
        results = given if isinstance(given, tuple) else (given,)
    for result, answer in zip(results, answers, strict=True):
        assert answer.allowed is None
        assert torch.equal(result, answer.expected)


def assert_verified(workload: Workload, config: Config) -> None:
    """By the check that tuning makes, on usual numbers and on extreme ones."""
    kernel = built(workload, config)
    for data in ("normal", "extreme"):
        verdict = verify(kernel, make_case(workload, data=data, seed=1))  # type: ignore[arg-type]
        assert verdict.right, f"{config}: {verdict.reason}"


def assert_stores_in_bounds(workload: Workload, config: Config) -> None:
    """Every store to memory of the kernel's own: sums in registers or on the stack. What is written beyond them is seen
    in no result, or only sometimes."""
    analyzer, own, stores = sym.Analyzer(), [], []

    def loop(found: Any) -> None:
        if isinstance(found.min, tirx.IntImm) and isinstance(found.extent, tirx.IntImm):
            analyzer.bind(found.loop_var, ir.Range.from_min_extent(found.min, found.extent))

    program = Candidate(workload, config).schedule(TARGET).mod["main"]
    tvm_ffi.structural_walk(
        program.body,
        [
            (tirx.For, loop),
            (tirx.Bind, lambda found: analyzer.bind(found.var, found.value)),
            (tirx.AllocBuffer, lambda found: own.append(found.buffer)),
            (tirx.BufferStore, stores.append),
        ],
        order="pre",
    )
    stores = [store for store in stores if any(store.buffer.same_as(buffer) for buffer in own)]
    assert stores
    for store in stores:
        for index, size in zip(store.indices, store.buffer.shape, strict=True):
            is_vector = isinstance(index, tirx.Ramp)
            first, last = (index.base, index.base + (index.lanes - 1) * index.stride) if is_vector else (index, index)
            bounds = analyzer.const_int_bound(first).min_value, analyzer.const_int_bound(last).max_value
            assert bounds[0] >= 0 and bounds[1] < int(size), f"{store.buffer.name}[{store.indices}]: {bounds} of {size}"


WAYS: list[tuple[Layout, Layout]] = [("nhwc", "nhwc"), ("nchw", "nchw"), ("nchw", "nhwc")]
"""Layouts of a workload and of a template that can run it. In NCHW both can, the NHWC one through copies."""


def template_of(workload: Workload, layout: Layout | None = None, *, target: CpuTarget = TARGET) -> ScheduleTemplate:
    """The first template that fits, or the one of that layout."""
    fitting = templates_for(workload, target)
    return next(template for template in fitting if layout in (None, template.layout))


def some_configs(
    workload: Workload, count: int, *, layout: Layout | None = None, target: CpuTarget = TARGET
) -> list[Config]:
    """The default and ``count`` other legal configurations of ``template_of``, the same in every run."""
    space = template_of(workload, layout, target=target).space(workload, target)
    rng = random.Random(workload.key)
    others = [space.sample(rng) for _ in range(count)]
    return list(dict.fromkeys([space.default, *(config for config in others if config is not None)]))


def config_in_turn(workload: Workload, turn: int) -> Config:
    """The default and another legal configuration take turns."""
    *_, config = some_configs(workload, turn % 2)
    return config
