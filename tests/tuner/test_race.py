"""The race, over comparisons whose outcomes are planted."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import rich.console

from dwconv.dispatch import decide
from dwconv.dispatch.knowledge import is_known
from dwconv.errors import EnvironmentFailure, LogError, WorkerCannotStart
from dwconv.kernels.artifact import Artifact
from dwconv.measure import built_and_checked
from dwconv.measure import comparisons as comparisons_module
from dwconv.measure.clock import contention
from dwconv.problems.block import Block
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import BLOCK_PASSES, PASSES, Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.records.record import AROUND, Measurement, Status, TuningRecord
from dwconv.schedules import template as template_module
from dwconv.schedules.template import Candidate
from dwconv.tuner import expected_gain, race_result, race_state
from dwconv.tuner import race as race_module
from dwconv.tuner.race import race
from dwconv.tuner.race_result import RaceProgress, RaceResult
from dwconv.tuner.search.search_state import History
from dwconv.untuned.starts import Start
from tests import fake_tuning as fake

MOBILENET_V2 = (
    (32, 112, 1), (96, 112, 2), (144, 56, 1), (144, 56, 2), (192, 28, 1), (192, 28, 2), (384, 14, 1), (576, 14, 1),
    (576, 14, 2), (960, 7, 1),
)  # fmt: skip
"""Channels, size and stride."""
SMALL, LARGE = (dataclasses.replace(fake.WORKLOAD, input_size=size) for size in ((7, 7), (56, 56)))
WORKERS = SimpleNamespace(builders=SimpleNamespace(start=lambda: None), measurer=SimpleNamespace(start=lambda: None))
WON, LOST = 50.0, 195.0
"""Against a PyTorch of 200 µs; a CPU's call takes 10."""


class FakeHeats:
    """Times of workloads, microseconds; a kernel that beats PyTorch's op is confirmed."""

    def __init__(self) -> None:
        self.us: dict[Workload, float | None] = {}
        self.raced: list[tuple[Workload, int]] = []
        """Workloads, and how many candidates each had."""
        self.busy = 0
        """So many comparisons more are disturbed."""
        self.raises: BaseException | None = None
        """After the first comparison."""
        self.around_us: float | None = None
        """Of the ops around the convolution of a block."""

    def __call__(self, workers, *, is_worth):
        self.is_worth = is_worth
        return self

    def run(self, next_comparison) -> Iterator[list[TuningRecord]]:
        while (candidates := next_comparison()) is not None:
            if self.raced and self.raises:
                raise self.raises
            self.raced.append((candidates[0].workload, len(candidates)))
            yield [self._record(candidate) for candidate in candidates]
            self.busy -= 1

    def _record(self, candidate) -> TuningRecord:
        us = self.us.get(candidate.workload, WON)
        found = fake.record(candidate.workload, candidate.config, median_us=us, status=Status.CRASHED)
        if candidate.workload.block and self.around_us is not None:
            around = Measurement(median_us=self.around_us, spread_us=0.0, rounds=5)
            found = dataclasses.replace(found, providers={**found.providers, AROUND: around})
        if us is not None and self.busy > 0:
            return dataclasses.replace(found, measurement=dataclasses.replace(found.measurement, contention=0.5))
        return dataclasses.replace(found, confirmed=us is not None and self.is_worth(found))


@pytest.fixture
def comparisons(monkeypatch):
    planted = FakeHeats()
    monkeypatch.setattr(comparisons_module, "Comparisons", planted)
    templates = [fake.template(pass_=pass_) for pass_ in PASSES]
    monkeypatch.setattr(template_module, "all_templates", lambda: {each.name: each for each in templates})
    return planted


@pytest.fixture
def log(tmp_path):
    return TuningLog(tmp_path / "log.jsonl")


def run(log, *workloads, seconds=60.0, records=(), progress=None, **counts):
    wanted = dict.fromkeys(workloads, 1)
    return race(
        wanted,
        fake.TARGET,
        log=log,
        seconds=seconds,
        known=Database.of(records),
        workers=WORKERS,
        progress=progress,
        **counts,
    )


