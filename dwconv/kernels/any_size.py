"""A loaded kernel that takes the sizes of images with each call.

Artifact, with symbols ──► machine code, once ──► AnySize ──► at(a size) ──► Kernel: as one that is built for it
                                                                             on a GPU with the blocks of that size
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from dwconv.errors import InvalidWorkload
from dwconv.kernels.artifact import Artifact, size_names
from dwconv.kernels.kernel import Kernel
from dwconv.problems.workload import Sizes, Workload

_SAMPLES = 8
_LANES = 16
"""Columns of a vector, at most: a tile is some of them where vectors are of columns."""
_TILES_AND_OFF = ((0, 1), (1, 0), (1, -1), (1, 1), (2, 0), (2, 1), (3, -1), (3, 2))
"""Of each sample, whole tiles along an axis and outputs more; of the other axis from the end."""


class AnySize:
    """What the kernels of a layer at all sizes have in common."""

    def __init__(self, artifact: Artifact, loaded: Callable[[Artifact], Kernel]) -> None:
        """``loaded``: the machine code, as the kernel of an artifact of one size."""
        self.artifact = artifact
        """As it was built: with symbols for the sizes."""
        self.names = size_names(artifact.arguments)
        """What the machine code takes behind the addresses."""
        self._loaded = loaded
        self._first: Kernel | None = None

    def at(self, workload: Workload) -> Kernel:
        """The kernel at the size of ``workload``, which is else the same: no machine code is made."""
        kernel = self._first.resized(workload) if self._first else None
        if kernel is None:
            kernel = self._loaded(self.artifact.at(workload))
            kernel.any_size = self
            self._first = kernel
        return kernel

    def samples(self) -> Iterator[Kernel]:
        """The kernel at sizes that show whether it is right at all of them: those around the numbers of tiles by which
        it cuts an axis in another way, and the size that its configuration was chosen for. If it takes the channels,
        too, whole vectors of them and, on a CPU, one that overlaps the one before."""
        workload, config = self.artifact.candidate.workload, self.artifact.candidate.config.to_dict()
        lanes = self.artifact.least_channels if workload.any_channels else 0

        def channels(number: int) -> int:
            if self.artifact.kind == "cuda":
                return (number + 1) * lanes if lanes else workload.channels
            return (number + 2) * lanes // 2 + number % 2 if lanes else workload.channels

        tile_w = int(config.get("tile_w", int(config.get("vectors_w", 1)) * _LANES))
        tile_h = int(config.get("tile_h", config["block_h"] if workload.block else 1))
        for number in range(_SAMPLES):
            width, height = tile_w, tile_h
            if number % 2:  # on a GPU, tiles of a block
                width *= int(config.get("threads_w", 1)) * int(config.get("vthread_w", 1))
                height *= int(config.get("threads_h", 1))
            sizes = [max(1, tiles * width + off) for tiles, off in (_TILES_AND_OFF[number], _TILES_AND_OFF[-number])]
            outputs = (number % 3 + 1, 1 if workload.is_row else sizes[1] * height // width, sizes[0])
            with contextlib.suppress(InvalidWorkload):  # the kernel is larger than the padded image
                yield self.at(replace(workload, input_size=_size_of(workload, outputs), channels=channels(number)))
        yield self.at(workload)


def _size_of(workload: Workload, outputs: tuple[int, ...]) -> Sizes:
    """The input size at which the image that the kernel loops over has about ``outputs`` pixels along each axis."""
    steps = (1,) * workload.axes if workload.pass_ in ("dgrad", "backward") else workload.stride
    return tuple(max(1, out * step) for out, step in zip(outputs[-workload.axes :], steps, strict=True))
