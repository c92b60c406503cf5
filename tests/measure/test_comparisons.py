"""Comparisons with faults planted in builders and kernels, in real worker processes."""

import dataclasses
import itertools
from functools import partial

import pytest

from dwconv.errors import RequestFailed
from dwconv.kernels import cache
from dwconv.measure import comparisons as comparisons_module
from dwconv.measure.clock.timing import Taken, clearly_faster
from dwconv.measure.comparisons import _AHEAD, Comparisons
from dwconv.measure.processes.process import wait_for_any
from dwconv.measure.requests import CheckRequest, TimeRequest
from dwconv.measure.runner import WorkerProcesses
from dwconv.problems.target import CpuTarget
from dwconv.records import record as record_module
from dwconv.records.record import Measurement, Status
from tests.measure.planted_kernels import TARGET, artifact, candidate, workload
from tests.turns import slow

pytestmark = pytest.mark.usefixtures("brief_timing", "no_pauses")


@pytest.fixture(autouse=True)
def nothing_disturbs(monkeypatch, tmp_path):
    """Whatever else this machine does, and whatever other tests have found right."""
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path))
    monkeypatch.setattr(record_module, "CONTENDED", 2.0)


def raced(workers, *comparisons, is_worth=lambda record: True):
    return list(Comparisons(workers, is_worth=is_worth).run(one_by_one(comparisons)))


def one_by_one(comparisons):
    return partial(next, iter(comparisons), None)


def test_a_workload_whose_pytorch_op_cannot_be_timed_costs_no_other(workers, monkeypatch):
    of = workload("wgrad", layout="nchw")
    prepare = comparisons_module.LocalRunner._prepare

    def refused(runner, **how):
        if runner._workload == of:
            raise RequestFailed("CannotBeCaptured: it cannot be captured in a CUDA graph")
        prepare(runner, **how)

    monkeypatch.setattr(comparisons_module.LocalRunner, "_prepare", refused)
    first, second, third = raced(
        workers, [candidate()], [candidate("raises", of=of), candidate(of=of, order=1)], [candidate("slow")]
    )
    assert second == [] and [[each.confirmed for each in records] for records in (first, third)] == [[True], [True]]


def test_the_winner_of_each_heat_is_confirmed(workers):
    of = workload("wgrad", layout="nchw")
    first, second = raced(workers, [candidate("slow"), candidate()], [candidate(of=of), candidate(of=of, order=1)])
    records = {record.config.fault: record for record in first}
    assert records["none"].confirmed and not records["slow"].confirmed
    assert records["none"].raced and not records["none"].ends_search, "a search may find a faster one"
    assert records["none"].measurement.median_us < records["slow"].measurement.median_us
    assert records["none"].providers == records["slow"].providers and len(records["none"].providers) == 2
    assert records["none"].verdict.allowed_error > 0, "of the last case of a finalist, which rounds"
    assert [record.workload for record in second] == [of, of]
    assert sorted(record.confirmed for record in second) == [False, True]
    assert all(record.status is Status.OK and record.resources for record in (*first, *second))
    winner, other = (cache.checked(artifact(candidate(fault)), TARGET) for fault in ("none", "slow"))
    assert (winner, other) == (cache.CheckResults(threads=frozenset({1})), None), "who trains with it need not check it"


def test_what_is_not_worth_it_is_not_verified_further(workers):
    ((record,),) = raced(workers, [candidate("wrong at batch 1")], is_worth=lambda record: False)
    assert (record.status, record.confirmed) == (Status.OK, False)
    ((failed,),) = raced(workers, [candidate("raises")])
    assert failed.status is Status.RUNTIME_ERROR, "and is not tried as a finalist"


def test_a_winner_that_is_wrong_as_a_finalist_is_reported(workers):
    ((slow_one, winner),) = raced(workers, [candidate("slow"), candidate("wrong at batch 1")])
    assert cache.checked(artifact(candidate("wrong at batch 1")), TARGET) is None
    assert (winner.status, winner.measurement) == (Status.WRONG, None)
    assert winner.detail.endswith("(at batch size 1, extreme data)")
    assert slow_one.status is Status.OK and not slow_one.confirmed


