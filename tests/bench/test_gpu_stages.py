"""The stages smoke, verify and tune of bench cuda, with planted kernels."""

from __future__ import annotations

import re
from functools import partial

import pytest
import torch

from bench.gpu import smoke, verify
from bench.gpu import tune as tune_module
from bench.gpu.run import Pace
from bench.gpu.smoke import smoke_stage
from bench.gpu.tune import tune_stage
from bench.gpu.verify import candidates_on, verify_stage
from dwconv.errors import BuildError, NoTemplate, WorkerCannotStart
from dwconv.tuner.race_result import RaceResult
from dwconv.tuner.search.search_result import Stop, TuningResult
from tests.bench.gpu_runs import TARGET, NoWorkers, faults, run_of, workload
from tests.planted_records import record_of

ODD = [workload(layout="nchw"), workload("wgrad")]
LOAD = "tests.bench.gpu_runs:load"


@pytest.fixture(autouse=True)
def _no_workers(monkeypatch):
    faults.clear()
    for module in (verify, smoke, tune_module):
        monkeypatch.setattr(module, "WorkerProcesses", NoWorkers)


def verified(*arguments, **options):
    run = run_of(*arguments, **options)
    ended = verify_stage(run, load=LOAD)
    run.state.flush()
    return ended


# -- verify ----------------------------------------------------------------------------------------------------------


def test_all_templates_are_verified_their_defaults_first():
    candidates = candidates_on(ODD, TARGET)
    assert {candidate.config.template for candidate in candidates} == {
        "cpu.fprop_nchw", "cpu.fprop_nhwc", "cpu.wgrad_nhwc",
    }  # fmt: skip
    assert len(set(candidates)) == len(candidates) > 6
    assert len({(candidate.workload, candidate.config.template) for candidate in candidates[:3]}) == 3
    assert candidates_on(ODD, TARGET) == candidates, "the same at every run"


def test_right_candidates_are_not_verified_again(tmp_path, capsys, monkeypatch):
    count = len(candidates_on(ODD, TARGET))
    ended = verified(tmp_path, odd=ODD)
    assert ended.line == f"{count} right, of {count} candidates" and not ended.failed
    monkeypatch.setattr(NoWorkers, "map", lambda self, bodies, timeout_s: iter(bodies and [1 / 0]))
    assert verified(tmp_path, odd=ODD) == ended
    assert f"{count} candidates, 0 to verify" in capsys.readouterr().out


@pytest.mark.parametrize(("fault", "kind"), [("wrong", "wrong"), ("raises", "broken")])
def test_a_candidate_that_is_wrong_or_breaks_down_fails_the_run(tmp_path, capsys, fault, kind):
    faults["cpu.wgrad_nhwc"] = fault
    ended = verified(tmp_path, odd=ODD)
    assert ended.failed and f" {kind}" in ended.line and " right" in ended.line
    assert "wgrad_nhwc wgrad-n2" in capsys.readouterr().out
    faults.clear()
    assert not verified(tmp_path, odd=ODD).failed, "what failed is verified again"


def test_a_candidate_that_cannot_be_built_is_reported_and_fails_the_run_only_where_nothing_is_right(
    tmp_path, monkeypatch
):
    picky = partial(NoWorkers, unbuildable=lambda candidate: candidate.config.template == "cpu.wgrad_nhwc")
    monkeypatch.setattr(verify, "WorkerProcesses", picky)
    ended = verified(tmp_path / "a", odd=ODD)
    assert not ended.failed and " unbuilt" in ended.line
    monkeypatch.setattr(verify, "WorkerProcesses", partial(NoWorkers, unbuildable=lambda candidate: True))
    assert verified(tmp_path / "b", odd=ODD).failed


def test_verifying_ends_with_the_time(tmp_path):
    at = iter(range(1000))
    ended = verified(tmp_path, odd=ODD, pace=Pace(6, first_s=0, now=lambda: next(at)))
    count = len(candidates_on(ODD, TARGET))
    assert f"time is up, {count - 2} of {count} left" in ended.line


# -- smoke -----------------------------------------------------------------------------------------------------------


