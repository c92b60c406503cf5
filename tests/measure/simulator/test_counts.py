"""What accesses cost, on patterns of which it is known: wavefronts of shared memory, sectors of global memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from dwconv.measure.simulator.machine import Counts
from tests.measure.simulator.sources import kernel, run


def counts(body: str, objects: Path, **other: int) -> Counts:
    ran = run(kernel(body), objects, **other)  # type: ignore[arg-type]
    assert ran.report.clean, ran.report
    return ran.report.counts


def filled(body: str, *, words: int = 4096) -> str:
    """With a tile that is written before, free of conflicts, in words/32 requests of one wavefront."""
    fill = f"  __shared__ alignas(64) float tile[{words}];\n  for (int i = 0; i < {words // 32}; ++i) {{\n"
    return f"{fill}    tile[((i * 32) + t)] = 0.0f;\n  }}\n  __syncthreads();\n{body}"


@pytest.mark.parametrize(
    ("index", "wavefronts"),
    [
        ("t", 1),
        ("0", 1),  # all lanes get the same word
        ("(31 - t)", 1),
        ("(t * 2)", 2),
        ("(t * 3)", 1),
        ("(t * 4)", 4),
        ("(t * 32)", 32),
        ("(t * 33)", 1),
        ("((t / 2) * 32)", 16),
        ("((t % 7) + ((t / 7) * 9))", 2),
        ("((t % 7) + ((t / 7) * 39))", 1),
        ("((t % 7) + ((t / 7) * 32))", 5),
        ("(((t % 8) * 2) + ((t / 8) * 20))", 3),
    ],
)
def test_bank_conflicts(index: str, wavefronts: int, objects: Path) -> None:
    found = counts(filled(f"  y_ptr[t] = tile[{index}];"), objects, threads=32)
    assert found.shared_requests == found.shared_ideal == 128 + 1
    assert found.shared_wavefronts == 128 + wavefronts


@pytest.mark.parametrize(
    ("kind", "index", "wavefronts", "ideal"),
    [
        ("float2", "(t * 2)", 2, 2),
        ("float2", "(t * 4)", 4, 2),
        ("float2", "0", 2, 2),
        ("float4", "(t * 4)", 4, 4),
        ("float4", "(t * 8)", 8, 4),
        ("float4", "(t * 36)", 4, 4),
        ("float4", "(t * 32)", 32, 4),
    ],
)
def test_wide_loads_take_their_lanes_in_groups(
    kind: str, index: str, wavefronts: int, ideal: int, objects: Path
) -> None:
    body = filled(f"  {kind} v = *({kind}*)(tile + {index});\n  y_ptr[t] = v.x + v.y;")
    found = counts(body, objects, threads=32)
    assert (found.shared_wavefronts - 128, found.shared_ideal - 128) == (wavefronts, ideal)


@pytest.mark.parametrize(("index", "wavefronts"), [("t", 1), ("(t * 2)", 1), ("(t * 4)", 2), ("(t * 64)", 32)])
def test_two_halves_share_a_word(index: str, wavefronts: int, objects: Path) -> None:
    body = f"  __shared__ half tile[2048];\n  tile[{index}] = x_ptr[t];\n"
    found = run(kernel(body, element="half"), objects, threads=32, dtype="float16").report.counts
    assert (found.shared_requests, found.shared_wavefronts) == (1, wavefronts)


def test_only_lanes_that_take_part_conflict(objects: Path) -> None:
    body = filled("  if (t < 3) {\n    y_ptr[t] = tile[(t * 32)];\n  }")
    assert counts(body, objects, threads=32).shared_wavefronts == 128 + 3


@pytest.mark.parametrize(
    ("load", "sectors", "ideal"),
    [
        ("x_ptr[t]", 4, 4),
        ("x_ptr[0]", 1, 1),
        ("x_ptr[(t + 1)]", 5, 4),  # misaligned
        ("x_ptr[(t + 8)]", 4, 4),
        ("x_ptr[(t * 2)]", 8, 4),  # every other word
        ("x_ptr[(t * 8)]", 32, 4),
        ("x_ptr[((t % 7) + ((t / 7) * 56))]", 5, 4),
        ("x_ptr[(t / 4)]", 1, 1),
        ("(*(float4*)(x_ptr + (t * 4))).y", 16, 16),
        ("(*(float4*)(x_ptr + (t * 8))).y", 32, 16),
        ("((t < 9) ? x_ptr[t] : 0.0f)", 2, 2),
    ],
)
def test_sectors_of_loads(load: str, sectors: int, ideal: int, objects: Path) -> None:
    if load.startswith("(*"):  # all of the vector is loaded, as on the GPU
        load = load.replace("(*(float4*)", "sum(*(float4*)").replace(").y", ")")
    extra = "__forceinline__ __device__ float sum(float4 v) { return (v.x + v.y) + (v.z + v.w); }"
    ran = run(kernel(f"  y_ptr[t] = {load};", extra=extra), objects, threads=32, size=256)
    found = ran.report.counts
    assert ran.report.clean, ran.report
    assert (found.load_requests, found.load_sectors, found.load_ideal) == (1, sectors, ideal)
    assert (found.store_requests, found.store_sectors, found.store_ideal) == (1, 4, 4)


@pytest.mark.parametrize(("index", "sectors"), [("t", 4), ("(t + 3)", 5), ("(t * 2)", 8), ("(t * 4)", 16)])
def test_sectors_of_stores(index: str, sectors: int, objects: Path) -> None:
    found = counts(f"  y_ptr[{index}] = 0.0f;", objects, threads=32, size=256)
    assert (found.store_requests, found.store_sectors, found.store_ideal) == (1, sectors, 4)
    assert found.load_requests == 0


def test_lanes_are_matched_by_iteration(objects: Path) -> None:
    """The upper half skips the first turn: its second turn belongs to the second of the lower half."""
    body = (
        "  float sum = 0.0f;\n  for (int i = 0; i < 2; ++i) {\n    if ((16 <= t) <= i) {\n"
        "      sum = sum + x_ptr[((i * 32) + t)];\n    }\n  }\n  y_ptr[t] = sum;"
    )
    found = counts(body, objects, threads=32)
    assert (found.load_requests, found.load_sectors) == (2, 2 + 4)


def test_every_warp_and_block_is_counted_alike(objects: Path) -> None:
    body = "  y_ptr[((b * 64) + t)] = x_ptr[((b * 64) + t)];"
    found = counts(body, objects, threads=64, blocks=5, size=320)
    assert (found.blocks, found.load_requests, found.load_sectors) == (5, 10, 40)
    many = counts(body, objects, threads=64, blocks=100, size=6400)
    assert (many.blocks, many.load_requests, many.load_sectors) == (8, 16, 64)


def test_resources_are_whole_percent(objects: Path) -> None:
    found = counts(filled("  y_ptr[t] = tile[(t * 2)] + x_ptr[(t + 1)];", words=1024), objects, threads=32)
    assert found.resources() == {
        "shared_wavefronts_percent": round(100 * 34 / 33),
        "load_sectors_percent": 125,
        "store_sectors_percent": 100,
    }
