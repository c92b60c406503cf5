"""A row of a race is void unless the kernels that its name promises were launched."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import dwconv
from bench import race
from bench.gpu.race import EFFORT, GpuRacer
from bench.gpu.worker import Refused
from bench.launched import kernels_of, passes_of, roads_of, why_misnamed
from bench.networks import where_layers_run
from bench.race import Race, Raced
from dwconv import native
from dwconv.kernels import build
from dwconv.kernels.kernel import Kernel
from dwconv.measure.clock.device import CudaClock
from dwconv.measure.requests import MeasureSetup
from dwconv.measure.step_share import convolution_kind, profiled, ratio_at_most, timed_on_gpu
from dwconv.measure.verify.cases import make_case
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, templates_for
from tests.standin.on_gpu.kernels import default, plant, target
from tests.standin.on_gpu.models import WORKLOADS, data, loss_of, network

WORKLOAD = Workload(
    pass_="wgrad", batch=6, channels=16, input_size=(8, 8), kernel=(3, 3), padding=((1, 1), (1, 1)), layout="nhwc"
)
FPROP = Workload(
    pass_="fprop", batch=2, channels=8, input_size=(9, 9), kernel=(3, 3), padding=((1, 1), (1, 1)), layout="nchw"
)


def test_kernels_are_seen_called_and_in_a_graph() -> None:
    kernel = default(WORKLOAD, "cuda.wgrad_nhwc")
    inputs = make_case(WORKLOAD, data="integers", device="cuda").inputs
    own = Counter(launch.kernel for launch in kernel.artifact.launches)
    assert len(own) > 1
    with torch.inference_mode():
        assert kernels_of(lambda: kernel(*inputs), device="cuda") == own
        captured = CudaClock().ready(lambda: kernel(*inputs))
        assert kernels_of(captured, device="cuda") == Counter(
            {name: count * captured.count for name, count in own.items()}
        )
    assert kernels_of(lambda: None, device="cuda") == Counter()
    x, w = inputs[0], torch.ones(16, 1, 3, 3, device="cuda")
    theirs = kernels_of(lambda: F.conv2d(x, w, groups=16), device="cuda")
    assert theirs and not theirs.keys() & own.keys()


class _Plain(Kernel):
    """Right wherever it is verified; called, it is PyTorch's own."""

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        x, w = inputs
        return F.conv2d(x, w, None, padding=1, groups=8)


class _NotCaptured(Kernel):
    """Runs where no graph sees it: nothing is captured, and a replay takes no time."""

    def __call__(self, *inputs: torch.Tensor) -> object:
        return None if torch.cuda.is_current_stream_capturing() else super().__call__(*inputs)


plain, not_captured = _Plain.load, _NotCaptured.load


def raced(load: str) -> Raced | Refused:
    candidate = Candidate(FPROP, _config())
    request = Race(candidate=candidate, caches=("warm", "cold"), effort=dataclasses.replace(EFFORT, budget_s=0.0))
    answer = GpuRacer(MeasureSetup(target=target(), load=load))(request)
    assert not isinstance(answer, dict)
    return answer


@pytest.mark.parametrize(("load", "seen"), [("plain", "at::native"), ("not_captured", "nothing was")])
def test_our_row_fails_where_our_kernel_was_not_launched(load: str, seen: str) -> None:
    answer = raced(f"tests.standin.on_gpu.test_launched:{load}")
    assert isinstance(answer, Refused) and not answer.broken
    assert seen in answer.reason.partition("× should have been launched, ")[2]


def test_a_provider_that_runs_our_kernel_does_not_race(monkeypatch: pytest.MonkeyPatch) -> None:
    usual: Callable[..., object] = race.providers

    def planted(workload: Workload, inputs: list[torch.Tensor], **how: object) -> object:
        ours = Kernel.load(build(Candidate(FPROP, _config()), target()))
        own = race.Provider(name="cudnn-planted", make=lambda given: partial(ours, *given))
        idle = race.Provider(name="aten-idle", make=lambda given: lambda: None)
        yield from (own, idle)
        yield from usual(workload, inputs, **how)  # type: ignore[misc]

    monkeypatch.setattr(race, "providers", planted)
    answer = raced("dwconv.kernels.kernel:Kernel.load")
    assert isinstance(answer, Raced)
    assert answer.refused["cudnn-planted"] == "it launched dwconv's main_kernel"
    assert answer.refused["aten-idle"] == "no kernel was launched"
    warm, cold = (answer.times[caches].measurements for caches in ("warm", "cold"))
    assert answer.kernels.keys() == warm.keys() and answer.kernels["dwconv"] == ("main_kernel",)
    assert {"dwconv", "aten-nchw"} <= warm.keys() and not answer.refused.keys() & cold.keys()


def _config() -> Config:
    return templates_for(FPROP, target())[0].space(FPROP, target()).default


def test_a_step_is_looked_at_for_the_kernels_of_its_layers(logs: Path) -> None:
    plant(logs / "log.jsonl", WORKLOADS)
    plain_model, x = network().to("cuda"), data(0).to("cuda")
    model = dwconv.convert(network().to("cuda"))
    loss_of(model, x).backward()
    layers = where_layers_run(model, x)
    assert layers == {"fprop dwconv": 2, "dgrad dwconv": 1, "wgrad dwconv": 2}

    def step(of: torch.nn.Module) -> None:
        loss_of(of, x).backward()

    assert why_misnamed(partial(step, model), layers, on_gpu=True) == ""
    assert passes_of(partial(step, plain_model), on_gpu=True) == Counter()
    told = why_misnamed(partial(step, plain_model), layers, on_gpu=True)
    assert told == "dwconv's kernels ran fprop 0 of 2 times, dgrad 0 of 1 times, wgrad 0 of 2 times"


def test_the_time_of_a_step_is_that_of_its_kernels(logs: Path) -> None:
    plant(logs / "log.jsonl", WORKLOADS)
    model, x = dwconv.convert(network().to("cuda")), data(0).to("cuda")
    loss_of(model, x).backward()
    of_kernels = profiled(lambda: loss_of(model, x).backward(), kind=convolution_kind, on_gpu=True)
    assert of_kernels["depthwise fprop"] > 0 and of_kernels["depthwise backward"] > 0
    assert ratio_at_most(of_kernels) > 1
    captured = dwconv.graphed(copy.deepcopy(model), x, seconds=0)
    eager, graphs = (timed_on_gpu(lambda each=each: loss_of(each, x).backward()) for each in (model, captured))
    assert min(eager.kernels_ms, eager.host_ms) > 0 and eager.step_ms >= eager.host_ms and 0 < eager.busy <= 1
    assert graphs.launches >= eager.launches > len(WORKLOADS), "those of a graph are seen, too"


def test_the_roads_of_layers_are_in_the_history_of_a_step(logs: Path) -> None:
    plant(logs / "log.jsonl", WORKLOADS)
    model, x = dwconv.convert(network().to("cuda")), data(0).to("cuda")
    loss_of(model, x).backward()
    road = "Python" if native.module is None else "C++"
    assert roads_of(loss_of(model, x)) == {road: len(WORKLOADS)}
    assert roads_of(loss_of(network().to("cuda"), x)) == {"PyTorch's op": len(WORKLOADS)}
