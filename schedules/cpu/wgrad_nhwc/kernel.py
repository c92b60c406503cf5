"""The kernel of wgrad in NHWC (``shared.weight_gradient`` says what is summed).

A group of taps is summed in registers while rows go by: a tile of dy is loaded once for all taps of the group, each
x once for all dy that it meets. The gradient of a bias is one sum more, of the dy that the first group loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.any_size import at_any_size
from dwconv.schedules.cpu.emit.loops import WHOLE_ROW, ColumnBlock, OutputRange, is_one
from dwconv.schedules.cpu.emit.vectors import Accumulators, Vectors
from dwconv.schedules.cpu.emit.words import argument, parallel, seen_as
from dwconv.schedules.cpu.shared.limits import PARALLEL_SUMS
from dwconv.schedules.cpu.wgrad_nhwc.cut import WeightCut
from dwconv.schedules.cpu.wgrad_nhwc.reader import PixelReader, SumShare
from dwconv.schedules.cpu.wgrad_nhwc.sums import TapSums, WeightResults, tap_groups
from dwconv.schedules.emit import BATCH, Expr, bind, ceil_div, divided, is_number, kernel, least, serial, size_of, store
from dwconv.schedules.space import Config


def schedule(workload: Workload, config: Config, target: CpuTarget) -> s_tir.Schedule:
    """Parameters: x (n, H, W, C), dy (n, OH, OW, C·M), dw (C·M, KH, KW), dbias (C·M) if there is a bias and, if tasks
    are images, workspace (tasks, sums, C·M in whole vectors): the partial sums. In 3-D with depths before heights."""
    n, cut = tirx.Var(BATCH, "int32"), at_any_size(WeightCut.of(workload, config, target), workload)
    vectors = Vectors(cut.work.channels, cut.lanes)
    with kernel() as builder:
        reader = PixelReader.arguments(cut, vectors, n)
        results = WeightResults(cut.work, vectors)
        if cut.config.parallel == "channels":
            sum_by_channels(reader, results, n)
        else:
            shape = (cut.config.tasks, results.count, vectors.count * vectors.lanes)
            if workload.any_channels:  # an argument's sizes are a symbol each, or a part of one
                partial = seen_as(argument("workspace", (*shape[:2], vectors.count, vectors.lanes)), *shape)
            else:
                partial = argument("workspace", shape)
            tasks = sum_by_images(reader, results, partial, n)
            add_partial_sums(partial, results, tasks=tasks)
    return s_tir.Schedule(builder.get())


def sum_by_channels(reader: PixelReader, results: WeightResults, n: Expr) -> None:
    """A task owns some channels and goes through all images: no partial sums. Vectors beyond the last store nothing."""
    cut, vectors, vectors_c = reader.cut, reader.vectors, reader.cut.config.vectors_c
    for task in parallel("task", ceil_div(vectors.count, vectors_c)):
        owned = vectors.numbered([task * vectors_c + v for v in range(vectors_c)])
        share = SumShare(block=OutputRange(0, cut.work.rows.outputs), columns=WHOLE_ROW, vectors=owned)
        for taps in tap_groups(cut):
            sums = TapSums(vectors, taps, vectors_c)
            for image in serial("image", n):
                for planes in reader.planes(taps, image, OutputRange(0, cut.work.depths.outputs)):
                    reader.add_rows(sums, share, planes=planes)
            for tap, v, value in sums.items():
                results.store(value, owned[v].number, tap)


def sum_by_images(reader: PixelReader, results: WeightResults, partial: Any, n: Expr) -> Expr:
    """A task goes through its share of the blocks of all planes, and sums up all results of its own. How many tasks
    there are: those of the configuration, or for any number of channels no more than blocks."""
    cut, vectors, tasks = reader.cut, reader.vectors, reader.cut.config.tasks
    rows, block_h, column_blocks = cut.work.rows.outputs, cut.config.block_h, cut.column_blocks
    blocks = cut.row_blocks * column_blocks
    depths = cut.work.depths.outputs
    active = tasks if is_number(cut.work.channels) else bind("active", least(tasks, n * (depths * blocks)))
    for task in parallel("task", active):
        for number in serial("number", results.count):
            for vector in serial("vector", vectors.count):
                store(partial, vectors.zero(), task, number, vectors.slot(vector))
        each = bind("share", ceil_div(n * (depths * blocks), tasks))
        first = bind("first", least(task * each, n * (depths * blocks)))
        for unit in serial("unit", first, least(first + each, n * (depths * blocks))):
            image, depth = divided(bind("image", unit // blocks), depths)
            top = unit % blocks // column_blocks * block_h if not is_one(cut.row_blocks) else 0
            columns = WHOLE_ROW
            if not is_one(column_blocks):
                columns = ColumnBlock(bind("block", unit % column_blocks), column_blocks)
            block = OutputRange(bind("top", top), bind("bottom", least(top + block_h, rows)))
            for numbers in vectors.several(0, vectors.count, at_a_time=cut.config.vectors_c):
                share = SumShare(block=block, columns=columns, vectors=vectors.numbered(numbers))
                at = PartOfSums(partial=partial, part=task, image=image, depths=OutputRange(depth, depth + 1))
                add_to_part(reader, results, share, at=at)
    return active


@dataclass(frozen=True, kw_only=True)
class PartOfSums:
    """A part of all sums, and the planes of dy whose products go there."""

    partial: Any
    part: Expr
    image: Expr
    depths: OutputRange


def add_to_part(reader: PixelReader, results: WeightResults, share: SumShare, *, at: PartOfSums) -> None:
    """Adds what a share gives to a part of all sums."""
    for taps in tap_groups(reader.cut):
        for planes in reader.planes(taps, at.image, at.depths):
            sums = TapSums(reader.vectors, taps, len(share.vectors))
            reader.add_rows(sums, share, planes=planes)
            for tap, v, value in sums.items():
                where = (at.part, results.number(tap), reader.vectors.slot(share.vectors[v].number))
                store(at.partial, at.partial[where] + value, *where)


def add_partial_sums(partial: Any, results: WeightResults, *, tasks: Expr) -> None:
    """In the order of the tasks, whichever thread ran them: the same bits every time."""
    vectors = results.vectors
    _, numbers, slots = (size_of(size) for size in partial.ty.shape)
    is_few = is_number(slots) and tasks * numbers * slots <= PARALLEL_SUMS
    loop = serial if is_few else parallel
    for number in loop("vector", vectors.count):
        for tap in results.taps():
            total = Accumulators(vectors, 1)
            for task in serial("task", tasks):
                total.add((0,), partial[task, results.number(tap), vectors.slot(number)])
            results.store(total[(0,)], number, tap)
