"""Planes of several images at a time in shared memory, and sums over all of a block's images in registers.

The planes that a block has of an image are one piece of memory; cp.async brings it as it lies, for the next turns while
this one is summed. A thread keeps its sums to the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tvm import tirx

from dwconv.schedules.cuda.emit.sliding_sum import Reach, SourceRow, read_row
from dwconv.schedules.cuda.emit.split_sum import sum_over_threads
from dwconv.schedules.cuda.emit.words import (
    Registers,
    Start,
    barrier,
    commit_copies,
    copy_async,
    keep,
    shared,
    span,
    wait_for_copies,
)
from dwconv.schedules.cuda.gpu.hardware import STATIC_SHARED_BYTES
from dwconv.schedules.cuda.gpu.plane_layout import HeldPlanes
from dwconv.schedules.cuda.wgrad_nchw_plane.cut import ImagePlanes
from dwconv.schedules.emit import Expr, all_of, bind, serial, store, when


@dataclass(frozen=True, kw_only=True)
class StagedTensor:
    """A tensor: in global memory, and the planes of some turns in shared memory, image after image."""

    elements: Any
    planes: Any
    held: HeldPlanes

    @classmethod
    def of(cls, name: str, elements: Any, held: HeldPlanes, cut: ImagePlanes) -> StagedTensor:
        dynamic = cut.shared_bytes > STATIC_SHARED_BYTES
        room = cut.pipeline * cut.images * cut.planes * held.pitch
        planes = shared(f"{name}_planes", room, dtype=elements.dtype, dynamic=dynamic)
        return cls(elements=elements, planes=planes, held=held)


SomeThread = TypeVar("SomeThread", bound="PlanesThread")


@dataclass(frozen=True, kw_only=True)
class PlanesThread(ABC):
    """One thread, and what it owns. Arguments of its methods: ``start`` is what ``starts`` gave of a tensor, ``each``
    the number of one of its channels."""

    cut: ImagePlanes
    x: StagedTensor
    dy: StagedTensor
    sums: Registers
    batch: Expr
    part: Expr
    first_channel: Expr
    """The first channel of the block."""
    unit: Expr
    """Its group of channels, of its image: image after image."""
    tile: Expr
    number: Expr
    """The number of the thread in its block."""

    @classmethod
    def made(cls: type[SomeThread], tensors: Mapping[str, Any], **fields: Any) -> SomeThread:
        """With what it needs of ``tensors``, by name, each of one axis."""
        return cls(**fields)

    def sum(self) -> None:
        ahead = self.cut.pipeline - 1
        self.sums.clear()
        for turn in range(ahead):
            self._copy(turn)
        at_a_time = self.cut.images * self.cut.split_n
        for turn in serial("turn", tirx.truncdiv(self.batch - self.first_image(0) + (at_a_time - 1), at_a_time)):
            self._copy(turn + ahead)
            wait_for_copies(pending=ahead)
            barrier()
            self.take(turn)
            barrier()
        groups = self.cut.groups
        sum_over_threads(self.sums, mate=self._mate, mates=self.cut.mates, others=groups, slot=self._slot)

    @abstractmethod
    def take(self, turn: Expr) -> None:
        """What the thread does with the planes of a turn, all of which are there."""

    def write_sums(self, totals: Sequence[Any], partial: Any | None) -> None:
        """To dw, and dbias if there is one; or all into the block's part of a workspace."""
        if partial is None:
            self._write(*((total, 0) for total in totals))
        else:
            first, weights = self.part * self.cut.results, self.cut.workload.channels * self.cut.taps
            self._write(*((partial, first + at) for at in (0, weights)[: len(totals)]))

    def _write(self, weights: Start, bias: Start | None = None) -> None:
        cut, taps = self.cut, self.cut.taps
        with when(cut.mates == 1 or self._mate == 0):
            for each in range(cut.thread_planes):
                channel = bind("channel", self.first_channel + self.group * cut.thread_planes + each)
                with when(cut.full or channel < cut.workload.channels):
                    into, start = weights
                    for tap in range(taps):
                        store(into, self.sums[each, tap].astype(into.dtype), start + channel * taps + tap)
                    if bias is not None:
                        into, start = bias
                        store(into, self.sums[each, taps].astype(into.dtype), start + channel)

    # -- its place -------------------------------------------------------------------------------------------------

    @property
    def group(self) -> Expr:
        return self.unit % self.cut.groups

    def first_image(self, turn: Expr) -> Expr:
        return (turn * self.cut.split_n + self.part) * self.cut.images

    @property
    def _mate(self) -> Expr:
        """Its number among the threads whose sums it meets, in the order of threads."""
        cut, image = self.cut, self.unit // self.cut.groups
        if cut.layout.neighbours == "tiles":
            return image * cut.tiling.plane_threads + self.tile
        return self.tile * cut.images + image

    def _slot(self, mate: Expr, width: int) -> Expr:
        """In the order of the threads, so that those of a warp use different banks: halving goes over whole images,
        whose number is a power of 2, and then over the tiles of the first."""
        groups, neighbours = self.cut.groups, self.cut.layout.neighbours
        if neighbours == "planes":
            return mate * groups + self.group
        if neighbours == "even planes":
            return (self.group % 2 * width + mate) * (groups // 2) + self.group // 2
        together = min(self.cut.tiling.plane_threads, width)
        return (mate // together * groups + self.group) * together + mate % together

    # -- copies ----------------------------------------------------------------------------------------------------

    def _copy(self, turn: Expr) -> None:
        """Loads the planes of a turn, by all threads alike; zeros where there are no more images or channels."""
        cut = self.cut
        first_image = bind("first_image", self.first_image(turn))
        with when(first_image < self.batch):
            for copy in range(max(cut.copies(self.x.held), cut.copies(self.dy.held))):
                for tensor in (self.x, self.dy):
                    for start, place, exists in self._vector(tensor, first_image, turn, copy):
                        lanes = tensor.held.copied_lanes
                        copy_async(tensor.planes, place, tensor.elements, start, elements=lanes, valid=exists)
        commit_copies()

    def write_planes(self, tensor: StagedTensor, into: Any, turn: Expr) -> None:
        """To global memory, what has taken the place of a tensor's planes."""
        lanes, first_image = tensor.held.copied_lanes, bind("first_image", self.first_image(turn))
        for copy in range(self.cut.copies(tensor.held)):
            for start, place, exists in self._vector(tensor, first_image, turn, copy):
                with when(exists):
                    store(into, tensor.planes[span(place, lanes)], span(start, lanes))

    def _vector(
        self, tensor: StagedTensor, first_image: Expr, turn: Expr, copy: int
    ) -> Iterator[tuple[Expr, Expr, Expr]]:
        """One of those that the threads share out, if this one has it: where it stands in global memory and in shared,
        and whether there are such an image and such a channel."""
        cut, held, channels = self.cut, tensor.held, self.cut.workload.channels
        item, piece = copy * cut.threads + self.number, cut.planes * held.elements // held.copied_lanes
        with when((copy + 1) * cut.threads <= cut.images * piece or item < cut.images * piece):
            image = item // piece if cut.images > 1 else 0
            at = (item - image * piece) * held.copied_lanes
            start = ((first_image + image) * channels + self.first_channel) * held.elements
            exists = first_image + image < self.batch
            within = cut.full or at < (channels - self.first_channel) * held.elements
            yield start + at, self.stage(tensor, turn) + held.place(item), all_of(exists, within)

    def stage(self, tensor: StagedTensor, turn: Expr) -> Expr:
        cut = self.cut
        return turn % cut.pipeline * (cut.images * cut.planes * tensor.held.pitch) if cut.pipeline > 1 else 0

    # -- rows ------------------------------------------------------------------------------------------------------

    @property
    def reach(self) -> tuple[Reach, Reach]:
        cut, tiling = self.cut, self.cut.tiling
        across = tiling.tiles_w
        row, column = (self.tile // across, self.tile % across) if across > 1 else (self.tile, 0)
        return (
            Reach(axis=cut.rows, width=cut.tile_h, tiles=tiling.tiles_h, index=row),
            Reach(axis=cut.columns, width=cut.tile_w, tiles=tiling.tiles_w, index=column),
        )

    def starts(self, met: StagedTensor, tiled: StagedTensor, turn: Expr) -> tuple[Expr, Expr]:
        """Where its tile begins in shared memory in both tensors, a multiple of the vectors in which it reads."""
        (rows, columns), found = self.reach, []
        for tensor, down, across in (
            (met, rows.step * columns.axis.inputs, columns.step),
            (tiled, rows.width * columns.axis.outputs, columns.width),
        ):
            held = tensor.held
            start = self.stage(tensor, turn) + self.unit * (self.cut.thread_planes * held.pitch)
            start = start + rows.index * down + columns.index * across
            found.append(keep("start", start // held.lanes) * held.lanes)
        return found[0], found[1]

    def met_row(self, met: StagedTensor, at: int, *, start: Expr, each: int) -> SourceRow:
        """The row at offset ``at`` of what its tile meets; zero where there is nothing."""
        rows, columns = self.reach
        first = start, each * met.held.pitch + at * columns.axis.inputs
        return self._row(met, list(columns.live_reads()), first, rows.reads(at), columns.reads)

    def tile_row(self, tiled: StagedTensor, row: int, *, start: Expr, each: int) -> dict[int, Expr]:
        """A row of its tile in float32, by column; zero where there is nothing."""
        rows, columns = self.reach
        wanted = [column for column in range(columns.width) if columns.writes(column) is not False]
        first = start, each * tiled.held.pitch + row * columns.axis.outputs
        read = self._row(tiled, wanted, first, rows.writes(row), columns.writes)
        return read.in_float32({column: [] for column in wanted})

    def _row(
        self, tensor: StagedTensor, wanted: list[int], first: tuple[Expr, int], has_row: Expr, has: Callable[..., Expr]
    ) -> SourceRow:
        is_split = self.cut.tiling.tiles_w > 1

        def exists(column: int, lanes: int) -> Expr:
            return all_of(has_row, has(column, lanes) if is_split else True)

        lanes = tensor.held.lanes
        return read_row(tensor.planes, wanted, lanes=lanes, start=first[0], first=first[1], exists=exists)
