"""How a configuration cuts fprop or dgrad, NHWC, on CUDA, in plain integers. No TVM here."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.schedules.cuda.fprop_dgrad_nhwc.patch import Patch, PatchSide, fetchers, row_pitch
from dwconv.schedules.cuda.gpu.hardware import VECTOR_BYTES
from dwconv.schedules.cuda.gpu.memory import aligned_lanes
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config
from dwconv.schedules.taps import HEIGHT, WIDTH, Axes, Axis, inputs_beyond

MOST_FAN_IN = 4
"""Source channels of a result channel that are summed in straight code; more of them, in a loop."""
MOST_ROWS_TOGETHER = 4
"""Stride up to which all rows of a strip are summed in one loop over source rows; beyond it, one after the other."""

Reads = dict[int, list[tuple[int, int]]]


@dataclass(frozen=True, kw_only=True)
class AxisCut:
    """An axis of ``size`` results in strips of ``tile``, ``threads`` of them side by side in a block."""

    size: int
    tile: int
    threads: int
    vthreads: int = 1
    """Virtual threads: strips of a thread, each ``threads`` strips after the one before, so that neighbouring threads
    have neighbouring strips."""
    any_size: bool = False
    """Whether the kernel takes the size with each call. ``size`` is then the one that the configuration was chosen for,
    or a TVM expression."""

    @property
    def strips(self) -> int:
        return (self.size + self.tile - 1) // self.tile

    @property
    def block_strips(self) -> int:
        return self.threads * self.vthreads

    @property
    def blocks(self) -> int:
        return (self.strips + self.block_strips - 1) // self.block_strips

    @property
    def idle(self) -> bool:
        return self.block_strips > 1 if self.any_size else self.strips % self.block_strips != 0

    @property
    def ragged(self) -> bool:
        return self.tile > 1 if self.any_size else self.size % self.tile != 0

    @property
    def computed(self) -> int:
        return self.blocks * self.block_strips * self.tile


@dataclass(frozen=True, kw_only=True)
class ImageCut(AxisCut):
    """The cut of rows or columns."""

    axis: Axis
    beyond: int = 0
    """Of any size, the least by which inputs are more than those that results begin at."""
    moves_back: bool = False
    """Of any size that has a whole strip: whether the last one moves back by as much as it would end beyond the axis.
    Then as little needs a test as where the size is known to be a multiple of ``tile``."""

    @property
    def is_alone(self) -> bool:
        return not self.any_size and self.strips == 1

    @property
    def step(self) -> int:
        return self.tile * self.axis.up // self.axis.down

    @property
    def reads(self) -> Reads:
        """For every input that a strip reads, counted from its origin, the (output, tap) pairs that it meets. A strip
        that is alone reads no padding; others may."""
        return self.axis.tile_reads(self.tile, tiles=1 if self.is_alone else 2)

    @property
    def products(self) -> int:
        return sum(map(len, self.reads.values()))

    def may_be_before(self, at: int) -> bool:
        return not self.is_alone and at < 0

    def may_be_behind(self, at: int) -> bool:
        if self.any_size:  # there may be a single result in the last strip, or a group of them that share an input
            least = self.tile if self.moves_back else self.axis.down
            return at >= self.axis.origin(least) + self.beyond
        return not self.is_alone and (self.strips - 1) * self.step + at >= self.axis.inputs

    def may_be_padding(self, at: int) -> bool:
        return self.may_be_before(at) or self.may_be_behind(at)

    @property
    def narrow(self) -> ImageCut:
        return replace(self, tile=self.axis.down) if self.any_size else self

    @property
    def parts(self) -> int:
        return self.tile // self.narrow.tile

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The inputs that a strip reads in pieces, (first, stop): in each, ``may_be_before`` and ``may_be_behind`` are
        the same for all."""
        found: list[tuple[int, int]] = []
        for at in self.reads:
            sides = [(self.may_be_before(each), self.may_be_behind(each)) for each in (at - 1, at)]
            if found and found[-1][1] == at and sides[0] == sides[1]:
                found[-1] = (found[-1][0], at + 1)
            else:
                found.append((at, at + 1))
        return found


