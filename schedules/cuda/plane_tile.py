"""Whole planes in shared memory: how a block's lie there, and which part of them a thread owns. No TVM here."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config
from dwconv.schedules.taps import Axis
from dwconv.workload import ITEMSIZE, DType

VECTOR_BYTES = 16
BANKS = 32
BANK_BYTES = 4
MOST_PAD_BYTES = 128
LOADS_UNDER_WAY = 16


@dataclass(frozen=True, kw_only=True)
class Held:
    """Planes of one tensor in shared memory: as they lie in global memory, or with a pad after each."""

    elements: int
    """Of a plane."""
    pad: int
    """Elements that nobody uses after each plane."""
    lanes: int
    """Of the vectors in which a thread reads or writes them: its first element is at a multiple."""
    copied_lanes: int
    """Of the vectors in which they are copied from or to global memory; one vector in shared memory, too, or threads
    would meet in its banks."""

    @property
    def pitch(self) -> int:
        return self.elements + self.pad

    def place(self, item: Any) -> Any:
        """Where the copied vector with that number, an int or an expression, stands in shared memory."""
        at = item * self.copied_lanes
        return at + item // (self.elements // self.copied_lanes) * self.pad if self.pad else at


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """How threads are laid over planes in shared memory: over the tiles of a plane row by row, then over the planes."""

    thread_planes: int
    tiles_h: int
    tiles_w: int
    dtype: DType
    held: DType
    """The type in shared memory."""

    @property
    def plane_threads(self) -> int:
        """Of a plane, or of ``thread_planes`` planes."""
        return self.tiles_h * self.tiles_w

    @cache  # noqa: B019 (tilings are few, and live as long as the program)
    def lay(self, elements: int, *, columns: int, planes: int, channels: int, down: int, across: int) -> Held:
        """Planes of so many elements, ``columns`` a row, of which ``planes`` of the ``channels`` of an image are copied
        together, and tiles start ``down`` or ``across`` elements apart. The pad that makes threads meet in the fewest
        banks."""
        widest = VECTOR_BYTES // ITEMSIZE[self.held]
        copied = math.gcd(planes * elements, channels * elements, widest)
        pads = [0]
        if elements * ITEMSIZE[self.dtype] % VECTOR_BYTES == 0 == elements % copied:
            pads = list(range(0, MOST_PAD_BYTES // ITEMSIZE[self.held], widest))

        def lanes(pad: int) -> int:
            steps = [self.thread_planes * (elements + pad)]
            if self.tiles_h > 1:
                steps.append(down)
            if self.tiles_w > 1:
                steps += [across, columns]
            return math.gcd(*steps, widest)

        def turns(pad: int) -> float:
            return self.turns(pitch=elements + pad, down=down, across=across, lanes=lanes(pad))

        pad = min(pads, key=lambda pad: (turns(pad), pad))
        return Held(elements=elements, pad=pad, lanes=lanes(pad), copied_lanes=copied)

    @cache  # noqa: B019
    def turns(self, *, pitch: int, down: int, across: int, lanes: int) -> float:
        """Turns that shared memory takes for a warp that reads a vector of ``lanes`` each, over the fewest there
        could be: planes are ``pitch``, tiles ``down`` and ``across`` elements apart."""
        width = lanes * ITEMSIZE[self.held]
        served = min(BANKS, BANKS * BANK_BYTES // width)
        taken = words = 0
        for first in range(0, BANKS, served):
            touched = set()
            for thread in range(first, first + served):
                plane, tile = divmod(thread, self.plane_threads)
                place = plane * self.thread_planes * pitch + tile // self.tiles_w * down + tile % self.tiles_w * across
                at = place * ITEMSIZE[self.held]
                touched |= set(range(at // BANK_BYTES, (at + width - 1) // BANK_BYTES + 1))
            taken += max(Counter(word % BANKS for word in touched).values())
            words += len(touched)
        return taken / -(-words // BANKS)


@dataclass(frozen=True, kw_only=True)
class Planes:
    """A configuration in numbers. A thread owns ``tile_h`` rows of ``tile_w`` columns of ``thread_planes`` planes."""

    work: Gather
    dtype: DType
    planes: int
    """Of a block."""
    thread_planes: int
    tile_h: int
    tile_w: int
    held: DType
    """The type in shared memory: the tensors' own, or float32."""

    @classmethod
    def of(cls, work: Gather, config: Config, dtype: DType) -> Planes:
        return cls(
            work=work,
            dtype=dtype,
            planes=config.planes,
            thread_planes=config.thread_planes,
            tile_h=config.tile_h,
            tile_w=config.tile_w,
            held=config.held,
        )

    # -- threads -------------------------------------------------------------------------------------------------------

    @property
    def tiles_h(self) -> int:
        return -(-self.work.rows.outputs // self.tile_h)

    @property
    def tiles_w(self) -> int:
        return -(-self.work.columns.outputs // self.tile_w)

    @property
    def tiling(self) -> Tiling:
        return Tiling(
            thread_planes=self.thread_planes,
            tiles_h=self.tiles_h,
            tiles_w=self.tiles_w,
            dtype=self.dtype,
            held=self.held,
        )

    @property
    def plane_threads(self) -> int:
        """Of a plane, or of ``thread_planes`` planes."""
        return self.tiling.plane_threads

    @property
    def threads(self) -> int:
        return self.planes // self.thread_planes * self.plane_threads

    @property
    def loads_under_way(self) -> int:
        """Vectors of a thread while it copies."""
        turns = -(-self.planes * self.source.elements // (self.source.copied_lanes * self.threads))
        return min(turns, LOADS_UNDER_WAY)

    # -- shared memory -------------------------------------------------------------------------------------------------

    @cached_property
    def source(self) -> Held:
        rows, columns = self.work.rows, self.work.columns
        return self._held(rows.inputs, columns.inputs, rows.origin(self.tile_h), columns.origin(self.tile_w))

    @cached_property
    def result(self) -> Held:
        return self._held(self.work.rows.outputs, self.work.columns.outputs, self.tile_h, self.tile_w)

    @property
    def ragged(self) -> bool:
        """Whether tiles reach beyond the plane, or lie side by side in a row."""
        return self.tiles_w > 1 or self.work.rows.outputs % self.tile_h != 0

    def result_pieces(self, each: int) -> list[tuple[int, int]]:
        """The vectors in which a thread stores its tile of its ``each``-th plane: (elements from the tile's first,
        lanes). Whole rows are one piece of memory; the end of the plane is the end of a vector."""
        pitch, lanes, first = self.work.columns.outputs, self.result.lanes, each * self.result.pitch
        runs = [(row * pitch, row * pitch + self.tile_w) for row in range(self.tile_h)]
        if self.tiles_w == 1 and (not self.ragged or self.result.elements % lanes == 0):
            runs = [(0, self.tile_h * pitch)]
        pieces = [piece for start, stop in runs for piece in exact_vectors(first + start, first + stop, lanes)]
        return [(at - first, width) for at, width in pieces]

    @property
    def kernel_words(self) -> int:
        """Weights of a plane. They are held in float32."""
        return self.work.rows.taps * self.work.columns.taps

    @property
    def kernel_lanes(self) -> int:
        return math.gcd(self.thread_planes * self.kernel_words, VECTOR_BYTES // BANK_BYTES)

    @property
    def copied_kernel_lanes(self) -> int:
        """Kernels of a block start at any channel, and go round. As for planes: one vector, in shared memory, too."""
        lanes = VECTOR_BYTES // BANK_BYTES
        return math.gcd(self.planes * self.kernel_words, self.work.channels * self.kernel_words, lanes)

    @property
    def held_elements(self) -> int:
        """Of the source planes, or of the results in their place."""
        return self.planes * max(self.source.pitch, self.result.pitch)

    @property
    def shared_bytes(self) -> int:
        planes = -(-self.held_elements * ITEMSIZE[self.held] // VECTOR_BYTES) * VECTOR_BYTES
        return planes + self.planes * self.kernel_words * BANK_BYTES

    def _held(self, rows: int, columns: int, step_h: int, step_w: int) -> Held:
        return self.tiling.lay(
            rows * columns,
            columns=columns,
            planes=self.planes,
            channels=self.work.channels,
            down=step_h * columns,
            across=step_w,
        )


def whole_vectors(wanted: list[int], lanes: int) -> list[tuple[int, int]]:
    """(offset, lanes) of the aligned vectors that hold ``wanted``, with what else is in them."""
    return [(group * lanes, lanes) for group in sorted({at // lanes for at in wanted})]


def exact_vectors(start: int, stop: int, lanes: int) -> list[tuple[int, int]]:
    """(offset, lanes) of aligned vectors, as wide as can be, that are ``start`` … ``stop − 1`` and nothing else."""
    pieces = []
    while start < stop:
        width = math.gcd(start, lanes)
        while start + width > stop:
            width //= 2
        pieces.append((start, width))
        start += width
    return pieces


def live_reads(axis: Axis, width: int, *, tiles: int) -> dict[int, list[tuple[int, int]]]:
    """What a tile reads, without what no tile has: with one tile, all padding."""
    return axis.live_reads(0, width) if tiles == 1 else axis.reads(width)
