"""Reading machine code, on kernels small enough to know it."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from dwconv.errors import BrokenInstallation, BuildError
from dwconv.kernels import sass
from dwconv.kernels.sass import CLASSES, Code, Instruction

ARCHES = ["sm_80", "sm_90", "sm_120"]


def code_of(source: str, *, arch: str = "sm_90") -> Code:
    """The kernel ``k`` of a source that may leave out the words before its name."""
    return sass.disassemble(sass_of('extern "C" __global__ void ' + source, arch=arch))["k"]


def kinds(code: Code) -> Counter[str]:
    return Counter(instruction.kind for instruction in code.instructions if instruction.base != "NOP")


@pytest.mark.parametrize("arch", ARCHES)
def test_every_instruction_has_its_class(arch: str) -> None:
    code = code_of(
        """k(float* y, const float* x) {
          __shared__ float tile[32];
          tile[threadIdx.x] = x[threadIdx.x];
          __syncthreads();
          float a = tile[threadIdx.x ^ 1], b = tile[threadIdx.x ^ 2], c = tile[threadIdx.x ^ 4];
          y[threadIdx.x] = fmaf(a, b, fmaf(b, c, fmaf(a, c, a * b)));
        }""",
        arch=arch,
    )
    counts = kinds(code)
    assert counts["fma"] == 4
    assert counts["global"] == 2
    assert counts["shared"] == 1 + 3
    assert counts["control"] >= 2  # the barrier, the end
    assert set(counts) <= set(CLASSES)


@pytest.mark.parametrize(("dtype", "header"), [("__half", "cuda_fp16"), ("__nv_bfloat16", "cuda_bf16")])
def test_half_precision_is_converted(dtype: str, header: str) -> None:
    to, back = ("__half2float", "__float2half") if dtype == "__half" else ("__bfloat162float", "__float2bfloat16")
    body = f"k({dtype}* y, const {dtype}* x) {{ int t = threadIdx.x; y[t] = {back}({to}(x[t]) * {to}(x[t + 64])); }}"
    cubin = sass.disassemble(sass_of(f'#include <{header}.h>\nextern "C" __global__ void {body}'))["k"]
    assert kinds(cubin)["fma"] == 1
    assert kinds(cubin)["conversion"] == 3


def sass_of(source: str, *, arch: str = "sm_90") -> bytes:
    from dwconv.kernels.nvrtc import compile_cubin

    return compile_cubin(source, arch=arch).cubin


def test_a_constant_loaded_by_the_multiplier_is_no_multiplication() -> None:
    constant = Instruction(0, "HFMA2.MMA", ("R3", "-RZ", "RZ", "0", "5.9604644775390625e-08"))
    assert constant.kind == "integer"
    assert Instruction(0, "HFMA2.MMA", ("R3", "R4", "R5", "R3")).kind == "fma"


@pytest.mark.parametrize("arch", ARCHES)
def test_loops_are_found(arch: str) -> None:
    code = code_of(
        """k(float* y, const float* x, int n) {
          float sum = 0;
          #pragma unroll 1
          for (int i = 0; i < n; ++i) sum += x[i * 32 + threadIdx.x];
          y[threadIdx.x] = sum;
        }""",
        arch=arch,
    )
    inside = [loop for loop in code.loops if code.instructions[loop[1]].base == "BRA" and loop[0] != loop[1]]
    assert len(inside) == 1
    first, last = inside[0]
    assert sum(i.base == "LDG" for i in code.instructions[first : last + 1]) == 1
    assert first in code.leaders
    assert f"-> {code.instructions[first].address:04x}" in code.text


def test_what_is_no_cubin_is_an_error() -> None:
    with pytest.raises(BuildError, match="nvdisasm"):
        sass.disassemble(b"no cubin")


def test_a_missing_disassembler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass.importlib.util, "find_spec", lambda name: None)
    for name in list(sys.modules):
        if name.startswith("nvidia"):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(BrokenInstallation, match=r"pip install 'dwconv\[cuda\]'"):
        sass.disassemble(b"")


def test_a_disassembler_that_may_not_be_run_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing a wheel loses the bit that makes a file a program: the one on PATH serves."""
    real = sass._nvdisasm()
    packed, own = tmp_path / "cu13" / "bin" / "nvdisasm", tmp_path / "own" / "nvdisasm"
    for file in (packed, own):
        file.parent.mkdir(parents=True)
    packed.write_bytes(b"not a program")
    packed.chmod(0o644)
    own.symlink_to(real)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "cu13")])
    monkeypatch.setattr(sass.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(BrokenInstallation, match="may be run"):
        sass.disassemble(b"")
    monkeypatch.setenv("PATH", str(own.parent))
    assert code_of("k(float* y) { y[threadIdx.x] = 0; }").instructions
