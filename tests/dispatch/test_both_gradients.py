"""Both gradients of a layer in one kernel: only where that is known to take less time than dgrad and wgrad do, each on
what runs it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import dwconv
from dwconv.dispatch.advantage import CALL_US
from dwconv.dispatch.decision import DispatchDecision
from dwconv.dispatch.of_problem import decisions
from dwconv.errors import InvalidWorkload
from dwconv.problems.problem import Problem
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import Pass, Workload
from dwconv.records.log import TuningLog
from dwconv.schedules.template import templates_for
from tests.planted_records import record_of, workload_of

WORKLOAD = workload_of()


def measured(logs: Path, pass_: Pass, us: float, *, of: Workload = WORKLOAD, **fields: Any) -> None:
    """A pass takes so long, and PyTorch's op ten times as long unless ``baseline_us`` says something else."""
    workload, target = of.for_pass(pass_), cpu_target()
    config = next(each for each in templates_for(workload, target) if each.layout == "nhwc").space(workload, target)
    record = record_of(workload, config=config.default, median_us=us, **{"baseline_us": 10 * us, **fields})
    TuningLog(logs / "log.jsonl").append(record)


def both(problem: Problem | None = None) -> DispatchDecision | None:
    dwconv.reset()
    found, _ = decisions(problem or Problem.of(WORKLOAD), torch.device("cpu"))
    return found.get("backward")


@pytest.mark.parametrize(("more_us", "is_chosen"), [(-1.0, True), (1.0, False)])
def test_it_must_take_less_time_than_the_two_with_their_calls(logs: Path, more_us: float, is_chosen: bool) -> None:
    measured(logs, "dgrad", 50.0)
    measured(logs, "wgrad", 70.0)
    measured(logs, "backward", 50.0 + 70.0 + CALL_US + more_us)
    decision = both()
    assert (decision is not None) == is_chosen
    if decision:
        assert decision.reason == "both gradients in one kernel: 139 µs, apart 140 µs"
        assert decision.workload and str(decision.workload.block) == "none,none"


def test_pytorchs_op_counts_where_it_runs_a_gradient(logs: Path) -> None:
    measured(logs, "dgrad", 50.0)
    measured(logs, "wgrad", 70.0, baseline_us=20.0)
    measured(logs, "backward", 75.0)
    assert both() is None, "50 µs, 20 of PyTorch's and a call are less"
    measured(logs, "backward", 60.0)
    assert both()


def test_it_must_be_faster_than_pytorchs_op_for_both(logs: Path) -> None:
    measured(logs, "backward", 50.0, baseline_us=55.0)
    assert both() is None
    measured(logs, "backward", 40.0, baseline_us=55.0)
    assert both(), "of the two apart nothing is known: PyTorch's op would run them"


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param({"of": WORKLOAD.with_batch(4)}, id="another batch size"),
        pytest.param({"device": cpu_target(threads=cpu_target().threads + 1).device}, id="another number of threads"),
        pytest.param({"baseline_us": None}, id="without PyTorch's op"),
        pytest.param(None, id="nothing"),
    ],
)
def test_what_is_not_known_is_not_compared(logs: Path, unknown: dict[str, Any] | None) -> None:
    measured(logs, "dgrad", 500.0)
    if unknown is not None:
        measured(logs, "wgrad", 500.0, **unknown)
    measured(logs, "backward", 10.0)
    assert both() is None


def test_what_is_only_predicted_is_not_compared(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DWCONV_UNTUNED", "predict")
    for pass_ in ("dgrad", "wgrad"):
        workload, target = WORKLOAD.for_pass(pass_), cpu_target()
        config = templates_for(workload, target)[0].space(workload, target).default
        record = record_of(workload, config=config, median_us=500.0, baseline_us=5000.0)
        TuningLog(logs / "log.jsonl").append(
            dataclasses.replace(record, versions={**record.versions, "torch": "2.1.0"})
        )
    measured(logs, "backward", 10.0)
    found, _ = decisions(Problem.of(WORKLOAD), torch.device("cpu"))
    assert found["dgrad"].expected and both() is None


def test_it_is_not_predicted_itself(logs: Path) -> None:
    measured(logs, "dgrad", 500.0)
    measured(logs, "wgrad", 500.0)
    measured(logs, "backward", 10.0, of=workload_of(shape=(2, 8, 9, 8)))
    assert both() is None


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"bias": True}, id="a bias"),
        pytest.param({"epilogue": "silu"}, id="an activation"),
        pytest.param({"dtype": torch.bfloat16}, id="another type"),
        pytest.param({"stride": (2, 2)}, id="a stride"),
        pytest.param({"layout": "nchw"}, id="another layout"),
        pytest.param({"dilation": (2, 2)}, id="a dilation"),
    ],
)
def test_other_problems_do_not_have_it(logs: Path, other: dict[str, Any]) -> None:
    measured(logs, "dgrad", 500.0)
    measured(logs, "wgrad", 500.0)
    measured(logs, "backward", 10.0)
    assert both() and both(dataclasses.replace(Problem.of(WORKLOAD), **other)) is None


def test_a_workload_with_a_bias_has_no_such_pass() -> None:
    with pytest.raises(InvalidWorkload, match="bias=True"):
        workload_of(bias=True).for_pass("backward")
