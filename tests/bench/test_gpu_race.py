"""Stage race of bench cuda: its process, the limits of the device, its answers, and what becomes of failures."""

from __future__ import annotations

import os

import pytest

from bench.gpu import race as race_module
from bench.gpu import worker as gpu_worker
from bench.gpu.limits import MeasureLimits, as_limits
from bench.gpu.race import GpuRacer, answer_of, in_words, race_stage, worst_first
from bench.gpu.run import Pace
from bench.gpu.worker import GpuFailure, GpuWorker, Refused
from bench.race import Race, Raced
from dwconv.errors import WorkerCannotStart
from dwconv.measure.clock.timing import Effort, Taken
from dwconv.measure.processes import process as process_module
from dwconv.measure.requests import MeasureSetup
from dwconv.records.record import Measurement
from dwconv.schedules.template import Candidate, templates_for
from tests.bench.gpu_runs import TARGET, StillClock, artifact, faults, run_of, workload
from tests.planted_records import record_of
from tests.waiting import time_is_up_once

SIZES = MeasureLimits(memory_bytes=1 << 12, small_bytes=1 << 10, product=8)
PROBLEM = workload()


def candidate():
    (template,) = templates_for(PROBLEM, TARGET)
    return Candidate(PROBLEM, template.space(PROBLEM, TARGET).default)


# -- in its process --------------------------------------------------------------------------------------------------


@pytest.fixture
def racer(monkeypatch):
    faults.clear()
    monkeypatch.setattr("bench.race.clock_of", lambda target: StillClock())
    monkeypatch.setattr("bench.race.build_cached", lambda candidate, target: artifact(candidate))
    return GpuRacer(MeasureSetup(target=TARGET, load="tests.bench.gpu_runs:load"))


RACE = Race(candidate=candidate(), caches=("warm",), effort=Effort(round_s=0.0, rounds=15, budget_s=0.0))


@pytest.mark.parametrize(("fault", "reason"), [("wrong", "BuildError: wrong: "), ("raises", "BuildError: CUDA driver")])
def test_our_kernel_does_not_race_if_it_is_no_good(racer, fault, reason):
    faults[candidate().config.template] = fault
    refused = racer(RACE)
    assert isinstance(refused, Refused) and refused.reason.startswith(reason) and not refused.broken


def test_limits_are_measured(racer, monkeypatch):
    monkeypatch.setattr("bench.gpu.limits.clock_of", lambda target: StillClock())
    found = racer(SIZES)
    assert found["memory_gb_per_s"] == pytest.approx(2 * SIZES.memory_bytes / 10 / 1e3)
    assert found["small_gb_per_s"] == pytest.approx(2 * SIZES.small_bytes / 10 / 1e3)
    assert found["peak_gflop_per_s"] == pytest.approx(2 * SIZES.product**3 / 10 / 1e3)
    limits = as_limits(found, TARGET)
    assert limits.memory_gb_per_s == found["memory_gb_per_s"] and limits.cache_bytes == TARGET.cache_bytes


def test_no_effort_and_no_size_divide_by_nothing(racer):
    assert racer(RACE).times["warm"].measurements
    assert racer(MeasureLimits(memory_bytes=0, small_bytes=0, product=0))


# -- the stage -------------------------------------------------------------------------------------------------------


def taken(**us):
    measurements = {
        name.replace("_", "-"): Measurement(median_us=each, spread_us=0.1, rounds=9) for name, each in us.items()
    }
    return Taken(measurements=measurements, rounds_us={}, turns_us={})


RACED = Raced(
    times={
        "warm": taken(dwconv=10.0, cudnn_nhwc=30.0, aten_nchw=20.0),
        "cold": taken(dwconv=20.0, cudnn_nhwc=30.0, aten_nchw=40.0),
    },
    refused={"cudnn-op-nchw": "no"},
)
WORKLOADS = [workload(pass_) for pass_ in ("fprop", "dgrad", "wgrad")]


