"""Which kernel is built for what a record decides: the one for the size at hand, that of any size, or that for every
layer; and which are checked before training begins."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import dwconv
from dwconv import native, settings
from dwconv.call import background_builds, process_kernels
from dwconv.call.background_worker import BackgroundHandler
from dwconv.call.call_plan import CallPlan, plan_for
from dwconv.dispatch import legality, loaded_packs
from dwconv.kernels import cache
from dwconv.kernels.load_cpu import can_load_libraries
from dwconv.measure.processes import pool
from dwconv.measure.verify import first_use
from dwconv.problems.problem import Problem
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import PASSES, Workload
from dwconv.records.log import TuningLog
from dwconv.schedules.template import Candidate, can_run
from dwconv.untuned import every_layer
from tests.planted_gain import default_of
from tests.planted_records import record_of, workload_of

pytestmark = pytest.mark.usefixtures("threads_as_asked", "no_packs")
CPU = torch.device("cpu")


@pytest.fixture
def wanted(logs, monkeypatch, tmp_path) -> list[background_builds.Wanted]:
    """What would be built in the background; nothing is. Nothing was built before."""
    found: list[background_builds.Wanted] = []
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path))
    monkeypatch.delenv("DWCONV_UNTUNED")
    monkeypatch.setattr(background_builds, "build", lambda wanted, then, **more: found.extend(wanted))
    monkeypatch.setattr(background_builds, "wait", lambda ended: None)
    return found


def plant_of_any_size(logs, layer: Workload) -> None:
    """Kernels of any size of all passes, that were measured to be much faster at the size of ``layer``."""
    for pass_ in PASSES:
        general = layer.for_pass(pass_).with_any_size()
        if not can_run(general, cpu_target()):
            pytest.skip("loads cannot be masked here")
        record = record_of(general, config=default_of(general, cpu_target()), median_us=50.0, baseline_us=1e6)
        TuningLog(logs / "log.jsonl").append(dataclasses.replace(record, confirmed=True))
    dwconv.reset()


def plan_of(layer: Workload) -> CallPlan:
    return plan_for(Problem.of(layer), CPU)


def at(layer: Workload, *size: int) -> Workload:
    return layer.with_input_size(size)


LAYERS = {
    "nhwc": workload_of(shape=(2, 40, 9, 7)),
    "nchw": workload_of(shape=(2, 40, 9, 7), layout="nchw"),
    "bias": workload_of(shape=(2, 40, 9, 7), bias=True),
    "row": workload_of(shape=(2, 40, 1, 20), kernel=(1, 3), padding=(0, 1)),
    "3-D": workload_of(shape=(2, 40, 4, 9, 7), kernel=(3, 3, 3)),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_the_first_size_gets_kernels_of_its_own_and_the_second_those_of_any(wanted, logs, layer):
    """Which take three times as long to build."""
    plant_of_any_size(logs, layer)
    for number, size in enumerate((layer.input_size, tuple(each + (each > 1) for each in layer.input_size))):
        del wanted[:]
        plan = plan_of(at(layer, *size))
        assert plan.is_open and len(wanted) == len(PASSES)
        assert [each.candidate.workload.any_size for each in wanted] == [bool(number)] * len(PASSES)
        assert all(each.built == each.candidate for each in wanted)
        for each in wanted:
            if not number:
                assert each.candidate.workload == layer.for_pass(each.candidate.workload.pass_)
                legality.check(each.candidate, cpu_target(), broken={})


def test_a_kernel_of_any_size_that_is_there_runs_at_the_first_size(wanted, logs, monkeypatch):
    layer = LAYERS["nhwc"]
    plant_of_any_size(logs, layer)
    monkeypatch.setattr(process_kernels, "is_ready", lambda candidate, target, device: candidate.workload.any_size)
    plan = plan_of(layer)
    assert not plan.is_open and wanted == []
    assert all(each.workload.any_size for each in plan.decisions.values())


def test_several_layers_of_a_kind_share_the_kernel_for_every_layer(wanted, logs):
    layer = LAYERS["nhwc"]
    for pass_ in PASSES:
        general = layer.for_pass(pass_).with_any_size()
        config = every_layer.for_layer(layer.for_pass(pass_), cpu_target())[0].config
        record = record_of(general, config=config, median_us=50.0, baseline_us=1e6)
        TuningLog(logs / "log.jsonl").append(dataclasses.replace(record, confirmed=True, raced=True))
    dwconv.reset()
    process_kernels.state.shared_kinds.update(layer.for_pass(pass_).layer_kind for pass_ in PASSES)
    plan_of(layer)
    assert len(wanted) == len(PASSES) and all(each.candidate.workload.any_size for each in wanted)
    assert all(each.built.workload.any_channels for each in wanted)


def test_one_that_is_broken_at_its_size_leaves_that_of_any_size(wanted, logs):
    layer = LAYERS["nhwc"]
    plant_of_any_size(logs, layer)
    own = Candidate(layer, default_of(layer, cpu_target()))
    plan_of(layer)
    (fprop,) = (each.candidate for each in wanted if each.candidate.workload.pass_ == "fprop")
    dwconv.reset()
    process_kernels.state.broken[fprop] = process_kernels.state.broken[own] = "it cannot be built"
    del wanted[:]
    plan_of(layer)
    assert {each.candidate.workload.pass_: each.candidate.workload.any_size for each in wanted} == {
        "fprop": True, "dgrad": False, "wgrad": False
    }  # fmt: skip


def test_what_only_a_kernel_for_every_layer_can_be_is_built_as_that(wanted, logs):
    """Its configuration is none of the layer's own."""
    layer = LAYERS["nhwc"]
    generals = {}
    for pass_ in PASSES:
        workload = layer.for_pass(pass_).with_any_size()
        every = every_layer.for_layer(layer.for_pass(pass_), cpu_target())
        generals[workload] = next((each for each in every if not is_legal(Candidate(workload, each.config))), every[0])
        record = record_of(workload, config=generals[workload].config, median_us=50.0, baseline_us=1e6)
        TuningLog(logs / "log.jsonl").append(dataclasses.replace(record, confirmed=True, raced=True))
    dwconv.reset()
    plan_of(at(layer, 30, 31))
    del wanted[:]
    plan_of(layer)
    built = {each.candidate.workload: each for each in wanted}
    found = {workload: each for workload, each in generals.items() if not is_legal(Candidate(workload, each.config))}
    assert found and all(built[workload].built == general for workload, general in found.items())
    assert all(built[workload].candidate.config == general.config for workload, general in found.items())