@dataclass(frozen=True, kw_only=True)
class ChannelsLastCut:
    """A pass, cut as a configuration says."""

    gather: Gather
    dtype: DType
    rows: ImageCut
    columns: ImageCut
    channels: AxisCut
    weights: str
    stage: str
    unroll: str

    @classmethod
    def of(cls, workload: Workload, config: Config) -> ChannelsLastCut:
        gather = Gather.of(workload)
        rows, columns = gather.rows, gather.columns
        return cls(
            gather=gather, dtype=workload.dtype,
            rows=ImageCut(
                size=rows.outputs, tile=config.tile_h, threads=config.threads_h, axis=rows,
                any_size=workload.any_size and not workload.is_row, beyond=inputs_beyond(workload, HEIGHT)[0],
            ),
            columns=ImageCut(
                size=columns.outputs, tile=config.tile_w, threads=config.threads_w, axis=columns,
                vthreads=config.vthread_w,
                any_size=workload.any_size, beyond=inputs_beyond(workload, WIDTH)[0],
            ),
            channels=AxisCut(
                size=gather.channels, tile=config.vector_c, threads=config.threads_c, any_size=workload.any_channels
            ),
            weights=config.weights, stage=config.stage, unroll=config.unroll,
        )  # fmt: skip

    def on(self, axes: Axes, channels: Any) -> ChannelsLastCut:
        """This cut of axes whose sizes are TVM expressions; perhaps the number of channels is one, too."""
        return replace(
            self,
            gather=replace(self.gather, axes=axes, channels=channels),
            channels=replace(self.channels, size=channels),
            rows=replace(self.rows, size=axes.rows.outputs, axis=axes.rows),
            columns=replace(self.columns, size=axes.columns.outputs, axis=axes.columns),
        )

    @property
    def is_in_two(self) -> bool:
        """Whether the kernel, one of any size, has code of its own for images that are smaller than a strip. A patch in
        shared memory needs no tests, whatever the size."""
        return self.stage == "none" and max(self.rows.parts, self.columns.parts) > 1

    @property
    def wide(self) -> ChannelsLastCut:
        rows, columns = (replace(axis, moves_back=axis.parts > 1) for axis in (self.rows, self.columns))
        return replace(self, rows=rows, columns=columns)

    @property
    def narrow(self) -> ChannelsLastCut:
        return replace(self, rows=self.rows.narrow, columns=self.columns.narrow)

    @property
    def axes(self) -> tuple[AxisCut, AxisCut, AxisCut]:
        return self.rows, self.columns, self.channels

    @cached_property
    def threads(self) -> int:
        return self.rows.threads * self.columns.threads * self.channels.threads

    @property
    def itemsize(self) -> int:
        return ITEMSIZE[self.dtype]

    def vector(self, elements: int, *, itemsize: int) -> int:
        """Elements of the widest vectors in which ``elements`` neighbours can be moved."""
        return min(VECTOR_BYTES // itemsize, elements & -elements)

    # -- channels --------------------------------------------------------------------------------------------------

    @cached_property
    def fan_in(self) -> int:
        return self.gather.fan_in if self.gather.fan_in <= MOST_FAN_IN else 1

    @property
    def fan_turns(self) -> int:
        return self.gather.fan_in // self.fan_in

    @cached_property
    def source_lanes(self) -> int:
        return max(1, self.channels.tile * self.fan_in // self.gather.fan_out)

    @property
    def weight_lanes(self) -> int:
        return self.channels.tile * self.fan_in

    @property
    def strip_kernels(self) -> int:
        return self.channels.tile * self.gather.fan_in

    @property
    def block_kernels(self) -> int:
        return self.channels.threads * self.strip_kernels

    @property
    def block_channels(self) -> int:
        return self.channels.threads * self.channels.tile * self.gather.fan_in // self.gather.fan_out

    # -- rows and columns ------------------------------------------------------------------------------------------

    @property
    def rows_together(self) -> bool:
        """Whether one loop over source rows can sum all rows of a strip."""
        axis = self.gather.rows
        return abs(axis.step) == 1 and axis.down <= MOST_ROWS_TOGETHER

    @property
    def goes_once(self) -> bool:
        """Whether a thread goes through source rows once: a row of sums is complete with the last one that it meets."""
        return self.fan_turns == 1 and self.gather.depths.one_to_one

    @property
    def rows_summed(self) -> int:
        return self.rows.tile if self.unroll == "taps" or self.rows_together else 1

    # -- weights in registers --------------------------------------------------------------------------------------

    @property
    def plane_taps(self) -> int:
        return self.gather.rows.taps * self.gather.columns.taps

    @property
    def weight_runs(self) -> tuple[int, int]:
        """(how many, elements of each) pieces of memory that hold a thread's kernels at one tap along the depth."""
        if self.gather.depths.taps == 1:
            return 1, self.strip_kernels * self.plane_taps
        return self.strip_kernels, self.plane_taps

    # -- weights in shared memory ----------------------------------------------------------------------------------

    @property
    def taps(self) -> int:
        return math.prod(self.gather.axes.taps)

    @property
    def pitch(self) -> int:
        """Words from the weights of one tap to those of the next. An odd multiple of 4: eight taps of four channels lie
        in 32 different banks, and vectors stay aligned."""
        fours = -(-self.block_kernels // 4)
        return 4 * (fours + (fours % 2 == 0))

    # -- source in shared memory -----------------------------------------------------------------------------------

    @property
    def copied_lanes(self) -> int:
        """Elements of the vectors in which the source is copied: no vector has channels of two blocks."""
        whole = self.channels.tile if self.channels.any_size else self.gather.source_channels
        return aligned_lanes(self.block_channels, whole, itemsize=self.itemsize)

    @cached_property
    def patch(self) -> Patch:
        rows, columns, lanes = _side(self.rows), _side(self.columns), self.copied_lanes
        channels, vectors = self.block_channels, self.block_channels // self.copied_lanes
        pitch, read_turns = row_pitch(
            columns.count * channels * self.itemsize, step=lanes * self.itemsize,
            lane_bytes=min(self.source_lanes * self.itemsize, VECTOR_BYTES),
            threads=(self.rows.threads, self.columns.threads, self.channels.threads),
            rows_apart=self.rows.step,
            bytes_apart=(self.columns.step * channels * self.itemsize, self.source_lanes * self.itemsize),
        )  # fmt: skip
        across, down = fetchers(
            self.threads // vectors, rows.count, columns.count,
            vectors=vectors, copy_bytes=lanes * self.itemsize, pitch_bytes=pitch,
        )  # fmt: skip
        return Patch(
            rows=rows, columns=columns, channels=channels, lanes=lanes,
            pitch=pitch // self.itemsize, read_turns=read_turns, across=across, down=down,
        )  # fmt: skip

    @property
    def shared_bytes(self) -> int:
        weights = 4 * self.taps * self.pitch if self.weights == "shared" else 0
        return weights + (self.itemsize * self.patch.elements if self.stage == "shared" else 0)


def _side(cut: ImageCut) -> PatchSide:
    first, last = min(cut.reads, default=0), max(cut.reads, default=-1)
    strips = cut.block_strips if cut.any_size else min(cut.block_strips, cut.strips)
    return PatchSide(first=first, count=(strips - 1) * cut.step + last - first + 1)
