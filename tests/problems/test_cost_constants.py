"""Constants that were fitted to a device: kept beside its log, used for it alone, and never half read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dwconv.errors import DwconvWarning
from dwconv.kernels.entry import decode, encode
from dwconv.problems.cost_constants import NAMES, CostConstants, constants_file, fitted_constants, write_constants
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.schedules.cuda.gpu.cost import BlockWork, constants_of, price

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)
FITTED = CostConstants(
    memory_gb_per_s=4000.0, cache_gb_per_s=5000.0, clock_ghz=1.5, launch_us=3.0, dram_latency_cycles=600.0,
    bytes_in_flight_per_sm=30_000.0, not_hidden=0.1, alone=0.2,
)  # fmt: skip
DEVICE = "nvidia-made-up"
WORK = BlockWork(
    blocks=1000, threads=128, registers=64, shared_bytes=0, instructions=2e4, fma=4e3, lines=1e3, bank_turns=500,
    dram_bytes=1e8, cache_bytes=2e8, bytes_in_flight=2048, waits=8,
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DWCONV_TUNING_LOGS", str(tmp_path / "log.jsonl"))
    write_constants(tmp_path / constants_file(DEVICE), FITTED, device=DEVICE, candidates=99, workloads=9)
    return tmp_path / constants_file(DEVICE)


def test_what_was_written_is_found_beside_the_log(path: Path) -> None:
    assert fitted_constants(DEVICE) == FITTED and fitted_constants("another") is None


def test_this_machines_gpu_costs_what_was_fitted_to_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = SimpleNamespace(
        name="NVIDIA (R) Made Up", major=9, minor=0, multi_processor_count=132, L2_cache_size=50 << 20,
        shared_memory_per_multiprocessor=228 << 10, shared_memory_per_block_optin=227 << 10,
        max_threads_per_multi_processor=2048,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    here = parse_target("cuda")
    assert isinstance(here, CudaTarget) and here.device == DEVICE and constants_of(here) == FITTED
    assert decode(encode(here)) == here, "workers price with the same"
    path.unlink()
    assert constants_of(parse_target("cuda")) == constants_of(SM_90)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_each_constant_counts(name: str) -> None:
    computed = constants_of(SM_90)
    other = dataclasses.replace(SM_90, fitted=dataclasses.replace(computed, **{name: 1.5 * getattr(computed, name)}))
    slow = dataclasses.replace(WORK, blocks=100_000, waits=100) if name == "dram_latency_cycles" else WORK
    assert price(slow, other).microseconds != price(slow, SM_90).microseconds


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("{", "Expecting"),
        ("[]", "it holds no constants in format 2"),
        ({"format": 1}, "it holds no constants in format 2"),
        ({"device": "another"}, "it is of another"),
        ({"constants": {**dataclasses.asdict(FITTED), "launch_us": -1.0}}, "launch_us=-1.0 cannot be"),
        ({"constants": {**dataclasses.asdict(FITTED), "clock_ghz": float("nan")}}, "clock_ghz=nan cannot be"),
        ({"constants": {**dataclasses.asdict(FITTED), "launch_us": True}}, "launch_us=True cannot be"),
        ({"constants": {**dataclasses.asdict(FITTED), "not_hidden": 0.9}}, "not_hidden=0.9 cannot be"),
        ({"constants": {"launch_us": 2.0}}, "missing"),
        ({"constants": {**dataclasses.asdict(FITTED), "more": 2.0}}, "more"),
    ],
)
def test_a_file_that_is_none_is_named_and_costs_are_computed(path: Path, change: object, why: str) -> None:
    known = json.loads(path.read_text())
    path.write_text(change if isinstance(change, str) else json.dumps({**known, **change}))  # type: ignore[dict-item]
    with pytest.warns(DwconvWarning, match=f"{path.name}: .*{why}.*costs are computed without it: remove it, or fit"):
        assert fitted_constants(DEVICE) is None
