"""Rows: what runs the passes of each layer, how long a call takes, and what tuning can gain."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from dwconv.call import process_kernels
from dwconv.call.call_plan import CallPlan, decisions_for, plans
from dwconv.dispatch.advantage import kernel_us
from dwconv.dispatch.decision import DispatchDecision, Provider
from dwconv.dispatch.knowledge import database
from dwconv.dispatch.of_problem import as_transposed
from dwconv.problems.as_written import tune_command
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Pass, by
from dwconv.reporting.ran import Ran
from dwconv.schedules.template import Candidate
from dwconv.tuner.expected_gain import ExpectedGains

Basis = Literal["measured", "predicted", "not known"]
_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}


@dataclass(frozen=True, kw_only=True)
class PassRow:
    """One pass of one layer. Times are of one call, in microseconds, by the tuning log."""

    pass_: Pass
    provider: Provider
    config: str
    """dwconv's template and knobs; empty where PyTorch's op runs."""
    reason: str
    """Why that one runs."""
    why: str
    """The reason in a few words, without figures; empty where dwconv's kernel runs."""
    calls: int
    """As counted."""
    per_step: float
    """How often a step runs it."""
    to_win_us: float
    """The expected gain of tuning in one call."""
    ours_us: float | None = None
    """dwconv's kernel, the best that is known."""
    pytorch_us: float | None = None
    """PyTorch's op as it would run instead."""
    pytorch: str = ""
    """Its name, as ``onednn-nhwc``; empty if it is not known."""
    basis: Basis = "not known"
    batch: int | None = None
    """The batch size of the measurement, if it is another than the call's: the times are scaled."""
    threads: int | None = None
    """The threads of the measurement, if they are others than the call's: the times are of these."""

    @property
    def now_us(self) -> float | None:
        """The time of what runs it."""
        return self.ours_us if self.provider == "dwconv" else self.pytorch_us

    @property
    def times(self) -> float | None:
        """How many times as fast as PyTorch's op dwconv's kernel is, also where PyTorch's op runs."""
        return self.pytorch_us / self.ours_us if self.pytorch_us and self.ours_us else None

    @property
    def step_us(self) -> float | None:
        """Its time in a step."""
        return None if self.now_us is None else self.per_step * self.now_us

    @property
    def saved_us(self) -> float | None:
        """What dwconv saves of a step."""
        if self.now_us is None or self.pytorch_us is None:
            return None
        return self.per_step * (self.pytorch_us - self.now_us)

    @property
    def step_to_win_us(self) -> float:
        """What tuning is expected to win of a step."""
        return self.per_step * self.to_win_us


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """One layer, or several that cannot be distinguished, with one problem."""

    names: tuple[str, ...]
    problem: Problem
    device: str
    """As records name it; PyTorch's name for one without kernels."""
    passes: tuple[PassRow, ...]
    counted_for: int
    """How many layers the counted calls are of."""
    is_transposed: bool = False
    """Of transposed convolutions: problem and passes are those of the convolution that they are the dgrad of."""

    @property
    def workload(self) -> str:
        """``8×112×56×56 k5 s1 f32 nhwc``"""
        problem = self.problem
        words = [
            "×".join(map(str, problem.input_shape)),
            f"k{_short(problem.weight_shape[2:])}",
            f"s{_short(problem.stride)}",
        ]
        if any(size != 1 for size in problem.dilation):
            words.append(f"d{_short(problem.dilation)}")
        if problem.weight_shape[0] != problem.input_shape[1]:
            words.append(f"m{problem.weight_shape[0] // problem.input_shape[1]}")
        words += [str(problem.block)] if problem.block else []
        words += ["eval"] * (not problem.trains)
        words += ["transposed"] * self.is_transposed
        words += ["bias"] * problem.bias + [problem.epilogue] * (problem.epilogue != "none")
        return " ".join([*words, _SHORT.get(problem.dtype_name, problem.dtype_name), problem.layout])

    @property
    def step_us(self) -> float:
        """The time of its passes in a step, as far as it is known."""
        return sum(each.step_us or 0.0 for each in self.passes)

    @property
    def step_to_win_us(self) -> float:
        """What tuning is expected to win of a step."""
        return sum(each.step_to_win_us for each in self.passes)

    @property
    def command(self) -> str:
        """The command that tunes the passes with something to win; empty without any."""
        passes = [each.pass_ for each in self.passes if each.to_win_us]
        return tune_command(self.problem.workload(self.problem.passes[0]), passes) if passes else ""


