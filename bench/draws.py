"""Draws: layers like those of networks, with sizes that nobody tuned for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from dwconv.problems.layer_files import Layer
from dwconv.problems.workload import PASSES, Layout, Pass, Workload

_MOST_FLOPS = 4e9
"""A pass of more would take longer than a benchmark of many has time for."""
_MOST_BATCH = 32
_NEAR = (0.6, 1.5)
"""Shares of a layer's own map and channels that a drawn one has."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """A pass of a drawn layer, and the network whose layer it is like."""

    network: str
    workload: Workload

    def __str__(self) -> str:
        return f"{self.network}: {self.workload.key}"


def draws(networks: dict[str, list[Layer]], *, count: int, seed: int) -> list[Draw]:
    """``count`` passes of layers drawn evenly from all of ``networks``: any batch from 1 to 32, maps and channels from
    0.6 to 1.5 times the layer's own, maps odd, a quarter of the channels odd too. Passes and layouts take turns."""
    rng = random.Random(seed)
    listed = [(network, layer) for network, layers in sorted(networks.items()) for layer in layers]
    return [_draw(rng, listed, pass_=PASSES[turn % len(PASSES)]) for turn in range(count)]


def _draw(rng: random.Random, listed: Sequence[tuple[str, Layer]], *, pass_: Pass) -> Draw:
    while True:
        network, layer = rng.choice(listed)
        layout: Layout = "nchw" if layer.input_size[-2] == 1 else rng.choice(("nhwc", "nchw"))
        changed = Layer(
            channels=_channels(rng, layer.channels),
            input_size=tuple(_odd(rng, size) for size in layer.input_size),
            kernel=layer.kernel,
            stride=layer.stride,
            padding=layer.padding,
            count=1,
            dilation=layer.dilation,
        )
        batch = rng.randint(1, _MOST_BATCH)
        workload = changed.workload(pass_, batch=batch, dtype="float32", layout=layout, bias=False)
        if workload.flops <= _MOST_FLOPS:
            return Draw(network=network, workload=workload)


def _odd(rng: random.Random, size: int) -> int:
    """An odd number near ``size``; 1 stays."""
    return 1 if size == 1 else round(size * rng.uniform(*_NEAR)) | 1


def _channels(rng: random.Random, channels: int) -> int:
    """Near ``channels``: a multiple of 8, or in a quarter of the draws an odd number."""
    near = channels * rng.uniform(*_NEAR)
    return round(near) | 1 if rng.random() < 0.25 else max(8, round(near / 8) * 8)
