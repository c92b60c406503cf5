"""LocalRunner with faults planted in builders and kernels, in real worker processes."""

from __future__ import annotations

import dataclasses
import datetime
import subprocess
import sys

import psutil
import pytest

from dwconv.errors import EnvironmentFailure, WorkerCannotStart, WorkerTimeout
from dwconv.kernels import cache
from dwconv.measure.requests import MeasureAnswer, PrepareRequest, TimeRequest, Tried, new_record
from dwconv.measure.runner import LocalRunner, WorkerProcesses
from dwconv.measure.verify.cases import CASES_OF_A_FINALIST
from dwconv.problems.target import cpu_target, parse_target
from dwconv.records.record import AtSize, Measurement, Status, Verdict, is_current
from dwconv.schedules import template as template_module
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.system import memory, versions
from tests.measure.planted_kernels import TARGET, artifact, candidate, workload
from tests.planted_records import workload_of
from tests.turns import slow
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("brief_timing", "no_pauses")


@pytest.fixture
def runner(workers):
    with LocalRunner(workload(), TARGET, workers=workers, build_timeout_s=60.0, run_timeout_s=60.0) as runner:
        yield runner


def named(records):
    return {record.config.fault: record for record in records}


def test_a_good_candidate_becomes_a_whole_record(runner):
    (record,) = runner.measure([candidate()])
    assert record.status is Status.OK and record.detail == ""
    assert record.workload == workload() and record.config == candidate().config and record.device == "test-cpu"
    assert record.measured and record.measurement.median_us > 0 and record.measurement.rounds >= 3
    assert record.verdict.right and record.verdict.max_error == 0
    (provider,) = record.providers
    assert provider.endswith(("-nchw", "-nhwc")) and record.speedup > 0
    assert record.resources == {"spill_bytes": 8}
    assert set(record.versions) == {"dwconv", "torch", "tvm", "template"}
    age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(record.created)
    assert abs(age.total_seconds()) < 1500, "it is the time of no other zone"


def test_a_runner_of_another_pass_shares_the_workers(workers):
    of = workload("wgrad", layout="nchw")
    workers.start()  # nothing else did, if this test is its process's first
    starts = workers.measurer.starts
    with LocalRunner(of, TARGET, workers=workers) as runner:
        (record,) = runner.measure([candidate(of=of)])
    assert record.status is Status.OK and record.workload == of
    assert workers.measurer.starts == starts and workers.measurer.running


TOLD = {
    "no schedule": (Status.COMPILE_ERROR, "BuildError: cpu.fprop_nhwc: tiles do not fit"),
    "another's artifact": (Status.CRASHED, "while building: its answer is invalid: the artifact of another candidate"),
    "does not load": (Status.RUNTIME_ERROR, "BuildError: LLVM cannot load it"),
    "raises": (Status.RUNTIME_ERROR, "RuntimeError: device lost"),
    "allocates too much": (Status.RUNTIME_ERROR, "MemoryError: it needs 4096.0 GiB"),
    "wrong value": (Status.WRONG, "value: 1 of 756 elements"),
    "leaves a hole": (Status.WRONG, "not written: 1 of 756"),
    "segfaults": (Status.CRASHED, "killed by SIGSEGV"),
    "none": (Status.OK, ""),
}
ENDED = {
    "compiler hangs": (Status.TIMEOUT, "while building: no answer after 5 s"),
    "compiler dies": (Status.CRASHED, "while building: killed by SIGABRT"),
    "writes after": (Status.WRONG, "guard band: it wrote outside y"),
    "hangs": (Status.TIMEOUT, "no answer after 5 s"),
    "dies when timed": (Status.CRASHED, "killed by SIGABRT"),
    "none": (Status.OK, ""),
}
"""Each takes a worker with it, whose start takes seconds."""


@pytest.mark.parametrize(("expected", "limit_s"), [(TOLD, 60.0), slow(ENDED, 5.0)], ids=["told", "ended"])
def test_every_fault_costs_one_candidate(workers, expected, limit_s):
    limits = {"build_timeout_s": limit_s, "run_timeout_s": limit_s}
    with LocalRunner(workload(), TARGET, workers=workers, **limits) as runner:
        records = named(runner.measure([candidate(fault) for fault in expected]))
    assert len(records) == len(expected)
    for fault, (status, detail) in expected.items():
        record = records[fault]
        assert (record.status, record.detail[: len(detail)]) == (status, detail), fault
        assert "\n" not in record.detail
        assert (record.measurement is None) == (status is not Status.OK)


@pytest.mark.parametrize(
    ("fault", "detail"),
    [
        ("wrong, and flushes denormals from then on", "value: "),
        slow("flushes denormals from then on", "float mode: "),
        slow("writes before", "guard band: "),
    ],
)
def test_the_worker_is_replaced_after_a_wrong_kernel(runner, workers, fault, detail):
    (wrong,) = runner.measure([candidate(fault)])
    assert wrong.status is Status.WRONG and wrong.detail.startswith(detail)
    assert not workers.measurer.running
    assert [record.status for record in runner.measure([candidate()])] == [Status.OK]
    (confirmed,) = runner.confirm([candidate()])
    assert confirmed.status is Status.OK, confirmed.detail