FAULTS = {
    "no schedule": Status.COMPILE_ERROR,
    "raises": Status.RUNTIME_ERROR,
    "wrong, and flushes denormals from then on": Status.WRONG,
}
ENDED = {
    "wrong from the 3rd call on": Status.WRONG,
    "segfaults": Status.CRASHED,
    "writes after": Status.WRONG,
    "dies when timed": Status.CRASHED,
    "flushes denormals from then on": Status.WRONG,
    "makes all wrong from then on": Status.WRONG,
}
"""Each takes a worker with it, whose start takes seconds, or harms what runs in its process later."""


@pytest.mark.parametrize("fault", [*FAULTS, *map(slow, ENDED)])
def test_a_fault_costs_one_candidate(workers, fault):
    records, following = raced(workers, [candidate(fault), candidate(), candidate(order=1)], [candidate(order=2)])
    latest = {record.config: record for record in records}
    faulty = latest.pop(candidate(fault).config)
    others = latest.values()
    assert faulty.status is {**FAULTS, **ENDED}[fault]
    assert {record.status for record in others} == {Status.OK} and len(others) == 2
    assert [record.raced for record in others if record.confirmed] == [True]
    assert [record.confirmed for record in following] == [True]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("wrong at batch 1, flushes denormals from then on", Status.WRONG),
        ("segfaults at batch 1", Status.CRASHED),  # and is tried alone
    ],
)
def test_a_winner_that_is_none_harms_no_later_race(workers, fault, status):
    first, second = raced(workers, [candidate(fault)], [candidate()])
    assert [record.status for record in first] == [status]
    assert [(record.status, record.confirmed) for record in second] == [(Status.OK, True)]


def test_small_heats_are_built_together_and_each_gets_its_own(workers, monkeypatch):
    begun, usual = [], workers.builders.stream

    def stream(next_body, **how):
        for ended in usual(lambda: begun.append(next_body()) or begun[-1], **how):
            begun.append("ended")
            yield ended

    monkeypatch.setattr(workers.builders, "stream", stream)
    comparisons = [[candidate(order=order)] for order in range(7)]
    comparisons[3] = [candidate("no schedule"), candidate(order=3)]
    records = raced(workers, *comparisons)
    assert begun[:3] == [candidate(order=0), candidate(order=1), "ended"], "one for each of two build workers"
    assert [len(each) for each in records] == [1, 1, 1, 2, 1, 1, 1]
    assert [each[-1].config.order for each in records] == list(range(7)) and all(each[-1].confirmed for each in records)
    assert records[3][0].status is Status.COMPILE_ERROR


Gpu = type("CpuTarget", (CpuTarget,), {"kind": "cuda"})
"""This CPU, beside which builds may go on; under the name that messages know."""


class OneBeside:
    """Builds one candidate beside each request to the measuring worker; ``beside`` has these requests."""

    def __init__(self, requests):
        self.requests, self.beside = requests, []

    def stream(self, next_body, *, timeout_s, beside):
        for position in itertools.count():
            if (body := next_body()) is None:
                return
            self.beside.append(None if beside.settled else self.requests[-1])
            yield position, artifact(body)
            if not beside.settled:
                wait_for_any([beside])
                yield None


@pytest.mark.parametrize(
    ("target", "kinds"), [(TARGET, {CheckRequest}), (Gpu(**vars(TARGET)), {CheckRequest, TimeRequest})]
)
def test_builds_go_on_while_a_gpu_is_timed_and_never_while_a_cpu_is(workers, monkeypatch, target, kinds):
    requests, submit = [], workers.measurer.submit
    builders = OneBeside(requests)
    monkeypatch.setattr(workers, "target", target)
    monkeypatch.setattr(workers, "builders", builders)
    monkeypatch.setattr(
        workers.measurer, "submit", lambda body, **how: requests.append(type(body)) or submit(body, **how)
    )
    records = raced(workers, *([candidate(order=order)] for order in range(6)))
    assert [record.config.order for (record,) in records] == list(range(6))
    assert set(builders.beside) - {None} == kinds


def test_no_more_races_are_built_than_may_wait_and_stopping_ends_them(workers):
    asked = []

    def next_comparison():
        asked.append(candidate(order=len(asked)))
        return asked[-1:]

    running = Comparisons(workers, is_worth=lambda record: True).run(next_comparison)
    next(running)
    running.close()
    assert len(asked) <= 1 + _AHEAD + workers.jobs
    ((record,),) = raced(workers, [candidate()])
    assert record.confirmed, "the processes can be used again"