def _short(sizes: Sequence[int]) -> str:
    """``3`` for (3, 3), ``1×5`` for (1, 5)."""
    return by(sizes[:1] if len(set(sizes)) == 1 else sizes)


def rows_of(ran: Sequence[Ran]) -> tuple[LayerRow, ...]:
    """The rows of all that ran."""
    expected_gains = cache(lambda target: ExpectedGains(target, database(), state=process_kernels.state))
    latest = {(plan.problem, plan.device): plan for plan in plans()}
    latest_here = {(plan.problem, plan.device, plan.target): plan for plan in plans()}
    rows = []
    for each in ran:
        decisions, target = decisions_for(each.problem, each.device)
        sizes = each.problem, each.device
        plan = latest_here.get((*sizes, target)) or latest.get(sizes)  # with other threads, if none ran with these
        if plan:
            decisions, target = {pass_: _as_it_ran(plan, pass_) for pass_ in plan.decisions}, plan.target
        if each.is_transposed:
            decisions = as_transposed(decisions, each.problem, target, bias=each.sweeps_bias)
        known = expected_gains(target) if target else None
        each = each.as_decided(decisions)
        passes = [pass_ for pass_ in decisions if pass_ in each.per_step]
        rows.append(
            LayerRow(
                names=each.names,
                problem=each.problem,
                device=target.device if target else str(each.device),
                passes=tuple(_pass_row(each, pass_, decisions[pass_], known, target) for pass_ in passes),
                counted_for=each.counted_for,
                is_transposed=each.is_transposed,
            )
        )
    return tuple(rows)


def _as_it_ran(plan: CallPlan, pass_: Pass) -> DispatchDecision:
    """The decision; PyTorch's op where the kernel could not be built, or was wrong."""
    decision = plan.decisions[pass_]
    if decision.provider == "pytorch" or plan.kernels.get(pass_, decision) is not None:
        return decision
    assert decision.workload is not None and decision.config is not None, "decided together with the provider"
    why = process_kernels.state.broken.get(Candidate(decision.workload, decision.config), "")
    return dataclasses.replace(decision, provider="pytorch", reason=f"its kernel is out: {why}")


def _pass_row(
    ran: Ran, pass_: Pass, decision: DispatchDecision, expected_gains: ExpectedGains | None, target: Target | None
) -> PassRow:
    provider, reason, why = decision.provider, decision.reason, _why(decision)
    if ran.why_pytorch:
        provider = "pytorch"
        reason = why = ran.why_pytorch
    to_win_us = expected_gains.of(ran.problem.workload(pass_)).win_us if expected_gains and not ran.why_pytorch else 0.0
    row = PassRow(
        pass_=pass_,
        provider=provider,
        config=f"{decision.config.template} {decision.config}" if provider == "dwconv" and decision.config else "",
        reason=reason,
        why=why,
        calls=ran.calls.get(pass_, 0),
        per_step=ran.per_step[pass_],
        to_win_us=to_win_us,
        **_times(decision, ran.problem, pass_, target),
    )
    return row if row.now_us is None else dataclasses.replace(row, to_win_us=min(to_win_us, row.now_us))


def _why(decision: DispatchDecision) -> str:
    if decision.provider == "dwconv":
        return ""
    if decision.config is not None:  # its kernel could not be built
        return decision.reason
    if decision.expected:
        return "the predicted kernel is not sure to be faster: PyTorch's op runs until it is measured"
    if decision.record:
        return "no kernel was measured to be faster, the call included"
    return decision.reason


def _times(decision: DispatchDecision, problem: Problem, pass_: Pass, target: Target | None) -> dict[str, Any]:
    """What the decision is based on, for one call of the problem: fields of its row."""
    record, hoped = decision.record, decision.expected
    if record and record.measurement:
        workload = problem.workload(pass_)
        scale = workload.batch / record.workload.batch
        name, theirs = record.alternative or ("", None)
        return {
            "ours_us": scale * kernel_us(record, sweeps=workload.bias and not record.workload.bias),
            "pytorch_us": scale * theirs.median_us if theirs else None,
            "pytorch": name,
            "basis": "predicted" if hoped else "measured",
            "batch": record.workload.batch if scale != 1 else None,
            "threads": _other_threads(record.device, target),
        }
    return {"ours_us": hoped.us, "pytorch_us": hoped.us * hoped.gain, "basis": "predicted"} if hoped else {}


def _other_threads(device: str, target: Target | None) -> int | None:
    """The threads in a CPU's name, if they are others than those of ``target``."""
    measured = target.named(device) if isinstance(target, CpuTarget) and device != target.device else None
    return measured.threads if measured else None
