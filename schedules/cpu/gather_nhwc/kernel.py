"""The kernel of fprop and dgrad in NHWC: every result is a sum of what its taps meet in the source.

result[o, c] = bias[c] + Σ over k of source[meets(o, k), c] · w[c, k]     (schedules/taps.py says what meets what)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tvm import s_tir, tirx

from dwconv.problems.workload import Workload
from dwconv.schedules.any_size import AnyAxis, any_axes, channels_of
from dwconv.schedules.cpu.emit.loops import WHOLE_ROW, ColumnBlock, is_one, tile_columns, tile_rows
from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.cpu.emit.words import parallel
from dwconv.schedules.cpu.gather_nhwc.cut import GatherCut
from dwconv.schedules.cpu.gather_nhwc.tensors import PixelTensors
from dwconv.schedules.cpu.gather_nhwc.tile import PixelTile
from dwconv.schedules.emit import BATCH, Expr, bind, divided, is_number, kernel, nest
from dwconv.schedules.taps import Run


def schedule_gather(workload: Workload, cut: GatherCut, *, streamed_above: int | None) -> s_tir.Schedule:
    """Parameters: source (n, H, W, C), w (weights, KH, KW), bias (C′) if there is one, dy (n, OH, OW, C′) if the
    epilogue takes it, result (n, OH, OW, C′), workspace (vectors, fan-in, KH, KW, lanes): packed weights; in 3-D with
    depths before heights. ``streamed_above``: the result of a larger batch is streamed, of images of any size a
    result of more elements; None: never."""
    n = tirx.Var(BATCH, "int32")
    if workload.any_size:
        cut = replace(cut, work=replace(cut.work, axes=any_axes(workload), channels=channels_of(workload)))
    with kernel() as builder:
        vectors = Vectors(cut.work.channels, cut.lanes)
        tensors = PixelTensors.arguments(cut.work, vectors, n, streamed_above=streamed_above)
        tensors.weights.pack()
        for task in tasks(tensors, cut, n):
            for tile in task.tiles():
                tile.sum()
    return s_tir.Schedule(builder.get())


@dataclass(frozen=True, kw_only=True)
class PixelTask:
    """Rows of one plane from ``top`` on, or a block of the columns of a single one, in the block of channels that
    begins with vector ``first_vector``."""

    tensors: PixelTensors
    cut: GatherCut
    image: Expr
    depth: Expr
    top: Expr
    columns: ColumnBlock
    first_vector: Expr

    def tiles(self) -> Iterator[PixelTile]:
        """Loops over the register tiles, in the ``order`` of the configuration."""
        vectors, config = self.tensors.vectors, self.cut.config
        for runs in self._column_cuts():
            loops: dict[str, Callable[[], Iterator[Any]]] = {
                "h": lambda: tile_rows(self.cut.rows, self.top),
                "w": partial(tile_columns, runs, self.columns),
                "c": lambda: vectors.several(
                    self.first_vector, self.cut.block_vectors, at_a_time=config.vectors_c, overlap=True
                ),
            }
            for at in nest(config.order, loops):
                left, run = at["w"]
                yield PixelTile(
                    tensors=self.tensors,
                    cut=self.cut,
                    image=self.image,
                    depth=self.depth,
                    top=at["h"],
                    left=left,
                    run=run,
                    vectors=vectors.numbered(at["c"]),
                )

    def _column_cuts(self) -> Iterable[list[Run]]:
        """Of known sizes there is one way to cut a row into tiles."""
        columns, config = self.cut.work.columns, self.cut.config
        if not isinstance(columns, AnyAxis):
            return [self.cut.column_runs]
        is_rolled = config.unroll == "none"
        if is_rolled:
            return [columns.rolled_runs(config.tile_w)]
        return columns.cuts(config.tile_w, overlap=True, narrower=not is_number(self.cut.work.channels))


def tasks(tensors: PixelTensors, cut: GatherCut, n: Expr) -> Iterator[PixelTask]:
    """Shares out images × depths × blocks of rows, or of columns × blocks of channels over the threads."""
    column_blocks, channel_blocks, stream = cut.column_blocks, cut.channel_blocks, tensors.stream
    row_blocks = cut.rows.blocks * column_blocks
    is_cut = not is_one(column_blocks)
    depths = cut.work.depths.outputs
    with stream.defined() if stream else contextlib.nullcontext():
        for task in parallel("task", n * (depths * row_blocks * channel_blocks)):
            image, depth = divided(bind("image", task // (row_blocks * channel_blocks)), depths)
            columns = WHOLE_ROW
            if is_cut:
                columns = ColumnBlock(bind("block", task // channel_blocks % column_blocks), column_blocks)
            top = bind("top", task // channel_blocks % row_blocks // column_blocks * cut.rows.block_rows)
            first_vector = task % channel_blocks * cut.block_vectors if channel_blocks > 1 else 0
            yield PixelTask(
                tensors=tensors, cut=cut, image=image, depth=depth, top=top, columns=columns, first_vector=first_vector
            )
        if stream:
            stream.fence()
