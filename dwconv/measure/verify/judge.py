"""Judge results: compare them with the right answers, element by element."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dwconv.measure.verify.cases import Case
from dwconv.problems.reference import Answer
from dwconv.records.record import Verdict

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
