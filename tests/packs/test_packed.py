"""What loaded packs have brought, and which of them comes first."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.nn import functional as F

from dwconv import settings
from dwconv.call import process_kernels
from dwconv.dispatch import decide, loaded_packs, of_problem
from dwconv.dispatch.kernel_state import KernelState
from dwconv.dispatch.loaded_packs import PackedKernels
from dwconv.kernels import cache, compiled_for
from dwconv.kernels.artifact import Argument, Artifact, Extent
from dwconv.kernels.load_cpu import can_load_libraries
from dwconv.problems.block import Block
from dwconv.problems.problem import Problem
from dwconv.problems.target import (
    FORCED_VECTOR_SETS,
    cpu_target,
    pack_target,
    parse_target,
    target_of_vector_set,
    vector_set_of,
)
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, fitting, templates_for
from dwconv.system.cpu_facts import cpu_facts
from dwconv.untuned import every_layer
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
    loaded_packs.add(pack, digest=name)


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
    assert [target for target in (CPU, GPU) if loaded_packs.artifact_of(Candidate(WORKLOAD, CONFIG), target)] == on
    if not measured:
        assert [target for target in (CPU, GPU) if loaded_packs.unmeasured(WORKLOAD, target)] == on


def test_the_pack_that_was_loaded_last_goes_first_also_if_it_was_loaded_before():
    add("one", WORKLOAD)
    add("other", WORKLOAD)
    assert loaded_packs.artifact_of(Candidate(WORKLOAD, CONFIG), CPU) == "other"
    add("one", WORKLOAD)
    assert loaded_packs.artifact_of(Candidate(WORKLOAD, CONFIG), CPU) == "one"
    assert loaded_packs.logs() == [Path("one/records.jsonl"), Path("other/records.jsonl")]


def test_of_unmeasured_kernels_the_one_for_the_nearest_batch_size_runs():
    other = planted_records.workload_of(shape=(8, 8, 9, 9))
    add("measured", at_batch(8))
    assert loaded_packs.unmeasured(at_batch(8), CPU) is None
    add("computed", at_batch(1), at_batch(16), at_batch(64), other, measured=False)
    found = [loaded_packs.unmeasured(at_batch(batch), CPU) for batch in (1, 2, 8, 100)]
    assert [each.workload.batch if each else None for each in found] == [1, 1, 16, 64]
    assert loaded_packs.unmeasured(planted_records.workload_of(shape=(8, 8, 12, 12)), CPU) is None


def test_one_that_cannot_be_loaded_is_not_tried_again():
    target = cpu_target()
    add("computed", WORKLOAD, device=target.device, measured=False)
    assert decide.decide(WORKLOAD, "cpu").provider == "dwconv"
    state = KernelState(broken={Candidate(WORKLOAD, CONFIG): "it cannot be loaded"})
    assert decide.decide_on(target, WORKLOAD, state=state).provider == "pytorch"


def for_every_layer(*, only_raced: bool) -> Workload:
    """A pack with a kernel of any size and channels; a workload that it runs."""
    workload = planted_records.workload_of(shape=(8, 32, 20, 20))
    candidate = Candidate(dataclasses.replace(workload, channels=64, any_size=True, any_channels=True), CONFIG)
    least = Argument("workspace", "float32", (Extent(over=16, of="c"),))
    artifact = Artifact(candidate=candidate, kind="cpu", source="", arguments=(least,))
    loaded_packs.add(
        PackedKernels(
            device="neon", measured=False, only_raced=only_raced, tvm="1", artifacts={candidate: artifact}, records=(),
            log=Path("every"),
        ),
        digest="every",
    )  # fmt: skip
    return workload


def test_a_kernel_for_every_layer_runs_by_what_was_measured_at_the_nearest_size():
    workload = for_every_layer(only_raced=True)
    faster, slower = (workload.with_input_size(size) for size in ((40, 40), (10, 10)))
    known = Database.of(
        [
            planted_records.record_of(faster, config=CONFIG, device=CPU.device),
            planted_records.record_of(slower, config=CONFIG, device=CPU.device, baseline_us=20.0),
            planted_records.record_of(workload.for_pass("dgrad").with_input_size((9, 9)), device=CPU.device),
        ]
    )

    def runs(workload: Workload, *, known: Database = known) -> str:
        return decide.decide_on(CPU, workload, known=known, predicts=False).provider

    assert [runs(workload.with_input_size((size, 33))) for size in (40, 39, 12, 9)] == ["dwconv"] * 2 + ["pytorch"] * 2
    assert runs(faster, known=Database.of([])) == "pytorch", "no race has found it faster"
    assert runs(workload.for_pass("dgrad").with_input_size((8, 8))) == "pytorch", "the pack has no dgrad"


def test_a_kernel_for_every_layer_takes_no_fewer_channels_than_a_vector_has():
    workload = for_every_layer(only_raced=False)
    found = {
        count: loaded_packs.unmeasured(dataclasses.replace(workload, channels=count), CPU) for count in (15, 16, 17)
    }
    assert [count for count, kernel in found.items() if kernel] == [16, 17]
    assert loaded_packs.unmeasured(dataclasses.replace(workload, stride=(2, 2)), CPU) is None
    artifact = loaded_packs.artifact_of(Candidate(dataclasses.replace(workload, channels=40), CONFIG), CPU)
    assert artifact is not None and artifact.arguments[0].shape == (3,)


@pytest.mark.parametrize(
    ("computed", "measured", "is_chosen"),
    [(["backward"], [], True), (["dgrad", "wgrad", "backward"], [], True), (["backward"], ["wgrad"], False)],
)
def test_a_computed_kernel_of_both_gradients_runs_until_one_of_them_is_measured(
    logs, monkeypatch, computed, measured, is_chosen
):
    """It is in the pack because it is computed to be faster than the two."""
    monkeypatch.setattr(of_problem, "target_of", lambda device: GPU)
    add("pack", *(WORKLOAD.for_pass(pass_) for pass_ in computed), device="sm_90", measured=False)
    for workload in map(WORKLOAD.for_pass, measured):
        config = templates_for(workload, GPU)[0].space(workload, GPU).default
        TuningLog(logs / "log.jsonl").append(planted_records.record_of(workload, config=config, device="gpu"))
    found, _ = of_problem.decisions(Problem.of(WORKLOAD), torch.device("cuda"))
    assert ("backward" in found) == is_chosen
    assert [found[pass_].record is not None for pass_ in ("dgrad", "wgrad")] == [False, bool(measured)]


def test_a_kernel_that_a_race_has_built_for_every_layer_runs_layers_of_other_channels_and_sizes(tmp_path, monkeypatch):
    """As one of a pack would."""
    if not can_load_libraries() or settings.program(settings.linker()) is None:
        pytest.skip("nothing links a library here")
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path))
    target = cpu_target()
    loaded_packs.forget()
    layers = [planted_records.workload_of(shape=(2, *sizes)) for sizes in ((40, 11, 9), (64, 6, 13))]
    kernels = every_layer.for_layer(layers[0], target)
    assert kernels == every_layer.for_layer(layers[1], target) and kernels, "one build serves both"
    assert loaded_packs.configs_for(layers[0], target) == []
    cache.build_for_race(kernels[0], target)
    loaded_packs.note_built()
    for layer in layers:
        assert loaded_packs.configs_for(layer, target) == [kernels[0].config]
        candidate = Candidate(layer.with_any_size(), kernels[0].config)
        artifact = loaded_packs.artifact_of(candidate, target)
        assert artifact is not None and artifact.candidate == candidate
        kernel = process_kernels.load(candidate, target, torch.device("cpu"))
        for size in (layer.input_size, (9, 20)):
            x = torch.randn(3, layer.channels, *size).to(memory_format=torch.channels_last)
            w = torch.randn(layer.channels, 1, 3, 3)
            y = kernel.any_size.at(kernel.workload.with_input_size(size))(x, w)
            torch.testing.assert_close(y, F.conv2d(x, w, padding=1, groups=layer.channels), rtol=1e-4, atol=1e-4)
    for few in (3, 9):
        fewer = dataclasses.replace(layers[0], channels=few)
        assert loaded_packs.configs_for(fewer, target) == [], "fewer than a vector: others run those"
    loaded_packs.forget()
    assert loaded_packs.configs_for(layers[1], target) == [kernels[0].config], "the next process has it"


@pytest.mark.parametrize(
    ("change", "target"),
    [
        ({"block": Block.parse("bn+relu,bn"), "pass_": "forward"}, GPU),
        ({"epilogue": "silu"}, CPU),
        ({"channels": 3}, CPU),
        ({"multiplier": 2}, GPU),
    ],
)
def test_some_layers_have_no_kernel_for_every_layer(change, target):
    workload = dataclasses.replace(planted_records.workload_of(shape=(2, 40, 11, 9)), **change)
    assert every_layer.for_layer(workload, target) == []


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize(("channels", "multiplier"), [(5, 1), (9, 1), (15, 1), (40, 2), (3, 2), (24, 3)])
def test_few_channels_and_multipliers_have_one_that_the_layers_alike_share(pass_, bias, layout, channels, multiplier):
    layer = planted_records.workload_of(
        shape=(2, channels, 21, 19), multiplier=multiplier, layout=layout, bias=bias
    ).for_pass(pass_)
    target = dataclasses.replace(CPU, vector_bytes=64, device="some-avx512-2t", present=False)
    few = every_layer.has_few_channels(layer, target)
    assert few == (layout == "nhwc" and (channels if pass_ == "dgrad" else channels * multiplier) < 16)
    if pass_ == "dgrad" and layout == "nhwc" and channels < 4:
        assert every_layer.for_layer(layer, target) == []
        return
    (found,) = every_layer.for_layer(layer, target)[:1]
    assert found.workload.layer_kind == layer.layer_kind and "threads" not in found.config.to_dict()
    like = dataclasses.replace(layer, channels=layer.channels + (0 if few else 1), input_size=(40, 7))
    assert every_layer.for_layer(like, target)[0] == found
    assert few == (found.workload.result_channels < 16)


@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("threads", [1, 2, 3, 64])
def test_what_a_race_builds_is_legal_and_the_same_on_any_number_of_threads(pass_, layout, threads):
    """As its pack has it; a configuration for this very machine is compiled for this machine."""
    layer = planted_records.workload_of(shape=(2, 40, 21, 19), layout=layout, pass_=pass_)
    target, other = cpu_target(threads=threads), cpu_target(threads=threads + 1)
    raced = every_layer.for_layer(layer, target)
    assert raced and raced == every_layer.for_layer(layer, other)
    for each in every_layer.all_for_layer(layer, target):
        found = compiled_for(each, target)
        space = fitting(each.config.template, each.workload, found).space(each.workload, found)
        space.check(each.config.to_dict())
        if each in raced:
            assert found == (pack_target(target) or target) and compiled_for(each, other) == found
            assert cache._path(each, target, suffix="library") == cache._path(each, other, suffix="library")


@pytest.mark.parametrize("name", [each for each in FORCED_VECTOR_SETS if cpu_facts().has(each)])
def test_each_set_of_vectors_has_the_pack_of_its_own(name):
    target = cpu_target(vector_set=name)
    assert vector_set_of(target) == vector_set_of(target_of_vector_set(name)) == name
    assert pack_target(target) == target_of_vector_set(name)


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("pass_", ["fprop", "dgrad", "wgrad"])
def test_dilated_and_unpadded_layers_have_one(dilation, padding, pass_):
    layer = planted_records.workload_of(shape=(2, 40, 21, 19), padding=padding)
    workload = dataclasses.replace(layer, dilation=(dilation,) * 2).for_pass(pass_)
    found = every_layer.for_layer(workload, CPU)
    assert found and all(each.workload.layer_kind == workload.layer_kind for each in found)
