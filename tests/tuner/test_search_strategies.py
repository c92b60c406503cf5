import dataclasses
import math
import random
import statistics

import pytest

from dwconv.errors import NoTemplate
from dwconv.problems.target import CpuTarget, parse_target
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.cuda.gpu.cost import least_us, total_us
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule
from dwconv.schedules.template import estimated_us, template
from dwconv.tuner.search import search_strategies
from dwconv.tuner.search.search_result import SEARCHES, Stop
from dwconv.tuner.search.search_strategies import Analytic, Strategy, estimates, in_order, make_strategy
from dwconv.tuner.search.space_union import SpaceUnion, Unvisited
from tests import fake_tuning as fake

SM_90 = parse_target("cuda:sm_90")


def estimate(workload, config, target) -> float:
    """The fake templates have no blocks to price: it knows of one knob, and is off by the others."""
    return 100.0 * (1 + abs(math.log2(config.tile_w / 2)))


def union(*spaces: ConfigSpace) -> SpaceUnion:
    return SpaceUnion(spaces or [fake.space(fake.WORKLOAD, fake.TARGET)])


def strategy(search: str, spaces: SpaceUnion, *, seed: int = 0) -> Strategy:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_strategies, "estimated_us", estimate)
        return make_strategy(search, spaces=spaces, workload=fake.WORKLOAD, seed=seed, target=SM_90)


def drive(search: str, spaces: SpaceUnion, *, trials: int, seed: int, shuffled: random.Random | None = None) -> list:
    """Propose, measure on the landscape, learn; returns the batches proposed."""
    chosen = strategy(search, spaces, seed=seed)
    batches = []
    while sum(map(len, batches)) < trials:
        batch = chosen.ask(8)
        if not batch:
            break
        batches.append(batch)
        told = shuffled.sample(batch, k=len(batch)) if shuffled else batch
        for config in told:
            failed = config.vectors_c == 8 if hasattr(config, "vectors_c") else False
            time_us = None if failed else fake.time_us(config)
            chosen.tell(fake.record(fake.WORKLOAD, config, median_us=time_us, status=Status.TIMEOUT))
    return batches


def best(batches: list) -> float:
    return min(fake.time_us(config) for batch in batches for config in batch)


@pytest.mark.parametrize("search", SEARCHES)
def test_searches_propose_valid_configurations_once_and_the_default_first(search):
    spaces = union()
    batches = drive(search, spaces, trials=64, seed=3)
    asked = [config for batch in batches for config in batch]
    assert asked[0] == spaces.defaults[0]
    assert len(set(asked)) == len(asked) >= 64
    legal = set(spaces)
    assert all(config in legal for config in asked)


def test_evolution_starts_from_what_is_nearest_to_what_was_good_elsewhere():
    spaces = union()
    (default,) = spaces.defaults
    elsewhere = Config.of("fake.fprop", **{**dict(default.values), "block_h": 12, "block_c": 300, "order": "unknown"})
    near = Config.of("fake.fprop", **{**dict(default.values), "block_h": 14, "block_c": 96})
    illegal = Config.of("fake.fprop", **{**dict(default.values), "tile_h": 7, "block_h": 1})
    legal = Config.of("fake.fprop", **{**dict(default.values), "tile_h": 4, "block_h": 4})
    other = Config.of("cpu.another", block_h=4)
    chosen = make_strategy(
        "evolve", spaces=spaces, workload=fake.WORKLOAD, seed=0, starts=[other, illegal, default, elsewhere, elsewhere]
    )
    assert chosen.ask(3) == [default, legal, near]
    assert chosen.ask(1) != [near]


def test_evolution_tries_few_starts_and_of_the_others_those_that_are_estimated_to_be_fast():
    target = CpuTarget(device="avx512-2t", threads=2, vector_bytes=64)
    spaces = SpaceUnion.of(fake.WORKLOAD, target)
    drawn = Unvisited(spaces, seed=0).draw(60)
    *slow, fast = sorted(drawn, key=lambda config: estimated_us(fake.WORKLOAD, config, target), reverse=True)
    starts = [*drawn[:3], *[config for config in slow if config not in drawn[:3]][:3], fast]
    chosen = make_strategy("evolve", spaces=spaces, workload=fake.WORKLOAD, seed=0, target=target, starts=starts)
    first = chosen.ask(8)
    assert first == [*spaces.defaults, *starts[:3]]
    for config in first:
        time_us = estimated_us(fake.WORKLOAD, config, target)
        chosen.tell(fake.record(fake.WORKLOAD, config, median_us=time_us))
    second = chosen.ask(8)
    assert len(second) == 4 and not set(second) & set(starts[3:6])
    costs = [estimated_us(fake.WORKLOAD, config, target) for config in second]
    assert max(costs) <= 1.05 * estimated_us(fake.WORKLOAD, fast, target)


