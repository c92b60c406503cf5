"""The space of banded products: which configurations there are, which fit, and where to start. No TVM here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Layout, Workload
from dwconv.schedules.cuda.fprop_dgrad_toeplitz.cut import ToeplitzCut
from dwconv.schedules.cuda.fprop_dgrad_toeplitz.estimate import block_work, code_size, registers_of
from dwconv.schedules.cuda.gpu.cost import total_us
from dwconv.schedules.cuda.gpu.hardware import TOEPLITZ_ROWS_CODE, WARP, limit_of_shared, usual_limits
from dwconv.schedules.cuda.gpu.tensor_cores import COLUMNS, ROWS, UNIT, why_not_banded
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import ConfigSpace, Knob, Limit, Rule, Value, fastest_legal, rules_of

MOST_WARPS: dict[Layout, int] = {"nchw": 8, "nhwc": 16}
IMAGES = (1, 2, 4, 8, 16)
PLANES: dict[Layout, tuple[int, ...]] = {"nchw": (1, 2, 4, 8), "nhwc": (UNIT, 2 * UNIT, 4 * UNIT, 8 * UNIT)}
"""Channels of a block: where they come last, those of whole vectors."""
WARPS_C = (4, 8, 16)
"""Channels at a time, where they come last: what a pixel has of a sector of memory should be all of it, and more
threads than that many channels have would leave room for one block alone."""
TILES_H = (1, 2, 3, 4, 5, 7, 8, 10, 14)
TILES_W = (1, 2, 3, 4, 7)
"""Products side by side."""
TILES_OF_PRODUCT = (1, 2, 4, 8)
"""Tiles side by side that are rows of one product; a warp has no others then."""
TAPS_H = (2, 3, 4, 8)
"""Kernel rows of a turn, where it is not all of them."""
LEAN = (1,)
"""No choice any more: 0, as it once was, takes more instructions and more turns of memory."""
_ABSENT = {"tiles_w": 1, "interleave": 0, "lean": 0}
"""What knobs are in configurations that were written before there were these."""
PREFERRED_WARPS = 4
MOST_TILES_TRIED = 4


def toeplitz_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    knobs = _knobs(workload, target)
    return ConfigSpace(
        name,
        *(Knob(knob, values, absent=_ABSENT.get(knob)) for knob, values in knobs.items()),
        rules=_rules(workload, target),
        preferred=lambda: _preferred(workload, target),
    )


def toeplitz_misfit(workload: Workload, target: CudaTarget) -> str | None:
    if reason := why_not_banded(workload):
        return reason
    least = _least_bytes(workload, planes=PLANES[workload.layout][0])
    if least > target.shared_bytes_per_block:
        return f"the input of a block tile is {least} bytes, shared memory {target.shared_bytes_per_block}"
    return None


def _least_bytes(workload: Workload, *, planes: int) -> int:
    cuts = [
        ToeplitzCut(
            gather=Gather.of(workload), dtype=workload.dtype, layout=workload.layout, planes=planes, warps_c=1,
            images=images, tile_h=1, tile_w=COLUMNS, warps_h=1, warps_w=1, taps_h=1, lean=True,
        )
        for images in IMAGES
    ]  # fmt: skip
    return min(cut.shared_bytes for cut in cuts)


def _knobs(workload: Workload, target: CudaTarget) -> dict[str, list[int]]:
    gather = Gather.of(workload)
    rows, tiles = gather.rows.outputs, -(-gather.columns.outputs // COLUMNS)
    across, most_warps = {-(-tiles // each) for each in TILES_W}, _warps_of_channel(workload)
    of_product = [count for count in TILES_OF_PRODUCT if count < 2 * tiles]
    least, *more = (count for count in PLANES[workload.layout] if count < workload.channels + UNIT)
    fitting = [n for n in more if _least_bytes(workload, planes=n) <= target.shared_bytes_per_block]
    return {
        "planes": [least, *fitting],
        **({"warps_c": list(WARPS_C)} if workload.layout == "nhwc" else {}),
        "images": list(IMAGES),
        "tile_h": sorted({min(each, rows) for each in TILES_H}),
        "warps_h": [1, 2, 4],
        "tile_w": sorted({COLUMNS * each for each in (*(min(each, tiles) for each in TILES_W), *of_product)}),
        "warps_w": sorted({min(-(-each // part), most_warps) for each in across for part in (1, 2)}),
        "taps_h": sorted({min(each, gather.rows.taps) for each in (*TAPS_H, gather.rows.taps)}),
        "tiles_w": list(of_product),
        "interleave": [0, 1],
        "lean": list(LEAN),
    }


def _warps_of_channel(workload: Workload) -> int:
    return MOST_WARPS[workload.layout] // (WARPS_C if workload.layout == "nhwc" else PLANES["nchw"])[0]


@lru_cache(maxsize=256)
def _preferred(workload: Workload, target: CudaTarget) -> dict[str, Value]:
    """The legal configuration of least estimated time, of those of a few shapes."""
    return fastest_legal(
        _starts(workload, target),
        _rules(workload, target),
        lambda config: total_us([block_work(workload, config, target)], target),
    )


def _starts(workload: Workload, target: CudaTarget) -> Iterator[dict[str, Any]]:
    """Few tiles, with as many warps as cover a map, or as there may be. Where channels come last, these are few: there
    strips cover a map with few rows more, and whole rows are tried."""
    knobs, gather, is_nchw = _knobs(workload, target), Gather.of(workload), workload.layout == "nchw"
    height, width = gather.rows.outputs, gather.columns.outputs
    whole, most_warps = knobs["taps_h"][-1], _warps_of_channel(workload)
    for images, tiles_w in itertools.product(knobs["images"], knobs["tiles_w"]):
        strips = ROWS // (images * tiles_w)

        def covered(tile: int, strips: int = 1 if is_nchw else strips) -> tuple[int, int]:
            return gather.rows.covered(strips * tile), -tile

        tiles_h = sorted(knobs["tile_h"], key=covered)[:MOST_TILES_TRIED] if strips else []
        columns = knobs["tile_w"][: MOST_TILES_TRIED if is_nchw else None]
        if tiles_w > 1:
            columns = [tiles_w * COLUMNS]
        for tile_h, tile_w, taps_h in itertools.product(
            tiles_h, columns, sorted({whole, min(4, whole), min(8, whole)})
        ):
            warps_w = _covering(knobs["warps_w"], tile_w, width)
            down = [count for count in knobs["warps_h"] if count * warps_w <= most_warps] or [1]
            covering = _covering(down, strips * tile_h, height)
            for warps_h in sorted({1, covering}):
                every = itertools.product(_channels(knobs, warps_h * warps_w), (0, 1) if strips > 1 else (0,))
                for channels, interleave in every:
                    at_a_time = channels.get("warps_c", channels["planes"])
                    yield {
                        **channels, "images": images, "tile_h": tile_h, "tile_w": tile_w,
                        "warps_h": min(warps_h, max(1, MOST_WARPS[workload.layout] // (at_a_time * warps_w))),
                        "warps_w": warps_w, "taps_h": taps_h, "tiles_w": tiles_w, "interleave": interleave,
                        "lean": LEAN[0],
                    }  # fmt: skip


def _channels(knobs: dict[str, list[int]], warps: int) -> list[dict[str, int]]:
    """To start from, where one has so many warps."""
    if "warps_c" in knobs:
        wanted = itertools.product(knobs["planes"], knobs["warps_c"])
        return [{"planes": planes, "warps_c": warps_c} for planes, warps_c in wanted if warps_c <= planes]
    return [{"planes": planes} for planes in sorted({1, max(1, PREFERRED_WARPS // warps)})]


def _covering(counts: list[int], tile: int, size: int) -> int:
    """The fewest tiles that cover so much; the most that there are, where none do."""
    return next((count for count in sorted(counts) if count * tile >= size), max(counts))


def _rules(workload: Workload, target: CudaTarget) -> list[Rule]:
    gather = Gather.of(workload)
    most_warps = MOST_WARPS[workload.layout]
    limits: list[Limit] = [
        (f"more than {most_warps} warps", lambda cut: cut.threads > most_warps * WARP),
        ("more channels at a time than there are", lambda cut: cut.turns_c < 1),
        ("more images and tiles than a product has rows", lambda cut: cut.images * cut.tiles_w > ROWS),
        ("one strip has no other beside it", lambda cut: cut.interleaved and cut.strips == 1),
        ("not one product side by side", lambda cut: cut.tiles_w > 1 and cut.tile_w != cut.tiles_w * COLUMNS),
        *usual_limits(
            target,
            threads=lambda cut: cut.threads,
            computed=lambda cut: gather.rows.covered(cut.block_h) * gather.columns.covered(cut.block_w),
            wanted=gather.rows.outputs * gather.columns.covered(COLUMNS),
            code=code_size,
            most_code=TOEPLITZ_ROWS_CODE,
            registers=registers_of,
        ),
        limit_of_shared(target),
        (
            "rows of a product lie in the same banks",
            lambda cut: max(cut.source.turns_of_rows, cut.results.turns_of_rows) > 1,
        ),
    ]
    return rules_of(partial(ToeplitzCut.of, workload), limits)
