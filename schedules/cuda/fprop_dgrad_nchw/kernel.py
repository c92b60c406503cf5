"""The kernel of block tiles, NCHW, as TE, and its two-level partition, as TVM schedule primitives.

The sum is on a domain padded to whole block tiles, the result is its crop. Only the crop has a guard: the sum, the hot
loop, is free of tests however ragged the sizes are. At registers = 1 neighbouring threads own neighbouring elements, so
they read neighbouring words of shared memory (no bank conflict) and write whole lines (coalesced).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from tvm import s_tir, te, tirx

from dwconv.problems.workload import Workload
from dwconv.schedules.cuda.emit.words import MIN_BLOCKS_PER_SM
from dwconv.schedules.cuda.fprop_dgrad_nchw.cut import BlockTile, axis_tiles, round_up
from dwconv.schedules.cuda.fprop_dgrad_nchw.estimate import LOADS_IN_FLIGHT, staged_bytes, stored_lanes
from dwconv.schedules.cuda.gpu.hardware import COPIES_VECTORS, STATIC_SHARED_BYTES
from dwconv.schedules.space import Config

WINDOW_AXES = 7
"""Image, plane, tile row, tile column, row, vector, lane."""
Index = Any
"""An expression of TVM."""
Stage = Literal["shared", "copied", "registers"]


def fprop_nchw(
    workload: Workload,
    tile: BlockTile,
    *,
    stage: Stage,
    names: tuple[str, str, str] = ("x", "w", "y"),
    flip: bool = False,
) -> tirx.PrimFunc:
    """y[n, c·M + m, h, w] = Σ x[n, c, h·S + kh·D − P, w·S + kw·D − P] · w[c·M + m, kh, kw], zero outside x;
    plus bias[c·M + m] if there is one.

    Stages: ``staged`` is x with its padding, in float32; ``sum`` the convolution, on whole block tiles; ``y`` its crop.
    With ``stage=copied`` it is the patch of every block tile by itself, as it lies in memory, in whole vectors, the
    innermost axis, for cp.async to copy; at multiplier 1. With ``stage=shared`` it is that patch as
    ``fetched`` by the block's threads in turns: (n, C, tile row, tile column, row turn, row thread, phase, column turn,
    column thread). Column w of a patch lies at phase w mod stride, so that at stride 2 neighbouring outputs still read
    neighbouring words.

    ``names`` are those of the three tensors and of the last stage; with ``flip`` the kernel is turned round.
    """
    dilation_h, dilation_w = workload.dilation
    channels, multiplier, out_channels = workload.channels, workload.multiplier, workload.out_channels
    out_h, out_w = workload.output_size
    kernel_h, kernel_w = workload.kernel
    padded_h, padded_w = round_up(out_h, tile.rows), round_up(out_w, tile.columns)
    padded_channels = round_up(out_channels, tile.planes)
    planes = -(-padded_channels // multiplier)

    batch = te.var("n", "int32")
    x = te.placeholder((batch, channels, *workload.input_size), workload.dtype, name=names[0])
    w = te.placeholder(workload.weight_shape, workload.dtype, name=names[1])
    staging = {"shared": _staged_by_tile, "copied": _copied_by_tile, "registers": _staged_as_it_lies}[stage]
    pixel = staging(x, workload, tile, shape=(batch, planes, padded_h, padded_w))

    kh = te.reduce_axis((0, kernel_h), name="kh")
    kw = te.reduce_axis((0, kernel_w), name="kw")

    def taps(n: Index, c: Index, row: Index, column: Index) -> Index:
        at = (kernel_h - 1 - kh, kernel_w - 1 - kw) if flip else (kh, kw)
        weight = _in_float32(w[(tirx.min(c, out_channels - 1), *at)])
        return te.sum(pixel(n, c // multiplier, row, column, kh * dilation_h, kw * dilation_w) * weight, axis=[kh, kw])

    total = te.compute((batch, padded_channels, padded_h, padded_w), taps, name="sum")
    bias = [te.placeholder((out_channels,), workload.dtype, name="bias")] if workload.bias else []

    def result(n: Index, c: Index, row: Index, column: Index) -> Index:
        value = total(n, c, row, column)
        return sum((_in_float32(each[c]) for each in bias), value).astype(workload.dtype)

    y = te.compute((batch, out_channels, out_h, out_w), result, name=names[2])
    return te.create_prim_func([x, w, *bias, y])


def _in_float32(value: Index) -> Index:
    return value.astype("float32")


Pixel = Callable[[Index, Index, Index, Index, Index, Index], Index]
"""(n, plane, output row, output column, tap row, tap column) -> the input there."""


def _staged_as_it_lies(x: te.Tensor, workload: Workload, tile: BlockTile, *, shape: tuple[Any, ...]) -> Pixel:
    stride_h, stride_w = workload.stride
    batch, planes, padded_h, padded_w = shape
    height = (padded_h - 1) * stride_h + workload.dilation[0] * (workload.kernel[0] - 1) + 1
    width = (padded_w - 1) * stride_w + workload.dilation[1] * (workload.kernel[1] - 1) + 1
    staged = te.compute(
        (batch, planes, height, width),
        lambda n, c, row, column: _in_float32(_input_or_zero(x, workload, n, c, row, column)),
        name="staged",
    )
    return lambda n, c, row, column, kh, kw: staged[n, c, row * stride_h + kh, column * stride_w + kw]


def _staged_by_tile(x: te.Tensor, workload: Workload, tile: BlockTile, *, shape: tuple[Any, ...]) -> Pixel:
    stride_h, stride_w = workload.stride
    (patch_h, patch_w), (turns_h, turns_w) = tile.patch(workload), tile.turns(workload)
    batch, planes, padded_h, padded_w = shape
    patches = (padded_h // tile.rows, padded_w // tile.columns)
    shape = (batch, planes, *patches, turns_h, tile.threads_h, stride_w, turns_w, tile.threads_w)

    def fetch(
        n: Index, c: Index, tile_h: Index, tile_w: Index,
        turn_h: Index, thread_h: Index, phase: Index, turn_w: Index, thread_w: Index,
    ) -> Index:  # fmt: skip
        h, w = turn_h * tile.threads_h + thread_h, turn_w * tile.threads_w + thread_w
        row, column = tile_h * (tile.rows * stride_h) + h, (tile_w * tile.columns + w) * stride_w + phase
        return _input_or_zero(x, workload, n, c, row, column, h < patch_h, w < patch_w)

    fetched = te.compute(shape, fetch, name="fetched")
    staged = te.compute(shape, lambda *at: _in_float32(fetched(*at)), name="staged")

    def pixel(n: Index, c: Index, row: Index, column: Index, kh: Index, kw: Index) -> Index:
        h, w = row % tile.rows * stride_h + kh, column % tile.columns + kw // stride_w
        return staged[
            n, c, row // tile.rows, column // tile.columns,
            h // tile.threads_h, h % tile.threads_h, kw % stride_w, w // tile.threads_w, w % tile.threads_w,
        ]  # fmt: skip

    return pixel


def _copied_by_tile(x: te.Tensor, workload: Workload, tile: BlockTile, *, shape: tuple[Any, ...]) -> Pixel:
    height, width = workload.input_size
    (top, _), (left, _) = workload.padding
    stride_h, stride_w = workload.stride
    batch, planes, padded_h, padded_w = shape
    lanes, (rows, vectors, before) = tile.copy_lanes(workload), tile.copied_patch(workload)

    def copy(n: Index, c: Index, tile_h: Index, tile_w: Index, row: Index, vector: Index, lane: Index) -> Index:
        h, first = tile_h * (tile.rows * stride_h) + row - top, tile_w * (tile.columns * stride_w // lanes)
        v = first + vector - (left + before) // lanes
        # A vector is inside as a whole or not at all.
        inside = tirx.all(c < workload.channels, h >= 0, h < height, v >= 0, v < width // lanes)
        return tirx.if_then_else(inside, x[n, c, h, v * lanes + lane], tirx.const(0, workload.dtype))

    shape = (batch, planes, padded_h // tile.rows, padded_w // tile.columns, rows, vectors, lanes)
    staged = te.compute(shape, copy, name="staged")
    # Neighbouring outputs of a thread share what it reads: whole vectors of a row.
    held = te.compute(shape, lambda *at: staged(*at), name="window") if tile.tile_w > 1 else staged

    def pixel(n: Index, c: Index, row: Index, column: Index, kh: Index, kw: Index) -> Index:
        h, at = row % tile.rows * stride_h + kh, column % tile.columns * stride_w + kw + before
        return _in_float32(held[n, c, row // tile.rows, column // tile.columns, h, at // lanes, at % lanes])

    return pixel


def _input_or_zero(
    x: te.Tensor, workload: Workload, n: Index, c: Index, row: Index, column: Index, *wanted: Index
) -> Index:
    height, width = workload.input_size
    (top, _), (left, _) = workload.padding
    h, w = row - top, column - left
    inside = tirx.all(*wanted, c < workload.channels, h >= 0, h < height, w >= 0, w < width)
    return tirx.if_then_else(inside, x[n, c, h, w], tirx.const(0, workload.dtype))


def schedule_block_tile(
    workload: Workload, config: Config, *, names: tuple[str, str, str] = ("x", "w", "y"), flip: bool = False
) -> s_tir.Schedule:
    """``workload`` as a convolution of the tensors with these names, with ``flip`` the kernel turned round."""
    tile = BlockTile.of(config)
    stage: Stage = "copied" if config.pipeline > 1 else config.stage
    sch = s_tir.Schedule(fprop_nchw(workload, tile, stage=stage, names=names, flip=flip))
    staged, total, result = (sch.get_sblock(name) for name in ("staged", "sum", names[2]))
    partition, wide = Partition(sch, total, config), stage == "copied" and config.tile_w > 1
    if stage == "shared":
        words = tile.plane_words(workload), tile.row_words(workload)
        partition.stage_in_shared(staged, sch.get_sblock("fetched"), words=words)
    elif stage == "registers":
        partition.stage_in_registers(staged)
    else:
        if wide:
            partition.read_in_vectors(sch.get_sblock("window"))
        held_bytes = staged_bytes(workload, config)
        apart = tile.copied_apart(workload) if config.padding == "copied" else None
        partition.copy_to_shared(staged, buffers=config.pipeline, apart=apart, held_bytes=held_bytes)
    unrolled = 2 if config.unroll == "kernel" else 1
    partition.keep_in_registers(result, unrolled=unrolled, stored_lanes=stored_lanes(workload, config))
    if config.blocks_per_sm:
        sch = with_blocks_per_sm(sch, config.blocks_per_sm)
    return s_tir.Schedule(sch.mod["main"].with_attr(COPIES_VECTORS, True)) if wide else sch


def with_blocks_per_sm(sch: s_tir.Schedule, least: int) -> s_tir.Schedule:
    """The kernel, whose threads have no more registers than ``least`` blocks on an SM have: ``emit.words`` says why."""
    main = sch.mod["main"]
    root = main.body.block
    grid = root.body
    inside = tirx.AttrStmt(tirx.const(0, "int32"), MIN_BLOCKS_PER_SM, tirx.const(least, "int32"), grid.body)
    grid = tirx.For(grid.loop_var, grid.min, grid.extent, grid.kind, inside, grid.thread_binding, grid.annotations)
    root = s_tir.SBlock(
        [], [], [], root.name_hint, grid, alloc_buffers=root.alloc_buffers, annotations=root.annotations
    )
    return s_tir.Schedule(main.with_body(s_tir.SBlockRealize([], True, root)))


class Partition:
    """The two-level partition of a sum, whose loops are the batch, one for every tile, then the reduction.

    The block tiles of all axes and of the batch go to blockIdx.x: it alone counts beyond 65535. The batch is outermost,
    so it needs no number in the kernel, and tiles that share a halo run close together. With ``turns`` a block goes
    through that many tiles, one after the other; it divides the tiles of an image.
    """

    def __init__(self, sch: s_tir.Schedule, total: Any, config: Config) -> None:
        tiles = axis_tiles(config)
        self._sch, self._total, self._threads = sch, total, [tile.threads for tile in tiles]
        batch, *loops = sch.get_loops(total)
        axes, self._reduction = loops[: len(tiles)], loops[len(tiles) :]
        cut = [sch.split(axis, [None, t.vthreads, t.threads, t.registers]) for axis, t in zip(axes, tiles, strict=True)]
        blocks, vthreads, threads, self._registers = zip(*cut, strict=True)
        sch.reorder(*blocks, *vthreads, *threads, *self._reduction, *self._registers)
        inner = []
        if config.turns > 1:
            *blocks, inner = sch.split(sch.fuse(*blocks), [None, config.turns])
        fused = sch.fuse(batch, *blocks)
        sch.bind(fused, "blockIdx.x")
        for axis, vthread in zip("zyx", vthreads, strict=True):
            sch.bind(vthread, f"vthread.{axis}")
        self._bind(threads)
        self._block = inner if config.turns > 1 else fused
        self._thread = threads[-1]  # what is computed at it is private to a thread

    def _bind(self, threads: Sequence[Any]) -> None:
        for axis, thread in zip("zyx", threads, strict=True):
            self._sch.bind(thread, f"threadIdx.{axis}")

    def keep_in_registers(self, result: Any, *, unrolled: int, stored_lanes: int) -> None:
        """Accumulate in registers, store once at the end, in vectors of ``stored_lanes``. The ``unrolled`` innermost
        reduction loops are unrolled."""
        sch = self._sch
        sch.set_scope(self._total, 0, "local")
        sch.reverse_compute_at(result, self._thread, preserve_unit_loops=True)
        innermost = self._reduction[len(self._reduction) - unrolled :]
        *outer, across = sch.get_loops(result)[-len(self._registers) :]
        if stored_lanes > 1:
            across, lane = sch.split(across, [None, stored_lanes])
            sch.vectorize(lane)
        for loop in (*outer, across, *innermost, *self._registers):
            sch.unroll(loop)
        sch.decompose_reduction(self._total, self._reduction[0])

    # -- staging the input -----------------------------------------------------------------------------------------

    def stage_in_registers(self, staged: Any) -> None:
        sch = self._sch
        sch.set_scope(staged, 0, "local")
        sch.compute_at(staged, self._thread, preserve_unit_loops=True)
        for loop in sch.get_loops(staged)[-len(self._threads) - 1 :]:
            sch.unroll(loop)

    def stage_in_shared(self, staged: Any, fetched: Any, *, words: tuple[int, int]) -> None:
        """Bring the block's patch into shared memory, all threads together. Both stages are (batch, plane, tile row,
        tile column, row turn, row thread, phase, column turn, column thread): a thread fetches, at every turn, what
        lies at its own place, so no index is divided. ``words``: from a plane and from a row to the next."""
        sch, (plane_words, row_words) = self._sch, words
        sch.storage_align(staged, 0, axis=5, factor=row_words, offset=0)
        sch.storage_align(staged, 0, axis=1, factor=plane_words, offset=0)
        sch.compute_at(staged, self._block, preserve_unit_loops=True)
        plane, _, _, row_turn, row, phase, column_turn, column = sch.get_loops(staged)[2:]
        planes, phases, turns_across = (int(sch.get(loop).extent) for loop in (plane, phase, column_turn))
        sch.set_scope(staged, 0, "shared" if 4 * planes * plane_words <= STATIC_SHARED_BYTES else "shared.dyn")
        rounds, row_turn = sch.split(row_turn, [None, max(1, LOADS_IN_FLIGHT // (phases * turns_across))])
        # A stride can leave the last rows or columns unread: cut to the number of threads, whatever is left.
        cut = [sch.split(axis, [None, count]) for axis, count in zip((plane, row, column), self._threads, strict=True)]
        turns, threads = zip(*cut, strict=True)
        sch.reorder(*threads, *turns, rounds, row_turn, phase, column_turn)
        self._bind(threads)
        sch.set_scope(fetched, 0, "local")
        sch.compute_at(fetched, rounds, preserve_unit_loops=True)
        for loop in (*sch.get_loops(fetched)[-9:], row_turn, phase, column_turn):
            sch.unroll(loop)

    def copy_to_shared(self, staged: Any, *, buffers: int, apart: tuple[int, int] | None, held_bytes: int) -> None:
        """Bring the patch of the next block tiles into shared memory while this one is computed: cp.async, which needs
        no register. The innermost loop of ``staged`` is a vector; ``buffers`` patches exist at a time; rows and planes
        lie ``apart``, in elements; None: one after the other."""
        sch, block = self._sch, self._block
        for axis, factor in zip((4, 1), apart or (), strict=False):
            sch.storage_align(staged, 0, axis=axis, factor=factor, offset=0)
        sch.set_scope(staged, 0, "shared" if held_bytes <= STATIC_SHARED_BYTES else "shared.dyn")
        sch.compute_at(staged, block, preserve_unit_loops=True)
        *patch, lane = sch.get_loops(staged)[2:]
        _, *threads = sch.split(sch.fuse(*patch), [None, *self._threads])
        self._bind(threads)
        sch.vectorize(lane)
        computing = [buffers - 1] * 3  # sums set to zero, sums, results
        sch.annotate(block, "software_pipeline_stage", [0, *computing])
        sch.annotate(block, "software_pipeline_order", list(range(1 + len(computing))))
        sch.annotate(block, "software_pipeline_async_stages", [0])

    def read_in_vectors(self, window: Any) -> None:
        """Bring what a kernel row meets of copied rows into registers. The innermost loop of ``window`` is a vector."""
        sch = self._sch
        sch.set_scope(window, 0, "local")
        sch.compute_at(window, self._reduction[0], preserve_unit_loops=True)
        *outer, lane = sch.get_loops(window)[-WINDOW_AXES:]
        sch.vectorize(lane)
        for loop in outer:
            sch.unroll(loop)