def test_a_race_that_comes_up_while_another_one_runs_is_run(workers):
    comparisons = [[candidate()]]
    results = Comparisons(workers, is_worth=lambda record: True).run(lambda: comparisons.pop() if comparisons else None)
    next(results)
    comparisons.append([candidate(order=1)])
    assert [record.config.order for (record,) in results] == [1]


def test_nothing_starts_without_races():
    idle = WorkerProcesses(TARGET, jobs=1)
    assert raced(idle) == [] and idle.measurer.starts == 0


# -- beside other work ---------------------------------------------------------------------------------------------

SLOWED = [1, 7, 2, 1, 30, 1, 4, 1, 2, 9, 1, 3, 1, 1, 5, 2]
"""What other work makes of a time, turn by turn."""


def disturbed(*, lost=0.6, **us):
    turns_us = {name: tuple(each * factor for factor in SLOWED) for name, each in us.items()}
    measurements = {
        name: Measurement(median_us=2 * each, spread_us=1.0, rounds=5, contention=lost) for name, each in us.items()
    }
    return Taken(measurements=measurements, rounds_us={}, turns_us=turns_us)


def test_beside_other_work_a_clear_winner_is_reported_with_its_least_gain():
    taken = disturbed(first=40.0, second=30.0, own=90.0, other=200.0)
    times = clearly_faster(taken, ["first", "second"], ["own", "other"])
    assert {name: each.median_us for name, each in times.items()} == pytest.approx(
        {"first": 40, "second": 30, "own": 90, "other": 200}
    )
    assert all(each.contention == 0.6 for each in times.values()), "it is known how that was found"
    less = clearly_faster(disturbed(first=40.0, own=47.0, other=200.0), ["first"], ["own", "other"])
    assert less == {}, "than all, by a fifth"


def test_of_a_block_that_is_a_clear_winner_the_parts_have_their_least_time():
    """What is held against it later is no more than the turns make sure of."""
    times = clearly_faster(disturbed(block=40.0, own=90.0, around=30.0), ["block"], ["own"], parts=["around"])
    assert {name: each.median_us for name, each in times.items()} == pytest.approx(
        {"block": 40, "own": 90, "around": 30}
    )
    slow = clearly_faster(disturbed(block=40.0, own=30.0, around=20.0), ["block"], ["own"], parts=["around"])
    assert slow.keys() == {"block", "own"}


def test_beside_other_work_a_clear_loser_is_reported_too():
    taken = disturbed(first=40.0, second=30.0, own=25.0, other=200.0)
    times = clearly_faster(taken, ["first", "second"], ["own", "other"])
    assert {name: each.median_us for name, each in times.items()} == pytest.approx(
        {"first": 40, "second": 30, "own": 25, "other": 200}
    )
    ahead = clearly_faster(disturbed(first=40.0, second=30.0, own=35.0, other=200.0), ["first", "second"], ["own"])
    assert ahead == {}, "one of ours is ahead, but not by far"


@pytest.mark.parametrize(
    ("taken", "kernels"),
    [
        (disturbed(ours=50.0, own=59.0), ["ours"]),
        (disturbed(ours=50.0, own=500.0), []),
        (disturbed(lost=0.0, ours=1.0, own=9.0), ["ours"]),
    ],
    ids=["not by far", "none is right", "quiet"],
)
def test_what_is_not_clear_or_not_contended_stays_as_it_was_measured(taken, kernels):
    assert clearly_faster(taken, kernels, ["own"]) == {}


@pytest.mark.parametrize("is_clear", [True, False])
def test_the_winner_is_confirmed_beside_other_work_only_where_it_is_clear(workers, monkeypatch, is_clear):
    monkeypatch.setattr(record_module, "CONTENDED", 0.5)
    usual = workers.measurer.collect

    def collect():
        answer = usual()
        if not answer.each:
            return answer
        ((tried,), (here,)) = answer.each, answer.each[0].times
        here = dataclasses.replace(here, measurement=dataclasses.replace(here.measurement, contention=0.6))
        return dataclasses.replace(answer, each=(dataclasses.replace(tried, times=(here,)),), is_clear=is_clear)

    monkeypatch.setattr(workers.measurer, "collect", collect)
    ((record,),) = raced(workers, [candidate()])
    assert record.contended and record.confirmed is record.raced is is_clear is not record.inconclusive
    assert not record.settled
    ((slower,),) = raced(workers, [candidate(order=1)], is_worth=lambda record: False)
    assert slower.contended and not slower.confirmed and slower.settled is is_clear is not slower.inconclusive
