"""NVRTC, called directly."""

from __future__ import annotations

import sys

import pytest

from dwconv.build import nvrtc
from dwconv.errors import BrokenInstallation, BuildError

COPY = 'extern "C" __global__ void copy(float* y, const float* x) { y[threadIdx.x] = x[threadIdx.x]; }'


def test_a_kernel_compiles_without_a_gpu_or_a_toolkit() -> None:
    compiled = nvrtc.compile_cubin(COPY, arch="sm_90")
    assert compiled.cubin.startswith(b"\x7fELF")
    assert 0 < compiled.resources["registers"] < 32
    assert compiled.resources["spill_bytes"] == compiled.resources["stack_bytes"] == 0


def test_static_shared_memory_and_the_stack_are_reported() -> None:
    source = """extern "C" __global__ void mix(float* y, int i) {
      __shared__ float tile[100];
      float own[64];
      for (int k = 0; k < 64; ++k) own[k * i % 64] = y[k];
      tile[threadIdx.x] = own[i] + own[i / 2];
      __syncthreads();
      y[threadIdx.x] = tile[i];
    }"""
    resources = nvrtc.compile_cubin(source, arch="sm_80").resources
    assert resources["shared_bytes"] == 400
    assert resources["stack_bytes"] >= 256


def test_half_precision_headers_are_found() -> None:
    source = '#include <cuda_fp16.h>\nextern "C" __global__ void h(__half* y) { *y = __float2half(1.0f); }'
    assert nvrtc.compile_cubin(source, arch="sm_90").cubin


def test_arithmetic_is_ieee() -> None:
    """A correctly rounded division takes many instructions; an approximate one takes a handful."""
    source = 'extern "C" __global__ void d(float* y) { *y = 1.0f / *y; }'
    assert len(nvrtc.compile_cubin(source, arch="sm_90").cubin) > len(_fast(source))


def _fast(source: str) -> bytes:
    options = nvrtc.OPTIONS
    nvrtc.OPTIONS = ("--std=c++17", "--use_fast_math")  # type: ignore[assignment]
    try:
        return nvrtc.compile_cubin(source, arch="sm_90").cubin
    finally:
        nvrtc.OPTIONS = options


def test_the_first_complaint_is_told() -> None:
    with pytest.raises(BuildError, match=r"sm_90: .*missing_name"):
        nvrtc.compile_cubin('extern "C" __global__ void k() { missing_name = 1; }', arch="sm_90")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name == "cuda" or name.startswith("cuda."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cuda", None)
    with pytest.raises(BrokenInstallation, match=r"pip install 'dwconv\[cuda\]'"):
        nvrtc.compile_cubin(COPY, arch="sm_90")


def test_the_report_of_several_kernels_is_that_of_the_neediest() -> None:
    log = """ptxas info    : Function properties for a
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 4800 bytes smem
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 64 registers"""
    assert nvrtc.resources(log) == {"registers": 64, "shared_bytes": 4800, "spill_bytes": 8, "stack_bytes": 16}
