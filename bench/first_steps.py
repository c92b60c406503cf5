"""``python -m bench.first_steps CASE``: the first steps of a model that is converted and untuned, against plain ones.

Each case has a process of its own. ``bench untuned`` starts two: the kernels of the second are on disk.

plain model      ──► 40 steps ─┐
converted model  ──► 40 steps ─┼─► never slower by more than 3 %, and the first by no more than 3 s
plain model      ──► 40 steps ─┘   (kernels arrive meanwhile, and in the steps that follow)
both             ──► 20 steps in turns
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import dwconv
from dwconv import native
from dwconv.call.call_plan import plans
from dwconv.commands.command_line import ArgumentParser, from_0, run
from dwconv.measure.clock.contention import load, others

STEPS, IN_TURNS = 40, 20
MOST_FIRST_S, MOST_TIMES = 3.0, 1.03
"""By how much the first step may be longer than a plain one, and how many times as long the first steps may take."""
SECONDS = 120.0
_LAYERS = 177
"""Depthwise layers of timm's ghostnetv3_100."""


class SmallLayers(nn.Module):
    """As many layers as a GhostNet has, as small as there, of a hundred sizes."""

    def __init__(self) -> None:
        super().__init__()
        kernels = [(3, 3), (5, 5), (1, 5), (5, 1), (1, 1), (3, 3)]
        sizes = [(48, 16), (24, 24), (12, 40), (6, 80), (3, 160)]
        self.sizes = [(sizes[each % 5][0], sizes[each % 5][1] + 8 * (each // 30 % 4)) for each in range(_LAYERS)]
        self.layers = nn.ModuleList(
            _layer(channels, kernels[each // 5 % 6]) for each, (_, channels) in enumerate(self.sizes)
        )

    def forward(self, x: Tensor) -> Tensor:
        sums = [
            layer(x[:, :1, :size, :size].expand(-1, channels, -1, -1).contiguous()).mean()
            for layer, (size, channels) in zip(self.layers, self.sizes, strict=True)
        ]
        return torch.stack(sums)


def _layer(channels: int, kernel: Sequence[int]) -> nn.Module:
    kinds: dict[int, Callable[..., nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d}
    padding = tuple(size // 2 for size in kernel)
    return kinds[len(kernel)](channels, channels, tuple(kernel), padding=padding, groups=channels, bias=False)


def _drawn(least: int, most: int) -> list[int]:
    draw = random.Random(51)
    return [draw.randrange(least, most) for _ in range(STEPS)]


CASES: dict[str, Callable[[], tuple[nn.Module, list[Tensor]]]] = {
    "small": lambda: (SmallLayers(), [torch.randn(4, 3, 48, 48)] * STEPS),
    "lengths": lambda: (
        nn.Sequential(_layer(256, (31,)), _layer(256, (31,))),
        [torch.randn(8, 256, length) for length in _drawn(200, 600)],
    ),
    "images": lambda: (
        nn.Sequential(_layer(96, (7, 7)), _layer(96, (5, 5))),
        [torch.randn(8, 96, size, size) for size in _drawn(24, 60)],
    ),
}
"""A model and the input of each step."""


def rows(cases: Sequence[str], *, seconds: float) -> Iterator[dict[str, Any]]:
    """What two processes measure of each case, with a cache that is empty at first."""
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="dwconv-bench-") as cache:
            for process in ("first", "second"):
                environment = {
                    **os.environ,
                    "DWCONV_CACHE": cache,
                    "DWCONV_UNTUNED": "predict",
                    "DWCONV_TUNING_LOGS": "",
                }
                command = [sys.executable, "-m", "bench.first_steps", case, "--seconds", str(seconds)]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
                yield {"process": process, **json.loads(done.stdout)}


def line(row: dict[str, Any]) -> str:
    """A row for people: what the goals bound, and which of them was missed."""
    missed = ", ".join(each for each, is_missed in misses(row).items() if is_missed)
    return (
        f"{row['case']:8} {row['process']:6} process: first step {row['first_s']:.2f} s, plain "
        f"{row['plain_first_s']:.2f} s; {STEPS} steps {row['times']:.3f} × plain (plain again "
        f"{row['control']:.3f}); {row['kernels']} kernels after "
        f"{row['arrived_s']:.0f} s, then {row['then_times']:.3f} × plain; other work took {row['contention']:.0%}"
        + (f"; MISSED: {missed}" if missed else "")
    )


def misses(row: dict[str, Any]) -> dict[str, bool]:
    """The goals, and whether they were missed."""
    return {
        "the first step": row["first_s"] - row["plain_first_s"] > MOST_FIRST_S,
        f"{STEPS} steps": row["times"] > MOST_TIMES,
        "the steps with kernels": row["then_times"] > MOST_TIMES,
    }


def main(argv: Sequence[str]) -> int:
    return run(_first_steps, list(argv))


def _first_steps(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench.first_steps", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument("case", choices=CASES)
    parser.add_argument(
        "--seconds", type=from_0, default=SECONDS, help=f"wait so long for kernels, default {SECONDS:g}"
    )
    print(json.dumps(_measured(parser.parse_args(argv))))
    return 0


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    native.native()  # what a process compiles once is not what is timed here
    plain, inputs = CASES[arguments.case]()
    converted = copy.deepcopy(plain)
    _taken_s(plain, inputs[:2])
    before = load()
    plain_s = _taken_s(plain, inputs)
    contention = others(before, load())
    dwconv.convert(converted)
    began_s = time.perf_counter()
    ours_s = _taken_s(converted, inputs)
    again_s = _taken_s(plain, inputs)
    while _is_waiting() and time.perf_counter() - began_s < arguments.seconds:
        _taken_s(converted, inputs)
    arrived_s = time.perf_counter() - began_s
    turns = [(_taken_s(plain, [x]), _taken_s(converted, [x])) for x in (inputs * IN_TURNS)[:IN_TURNS]]
    then_s = [sum(each) for one in turns for each in one]
    return {
        "case": arguments.case,
        "plain_first_s": plain_s[0],
        "first_s": ours_s[0],
        "times": 2 * sum(ours_s) / sum(plain_s + again_s),
        "control": sum(again_s) / sum(plain_s),
        "kernels": sum(kernel is not None for plan in plans() for kernel in plan.kernels.values()),
        "arrived_s": arrived_s,
        "then_times": statistics.median(then_s[1::2]) / statistics.median(then_s[::2]),
        "contention": contention,
    }


def _is_waiting() -> bool:
    """True while kernels are still to come."""
    return any(plan.is_open for plan in plans())


def _taken_s(model: nn.Module, inputs: Sequence[Tensor]) -> list[float]:
    taken = []
    for x in inputs:
        began_s = time.perf_counter()
        model(x).square().mean().backward()
        taken.append(time.perf_counter() - began_s)
    return taken


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
