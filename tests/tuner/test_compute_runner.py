"""ComputeRunner: records of candidates for a GPU that is not here."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from dwconv import tune
from dwconv.errors import BrokenInstallation
from dwconv.kernels import cuda
from dwconv.measure.simulator import compile as compiling
from dwconv.measure.simulator.compile import available
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import Workload
from dwconv.records.log import TuningLog
from dwconv.records.record import Status
from dwconv.schedules.cuda.gpu.cost import LAUNCH_US
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, template
from dwconv.tuner.gpu_cost import ComputeRunner, Predictor, PredictSetup
from tests.tune_command import shown_next
from tests.turns import slow

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)
LAYER = Workload(pass_="fprop", batch=8, channels=32, input_size=(28, 28), kernel=(3, 3), padding=((1, 1), (1, 1)))
SMALL = dataclasses.replace(LAYER, batch=2, channels=8, input_size=(14, 14))
simulator = pytest.mark.skipif(not available(), reason="the simulator needs g++ 12 or newer")


@pytest.fixture(scope="module")
def candidates() -> list[Candidate]:
    space = template("cuda.fprop_nchw").space(LAYER, SM_90)
    rng = random.Random(0)
    good = [config for config in (space.default, space.sample(rng), space.sample(rng)) if config]
    wild = Config.of("cuda.fprop_nchw", **{**dict(space.default.values), "planes": 3})
    return [Candidate(LAYER, config) for config in (*good, wild)]


@pytest.mark.parametrize("check", [slow(False), pytest.param(True, marks=[simulator, pytest.mark.slow])])
def test_one_record_a_candidate_computed_and_marked(candidates: list[Candidate], check: bool) -> None:
    candidates = candidates[-2:] if check else candidates  # a simulation takes seconds
    with ComputeRunner(SM_90, check=check, jobs=2) as runner:
        records = {record.config: record for record in runner.measure(candidates)}
        assert not list(runner.confirm(candidates[:1]))
    assert set(records) == {candidate.config for candidate in candidates}
    *good, wild = (records[candidate.config] for candidate in candidates)
    for record in good:
        assert record.status is Status.OK and record.device == "sm_90" and record.detail == ""
        assert record.measurement is not None and record.measurement.computed and not record.measured
        assert record.measurement.median_us > LAUNCH_US
        assert record.resources["registers"] > 0
        assert record.providers == {} and record.versions
        if check:
            assert record.verdict is not None and record.verdict.right and record.verdict.max_error == 0
            assert record.resources["shared_wavefronts_percent"] >= 100
        else:
            assert record.verdict is None
    assert wild.status is Status.COMPILE_ERROR and wild.measurement is None
    assert "planes=3" in wild.detail


@pytest.mark.slow
def test_a_candidate_that_takes_too_long_is_ended(candidates: list[Candidate]) -> None:
    with ComputeRunner(SM_90, check=False, timeout_s=0.001) as runner:
        (record,) = runner.measure(candidates[:1])
    assert record.status is Status.TIMEOUT


@pytest.mark.slow
def test_a_candidate_limited_by_memory_is_predicted_too() -> None:
    """Its traffic is counted with NumPy, whose numbers cannot pass between processes."""
    layer = dataclasses.replace(LAYER, batch=64, channels=144, input_size=(56, 56))
    space = template("cuda.fprop_nchw").space(layer, SM_90)
    direct = space.check({**space.default.to_dict(), "stage": "registers", "block_h": 56, "tile_h": 14, "tile_w": 2,
                          "threads_w": 28, "vthread_w": 1, "planes": 1})  # fmt: skip
    with ComputeRunner(SM_90, check=False) as runner:
        (record,) = runner.measure([Candidate(layer, direct)])
    assert record.status is Status.OK, record.detail
    assert record.measurement is not None and type(record.measurement.median_us) is float


@simulator
def test_a_fault_is_a_wrong_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source loses its barriers on the way to the simulator."""
    original = cuda.self_contained
    monkeypatch.setattr(cuda, "self_contained", lambda source: original(source).replace("__syncthreads();", ""))
    default = Candidate(SMALL, template("cuda.fprop_nchw").space(SMALL, SM_90).default)
    outcome = Predictor(PredictSetup(target=SM_90, check=True))(default)
    record = ComputeRunner(SM_90, check=False)._record(default, outcome)
    assert record.status is Status.WRONG and record.measurement is None
    assert record.detail.startswith("race: staged_shared")


def test_checking_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_version", lambda: 11)
    with pytest.raises(BrokenInstallation, match=r"needs g\+\+ 12 or newer, there is version 11; install it"):
        ComputeRunner(SM_90, check=True)


# -- the command -----------------------------------------------------------------------------------------------------

COMMAND = ["--shape", "2,8,14,14", "--kernel", "3", "--passes", "fprop", "--trials", "3", "--jobs", "1"]


@simulator
@pytest.mark.slow
@pytest.mark.usefixtures("short_ranking")
def test_what_was_only_computed_is_looked_at_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    arguments = [*COMMAND, "--log", str(log), "--target", "cuda:sm_90"]
    assert tune.main([*arguments, "--no-check"]) == 0
    assert "3 built and computed, none of them checked" in capsys.readouterr().out
    assert tune.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "3 built and computed, 3 of them checked in the simulator" in printed and "computed, not measured" in printed
    records = TuningLog(log).load().records
    assert [record.verdict is not None for record in records] == [False] * 3 + [True] * 3


@pytest.mark.slow
@pytest.mark.usefixtures("short_ranking")
def test_without_a_compiler_one_line_says_that_nothing_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiling, "_version", lambda: 0)
    log = tmp_path / "log.jsonl"
    arguments = [*COMMAND, "--trials", "1", "--log", str(log), "--target", "cuda:sm_90"]
    assert tune.main(arguments) == 0
    printed = capsys.readouterr()
    assert "note: candidates are not checked: the simulator needs g++ 12 or newer, there is none" in printed.err
    assert "1 built and computed, none of them checked" in printed.out
    assert shown_next(printed.out) == ["source", "cost", "sass"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "cpu", "--runner", "predict"], "--runner predict is for GPUs, the target is cpu"),
        (["--target", "cuda:sm_80", "--runner", "local"], "cuda:sm_80 is not in this machine; use --runner predict"),
    ],
)
def test_a_runner_that_cannot_work_is_one_line(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune.main([*COMMAND, *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
