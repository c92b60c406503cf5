"""Knobs of the weight gradient, and the values that they may take, in either layout. No TVM here."""

from __future__ import annotations

from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.gpu.bounds import MOST_IMAGES, MOST_PADDED
from dwconv.schedules.cuda.gpu.hardware import VECTOR_BYTES
from dwconv.schedules.space import divisors
from dwconv.schedules.taps import DEPTH, HEIGHT, WIDTH

MOST_THREADS_KH = 16
"""They are on z, where CUDA allows no more than 64."""
TALL_KERNEL, ZERO_KERNEL = 7, 9
"""From 7 kernel rows on they can be split over threads, and branches around padding can pay; beyond 9 they do."""
WIDEST_TILE = 28

Knobs = dict[str, list[int]]


def knobs_of(workload: Workload) -> Knobs:
    """All but ``edge``."""
    nhwc, tall = workload.layout == "nhwc", workload.kernel[HEIGHT] >= TALL_KERNEL
    out_h, out_w = workload.output_size[HEIGHT], workload.output_size[WIDTH]
    heights = cuts(out_h, [4, 7, 14] if tall else [4, 7, 8, 14, 28])
    return {
        **({"vector_c": channel_vectors(workload)} if nhwc else {}),
        "threads_c": channel_threads(workload),
        "tile_h": heights,
        "unroll_h": sorted({part for height in heights for part in divisors(height)} & {1, 2, 4, 7, 8, 14}),
        "tile_w": cuts(out_w, [2, 4, 7, 14, 28] if nhwc or tall else [2, 4, 8, 14]),
        "group_kh": kernel_groups(workload),
        "threads_kh": kernel_threads(workload.kernel[HEIGHT]) if tall else depth_threads(workload),
        "threads_p": [4, 7, 8, 14, 16, 32] if nhwc else [14, 16, 28, 32, 56, 64, 112, 128],
        "split_n": sorted({-(-MOST_IMAGES // images) for images in (1, 2, 3, 4, 5, 6, 8, 11, 16, 32, 64)}),
        "blocks_per_sm": [1, 2, 3] if tall else [1, 2, 3, 4, 6],
    }


def edges(workload: Workload) -> list[str]:
    tall = workload.kernel[HEIGHT] >= TALL_KERNEL
    return ["zero", "skip"] if tall and any(workload.padding[HEIGHT]) else ["zero"]


def channel_vectors(workload: Workload) -> list[int]:
    """Neighbouring channels that one aligned load brings, of whole input channels or of a part of one."""
    channels, multiplier = workload.out_channels, workload.multiplier
    return [
        lanes
        for lanes in (1, 2, 4, 8)
        if lanes * ITEMSIZE[workload.dtype] <= VECTOR_BYTES
        and channels % lanes == 0
        and (lanes % multiplier == 0 or multiplier % lanes == 0)
    ]


def channel_threads(workload: Workload) -> list[int]:
    """Where channels are innermost, half a warp of vectors or more, best an equal part of them."""
    channels = workload.out_channels
    if workload.layout == "nchw":
        return [count for count in (1, 2, 4, 8, 16) if count == 1 or count <= channels]
    vectors = [channels // lanes for lanes in channel_vectors(workload)]
    even = {count // part for count in vectors for part in (1, 2, 3, 4, 5, 6, 8) if count % part == 0}
    snug = {count for count in even if 16 <= count <= 48} | {count for count in vectors if count < 16}
    return sorted({*snug, 16, 32} if channels >= 16 else snug)


def kernel_groups(workload: Workload) -> list[int]:
    """Kernel rows of a thread: all; where they are many or wide, equal parts of them."""
    taps = workload.kernel[HEIGHT]
    parts = {1, 2, 3, taps} if taps >= TALL_KERNEL else {1, taps} if workload.kernel[WIDTH] > 16 else {1}
    groups = {-(-taps // part) for part in parts}
    return sorted(group for group in groups if -(-taps // group) * group <= MOST_PADDED * taps)


def kernel_threads(taps: int) -> list[int]:
    """Groups side by side: one, or those of a quarter, a half or all of the kernel rows."""
    counts = {1, *(-(-taps // part) for part in (1, 2, 4))}
    return sorted(count for count in counts if count <= MOST_THREADS_KH)


def depth_threads(workload: Workload) -> list[int]:
    """Taps along the depth side by side: one, or all, which read the same dy."""
    taps = workload.kernel[DEPTH] if workload.axes == 3 else 1
    return sorted({1, taps} if taps <= MOST_THREADS_KH else {1})


def cuts(size: int, sizes: list[int]) -> list[int]:
    """Ways to cut ``size``: those of ``sizes``, halves and thirds, where the last piece leaves little idle."""
    some = {cut for cut in (*sizes, size, -(-size // 2), -(-size // 3)) if cut <= min(size, WIDEST_TILE)}
    return sorted({1, *(cut for cut in some if -(-size // cut) * cut <= MOST_PADDED * size)})
