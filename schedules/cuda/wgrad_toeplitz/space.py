"""The space of diagonal sums: which configurations there are, which fit, and where to start. No TVM here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Layout, Workload
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.cost import total_us
from dwconv.schedules.cuda.gpu.tensor_cores import COLUMNS, ROWS, UNIT, why_not_banded
from dwconv.schedules.cuda.wgrad_toeplitz.cut import ToeplitzGradientCut
from dwconv.schedules.cuda.wgrad_toeplitz.estimate import block_works, code_size, registers_of
from dwconv.schedules.space import Config, ConfigSpace, Knob, Limit, Rule, Value, fastest_legal, rules_of
from dwconv.schedules.taps import HEIGHT, Axis

MOST_WARPS: dict[Layout, int] = {"nchw": 8, "nhwc": 16}
PLANES = (UNIT, 2 * UNIT)
"""Channels of a block, where they come last: those of whole vectors."""
IMAGES = (1, 2, 4, 8, 16)
TILES_H = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)
WARPS_W = (1, 2, 3, 4, 5, 7, 8)
WARPS_KH = (1, 2, 3, 4, 5, 6, 7, 8)
BLOCKS_KH, LEAST_SHARED_OUT = (1, 2, 3, 4), 12
"""Where channels come last: a vector of them leaves few warps for the kernel rows of each. Kernels with so many rows
may have more blocks."""
SPLITS = (1, 2, 3, 4, 5, 6, 8, 11, 16, 22, 32, 64)
MOST_TILES_TRIED = 3
PIPELINE = (1, 2)
"""Where channels come last: whether the next item is on its way while one is multiplied."""
TILES_W = (1, 2, 4, 8)
WIDEST_WHOLE = 2 * COLUMNS
"""Columns of the widest maps whose rows may be tiles."""
LEAN = (1,)
_ABSENT = {"blocks_kh": 1, "tiles_w": 1, "tile_w": COLUMNS, "pipeline": 1, "lean": 0}
"""What knobs are in configurations that were written before there were these."""


def gradient_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    return ConfigSpace(
        name,
        *(Knob(knob, values, absent=_ABSENT.get(knob)) for knob, values in _knobs(workload).items()),
        rules=_rules(workload, target),
        preferred=lambda: _preferred(workload, target),
    )


def gradient_misfit(workload: Workload, target: CudaTarget) -> str | None:
    if reason := why_not_banded(workload):
        return reason
    planes = UNIT if workload.layout == "nhwc" else 1
    warps_kh = min(max(WARPS_KH), workload.kernel[0], _warps_of_channel(workload))
    blocks_kh = max(_blocks_kh(workload), default=1)
    cuts = [
        ToeplitzGradientCut(
            workload=workload, images=images, tile_h=1, warps_w=1, warps_kh=warps_kh, split_n=1, planes=planes,
            blocks_kh=blocks_kh, lean=1,
        )
        for images in IMAGES
    ]  # fmt: skip
    if (least := min(cut.shared_bytes for cut in cuts)) > target.shared_bytes_per_block:
        return f"x and dy of a block are {least} bytes, shared memory {target.shared_bytes_per_block}"
    if (registers := registers_of(cuts[0])) > target.registers_per_thread:
        return f"the sums of a warp take {registers} registers, a thread has {target.registers_per_thread}"
    return None


def _knobs(workload: Workload) -> dict[str, list[int]]:
    height, width = workload.output_size
    tiles, most_warps = -(-width // COLUMNS) + 1, _warps_of_channel(workload)
    return {
        "images": list(IMAGES),
        "tile_h": sorted({min(each, height) for each in TILES_H}),
        "warps_w": [count for count in WARPS_W if count <= min(tiles, most_warps)],
        "warps_kh": [count for count in WARPS_KH if count <= min(workload.kernel[0], most_warps)],
        "split_n": [count for count in SPLITS if count <= hardware.MOST_IMAGES],
        **({"planes": [count for count in PLANES if count <= workload.channels]} if workload.layout == "nhwc" else {}),
        "blocks_kh": list(_blocks_kh(workload)),
        "tiles_w": [count for count in TILES_W if count == 1 or count // 2 < tiles - 1],
        "tile_w": [COLUMNS, *([WIDEST_WHOLE] if COLUMNS < width <= WIDEST_WHOLE else [])],
        "pipeline": list(PIPELINE) if workload.layout == "nhwc" else [],
        "lean": list(LEAN),
    }


def _blocks_kh(workload: Workload) -> tuple[int, ...]:
    return BLOCKS_KH if workload.layout == "nhwc" and workload.kernel[0] >= LEAST_SHARED_OUT else ()


def _warps_of_channel(workload: Workload) -> int:
    return MOST_WARPS[workload.layout] // (PLANES[0] if workload.layout == "nhwc" else 1)


@lru_cache(maxsize=256)
def _preferred(workload: Workload, target: CudaTarget) -> dict[str, Value]:
    """The legal configuration of least estimated time: of a few shapes, with few shares of the images; and then of all
    shares with that shape."""
    rules = _rules(workload, target)

    def estimate(config: Config) -> float:
        return total_us(block_works(workload, config, target), target)

    shape = fastest_legal(_starts(workload), rules, estimate)
    shares = (shape | {"split_n": count} for count in _knobs(workload)["split_n"])
    return fastest_legal(shares, rules, estimate) if shape else {}


def _starts(workload: Workload) -> Iterator[dict[str, Any]]:
    """Rows of dy that cover a map with few others, few and many warps and shares."""
    knobs, rows = _knobs(workload), Axis.of_convolution(workload, HEIGHT)
    every = dict.fromkeys(knobs, 1) | {"split_n": 3}
    if workload.layout == "nchw":  # where channels come last, there are fewer warps to choose from
        every |= {"warps_w": 3, "warps_kh": 3}
    for images in knobs["images"]:
        for tiles_w in (count for count in knobs["tiles_w"] if images * count <= ROWS):

            def covered(tile: int, strips: int = ROWS // (images * tiles_w)) -> tuple[int, int]:
                return rows.covered(strips * tile), -tile

            tiles_h = sorted(knobs["tile_h"], key=covered)[:MOST_TILES_TRIED]
            few = {name: values[:: every[name]] for name, values in knobs.items() if values}
            few |= {"images": [images], "tiles_w": [tiles_w], "tile_h": tiles_h}
            if tiles_w > 1:
                few |= {"tile_w": [COLUMNS]}
            for values in itertools.product(*few.values()):
                yield dict(zip(few, values, strict=True))


def _rules(workload: Workload, target: CudaTarget) -> list[Rule]:
    most_warps, most_code = MOST_WARPS[workload.layout], hardware.TOEPLITZ_GRADIENT_CODE

    def idle(cut: ToeplitzGradientCut) -> bool:
        """Too many rows of dy, columns, or kernel rows, that are none."""
        down = cut.blocks_h * cut.block_h / cut.rows.outputs
        across = cut.tiles_held / cut.tiles
        return down * across * cut.block_kh * cut.blocks_kh / cut.rows.taps > hardware.MOST_PADDED

    limits: list[Limit] = [
        ("more images and tiles than a product has rows", lambda cut: cut.images * cut.tiles_w > ROWS),
        ("a tile that is a whole row has none beside it", lambda cut: cut.tile_w > COLUMNS and not cut.is_whole),
        (f"more than {most_warps} warps", lambda cut: cut.warps > most_warps),
        (
            "more parts than groups of images",
            lambda cut: cut.split_n > -(-hardware.MOST_IMAGES // cut.images) * cut.blocks_h,
        ),
        ("too many threads without work", idle),
        (
            f"more than {hardware.MOST_WORKSPACE_BYTES} bytes of partial sums",
            lambda cut: cut.split_n * cut.results * hardware.BANK_BYTES > hardware.MOST_WORKSPACE_BYTES,
        ),
        ("more registers than there are", lambda cut: registers_of(cut) > target.registers_per_thread),
        (f"more than {most_code} instructions unrolled", lambda cut: code_size(cut) > most_code),
        hardware.limit_of_shared(target),
        ("rows of a product lie in the same banks", lambda cut: max(cut.x.turns_of_rows, cut.dy.turns_of_rows) > 1),
    ]
    return rules_of(partial(ToeplitzGradientCut.of, workload), limits)
