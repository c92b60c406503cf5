"""Cases: the data and batch sizes that kernels are verified on.

A finalist is verified on every kind of data, and at batch sizes that a kernel may treat specially: one, a few, odd and
even ones, multiples of 4 and not, more than it was tuned for, a large odd one. All cases of whole numbers take their
images from the same few, so that many batch sizes need one reference, and one comparison of bits each.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dwconv.problems.kernel_inputs import Data, operands
from dwconv.problems.right_answers import Answer, exact_answers, repeated, right_answers
from dwconv.problems.workload import IMAGES, Workload
from dwconv.records.record import Verdict
from dwconv.system.memory import free_bytes
from dwconv.system.threads import on_threads, to_handle

_EXTREME, _ROUNDED = (1, 2), 2
"""Batch sizes of the cases of extreme data, and of the one that sums in float32 round."""
_FEW_IMAGES = (3, 5, 6, 8, 4, 7)
"""Batch sizes of cases of whole numbers, the first in any case, the others as long as all have no more elements than
this."""
_ELEMENTS_OF_FEW = 6_000_000
_MANY_IMAGES, _MORE_IMAGES, _ELEMENTS_OF_MANY = 33, 9, 4_000_000
"""An odd batch size of whole numbers: the first, or as large a one as has no more elements, but at least the second,
and more than the kernel was tuned for."""
CASES_OF_A_FINALIST = len(_EXTREME) + len(_FEW_IMAGES) + 3
"""At most."""
# Multiplications that a reference may take: some seconds. If a batch takes more, its images repeat.
_MOST_PRODUCTS = 2_000_000_000
# Different images in all cases of whole numbers of a finalist; three of them where images are large.
_MOST_DIFFERENT, _LEAST_DIFFERENT = 8, 3
_CHANNELS_OF_A_BLOCK, _PIXELS_OF_A_BLOCK = (9, 33), 100_000
"""Different channels of the cases of a block, at least and at most, and pixels in all of an image: right answers take
long, since each batch has statistics of its own."""
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
    def is_exact(self) -> bool:
        return all(answer.allowed is None for answer in self.answers)

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
    count = min(workload.batch, _affordable(workload), images or workload.batch)
    with on_threads(to_handle(_elements(workload))):
        inputs = operands(workload, data=data, seed=seed, device=device, images=count)
        answers = right_answers(workload, *inputs, kind=kind)
    if count < workload.batch:
        inputs = _taken(workload, inputs, repeated(workload.batch, count).to(device))
    return Case(workload=workload, data=data, inputs=inputs, answers=answers)


def case_of_few_channels(workload: Workload, *, data: Data, seed: int, device: str, count: int) -> Case:
    """A case whose channels repeat the data and the answers of about ``count``, an odd number, so that a kernel that is
    off by a vector of channels reads others. Those of a LayerNorm are repeated a whole number of times: then its
    statistics, over all of them, are those of the few."""
    count = min(workload.channels, count - (count + 1) % 2)
    if workload.block and workload.block.layer_norm:
        whole = [few for few in range(3, count + 1, 2) if workload.channels % few == 0]
        count = max(whole, default=workload.channels)
    few = make_case(dataclasses.replace(workload, channels=count), data=data, seed=seed, device=device)
    if count == workload.channels:
        return few
    channels = torch.arange(workload.channels, device=device) % count

    def of_all(name: str, answer: Answer) -> Answer:
        fields: dict[str, Any] = {
            field: None if tensor is None else _of_all(workload, name, tensor, channels)
            for field, tensor in vars(answer).items()
        }
        return Answer(**fields)

    named = zip(workload.inputs, few.inputs, strict=True)
    return Case(
        workload=workload,
        data=data,
        inputs=tuple(_of_all(workload, name, tensor, channels) for name, tensor in named),
        answers=tuple(map(of_all, workload.results, few.answers)),
    )


def _of_all(workload: Workload, name: str, tensor: torch.Tensor, channels: torch.Tensor) -> torch.Tensor:
    """A tensor of few channels as one of all; ``channels`` says which of the few each channel of x is."""
    if name not in ("x", "dx"):
        of_multiplier = torch.arange(workload.multiplier, device=channels.device)
        channels = (channels[:, None] * workload.multiplier + of_multiplier).flatten()
    if name not in IMAGES:
        return tensor.index_select(0, channels)
    if workload.layout == "nchw":
        return tensor.index_select(1, channels)
    return tensor.movedim(1, -1).index_select(-1, channels).movedim(-1, 1)


def cases_of_finalists(workload: Workload, *, device: str, fast_math: bool = False) -> list[Case]:
    """The verdict of the last case is kept. Batches too large for the memory are left out. ``fast_math`` promises
    nothing about extreme values."""

    def fits(batch: int) -> bool:
        return batch <= workload.batch or _fits(workload.with_batch(batch), device=device)

    def made(batch: int, data: Data) -> Case:
        at_batch = workload.with_batch(batch)
        if workload.block:
            return case_of_few_channels(at_batch, data=data, seed=batch, device=device, count=few)
        return make_case(at_batch, data=data, seed=batch, device=device)

    few = _different_channels(workload)
    extreme = [made(batch, "normal" if fast_math else "extreme") for batch in _EXTREME if fits(batch)]
    rounded = [made(_ROUNDED, "normal")] if fits(_ROUNDED) else []
    batches = [batch for batch in batches_of_finalists(workload) if fits(batch)]
    if workload.block:  # whose statistics are of the whole batch
        return [*extreme, *(made(batch, "integers") for batch in batches), *rounded]
    return [*extreme, *(_of_whole_numbers(workload, batches, device=device) if batches else ()), *rounded]


def batches_of_finalists(workload: Workload) -> list[int]:
    """The batch sizes that a finalist is verified at on whole numbers."""
    of_one = _elements(workload.with_batch(1))
    affordable = min(_MANY_IMAGES, _ELEMENTS_OF_MANY // of_one)
    many = max(affordable, workload.batch + 1, _MORE_IMAGES) | 1
    few, left = [], _ELEMENTS_OF_FEW // of_one
    for batch in dict.fromkeys((*_FEW_IMAGES, workload.batch + 1)):
        if batch == _FEW_IMAGES[0] or (batch <= left and batch != many):
            few.append(batch)
            left -= batch
    return [few[0], many, *few[1:]]


def _of_whole_numbers(workload: Workload, batches: Sequence[int], *, device: str) -> list[Case]:
    largest = workload.with_batch(max(batches))
    different = max(_LEAST_DIFFERENT, min(_MOST_DIFFERENT, _ELEMENTS_OF_MANY // _elements(workload.with_batch(1))))
    images = min(different, largest.batch)
    with on_threads(to_handle(_elements(workload.with_batch(images)))):
        inputs = operands(largest, data="integers", seed=largest.batch, device=device, images=images)
        answers = exact_answers(workload, batches, *inputs) if images <= _affordable(workload) else None
        if answers is None:
            return [
                make_case(workload.with_batch(batch), data="integers", seed=batch, device=device, images=images)
                for batch in batches
            ]
        return [
            Case(
                workload=workload.with_batch(batch),
                data="integers",
                inputs=_taken(workload, inputs, repeated(batch, images).to(device)),
                answers=of_batch,
            )
            for batch, of_batch in zip(batches, answers, strict=True)
        ]


def _taken(workload: Workload, inputs: Sequence[torch.Tensor], order: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The inputs of a batch with these images."""
    return tuple(
        tensor[order] if name in IMAGES else tensor for name, tensor in zip(workload.inputs, inputs, strict=True)
    )


