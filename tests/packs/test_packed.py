"""What loaded packs have brought, and which of them is asked first."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from dwconv.dispatch import decide, packed
from dwconv.dispatch.kernel_state import KernelState
from dwconv.dispatch.packed import PackedKernels
from dwconv.problems.problem import Problem
from dwconv.problems.target import cpu_target, parse_target
from dwconv.problems.workload import Workload
from dwconv.records.log import TuningLog
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, templates_for
from tests import planted_records

pytestmark = pytest.mark.usefixtures("no_packs")
CPU = cpu_target(threads=2)
GPU = dataclasses.replace(parse_target("cuda:sm_90"), device="gpu", present=True)
WORKLOAD = planted_records.workload_of(shape=(8, 8, 9, 7))
CONFIG = Config.of("cpu.made_up", block_h=4)


def at_batch(batch: int) -> Workload:
    return dataclasses.replace(WORKLOAD, batch=batch)


def add(name: str, *workloads: Workload, device: str = CPU.device, measured: bool = True) -> None:
    """A pack whose artifacts are its name."""
    artifacts = cast("Any", {Candidate(workload, CONFIG): name for workload in workloads})
    pack = PackedKernels(
        device=device, measured=measured, tvm="1", artifacts=artifacts, records=(), log=Path(name) / "records.jsonl"
    )
    packed.add(pack, digest=name)


@pytest.mark.parametrize(
    ("device", "measured", "on"),
    [
        (CPU.device, True, [CPU]),
        (cpu_target(threads=7).device, True, [CPU]),
        ("other-avx2-2t", True, []),
        ("gpu", True, [GPU]),
        ("sm_90", True, []),
        ("gpu", False, []),
        ("sm_90", False, [GPU]),
    ],
)
def test_kernels_run_on_their_device_alone(device, measured, on):
    add("pack", WORKLOAD, device=device, measured=measured)
    assert [target for target in (CPU, GPU) if packed.artifact_of(Candidate(WORKLOAD, CONFIG), target)] == on
    if not measured:
        assert [target for target in (CPU, GPU) if packed.unmeasured(WORKLOAD, target)] == on


def test_the_pack_that_was_loaded_last_goes_first_also_if_it_was_loaded_before():
    add("one", WORKLOAD)
    add("other", WORKLOAD)
    assert packed.artifact_of(Candidate(WORKLOAD, CONFIG), CPU) == "other"
    add("one", WORKLOAD)
    assert packed.artifact_of(Candidate(WORKLOAD, CONFIG), CPU) == "one"
    assert packed.logs() == [Path("one/records.jsonl"), Path("other/records.jsonl")]


def test_of_kernels_that_nobody_measured_the_one_for_the_nearest_batch_size_runs():
    other = planted_records.workload_of(shape=(8, 8, 9, 9))
    add("measured", at_batch(8))
    assert packed.unmeasured(at_batch(8), CPU) is None
    add("computed", at_batch(1), at_batch(16), at_batch(64), other, measured=False)
    found = [packed.unmeasured(at_batch(batch), CPU) for batch in (1, 2, 8, 100)]
    assert [each.workload.batch if each else None for each in found] == [1, 1, 16, 64]
    assert packed.unmeasured(planted_records.workload_of(shape=(8, 8, 12, 12)), CPU) is None


def test_one_that_cannot_be_loaded_is_not_asked_again():
    target = cpu_target()
    add("computed", WORKLOAD, device=target.device, measured=False)
    assert decide.decide(WORKLOAD, "cpu").provider == "dwconv"
    state = KernelState(broken={Candidate(WORKLOAD, CONFIG): "it cannot be loaded"})
    assert decide.decide_on(target, WORKLOAD, state=state).provider == "pytorch"


@pytest.mark.parametrize(
    ("computed", "measured", "is_chosen"),
    [(["backward"], [], True), (["dgrad", "wgrad", "backward"], [], True), (["backward"], ["wgrad"], False)],
)
def test_a_computed_kernel_of_both_gradients_runs_until_one_of_them_is_measured(
    logs, monkeypatch, computed, measured, is_chosen
):
    """It is in the pack because it is computed to be faster than the two."""
    monkeypatch.setattr(decide, "target_of", lambda device: GPU)
    add("pack", *(WORKLOAD.for_pass(pass_) for pass_ in computed), device="sm_90", measured=False)
    for workload in map(WORKLOAD.for_pass, measured):
        config = templates_for(workload, GPU)[0].space(workload, GPU).default
        TuningLog(logs / "log.jsonl").append(planted_records.record_of(workload, config=config, device="gpu"))
    found, _ = decide.decisions(Problem.of(WORKLOAD), torch.device("cuda"))
    assert ("backward" in found) == is_chosen
    assert [found[pass_].record is not None for pass_ in ("dgrad", "wgrad")] == [False, bool(measured)]
