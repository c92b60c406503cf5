"""Built kernels on disk: found again, and built again when anything about them is not as it was."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch

from dwconv import settings
from dwconv.errors import DwconvWarning
from dwconv.kernels import build, cache, entry
from dwconv.kernels.artifact import Argument, Artifact, Extent
from dwconv.measure.requests import MeasureAnswer, Tried
from dwconv.problems.target import cpu_target, parse_target
from dwconv.problems.workload import Workload
from dwconv.records.record import AtSize, Measurement, Verdict
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


def only_entry() -> Path:
    (found,) = (settings.cache_folder() / "kernels").iterdir()
    return found


def test_what_was_built_is_found_until_anything_about_it_changes(built, monkeypatch):
    gpu = parse_target("cuda:sm_90")

    def use_nvrtc(*version: int) -> None:
        monkeypatch.setattr(cache.nvrtc, "library", lambda: SimpleNamespace(version=list(version)))

    for version in ((12, 9), (13, 5), (12, 9)):  # a GPU's is another one with each NVRTC
        use_nvrtc(*version)
        for target in (TARGET, gpu):
            assert cache.build_cached(CANDIDATE, target) == cache.build_cached(CANDIDATE, target)
    assert len(built) == 3
    cache.build_cached(dataclasses.replace(CANDIDATE, config=Config.of("cpu.made_up", tile_w=3)), TARGET)
    cache.build_cached(CANDIDATE, cpu_target(threads=TARGET.threads + 1))
    monkeypatch.setattr(cache, "_versions", lambda: {"tvm": "0.28"})
    cache.build_cached(CANDIDATE, TARGET)
    assert len(built) == 6


def test_gpus_that_run_the_same_kernels_share_them(built, monkeypatch):
    monkeypatch.setattr(cache.nvrtc, "library", lambda: SimpleNamespace(version=[13, 0]))
    any_gpu = parse_target("cuda:sm_90")
    limits = dataclasses.replace(any_gpu.limits, cache_bytes=1 << 20, memory_gb_per_s=1.0)
    here = dataclasses.replace(any_gpu, device="nvidia-made-up", present=True, limits=limits)
    for target in (any_gpu, here):
        assert cache.build_cached(CANDIDATE, target).source == "source 1"
    for change in ({"fast_math": True}, {"sms": 78}, {"shared_bytes_per_block": 48 << 10}, {"arch": "sm_80"}):
        assert cache.name_of(CANDIDATE, dataclasses.replace(here, **change)) != cache.name_of(CANDIDATE, here)


@pytest.mark.parametrize("damage", [lambda data: data[:-5], lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:]])
def test_a_torn_or_changed_entry_is_built_again(built, damage):
    cache.build_cached(CANDIDATE, TARGET)
    path = only_entry()
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
        check=True, capture_output=True, text=True, timeout=1200, cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )  # fmt: skip
    where, has_addresses = built_elsewhere()
    assert other.stdout.strip() == str((where, has_addresses)) and not has_addresses


# -- entries -----------------------------------------------------------------------------------------------------------


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "one"
    entry.write_entry(path, {"bytes": b"\0\xff", "numbers": (1, 2)})
    assert entry.read_entry(path) == {"bytes": b"\0\xff", "numbers": (1, 2)}
    assert entry.read_entry(tmp_path / "absent") is None
    assert entry.key_of("a", ("b",)) == entry.key_of("a", ("b",)) != entry.key_of("a", ("c",))


def test_the_oldest_make_room_and_what_killed_writers_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other file. What another process has removed meanwhile does not stop it."""
    monkeypatch.setattr(entry, "MOST_ENTRIES", 8)
    others = {"extension.lock", "cache-key", "one.cubin"}
    for name in (*others, ".3.kernel.0f.part"):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (0, 0))
    for number in range(7):
        entry.write_entry(tmp_path / f"{number}.kernel", number)
        os.utime(tmp_path / f"{number}.kernel", (number + 1, number + 1))
    stat = Path.stat

    def stat_too_late(path: Path, **named: bool) -> os.stat_result:
        if path.name == "3.kernel":
            path.unlink(missing_ok=True)
        return stat(path, **named)

    monkeypatch.setattr(Path, "stat", stat_too_late)
    entry.write_entry(tmp_path / "new.kernel", 9)
    monkeypatch.undo()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == others | {"new.kernel", *(f"{number}.kernel" for number in (1, 2, 4, 5, 6))}


# -- messages --------------------------------------------------------------------------------------------------------

TIME = Measurement(median_us=1.0, spread_us=0.0, rounds=3)
AT_SIZE = AtSize(input_size=(5, 5), measurement=TIME, providers={"onednn-nhwc": TIME})
RIGHT = Verdict(right=True, max_error=0.0, allowed_error=math.inf)


@pytest.mark.parametrize(
    "value",
    [
        MeasureAnswer(each=(Tried(verdict=RIGHT, times=(AT_SIZE, AT_SIZE)),)),
        MeasureAnswer(),
        Argument("x", "float32", (Extent(), 3, Extent(times=2, over=3))),
        dataclasses.replace(TIME, median_us=2),  # a whole number is a number
        {"plain": (1, "data", None, b"bytes")},
    ],
)
def test_a_message_comes_out_as_it_went_in(value: object) -> None:
    assert entry.decode(entry.encode(value)) == value


@pytest.mark.parametrize(
    "wrong",
    [
        {"@": "MeasureAnswer", "verdict": {"@": "Measurement", "median_us": 1.0, "spread_us": 0.0, "rounds": 3}},
        {"@": "MeasureAnswer", "each": [1.5]},
        {"@": "MeasureAnswer", "each": 1.5},
        {"@": "CheckRequest", "line_up": [{"@": "Verdict", "right": True, "max_error": 0.0, "allowed_error": 0.0}]},
        {"@": "TimeRequest", "artifacts": [], "stage": "for long"},
        {"@": "Measurement", "median_us": "1", "spread_us": 0.0, "rounds": 3},
        {"@": "Measurement", "median_us": 1.0, "spread_us": 0.0, "rounds": True},
        {"@": "Verdict", "right": 1, "max_error": 0.0, "allowed_error": 0.0},
        {"@": "Argument", "name": "x", "dtype": "float32", "shape": [1.5]},
        {"@": "Argument", "name": "x"},
        {"@": "Unheard", "of": 1},
        {"@": ["MeasureAnswer"]},
    ],
)
def test_fields_of_other_types_are_no_message(wrong: object) -> None:
    with pytest.raises(ValueError, match="not a message"):
        entry.decode(msgspec.msgpack.encode(wrong))


def test_endless_nesting_is_no_message() -> None:
    with pytest.raises(ValueError, match="not a message"):
        entry.decode(b"\x91" * 100_000)
