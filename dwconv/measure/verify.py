"""Is a kernel right? Every candidate is verified before it is timed, in the process that will time it.

    verify           a candidate: a run and a call
    verify_finalist  more of both, on other data, at other batch sizes, on several numbers of threads, and with tensors
                     laid out as users' tensors may be
    verify_call      a kernel that was verified and has run since: one more call
    verify_once      one run, in a simulator

A run is of the bare kernel, on memory that shows its faults (``bare_kernel``); a call is made the way a user makes it.
All runs and calls must give the same bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dwconv.measure.bare_kernel import Bench, LoadedKernel
from dwconv.measure.cases import Case
from dwconv.measure.guarded import have_same_bits
from dwconv.measure.judge import judge_all, wrong
from dwconv.measure.threads import on_threads, to_handle
from dwconv.records.record import Verdict


def verify(kernel: LoadedKernel, case: Case) -> Verdict:
    """Run ``kernel`` on ``case`` and call it; judge both. Raises MemoryError if it needs more memory than there is, and
    the kernel's own errors."""
    usual = torch.get_num_threads()
    return _verify(kernel, case, runs=[usual], calls=[(usual, "PyTorch's tensors")])


def verify_finalist(kernel: LoadedKernel, cases: Sequence[Case]) -> Verdict:
    """Like ``verify`` on every one of ``cases``, with more runs: on as many threads as PyTorch uses, on one, and on one
    more than that. The cases share out the calls: with tensors that start anywhere, have gaps or are expanded. Gives
    the first wrong verdict, which says on what, or the last one."""
    usual = torch.get_num_threads()
    threads = [usual, 1, usual + 1] if cases[0].inputs[0].device.type == "cpu" else [usual] * 3
    calls = list(zip(threads, _WAYS, strict=True))
    verdict: Verdict | None = None
    for number, case in enumerate(cases):
        chosen = [call for turn, call in enumerate(calls) if turn % len(cases) == number % len(calls)]
        verdict = _verify(kernel, case, runs=threads, calls=chosen)
        if verdict.right and number == 0 and not _takes_expanded(kernel, case):
            verdict = wrong("value: called with an expanded tensor it gives another result than with a copy of it")
        if not verdict.right:
            return explained(verdict, f"at batch size {case.workload.batch}, {case.data} data")
    assert verdict is not None
    return verdict


def _takes_expanded(kernel: LoadedKernel, case: Case) -> bool:
    first, *others = case.inputs
    expanded = first[..., :1, :1].expand_as(first)
    copied = torch.empty_like(first).copy_(expanded)
    return have_same_bits(_results(kernel(expanded, *others)), _results(kernel(copied, *others)))


def verify_call(kernel: LoadedKernel, case: Case) -> Verdict:
    """Judge one call."""
    results = _results(kernel(*case.inputs))
    with on_threads(to_handle(case.elements)):
        return judge_all(results, case)


def explained(verdict: Verdict, when: str) -> Verdict:
    """``verdict``; if it is wrong, the reason says ``when``."""
    return verdict if verdict.right else dataclasses.replace(verdict, reason=f"{verdict.reason} ({when})")


def verify_once(kernel: LoadedKernel, case: Case) -> Verdict:
    """Judge a single run of the bare kernel, for a machine that always runs a kernel the same way."""
    bench = Bench(kernel, case)
    bench.run()
    if fault := bench.fault():
        return wrong(fault)
    return judge_all(bench.results, case)


def _verify(kernel: LoadedKernel, case: Case, *, runs: Sequence[int], calls: Sequence[tuple[int, str]]) -> Verdict:
    """``runs``: the number of threads of each run. ``calls``: the number of threads of each call, and which of
    ``_WAYS`` lays out its tensors."""
    with on_threads(to_handle(case.elements)):
        bench = Bench(kernel, case)
        bench.run(threads=runs[0])
        if fault := bench.fault():
            return wrong(fault)
        if fault := _fault_of_more_runs(bench, runs[1:]):
            return wrong(fault)
        verdict = judge_all(bench.results, case)
        if not verdict.right:
            return verdict
        for threads, way in calls:
            inputs = [_WAYS[way](tensor) for tensor in case.inputs]
            with on_threads(threads):
                called = kernel(*inputs)
            if changed := bench.changed_input(inputs):
                return wrong(f"input changed: {changed}, when called with {way}")
            if not have_same_bits(_results(called), bench.results):
                return wrong(f"value: called with {way}, threads={threads}, it gives another result than on its own")
        return verdict


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