def test_every_workload_is_raced_once_and_remembered(comparisons, log):
    of_passes = [fake.WORKLOAD.for_pass(pass_) for pass_ in PASSES]
    comparisons.us = {of_passes[0]: WON, of_passes[1]: LOST, of_passes[2]: None}
    result = run(log, *of_passes)
    assert (result.won, result.lost, result.failed) == tuple((each,) for each in of_passes)
    assert result.raced == 3 and ": 1 won, 1 lost to PyTorch's op, 1 without a kernel that worked" in str(result)
    assert result.left == result.known == () and result.problem == ""
    assert log.load().records == list(result.records)
    again = run(log, *of_passes, records=log.load().records)
    assert (again.raced, set(again.known)) == (0, set(of_passes))
    assert len(comparisons.raced) == 3


def test_what_has_most_to_win_comes_first_and_gets_more_candidates(comparisons, log):
    run(log, SMALL, LARGE)
    assert [workload for workload, _ in comparisons.raced] == [LARGE, SMALL]
    counts = expected_gain.shares({SMALL: 1.0, fake.WORKLOAD: 9.0, LARGE: 1000.0})
    assert counts == {SMALL: 1, fake.WORKLOAD: 1, LARGE: expected_gain.MOST_STARTS}
    often = expected_gain.expected_gains_us({SMALL: 1000, LARGE: 1}, fake.TARGET, Database.of([]))
    assert often[SMALL] > often[LARGE]


@pytest.fixture
def of_any_size(comparisons, monkeypatch):
    templates = [dataclasses.replace(fake.template(pass_=pass_), any_size=True) for pass_ in (*PASSES, "forward")]
    monkeypatch.setattr(template_module, "all_templates", lambda: {each.name: each for each in templates})
    return comparisons


def test_a_kernel_of_any_size_is_raced_beside_those_of_the_size(of_any_size, log):
    often = {LARGE.for_pass(pass_): 1000 for pass_ in PASSES}
    block = dataclasses.replace(SMALL, pass_="forward", block=Block.parse("bn+relu,bn"))
    small = {**{SMALL.for_pass(pass_): 1 for pass_ in PASSES}, block: 1}
    result = race(often | small, fake.TARGET, log=log, seconds=60.0, known=Database.of([]), workers=WORKERS)
    raced = dict(of_any_size.raced)
    assert all(raced[each] > 1 for each in often)
    assert raced[SMALL.with_any_size()] == 1, "there is little to win, and it is as fast"
    assert set(result.won) == {*often, *small}
    records = log.load().records
    for workload in (*often, *small):
        (general,) = (each for each in records if each.workload == workload.with_any_size())
        assert is_known(workload, fake.TARGET, Database.of([general]), broken={})
    (of_block,) = (each for each in records if each.workload.block)
    of_one_size = Database.of([dataclasses.replace(of_block, workload=block)])
    assert not is_known(block, fake.TARGET, of_one_size, broken={}), "there is none for its other sizes"
    again = race(often | small, fake.TARGET, log=log, seconds=60.0, known=Database.of(records), workers=WORKERS)
    assert again.raced == 0


def test_a_kernel_of_any_size_is_no_substitute_where_it_is_slower(of_any_size, log):
    large_kernel = dataclasses.replace(SMALL, kernel=(5, 5), padding=((2, 2), (2, 2))).for_pass("wgrad")
    often = {SMALL: 1, large_kernel: 1, LARGE: 1_000_000}
    race(often, fake.TARGET, log=log, seconds=60.0, known=Database.of([]), workers=WORKERS)
    assert dict(of_any_size.raced)[SMALL.with_any_size()] == 1
    assert dict(of_any_size.raced)[large_kernel] == 2


@pytest.fixture
def for_every_layer(of_any_size, monkeypatch):
    """Kernels for every layer of two configurations are there for all workloads but blocks."""
    two = list(fake.space(SMALL, fake.TARGET))[:2]
    monkeypatch.setattr(race_state.every_layer, "for_layer", lambda workload, target: [])
    packs = race_state.loaded_packs
    monkeypatch.setattr(packs, "configs_for", lambda workload, target: [] if workload.block else list(two))
    return of_any_size


