"""Verification: a kernel runs on cases, alone and called as users call it, and is right if every result is.

``verify`` judges a candidate, ``verify_finalist`` more thoroughly one that may be chosen, ``verify_runs`` one that no
process calls, ``verify_call`` one call. All of them also judge the float mode, but the last: how the CPU rounds, and
whether it keeps denormals. Each thread has its own; code that changes it and leaves it so makes whatever runs there
later give other results.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import torch

from dwconv.measure.verify.bare_kernel import Bench, LoadedKernel, check_memory, have_same_bits
from dwconv.measure.verify.cases import Case, judge_all, wrong
from dwconv.problems.problem import memory_format
from dwconv.problems.workload import IMAGES
from dwconv.records.record import Verdict
from dwconv.schedules.template import spreads_nan
from dwconv.system.threads import on_threads, to_handle

MODE_CHANGED = "float mode: it changed how the CPU rounds, or made it flush denormals, and did not restore it"

# Not written where they are used: Python would compute with constants beforehand.
_ONE, _LITTLE, _SMALLEST_NORMAL = 1.0, 2.0**-60, sys.float_info.min
_PER_THREAD = 1 << 15
"""Elements that PyTorch gives to one thread at least."""


def mode() -> tuple[bool, ...]:
    """Of this thread: the same value, the same mode."""
    return (_SMALLEST_NORMAL / 2 != 0.0, _ONE + _LITTLE == _ONE, _ONE - _LITTLE == _ONE)


def team_keeps_denormals() -> bool:
    """True if all threads do that PyTorch's operators run on."""
    tensor = torch.full((_PER_THREAD * torch.get_num_threads(),), torch.finfo(torch.float32).tiny)
    return bool(tensor.mul_(0.5).ne_(0.0).all())


_T = TypeVar("_T")


def verify(kernel: LoadedKernel, case: Case) -> Verdict:
    """Run ``kernel`` on ``case`` and call it; judge both. Raises MemoryError if it needs more memory than there is, and
    the kernel's own errors."""
    usual = torch.get_num_threads()
    check_memory(kernel.artifact, case)
    return _verify(kernel, case, runs=[usual], calls=[(usual, "PyTorch's tensors")])


def verify_finalist(kernel: LoadedKernel, cases: Sequence[Case]) -> Verdict:
    """Like ``verify`` on every one of ``cases``. They share out the numbers of threads, the places where tensors start
    and the ways of calling: not each is tried with each. Gives the first wrong verdict, which says on what, or the last
    one."""
    usual = torch.get_num_threads()
    on_cpu = cases[0].inputs[0].device.type == "cpu"
    others = [count for count in dict.fromkeys((16, 4, 8, 5, usual + 1, 3, 2, 1)) if count != usual]
    counts = [*others[:3], usual, *others[3:]] if on_cpu else [usual]  # the large batch comes fourth
    check_memory(kernel.artifact, max(cases, key=lambda case: case.workload.batch))
    verdict: Verdict | None = None
    for number, case in enumerate(cases):
        runs = _share(counts, number, of=len(cases))
        if not (on_cpu and case.is_exact):  # where the answers cost more than the runs, or runs cost little
            runs = [usual, *runs]
        called_on = usual if not on_cpu else 1 if case.is_exact else usual + 1
        calls = [(called_on, way) for way in _share(list(_WAYS), number, of=len(cases))]
        verdict = _verify(kernel, case, runs=runs, calls=calls, place=number)
        if verdict.right and number == 0:
            verdict = _verdict_on_expanded(kernel, case) or verdict
        if not verdict.right:
            first = "" if runs[0] == usual else f", threads={runs[0]}"
            return explained(verdict, f"at batch size {case.workload.batch}, {case.data} data{first}")
    assert verdict is not None
    return verdict if team_keeps_denormals() else wrong(MODE_CHANGED)


def verify_runs(kernel: LoadedKernel, case: Case, *, threads: Iterable[int] = (1,), place: int = 0) -> Verdict:
    """Judge runs of the bare kernel on ``case``, one on each number of threads, for a machine where no process calls it
    from PyTorch, such as the simulator. ``place``: where the tensors start."""
    check_memory(kernel.artifact, case)
    return _verify(kernel, case, runs=list(threads), calls=[], place=place)


def _judged(kernel: LoadedKernel, results: Sequence[torch.Tensor], case: Case) -> Verdict:
    return judge_all(results, case, spreads_nan=spreads_nan(kernel.artifact.candidate.config.template))


def _share(everything: Sequence[_T], number: int, *, of: int) -> list[_T]:
    """What falls to the case ``number`` of so many: something in any case, and nothing is left."""
    return [each for turn, each in enumerate(everything) if turn % of == number % len(everything)]


