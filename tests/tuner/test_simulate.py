"""SimulateRunner: records of candidates that were run on the CPU instead of a GPU that is not here."""

from __future__ import annotations

from pathlib import Path

import pytest

from dwconv import tune
from dwconv.build import cuda
from dwconv.measure.simulator import compile as compiling
from dwconv.measure.simulator.compile import available
from dwconv.records.log import TuningLog
from dwconv.records.record import Status
from dwconv.schedules.cuda import fprop_nchw
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.target import CudaTarget, parse_target
from dwconv.tuner.simulate import SimulateRunner, SimulateSetup, Simulator
from dwconv.workload import Workload

pytestmark = pytest.mark.skipif(not available(), reason="the simulator needs g++ 12 or newer")

SM_90 = parse_target("cuda:sm_90")
assert isinstance(SM_90, CudaTarget)
LAYER = Workload(pass_="fprop", batch=2, channels=8, input_size=(14, 14), kernel=(3, 3), padding=((1, 1), (1, 1)))
DEFAULT = Candidate(LAYER, fprop_nchw.space(LAYER, SM_90).default)


def test_one_record_a_candidate_verified_and_marked() -> None:
    wild = Candidate(LAYER, Config.of(fprop_nchw.NAME, **{**dict(DEFAULT.config.values), "planes": 3}))
    with SimulateRunner(LAYER, SM_90) as runner:
        records = {record.config: record for record in runner.measure([DEFAULT, wild])}
        assert not list(runner.confirm([DEFAULT]))
    good = records[DEFAULT.config]
    assert good.status is Status.OK and good.device == "sm_90" and good.detail == ""
    assert good.verdict is not None and good.verdict.right and good.verdict.max_error == 0
    assert good.measurement is not None and good.measurement.predicted and not good.measured
    assert good.resources["registers"] > 0 and good.resources["shared_wavefronts_percent"] >= 100
    assert records[wild.config].status is Status.COMPILE_ERROR and "planes=3" in records[wild.config].detail


def test_a_fault_is_a_wrong_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source loses its barriers on the way to the simulator."""
    original = cuda.self_contained
    monkeypatch.setattr(cuda, "self_contained", lambda source: original(source).replace("__syncthreads();", ""))
    outcome = Simulator(SimulateSetup(target=SM_90))(DEFAULT)
    record = SimulateRunner(LAYER, SM_90)._record(DEFAULT, outcome)
    assert record.status is Status.WRONG and record.measurement is None
    assert record.detail.startswith("race: staged_shared")


def test_a_candidate_that_takes_too_long_is_ended() -> None:
    with SimulateRunner(LAYER, SM_90, timeout_s=0.001) as runner:
        (record,) = runner.measure([DEFAULT])
    assert record.status is Status.TIMEOUT


COMMAND = ["--shape", "2,8,14,14", "--kernel", "3", "--passes", "fprop", "--trials", "2", "--search", "random"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    arguments = [*COMMAND, "--jobs", "1", "--log", str(log), "--target", "cuda:sm_90"]
    assert tune.main([*arguments, "--runner", "predict"]) == 0
    assert tune.main([*arguments, "--runner", "simulate"]) == 0, "what was only computed is looked at again"
    records = TuningLog(log).load().records
    assert [record.verdict is not None for record in records] == [False, False, True, True]
    assert "predicted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "cpu", "--runner", "simulate"], "--runner simulate is for GPUs, the target is cpu"),
        (["--target", "cuda:sm_80", "--runner", "local"], "cuda:sm_80 is not in this machine; use --runner predict"),
    ],
)
def test_a_runner_that_cannot_work_is_one_line(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune.main([*COMMAND, *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_without_a_compiler_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiling, "_version", lambda: 11)
    assert tune.main([*COMMAND, "--target", "cuda:sm_90", "--runner", "simulate"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs g++ 12 or newer, there is version 11; install it" in line