@pytest.fixture
def in_a_block(comparisons, monkeypatch):
    """The passes of a layer that every step runs in a block alone, and those of the block."""
    passes = (*PASSES, "forward", "backward")
    templates = [dataclasses.replace(fake.template(pass_=pass_), any_size=True) for pass_ in passes]
    monkeypatch.setattr(template_module, "all_templates", lambda: {each.name: each for each in templates})
    block = dataclasses.replace(LARGE, pass_="forward", block=Block.parse("none,bn+relu"))
    layer = [LARGE.for_pass(pass_) for pass_ in PASSES]
    return {**dict.fromkeys(layer, 2), block: 2, block.for_pass("backward"): 2}


def test_gradients_in_a_block_that_is_one_in_any_case_are_not_raced(comparisons, in_a_block, log):
    fprop, *gradients = [LARGE.for_pass(pass_) for pass_ in PASSES]
    comparisons.around_us = 3 * WON
    result = race(in_a_block, fake.TARGET, log=log, seconds=60.0, known=Database.of([]), workers=WORKERS)
    raced = {dataclasses.replace(each, any_size=False) for each, _ in comparisons.raced}
    assert raced == in_a_block.keys() - {*gradients} and fprop in raced
    assert (result.not_needed, result.left) == (tuple(gradients), ()) and "; 2 in blocks alone" in str(result)
    comparisons.raced.clear()
    again = race(in_a_block, fake.TARGET, log=log, seconds=60.0, known=Database.of(log.load().records), workers=WORKERS)
    assert (comparisons.raced, again.not_needed, again.left) == ([], tuple(gradients), ())


@pytest.mark.parametrize(
    ("around_us", "us_of_block", "more_calls", "bias"),
    [(0.5 * WON, WON, 0, False), (None, WON, 0, False), (3 * WON, None, 0, False), (3 * WON, WON, 1, False),
     (0.5 * WON, WON, 0, True)],
)  # fmt: skip
def test_gradients_in_a_block_that_may_run_as_parts_are_raced_last(
    comparisons, in_a_block, log, around_us, us_of_block, more_calls, bias
):
    gradients = [LARGE.for_pass("dgrad"), dataclasses.replace(LARGE.for_pass("wgrad"), bias=bias)]
    wanted = {dataclasses.replace(each, bias=bias and each.pass_ == "wgrad"): in_a_block[each] for each in in_a_block}
    wanted |= {each: wanted[each] + more_calls for each in gradients}
    comparisons.around_us = around_us
    of_block = {each for each in wanted if each.block}
    comparisons.us = {size: us_of_block for each in of_block for size in (each, each.with_any_size())}
    result = race(wanted, fake.TARGET, log=log, seconds=60.0, known=Database.of([]), workers=WORKERS)
    order = [dataclasses.replace(each, any_size=False) for each, _ in comparisons.raced]
    assert {*order} == wanted.keys() and result.not_needed == result.left == ()
    if not more_calls:
        assert {*order[:3]}.isdisjoint(gradients)
    assert result.raced == len(wanted)


def test_gradients_that_wait_for_their_block_are_left_when_the_time_is_up(comparisons, in_a_block, log, monkeypatch):
    comparisons.around_us = 3 * WON
    now_s = iter(range(0, 1000, 10))
    monkeypatch.setattr(race_state.time, "monotonic", lambda: float(next(now_s)))
    result = race(in_a_block, fake.TARGET, log=log, seconds=45.0, known=Database.of([]), workers=WORKERS)
    assert {LARGE.for_pass("dgrad"), LARGE.for_pass("wgrad")} <= {*result.left} and result.not_needed == ()


@pytest.mark.parametrize("has_packs", [False, True])
def test_workers_start_before_gains_are_predicted(comparisons, log, monkeypatch, has_packs):
    """Both take a while. Where packs have the kernels, nothing is built."""
    began, predicted = [], race_state.expected_gains_us
    starts = {name: SimpleNamespace(start=lambda name=name: began.append(name)) for name in ("builders", "measurer")}
    monkeypatch.setattr(race_module.loaded_packs, "are_for_every_layer", lambda target: has_packs)
    monkeypatch.setattr(race_state, "expected_gains_us", lambda *given: began.append("gains") or predicted(*given))
    known = Database.of([])
    race({LARGE: 1}, fake.TARGET, log=log, seconds=60.0, known=known, workers=SimpleNamespace(**starts))
    assert began == ["builders", "measurer", "gains"][has_packs:]


