"""``explain``: what would run a call, pass by pass, and why. Nothing is tuned, built or warned of."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from dwconv import settings
from dwconv.call.arguments import Call, CallArguments, Padding, Size
from dwconv.call.call_plan import decisions_for
from dwconv.call.plan_kernels import State, reads_slices, state_of
from dwconv.call.transposed_call import TransposedArguments, TransposedCall
from dwconv.dispatch import decision
from dwconv.dispatch.knowledge import database
from dwconv.dispatch.of_problem import as_transposed
from dwconv.errors import InvalidArgument, InvalidWorkload
from dwconv.kernels.operand import alignment_bytes, why_copied, x_pitch_of
from dwconv.problems.as_written import tune_command
from dwconv.problems.block import Block
from dwconv.problems.problem import Problem
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import IMAGES, Layout, Pass, by
from dwconv.records.record import Measurement, TuningRecord, in_us
from dwconv.reporting import road
from dwconv.schedules.cuda.gpu.cost import conflicts_us, total_us
from dwconv.schedules.template import template
from dwconv.system import given, versions
from dwconv.system.given import shown
from dwconv.untuned.gain import Expected


@dataclass(frozen=True, kw_only=True)
class PassExplanation:
    """What runs one pass, with its measurements."""

    pass_: Pass
    provider: decision.Provider
    reason: str
    record: TuningRecord | None
    config: str
    """The knobs of the kernel that runs, or of the best one known; empty without one."""
    expected: Expected | None = None
    """What the choice relies on where nothing that was measured with the versions installed decides."""
    is_of_another_size: bool = False
    """True if ``record`` is of a kernel of any size that was measured at another one."""
    state: State = ""
    """Of dwconv's kernel: ``ready``, or ``building``, and until it is built PyTorch's op runs; empty without one, and
    where the first call builds it."""
    copies: tuple[str, ...] = ()
    """Copies of the call's tensors by dwconv's kernel, with the reasons. Without those of the gradient, whose layout is
    not decided yet."""
    conflicts: str = ""
    """What bank conflicts in shared memory are computed to cost dwconv's kernel on a GPU; empty where that is
    little."""

    @property
    def measured(self) -> Measurement | None:
        """dwconv's best kernel, in microseconds, also where PyTorch's op is faster; None if it was never measured on
        this device. With ``expected`` it was measured with other versions than those installed."""
        return self.record.measurement if self.record else None

    @property
    def pytorch(self) -> tuple[str, Measurement] | None:
        """PyTorch's op as it would run instead, measured beside it; None if it never was."""
        return self.record.alternative if self.record else None

    def __str__(self) -> str:
        lines = [f"  {self.pass_}  {self.provider:<7}  {self.reason}"]
        lines += ["         building: PyTorch's op runs until it is built"] if self.state == "building" else []
        if self.measured and self.pytorch:
            name, theirs = self.pytorch
            at = f", both at {by(self.record.workload.input_shape)}" if self.is_of_another_size and self.record else ""
            lines.append(f"         dwconv {_timed(self.measured)}, {name} {_timed(theirs)}{at}")
        if self.config:
            lines.append(f"         {self.config}")
        lines += [f"         {self.conflicts}"] if self.conflicts else []
        lines += [f"         {each}" for each in self.copies]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The kernels that would run a call. Prints as a short report."""

    call: str
    problem: Problem
    """The explanation as data; ``problem.workload(pass_)`` is what would be tuned."""
    device: str
    passes: tuple[PassExplanation, ...]
    logs: tuple[Path, ...]
    problems: tuple[str, ...]
    """Logs that could not be read, or not whole."""
    road: str
    """Which way a call takes now: through C++, through Python and why, or to PyTorch's op."""
    command: str
    """The command that tunes the passes of which nothing was measured with the versions installed; empty if there are
    none."""

    def __getitem__(self, pass_: Pass) -> PassExplanation:
        return next(each for each in self.passes if each.pass_ == pass_)

    def __str__(self) -> str:
        logs = ", ".join(str(log) for log in self.logs) or "no tuning log"
        lines = [f"{self.call} on {self.device}", *(str(each) for each in self.passes), f"  known from {logs}"]
        lines += [f"  {problem}" for problem in self.problems]
        lines.append(f"  calls go {self.road}")
        if self.command:
            lines += [f"  race: {_RACE}"] if versions.can_build() else []
            lines.append(f"  tune{versions.where_to_tune()}: {self.command}")
        return "\n".join(lines)


_RACE = "dwconv.convert(model, example_inputs) times a few configurations of each layer"
_FAILS = "; a call fails, as DWCONV_UNTUNED=error requires"


