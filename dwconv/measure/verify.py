"""Is a kernel right? Asked of every candidate before it is timed, in the process that will time it.

The bare kernel runs on memory laid out to show its faults: results and workspaces are filled with NaNs and stand
between guard bands; the inputs stand between bands of NaN and are compared afterwards; it runs twice and must give the
same bits. Then it runs the way a user calls it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import psutil
import torch

from dwconv.build.artifact import Argument, Artifact
from dwconv.records.record import Verdict
from dwconv.reference import Answer, Data, operands, right_answers
from dwconv.workload import IMAGES, Layout, Workload

# Long enough for a whole row of most layers, and a multiple of every alignment.
_GUARD_ELEMENTS = 1 << 16
# What memory holds that a kernel should not have used, as bits: NaNs that differ, for a NaN that is read and passed on
# keeps its bits, and a result made from stale scratch must not look as if it had not been written.
_UNWRITTEN = {torch.float32: 0x7FC0DEAD, torch.float16: 0x7EAD, torch.bfloat16: 0x7FED}
_STALE = {torch.float32: 0x7FC0CAFE, torch.float16: 0x7ECA, torch.bfloat16: 0x7FCA}
_OUTSIDE = {torch.float32: 0x7FC0BEEF, torch.float16: 0x7EEB, torch.bfloat16: 0x7FEB}
_ANY_OTHER_TYPE = 0x5A
# Stands for the error of a result that is no number: records hold finite numbers only.
_HUGE = 1e300
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class LoadedKernel(Protocol):
    """What is asked of a kernel here; dwconv.build.kernel.Kernel has it."""

    artifact: Artifact

    def __call__(self, *inputs: torch.Tensor) -> Any: ...

    def run_into(
        self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], workspaces: Sequence[torch.Tensor]
    ) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Case:
    """Inputs and the right answers, one a result."""

    workload: Workload
    inputs: tuple[torch.Tensor, ...]
    answers: tuple[Answer, ...]


def make_case(workload: Workload, *, data: Data, seed: int = 0, device: str = "cpu") -> Case:
    inputs = operands(workload, data=data, seed=seed, device=device)
    return Case(workload=workload, inputs=inputs, answers=right_answers(workload, *inputs))


def verify(kernel: LoadedKernel, case: Case) -> Verdict:
    """Run ``kernel`` on ``case`` and judge it. Raises MemoryError if it asks for more memory than there is, and
    whatever the kernel raises."""
    bench = _Bench(kernel, case)
    bench.run()
    before = [result.clone() for result in bench.results]
    bench.run()
    if fault := bench.fault():
        return _wrong(fault)
    if not _all_the_same(bench.results, before):
        return _wrong("not deterministic: a second run on the same inputs gave other bits")
    verdict = _judge_all(bench.results, case)
    if not verdict.right:
        return verdict
    called = kernel(*case.inputs)
    if changed := bench.changed_input():
        return _wrong(f"input changed: {changed}, when called with PyTorch's tensors")
    if not _all_the_same(called if isinstance(called, tuple) else (called,), bench.results):
        return _wrong("value: called with PyTorch's tensors it gives another result than on its own")
    return verdict


def verify_once(kernel: LoadedKernel, case: Case) -> Verdict:
    """The same of a single run of the bare kernel, for a machine that runs a kernel the same way every time."""
    bench = _Bench(kernel, case)
    bench.run()
    if fault := bench.fault():
        return _wrong(fault)
    return _judge_all(bench.results, case)


class _Bench:
    """A kernel with everything it takes laid out in its own layout, guarded."""

    def __init__(self, kernel: LoadedKernel, case: Case) -> None:
        self._kernel = kernel
        device, batch = case.inputs[0].device, case.workload.batch
        layout = kernel.artifact.candidate.template.layout
        arguments = kernel.artifact.arguments
        _check_memory(arguments, batch=batch, device=device)
        self._inputs, self._out, self._workspaces = (
            [_Guarded(argument, batch=batch, device=device) for argument in some]
            for some in (kernel.artifact.inputs, kernel.artifact.results, kernel.artifact.workspaces)
        )
        self._originals = [
            _in_kernel_order(tensor, name=own.name, layout=layout)
            for tensor, own in zip(case.inputs, self._inputs, strict=True)
        ]
        for own, original in zip(self._inputs, self._originals, strict=True):
            own.tensor.view(original.shape).copy_(original)
        self.results = [
            _in_pytorch_order(own.tensor, name=own.name, layout=layout, workload=case.workload) for own in self._out
        ]
        """What the last run wrote, in PyTorch's shapes."""

    def run(self) -> None:
        for result in self._out:
            result.fill(_UNWRITTEN)
        for workspace in self._workspaces:
            workspace.fill(_STALE)
        self._kernel.run_into(*([own.tensor for own in some] for some in (self._inputs, self._out, self._workspaces)))

    def fault(self) -> str | None:
        """What the runs did to memory that they should not have, or left undone."""
        for own in (*self._inputs, *self._out, *self._workspaces):
            if not own.bands_are_whole():
                return f"guard band: it wrote outside {own.name}"
        if changed := self.changed_input():
            return f"input changed: {changed}"
        for own in self._out:
            if unwritten := own.count(_UNWRITTEN):
                return f"not written: {unwritten} of {own.tensor.numel()} elements of {own.name}"
        return None

    def changed_input(self) -> str | None:
        """The name of an input that is no longer what it was: the kernel's own copy, or the user's tensor."""
        for own, original in zip(self._inputs, self._originals, strict=True):
            if not _same_bits(own.tensor.view(original.shape), original):
                return own.name
        return None