def test_kernels_for_every_layer_are_raced_first_and_those_of_one_size_where_they_are_worth_it(for_every_layer, log):
    """Against a PyTorch of 200 µs, one for the size takes 45 where that for every layer takes 50: 5 ms of a thousand
    steps, and 5 s where a step has a thousand such calls."""
    often, rare, lost = LARGE, SMALL, fake.WORKLOAD
    for_every_layer.us = {lost.with_any_size(): 1000.0}
    counts = {often: 1000, rare: 1, lost: 1}
    result = race(counts, fake.TARGET, log=log, seconds=60.0, known=Database.of([]), workers=WORKERS)
    raced = [workload for workload, _ in for_every_layer.raced]
    assert raced == [often.with_any_size(), *(each.with_any_size() for each in (lost, rare)), often]
    assert dict(for_every_layer.raced)[often.with_any_size()] == 2
    assert (set(result.won), result.lost) == ({often, rare}, (lost,))
    again = race(counts, fake.TARGET, log=log, seconds=60.0, known=Database.of(log.load().records), workers=WORKERS)
    assert again.raced == 0


def test_without_time_no_kernel_for_every_layer_is_built(for_every_layer, log, monkeypatch):
    every = Candidate(dataclasses.replace(LARGE, any_size=True, any_channels=True), fake.space(LARGE, None).default)
    monkeypatch.setattr(race_state.every_layer, "for_layer", lambda workload, target: [every])
    monkeypatch.setattr(race_state.loaded_packs, "has", lambda workload, config, target: False)
    result = race({LARGE: 1}, fake.TARGET, log=log, seconds=0.0, known=Database.of([]), workers=WORKERS)
    assert (result.left, result.problem) == ((LARGE,), "")


LARGE_KERNEL = dataclasses.replace(LARGE, kernel=(5, 5), padding=((2, 2), (2, 2)))


@pytest.mark.parametrize(
    ("workload", "is_worth_a_build"),
    [
        (LARGE, True),
        (LARGE.for_pass("dgrad"), False),
        (LARGE.for_pass("wgrad"), True),
        (LARGE_KERNEL.for_pass("wgrad"), False),
        (dataclasses.replace(LARGE, layout="nchw").for_pass("dgrad"), True),
    ],
)
def test_one_size_has_a_kernel_of_its_own_where_such_kernels_were_seen_to_be_faster(
    for_every_layer, log, workload, is_worth_a_build
):
    """A step has 400 calls of 50 µs: 2 % of them are 0.4 s of a thousand steps, and 8 % are 1.6 s."""
    race({workload: 400}, fake.TARGET, log=log, seconds=60.0, known=Database.of([]), workers=WORKERS)
    raced = [each for each, _ in for_every_layer.raced]
    assert raced == [workload.with_any_size(), *([workload] if is_worth_a_build else [])]


def test_a_kernel_for_the_size_that_loses_leaves_what_has_won(for_every_layer, log):
    for_every_layer.us = {LARGE: 1000.0}
    result = race({LARGE: 1000}, fake.TARGET, log=log, seconds=60.0, known=Database.of([]), workers=WORKERS)
    assert len(for_every_layer.raced) == 2 and result.won == (LARGE,)