def is_legal(candidate: Candidate) -> bool:
    return not legality._why_illegal_at_any_size(candidate, cpu_target())


@pytest.fixture
def handed(logs, monkeypatch, tmp_path) -> list[Candidate]:
    """What is handed to processes that build and check; this one does it. Nothing was built before."""
    found: list[Candidate] = []

    class Pool:
        def __init__(self, *given, **options) -> None:
            self._make = BackgroundHandler(None)

        def map(self, bodies, *, timeout_s):
            found.extend(body.candidate for body in bodies)
            return enumerate(map(self._make, bodies))

        def kill(self) -> None:
            pass

    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path))
    monkeypatch.delenv("DWCONV_UNTUNED")
    monkeypatch.setattr(pool, "Pool", Pool)
    monkeypatch.setattr(native, "leave_out", lambda reason: None)
    return found


@pytest.mark.parametrize(("kind", "pass_"), [("of any size", "dgrad"), ("for every layer", "fprop")])
def test_what_a_race_has_built_is_checked_when_convert_returns(handed, logs, monkeypatch, kind, pass_):
    """Of one of any size a race verifies the sizes of the model alone. No step of training checks the others."""
    if not can_load_libraries() or settings.program(settings.linker()) is None:
        pytest.skip("without a linker each process makes machine code of kernels")
    layer, target = LAYERS["nhwc"], cpu_target()
    general = layer.for_pass(pass_).with_any_size()
    every = every_layer.for_layer(layer.for_pass(pass_), target)[0]
    built = every if kind == "for every layer" else Candidate(general, default_of(general, target))
    record = record_of(general, config=built.config, median_us=50.0, baseline_us=1e6)
    TuningLog(logs / "log.jsonl").append(dataclasses.replace(record, confirmed=True, raced=True))
    cache.build_for_race(built, target)
    loaded_packs.note_built()
    dwconv.reset()
    for _ in range(2):
        background_builds.build_fastest([layer.for_pass(pass_)], target, threads=torch.get_num_threads())
    assert handed == [built], "once"
    monkeypatch.setattr(first_use, "fault_at_first_use", lambda *given, **more: pytest.fail("in a step"))
    plan = plan_of(layer)
    assert plan.decisions[pass_].provider == "dwconv" and plan.kernels[pass_] is not None
