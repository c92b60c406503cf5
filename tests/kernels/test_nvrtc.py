"""NVRTC, called directly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from dwconv import settings
from dwconv.errors import BrokenInstallation, BuildError
from dwconv.kernels import nvrtc
from dwconv.kernels.entry import write_entry
from dwconv.kernels.sass import disassemble
from dwconv.system import versions
from tests.machine_code import instructions
from tests.schedules.test_pinned import CUDA, on_cuda
from tests.turns import slow

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


def test_arithmetic_is_ieee_without_fast_math() -> None:
    """A correctly rounded division takes many instructions; an approximate one takes a handful."""
    source = 'extern "C" __global__ void d(float* y) { *y = 1.0f / *y + *y; }'
    ieee, fast = (
        instructions(disassemble(nvrtc.compile_cubin(source, arch="sm_90", fast_math=fast_math).cubin)["d"])
        for fast_math in (False, True)
    )
    assert len(ieee) > len(fast) + 8
    assert any(".FTZ" in instruction for instruction in fast)


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that NVRTC compiled, in order; the others were found on disk, in a cache that starts empty."""
    sources: list[str] = []
    compile_ = nvrtc._compile

    def count(nvrtc: object, source: str, *rest: object, **named: str) -> nvrtc.Compiled:
        sources.append(source)
        return compile_(nvrtc, source, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path))
    monkeypatch.setattr(nvrtc, "_compile", count)
    return sources


def test_what_was_compiled_is_found_again(compiled: list[str]) -> None:
    first, second = (nvrtc.compile_cubin(COPY, arch="sm_90") for _ in range(2))
    assert first == second and len(compiled) == 1
    for arch, fast_math in (("sm_80", False), ("sm_90", True)):
        nvrtc.compile_cubin(COPY, arch=arch, fast_math=fast_math)
    nvrtc.compile_cubin(COPY + " ", arch="sm_90")
    assert len(compiled) == 4


def test_something_else_in_place_of_a_cubin_is_compiled_again(compiled: list[str]) -> None:
    nvrtc.compile_cubin(COPY, arch="sm_90")
    (entry,) = (settings.cache_folder() / "cubins").iterdir()
    write_entry(entry, {"cubin": b"wrong"})
    nvrtc.compile_cubin(COPY, arch="sm_90")
    assert len(compiled) == 2


def test_the_error_names_the_first_complaint() -> None:
    with pytest.raises(BuildError, match=r"sm_90: .*missing_name"):
        nvrtc.compile_cubin('extern "C" __global__ void k() { missing_name = 1; }', arch="sm_90")


@pytest.fixture
def chosen_anew() -> Iterator[None]:
    nvrtc.library.cache_clear()
    yield
    nvrtc.library.cache_clear()


@pytest.mark.usefixtures("chosen_anew")
@pytest.mark.parametrize(("pytorch", "extra"), [(None, "cuda"), (12, "cuda12")])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, pytorch: int | None, extra: str) -> None:
    def missing(cuda: int) -> nvrtc.Nvrtc:
        raise OSError(f"libnvrtc.so.{cuda}: no such file")

    monkeypatch.setattr(nvrtc, "Nvrtc", missing)
    monkeypatch.setattr(versions, "cuda_of_pytorch", lambda: pytorch)
    needed = rf"libnvrtc.so.{pytorch or 13}: no such file\); run: pip install 'dwconv\[{extra}\]'"
    with pytest.raises(BrokenInstallation, match=needed):
        nvrtc.compile_cubin(COPY, arch="sm_90")


# -- two of them ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("chosen_anew")
@pytest.mark.parametrize(
    ("pytorch", "here", "chosen"), [(12, (12, 13), 12), (13, (12, 13), 13), (None, (12, 13), 13), (12, (13,), 13)]
)
def test_it_is_the_one_of_pytorchs_cuda(
    monkeypatch: pytest.MonkeyPatch, pytorch: int | None, here: tuple[int, ...], chosen: int
) -> None:
    def found(cuda: int) -> int:
        if cuda not in here:
            raise OSError
        return cuda

    monkeypatch.setattr(nvrtc, "Nvrtc", found)
    monkeypatch.setattr(versions, "cuda_of_pytorch", lambda: pytorch)
    assert nvrtc.library() == chosen


@pytest.mark.parametrize(("line", "cuda"), [("None", None), ("'12.8'", 12), ('"13.0"', 13)])
def test_pytorchs_cuda_is_read_without_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, cuda: int | None
) -> None:
    (tmp_path / "version.py").write_text(f"__all__ = ['cuda', 'hip']\ncuda: Optional[str] = {line}\nhip = None\n")
    there = ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: there)
    assert versions.cuda_of_pytorch.__wrapped__() == cuda


@pytest.fixture
def twelve(monkeypatch: pytest.MonkeyPatch) -> nvrtc.Nvrtc:
    try:
        found = nvrtc.Nvrtc(12)
    except OSError as error:
        pytest.skip(f"nvidia-cuda-nvrtc-cu12 is missing: {error}")
    monkeypatch.setattr(nvrtc, "library", lambda: found)
    return found


@pytest.mark.parametrize("cuda", [12, 13])
def test_what_it_compiles_with_is_loaded_with_it(cuda: int) -> None:
    """Else NVRTC 13.0 looks for it where the system has its libraries, unless PyTorch was imported before."""
    looks = "import ctypes, sys; from dwconv.kernels.nvrtc import Nvrtc"
    find = "here = Nvrtc(int(sys.argv[1])); name = '.'.join(map(str, here.version))"
    done = subprocess.run(
        [sys.executable, "-c", f"{looks}; {find}; ctypes.CDLL(f'libnvrtc-builtins.so.{{name}}')", str(cuda)],
        capture_output=True, text=True, timeout=300,
        env={name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_what_one_compiled_is_not_the_others(compiled: list[str], twelve: nvrtc.Nvrtc) -> None:
    nvrtc.compile_cubin(COPY, arch="sm_90")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(nvrtc, "library", lambda: nvrtc.Nvrtc(13))
        nvrtc.compile_cubin(COPY, arch="sm_90")
    assert len(compiled) == 2


OTHER_ARCHS = ("sm_80", "sm_86", "sm_89", "sm_100", "sm_120")


@pytest.mark.parametrize(
    ("names", "archs"), [([*CUDA][::6], ("sm_90",)), slow([*CUDA], ("sm_90", *OTHER_ARCHS))], ids=["some", "all"]
)
def test_cuda_12_compiles_every_pinned_source(twelve: nvrtc.Nvrtc, names: list[str], archs: tuple[str, ...]) -> None:
    for number, name in enumerate(names):
        assert nvrtc.compile_cubin(on_cuda(name), arch=archs[number % len(archs)]).resources["spill_bytes"] == 0


def test_the_report_of_several_kernels_is_that_of_the_neediest() -> None:
    log = """ptxas info    : Function properties for a
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 4800 bytes smem
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 64 registers"""
    assert nvrtc.kernel_resources(log) == {
        "a": {"registers": 40, "shared_bytes": 4800, "spill_bytes": 8, "stack_bytes": 16},
        "b": {"registers": 64, "shared_bytes": 0, "spill_bytes": 0, "stack_bytes": 0},
    }
    assert nvrtc.resources(log) == {"registers": 64, "shared_bytes": 4800, "spill_bytes": 8, "stack_bytes": 16}