def test_one_build_serves_all_layers_of_a_kind(for_every_layer, log, monkeypatch):
    general = Candidate(dataclasses.replace(LARGE, any_size=True, any_channels=True), fake.space(LARGE, None).default)
    monkeypatch.setattr(race_state.every_layer, "for_layer", lambda workload, target: [general])
    monkeypatch.setattr(race_state.loaded_packs, "has", lambda workload, config, target: False)
    asked, noted = [], []

    def build(candidates, workers):
        asked.extend(candidates)
        return [Artifact(candidate=each, kind="cpu", source="", arguments=()) for each in asked]

    monkeypatch.setattr(built_and_checked, "built_and_checked", build)
    monkeypatch.setattr(race_state.loaded_packs, "note_built", lambda: noted.append(len(asked)))
    race({LARGE: 1, SMALL: 1}, fake.TARGET, log=log, seconds=60.0, known=Database.of([]), workers=WORKERS)
    assert asked == [general] and noted == [1]


def test_mobilenet_v2_takes_a_build_for_each_kind_of_pass(monkeypatch, no_packs):
    """Of seventeen layers with norms and activations around them, each in two strides."""
    target = cpu_target()
    monkeypatch.setattr(race_state, "can_load_libraries", lambda: True)
    monkeypatch.setattr(race_state.loaded_packs, "has", lambda workload, config, target: False)
    layers = [
        dataclasses.replace(
            fake.WORKLOAD, batch=8, channels=channels, input_size=(size,) * 2, kernel=(3, 3), stride=(stride,) * 2,
            padding=((1, 1),) * 2, layout="nhwc",
        )
        for channels, size, stride in MOBILENET_V2
    ]  # fmt: skip
    norms = Block.parse("bn+relu6,bn+relu6")
    blocks = [dataclasses.replace(each, pass_=pass_, block=norms) for each in layers for pass_ in BLOCK_PASSES]
    passes = [each.for_pass(pass_) for each in layers for pass_ in PASSES]
    gains_us = dict.fromkeys((*blocks, *passes), 1.0)
    monkeypatch.setattr(race_state, "expected_gains_us", lambda *given: gains_us)
    state = race_state.RaceState(dict.fromkeys(gains_us, 1), target, known=Database.of([]), seconds=60.0)
    state.order()
    built = [each.workload for each in iter(state.next_for_every_layer, None)]
    assert {each.pass_ for each in built} == {*BLOCK_PASSES, "fprop"} and state.goes_on()
    built += [each.workload for each in iter(state.next_for_every_layer, None)]
    assert len([each for each in built if each.block]) == 2 * len(BLOCK_PASSES)
    assert len([each for each in built if not each.block]) == 2 * len(PASSES)


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("packed", [0, 1])
def test_a_second_kernel_for_every_layer_is_built_where_there_is_much_to_win(
    for_every_layer, monkeypatch, pass_, packed
):
    """In the layers of its kind together. One that is there is not built again."""
    layers = {size.for_pass(pass_): 1 for size in (LARGE, SMALL)}
    every = dataclasses.replace(LARGE.for_pass(pass_), any_size=True, any_channels=True)
    two = [Candidate(every, config) for config in list(fake.space(every, fake.TARGET))[:2]]
    monkeypatch.setattr(race_state.every_layer, "for_layer", lambda workload, target: two)
    monkeypatch.setattr(
        race_state.loaded_packs,
        "has",
        lambda workload, config, target: config in [each.config for each in two[:packed]],
    )
    build_s = race_state._build_of_every_layer_s(every)
    enough_us = 1e6 * build_s / (race_state._STEPS * race_state._OTHERS_SAVE)
    for times in (0.9, 1.1):
        gains_us = dict.fromkeys(layers, times * enough_us / len(layers))
        monkeypatch.setattr(race_state, "expected_gains_us", lambda *given, found=gains_us: found)
        state = race_state.RaceState(layers, fake.TARGET, known=Database.of([]), seconds=60.0)
        state.order()
        built = list(iter(state.next_for_every_layer, None))
        assert built == two[packed : 1 + (times > 1)]


def test_when_the_time_is_up_the_rest_is_left(comparisons, log, monkeypatch):
    monkeypatch.setattr(race_state, "time", SimpleNamespace(monotonic=lambda: 10.0 * len(comparisons.raced)))
    result = run(log, SMALL, LARGE, fake.WORKLOAD, seconds=5.0)
    assert result.won == (LARGE,)
    assert result.left == (fake.WORKLOAD, SMALL)
    gains = expected_gain.expected_gains_us({SMALL: 1, fake.WORKLOAD: 1}, fake.TARGET, Database.of([]))
    assert result.left_us == sum(gains.values()) > 0
    assert f"2 left for the next time, which may win {result.left_us / 1e3:.2f} ms of a step" in str(result)