class Answers:
    """For ``GpuWorker``: answers each race with the next of its answers; notes what it was asked."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = []

    def __call__(self, role, setup, *, threads):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error): ...

    def start(self): ...

    def ask(self, request, *, timeout_s, within_s):
        assert timeout_s > 0
        self.asked.append(request)
        if isinstance(request, MeasureLimits):
            return {"memory_gb_per_s": 0.001, "cache_gb_per_s": 0.001, "peak_gflop_per_s": 1000.0}
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def raced(tmp_path, monkeypatch):
    def run_races(*answers, tuned=WORKLOADS, pace=None):
        worker = Answers(*answers)
        monkeypatch.setattr(race_module, "GpuWorker", worker)
        run = run_of(tmp_path, WORKLOADS, pace=pace)
        if not run.log.path.exists():
            for each in tuned:
                run.log.append(record_of(each, device=TARGET.device))
        ended = race_stage(run, sizes=SIZES)
        run.state.flush()
        return ended, run.state, worker

    return run_races


def test_a_race_that_fails_is_kept_as_failed_and_the_next_goes_on(raced, capsys):
    ended, state, worker = raced(RACED, GpuFailure("an illegal memory access", broken=True), RACED)
    answers = state.of("race")
    assert answers[WORKLOADS[1].key] == {"failed": "an illegal memory access"}
    assert answers[WORKLOADS[2].key]["warm"]["ratio"] == 2.0
    assert ended.line == (
        "2 of 3 tuned workloads raced; warm 2.00× the best other, least 2.00, 0 slower; "
        "cold 1.50× the best other, least 1.50, 0 slower; 1 failed"
    )
    assert not ended.failed and "failed: an illegal memory access" in capsys.readouterr().out
    assert [type(request) for request in worker.asked] == [MeasureLimits, Race, Race, Race]
    ended, state, worker = raced(RACED)
    assert [request.candidate.workload for request in worker.asked] == [WORKLOADS[1]], "the limits are known"
    assert ended.line.startswith("3 of 3")


def test_if_nothing_can_be_raced_the_run_fails(raced):
    ended, _, _ = raced(tuned=())
    assert ended.failed and ended.line == "nothing is tuned of 3 workloads; run the stage tune first"
    with pytest.raises(WorkerCannotStart):
        raced(WorkerCannotStart("no GPU"))
    ended, _, _ = raced(*(GpuFailure("boom", broken=False) for _ in WORKLOADS))
    assert ended.failed and ended.line == "0 of 3 tuned workloads raced; 3 failed"


def test_racing_ends_with_the_time(raced):
    at = [0.0]
    slow = Pace(30, first_s=6, now=lambda: at[0])

    class Slow(Raced):
        def __getattribute__(self, name):
            at[0] += 4.0
            return super().__getattribute__(name)

    ended, state, _ = raced(*(Slow(times=RACED.times) for _ in WORKLOADS), pace=slow)
    assert len(state.of("race")) < 3 and "time is up" in ended.line and at[0] <= 30 * 1.05 + 10


def test_figures_are_held_against_the_limits_and_against_the_own_layout():
    answer = answer_of(record_of(PROBLEM), RACED, limit_us=4.0)
    assert answer["percent_of_limit"] == 40 and answer["refused"] == {"cudnn-op-nchw": "no"}
    assert (answer["warm"]["best_other"], answer["warm"]["ratio"]) == ("aten-nchw", 2.0)
    assert (answer["warm"]["ratio_own_layout"], answer["cold"]["ratio_own_layout"]) == (3.0, 1.5)
    assert in_words(answer) == "10.0 µs, 2.00× aten-nchw, cold 20.0 µs, 1.50× cudnn-nhwc, 40 % of limit"
    alone = answer_of(record_of(PROBLEM), Raced(times={"warm": taken(dwconv=0.0), "cold": taken()}), limit_us=4.0)
    assert alone["warm"]["ratio"] is None and "0.0 µs" in in_words(alone)


def test_what_was_lost_comes_first():
    def row(warm, cold):
        return {"warm": {"ratio": warm}, "cold": {"ratio": cold}}

    answers = {"won": row(3.0, 2.0), "alone": row(None, None), "lost": row(1.4, 0.9), "failed": {"failed": "boom"},
               "lost more": row(0.5, None)}  # fmt: skip
    assert [name for name, _ in worst_first(answers)] == ["failed", "lost more", "lost", "won", "alone"]


# -- a process with a GPU: what breaks in it costs one request ---------------------------------------------------------


@pytest.fixture
def notes(tmp_path):
    return tmp_path / "notes"


@pytest.fixture
def worker(notes):
    with GpuWorker("tests.bench.planted_gpu:Sticky", str(notes)) as made:
        yield made


def asked(notes):
    return notes.read_text().splitlines()


def test_a_broken_process_is_replaced_and_the_request_tried_once_more(worker, notes):
    first = worker.ask("answer", timeout_s=20)
    assert worker.ask("break once", timeout_s=20)["pid"] not in (first["pid"], os.getpid())
    assert asked(notes) == ["answer", "break once", "break once"]
    with pytest.raises(GpuFailure, match=r"^an illegal memory access$"):
        worker.ask("break", timeout_s=20)
    worker.ask("answer", timeout_s=20)
    assert asked(notes)[3:] == ["break", "break", "answer"]
    with pytest.raises(GpuFailure, match="exit status 3"):
        worker.ask("die", timeout_s=20)
    assert asked(notes)[6:] == ["die", "die"]


def test_a_refusal_keeps_its_process(worker, notes):
    pid = worker.ask("answer", timeout_s=20)["pid"]
    with pytest.raises(GpuFailure, match=r"^no template fits$"):
        worker.ask("refuse", timeout_s=20)
    assert worker.ask("answer", timeout_s=20)["pid"] == pid and asked(notes).count("refuse") == 1


def test_a_hang_ends_and_is_not_tried_again_where_there_is_no_time(worker, notes, monkeypatch):
    """Its time is up once it hangs."""
    monkeypatch.setattr(gpu_worker, "_LEAST_S", 600.0)
    worker.ask("answer", timeout_s=20)
    for module in (gpu_worker, process_module):
        time_is_up_once(lambda: "hang" in asked(notes), monkeypatch=monkeypatch, of=module)
    with pytest.raises(GpuFailure, match="no answer after"):
        worker.ask("hang", timeout_s=600, within_s=0.2)
    assert asked(notes).count("hang") == 1
    with pytest.raises(GpuFailure):
        worker.ask("break", timeout_s=20, within_s=0.2)
    assert worker.ask("answer", timeout_s=20) and asked(notes)[2:] == ["break", "answer"], "its process is replaced"


def test_in_this_process_nothing_is_tried_again(notes):
    with GpuWorker("tests.bench.planted_gpu:Sticky", str(notes), here=True) as worker:
        assert worker.ask("answer", timeout_s=20) == {"pid": os.getpid()}
        with pytest.raises(GpuFailure):
            worker.ask("break", timeout_s=20)
    assert asked(notes) == ["answer", "break"]


def test_a_process_that_cannot_start_is_no_failure_of_the_request(notes):
    with (
        GpuWorker("tests.bench.planted_gpu:Nobody", str(notes)) as worker,
        pytest.raises(WorkerCannotStart, match="Nobody"),
    ):
        worker.ask("answer", timeout_s=20)
