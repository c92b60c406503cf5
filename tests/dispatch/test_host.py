"""On a GPU the host's time counts: a layer whose calls go through Python must win more than its calls cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

import dwconv
from dwconv import native, settings
from dwconv.dispatch.advantage import HOST_IN_PYTHON_US, MIXED_TRANSPOSED_US
from dwconv.dispatch.decision import DispatchDecision
from dwconv.dispatch.of_problem import as_transposed, decisions
from dwconv.problems.problem import Problem
from dwconv.problems.target import CudaTarget, cpu_target, parse_target
from dwconv.problems.workload import LAYOUTS, PASSES, Layout, Pass, Workload
from dwconv.records.log import TuningLog
from dwconv.records.record import TRANSPOSED, Measurement
from dwconv.schedules.template import templates_for
from tests.native_needed import as_in_a_new_process
from tests.planted_records import plant, record_of, workload_of

GPU = parse_target("cuda:sm_90")
assert isinstance(GPU, CudaTarget)
GPU = dataclasses.replace(GPU, device="some-gpu", present=True)
WORKLOAD = workload_of(layout="nhwc", dtype="float16")


def decided(
    logs: Path, ours: Sequence[Pass], pytorch_us: float, *, of: Workload = WORKLOAD
) -> Mapping[Pass, DispatchDecision]:
    """By records in which PyTorch's op takes so long, and our kernels half of it in the passes of ``ours``, twice as
    long in others."""
    for pass_ in PASSES if "backward" not in ours else (*PASSES, "backward"):
        workload = of.for_pass(pass_)
        template, *_ = (each for each in templates_for(workload, GPU) if each.layout == workload.layout)
        us = pytorch_us / 2 if pass_ in ours else 2 * pytorch_us
        record = record_of(workload, config=template.space(workload, GPU).default, device=GPU.device, median_us=us)
        cudnn = {"cudnn-nhwc": Measurement(median_us=pytorch_us, spread_us=1.0, rounds=9)}
        TuningLog(logs / "log.jsonl").append(dataclasses.replace(record, providers=cudnn))
    dwconv.reset()
    return decisions(Problem.of(of), torch.device("cuda"), target=GPU)[0]


@pytest.fixture(params=["C++", "no compiler", "left out", "failed"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    as_in_a_new_process(monkeypatch)
    monkeypatch.delenv("DWCONV_NATIVE", raising=False)
    monkeypatch.setattr(settings, "program", lambda name: None if request.param == "no compiler" else name)
    if request.param == "left out":
        monkeypatch.setenv("DWCONV_NATIVE", "0")
    if request.param == "failed":
        native._settle("the compiler failed")
    return str(request.param)


@pytest.mark.parametrize("ours", [PASSES, ("fprop",), ("wgrad",), ("fprop", "backward")])
def test_through_python_pytorchs_kernels_must_take_longer_than_the_host(
    logs: Path, road: str, ours: Sequence[Pass]
) -> None:
    in_cpp = road == "C++"
    found = decided(logs, ours, HOST_IN_PYTHON_US / 3 - 1)
    kept = {pass_ for pass_, each in found.items() if each.provider == "dwconv"}
    assert kept == ({*ours} if in_cpp else set())
    if not in_cpp:
        assert "backward" not in found
        told = "it" if len(ours) > 1 else "a layer of which some passes are PyTorch's"
        reason = f"the host is slower: through Python {told} takes 250 µs of it, PyTorch's kernels 2"
        assert {found[pass_].reason.startswith(reason) for pass_ in PASSES if pass_ in ours} == {True}
        assert all("\n" not in each.reason and each.record for each in found.values())


def test_transposed_convolutions_always_go_through_python(logs: Path) -> None:
    for us, is_ours in ((HOST_IN_PYTHON_US / 3 - 1, False), (HOST_IN_PYTHON_US / 3 + 1, True)):
        (logs / "log.jsonl").unlink(missing_ok=True)
        found = as_transposed(decided(logs, PASSES, us), Problem.of(WORKLOAD), GPU, bias=False)
        assert {each.provider for each in found.values()} == {"dwconv" if is_ours else "pytorch"}
        assert is_ours or found["dgrad"].reason.startswith("the host is slower: through Python")


@pytest.mark.parametrize("ours", [("fprop",), ("dgrad", "wgrad"), PASSES])
def test_a_transposed_layer_with_passes_of_both_kinds_must_win_more_on_a_cpu(logs: Path, ours: Sequence[Pass]) -> None:
    """Its calls take Python's time and PyTorch's op's."""
    problem, device = Problem.of(workload_of()), torch.device("cpu")
    for saved_us, wins in ((MIXED_TRANSPOSED_US - 5, False), (MIXED_TRANSPOSED_US + 5, True)):
        (logs / "log.jsonl").unlink(missing_ok=True)
        for pass_ in PASSES:
            pytorch_us = 50.0 + saved_us / len(ours) if pass_ in ours else 1.0
            plant(logs / "log.jsonl", [workload_of()], passes=[pass_], baseline_us=pytorch_us)
        dwconv.reset()
        found, target = decisions(problem, device)
        kept = {pass_ for pass_, each in found.items() if each.provider == "dwconv"}
        assert kept == {*ours}
        made = as_transposed(found, problem, target, bias=False)
        assert {pass_ for pass_, each in made.items() if each.provider == "dwconv"} == (
            kept if wins or ours == PASSES else set()
        )
        if not wins and ours != PASSES:
            assert made[ours[0]].reason == (
                "the host is slower: a transposed layer of which some passes are PyTorch's takes 40.0 µs more of it, "
                "kernels save 35.0 µs"
            )
        assert as_transposed(found, problem, target, bias=False, trains=False).keys() == made.keys()
        alone = as_transposed(found, problem, target, bias=False, trains=False)
        assert {pass_ for pass_, each in alone.items() if each.provider == "dwconv"} == kept


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("stride", [1, 2])
def test_pytorchs_transposed_convolution_may_be_faster_than_its_dgrad(logs: Path, layout: Layout, stride: int) -> None:
    """With a stride in channels_last. What was measured of it counts instead, unless other work disturbed that."""
    workload = workload_of(stride=stride, layout=layout)
    problem, is_apart = Problem.of(workload), (layout, stride) == ("nhwc", 2)

    def is_ours(baseline_us: float, transposed_us: float | None = None, **measured: float) -> bool:
        (logs / "log.jsonl").unlink(missing_ok=True)
        target = cpu_target()
        for pass_ in PASSES:
            of = workload.for_pass(pass_)
            config = next(each for each in templates_for(of, target) if each.layout == layout).space(of, target).default
            record = record_of(of, config=config, baseline_us=baseline_us if pass_ == "dgrad" else 1e6)
            if transposed_us and pass_ == "dgrad":
                taken = Measurement(median_us=transposed_us, spread_us=1.0, rounds=9)
                record = dataclasses.replace(record, providers={**record.providers, TRANSPOSED: taken})
                assert record.measurement is not None
                record = dataclasses.replace(
                    record, measurement=dataclasses.replace(record.measurement, **measured), confirmed=True
                )
            TuningLog(logs / "log.jsonl").append(record)
        dwconv.reset()
        found, _ = decisions(problem, torch.device("cpu"))
        assert found["dgrad"].provider == "dwconv"
        made = as_transposed(found, problem, target, bias=False)
        assert {made[pass_].provider for pass_ in ("fprop", "wgrad")} == {"dwconv"}
        told = made["dgrad"].reason
        assert (made["dgrad"].provider == "dwconv") is not told.startswith("PyTorch's transposed convolution is faster")
        return made["dgrad"].provider == "dwconv"

    assert is_ours(110.0) is not is_apart  # 50 µs and 10 for the call
    assert is_ours(130.0)
    assert is_ours(110.0, 70.0) and not is_ours(200.0, 55.0)
    assert is_ours(110.0, 70.0, contention=0.5) is not is_apart


def test_where_they_do_kernels_run_on_any_road(logs: Path, road: str) -> None:
    found = decided(logs, ["wgrad"], HOST_IN_PYTHON_US / 3 + 1)
    assert found["wgrad"].provider == "dwconv"


def test_what_cpp_cannot_take_counts_as_python(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's op cannot pad each side otherwise; a layer that is all ours needs none of it."""
    monkeypatch.setattr(native, "is_expected", lambda: True)
    sided = dataclasses.replace(WORKLOAD, padding=((0, 1), (0, 1)))
    assert {each.provider for each in decided(logs, ["fprop"], 20.0, of=sided).values()} == {"pytorch"}
    (logs / "log.jsonl").unlink()
    assert {each.provider for each in decided(logs, PASSES, 20.0, of=sided).values()} == {"dwconv"}


def test_a_cpu_counts_its_calls_otherwise(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "is_expected", lambda: False)
    plant(logs / "log.jsonl", [workload_of()], baseline_us=100.0)
    found, _ = decisions(Problem.of(workload_of()), torch.device("cpu"))
    assert {each.provider for each in found.values()} == {"dwconv"}