def test_without_time_nothing_starts_or_is_predicted(comparisons, log, monkeypatch):
    monkeypatch.setattr(race_state, "expected_gains_us", None)
    assert run(log, SMALL, LARGE, seconds=0.0).left == (SMALL, LARGE)
    assert not comparisons.raced


def test_what_other_work_disturbed_is_raced_again_in_the_end(comparisons, log):
    comparisons.busy = 1
    result = run(log, SMALL, LARGE)
    assert [workload for workload, _ in comparisons.raced] == [LARGE, SMALL, LARGE]
    assert (set(result.won), result.inconclusive) == ({SMALL, LARGE}, ())


def test_on_a_busy_machine_the_race_ends(comparisons, log):
    comparisons.busy = 1000
    sizes = [dataclasses.replace(fake.WORKLOAD, batch=batch) for batch in range(1, 21)]
    result = run(log, *sizes)
    assert len(result.inconclusive) == race_state._MOST_INCONCLUSIVE
    assert "other work keeps the machine busy" in result.problem
    assert len(result.left) == 20 - len(result.inconclusive)
    comparisons.busy = 0
    assert len(run(log, *sizes, records=log.load().records).won) == 20, "what was contended does not count"


@pytest.fixture
def is_quiet(monkeypatch):
    """Whether the machine is quiet when it is looked at; a test may change it."""
    looks = {"quiet": True}

    class Quiet:
        def __init__(self, *, threads):
            pass

        def look(self):
            return looks["quiet"]

    monkeypatch.setattr(contention, "Quiet", Quiet)
    return looks


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("us", [150.0, 189.0], ids=["seems faster", "just as fast"])
def test_what_never_shows_which_is_faster_on_a_quiet_machine_is_left_to_pytorch(comparisons, log, is_quiet, pass_, us):
    comparisons.busy, comparisons.us = 1000, {SMALL.for_pass(pass_): us}
    workload = SMALL.for_pass(pass_)
    result = run(log, workload)
    assert len(comparisons.raced) == 3 and (result.lost, result.inconclusive) == ((workload,), ())
    known = Database.of(log.load().records)
    again = run(log, workload, records=known)
    assert (again.raced, again.known) == (0, (workload,)) and len(comparisons.raced) == 3
    found = decide.decide_on(fake.TARGET, workload, known=known)
    (settled, *_) = (record for record in known if record.settled)
    assert found.provider == "pytorch" and not found.command
    low, high = settled.interval
    assert f"onednn-nhwc stays: dwconv was {low:.2f} to {high:.2f} times as fast" in found.reason


def test_candidates_beside_one_that_was_contended_are_settled_with_it(comparisons, log, is_quiet, monkeypatch):
    two = list(fake.space(LARGE, fake.TARGET))[:2]
    monkeypatch.setattr(race_state, "starts", lambda *known, most: [Start(config=config, reason="") for config in two])

    def record(candidate):
        found = fake.record(candidate.workload, candidate.config, median_us=150.0 + two.index(candidate.config))
        disturbed = dataclasses.replace(found.measurement, contention=0.5)
        return found if candidate.config == two[1] else dataclasses.replace(found, measurement=disturbed)

    monkeypatch.setattr(comparisons, "_record", record)
    assert run(log, LARGE).lost == (LARGE,) and comparisons.raced == [(LARGE, 2)] * 3
    assert run(log, LARGE, records=log.load().records).known == (LARGE,)


def test_a_machine_that_stays_busy_settles_nothing(comparisons, log, is_quiet):
    comparisons.busy, is_quiet["quiet"] = 1000, False
    assert run(log, SMALL).inconclusive == (SMALL,) and len(comparisons.raced) == 2
    is_quiet["quiet"] = True
    comparisons.busy = 0
    assert run(log, SMALL, records=log.load().records).won == (SMALL,)


