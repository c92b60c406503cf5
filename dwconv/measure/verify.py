"""Is a kernel right? Every candidate is verified before it is timed, in the process that will time it.

    verify           a candidate: a run and a call
    verify_finalist  more of both, on several numbers of threads, and with tensors laid out as users' tensors may be
    verify_call      a kernel that was verified and has run since: one more call
    verify_once      one run, in a simulator

The bare kernel runs on memory laid out to show its faults: results and workspaces are filled with NaNs and lie between
guard bands; inputs lie between bands of NaN and are compared afterwards; inputs and results start as far from a cache
line as they may. Then the kernel is called the way a user calls it. All runs and calls must give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from dwconv.build.artifact import Artifact
from dwconv.build.kernel import ALIGNMENT_BYTES
from dwconv.measure.cases import Case
from dwconv.measure.device import free_bytes
from dwconv.measure.guarded import STALE, UNWRITTEN, Guarded, have_same_bits
from dwconv.records.record import Verdict
from dwconv.reference import Answer
from dwconv.workload import IMAGES, Layout, Workload

# Stands for the error of a result that is NaN: records hold finite numbers only.
_HUGE = 1e300


class LoadedKernel(Protocol):
    """A kernel that can be verified, such as dwconv.build.kernel.Kernel."""

    artifact: Artifact

    def __call__(self, *inputs: torch.Tensor) -> Any: ...

    def run_into(
        self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], workspaces: Sequence[torch.Tensor]
    ) -> None: ...


def verify(kernel: LoadedKernel, case: Case) -> Verdict:
    """Run ``kernel`` on ``case`` and call it; judge both. Raises MemoryError if it needs more memory than there is, and
    the kernel's own errors."""
    return _verify(kernel, case, runs_again=[], calls=[(torch.get_num_threads(), "PyTorch's tensors")])


def verify_finalist(kernel: LoadedKernel, case: Case) -> Verdict:
    """Like ``verify`` with more runs and calls: on as many threads as PyTorch uses, on one, and on one more than that;
    with tensors that start anywhere, have gaps or are expanded."""
    usual = torch.get_num_threads()
    threads = [usual, 1, usual + 1] if case.inputs[0].device.type == "cpu" else [usual] * 3
    verdict = _verify(kernel, case, runs_again=threads, calls=list(zip(threads, _WAYS, strict=True)))
    if not verdict.right:
        return verdict
    first, *others = case.inputs
    expanded = first[..., :1, :1].expand_as(first)
    copied = torch.empty_like(first).copy_(expanded)
    if not have_same_bits(_results(kernel(expanded, *others)), _results(kernel(copied, *others))):
        return _wrong("value: called with an expanded tensor it gives another result than with a copy of it")
    return verdict


def verify_call(kernel: LoadedKernel, case: Case) -> Verdict:
    """Judge one call."""
    return _judge_all(_results(kernel(*case.inputs)), case)


def verify_once(kernel: LoadedKernel, case: Case) -> Verdict:
    """Judge a single run of the bare kernel, for a machine that always runs a kernel the same way."""
    bench = _Bench(kernel, case)
    bench.run()
    if fault := bench.fault():
        return _wrong(fault)
    return _judge_all(bench.results, case)


def _verify(
    kernel: LoadedKernel, case: Case, *, runs_again: Sequence[int], calls: Sequence[tuple[int, str]]
) -> Verdict:
    """``runs_again``: the number of threads of each run after the first. ``calls``: the number of threads of each call,
    and which of ``_WAYS`` lays out its tensors."""
    bench = _Bench(kernel, case)
    bench.run()
    if fault := bench.fault():
        return _wrong(fault)
    first = [result.clone() for result in bench.results] if runs_again else bench.results
    for threads in runs_again:
        with _on_threads(threads):
            bench.run()
        if fault := bench.fault():
            return _wrong(fault)
        if not have_same_bits(bench.results, first):
            return _wrong(f"not deterministic: another run on the same inputs, threads={threads}, gave other bits")
    verdict = _judge_all(bench.results, case)
    if not verdict.right:
        return verdict
    for threads, way in calls:
        inputs = [_WAYS[way](tensor) for tensor in case.inputs]
        with _on_threads(threads):
            called = kernel(*inputs)
        if changed := bench.changed_input(inputs):
            return _wrong(f"input changed: {changed}, when called with {way}")
        if not have_same_bits(_results(called), bench.results):
            return _wrong(f"value: called with {way}, threads={threads}, it gives another result than on its own")
    return verdict


@contextmanager
def _on_threads(count: int) -> Iterator[None]:
    """Set the number of PyTorch's threads, which CPU kernels run on."""
    usual = torch.get_num_threads()
    if count == usual:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


# -- layouts of users' tensors ---------------------------------------------------------------------------------------


def _as_they_are(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _off_a_cache_line(tensor: torch.Tensor) -> torch.Tensor:
    memory = tensor.new_empty(tensor.numel() + 1)
    return memory.as_strided(tensor.shape, tensor.stride(), 1).copy_(tensor)


def _with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_empty(*tensor.shape[:-1], 2 * tensor.shape[-1])[..., ::2].copy_(tensor)


_WAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "PyTorch's tensors": _as_they_are,
    "tensors that start off a cache line": _off_a_cache_line,
    "tensors with gaps": _with_gaps,
}


def _results(called: Any) -> tuple[torch.Tensor, ...]:
    return called if isinstance(called, tuple) else (called,)


