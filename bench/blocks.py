"""``python -m bench blocks``: norm, activation, depthwise convolution, norm, activation, as one and not.

It times each block of well-known networks in training, forward and backward pass, in turns: PyTorch's ops one after the
other in both layouts, the same with our convolution, and as one. Untuned passes are tuned first; then PyTorch's ops are
timed against themselves, as a control. A way whose results are too far from those of PyTorch's ops does not race. A row
also says how much each keeps for its backward pass.
``bench cuda blocks`` does the same on a GPU, each a CUDA graph.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean
from typing import Any

import torch
from torch import Tensor, nn

import dwconv
from bench.cases import BLOCK_NETWORKS, BenchLayer, listed_layers
from bench.cpu import opened, tune
from bench.evidence import Control, Ratio, percent_of_limit, ratio_of, summary_of, timed_again
from bench.models import ChannelNorm
from bench.results import MachineWatch, add_log_argument, add_out_argument, read_alone, write_results
from dwconv.call.call_plan import plans
from dwconv.commands.command_line import ArgumentParser, from_0, whole
from dwconv.errors import CannotBeCaptured
from dwconv.measure.clock.device import CudaClock
from dwconv.measure.clock.timing import Call, Clock, CpuClock, Effort, rounds_in_turns
from dwconv.measure.limits import with_limits
from dwconv.problems.block import Activation, Norm
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, Target, cpu_target
from dwconv.problems.workload import BLOCK_PASSES, DTYPES, PASSES, DType, Workload

Step = Callable[[], tuple[Tensor, ...]]
PLAIN, OTHER_LAYOUT, CONVERTED, AS_ONE = "plain", "plain, contiguous", "converted", "as one"
AGAIN = "plain again"
EFFORT = Effort(round_s=0.03, rounds=15, budget_s=8.0, patience_s=5.0)
GPU_EFFORT = Effort(round_s=0.01, rounds=15, budget_s=4.0, patience_s=4.0)
FAR = 0.2
"""Results whose distance from the exact ones is more than this share of these are wrong, unless PyTorch's are as far.
Where an activation has a bend, rounding decides about the gradients of some elements: PyTorch's own two layouts are up
to 0.07 apart in float32. And a gradient may vanish: between two norms that of γ does, nearly, and in 16 bits all of it
is rounding."""
AS_FAR = 2
"""Times the distance of PyTorch's ops."""
ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "identity": nn.Identity,
    "relu": lambda: nn.ReLU(inplace=True),
    "relu6": lambda: nn.ReLU6(inplace=True),
    "hardswish": lambda: nn.Hardswish(inplace=True),
    "silu": lambda: nn.SiLU(inplace=True),
    "gelu": nn.GELU,
}


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench blocks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--network", choices=BLOCK_NETWORKS, action="append", help="default all; may be repeated")
    parser.add_argument("--batch", type=whole, default=8, help="default 8")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of images and weights, default float32")
    parser.add_argument("--seconds", type=from_0, default=10, help="to tune an untuned pass, default 10; 0: none")
    add_log_argument(parser)
    add_out_argument(parser)
    parser.add_argument("--first", type=whole, metavar="N", help="only the first N blocks")
    arguments = parser.parse_args(argv)

    target = cpu_target()
    log, known = opened(arguments.log, target)
    layers = listed_layers(arguments.network or BLOCK_NETWORKS)[: arguments.first]
    case = BlockCase(batch=arguments.batch, dtype=arguments.dtype)
    workloads = dict.fromkeys(each for layer in layers for each in case.workloads(layer))
    machine = MachineWatch(threads=target.threads)
    target = with_limits(target)
    untuned = [each for each in workloads if known.best(each, target.device) is None]
    tune(untuned, target, log=log, known=known, seconds=arguments.seconds)
    read_alone(arguments.log)
    control = Control.over([control_of(layer, case) for layer in layers[:1]])
    print(control, flush=True)

    def row(number: int) -> dict[str, Any]:
        found = row_of(layers[number], case, target, control=control)
        print(line_of(found), flush=True)
        return found

    rows = timed_again([row(number) for number in range(len(layers))], row, threads=target.threads)
    print(summary_of(rows, control))
    print(means_of(rows))
    name = "blocks" if arguments.dtype == "float32" else f"blocks-{arguments.dtype}"
    facts = {"control": control.as_row(), "machine": machine.facts(rows)}
    write_results(name, target=target, rows=rows, folder=arguments.out, **facts)
    return 0


