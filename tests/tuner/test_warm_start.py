"""WarmStart: what was best with other versions is tried first, and is no result."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.records.record import Status
from dwconv.schedules import template as template_module
from dwconv.tuner.search import search_loop, search_strategies
from dwconv.tuner.search.search_loop import FINALISTS, SearchPlan
from tests import fake_tuning as fake
from tests.tuner.fake_search import AFRESH, tune


def made_before(record):
    """As it was measured with another TVM."""
    return dataclasses.replace(record, versions={**record.versions, "tvm": "0.1"})


@pytest.fixture
def old(log):
    """A whole search with another TVM: its records."""
    tune(log, fake.FakeRunner(fails=lambda c: Status.CRASHED if c.tile_w == 1 else None))
    records = [made_before(record) for record in log.load().records]
    log.path.unlink()
    for record in records:
        log.append(record)
    return records


def fastest(records, count=search_strategies.MOST_WARM_STARTS):
    """The fastest of what worked; those were confirmed."""
    worked = {record.config for record in records if record.status is Status.OK}
    return sorted(worked, key=fake.time_us)[:count]


@pytest.mark.parametrize("strategy", ["evolve", "random", "exhaustive"])
def test_what_was_best_with_other_versions_is_tried_first_and_is_no_result(log, old, strategy):
    runner = fake.FakeRunner()
    result = tune(log, runner, plan=SearchPlan(strategy=strategy))
    assert (result.trials, result.measured, result.resumed) == (24, 24, 0)
    assert runner.measured[: search_strategies.MOST_WARM_STARTS] == fastest(old)
    assert len(set(runner.measured)) == 24, "and not once more later"
    assert len(runner.confirmed) == FINALISTS and result.best.confirmed


def test_a_candidate_that_was_measured_since_is_known(log, old):
    first, second = fastest(old, 2)
    log.append(fake.record(fake.WORKLOAD, first, median_us=None, status=Status.WRONG))
    log.append(made_before(fake.record(fake.WORKLOAD, first, median_us=1.0)))  # with the other version once more
    runner = fake.FakeRunner()
    result = tune(log, runner, trials=3)
    assert result.resumed == 1 and first not in runner.measured
    assert runner.measured[0] == second


@pytest.mark.parametrize("strategy", ["evolve", "random", "exhaustive"])
def test_what_is_tried_again_is_not_tried_once_more(log, strategy):
    """Every strategy would begin with the default."""
    (default,) = search_loop.SpaceUnion.of(fake.WORKLOAD, fake.TARGET).defaults
    log.append(made_before(fake.record(fake.WORKLOAD, default, median_us=1.0)))
    runner = fake.FakeRunner()
    tune(log, runner, plan=SearchPlan(strategy=strategy), trials=8)
    assert runner.measured[0] == default and runner.measured.count(default) == 1


def test_what_is_current_is_not_tried_before_the_default(log):
    """A new search stands on its own feet."""
    tune(log, fake.FakeRunner())
    runner = fake.FakeRunner()
    tune(log, runner, plan=AFRESH)
    assert (
        runner.measured[:1]
        == search_loop.SpaceUnion.of(fake.WORKLOAD, fake.TARGET).defaults
        != fastest(log.load().records, 1)
    )


def test_as_many_are_tried_as_are_requested(old):
    spaces, configs = search_loop.SpaceUnion.of(fake.WORKLOAD, fake.TARGET), fastest(old)
    strategy = search_strategies.WarmStart(spaces, configs, then=search_strategies.Listed(spaces, []))
    assert [strategy.ask(count) for count in (1, 9, 9)] == [configs[:1], configs[1:], spaces.defaults]


def test_a_changed_template_makes_its_records_starts(log, monkeypatch):
    tune(log, fake.FakeRunner())
    changed = dataclasses.replace(fake.template(), version=2)
    before = log.load().records
    monkeypatch.setattr(template_module, "all_templates", lambda: {changed.name: changed})
    runner = fake.FakeRunner()
    assert tune(log, runner, trials=8).resumed == 0
    assert runner.measured[: search_strategies.MOST_WARM_STARTS] == fastest(before)


def test_as_many_trials_confirm_the_best_again_and_an_interrupted_run_goes_on(log, old):
    """The way to refresh records after an update."""
    few = {"trials": search_strategies.MOST_WARM_STARTS}
    tune(log, fake.FakeRunner(interrupt_after=3), **few)
    runner = fake.FakeRunner()
    result = tune(log, runner, **few)
    assert runner.measured == fastest(old)[3:] and runner.confirmed == fastest(old)
    assert result.best.confirmed and result.best.config == fastest(old)[0]
    assert len(log.load().records) == len(old) + 2 * search_strategies.MOST_WARM_STARTS


def test_what_other_logs_know_is_raced_again_too(tmp_path, log, old):
    other = TuningLog(tmp_path / "other.jsonl")
    elsewhere = [*log.load().records, dataclasses.replace(old[0], device="another")]
    known = Database.load([other.path])
    known.places.append(Database.of(elsewhere).places[0])
    runner = fake.FakeRunner()
    tune(other, runner, plan=SearchPlan(known=known), trials=search_strategies.MOST_WARM_STARTS)
    assert runner.measured == fastest(old)


def test_what_is_not_legal_any_more_makes_way_for_its_neighbour(log):
    default = search_loop.SpaceUnion.of(fake.WORKLOAD, fake.TARGET).defaults[0]
    illegal = default.of(default.template, **{**dict(default.values), "tile_w": 3})
    gone = default.of("gone", tile_w=1)
    for config in (gone, illegal):
        log.append(made_before(fake.record(fake.WORKLOAD, config, median_us=1.0)))
    runner = fake.FakeRunner()
    tune(log, runner, trials=1)
    (tried,) = runner.measured
    assert tried.template == default.template and tried.tile_w in (2, 4)
