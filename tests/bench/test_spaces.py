"""``bench spaces``: configurations timed in comparisons with a reference, kept in a journal that a kill cannot
spoil."""

from __future__ import annotations

import math
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from bench.cases import Layer
from bench.spaces import bench
from bench.spaces.comparisons import ATTEMPTS, IN_A_HEAT, Outcome, SpaceComparisons
from bench.spaces.journal import SpaceJournal
from bench.spaces.measured_spaces import read_spaces
from bench.spaces.starts import KnownStarts
from dwconv.errors import WorkerDied, WorkerError
from dwconv.measure.measuring import Comparison, Measured
from dwconv.records.record import Measurement, Verdict
from dwconv.tuner.search.spaces import SpaceUnion
from dwconv.tuner.search.unvisited import Unvisited
from tests.bench import made_up_spaces

WORKLOAD, TARGET = made_up_spaces.WORKLOAD, made_up_spaces.TARGET
(REFERENCE,) = SpaceUnion.of(WORKLOAD, TARGET).defaults
CONFIGS = Unvisited(SpaceUnion.of(WORKLOAD, TARGET), seed=0).draw(30)
RIGHT = Verdict(right=True, max_error=0.0, allowed_error=0.0)


class FakeBuilders:
    """Builds nothing: an artifact knows its candidate."""

    def map(self, candidates, *, timeout_s):
        for position, candidate in reversed(list(enumerate(candidates))):
            if candidate.config == CONFIGS[1]:
                yield position, WorkerError("no such register")
            else:
                yield position, SimpleNamespace(candidate=candidate)


class FakeMeasurer:
    """Times of the made-up table on a machine whose speed changes from comparison to comparison. ``crashes`` are
    configurations that end the worker, ``wrong`` are judged so, ``busy`` says how contended the coming comparisons
    are."""

    def __init__(self, *, crashes=(), wrong=(), busy=()) -> None:
        self.crashes, self.wrong, self.busy = crashes, wrong, deque(busy)
        self.comparisons: list[list[Any]] = []
        self.speed = 1.0

    def submit(self, body, *, timeout_s):
        assert timeout_s > 0
        self.body = body

    def collect(self):
        configs = [artifact.candidate.config for artifact in self.body.artifacts]
        if any(config in self.crashes for config in configs):
            raise WorkerDied("killed by SIGSEGV")
        if not isinstance(self.body, Comparison):
            return Measured()
        self.comparisons.append(configs)
        self.speed *= 1.1
        wrong = Verdict(right=False, max_error=1.0, allowed_error=0.0, reason="value: 1 is not 2")
        contention = self.busy.popleft() if self.busy else 0.0
        return Measured(
            verdicts_after=tuple(wrong if config in self.wrong else RIGHT for config in configs),
            kernels=tuple(
                Measurement(median_us=self.speed * us(config), spread_us=0, rounds=9, contention=contention)
                for config in configs
                if config not in self.wrong
            ),
        )

    def kill(self):
        raise AssertionError("nothing was broken")


def us(config) -> float:
    return made_up_spaces.time_us(config) or 50.0


def heats_with(measurer: FakeMeasurer) -> SpaceComparisons:
    workers: Any = SimpleNamespace(builders=FakeBuilders(), measurer=measurer)
    return SpaceComparisons(workers, workload=WORKLOAD, reference=REFERENCE)


def outcomes_with(measurer: FakeMeasurer) -> dict:
    return {one.config: one for some in heats_with(measurer).run(CONFIGS) for one in some}


def test_the_reference_is_in_every_heat_and_makes_them_comparable(tmp_path):
    measurer, journal = FakeMeasurer(), SpaceJournal(tmp_path / "spaces.jsonl")
    for outcomes in heats_with(measurer).run(CONFIGS):
        journal.add(WORKLOAD, outcomes)
    assert len(measurer.comparisons) == 3 and all(comparison[0] == REFERENCE for comparison in measurer.comparisons)
    assert all(len(comparison) <= 1 + IN_A_HEAT for comparison in measurer.comparisons)
    known = journal.us_of(WORKLOAD)
    right = [config for config in CONFIGS if known[config] is not None]
    ratios = {round(known[config] / us(config), 9) for config in right}
    assert len(ratios) == 1 and len(right) == len(CONFIGS) - 1
    assert known[CONFIGS[1]] is None


def test_one_that_fails_costs_itself_only():
    bad, wrong = CONFIGS[7], CONFIGS[20]
    found = outcomes_with(FakeMeasurer(crashes=(bad,), wrong=(wrong,)))
    assert set(found) == set(CONFIGS)
    reasons = {config: outcome.reason for config, outcome in found.items() if outcome.us is None}
    assert reasons == {
        bad: "killed by SIGSEGV", wrong: "value: 1 is not 2", CONFIGS[1]: "build: no such register"
    }  # fmt: skip