def test_what_is_clearly_slower_beside_other_work_is_not_raced_again(comparisons, log, monkeypatch):
    """As the turns of a comparison make sure."""
    usual = comparisons._record

    def record(candidate):
        found = usual(candidate)
        disturbed = dataclasses.replace(found.measurement, contention=0.6)
        return dataclasses.replace(found, measurement=disturbed, raced=True, settled=True)

    monkeypatch.setattr(comparisons, "_record", record)
    comparisons.us = {SMALL: LOST}
    assert run(log, SMALL).lost == (SMALL,)
    assert run(log, SMALL, records=log.load().records).known == (SMALL,)


def test_a_search_goes_before_what_a_race_has_settled(comparisons, log):
    settled = known_record(confirmed=False, settled=True, measurement=dataclasses.replace(BUSY, median_us=WON))
    confirmed = known_record(config=[*fake.space(fake.WORKLOAD, fake.TARGET)][1])
    for records, provider in (([settled], "pytorch"), ([settled, confirmed], "dwconv")):
        assert is_known(fake.WORKLOAD, fake.TARGET, Database.of(records), broken={})
        assert decide.decide_on(fake.TARGET, fake.WORKLOAD, known=Database.of(records)).provider == provider


def test_a_clear_winner_of_a_busy_machine_is_known_from_then_on(comparisons, log, monkeypatch):
    usual = comparisons._record

    def record(candidate):
        found = usual(candidate)
        disturbed = dataclasses.replace(found.measurement, contention=0.6)
        return dataclasses.replace(found, measurement=disturbed, raced=True)

    monkeypatch.setattr(comparisons, "_record", record)
    assert run(log, SMALL).won == (SMALL,)
    assert run(log, SMALL, records=log.load().records).known == (SMALL,)
    quiet = fake.record(SMALL, fake.space(SMALL, fake.TARGET).default, median_us=WON)
    (told,) = log.load().records[-1:]
    assert told.contended and not told.inconclusive and not told.ends_search, "a search goes on from there"
    history = History()
    history.add(told)
    slow = dataclasses.replace(
        quiet, confirmed=True, providers={"onednn-nhwc": dataclasses.replace(BUSY, median_us=9e9)}
    )
    assert history.judged(slow, busy=lambda: 0.0).confirmed, "what a baseline takes at least is no history of it"


def test_a_winner_that_turned_out_wrong_leaves_it_to_the_next_best(comparisons, log, monkeypatch):
    usual, wrong = comparisons._record, []

    def record(candidate):
        if not wrong or candidate.config in wrong:
            wrong.append(candidate.config)
            return fake.record(candidate.workload, candidate.config, median_us=None, status=Status.WRONG)
        found = usual(candidate)
        return found if len(comparisons.raced) > 1 else dataclasses.replace(found, confirmed=False)

    monkeypatch.setattr(comparisons, "_record", record)
    two = list(fake.space(LARGE, fake.TARGET))[:2]
    monkeypatch.setattr(race_state, "starts", lambda *known, most: [Start(config=config, reason="") for config in two])
    result = run(log, LARGE)
    assert comparisons.raced == [(LARGE, 2), (LARGE, 1)]
    assert result.won == (LARGE,)


@pytest.mark.parametrize(
    "error", [LogError("no space"), WorkerCannotStart("a worker cannot start"), EnvironmentFailure("short of memory")]
)
def test_the_result_names_what_ended_the_race(comparisons, log, error, tmp_path):
    comparisons.raises = error
    result = run(log, SMALL, LARGE)
    assert (result.won, result.left, result.problem) == ((LARGE,), (SMALL,), str(error))
    (tmp_path / "file").write_text("")
    comparisons.raced.clear()
    result = run(TuningLog(tmp_path / "file" / "log.jsonl"), SMALL)
    assert "cannot be written" in result.problem and result.left == (SMALL,)
    assert not comparisons.raced, "nothing starts"


def test_ctrl_c_is_raised_and_what_was_measured_is_kept(comparisons, log):
    comparisons.raises = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(log, SMALL, LARGE)
    assert {record.workload for record in log.load().records} == {LARGE}


