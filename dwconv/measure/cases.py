"""Cases: the data and batch sizes that kernels are verified on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from dwconv.measure.memory import free_bytes
from dwconv.measure.threads import on_threads, to_handle
from dwconv.reference import Answer, Data, operands, repeated, right_answers
from dwconv.workload import IMAGES, Workload

# Batch size and data of each case of a finalist; None is one more than it was tuned for, and this at least.
_LEAST_OF_THE_LARGEST = 7
_FINALISTS: tuple[tuple[int | None, Data], ...] = (
    (1, "extreme"), (2, "extreme"), (3, "integers"), (None, "integers"), (2, "normal"),
)  # fmt: skip
CASES_OF_A_FINALIST = len(_FINALISTS)
# Multiplications that a reference may take: some seconds. If a batch takes more, its images repeat.
_MOST_PRODUCTS = 2_000_000_000
# Different images in a case of a finalist. Three do not repeat at the same place of a tile whose size is a power of 2.
_IMAGES_OF_A_FINALIST = 3
# Memory for an element of a case: the tensor itself, copies in several layouts, the answer and its bound in float64.
_BYTES_OF_AN_ELEMENT = 48


@dataclass(frozen=True, kw_only=True)
class Case:
    """Inputs and the right answers, one per result."""

    workload: Workload
    data: Data
    inputs: tuple[torch.Tensor, ...]
    answers: tuple[Answer, ...]

    @property
    def elements(self) -> int:
        """In all inputs and results."""
        return sum(tensor.numel() for tensor in (*self.inputs, *(answer.expected for answer in self.answers)))


def make_case(
    workload: Workload,
    *,
    data: Data,
    seed: int = 0,
    device: str = "cpu",
    images: int | None = None,
    kind: str | None = None,
) -> Case:
    """``images``: how many different images are enough; they repeat. ``kind``: the kind of device that runs the kernel,
    if it is not ``device``."""
    affordable = max(1, _MOST_PRODUCTS // max(1, workload.with_batch(1).flops // 2))
    count = min(workload.batch, affordable, images or workload.batch)
    with on_threads(to_handle(_elements(workload))):
        inputs = operands(workload, data=data, seed=seed, device=device, images=count)
        answers = right_answers(workload, *inputs, kind=kind)
    if count < workload.batch:
        order = repeated(workload.batch, count).to(device)
        inputs = tuple(
            tensor[order] if name in IMAGES else tensor for name, tensor in zip(workload.inputs, inputs, strict=True)
        )
    return Case(workload=workload, data=data, inputs=inputs, answers=answers)


def cases_of_finalists(workload: Workload, *, device: str, fast_math: bool = False) -> list[Case]:
    """Every kind of data, at batch sizes that a kernel may treat specially: one, even, odd, more than it was tuned for.
    The verdict of the last case is kept. Batches too large for the memory are left out. ``fast_math`` promises nothing
    about extreme values."""
    largest = max(workload.batch + 1, _LEAST_OF_THE_LARGEST)
    plan = [(largest if batch is None else batch, data) for batch, data in _FINALISTS]
    return [
        make_case(
            workload.with_batch(batch),
            data="normal" if fast_math and data == "extreme" else data,
            seed=batch,
            device=device,
            images=_IMAGES_OF_A_FINALIST,
        )
        for batch, data in dict.fromkeys(plan)
        if batch <= workload.batch or _fits(workload.with_batch(batch), device=device)
    ]


def fresh_case(workload: Workload, *, device: str) -> Case:
    """New data, to verify a kernel once more after it was timed."""
    return make_case(workload, data="integers", seed=-1, device=device, images=_IMAGES_OF_A_FINALIST)


def _fits(workload: Workload, *, device: str) -> bool:
    """False if the case would fill most of the memory."""
    return _elements(workload) * _BYTES_OF_AN_ELEMENT < free_bytes(device) // 2


def _elements(workload: Workload) -> int:
    return sum(math.prod(workload.shape_of(name)) for name in (*workload.inputs, *workload.results))
