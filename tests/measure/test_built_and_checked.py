"""Kernels that many layers share, over processes whose answers are planted."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from dwconv.errors import BuildError, RequestFailed, Shortage, WorkerCannotStart, WorkerDied
from dwconv.kernels import cache
from dwconv.kernels.artifact import Artifact
from dwconv.measure.built_and_checked import built_and_checked
from dwconv.measure.requests import CheckAtAllSizesRequest, MeasureAnswer
from dwconv.measure.verify.cases import wrong
from dwconv.problems.target import CpuTarget
from dwconv.records.record import Verdict
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from tests import fake_tuning as fake

TARGET = CpuTarget(device="test", threads=2, vector_bytes=64)
EVERY = dataclasses.replace(fake.WORKLOAD, any_size=True, any_channels=True)
FOUR = [Candidate(EVERY, Config.of("fake", number=number)) for number in range(4)]
RIGHT = Verdict(right=True, max_error=0.0, allowed_error=0.0)


class PlantedMeasurer:
    """Ends each request when the next build has ended."""

    def __init__(self) -> None:
        self.answers: dict[Candidate, Verdict | Exception] = {}
        self.checked: list[Candidate] = []
        self.ended = 0
        self.settled = True

    def start(self) -> None:
        pass

    def submit(self, request: CheckAtAllSizesRequest, *, timeout_s: float) -> None:
        assert self.settled, "one after the other"
        self.settled = False
        self.checked.append(request.artifact.candidate)

    def collect(self) -> MeasureAnswer:
        self.settled = True
        answer = self.answers.get(self.checked[-1], RIGHT)
        if isinstance(answer, Exception):
            raise answer
        return MeasureAnswer(verdict=answer)

    def kill(self) -> None:
        self.settled = True
        self.ended += 1


@pytest.fixture
def workers(monkeypatch, tmp_path):
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path))
    measurer = PlantedMeasurer()

    def stream(next_body, *, timeout_s, beside):
        """What ends beside is noted, too."""
        position = 0
        while (candidate := next_body()) is not None:
            built = Artifact(candidate=candidate, kind="cpu", source=f"{candidate}", arguments=())
            yield position, BuildError("no") if candidate in made.unbuilt else built
            position += 1
            if not measurer.settled:
                measurer.settled = True
                yield None

    made = SimpleNamespace(
        target=TARGET, measurer=measurer, builders=SimpleNamespace(stream=stream), unbuilt=set[Candidate]()
    )
    return made


def known_of(artifact: Artifact) -> cache.CheckResults | None:
    return cache.checked(artifact, TARGET)


def test_each_is_checked_while_others_are_built_and_never_again(workers):
    made = built_and_checked(iter(FOUR), workers)
    assert [each.candidate for each in made] == workers.measurer.checked == FOUR
    assert all(known_of(each) == cache.CheckResults(threads=frozenset({1, 2})) for each in made)
    assert built_and_checked(iter(FOUR), workers) == made
    assert len(workers.measurer.checked) == 4 and not workers.measurer.ended


def test_a_check_on_fewer_threads_does_not_do(workers):
    (made,) = built_and_checked(iter(FOUR[:1]), workers)
    workers.target = dataclasses.replace(TARGET, threads=3)
    built_and_checked(iter(FOUR[:1]), workers)
    assert len(workers.measurer.checked) == 2
    assert known_of(made).threads == {1, 2, 3}


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (wrong("value: 3 of 9"), "value: 3 of 9"),
        (WorkerDied("killed by SIGSEGV"), "the check failed: killed by SIGSEGV"),
        (WorkerDied("killed by SIGKILL", shortage=Shortage.MEMORY), None),
        (RequestFailed("BuildError: no file system that runs libraries"), None),
    ],
    ids=["wrong", "crashed", "no memory", "not loaded"],
)
def test_what_a_check_finds_is_kept_unless_the_machine_may_be_the_cause(workers, answer, fault):
    workers.measurer.answers[FOUR[1]] = answer
    made = built_and_checked(iter(FOUR[:3]), workers)
    assert workers.measurer.checked == FOUR[:3], "the others are checked all the same"
    found = known_of(made[1])
    assert (found and found.fault) == fault
    assert all(known_of(each).fault == "" for each in (made[0], made[2]))
    assert workers.measurer.ended == (fault is not None)


def test_what_cannot_be_built_is_left_out(workers):
    workers.unbuilt = {FOUR[0]}
    assert [each.candidate for each in built_and_checked(iter(FOUR[:2]), workers)] == FOUR[1:2]


def test_a_worker_that_cannot_start_ends_it(workers):
    workers.measurer.answers[FOUR[0]] = WorkerCannotStart("no more processes")
    with pytest.raises(WorkerCannotStart):
        built_and_checked(iter(FOUR), workers)
    assert workers.measurer.settled
