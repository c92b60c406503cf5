"""Each fault is planted in a small kernel and found; the same kernel without it is clean."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dwconv.measure.simulator.machine import FaultKind
from tests.measure.simulator.sources import kernel, run

NEIGHBOURS = kernel(
    """\
  __shared__ alignas(64) float tile[68];
  for (int i = 0; i < 2; ++i) {
    if (((i * 64) + t) < 66) {
      float condval;
      if ((1 <= ((i * 64) + t)) && (((i * 64) + t) < 65)) {
        condval = x_ptr[(((i * 64) + t) - 1)];
      } else {
        condval = 0.0f;
      }
      tile[((i * 64) + t)] = condval;
    }
  }
  __syncthreads();
  float sum[1];
  sum[0] = 0.0f;
  for (int k = 0; k < 3; ++k) {
    sum[0] = (sum[0] + tile[(t + k)]);
  }
  y_ptr[t] = sum[0];"""
)


PAIRS = """\
struct alignas(8) pair { unsigned low, high; };
static __device__ pair make_pair(unsigned a, unsigned b) {
  unsigned low = a << 16 | b, high = a * b + 1;
  low = low * 3 ^ high % 7; high = high * 5 ^ low % 11; low = low * 7 ^ high % 13; high = high * 9 ^ low % 17;
  return {low % 1000, high % 1000};
}
""" + kernel(
    """\
  __shared__ alignas(64) unsigned tile[256];
  *(pair*)(tile + 2 * t) = make_pair(t, 1);
  *(pair*)(tile + 2 * t + 128) = make_pair(2, t);
  __syncthreads();
  y_ptr[t] = (float)(tile[127 - t] + tile[255 - t]);"""
)
"""What a function returns is stored at once."""


def without(source: str, part: str, replacement: str = "") -> str:
    assert source.count(part) == 1, part
    return source.replace(part, replacement)


def test_a_good_kernel_is_clean_and_right(objects: Path) -> None:
    ran = run(NEIGHBOURS, objects)
    assert ran.report.clean, ran.report
    x = torch.nn.functional.pad(torch.arange(64.0), (1, 1))
    torch.testing.assert_close(ran.y, x[:-2] + x[1:-1] + x[2:])


@pytest.mark.parametrize(
    ("part", "replacement", "kind"),
    [
        ("", "", None),
        ("  __syncthreads();\n", "", FaultKind.RACE),
        ("2 * t + 128", "2 * t + 192", FaultKind.OUT_OF_BOUNDS),
        ("*(pair*)(tile + 2 * t) =", "if (t < 63) *(pair*)(tile + 2 * t) =", FaultKind.UNINITIALISED),
    ],
)
def test_a_store_of_what_a_function_returns_is_seen(
    part: str, replacement: str, kind: FaultKind | None, objects: Path
) -> None:
    ran = run(without(PAIRS, part, replacement) if part else PAIRS, objects)
    assert [fault.kind for fault in ran.report.faults][:1] == ([kind] if kind else [])


@pytest.mark.parametrize(
    ("fault", "part", "replacement", "kind", "where"),
    [
        ("removed barrier", "  __syncthreads();\n", "", FaultKind.RACE, "tile"),
        ("shifted index", "x_ptr[(((i * 64) + t) - 1)]", "x_ptr[(((i * 64) + t) - 2)]", FaultKind.OUT_OF_BOUNDS, "x"),
        ("dropped guard", "(1 <= ((i * 64) + t)) && ", "", FaultKind.OUT_OF_BOUNDS, "x"),
        ("short tile", "tile[68]", "tile[65]", FaultKind.OUT_OF_BOUNDS, "tile"),
        ("missing tail", "i < 2", "i < 1", FaultKind.UNINITIALISED, "tile"),
        ("write past the end", "y_ptr[t]", "y_ptr[(t + 1)]", FaultKind.OUT_OF_BOUNDS, "y"),
        ("all write one", "y_ptr[t]", "y_ptr[(t / 2)]", FaultKind.RACE, "y"),
        ("write to an input", "y_ptr[t]", "x_ptr[t]", FaultKind.INPUT_CHANGED, "x"),
        ("reads the result", "y_ptr[t] = ", "y_ptr[t] = y_ptr[t] + ", FaultKind.UNINITIALISED, "y"),
        ("far away", "y_ptr[t]", "y_ptr[(t + 50000000)]", FaultKind.OUT_OF_BOUNDS, "y"),
        ("a wild pointer", "y_ptr[t]", "*(float*)(0x1000 + t)", FaultKind.OUT_OF_BOUNDS, "unknown memory"),
        ("local array", "sum[0] + tile", "sum[k] + tile", FaultKind.OUT_OF_BOUNDS, "a local array"),
        ("some threads leave", "  __sync", "  if (t == 63) return;\n  __sync", FaultKind.DIVERGENCE, "barrier"),
        ("some threads skip", "__syncthreads();", "if (t < 63) { __syncthreads(); }", FaultKind.DIVERGENCE, "barrier"),
        (
            "two barriers",
            "__syncthreads();",
            "if (t < 32) {\n__syncthreads();\n} else {\n__syncthreads();\n}",
            FaultKind.DIVERGENCE,
            "barrier",
        ),
    ],
)  # fmt: skip
def test_planted(fault: str, part: str, replacement: str, kind: FaultKind, where: str, objects: Path) -> None:
    source = without(NEIGHBOURS, part, replacement)
    ran = run(source, objects)
    first = ran.report.faults[0]
    assert (first.kind, first.where) == (kind, where), ran.report
    if kind is not FaultKind.DIVERGENCE:
        assert first.text and first.line == source.splitlines().index(next(
            line for line in source.splitlines() if line.strip() == first.text
        )) + 1  # fmt: skip


def test_a_barrier_that_comes_too_often_for_some(objects: Path) -> None:
    source = kernel(
        "  for (int i = 0; i < (t + 64) / 64 + (t / 32); ++i) {\n    __syncthreads();\n  }\n  y_ptr[t] = 0.0f;"
    )
    assert run(source, objects).kinds == {FaultKind.DIVERGENCE}


def test_an_unset_local_variable_does_not_look_right(objects: Path) -> None:
    source = without(NEIGHBOURS, "  sum[0] = 0.0f;\n")
    assert run(source, objects).y.abs().min() > 1e30


@pytest.mark.parametrize(("second", "kind"), [("w_ptr[t]", None), ("w_ptr[(t + 64)]", FaultKind.OUT_OF_BOUNDS)])
def test_only_some_threads(second: str, kind: FaultKind | None, objects: Path) -> None:
    source = kernel(f"  if (t < 7) {{\n    y_ptr[t] = {second};\n  }}")
    assert run(source, objects).kinds == ({kind} if kind else set())


def test_the_cause_is_not_lost_among_the_consequences(objects: Path) -> None:
    reads = "\n".join(f"  sum = sum + tile[(63 - t)] * {i}.0f + tile[((t + {i}) % 64)];" for i in range(40))
    body = f"  __shared__ float tile[64];\n  float sum = 0.0f;\n  tile[t] = x_ptr[t];\n{reads}\n  y_ptr[t] = sum;"
    report = run(kernel(body), objects).report
    assert report.faults[0].kind is FaultKind.RACE and len(report.faults) < 24


# -- several blocks and several kernels ------------------------------------------------------------------------------


def test_blocks_may_not_touch_what_another_writes(objects: Path) -> None:
    body = "  y_ptr[((b * {}) + t)] = x_ptr[t];"
    assert run(kernel(body.format(32)), objects, threads=32, blocks=2).report.clean
    ran = run(kernel(body.format(31)), objects, threads=32, blocks=2)
    assert ran.kinds == {FaultKind.RACE}
    assert "another block" in ran.report.faults[0].detail
    source = kernel("  workspace_ptr[((b * 32) + t)] = x_ptr[t];\n  y_ptr[((b * 32) + t)] = workspace_ptr[t];")
    assert run(source, objects, threads=32, blocks=2).kinds == {FaultKind.RACE}


@pytest.mark.parametrize("writer", [0, 1])
def test_a_block_may_not_write_what_another_read_even_if_it_read_it_itself(writer: int, objects: Path) -> None:
    first = kernel("  workspace_ptr[((b * 32) + t)] = x_ptr[t];")
    body = "  y_ptr[((b * 32) + t)] = workspace_ptr[t];\n{}"
    write = f"  if (b == {writer}) {{\n    workspace_ptr[t] = 0.0f;\n  }}"
    for line, kinds in (("", set()), (write, {FaultKind.RACE})):
        second = kernel(body.format(line), name="second")
        ran = run(first + second, objects, threads=32, blocks=2, kernels=("k", "second"))
        assert ran.kinds == kinds
    assert "another block" in ran.report.faults[0].detail


def test_a_second_kernel_may(objects: Path) -> None:
    first = kernel("  workspace_ptr[((b * 32) + t)] = x_ptr[t];")
    second = kernel("  y_ptr[((b * 32) + t)] = workspace_ptr[t] + workspace_ptr[(32 + t)];", name="second")
    assert run(first + second, objects, threads=32, blocks=2, kernels=("k", "second")).report.clean
    half = without(first, "[((b * 32) + t)]", "[(b + t)]")
    ran = run(half + second, objects, threads=32, blocks=2, kernels=("k", "second"))
    assert ran.kinds == {FaultKind.UNINITIALISED, FaultKind.RACE}


def test_shared_memory_starts_anew_in_every_block(objects: Path) -> None:
    source = kernel(
        "  __shared__ float tile[32];\n  if (b == 0) {\n    tile[t] = x_ptr[t];\n  }\n"
        "  y_ptr[((b * 32) + t)] = tile[t];"
    )
    ran = run(source, objects, threads=32, blocks=2)
    assert ran.kinds == {FaultKind.UNINITIALISED} and ran.report.faults[0].block == 1


def test_a_block_may_go_on_with_what_it_wrote_itself(objects: Path) -> None:
    body = "  workspace_ptr[t] = x_ptr[t];\n{}  y_ptr[t] = workspace_ptr[(63 - t)];"
    assert run(kernel(body.format("  __syncthreads();\n")), objects).report.clean
    assert run(kernel(body.format("")), objects).kinds >= {FaultKind.RACE}


# -- asynchronous copies ---------------------------------------------------------------------------------------------

COPY = """
__forceinline__ __device__ void copy_async(void* dst, int dst_off, void* src, int src_off) {
  unsigned char* dst_p = (unsigned char*)dst + dst_off * 4;
  unsigned char* src_p = (unsigned char*)src + src_off * 4;
  unsigned int dst_addr = __cvta_generic_to_shared(dst_p);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
    :: "r"(dst_addr), "l"(src_p), "n"(4));
}
"""
PIPELINE = kernel(
    """\
  __shared__ float tile[96];
  copy_async(tile, t, x_ptr, t);
  asm volatile("cp.async.commit_group;");
  for (int i = 0; i < 3; ++i) {
    if (i < 2) {
      copy_async(tile, (((i + 1) % 3) * 32) + t, x_ptr, ((i + 1) * 32) + t);
    }
    __asm__ __volatile__("cp.async.commit_group;");
    asm volatile("cp.async.wait_group %0;" :: "n"(1));
    __syncthreads();
    y_ptr[((i * 32) + t)] = tile[((i % 3) * 32) + (31 - t)];
  }""",
    extra=COPY,
)


def test_asynchronous_copies(objects: Path) -> None:
    ran = run(PIPELINE, objects, threads=32, size=96)
    assert ran.report.clean, ran.report
    assert ran.y.tolist() == [i // 32 * 32 + 31 - i % 32 for i in range(96)]


@pytest.mark.parametrize(
    ("part", "replacement", "kind"),
    [
        ('"n"(1));', '"n"(2));', FaultKind.IN_FLIGHT),
        ('    asm volatile("cp.async.wait_group %0;" :: "n"(1));\n', "", FaultKind.IN_FLIGHT),
        ('  asm volatile("cp.async.commit_group;");\n  for', "  for", FaultKind.IN_FLIGHT),
        ("    __syncthreads();\n", "", FaultKind.RACE),
        ("((i + 1) % 3) * 32) + t, x", "(i % 3) * 32) + t, x", FaultKind.IN_FLIGHT),
        ("(i + 1) * 32) + t);", "(i + 2) * 32) + t);", FaultKind.OUT_OF_BOUNDS),
    ],
    ids=["wrong wait_group", "no wait", "no commit", "no barrier", "wrong buffer", "source"],
)
def test_planted_in_a_pipeline(part: str, replacement: str, kind: FaultKind, objects: Path) -> None:
    ran = run(without(PIPELINE, part, replacement), objects, threads=32, size=96)
    assert kind in ran.kinds, ran.report


# -- vectors and 16-bit numbers --------------------------------------------------------------------------------------


def test_vectors_of_floats(objects: Path) -> None:
    source = kernel("  float4 v = *(float4*)(x_ptr + (t * 4));\n  v.y = v.x + v.w;\n  *(float4*)(y_ptr + (t * 4)) = v;")
    ran = run(source, objects, threads=16)
    assert ran.report.clean and ran.y[:4].tolist() == [0, 3, 2, 3]
    shifted = source.replace("x_ptr + (t * 4)", "x_ptr + ((t * 3) + 1)")
    assert run(shifted, objects, threads=16).kinds == {FaultKind.MISALIGNED}


@pytest.mark.parametrize(("dtype", "name"), [("float16", "half"), ("bfloat16", "nv_bfloat16")])
def test_conversions_round_as_torch_does(dtype: str, name: str, objects: Path) -> None:
    """All 65536 numbers come back as they were, and what lies between two goes where PyTorch puts it."""
    kind = getattr(torch, dtype)
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(kind)

    def converted(value: str) -> torch.Tensor:
        body = f"  for (int i = 0; i < 64; ++i) {{\n    y_ptr[((i * 1024) + t)] = ({name})({value});\n  }}"
        source = kernel(body, element=name)
        return run(source, objects, threads=1024, size=65536, dtype=dtype, x=every).y

    value, numbers = "(float)x_ptr[((i * 1024) + t)]", ~every.isnan()
    same, scaled = converted(value), converted(f"({value}) * 1.0009765625f")
    assert torch.equal(same.view(torch.int16)[numbers], every.view(torch.int16)[numbers])
    assert same.isnan().equal(every.isnan())
    expected = (every.float() * 1.0009765625).to(kind)
    assert torch.equal(scaled.view(torch.int16)[numbers], expected.view(torch.int16)[numbers])


def test_dynamic_shared_memory(objects: Path) -> None:
    source = kernel(
        "  extern __shared__ alignas(64) unsigned char all[];\n  ((float*)all)[t] = x_ptr[t];\n  __syncthreads();\n"
        "  y_ptr[t] = ((float*)all)[(63 - t)];"
    )
    assert run(source, objects, shared_bytes=256).report.clean
    ran = run(source, objects, shared_bytes=252)
    assert ran.kinds == {FaultKind.OUT_OF_BOUNDS} and ran.report.faults[0].where == "dynamic shared memory"
    assert run(source, objects).kinds == {FaultKind.OUT_OF_BOUNDS}
