"""CPU kernels that read x where it is a slice of the channels of a larger tensor: the right numbers, nothing of what
lies between, and no memory beyond the last element."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import mmap
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dwconv.kernels.kernel import Kernel
from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.verify import verify
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.right_answers import right_answers
from dwconv.problems.workload import LAYOUTS, Layout, Pass, Workload
from tests.schedules.cpu_layers import SHAPES, TARGETS, built, layer, lying, some_configs
from tests.schedules.volumes import VOLUMES

PASSES_OF_X: tuple[Pass, ...] = ("fprop", "wgrad")
LAYERS: dict[str, Workload] = {
    **{name: SHAPES[name] for name in ("ragged channels", "1-D, causal", "multiplier", "one channel")},
    "16-bit": dataclasses.replace(SHAPES["asymmetric padding"], dtype="bfloat16"),
    "silu": dataclasses.replace(SHAPES["1-D, causal"], epilogue="silu_gradient", bias=True),
    "3-D": VOLUMES["multiplier"],
    "large": layer(40, (30, 34), (5, 5), padding=((2, 2), (2, 2)), bias=True),
}
PITCHES = {"one channel": 2, "16-bit": 25, "3-D": 100}
"""Of tensors that do not have twice as many channels."""


def sliced(workload: Workload, name: str) -> Workload:
    return dataclasses.replace(workload, x_pitch=PITCHES.get(name, 2 * workload.channels))


def cases() -> Iterator[Any]:
    for turn, name in enumerate(LAYERS):
        for layout in LAYOUTS:
            for pass_ in PASSES_OF_X:
                quick = turn == 0 and pass_ == "fprop"
                marks = () if quick else pytest.mark.slow
                yield pytest.param(name, layout, pass_, 16 << turn % 3, id=f"{name}-{layout}-{pass_}", marks=marks)


@pytest.mark.parametrize(("name", "layout", "pass_", "vector_bytes"), list(cases()))
def test_right_and_blind_to_what_lies_between(name: str, layout: Layout, pass_: Pass, vector_bytes: int) -> None:
    target = TARGETS[min(vector_bytes, 32)]
    workload = sliced(lying(LAYERS[name], layout).for_pass(pass_), name)
    *_, config = some_configs(workload, 1, target=target)
    kernel = built(workload, config, target)
    assert kernel.x_pitch == workload.x_pitch
    verdict = verify(kernel, make_case(workload, data="integers", seed=1))
    assert verdict.right, verdict.reason


def at_the_end_of_memory(tensor: torch.Tensor, strides: tuple[int, ...]) -> tuple[torch.Tensor, mmap.mmap]:
    """A copy with these strides. Whoever touches what follows its last element ends."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    size_bytes = (last + 1) * tensor.itemsize
    page = mmap.PAGESIZE
    room = -(-size_bytes // page) * page
    memory = mmap.mmap(-1, room + page)
    everything = torch.frombuffer(memory, dtype=tensor.dtype)
    ends = ctypes.c_void_p(everything.data_ptr() + room)
    assert ctypes.CDLL(None, use_errno=True).mprotect(ends, page, 0) == 0
    start = (room - size_bytes) // tensor.itemsize
    return everything.as_strided(tensor.shape, strides, start).copy_(tensor), memory


@pytest.mark.parametrize(("pass_", "layout"), list(itertools.product(PASSES_OF_X, LAYOUTS)))
@pytest.mark.parametrize("name", ["ragged channels", "1-D, causal"])
def test_nothing_beyond_the_last_element_is_touched(name: str, pass_: Pass, layout: Layout) -> None:
    workload = sliced(lying(LAYERS[name], layout).for_pass(pass_), name)
    kernel: Kernel = built(workload, some_configs(workload, 0, target=TARGETS[32])[0], TARGETS[32])
    inputs = operands(workload, data="integers", seed=2)
    (answer,) = right_answers(workload, *inputs)
    x = inputs[workload.inputs.index("x")]
    tensor = torch.empty(x.shape[0], workload.x_pitch, *x.shape[2:]).to(
        memory_format=torch.channels_last if layout == "nhwc" else torch.contiguous_format
    )
    placed, _memory = at_the_end_of_memory(x, tensor.stride())
    given = [placed if each is x else each for each in inputs]
    assert torch.equal(kernel.on_dense(*given), answer.expected)
