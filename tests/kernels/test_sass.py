"""Reading machine code, on kernels small enough to know it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dwconv.errors import BrokenInstallation, BuildError
from dwconv.kernels import sass
from dwconv.kernels.nvrtc import compile_cubin
from tests.machine_code import count, loops


def code_of(source: str, *, arch: str = "sm_90") -> str:
    """The kernel ``k`` of a source without the words before its name."""
    return sass.disassemble(compile_cubin('extern "C" __global__ void ' + source, arch=arch).cubin)["k"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_the_instructions_of_a_kernel_and_its_loops(arch: str) -> None:
    code = code_of(
        """k(float* y, const float* x, int n) {
          __shared__ float tile[32];
          float sum = 0;
          #pragma unroll 1
          for (int i = 0; i < n; ++i) sum += x[i * 32 + threadIdx.x];
          tile[threadIdx.x] = sum;
          __syncthreads();
          float a = tile[threadIdx.x ^ 1], b = tile[threadIdx.x ^ 2], c = tile[threadIdx.x ^ 4];
          y[threadIdx.x] = fmaf(a, b, fmaf(b, c, fmaf(a, c, a * b)));
        }""",
        arch=arch,
    )
    assert [count(code, words) for words in ("LDG", "STG", "STS", "LDS", "FFMA|FMUL")] == [1, 1, 1, 3, 4]
    assert count(code, "EXIT") >= 1 and count(code, "BAR") == 1
    (inside,) = loops(code)
    assert sum("LDG" in line for line in inside) == 1
    addresses = [int(line.split()[0], 16) for line in code.splitlines() if not line.endswith(":")]
    assert addresses == sorted(set(addresses))


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
    assert "STG" in code_of("k(float* y) { y[threadIdx.x] = 0; }")
