"""Built kernels on disk: found again, and built again when anything about them is not as it was."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dwconv import settings
from dwconv.errors import DwconvWarning
from dwconv.kernels import build, cache
from dwconv.kernels.artifact import Artifact
from dwconv.problems.target import cpu_target, parse_target
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, template

ROOT = Path(__file__).parents[2]
TARGET = cpu_target()
CANDIDATE = Candidate(
    Workload(pass_="fprop", batch=1, channels=4, input_size=(5, 5), kernel=(3, 3)), Config.of("cpu.made_up", tile_w=2)
)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Candidate]:
    """What was built, in order, instead of found."""
    calls: list[Candidate] = []

    def build(candidate: Candidate, target: object) -> Artifact:
        calls.append(candidate)
        return Artifact(candidate=candidate, kind="cpu", source=f"source {len(calls)}", arguments=(), cubin=b"\0\xff")

    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "build", build)
    return calls


def entry() -> Path:
    (found,) = (settings.cache_folder() / "kernels").iterdir()
    return found


def test_the_second_call_finds_what_the_first_built(built):
    first, second = (cache.build_cached(CANDIDATE, TARGET) for _ in range(2))
    assert built == [CANDIDATE]
    assert first == second


def test_what_another_nvrtc_compiled_is_another_entry(built, monkeypatch):
    for version in ([12, 9], [13, 5], [12, 9]):
        monkeypatch.setattr(cache.nvrtc, "library", lambda version=version: SimpleNamespace(version=version))
        cache.build_cached(CANDIDATE, parse_target("cuda:sm_90"))
        cache.build_cached(CANDIDATE, TARGET)
    assert len(built) == 3, "one for each NVRTC, and the CPU's"


def test_another_config_target_or_source_is_another_entry(built, monkeypatch):
    cache.build_cached(CANDIDATE, TARGET)
    cache.build_cached(dataclasses.replace(CANDIDATE, config=Config.of("cpu.made_up", tile_w=3)), TARGET)
    cache.build_cached(CANDIDATE, cpu_target(threads=TARGET.threads + 1))
    monkeypatch.setattr(cache, "_versions", lambda: {"tvm": "0.28"})
    cache.build_cached(CANDIDATE, TARGET)
    assert len(built) == 4


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-5], lambda data: b"", lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:]]
)
def test_a_torn_or_changed_entry_is_built_again(built, damage):
    cache.build_cached(CANDIDATE, TARGET)
    path = entry()
    path.write_bytes(damage(path.read_bytes()))
    assert cache.build_cached(CANDIDATE, TARGET).source == "source 2"
    assert cache.build_cached(CANDIDATE, TARGET).source == "source 2"
    assert len(built) == 2


def test_a_cache_that_cannot_be_written_is_no_error(built, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "file"))
    with pytest.warns(DwconvWarning, match=r"not kept, and the next process .*: cache=.*file.* cannot be used"):
        assert cache.build_cached(CANDIDATE, TARGET).source == "source 1"
    assert cache.build_cached(CANDIDATE, TARGET).source == "source 2"


def built_elsewhere() -> tuple[str, bool]:
    """Where it is remembered that a kernel, built now, was checked; and whether addresses of this process are in it."""
    target = cpu_target()
    workload = Workload(pass_="wgrad", batch=2, channels=8, input_size=(9, 9), kernel=(3, 3), layout="nhwc", bias=True)
    candidate = Candidate(workload, template("cpu.wgrad_nhwc").space(workload, target).default)
    artifact = build(candidate, target)
    return str(cache._checked_path(artifact, target)), '!"0x' in artifact.source


def test_what_is_remembered_of_a_kernel_is_found_wherever_it_was_built():
    """A search builds its kernels outside of the cache, and remembers those that it confirmed."""
    other = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import built_elsewhere; print(built_elsewhere())"],
        check=True, capture_output=True, text=True, timeout=300, cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )  # fmt: skip
    where, has_addresses = built_elsewhere()
    assert other.stdout.strip() == str((where, has_addresses)) and not has_addresses
