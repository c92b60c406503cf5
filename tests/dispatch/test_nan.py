"""Kernels that make NaN of results beside: dispatch takes them by default, and leaves them out by a setting."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dwconv.dispatch.decide import decide_on
from dwconv.problems.target import parse_target
from dwconv.problems.workload import LAYOUTS
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.records.record import Measurement
from dwconv.schedules.template import all_templates
from tests.planted_records import record_of, workload_of

GPU = dataclasses.replace(parse_target("cuda:sm_90"), device="some-gpu", present=True)  # type: ignore[arg-type]
WORKLOAD = workload_of(shape=(8, 16, 14, 14), kernel=(7, 7), padding=3, layout="nchw", dtype="float16")
QUICK, EXACT = "cuda.fprop_nchw_toeplitz", "cuda.fprop_nchw_strip"


@pytest.fixture
def known(logs: Path) -> Database:
    """Both templates were measured, the one on tensor cores as twice as fast."""
    log = TuningLog(logs / "log.jsonl")
    for name, median_us in ((QUICK, 10.0), (EXACT, 20.0)):
        config = all_templates()[name].space(WORKLOAD, GPU).default
        record = record_of(WORKLOAD, config=config, device=GPU.device, median_us=median_us, baseline_us=None)
        cudnn = {"cudnn-nchw": Measurement(median_us=100.0, spread_us=1.0, rounds=9)}
        log.append(dataclasses.replace(record, providers=cudnn))
    return Database.load([logs])


def template_of(known: Database) -> str:
    decision = decide_on(GPU, WORKLOAD, known=known, predicts=False)
    assert decision.config is not None, decision.reason
    return decision.config.template


def test_the_fastest_runs_by_default(known: Database) -> None:
    assert template_of(known) == QUICK


def test_where_nan_is_to_be_exact_the_fastest_of_the_others_runs_and_says_why(
    known: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DWCONV_NAN", "exact")
    assert template_of(known) == EXACT
    assert "DWCONV_NAN=exact" in decide_on(GPU, WORKLOAD, known=known, predicts=False).reason


def test_templates_on_tensor_cores_say_so_and_no_others() -> None:
    spreading = {name for name, template in all_templates().items() if template.spreads_nan}
    gathers = {f"cuda.{pass_}_{layout}_toeplitz" for pass_ in ("fprop", "dgrad") for layout in LAYOUTS}
    assert spreading == gathers, "a gradient keeps diagonals alone"