def test_on_a_gpu_many_are_tried_at_once_those_of_the_least_estimates():
    workload = dataclasses.replace(fake.WORKLOAD, layout="nchw")
    spaces = SpaceUnion.of(workload, SM_90)
    chosen = make_strategy("evolve", spaces=spaces, workload=workload, seed=0, target=SM_90, at_once=20)
    first = chosen.ask(20)
    assert len(first) == 20 and first[: len(spaces.defaults)] == spaces.defaults
    costs = sorted(estimated_us(workload, config, SM_90) for config in Unvisited(spaces, seed=1).draw(100))
    *_, slowest = sorted(estimated_us(workload, config, SM_90) for config in first[len(spaces.defaults) + 3 :])
    assert slowest < costs[len(costs) // 4]


@pytest.mark.parametrize("search", SEARCHES)
def test_small_spaces_are_exhausted_but_for_what_was_measured(search):
    spaces = union(fake.small_space(fake.WORKLOAD, fake.TARGET))
    known, *others = spaces
    chosen = strategy(search, spaces)
    # as a log may have it: the knobs in another order; and what is of another space
    chosen.tell(fake.record(fake.WORKLOAD, Config(known.template, known.values[::-1]), median_us=None))
    chosen.tell(fake.record(fake.WORKLOAD, Config.of("fake.fprop", tile_w=3, order="a"), median_us=1.0))
    chosen.tell(fake.record(fake.WORKLOAD, Config.of("gone", block_h=1), median_us=1.0))
    asked = []
    while batch := chosen.ask(4):
        asked += batch
        for config in batch:
            chosen.tell(fake.record(fake.WORKLOAD, config, median_us=1.0))
    assert sorted(asked, key=str) == sorted(others, key=str)


@pytest.mark.parametrize("search", ["random", "evolve", "analytic"])
def test_same_seed_and_records_give_the_same_proposals_in_whatever_order_they_arrive(search):
    first = drive(search, union(), trials=48, seed=5)
    assert drive(search, union(), trials=48, seed=5, shuffled=random.Random(1)) == first
    if search != "analytic":
        assert drive(search, union(), trials=48, seed=6) != first


def test_analytic_takes_the_defaults_and_then_the_least_estimates():
    spaces = union()
    chosen = strategy("analytic", spaces)
    asked = chosen.ask(24)
    first = len(spaces.defaults)
    others = sorted(
        set(spaces) - set(spaces.defaults),
        key=lambda config: (estimate(fake.WORKLOAD, config, None), str(config)),
    )
    assert asked == [*spaces.defaults, *others[: 24 - first]]


LAYER = dataclasses.replace(fake.WORKLOAD, layout="nchw")


def computed(config: Config, *, median_us: float | None) -> TuningRecord:
    record = fake.record(LAYER, config, median_us=median_us, status=Status.OK if median_us else Status.COMPILE_ERROR)
    if record.measurement is None:
        return record
    return dataclasses.replace(record, measurement=dataclasses.replace(record.measurement, computed=True))


def analytic(spaces: SpaceUnion) -> Analytic:
    chosen = make_strategy("analytic", spaces=spaces, workload=LAYER, seed=0, target=SM_90)
    assert isinstance(chosen, Analytic)
    return chosen


@pytest.mark.usefixtures("short_ranking")
def test_analytic_builds_candidates_of_the_same_work_once():
    """Unless the one that was built does not work: then the next one is."""
    spaces = SpaceUnion.of(LAYER, SM_90)
    chosen = analytic(spaces)
    asked = chosen.ask(60)
    works = [chosen._works(config) for config in asked[len(spaces.defaults) :]]
    assert len(set(works)) == len(works)
    works_of_first, (first, *_) = next((works, alike) for works, alike in chosen._alike.items() if alike)
    built = next(config for config in asked if chosen._works(config) == works_of_first)
    chosen.tell(computed(built, median_us=None))
    assert chosen.ask(1) == [first]


def test_estimates_go_on_from_what_is_known():
    """No draw: the neighbours of the best, and theirs."""
    spaces = SpaceUnion.of(LAYER, SM_90)
    start = spaces.defaults[0]
    known = {start: estimated_us(LAYER, start, SM_90)}
    found = estimates(spaces, LAYER, SM_90, seed=0, known=known)
    assert set(spaces.neighbours(start)) < set(found) and {config.template for config in found} == {start.template}
    best, *_ = in_order(found)
    assert found[best] <= known[start] and set(spaces.neighbours(best)) <= set(found)
    assert all(spaces.adopt(config) == config for config in found)


def test_what_pays_only_in_two_knobs_together_is_found(monkeypatch):
    """Each step alone takes longer."""
    together = ConfigSpace("fake.fprop", Knob("a", [1, 2, 3]), Knob("b", [1, 2, 3]), preferred={"a": 1, "b": 1})
    times = {(1, 1): 3.0, (3, 3): 1.0}
    monkeypatch.setattr(search_strategies, "estimated_us", lambda _, config, __: times.get((config.a, config.b), 9.0))
    start = together.default
    found = estimates(union(together), LAYER, SM_90, seed=0, known={start: 3.0})
    assert in_order(found)[0].values == (("a", 3), ("b", 3))


@pytest.mark.usefixtures("short_ranking")
def test_analytic_ends_when_nothing_left_can_cost_less():
    spaces = SpaceUnion.of(LAYER, SM_90)
    chosen = analytic(spaces)
    asked = chosen.ask(len(spaces.defaults) + 4)
    best = asked[-4]
    least = least_us(chosen._works(best), SM_90)
    assert least <= estimated_us(LAYER, best, SM_90)
    chosen.tell(computed(best, median_us=2 * least))
    more = chosen.ask(8)
    assert all(least_us(chosen._works(config), SM_90) < 2 * 0.97 * least for config in more)
    chosen.tell(computed(best, median_us=least / 2))
    assert chosen.ask(8) == [] and chosen.stop is Stop.BOUND


def test_few_registers_bound_what_any_number_of_them_costs():
    spaces = SpaceUnion.of(LAYER, SM_90)
    rng = random.Random(0)
    for config in filter(None, (spaces.sample(rng) for _ in range(20))):
        works = template(config.template).works(LAYER, config, SM_90)
        for registers in (24, 40, 56, 72, 96, 128, 168, 255):
            given = [dataclasses.replace(work, registers=registers) for work in works]
            assert total_us(given, SM_90) >= least_us(works, SM_90) * (1 - 1e-9)


def test_evolve_finds_nearly_the_best_of_the_space():
    spaces = union()
    optimum = min(fake.time_us(config) for config in spaces if config.vectors_c != 8)
    found = [best(drive("evolve", spaces, trials=80, seed=seed)) for seed in range(4)]
    assert statistics.median(found) <= 1.1 * optimum


def test_evolve_searches_on_when_everything_failed():
    chosen = strategy("evolve", union())
    asked = []
    for count in (4, 4, 8, 8, 8, 8):
        batch = chosen.ask(8)
        assert len(batch) == count
        asked += batch
        for config in batch:
            chosen.tell(fake.record(fake.WORKLOAD, config, median_us=None, status=Status.CRASHED))
    assert len(set(asked)) == 40


@pytest.mark.parametrize("search", SEARCHES)
def test_several_templates_are_searched_as_one(search):
    one = fake.space(fake.WORKLOAD, fake.TARGET)
    two = ConfigSpace("fake.other", Knob("tile_w", [1, 2, 4]), Knob("lanes", [0, 8, 16]))
    impossible = ConfigSpace("fake.never", Knob("tile_w", [1, 2]), rules=[Rule("never", lambda config: True)])
    batches = drive(search, union(one, impossible, two), trials=40, seed=0)
    asked = [config for batch in batches for config in batch]
    assert [config.template for config in asked[:2]] == ["fake.fprop", "fake.other"]
    assert search == "analytic" or sum(config.template == "fake.other" for config in asked) >= 4


def test_no_legal_configuration_at_all_is_no_template():
    never = ConfigSpace("fake.never", Knob("tile_w", [1, 2]), rules=[Rule("never", lambda config: True)])
    with pytest.raises(NoTemplate, match=r"fake\.never"):
        union(never)