def test_a_disturbed_heat_is_run_again_and_the_calmest_counts():
    measurer = FakeMeasurer(busy=[0.5, 0.0, 0.3, 0.1, 0.2])
    found = outcomes_with(measurer)
    assert len(measurer.comparisons) == 2 + ATTEMPTS + 1
    assert sorted({outcome.contention for outcome in found.values() if outcome.us}) == [0.0, 0.1]


def test_a_line_that_a_kill_cut_short_costs_that_heat(tmp_path):
    path = tmp_path / "spaces.jsonl"
    one, two, three = (Outcome(config=config, us=2.0, reference_us=1.0) for config in CONFIGS[:3])
    SpaceJournal(path).add(WORKLOAD, [one])
    SpaceJournal(path).add(WORKLOAD, [two])
    path.write_text(path.read_text()[:-20])
    SpaceJournal(path).add(WORKLOAD, [three])
    assert SpaceJournal(path).comparisons_of(WORKLOAD) == {CONFIGS[0]: 1, CONFIGS[2]: 1}


def test_several_heats_count_by_their_median_and_a_failure_in_one_is_a_failure(tmp_path):
    journal = SpaceJournal(tmp_path / "spaces.jsonl")
    for ratio in (2.0, 9.0, 3.0):
        journal.add(WORKLOAD, [Outcome(config=CONFIGS[0], us=ratio * 10, reference_us=10.0)])
    journal.add(WORKLOAD, [Outcome(config=CONFIGS[1], us=10.0, reference_us=10.0)])
    journal.add(WORKLOAD, [Outcome(config=CONFIGS[1], us=None, reference_us=None, reason="killed")])
    assert SpaceJournal(tmp_path / "spaces.jsonl").us_of(WORKLOAD) == {CONFIGS[0]: 30.0, CONFIGS[1]: None}


def test_a_survey_goes_on_where_it_was(tmp_path, monkeypatch):
    """What was measured is not measured again; then come the neighbours of the best, and the best again."""
    monkeypatch.setattr(bench, "FINALISTS", 5)
    listed = KnownStarts(tuned=tuple(CONFIGS[2:4]), untuned=())
    measurer = FakeMeasurer()
    workers: Any = SimpleNamespace(builders=FakeBuilders(), measurer=measurer)

    def survey() -> bench.Survey:
        journal = SpaceJournal(tmp_path / "spaces.jsonl")
        return bench.Survey(target=TARGET, seed=0, random=30, journal=journal, starts={WORKLOAD.key: listed})

    survey().measure(WORKLOAD, workers)
    once = len(measurer.comparisons)
    survey().measure(WORKLOAD, workers)
    assert len(measurer.comparisons) == once > 3
    (one,) = survey().table([WORKLOAD]).passes
    assert (one.drawn, one.starts) == (tuple(CONFIGS), listed.tuned)
    fastest = min(one.us, key=lambda config: one.us[config] or math.inf)
    near = SpaceUnion.of(WORKLOAD, TARGET).neighbours(CONFIGS[2])
    assert {*CONFIGS, *near, REFERENCE} <= set(one.us)
    assert survey().journal.comparisons_of(WORKLOAD)[fastest] == bench.READINGS


def test_passes_take_turns():
    first = [workload for workload, _ in zip(bench.in_turn("nhwc"), range(12), strict=False)]
    assert len({(each.channels, each.input_size, each.kernel, each.stride) for each in first}) == 12
    assert [each.pass_ for each in first[:4]] == ["fprop", "dgrad", "wgrad", "fprop"]
    assert len(set(bench.in_turn("nhwc"))) == 36


@pytest.mark.slow
def test_a_tiny_layer_is_measured_for_real(tmp_path, monkeypatch, capsys):
    tiny = Layer(network="Tiny", batch=1, channels=16, size=8, kernel=3)
    monkeypatch.setattr(bench, "CPU_LAYERS", (tiny,))
    monkeypatch.setattr(bench, "BESTS", 0)
    monkeypatch.setattr(bench, "READINGS", 1)
    monkeypatch.setattr(bench, "with_limits", lambda target: target)
    monkeypatch.setattr(bench, "known_starts", lambda chosen, target, *, path: {
        workload.key: KnownStarts(tuned=(), untuned=()) for workload in chosen
    })  # fmt: skip
    options = ["--random", "2", "--first", "1", "--logs", str(tmp_path), "--out", str(tmp_path)]
    assert bench.main(options) == 0
    (path,) = tmp_path.glob("*-nhwc.json.xz")
    (one,) = read_spaces(path).passes
    assert len(one.drawn) == 2 and sum(time is not None for time in one.us.values()) == 3
    assert str(path) in capsys.readouterr().out