def test_a_trial_knows_the_best_time_so_far(runner, workers, monkeypatch):
    """So that a slower one is given up early."""
    trials = []
    usual = workers.measurer.call
    monkeypatch.setattr(workers.measurer, "call", lambda body, **named: trials.append(body) or usual(body, **named))
    first, second = runner.measure([candidate(), candidate("slow")])
    assert first.measurement.median_us < second.measurement.median_us
    assert [body.best_us for body in trials if isinstance(body, TimeRequest)] == [None, first.measurement.median_us]


def test_the_time_limit_grows_with_the_sizes_that_a_kernel_is_measured_at(workers, monkeypatch):
    of = dataclasses.replace(workload(), any_size=True, also_at=((9, 9), (12, 12)))
    limits_s = []

    def late(body, *, timeout_s):
        if isinstance(body, PrepareRequest):
            return None
        limits_s.append(timeout_s)
        raise WorkerTimeout("no answer")

    monkeypatch.setattr(workers.measurer, "call", late)
    with LocalRunner(of, TARGET, workers=workers, run_timeout_s=3.0) as runner:
        (record,) = runner.measure([candidate(of=of)])
        (confirmed,) = runner.confirm([candidate(of=of)])
    assert record.status is confirmed.status is Status.TIMEOUT
    assert limits_s == [9.0, 9.0 * CASES_OF_A_FINALIST]


def test_finalists_are_checked_again_and_timed_together(runner):
    finalists = [candidate(), candidate("slow"), candidate("wrong at batch 1"), candidate("no schedule")]
    measured = named(runner.measure(finalists))
    assert measured["wrong at batch 1"].status is Status.OK  # at the batch size of the workload it is right
    records = named(runner.confirm(finalists))
    assert records["no schedule"].status is Status.COMPILE_ERROR
    assert records["wrong at batch 1"].status is Status.WRONG
    assert records["wrong at batch 1"].detail.endswith("(at batch size 1, extreme data)")
    good, slow = records["none"], records["slow"]
    assert good.status is slow.status is Status.OK
    assert good.measurement.median_us < slow.measurement.median_us
    assert good.providers == slow.providers and len(good.providers) == 2  # measured in the same rounds
    assert 0 < good.verdict.max_error <= good.verdict.allowed_error  # on data that rounds


def test_a_finalist_that_goes_wrong_while_it_is_timed_is_not_confirmed(runner):
    records = named(runner.confirm([candidate(), candidate("wrong when timed for long")]))
    good = records["none"]
    assert good.status is Status.OK and good.confirmed != good.inconclusive  # the machine may be busy
    wrong = records["wrong when timed for long"]
    assert wrong.status is Status.WRONG and not wrong.confirmed and wrong.measurement is None
    assert wrong.detail.startswith("value: ") and wrong.detail.endswith("(after it was timed)")
    assert cache.checked(artifact(candidate()), TARGET).threads >= {1}
    assert cache.checked(artifact(candidate("wrong when timed for long")), TARGET) is None


def test_only_an_error_that_broke_the_device_costs_the_worker(runner, workers):
    starts = workers.measurer.starts + (not workers.measurer.running)
    for fault, running in (("raises", True), ("loses the device", False)):
        (record,) = runner.measure([candidate(fault)])
        assert record.status is Status.RUNTIME_ERROR
        assert workers.measurer.running is running and workers.measurer.starts == starts


def test_one_finalist_that_dies_does_not_take_the_others_along(runner):
    finalists = [candidate(), candidate("dies when timed")]
    records = named(runner.confirm(finalists))
    assert records["none"].status is Status.OK
    assert records["dies when timed"].status is Status.CRASHED


def test_what_the_machine_was_short_of_is_no_fact_about_a_candidate(runner, tmp_path, capsys):
    faults = ("no space once", "is killed once", "finds no memory once")
    records = list(runner.measure([candidate(fault, mark=str(tmp_path / fault)) for fault in faults]))
    assert [record.status for record in records] == [Status.OK] * 3
    assert len([line for line in capsys.readouterr().err.splitlines() if line.startswith("note: short of ")]) == 3
    stays = runner.measure([candidate("no space"), candidate("no schedule")])
    assert next(stays).status is Status.COMPILE_ERROR
    with pytest.raises(EnvironmentFailure, match="short of disk space"):
        next(stays)


def test_a_kernel_that_writes_to_the_socket_does_not_shift_the_answers(runner):
    faults = ["answers twice", "wrong value", "none", "writes to the socket", "none"]
    records = list(runner.measure([candidate(fault, order=order) for order, fault in enumerate(faults)]))
    assert [record.config.fault for record in records] == faults
    ok, wrong, crashed = Status.OK, Status.WRONG, Status.CRASHED
    assert [record.status for record in records] == [ok, wrong, ok, crashed, ok]
    assert records[3].detail.startswith("its answer is invalid: ")


