"""``python -m bench threads``: does one side's idle threads slow the other's?

A loop that runs one of our kernels and then a pointwise convolution of PyTorch's, as networks do, against each of the
two alone. Both run on the same threads, so the loop should cost what the two cost; but each also takes the caches from
the other, which costs a loop of two ops of PyTorch's as much. So the same loop with PyTorch's own depthwise convolution
is measured beside it. Nothing has to be tuned.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from bench.cases import CPU_LAYERS, Layer
from bench.results import add_out_argument, write_results
from dwconv import native
from dwconv.commands.command_line import ArgumentParser, run, whole
from dwconv.kernels.cache import build_cached
from dwconv.kernels.kernel import Kernel
from dwconv.measure.clock.timing import FINAL, CpuClock, time_in_turns
from dwconv.measure.providers import laid_out, pytorch_call
from dwconv.problems.operands import operands
from dwconv.problems.target import CpuTarget, cpu_target
from dwconv.problems.workload import Workload
from dwconv.schedules.template import Candidate, templates_for

GOAL = 1.1
EFFORT = dataclasses.replace(FINAL, budget_s=2.0)


def main(argv: Sequence[str]) -> int:
    return run(_threads, list(argv))


def _threads(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench threads", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--first", type=whole, metavar="N", help="only the first N layers")
    parser.add_argument("--only", default="", metavar="TEXT", help="only layers and passes whose line has this")
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    target = cpu_target()
    native.native()  # compiled here if need be: it is part of what is timed
    print(_HEAD, flush=True)
    rows = []
    for layer in CPU_LAYERS[: arguments.first]:
        for workload in layer.workloads(dtype="float32", layout="nhwc"):
            if arguments.only in f"{layer} {workload.pass_}":
                rows.append(_row(layer, workload, target))
                print(_line(rows[-1]), flush=True)
    for key, whose in (("ratio", "dwconv's"), ("pytorch_ratio", "PyTorch's own")):
        ratios = [row[key] for row in rows]
        within = sum(ratio <= GOAL for ratio in ratios)
        print(
            f"\n{whose} loops: {within} of {len(rows)} at most {GOAL} of the sum, median "
            f"{statistics.median(ratios):.2f}, worst {max(ratios):.2f}",
            end="",
        )
    print()
    write_results("threads", target=target, rows=rows, folder=arguments.out)
    return 0


def _row(layer: Layer, workload: Workload, target: CpuTarget) -> dict[str, Any]:
    config = templates_for(workload, target)[0].space(workload, target).default
    kernel = Kernel.load(build_cached(Candidate(workload, config), target))
    inputs = operands(workload, data="normal", seed=0)
    x = torch.randn(layer.batch, layer.channels, layer.size, layer.size).to(memory_format=torch.channels_last)
    w = torch.randn(layer.channels, layer.channels, 1, 1)

    def ours() -> object:
        return kernel(*inputs)

    theirs = pytorch_call(workload, *laid_out(workload, *inputs, layout="nhwc"))

    def pointwise() -> object:
        return F.conv2d(x, w)

    calls = {
        "dwconv": ours,
        "pytorch": theirs,
        "pointwise": pointwise,
        "dwconv_loop": lambda: (ours(), pointwise()),
        "pytorch_loop": lambda: (theirs(), pointwise()),
    }
    with torch.inference_mode():
        taken = time_in_turns(calls, clock=CpuClock(), effort=EFFORT)
    us = {name: measured.median_us for name, measured in taken.items()}
    ratio, pytorch_ratio = (us[f"{whose}_loop"] / (us[whose] + us["pointwise"]) for whose in ("dwconv", "pytorch"))
    return {
        "layer": str(layer),
        "pass": workload.pass_,
        "us": us,
        "ratio": ratio,
        "pytorch_ratio": pytorch_ratio,
        "contention": max(measured.contention for measured in taken.values()),
    }


_HEAD = (
    f"{'layer':32} {'pass':6} {'dwconv µs':>10} {'1×1 µs':>8} {'loop µs':>8} {'loop / sum':>11} {'PyTorch µs':>11} "
    f"{'loop µs':>8} {'loop / sum':>11}"
)


def _line(row: dict[str, Any]) -> str:
    us = row["us"]
    return (
        f"{row['layer']:32} {row['pass']:6} {us['dwconv']:10.1f} {us['pointwise']:8.1f} {us['dwconv_loop']:8.1f} "
        f"{row['ratio']:11.2f} {us['pytorch']:11.1f} {us['pytorch_loop']:8.1f} {row['pytorch_ratio']:11.2f}"
    )