def test_first_contact_shows_all_that_it_sees(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(smoke, "limits_of", lambda target, sizes: {"memory_gb_per_s": 4500.25, "launch_us": 1.75})
    run = run_of(tmp_path)
    ended = smoke_stage(run, load=LOAD)
    out = capsys.readouterr().out
    for told in (
        f"torch: {torch.__version__}",
        "NVRTC: ",
        "driver: ",
        "target: cpu",
        "limits of the device, in brackets what is taken for them: memory_gb_per_s 4500.25, launch_us 1.75",
    ):
        assert f"[smoke] {told}" in out
    assert ended.line == "15 of 15 templates and types right" and not ended.failed
    assert run.state.of("limits") == {"device": {"memory_gb_per_s": 4500.25, "launch_us": 1.75}}, "race has them, too"


def test_a_step_that_fails_is_reported_and_the_next_goes_on(tmp_path, capsys, monkeypatch):
    def broken(*args):
        raise RuntimeError("CUDA error: no kernel image")

    monkeypatch.setattr(smoke, "_device", broken)
    monkeypatch.setattr(smoke, "limits_of", broken)
    faults["cpu.fprop_nchw"] = "raises"
    ended = smoke_stage(run_of(tmp_path), load=LOAD)
    out = capsys.readouterr().out
    assert "device: failed: RuntimeError: CUDA error: no kernel image" in out and "NVRTC: " in out
    assert "broken: BuildError: CUDA driver: CUDA_ERROR_INVALID_VALUE" in out
    assert ended.line == "13 of 15 templates and types right" and not ended.failed
    monkeypatch.setattr(smoke, "WorkerProcesses", partial(NoWorkers, unbuildable=lambda candidate: True))
    assert smoke_stage(run_of(tmp_path / "none"), load=LOAD).failed, "no template is right"


# -- tune ------------------------------------------------------------------------------------------------------------

WORKLOADS = [workload(pass_) for pass_ in ("fprop", "dgrad", "wgrad")]


class Tuner:
    """For ``tune_workload``: ``plan`` says how each workload ends, by number. It turns its clock."""

    def __init__(self, *plan, beside_s=0.0):
        self._plan, self._beside_s = list(plan), beside_s
        self.at = 0.0
        self.seconds = []

    def __call__(self, workload, target, *, log, budget, plan):
        self.seconds.append(budget.seconds)
        self.at += budget.seconds + self._beside_s
        end = self._plan[len(self.seconds) - 1]
        if isinstance(end, Exception):
            raise end
        if end:
            log.append(record_of(workload, device=target.device))
        return TuningResult(
            workload=workload, device=target.device, budget=budget, trials=4, failures={} if end else {"wrong": 4},
            best=record_of(workload) if end else None, failure_detail="" if end else "boom", stopped=Stop.SECONDS,
        )  # fmt: skip


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    def tune(*plan, seconds=600.0, beside_s=0.0):
        tuner = Tuner(*plan, beside_s=beside_s)
        monkeypatch.setattr(tune_module, "tune_workload", tuner)
        monkeypatch.setattr(tune_module, "race_untuned", lambda workloads, run, **how: None)
        run = run_of(tmp_path, WORKLOADS, pace=Pace(seconds, first_s=10, now=lambda: tuner.at))
        ended = tune_stage(run)
        run.state.flush()
        return ended, run.state.of("tune"), tuner

    return tune


def test_a_workload_whose_tuning_fails_costs_only_itself(tuned, capsys):
    ended, answers, _ = tuned(True, BuildError("no way"), NoTemplate("none fits"))
    assert ended.line == "1 of 3 workloads tuned, 2.00 to 2.00 times as fast as PyTorch" and not ended.failed
    assert answers[WORKLOADS[1].key] == {"failed": "no way"} and answers[WORKLOADS[2].key] == {"none": "none fits"}
    assert f"[tune] {WORKLOADS[1].key}: no way" in capsys.readouterr().out
    ended, answers, tuner = tuned(True)
    assert len(tuner.seconds) == 1 and ended.line.startswith("2 of 3"), "only what failed is tuned again"


def test_tuning_fails_without_a_right_candidate_or_a_worker(tuned):
    ended, answers, _ = tuned(False, False, False)
    assert ended.failed and ended.line.startswith("0 of 3 workloads tuned")
    assert answers[WORKLOADS[0].key]["failed"] == "no candidate worked: boom"
    with pytest.raises(WorkerCannotStart):
        tuned(WorkerCannotStart("no memory"))


def test_workloads_share_the_time_and_what_does_not_fit_is_not_begun(tuned):
    ended, answers, tuner = tuned(True, True, True, seconds=60, beside_s=16)
    assert tuner.seconds == [60 / 3 - 6, 30 / 2 - 6] and len(answers) == 2
    assert ended.line.endswith("time is up, 1 of 3 left") and not ended.failed


def test_what_is_untuned_is_raced_first_and_what_a_race_found_is_tuned(tmp_path, monkeypatch, capsys):
    seen = []

    def race(counts, target, *, log, seconds, known, workers):
        seen.append((list(counts), seconds, len([*known])))
        log.append(record_of(WORKLOADS[0], device=TARGET.device))
        return RaceResult(won=(WORKLOADS[0],), problem="no memory")

    monkeypatch.setattr(tune_module, "race", race)
    monkeypatch.setattr(tune_module, "WorkerProcesses", lambda target, **how: NoWorkers(target, jobs=1))
    ended = tune_stage(run_of(tmp_path, WORKLOADS, pace=Pace(2, first_s=1, now=lambda: 0.0)))
    ((raced, seconds, known),) = seen
    assert raced == WORKLOADS and 0 < seconds <= 2 and known == 0
    assert re.search(r"\[tune\] 1 passes raced in \d+\.\d s: 1 won; no memory", capsys.readouterr().out)
    assert ended.line.startswith("1 of 3 workloads tuned, 2.00 to") and ended.line.endswith("2 of 3 left")
