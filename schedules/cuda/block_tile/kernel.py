"""The two-level schedule, NCHW: fprop at any stride, and dgrad at stride 1, which is fprop with the kernel turned."""

from __future__ import annotations

from tvm import s_tir

from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.block_tile.compute import Stage, fprop_nchw
from dwconv.schedules.cuda.block_tile.cut import BlockTile, axis_tiles
from dwconv.schedules.cuda.block_tile.estimate import LOADS_IN_FLIGHT
from dwconv.schedules.cuda.block_tile.partition import (
    copy_to_shared,
    keep_in_registers,
    stage_in_registers,
    stage_in_shared,
    two_level,
)
from dwconv.schedules.space import Config


def schedule_block_tile(
    workload: Workload, config: Config, *, names: tuple[str, str, str] = ("x", "w", "y"), flip: bool = False
) -> s_tir.Schedule:
    """``workload`` as a convolution of the tensors with these names, with ``flip`` the kernel turned round."""
    tile = BlockTile.of(config)
    stage: Stage = "copied" if config.pipeline > 1 else config.stage
    sch = s_tir.Schedule(fprop_nchw(workload, tile, stage=stage, names=names, flip=flip))
    staged, total, result = (sch.get_sblock(name) for name in ("staged", "sum", names[2]))
    partition = two_level(sch, total, tiles=axis_tiles(config), turns=config.turns)
    if stage == "shared":
        stage_in_shared(
            sch,
            staged,
            fetched=sch.get_sblock("fetched"),
            partition=partition,
            plane_words=tile.plane_words(workload),
            row_words=tile.row_words(workload),
            in_flight=LOADS_IN_FLIGHT,
        )
    elif stage == "registers":
        stage_in_registers(sch, staged, partition=partition)
    else:
        held_bytes = config.pipeline * tile.copied_bytes(workload)
        copy_to_shared(sch, staged, partition=partition, buffers=config.pipeline, held_bytes=held_bytes)
    keep_in_registers(sch, total, partition=partition, result=result, unrolled=2 if config.unroll == "kernel" else 1)
    return sch