class _Guarded:
    """A tensor between two guard bands."""

    def __init__(self, argument: Argument, *, batch: int, device: torch.device) -> None:
        self.name = argument.name
        shape = argument.shape_at(batch)
        self._dtype: torch.dtype = getattr(torch, argument.dtype)
        everything = torch.empty(math.prod(shape) + 2 * _GUARD_ELEMENTS, dtype=self._dtype, device=device)
        self.tensor = everything[_GUARD_ELEMENTS:-_GUARD_ELEMENTS].view(shape)
        bits = _bits(everything)
        self._bands = (bits[:_GUARD_ELEMENTS], bits[-_GUARD_ELEMENTS:])
        for band in self._bands:
            band.fill_(self._pattern(_OUTSIDE))

    def fill(self, patterns: dict[torch.dtype, int]) -> None:
        _bits(self.tensor).fill_(self._pattern(patterns))

    def count(self, patterns: dict[torch.dtype, int]) -> int:
        """Elements that hold just that pattern."""
        return int((_bits(self.tensor) == self._pattern(patterns)).sum())

    def bands_are_whole(self) -> bool:
        return all(bool((band == self._pattern(_OUTSIDE)).all()) for band in self._bands)

    def _pattern(self, patterns: dict[torch.dtype, int]) -> int:
        return patterns.get(self._dtype, _ANY_OTHER_TYPE)


def _judge_all(results: Sequence[torch.Tensor], case: Case) -> Verdict:
    """Of several results, the first that is wrong, else the one that comes nearest to its bound."""
    verdicts = [
        _judge(result, answer, name=name)
        for result, answer, name in zip(results, case.answers, case.workload.results, strict=True)
    ]
    return max(verdicts, key=lambda v: (not v.right, v.max_error / v.allowed_error if v.allowed_error else 0.0))


def _judge(got: torch.Tensor, answer: Answer, *, name: str) -> Verdict:
    """Compare with the right answer: with no error allowed, or with a bound for each element."""
    if answer.allowed is None and torch.equal(got, answer.expected):
        return Verdict(right=True, max_error=0.0, allowed_error=0.0)
    expected = answer.expected.double()
    error = (got.double() - expected).abs()
    allowed = torch.zeros_like(error) if answer.allowed is None else answer.allowed
    wrong = ~((error <= allowed) | (got.double() == expected))  # infinities are equal, NaNs are not
    error = torch.nan_to_num(error, nan=_HUGE, posinf=_HUGE)
    worst = int((torch.where(wrong, error, -1.0) if wrong.any() else error - allowed).argmax())
    at = [int(index) for index in torch.unravel_index(torch.tensor(worst), error.shape)]
    reason = ""
    if count := int(wrong.sum()):
        reason = (
            f"value: {count} of {wrong.numel()} elements of {name}, the worst at {at}: "
            f"{float(got.flatten()[worst]):.6g} for {float(expected.flatten()[worst]):.6g}"
        )
    return Verdict(
        right=not count,
        max_error=float(error.flatten()[worst]),
        allowed_error=float(allowed.flatten()[worst]),
        reason=reason,
    )


def _wrong(reason: str) -> Verdict:
    """A fault that is not one of size."""
    return Verdict(right=False, max_error=0.0, allowed_error=0.0, reason=reason)


def _check_memory(arguments: Sequence[Argument], *, batch: int, device: torch.device) -> None:
    needed = sum(math.prod(a.shape_at(batch)) * getattr(torch, a.dtype).itemsize for a in arguments)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    if needed > free:
        raise MemoryError(f"it needs {needed / 2**30:.1f} GiB for its tensors, {free / 2**30:.1f} GiB are free")


# -- layouts ---------------------------------------------------------------------------------------------------------


def _in_kernel_order(tensor: torch.Tensor, *, name: str, layout: Layout) -> torch.Tensor:
    """A tensor of PyTorch's shape, viewed in the order in which a kernel of that layout has it in memory."""
    return tensor.permute(0, 2, 3, 1) if layout == "nhwc" and name in IMAGES else tensor


def _in_pytorch_order(tensor: torch.Tensor, *, name: str, layout: Layout, workload: Workload) -> torch.Tensor:
    """A kernel's tensor, viewed in PyTorch's shape."""
    shape = workload.shape_of(name)
    if layout == "nhwc" and name in IMAGES:
        n, c, h, w = shape
        return tensor.view(n, h, w, c).permute(0, 3, 1, 2)
    return tensor.view(shape)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_BITS[tensor.dtype.itemsize])


def _all_the_same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return all(_same_bits(one, other) for one, other in zip(some, others, strict=True))


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(_bits(one), _bits(other))