def explain(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Padding = 0,
    dilation: Size = 1,
    groups: int | None = None,
    *,
    block: str | None = None,
    transposed: bool = False,
    output_padding: Size = 0,
) -> Explanation:
    """Explains what ``dwconv.conv2d`` would run for these arguments; ``conv1d`` for a weight of three dimensions,
    ``conv3d`` for one of five. ``block``: the norms and activations around it that run as one with it, in training and
    in evaluation, as ``dwconv.summary`` names them: ``bn+relu6,bn+relu6``. ``transposed``: what ``conv_transpose2d``
    or the like would run, with that ``output_padding``: its forward pass is the dgrad of the convolution that is named,
    its dgrad that one's fprop.

    Raises InvalidWorkload, as the call itself would.
    """
    if not isinstance(weight, Tensor):
        raise InvalidArgument(f"weight must be a Tensor, not {type(weight).__name__}")
    if block is not None and not isinstance(block, str):
        raise InvalidArgument(f"block={shown(block)} is not a str; give it as in bn+relu6,bn+relu6")
    axes = weight.dim() - 2
    if axes not in (1, 2, 3):
        raise InvalidWorkload(
            f"weight has {weight.dim()} dimensions; explain takes 1-D (3), 2-D (4) and 3-D (5) convolutions"
        )
    call: Call | TransposedCall
    if given.flag("transposed", transposed):
        if block is not None:
            raise InvalidArgument(f"block={shown(block)}: a transposed convolution is in none; leave it out")
        arguments = (input, weight, bias, stride, padding, output_padding, groups, dilation, axes)
        call = TransposedCall.of(TransposedArguments(*arguments))  # type: ignore[arg-type]
        if not call.is_ours:
            raise InvalidWorkload(f"output_padding={output_padding} is not below stride={stride}: PyTorch's op runs it")
    else:
        call = Call.of(CallArguments(input, weight, bias, stride, padding, dilation, groups, axes))
    problem, x, w = call.problem, call.x, call.w
    if block is not None:
        problem = dataclasses.replace(problem, block=Block.parse(block))
    decisions, target = decisions_for(problem, x.device)
    if transposed:
        decisions = as_transposed(decisions, problem, target, bias=bias is not None)
    if problem.block:
        decisions |= decisions_for(problem.in_evaluation, x.device)[0]
    untuned = [pass_ for pass_, made in decisions.items() if made.command]
    return Explanation(
        call=str(problem) + ", transposed: its forward pass is the dgrad" * transposed,
        problem=problem,
        device=target.device if target else str(x.device),
        passes=tuple(
            PassExplanation(
                pass_=pass_,
                provider=made.provider,
                reason=made.reason + (_FAILS if made.command and settings.untuned() == "error" else ""),
                record=made.record,
                config=_config(made),
                expected=made.expected,
                is_of_another_size=made.record is not None
                and made.record.workload.input_size != problem.input_shape[2:],
                state=state_of(problem, made, x.device) if settings.untuned() == "predict" else "",
                copies=_copies(made, {"dy" if transposed else "x": x, "w": w}),
                conflicts=_conflicts(made),
            )
            for pass_, made in decisions.items()
        ),
        logs=tuple(database().logs),
        problems=tuple(database().problems),
        road=road.of_calls([made.provider for made in decisions.values()], is_transposed=transposed),
        command=tune_command(problem.workload(problem.passes[0]), untuned) if untuned else "",
    )


def _config(decision: decision.DispatchDecision) -> str:
    known = decision.record or decision.expected
    config = decision.config or (known.config if known else None)
    return f"{config.template} {config}" if config else ""


_MUCH = 0.05
"""The share of a kernel's computed time from which on its bank conflicts are named."""


def _conflicts(decision: decision.DispatchDecision) -> str:
    """Of the estimate: nothing is built."""
    workload, config, target = decision.workload, decision.config, decision.target
    if workload is None or config is None or not isinstance(target, CudaTarget):
        return ""
    works = template(config.template).works
    assert works is not None, "a template of CUDA says what its kernels do"
    kernels = works(workload, config, target)
    taken_us, all_us = conflicts_us(kernels, target), total_us(kernels, target)
    if not taken_us > _MUCH * all_us:
        return ""
    most = max(kernel.transactions_a_request or 1.0 for kernel in kernels)
    return (
        f"bank conflicts: {most:.1f} transactions a request of shared memory, computed to take {in_us(taken_us)} of "
        f"{in_us(all_us)}"
    )


def _copies(decision: decision.DispatchDecision, tensors: dict[str, Tensor]) -> tuple[str, ...]:
    workload, config, target = decision.workload, decision.config, decision.target
    if workload is None or config is None or target is None:
        return ()
    alignment = alignment_bytes(target.kind, workload.dtype)
    found = []
    for name, tensor in tensors.items():
        if name in workload.inputs:
            layout: Layout = template(config.template).layout if name in IMAGES else "nchw"
            x_pitch = x_pitch_of(tensor, layout=layout) if name == "x" else 0
            reason = why_copied(tensor, layout=layout, alignment=alignment)
            if reason and not (x_pitch and reads_slices(decision, x_pitch)):
                found.append(f"copies {name} first ({tensor.numel() * tensor.element_size() / 1e6:.1f} MB): {reason}")
    return tuple(found)


def _timed(measurement: Measurement) -> str:
    return f"{in_us(measurement.median_us)} (±{in_us(measurement.spread_us)})"
