"""What accesses to shared memory cost, on patterns of which it is known. Tensor cores: right numbers, cut off as on the
least exact GPU, and planted faults that show.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dwconv.measure.simulator.machine import FaultKind, RequestCounts
from tests.measure.simulator.sources import Ran, kernel, run


def counts(body: str, objects: Path, **other: int) -> RequestCounts:
    ran = run(kernel(body), objects, **other)  # type: ignore[arg-type]
    assert ran.report.clean, ran.report
    return ran.report.counts


def filled(body: str, *, words: int = 4096) -> str:
    """With a tile that is written before, free of conflicts, in words/32 requests of one wavefront."""
    fill = f"  __shared__ alignas(64) float tile[{words}];\n  for (int i = 0; i < {words // 32}; ++i) {{\n"
    return f"{fill}    tile[((i * 32) + t)] = 0.0f;\n  }}\n  __syncthreads();\n{body}"


@pytest.mark.parametrize(
    ("kind", "index", "wavefronts", "ideal"),
    [
        ("float", "t", 1, 1),
        ("float", "0", 1, 1),  # all lanes get the same word
        ("float", "(t * 2)", 2, 1),
        ("float", "(t * 33)", 1, 1),
        ("float", "((t / 2) * 32)", 16, 1),
        ("float", "((t % 7) + ((t / 7) * 32))", 5, 1),
        ("float2", "(t * 4)", 4, 2),  # wide loads take their lanes in groups
        ("float2", "0", 2, 2),
        ("float4", "(t * 4)", 4, 4),
        ("float4", "(t * 32)", 32, 4),
    ],
)
def test_bank_conflicts(kind: str, index: str, wavefronts: int, ideal: int, objects: Path) -> None:
    value = {"float": "v", "float2": "v.x + v.y", "float4": "v.x + v.y"}[kind]
    body = filled(f"  {kind} v = *({kind}*)(tile + {index});\n  y_ptr[t] = {value};")
    found = counts(body, objects, threads=32)
    assert found.requests == 128 + 1
    assert (found.wavefronts - 128, found.ideal - 128) == (wavefronts, ideal)


@pytest.mark.parametrize(("index", "wavefronts"), [("(t * 2)", 1), ("(t * 64)", 32)])
def test_two_halves_share_a_word(index: str, wavefronts: int, objects: Path) -> None:
    body = f"  __shared__ half tile[2048];\n  tile[{index}] = x_ptr[t];\n"
    found = run(kernel(body, element="half"), objects, threads=32, dtype="float16").report.counts
    assert (found.requests, found.wavefronts) == (1, wavefronts)


def test_only_lanes_that_take_part_conflict(objects: Path) -> None:
    body = filled("  if (t < 3) {\n    y_ptr[t] = tile[(t * 32)];\n  }")
    assert counts(body, objects, threads=32).wavefronts == 128 + 3


def test_lanes_are_matched_by_iteration(objects: Path) -> None:
    """The upper half skips the first turn: its second turn belongs to the second of the lower half."""
    body = filled(
        "  float sum = 0.0f;\n  for (int i = 0; i < 2; ++i) {\n    if ((16 <= t) <= i) {\n"
        "      sum = sum + tile[(((i * 33) + t) * 2)];\n    }\n  }\n  y_ptr[t] = sum;"
    )
    found = counts(body, objects, threads=32)
    assert (found.requests - 128, found.wavefronts - 128) == (2, 1 + 2)


def test_every_warp_and_block_is_counted_alike(objects: Path) -> None:
    read = "  __syncthreads();\n  y_ptr[((b * 64) + t)] = tile[(63 - t)];"
    body = f"  __shared__ float tile[64];\n  tile[t] = x_ptr[((b * 64) + t)];\n{read}"
    found = counts(body, objects, threads=64, blocks=5, size=320)
    assert (found.blocks, found.requests, found.wavefronts_per_ideal) == (5, 20, 1.0)
    many = counts(body, objects, threads=64, blocks=100, size=6400)
    assert (many.blocks, many.requests) == (8, 32)


EXTRA = """
__forceinline__ __device__ void load_4(uint32_t& r0, uint32_t& r1, uint32_t& r2, uint32_t& r3, uint32_t p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(p) : "memory");
}
__forceinline__ __device__ void load_2(uint32_t& r0, uint32_t& r1, uint32_t p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
    : "=r"(r0), "=r"(r1) : "r"(p) : "memory");
}
__forceinline__ __device__ void load_1(uint32_t& r0, uint32_t p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r0) : "r"(p) : "memory");
}
__forceinline__ __device__ void mma_16(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1,
    uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float c0, float c1, float c2, float c3) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.TYPE.TYPE.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, \
{%10, %11, %12, %13};" : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c0), "f"(c1), "f"(c2), "f"(c3));
}
__forceinline__ __device__ void mma_8(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1,
    uint32_t b0, float c0, float c1, float c2, float c3) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.TYPE.TYPE.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, \
{%7, %8, %9, %10};" : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
    : "r"(a0), "r"(a1), "r"(b0), "f"(c0), "f"(c1), "f"(c2), "f"(c3));
}
"""
PRODUCT = """\
  __shared__ alignas(64) ELEMENT tile[512];
  for (int i = 0; i < 8; ++i) {
    tile[((i * 48) + ((t / 16) * 24) + (t % 16))] = x_ptr[((i * 32) + t)];
  }
  for (int i = 0; i < 4; ++i) {
    tile[(384 + (i * 32) + t)] = x_ptr[(256 + (i * 32) + t)];
  }
  __syncthreads();
  uint32_t a[4];
  uint32_t bb[2];
  float d[4];
  for (int i = 0; i < 4; ++i) {
    d[i] = 1.0f;
  }
  load_4(a[0], a[1], a[2], a[3], __cvta_generic_to_shared(&(tile[(((t % 16) * 24) + ((t / 16) * 8))])));
  load_2(bb[0], bb[1], __cvta_generic_to_shared(&(tile[(384 + ((t % 16) * 8))])));
  mma_16(d[0], d[1], d[2], d[3], a[0], a[1], a[2], a[3], bb[0], bb[1], d[0], d[1], d[2], d[3]);
  for (int i = 0; i < 4; ++i) {
    y_ptr[(((t / 4) + ((i / 2) * 8)) * 8) + ((t % 4) * 2) + (i % 2)] = ((ELEMENT)d[i]);
  }"""
"""y = A · B + 1 of A, 16 × 16, and B, 16 × 8, which x holds one after the other."""
TYPES = {"float16": ("half", "f16"), "bfloat16": ("nv_bfloat16", "bf16")}


def product(body: str = PRODUCT, *, dtype: str = "float16") -> str:
    element, type_ = TYPES[dtype]
    text = kernel(body.replace("ELEMENT", element), element=element, extra=EXTRA.replace("TYPE", type_))
    return f"typedef unsigned uint32_t;\n{text}"


def planted(part: str, replacement: str) -> str:
    assert PRODUCT.count(part) == 1, part
    return PRODUCT.replace(part, replacement)


def ran(body: str, objects: Path, *, dtype: str = "float16", x: torch.Tensor | None = None, threads: int = 32) -> Ran:
    x = torch.randint(-3, 4, (384,), generator=torch.Generator().manual_seed(0)) if x is None else x
    return run(
        product(body, dtype=dtype), objects, threads=threads, size=384, dtype=dtype, x=x.to(getattr(torch, dtype))
    )


def expected(*, depth: int = 16) -> torch.Tensor:
    x = torch.randint(-3, 4, (384,), generator=torch.Generator().manual_seed(0)).float()
    return (x[:256].view(16, 16)[:, :depth] @ x[256:].view(16, 8)[:depth] + 1).flatten()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("depth", [16, 8])
def test_a_product(dtype: str, depth: int, objects: Path) -> None:
    body = PRODUCT
    if depth == 8:
        of_16 = "mma_16(d[0], d[1], d[2], d[3], a[0], a[1], a[2], a[3], bb[0], bb[1]"
        body = body.replace(of_16, "mma_8(d[0], d[1], d[2], d[3], a[0], a[1], bb[0]")
        body = body.replace("load_2(bb[0], bb[1], ", "load_1(bb[0], ").replace(
            "(384 + ((t % 16) * 8))", "(384 + ((t % 8) * 8))"
        )
    found = ran(body, objects, dtype=dtype)
    assert found.report.clean, found.report
    assert torch.equal(found.y[:128].float(), expected(depth=depth))


@pytest.mark.parametrize(
    ("part", "replacement"),
    [
        ("a[0], a[1], a[2], a[3], b", "a[0], a[2], a[1], a[3], b"),
        ("((t % 16) * 24) + ((t / 16) * 8)", "((t / 2) * 24) + ((t % 2) * 8)"),
        ("d[0], d[1], d[2], d[3]);", "d[2], d[3], d[0], d[1] + 1.0f);"),
    ],
    ids=["parts of A", "rows of A", "sums"],
)  # fmt: skip
def test_a_wrong_mapping_gives_wrong_numbers(part: str, replacement: str, objects: Path) -> None:
    found = ran(planted(part, replacement), objects)
    assert found.report.clean, found.report
    assert not torch.equal(found.y[:128].float(), expected())


@pytest.mark.parametrize(
    ("part", "replacement", "kind"),
    [
        ("(384 + ((t % 16) * 8))", "(400 + ((t % 16) * 8))", FaultKind.OUT_OF_BOUNDS),
        ("(384 + ((t % 16) * 8))", "(384 + ((t % 16) * 7))", FaultKind.MISALIGNED),
        ("  __syncthreads();\n", "", FaultKind.RACE),
        ("i < 8", "i < 7", FaultKind.UNINITIALISED),
        ("  mma_16", "  if (t < 31) mma_16", FaultKind.DIVERGENCE),
    ],
    ids=["row out of bounds", "row off a vector", "no barrier", "a row is missing", "a lane is missing"],
)  # fmt: skip
def test_planted(part: str, replacement: str, kind: FaultKind, objects: Path) -> None:
    found = ran(planted(part, replacement), objects)
    assert kind in found.kinds, found.report


def test_a_warp_is_whole_and_at_one_instruction(objects: Path) -> None:
    """Half of the warp comes to another multiplication, which TVM prints as a call of the same function."""
    call = PRODUCT.split("  mma_16")[1].split("\n")[0]
    body = planted(f"  mma_16{call}", f"  if (t < 16) {{\n  mma_16{call}\n  }} else {{\n  mma_16{call}\n  }}")
    assert ran(body, objects).kinds == {FaultKind.DIVERGENCE}
    assert FaultKind.DIVERGENCE in ran(PRODUCT, objects, threads=31).kinds


@pytest.mark.parametrize(("pitch", "turns"), [(24, 4), (16, 8), (64, 32)])
def test_rows_in_the_same_banks_take_turns(pitch: int, turns: int, objects: Path) -> None:
    """Four matrices of eight rows of 16 bytes: four turns, if no two rows of a matrix are in one bank."""
    body = f"""\
  __shared__ alignas(64) half tile[2048];
  for (int i = 0; i < 64; ++i) {{
    tile[((i * 32) + t)] = x_ptr[t];
  }}
  __syncthreads();
  uint32_t a[4];
  load_4(a[0], a[1], a[2], a[3], __cvta_generic_to_shared(&(tile[((t * {pitch}) % 2048)])));
  y_ptr[t] = __ushort_as_half((unsigned short)((a[0] ^ a[1]) ^ (a[2] ^ a[3])));"""
    counts = ran(body, objects).report.counts
    assert (counts.wavefronts - 64, counts.ideal - 64) == (turns, 4)


def test_sums_are_cut_off_as_by_tensor_cores(objects: Path) -> None:
    """Beside 1, products are cut off below 2⁻²⁴, and the sum below 2⁻²³: 1 + 4 · 2⁻²⁵ is 1, 1 + 2 · 2⁻²⁴ is
    more, and 1 + 3 · 2⁻²⁴ is rounded down."""
    x = torch.zeros(384)
    x[256:] = 0.5
    x[[0, 1, 2, 3]] = 2.0**-24
    x[16] = 2.0**-23
    x[[32, 33]] = 2.0**-23
    x[48] = 6 * 2.0**-24
    body = planted("((ELEMENT)d[i])", "((ELEMENT)((d[i] - 1.0f) * 16777216.0f))")
    found = ran(body, objects, x=x)
    assert found.y[:32].view(4, 8)[:, 0].tolist() == [0.0, 0.0, 2.0, 2.0]