# -- the bare kernel -------------------------------------------------------------------------------------------------


class _Bench:
    """A kernel with its arguments in its own layout, each between guard bands."""

    def __init__(self, kernel: LoadedKernel, case: Case) -> None:
        self._kernel, self._case = kernel, case
        artifact, device, batch = kernel.artifact, case.inputs[0].device, case.workload.batch
        self._layout = artifact.candidate.template.layout
        _check_memory(artifact, batch=batch, device=device)
        offset_bytes = ALIGNMENT_BYTES[artifact.kind]
        self._inputs, self._out = (
            [Guarded(argument, batch=batch, device=device, offset_bytes=offset_bytes) for argument in some]
            for some in (artifact.inputs, artifact.results)
        )
        self._workspaces = [Guarded(argument, batch=batch, device=device) for argument in artifact.workspaces]
        for own, tensor in zip(self._inputs, case.inputs, strict=True):
            original = _in_kernel_order(tensor, name=own.name, layout=self._layout)
            own.tensor.view(original.shape).copy_(original)
        self.results = [
            _in_pytorch_order(own.tensor, name=own.name, layout=self._layout, workload=case.workload)
            for own in self._out
        ]
        """The results of the last run, in PyTorch's shapes."""

    def run(self) -> None:
        for result in self._out:
            result.fill(UNWRITTEN)
        for workspace in self._workspaces:
            workspace.fill(STALE)
        self._kernel.run_into(*([own.tensor for own in some] for some in (self._inputs, self._out, self._workspaces)))

    def fault(self) -> str | None:
        """A fault that the runs left in memory: outside of the tensors, in an input, or elements not written."""
        for own in (*self._inputs, *self._out, *self._workspaces):
            if not own.bands_are_whole():
                return f"guard band: it wrote outside {own.name}"
        if changed := self.changed_input(self._case.inputs):
            return f"input changed: {changed}"
        for own in self._out:
            if unwritten := own.count(UNWRITTEN):
                return f"not written: {unwritten} of {own.tensor.numel()} elements of {own.name}"
        return None

    def changed_input(self, given: Sequence[torch.Tensor]) -> str | None:
        """The name of an input that differs between the kernel's own copy and ``given``; None if all are the same."""
        for own, tensor in zip(self._inputs, given, strict=True):
            original = _in_kernel_order(tensor, name=own.name, layout=self._layout)
            if not have_same_bits([own.tensor.view(original.shape)], [original]):
                return own.name
        return None


# -- numbers ---------------------------------------------------------------------------------------------------------


def _judge_all(results: Sequence[torch.Tensor], case: Case) -> Verdict:
    """The worst verdict over all results: a wrong one, else the one whose error is nearest to its bound."""
    verdicts = [
        _judge(result, answer, name=name)
        for result, answer, name in zip(results, case.answers, case.workload.results, strict=True)
    ]
    return max(verdicts, key=lambda v: (not v.right, v.max_error / v.allowed_error if v.allowed_error else 0.0))


def _judge(got: torch.Tensor, answer: Answer, *, name: str) -> Verdict:
    """Compare with the right answer: with no error allowed, or within a bound for each element. NaN must be NaN, and an
    infinity the same infinity."""
    if answer.allowed is None and torch.equal(got, answer.expected):
        return Verdict(right=True, max_error=0.0, allowed_error=0.0)
    expected = answer.expected.double()
    error = (got.double() - expected).abs()
    allowed = torch.zeros_like(error) if answer.allowed is None else answer.allowed
    right = torch.where(expected.isfinite(), error <= allowed, got == expected) | (got.isnan() & expected.isnan())
    if answer.may_be_nan is not None:
        right |= got.isnan() & answer.may_be_nan
    counts = ~right | (expected.isfinite() & got.isfinite())  # NaN and infinity that are right have no error
    error = torch.nan_to_num(error, nan=_HUGE, posinf=_HUGE).where(counts, 0.0)
    allowed = torch.nan_to_num(allowed, posinf=_HUGE)
    wrong = ~right
    worst = int((torch.where(wrong, error, -1.0) if wrong.any() else error / allowed).argmax())
    at = [worst // math.prod(error.shape[axis + 1 :]) % size for axis, size in enumerate(error.shape)]
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
    """The verdict for a fault that is not an error in a value."""
    return Verdict(right=False, max_error=0.0, allowed_error=0.0, reason=reason)


def _check_memory(artifact: Artifact, *, batch: int, device: torch.device) -> None:
    needed, free = artifact.bytes_at(batch), free_bytes(device.type)
    if needed > free:
        raise MemoryError(f"it needs {needed / 2**30:.1f} GiB for its tensors, {free / 2**30:.1f} GiB are free")


# -- layouts ---------------------------------------------------------------------------------------------------------


def _in_kernel_order(tensor: torch.Tensor, *, name: str, layout: Layout) -> torch.Tensor:
    """A tensor of PyTorch's shape, viewed in the order that a kernel of that layout has in memory."""
    return tensor.permute(0, 2, 3, 1) if layout == "nhwc" and name in IMAGES else tensor


def _in_pytorch_order(tensor: torch.Tensor, *, name: str, layout: Layout, workload: Workload) -> torch.Tensor:
    """A kernel's tensor, viewed in PyTorch's shape."""
    shape = workload.shape_of(name)
    if layout == "nhwc" and name in IMAGES:
        n, c, h, w = shape
        return tensor.view(n, h, w, c).permute(0, 3, 1, 2)
    return tensor.view(shape)