def _verdict_on_expanded(kernel: LoadedKernel, case: Case) -> Verdict | None:
    """None if it takes expanded tensors."""
    first, second, *others = case.inputs
    lines = second[..., :1, :1] if case.workload.inputs[1] in IMAGES else second[:1]
    for given in ((first[..., :1, :1].expand_as(first), second), (first, lines.expand_as(second))):
        copied = [torch.empty_like(like).copy_(tensor) for like, tensor in zip((first, second), given, strict=True)]
        with on_threads(1):
            taken = have_same_bits(_results(kernel(*given, *others)), _results(kernel(*copied, *others)))
        if not taken:
            return wrong("value: called with an expanded tensor it gives another result than with a copy of it")
    return None


def verify_call(kernel: LoadedKernel, case: Case) -> Verdict:
    """Judge one call."""
    results = _results(kernel(*case.inputs))
    with on_threads(to_handle(case.elements)):
        return _judged(kernel, results, case)


def explained(verdict: Verdict, when: str) -> Verdict:
    """``verdict``; if it is wrong, the reason says ``when``."""
    return verdict if verdict.right else dataclasses.replace(verdict, reason=f"{verdict.reason} ({when})")


def _verify(
    kernel: LoadedKernel, case: Case, *, runs: Sequence[int], calls: Sequence[tuple[int, str]], place: int = 0
) -> Verdict:
    """``runs``: the number of threads of each run. ``calls``: the number of threads of each call, and which of
    ``_WAYS`` lays out its tensors. ``place``: where the tensors of runs start."""
    before = mode()
    with on_threads(to_handle(case.elements)):
        bench = Bench(kernel, case, place=place)
        bench.run(threads=runs[0])
        if fault := bench.fault():
            return wrong(fault)
        if fault := _fault_of_more_runs(bench, runs[1:]):
            return wrong(fault)
        verdict = _judged(kernel, bench.results, case)
        if not verdict.right:
            return verdict
        for threads, way in calls:
            inputs = [_WAYS[way](tensor) for tensor in case.inputs]
            with on_threads(threads):
                called = _in_another_thread(kernel, inputs) if way == _ELSEWHERE else kernel(*inputs)
            if changed := bench.changed_input(inputs):
                return wrong(f"input changed: {changed}, when called with {way}")
            if not have_same_bits(_results(called), bench.results):
                return wrong(f"value: called with {way}, threads={threads}, it gives another result than on its own")
        return verdict if mode() == before else wrong(MODE_CHANGED)


def _fault_of_more_runs(bench: Bench, runs: Sequence[int]) -> str | None:
    if not runs:
        return None
    first = [result.clone() for result in bench.results]
    for threads in runs:
        bench.run(threads=threads)
        if not have_same_bits(bench.results, first):
            other = f"not deterministic: another run on the same inputs, threads={threads}, gave other bits"
            return bench.fault() or other
    return bench.fault()  # the results were whole, and are the same; what was written elsewhere stays there


# -- ways of calling -------------------------------------------------------------------------------------------------


def _in_another_thread(kernel: LoadedKernel, inputs: Sequence[torch.Tensor]) -> Any:
    with ThreadPoolExecutor(1) as other:
        return other.submit(torch.inference_mode(torch.is_inference_mode_enabled())(kernel), *inputs).result()


def _as_they_are(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _off_a_cache_line(tensor: torch.Tensor, *, offset_bytes: int = 0) -> torch.Tensor:
    """By one element at least."""
    offset = max(1, offset_bytes // tensor.itemsize)
    return tensor.new_empty(tensor.numel() + offset).as_strided(tensor.shape, tensor.stride(), offset).copy_(tensor)


def _with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.new_empty(*tensor.shape[:-1], 2 * tensor.shape[-1])[..., ::2].copy_(tensor)


def _in_the_other_layout(tensor: torch.Tensor) -> torch.Tensor:
    """A weight has the same bytes in both, and other strides."""
    if tensor.dim() < 4:
        return tensor
    other = memory_format("nhwc" if tensor.is_contiguous() else "nchw", axes=tensor.dim() - 2)
    return torch.empty_like(tensor, memory_format=other).copy_(tensor)


_ELSEWHERE = "PyTorch's tensors in another thread"
_WAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tensors in the other layout": _in_the_other_layout,
    "tensors with gaps": _with_gaps,
    _ELSEWHERE: _as_they_are,
    "PyTorch's tensors": _as_they_are,
    "tensors that start off a cache line": _off_a_cache_line,
    **{
        f"tensors that start {offset_bytes} bytes off a cache line": partial(
            _off_a_cache_line, offset_bytes=offset_bytes
        )
        for offset_bytes in (8, 16, 32)
    },
}


def _results(called: Any) -> tuple[torch.Tensor, ...]:
    return called if isinstance(called, tuple) else (called,)