@dataclass(frozen=True, kw_only=True)
class BlockCase:
    """What is raced of every block."""

    batch: int
    dtype: DType
    device: str = "cpu"

    @property
    def clock(self) -> Clock:
        return CpuClock() if self.device == "cpu" else CudaClock()

    @property
    def effort(self) -> Effort:
        return EFFORT if self.device == "cpu" else GPU_EFFORT

    def passes(self, layer: BenchLayer) -> list[Workload]:
        """Those of the block."""
        return [
            layer.layer.workload(pass_, batch=self.batch, dtype=self.dtype, layout="nhwc", bias=False)
            for pass_ in BLOCK_PASSES
        ]

    def workloads(self, layer: BenchLayer) -> list[Workload]:
        """The passes of a block, and those of the convolution in it, which runs alone where the block is not one."""
        passes = self.passes(layer)
        return [*passes, *map(passes[0].convolution, PASSES)]


def region_of(workload: Workload) -> nn.Sequential:
    """What a block stands for, as a network has it: norms hold float32, whatever the images are."""
    block, channels = workload.block, workload.channels
    assert block is not None

    def norm(found: Norm | None) -> nn.Module:
        if found and found.is_of_images:
            return nn.GroupNorm(channels, channels, eps=found.eps)
        return nn.BatchNorm2d(channels, eps=found.eps) if found else nn.Identity()

    above, left = (before for before, _ in workload.padding)
    stride_h, stride_w = workload.stride
    height, width = workload.kernel
    dtype: torch.dtype = getattr(torch, workload.dtype)
    convolution = nn.Conv2d(
        channels, channels, (height, width), (stride_h, stride_w), (above, left), groups=channels, bias=workload.bias,
        dtype=dtype,
    )  # fmt: skip
    if block.layer_norm:
        return nn.Sequential(convolution, ChannelNorm(channels, eps=block.layer_norm.eps))
    return nn.Sequential(
        norm(block.norm1), ACTIVATIONS[block.act1](), convolution, norm(block.batch_norm2), ACTIVATIONS[block.act2]()
    )


def control_of(layer: BenchLayer, case: BlockCase) -> Ratio:
    """PyTorch's ops one after the other against themselves, on tensors of their own."""
    plain, x, dz = plain_of(layer, case)
    calls = {PLAIN: step_of(plain, x, dz), AGAIN: step_of(copy.deepcopy(plain), x.clone(), dz.clone())}
    rounds = rounds_in_turns(calls, clock=case.clock, effort=case.effort).rounds_us
    return ratio_of(rounds[AGAIN], over=rounds[PLAIN])