def _affordable(workload: Workload) -> int:
    """Images that a reference can be had for."""
    return max(1, _MOST_PRODUCTS // max(1, workload.with_batch(1).flops // 2))


def _different_channels(block: Workload) -> int:
    least, most = _CHANNELS_OF_A_BLOCK
    return max(least, min(most, _PIXELS_OF_A_BLOCK // math.prod(block.input_size)))


def exact_case(workload: Workload, *, device: str, images: int | None = None, seed: int = 0) -> Case:
    """Whole numbers, to verify a kernel on before it is timed. ``images``: how many different images are enough."""
    if workload.block:
        count = _different_channels(workload)
        return case_of_few_channels(workload, data="integers", seed=seed, device=device, count=count)
    return make_case(workload, data="integers", seed=seed, device=device, images=images)


def fresh_case(workload: Workload, *, device: str) -> Case:
    """New data, to verify a kernel once more after it was timed."""
    return exact_case(workload, device=device, images=_LEAST_DIFFERENT, seed=-1)


def _fits(workload: Workload, *, device: str) -> bool:
    """False if the case would fill most of the memory."""
    return _elements(workload) * _BYTES_OF_AN_ELEMENT < free_bytes(device) // 2


def _elements(workload: Workload) -> int:
    return sum(math.prod(workload.shape_of(name)) for name in (*workload.inputs, *workload.results))


# Stands for the error of a result that is NaN: records hold finite numbers only.
_HUGE = 1e300


def judge_all(results: Sequence[torch.Tensor], case: Case, *, spreads_nan: bool = False) -> Verdict:
    """The worst verdict over all results: a wrong one, else the one whose error is nearest to its bound.
    ``spreads_nan``: what the template of the kernel says of itself."""
    verdicts = [
        judge(result, answer, name=name, spreads_nan=spreads_nan)
        for result, answer, name in zip(results, case.answers, case.workload.results, strict=True)
    ]
    return max(verdicts, key=lambda v: (not v.right, v.max_error / v.allowed_error if v.allowed_error else 0.0))


def judge(got: torch.Tensor, answer: Answer, *, name: str, spreads_nan: bool = False) -> Verdict:
    """Compare with the right answer: with no error allowed, or within a bound for each element. NaN must be NaN, and an
    infinity the same infinity; or NaN, where a kernel that ``spreads_nan`` may have met another."""
    if answer.allowed is None and torch.equal(got, answer.expected):
        return Verdict(right=True, max_error=0.0, allowed_error=0.0)
    expected = answer.expected.double()
    error = (got.double() - expected).abs()
    if answer.allowed is not None and bool((error <= answer.allowed).all()) and bool(error.isfinite().all()):
        return _right(error, answer.allowed)  # at a third of the work: nothing is NaN or infinite
    allowed = torch.zeros_like(error) if answer.allowed is None else answer.allowed
    right = torch.where(expected.isfinite(), error <= allowed, got == expected) | (got.isnan() & expected.isnan())
    if answer.may_be_nan is not None:
        right |= got.isnan() & answer.may_be_nan
    if spreads_nan and answer.may_be_nan_beside is not None:
        right |= got.isnan() & answer.may_be_nan_beside
    counts = ~right | (expected.isfinite() & got.isfinite())  # NaN and infinity that are right have no error
    error = torch.nan_to_num(error, nan=_HUGE, posinf=_HUGE).where(counts, 0.0)
    allowed = torch.nan_to_num(allowed, posinf=_HUGE)
    wrong = ~right
    worst = int((torch.where(wrong, error, -1.0) if wrong.any() else error / allowed).argmax())
    at = _place(worst, error.shape)
    reason = ""
    if count := int(wrong.sum()):
        reason = (
            f"value: {count} of {wrong.numel()} elements of {name}, the worst at {[*at]}: "
            f"{float(got[at]):.6g} for {float(expected[at]):.6g}"
        )
    return Verdict(
        right=not count,
        max_error=float(error[at]),
        allowed_error=float(allowed[at]),
        reason=reason,
    )


def _right(error: torch.Tensor, allowed: torch.Tensor) -> Verdict:
    """The verdict where every error is finite, and allowed."""
    allowed = torch.nan_to_num(allowed, posinf=_HUGE)
    at = _place(int((error / allowed).argmax()), error.shape)
    return Verdict(right=True, max_error=float(error[at]), allowed_error=float(allowed[at]))


def _place(number: int, shape: torch.Size) -> tuple[int, ...]:
    """Where an element is, by its number in the order of the axes."""
    return tuple(number // math.prod(shape[axis + 1 :]) % size for axis, size in enumerate(shape))


def wrong(reason: str) -> Verdict:
    """The verdict for a fault that is not an error in a value."""
    return Verdict(right=False, max_error=0.0, allowed_error=0.0, reason=reason)
