"""Knobs, configurations and spaces, whatever template they belong to."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
from collections import Counter

import pytest

from dwconv.errors import InvalidConfig
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule, divisors

TOO_MANY = Rule("more than 8 sums", lambda config: config.rows * config.columns > 8)


def space(**preferred: int | str) -> ConfigSpace:
    return ConfigSpace(
        "cpu.test",
        Knob("rows", [1, 2, 4]),
        Knob("columns", [1, 2, 4, 8]),
        Knob("order", ["hw", "wh"]),
        rules=[TOO_MANY],
        preferred=preferred,
    )


def test_iterating_gives_every_legal_configuration_once() -> None:
    configs = list(space())
    assert len(configs) == len(set(configs)) == 2 * (4 + 3 + 2)
    assert all(config.rows * config.columns <= 8 for config in configs)
    assert space().size == 24


def test_draws_are_those_of_choice() -> None:
    """Seeds give the configurations that they gave."""
    drawn, chosen, sizes = random.Random(3), random.Random(3), (1, 2, 3, 4, 5, 8, 9)
    knobs = [Knob(f"of_{size}", list(range(size))) for size in sizes]
    free = ConfigSpace("cpu.test", *knobs)
    for _ in range(50):
        assert free.sample(drawn) == Config.of("cpu.test", **{knob.name: chosen.choice(knob.values) for knob in knobs})


def test_draws_keep_rules_of_few_knobs_and_stay_even() -> None:
    """Rules that share a knob are kept together; the other knobs are as free as before."""
    knobs = [Knob("a", [1, 2, 3]), Knob("free", [0, 1]), Knob("b", [1, 2, 3]), Knob("c", [1, 2, 3])]
    kept = [Rule("a and b", lambda c: c.a == c.b, of=("a", "b")), Rule("b and c", lambda c: c.b >= c.c, of=("c", "b"))]
    apart = Rule("a and free", lambda c: c.a == 3 and c.free == 1)
    drawn, rng = ConfigSpace("cpu.test", *knobs, rules=[*kept, apart]), random.Random(0)
    assert all(not rule.broken(drawn._config(drawn._drawn(rng))) for rule in kept for _ in range(50))
    counts = Counter(drawn.sample(rng) for _ in range(2000))
    legal = list(drawn)
    assert set(counts) == set(legal) and len(legal) == 9
    assert all(abs(count - 2000 / 9) < 6 * (2000 / 9) ** 0.5 for count in counts.values())
    none = ConfigSpace("cpu.test", *knobs, rules=[*kept, Rule("all", lambda c: c.a > 0, of=("a",))])
    assert none.sample(rng) is None


def test_two_apart_are_all_legal_ones_that_differ_in_two_knobs() -> None:
    start = space().check({"rows": 1, "columns": 2, "order": "hw"})
    wanted = {
        config for config in space() if sum(a != b for a, b in zip(config.values, start.values, strict=True)) == 2
    }
    found = space().two_apart(start)
    assert len(found) == len(wanted) and set(found) == wanted


def test_a_config_reads_its_knobs_as_attributes() -> None:
    config = Config.of("cpu.test", rows=2, columns=4, order="hw")
    assert (config.rows, config.order) == (2, "hw")
    assert str(config) == "rows=2 columns=4 order=hw"
    with pytest.raises(AttributeError, match="vectors"):
        _ = config.vectors


def test_a_config_whose_knobs_were_read_is_the_same() -> None:
    fresh, read = (Config("cpu.test", (("rows", 2), ("template", "mine"), ("values", 3))) for _ in range(2))
    assert read.rows == 2 and read.template == "cpu.test" and read.values == fresh.values
    assert read == fresh and hash(read) == hash(fresh) and repr(read) == repr(fresh)
    assert pickle.loads(pickle.dumps(read)) == dataclasses.replace(read) == copy.copy(read) == fresh
    other = dataclasses.replace(read, values=(("rows", 4),))
    assert other.rows == 4 and other != read


def test_the_default_is_legal_and_near_where_the_preferred_one_is_not() -> None:
    default = space(rows=4, columns=4, order="hw").default
    assert space().why_illegal(default) is None
    assert (default.rows, default.columns) in {(2, 4), (4, 2)}


def test_the_nearest_of_a_legal_configuration_is_itself() -> None:
    assert all(space().nearest(config) == space().check(config.to_dict()) == config for config in space())
    assert space(rows=2, columns=4, order="wh").default == Config.of("cpu.test", rows=2, columns=4, order="wh")
    assert space(rows=1, columns=7).default.columns == 8


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"rows": 4, "columns": 1000, "order": "wh"}, {(1, 8), (2, 4)}),  # 8 columns, then fewer rows or columns
        ({"rows": -3, "columns": 7, "order": "wh"}, {(1, 8)}),
        ({"rows": 2, "columns": 2, "order": "backwards"}, {(2, 2)}),
        ({"columns": 2, "order": "wh"}, {(1, 2)}),  # the default's rows
        ({"rows": 2, "columns": 10**1000, "order": "wh", "depth": 3}, {(1, 8), (2, 4)}),
    ],
)
def test_the_nearest_is_legal_and_near(wanted: dict[str, int | str], found: set[tuple[int, int]]) -> None:
    nearest = space().nearest(Config.of("cpu.test", **wanted))
    assert (nearest.rows, nearest.columns) in found
    assert space(rows=4).nearest(Config.of("cpu.test", columns=2, order="hw")).rows == 4, "the default's"
    assert nearest.order == ("wh" if wanted["order"] == "wh" else "hw")
    assert space().why_illegal(nearest) is None


def test_the_nearest_is_not_looked_for_without_end() -> None:
    knobs = [Knob(name, range(100)) for name in ("a", "b", "c", "d")]
    far = ConfigSpace("large", *knobs, rules=[Rule("too much", lambda config: config.a + config.b + config.c > 9)])
    with pytest.raises(InvalidConfig, match="large has no valid configuration near a=99"):
        far.nearest(Config.of("large", a=99, b=99, c=99, d=99))


def test_a_knob_without_a_choice_is_not_written_but_read() -> None:
    fixed = ConfigSpace("cpu.test", Knob("rows", [1, 2]), Knob("store", [], absent="cached"))
    assert [config.to_dict() for config in fixed] == [{"template": "cpu.test", "rows": rows} for rows in (1, 2)]
    assert fixed.check({"rows": 2, "store": "cached"}) == Config.of("cpu.test", rows=2)
    with pytest.raises(InvalidConfig, match=r"store='streamed' is not one of \['cached'\]"):
        fixed.check({"rows": 2, "store": "streamed"})
    assert fixed.nearest(Config.of("cpu.test", rows=2, store="streamed")) == Config.of("cpu.test", rows=2)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"rows": 3, "columns": 10**1000, "order": "no such"}, None),
        ({"store": "streamed"}, None),
        ({"store": 1}, "store=1 is not one of"),
        ({"rows": "1"}, "rows='1' is not one of"),
        ({"rows": True}, "rows=True is not one of"),
        ({"depth": 1}, "cpu.test has no knob depth"),
    ],
)
def test_what_no_space_of_a_template_holds_is_damaged(fields: dict[str, int | str], reason: str | None) -> None:
    known = ConfigSpace("cpu.test", *space().knobs, Knob("store", [], absent="cached"))
    told = known.why_damaged({"template": "cpu.test", **fields})
    assert told is None if reason is None else str(told).startswith(reason)


def test_what_a_knob_was_before_is_legal_and_not_searched() -> None:
    at = ConfigSpace("cpu.test", Knob("rows", [1, 2]), Knob("store", ["streamed"], absent="cached"))
    older = at.check({"rows": 1})
    assert older == at.check({"rows": 1, "store": "cached"}) and dict(older.values)["store"] == "cached"
    assert all(dict(config.values)["store"] == "streamed" for config in (*at, at.default, at.nearest(older)))
    assert {str(config) for config in at.neighbours(older)} == {"rows=2 store=cached"}


def test_a_space_with_nothing_legal_says_so() -> None:
    nothing = ConfigSpace("cpu.test", Knob("rows", [1]), rules=[Rule("never", lambda config: True)])
    with pytest.raises(InvalidConfig, match="no valid configuration"):
        _ = nothing.default
    assert nothing.sample(random.Random(0)) is None


def test_neighbours_differ_by_one_step_of_one_knob() -> None:
    near = space().neighbours(Config.of("cpu.test", rows=2, columns=4, order="hw"))
    assert {str(config) for config in near} == {
        "rows=1 columns=4 order=hw",
        "rows=2 columns=2 order=hw",
        "rows=2 columns=4 order=wh",
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 1, "columns": 1}, "needs a value for knob order"),
        ({"rows": 1, "columns": 1, "order": "hw", "depth": 3}, "no knob depth"),
        ({"rows": 3, "columns": 1, "order": "hw"}, "rows=3 is not one of"),
        ({"rows": True, "columns": 1, "order": "hw"}, "rows=True is not one of"),
        ({"rows": 4, "columns": 4, "order": "hw"}, "more than 8 sums"),
    ],
)
def test_reading_a_configuration_names_what_is_wrong(fields: dict[str, int | str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        space().check(fields)


def test_divisors() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(12, most=4) == [1, 2, 3, 4]
    assert divisors(7, most=6) == [1]


def test_a_space_too_large_to_list_is_only_drawn_from() -> None:
    """One legal configuration in a million million: nothing may wait until it is found."""
    knobs = [Knob(name, range(1000)) for name in ("a", "b", "c", "d")]
    space = ConfigSpace("large", *knobs, rules=[Rule("not the one", lambda c: (c.a, c.b, c.c, c.d) != (7, 7, 7, 7))])
    assert space.sample(random.Random(0), attempts=50) is None