def plain_of(layer: BenchLayer, case: BlockCase) -> tuple[nn.Module, Tensor, Tensor]:
    """What the block stands for, with an input and the gradient of its result."""
    workload = case.passes(layer)[0]
    torch.manual_seed(0)
    plain = region_of(workload).train().to(case.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    x, dz = (
        torch.randn(shape).to(case.device, getattr(torch, case.dtype), memory_format=torch.channels_last)
        for shape in (workload.input_shape, workload.output_shape)
    )
    return plain, x, dz


def row_of(layer: BenchLayer, case: BlockCase, target: Target, *, control: Control) -> dict[str, Any]:
    """The times of all rivals, and what they keep. Raises BeyondLimit."""
    passes = case.passes(layer)
    workload = passes[0]
    plain, x, dz = plain_of(layer, case)
    converted = dwconv.convert(copy.deepcopy(plain), x, seconds=0, blocks=False)
    as_one = dwconv.convert(copy.deepcopy(plain), x, seconds=0, blocks=True)
    models: dict[str, nn.Module] = {PLAIN: plain, CONVERTED: converted, AS_ONE: as_one}
    steps = {name: step_of(model, x, dz) for name, model in models.items()}
    contiguous: nn.Module = copy.deepcopy(plain)
    contiguous.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    steps[OTHER_LAYOUT] = step_of(contiguous, x.contiguous(), dz.contiguous())
    exact = step_of(copy.deepcopy(plain).float(), x.float(), dz.float())
    differences, refused = differences_of(steps, exact())
    about = {"network": layer.network, "layer": str(layer), "block": str(workload.block), "caches": "warm"}
    clock = case.clock
    raced: dict[str, Call] = {}
    for name in (name for name in steps if name not in refused):
        try:
            raced[name] = clock.ready(steps[name])
        except CannotBeCaptured as error:
            refused[name] = str(error)
    if AS_ONE in refused:
        return {**about, "difference": differences, "failed": refused[AS_ONE]}
    taken = rounds_in_turns(raced, clock=clock, effort=case.effort)
    median_us = {name: measured.median_us for name, measured in taken.measurements.items()}
    over = partial(ratio_of, over=taken.rounds_us[AS_ONE])
    others = [name for name in raced if name != AS_ONE]
    over_best = over(*(taken.rounds_us[name] for name in others))
    moved, flops = (sum(getattr(each, what) for each in passes) for what in ("bytes", "flops"))
    return {
        **about,
        "count": layer.layer.count,
        "runs_as_one": runs_as_one(workload),
        "median_us": median_us,
        "spread_us": {name: measured.spread_us for name, measured in taken.measurements.items()},
        "contention": max(measured.contention for measured in taken.measurements.values()),
        **over(*(taken.rounds_us[name] for name in (PLAIN, OTHER_LAYOUT) if name in raced)).as_row("over_eager"),
        **over_best.as_row("over_best_other"),
        "best_other": min(others, key=lambda name: median_us[name]),
        "verdict": control.verdict(over_best.interval),
        "kept_bytes": {name: kept_bytes(models[name], x) for name in (PLAIN, CONVERTED, AS_ONE)},
        "gb_per_s": moved / median_us[AS_ONE] / 1e3,
        "percent_of_limit": _percent_of_limit(
            str(layer), median_us[AS_ONE], bytes_moved=moved, flops=flops, target=target
        ),
        "difference": differences,
        "refused": refused,
    }


def _percent_of_limit(name: str, us: float, *, bytes_moved: int, flops: int, target: Target) -> float:
    """On a GPU by its published limits."""
    if isinstance(target, CpuTarget):
        return percent_of_limit(name, us, bytes_moved=bytes_moved, flops=flops, target=target)
    return 100 * target.limits.limit_us(bytes_moved=bytes_moved, flops=flops) / us


def runs_as_one(workload: Workload) -> bool:
    """Whether a block of this process did: one by one it says nothing of blocks."""
    ran = [plan.tally.counted_ops() for plan in plans() if plan.problem == Problem.of(workload)]
    return any(ops[workload.pass_] for ops in ran)


def step_of(model: nn.Module, x: Tensor, dz: Tensor) -> Step:
    """A forward and a backward pass: z, and the gradients of the input and of all parameters."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    wanted = [x, *model.parameters()]

    def step() -> tuple[Tensor, ...]:
        z = model(x.clone(memory_format=torch.preserve_format) if _writes_to_its_input(model) else x)
        return (z.detach(), *torch.autograd.grad(z, wanted, dz))

    return step


def _writes_to_its_input(model: nn.Module) -> bool:
    """An activation in place at the very start would change x, a leaf."""
    layers = [module for module in model.modules() if not isinstance(module, (nn.Sequential, nn.Identity))]
    return bool(getattr(layers[0], "inplace", False))


def differences_of(steps: Mapping[str, Step], exact: Sequence[Tensor]) -> tuple[dict[str, float], dict[str, str]]:
    """How far each rival's results are from the exact ones, those of PyTorch's ops in float32, relative to them or,
    where the plain ones are off by more, to their distance; and of those that are too far, why they do not race."""
    rounding = [float((plain - right).norm()) for plain, right in zip(steps[PLAIN](), exact, strict=True)]
    scales = [max(float(right.norm()), AS_FAR * off / FAR, 1e-30) for right, off in zip(exact, rounding, strict=True)]
    differences: dict[str, float] = {}
    refused: dict[str, str] = {}
    for name, step in steps.items():
        if name == PLAIN:
            continue
        apart = [float((mine - right).norm()) / scale for mine, right, scale in zip(step(), exact, scales, strict=True)]
        differences[name] = max(apart)
        if not all(each <= FAR for each in apart):
            refused[name] = f"wrong: its results are {max(apart):.1e} of the exact ones away from them"
    return differences, refused


def kept_bytes(model: nn.Module, x: Tensor) -> int:
    """What is kept for the backward pass, each memory once, but for parameters."""
    own = {each.untyped_storage().data_ptr() for each in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        z = model(x.clone(memory_format=torch.preserve_format).requires_grad_() * 1)
    del z
    return sum(kept.values())


def line_of(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"{row['layer']:36} {row['block']:28} failed: {row['failed']}"
    low, high = row["over_best_other_interval"]
    taken = "  ".join(f"{name} {us / 1e3:.2f}" for name, us in row["median_us"].items())
    kept = row["kept_bytes"]
    return (
        f"{row['layer']:36} {row['block']:28} ms: {taken}   {row['over_eager']:.2f} × eager, "
        f"{row['over_best_other']:.2f} ({low:.2f} to {high:.2f}) × the best other, {row['verdict']}, "
        f"{row['gb_per_s']:.0f} GB/s, keeps {kept[AS_ONE] / kept[PLAIN]:.2f}"
        + ("" if row["runs_as_one"] else ", one by one")
    )


def means_of(rows: Sequence[dict[str, Any]]) -> str:
    """Geometric means over the blocks."""
    lines = [""]
    for name in ("over_eager", "over_best_other"):
        found = [row[name] for row in rows if "failed" not in row]
        if not found:
            continue
        lines.append(
            f"{name.replace('_', ' '):16} {geometric_mean(found):.2f}, least {min(found):.2f}, {len(found)} blocks"
        )
    return "\n".join(lines)
