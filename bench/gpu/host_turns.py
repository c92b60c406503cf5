"""What layers and blocks take of the host on one road and in one precision, in microseconds: plain and converted models
in turns. The stage ``host`` runs this in a process of its own.

    1, 3 and 11 layers ─┐  a turn: one model takes each way   forward; step: forward and backward(); under autocast
    1 and 3 blocks     ─┘  a few times, then the other one     also with backward() inside of it

None waits for the device. Microseconds are the least of all turns, since what is more came from outside. A ratio is the
median of those of turns next to each other, with its quartiles: other work then slows both.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import dwconv
from bench.launched import nodes_of, roads_of
from bench.networks import mixed_precision
from bench.paired_steps import converted_copy, take_turns
from dwconv import native
from dwconv.measure.clock.timing import Call
from dwconv.measure.step_share import kernels_in
from dwconv.problems.workload import DType

LAYERS, BLOCKS = (1, 3, 11), (1, 3)
"""How many there are in the chains."""
_CALLS, _WARM_UPS = 5, 3
PLAIN, CONVERTED = "plain", "converted"
_Lap = Mapping[str, tuple[float, float]]
"""Seconds of a call, by way: of the clock, and of all threads of the process."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """The type that convolutions run in, and whether autocast lowers them to it. Norms hold float32."""

    dtype: DType
    autocast: bool


PRECISIONS = {
    "float16 autocast": Precision(dtype="float16", autocast=True),
    "float16": Precision(dtype="float16", autocast=False),
    "bfloat16 autocast": Precision(dtype="bfloat16", autocast=True),
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of the images of all layers, (N, C, H, W) with as many rows as columns, and how many turns each model takes."""

    batch: int
    channels: int
    size: int
    turns: int


def measured(*, device: str, precision: str, seconds: float, **sizes: int) -> dict[str, Any]:
    """The road that calls take, and by chain the figures of ``of_chain``. After ``seconds`` a chain takes few turns."""
    native.native()
    given = Sizes(**sizes)
    ends_s = time.monotonic() + seconds
    chains: dict[str, Any] = {}
    names = [*((count, "layer") for count in LAYERS), *((count, "block") for count in BLOCKS)]
    for number, (count, of) in enumerate(names):
        share_s = max(0.0, ends_s - time.monotonic()) / (len(names) - number)
        chain = of_chain(LINKS[of], count, given, device=device, precision=PRECISIONS[precision], seconds=share_s)
        chains[f"{count} {of}{'s' if count > 1 else ''}"] = chain
    return {"road": native.why_not or "C++", "chains": chains}


def of_chain(
    link: Callable[[int], list[nn.Module]],
    count: int,
    sizes: Sizes,
    *,
    device: str,
    precision: Precision,
    seconds: float,
) -> dict[str, Any]:
    """By way: the least microseconds of a call of the chain, plain and converted, and their ratio with its quartiles,
    and that of the time of all threads of the process. Beside it the roads that the converted layers took, how many
    blocks ran as one, and the microseconds of a step's kernels."""
    dtype = getattr(torch, precision.dtype)
    plain = nn.Sequential(*(module for _ in range(count) for module in link(sizes.channels)))
    plain.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if not precision.autocast:
        for module in plain.modules():
            if isinstance(module, nn.Conv2d):
                module.to(dtype)
    shape = (sizes.batch, sizes.channels, sizes.size, sizes.size)
    x, dy = (torch.randn(shape, device=device).to(dtype, memory_format=torch.channels_last) for _ in range(2))
    x.requires_grad_()
    autocast = precision.dtype if precision.autocast else None
    converted = converted_copy(plain, x, autocast=autocast, blocks=True)
    with mixed_precision(device, autocast):
        dwconv.ready(converted, x, timeout_s=seconds)
    models = {PLAIN: plain, CONVERTED: converted}
    ways = {name: _ways(model, x, dy, autocast=autocast) for name, model in models.items()}
    for _ in range(_WARM_UPS):
        for each in ways.values():
            for way in each.values():
                way()
    laps = _timed(ways, turns=sizes.turns, seconds=seconds)
    y = ways[CONVERTED]["forward"]()
    return {
        "us": {way: _figures(laps, way) for way in ways[PLAIN]},
        "turns": len(laps[PLAIN]),
        "roads": dict(roads_of(y)),
        "as_one": sum("DwconvBlock" in node.name() for node in nodes_of(y)),
        "kernels_us": {name: _kernels_us(ways[name]["step"]) for name in models},
    }


# -- models ----------------------------------------------------------------------------------------------------------


def _layer(channels: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)]


def _block(channels: int) -> list[nn.Module]:
    around = [[nn.BatchNorm2d(channels), nn.ReLU6()] for _ in range(2)]
    return [*around[0], *_layer(channels), *around[1]]


LINKS = {"layer": _layer, "block": _block}


def _ways(model: nn.Module, x: Tensor, dy: Tensor, *, autocast: str | None) -> dict[str, Callable[[], Any]]:
    leaves = [x, *model.parameters()]

    def forward() -> Tensor:
        with mixed_precision(x.device.type, autocast):
            found: Tensor = model(x)
        return found

    def step() -> None:
        let_go()
        forward().backward(dy)  # type: ignore[no-untyped-call]

    def step_inside() -> None:
        let_go()
        with mixed_precision(x.device.type, autocast):
            model(x).backward(dy)

    def let_go() -> None:
        for leaf in leaves:
            leaf.grad = None

    inside = {"step, all under autocast": step_inside} if autocast else {}
    return {"forward": forward, "step": step, **inside}


# -- times -----------------------------------------------------------------------------------------------------------


def _timed(ways: Mapping[str, Mapping[str, Call]], *, turns: int, seconds: float) -> dict[str, list[_Lap]]:
    gc.collect()
    gc.disable()
    try:
        laps_of = {name: partial(_lap, each) for name, each in ways.items()}
        return take_turns(laps_of, count=turns, seconds=seconds)
    finally:
        gc.enable()


def _lap(ways: Mapping[str, Call]) -> _Lap:
    return {name: _seconds_of(way) for name, way in ways.items()}


def _seconds_of(call: Call) -> tuple[float, float]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started_s, of_threads_s = time.perf_counter(), time.process_time()
    for _ in range(_CALLS):
        call()
    taken_s, taken_of_threads_s = time.perf_counter() - started_s, time.process_time() - of_threads_s
    return taken_s / _CALLS, taken_of_threads_s / _CALLS


def _figures(laps: Mapping[str, list[_Lap]], way: str) -> dict[str, float]:
    plain, ours = ([lap[way] for lap in laps[name]] for name in (PLAIN, CONVERTED))
    ratios, of_threads = (
        [own[clock] / max(other[clock], 1e-9) for own, other in zip(ours, plain, strict=True)] for clock in range(2)
    )
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {
        PLAIN: min(taken_s for taken_s, _ in plain) * 1e6,
        CONVERTED: min(taken_s for taken_s, _ in ours) * 1e6,
        "ratio": middle,
        "ratio_low": low,
        "ratio_high": high,
        "ratio_of_cpu_time": statistics.median(of_threads),
    }


def _kernels_us(call: Call) -> float:
    """What the kernels of a call take of the GPU; 0 without one."""
    if not torch.cuda.is_available():
        return 0.0
    return float(sum(event.time_range.elapsed_us() for event in kernels_in(call)))