def test_a_kernel_that_allocates_without_end_costs_itself_only(runner, monkeypatch):
    list(runner.measure([candidate()]))  # what all share is made
    monkeypatch.setattr(memory, "available_bytes", lambda: 640 << 20)
    monkeypatch.setattr(memory, "LITTLE_BYTES", 64 << 20)
    bad, good = runner.measure([candidate("allocates without end"), candidate(order=1)])
    assert (bad.status, good.status) == (Status.CRASHED, Status.OK)
    assert bad.detail.startswith("it took more than ") and bad.detail.endswith(" GiB of memory")


def test_a_caller_that_stops_iterating_can_come_back(workers):
    with LocalRunner(workload(), TARGET, workers=workers, build_timeout_s=3.0, run_timeout_s=60.0) as runner:
        records = runner.measure([candidate(), candidate("compiler hangs"), candidate(order=1)])
        next(records)
        records.close()
        assert [record.status for record in runner.measure([candidate(order=2)])] == [Status.OK]


@pytest.mark.usefixtures("started_anew")  # those that are forked are children of another process
def test_closing_ends_own_workers():
    before = set(psutil.Process().children())
    runner = LocalRunner(workload(), TARGET, jobs=1)
    assert eventually(lambda: len(set(psutil.Process().children()) - before) == 2)
    workers = set(psutil.Process().children()) - before
    runner.close()
    assert len(workers) == 2 and not any(process.is_running() for process in workers)


class OneAfterTheOther:
    """Workers in this process, which note what they do."""

    jobs, running, starts = 4, True, 1

    def __init__(self):
        self.done = []
        self.builders = self.measurer = self

    def start(self):
        pass

    def map(self, candidates, *, timeout_s):
        for position, wanted in enumerate(candidates):
            self.done.append(f"built {wanted.config.number}")
            yield position, artifact(wanted)

    def call(self, request, *, timeout_s):
        if isinstance(request, PrepareRequest):
            return MeasureAnswer()
        self.done.append(f"timed {request.artifacts[0].candidate.config.number}")
        taken = AtSize(input_size=(9, 7), measurement=Measurement(median_us=1.0, spread_us=0.0, rounds=3))
        return MeasureAnswer(
            each=(Tried(verdict=Verdict(right=True, max_error=0.0, allowed_error=0.0), times=(taken,)),)
        )


@pytest.mark.parametrize(
    ("target", "done"),
    [
        (TARGET, ["built 0", "built 1", "built 2", "timed 0"]),
        (parse_target("cuda:sm_90"), ["built 0", "timed 0", "built 1", "built 2"]),
    ],
)
def test_a_gpu_measures_while_others_are_built_and_stopping_ends_no_builder(target, done):
    workers = OneAfterTheOther()
    with LocalRunner(workload(), target, workers=workers) as runner:
        records = runner.measure([candidate(number=number) for number in range(3)])
        next(records)
        records.close()
    assert workers.done == done


def test_a_builder_for_a_gpu_does_without_pytorch_where_it_has_nvrtc():
    program = """if True:
        import sys
        from dwconv.measure.build_worker import BUILD, BuildHandler, BuildSetup
        from dwconv.problems.target import parse_target
        from dwconv.schedules.template import Candidate, templates_for
        from dwconv.problems.workload import Workload
        target = parse_target("cuda:sm_90")
        sizes = dict(channels=8, input_size=(5, 5), kernel=(3, 3), stride=(1, 1), padding=((1, 1), (1, 1)))
        workload = Workload(pass_="fprop", batch=1, dtype="float32", layout="nhwc", **sizes)
        config = templates_for(workload, target)[0].space(workload, target).default
        assert BuildHandler(BuildSetup(target=target, build=BUILD))(Candidate(workload, config)).cubin
        print(sys.modules.get("torch"), "tvm" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=1200)
    assert done.stdout == "None True\n", done.stderr


def test_where_no_worker_can_start_the_error_says_why():
    broken = WorkerProcesses(
        TARGET, jobs=1, build="tests.measure.planted_kernels:build", load="tests.measure.planted_kernels:no_such_loader"
    )
    with broken, pytest.raises(WorkerCannotStart, match=r"a worker cannot start: .*no_such_loader"):
        list(LocalRunner(workload(), TARGET, workers=broken).measure([candidate()]))


@pytest.mark.parametrize("version", [1, 7])
def test_a_new_record_is_current_and_names_the_version_of_its_template(monkeypatch, version):
    known = template_module.all_templates()
    changed = {**known, "cpu.fprop_nhwc": dataclasses.replace(known["cpu.fprop_nhwc"], version=version)}
    monkeypatch.setattr(template_module, "all_templates", lambda: changed)
    candidate = Candidate(workload_of(), Config.of("cpu.fprop_nhwc", block_h=1))
    record = new_record(candidate, cpu_target(), status=Status.COMPILE_ERROR)
    assert record.versions == {**versions.installed(), "template": str(version)}
    assert is_current(record, versions.installed())


def test_relaxed_arithmetic_is_named_beside_the_versions():
    target = dataclasses.replace(parse_target("cuda:sm_90"), fast_math=True)
    record = new_record(Candidate(workload_of(), Config.of("gone")), target, status=Status.CRASHED)
    assert record.fast_math and record.versions["template"] == "1"