def test_what_nothing_can_run_is_no_failure(comparisons, log, monkeypatch):
    monkeypatch.setattr(template_module, "all_templates", lambda: {"fake.fprop": fake.template()})
    wgrad = SMALL.for_pass("wgrad")
    result = run(log, wgrad, LARGE)
    assert (result.without_kernels, result.won, result.left) == ((wgrad,), (LARGE,), ())


# -- what is known ---------------------------------------------------------------------------------------------------


def known_record(us: float = WON, **changes: object) -> TuningRecord:
    default = fake.space(fake.WORKLOAD, fake.TARGET).default
    return dataclasses.replace(fake.record(fake.WORKLOAD, default, median_us=us), **{"confirmed": True, **changes})


BUSY = Measurement(median_us=WON, spread_us=1.0, rounds=9, contention=0.5)


@pytest.mark.parametrize(
    ("records", "known"),
    [
        ([], False),
        ([known_record()], True),
        ([known_record(confirmed=False)], False),
        ([known_record(LOST, confirmed=False)], True),
        ([known_record(LOST, confirmed=False), known_record(confirmed=False)], False),
        ([known_record(device="another")], False),
        ([known_record(versions={"math": "fast"})], False),
        ([known_record(measurement=dataclasses.replace(BUSY, median_us=LOST), confirmed=False)], False),
        ([known_record(status=Status.CRASHED, measurement=None, confirmed=False)], True),
        ([known_record(measurement=Measurement(median_us=1.0, spread_us=0, rounds=1, computed=True))], False),
    ],
)
def test_what_is_known(comparisons, records, known):
    assert is_known(fake.WORKLOAD, fake.TARGET, Database.of(records), broken={}) is known


def test_a_confirmed_record_that_is_not_legal_any_more_does_not_count(comparisons, monkeypatch):
    record = known_record()
    other = fake.template(space=fake.small_space)
    monkeypatch.setattr(template_module, "all_templates", lambda: {other.name: other})
    assert not is_known(record.workload, fake.TARGET, Database.of([record]), broken={})


# -- progress --------------------------------------------------------------------------------------------------------


def test_how_a_race_stands_is_a_line_now_and_then(monkeypatch, capsys):
    now = iter([0.0, 1.0, 6.0, 7.0])
    monkeypatch.setattr(race_result, "time", SimpleNamespace(monotonic=lambda: next(now)))
    progress = RaceProgress()
    progress(RaceResult(left=(SMALL, LARGE), running=(SMALL,), ends_in_s=60.0))
    progress(RaceResult(inconclusive=(SMALL,), left=(LARGE,), running=(LARGE,), ends_in_s=41.0))
    progress(RaceResult(won=(SMALL, LARGE)))
    said = "fprop 8×96×56×56 k3 nhwc, slower since the machine is busy (1 inconclusive), at most 41 s more"
    assert capsys.readouterr().err == f"dwconv: 1 of 2 passes raced, {said}\n", "a short race needs no words"


def test_on_a_terminal_a_bar_shows_how_a_race_stands(monkeypatch):
    printed, usual = io.StringIO(), rich.console.Console
    printed.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", printed)
    monkeypatch.setattr(
        rich.console, "Console", lambda **options: usual(**options | {"force_terminal": True, "width": 200})
    )
    with RaceProgress() as progress:
        progress(RaceResult(left=(SMALL, LARGE), running=(SMALL,), ends_in_s=60.0))
        progress(RaceResult(won=(SMALL,), left=(LARGE,), running=(LARGE,), ends_in_s=41.0))
    assert "fprop 8×96×56×56 k3 nhwc, at most 41 s more" in printed.getvalue() and "1/2" in printed.getvalue()
    assert "passes raced" not in printed.getvalue(), "no lines beside it"


def test_every_workload_is_named_while_it_is_raced(comparisons, log):
    seen = []
    run(log, SMALL, LARGE, progress=seen.append)
    assert [each.running for each in seen] == [(), (LARGE,), (), (SMALL,), ()]
    assert [len(each.left) for each in seen] == [2, 2, 1, 1, 0] and 0 < seen[1].ends_in_s <= 60
