"""The order of the rounds, what is kept of them, and when they end, on a clock that the test sets.

What a timed call finds in the caches: tensors take turns, and results do not come back to the same memory.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import subprocess
import sys
import time

import pytest
import torch

from dwconv.measure.clock import contention
from dwconv.measure.clock.device import CudaClock
from dwconv.measure.clock.timing import (
    FINAL,
    TRIAL,
    CpuClock,
    Effort,
    InTurn,
    Lap,
    Taken,
    inputs_in_turn,
    results_held,
    rounds_in_turns,
    time_in_turns,
)
from dwconv.measure.providers import better_layout
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.target import CudaTarget, cpu_target, parse_target
from dwconv.problems.workload import Workload
from dwconv.records.record import CONTENDED


class FakeClock:
    """Each call 'takes' the microseconds that the test lists for it, lap after lap; the last for ever."""

    def __init__(self, **taken_us):
        self.taken_us = {name: list(laps) for name, laps in taken_us.items()}
        self.laps = []
        self.disturbed_us = set()
        self.lost_overall = 0.0

    def call(self, name):
        def call():
            return name

        return call

    def calls(self):
        return {name: self.call(name) for name in self.taken_us}

    def ready(self, call):
        return call

    def lap(self, call, *, times):
        name = call()
        rest = self.taken_us[name]
        taken_us = rest.pop(0) if len(rest) > 1 else rest[0]
        self.laps.append((name, times))
        return Lap(seconds=taken_us * 1e-6 * times, lost=0.9 if taken_us in self.disturbed_us else 0.0)

    def enough(self, effort):
        return effort

    def overall(self):
        return lambda: self.lost_overall


EFFORT = Effort(round_s=0.002, rounds=5, budget_s=10.0)


def test_takes_turns():
    clock = FakeClock(a=[100], b=[400])
    taken = time_in_turns(clock.calls(), clock=clock, effort=EFFORT)
    rounds = clock.laps[-10:]
    assert [name for name, _ in rounds] == ["a", "b", "b", "a", "a", "b", "b", "a", "a", "b"]
    for name, least, most in (("a", 20, 21), ("b", 5, 6)):  # each round fills two milliseconds
        assert all(least <= times <= most for lap, times in rounds if lap == name)
    assert taken["a"].median_us == pytest.approx(100) and taken["b"].median_us == pytest.approx(400)
    assert taken["a"].rounds == 5 and taken["a"].spread_us == pytest.approx(0, abs=1e-6)
    assert not taken["a"].computed


def test_the_better_layout_is_the_fastest():
    clock = FakeClock(nchw=[3000], nhwc=[2000])
    assert better_layout(clock.calls(), clock=clock) == "nhwc"


@pytest.mark.parametrize(
    ("laps_us", "round_s", "median_us", "spread_us", "times"),
    [
        ([50_000], 0.002, 50_000, 0, {1}),  # longer than a round
        ([100], 0.0, 100, 0, {1}),  # so that caches can be swept before every call
        ([4000, 1000, 2000, 3000, 4000, 50_000], 0.002, 3000, 2000, {1, 2}),
    ],
)
def test_median_and_interquartile_range(laps_us, round_s, median_us, spread_us, times):
    clock = FakeClock(a=laps_us)
    effort = dataclasses.replace(EFFORT, round_s=round_s)
    taken = time_in_turns(clock.calls(), clock=clock, effort=effort)["a"]
    assert taken.median_us == pytest.approx(median_us) and taken.spread_us == pytest.approx(spread_us, abs=1e-6)
    assert taken.rounds == 5 and {count for _, count in clock.laps} <= times


def test_what_the_turns_make_sure_of_beside_other_work():
    """Other work slows both calls of a turn by whatever factor."""
    slowed = [1, 7, 2, 1, 30, 1, 4, 1, 2, 9, 1, 3, 1, 1, 5, 2]
    for turns, sure in ((6, False), (len(slowed), True)):
        a, b = (tuple(us * factor for factor in factors[:turns]) for us, factors in ((300, slowed), (100, slowed)))
        taken = Taken(measurements={}, rounds_us={}, turns_us={"a": a, "b": b})
        assert (taken.at_least("a", "b") == pytest.approx(3)) is sure and taken.at_least("b", "a") <= 1 / 3 + 1e-9
        assert sure or taken.at_least("a", "b") == 0
    shifted = tuple(100 * factor for factor in (*slowed[1:], slowed[0]))  # other work comes in the middle of a turn
    mixed = Taken(measurements={}, rounds_us={}, turns_us={"a": tuple(300 * each for each in slowed), "b": shifted})
    assert mixed.at_least("a", "b") < 2


def test_on_a_busy_machine_enough_turns_are_taken_to_decide():
    clock = FakeClock(a=[9000], b=[20000])
    clock.disturbed_us = {9000, 20000}
    hasty = dataclasses.replace(EFFORT, budget_s=0.0, rounds=99)
    assert len(rounds_in_turns(clock.calls(), clock=clock, effort=hasty).turns_us["a"]) == 3
    taken = rounds_in_turns(clock.calls(), clock=clock, effort=dataclasses.replace(hasty, turns=20, turns_s=100.0))
    assert len(taken.turns_us["a"]) == 20 and taken.at_least("b", "a") == pytest.approx(20 / 9)
    taken = rounds_in_turns(clock.calls(), clock=clock, effort=dataclasses.replace(hasty, turns=20, turns_s=0.0))
    assert len(taken.turns_us["a"]) == 3, "but not for ever"


def test_by_chance_nothing_is_sure():
    """Of calls that take as long as each other, one in a hundred is held to be faster at all."""
    draw = random.Random(1)

    def taken():
        turns_us = {name: tuple(draw.expovariate(1) for _ in range(25)) for name in "ab"}
        return Taken(measurements={}, rounds_us={}, turns_us=turns_us)

    assert sum(taken().at_least("a", "b") > 1 for _ in range(1000)) < 25


def busy_clock(*, every, **us):
    """A round of each call in ``every`` is uncontended, at other times for each; all others take 16 ms."""
    clock = FakeClock(**{
        name: [16_000] * 8 + [us[name] if i % every == number else 16_000 for i in range(20 * every)]
        for number, name in enumerate(us)
    })  # fmt: skip
    clock.disturbed_us = {16_000}
    return clock


def test_the_rounds_of_a_turn_stand_at_the_same_place():
    us = (1000, 9000, 2000, 3000, 5000, 4000)
    clock = FakeClock(a=[4000, *us], b=[4000, *(10 * each for each in us)])
    clock.disturbed_us = {9000}
    taken = rounds_in_turns(clock.calls(), clock=clock, effort=EFFORT)
    assert taken.rounds_us["a"] == pytest.approx((1000, 2000, 3000, 5000, 4000))
    assert taken.rounds_us["b"] == pytest.approx((10_000, 20_000, 30_000, 50_000, 40_000))
    assert taken.measurements["b"].median_us == pytest.approx(30_000), "set aside for both"
    assert taken.measurements["a"].contention == taken.measurements["b"].contention == 0


def test_a_few_uncontended_rounds_of_each_call_are_enough():
    clock = busy_clock(every=6, a=100, b=400)  # never both in a turn
    effort = Effort(round_s=0.002, rounds=5, budget_s=0.0, patience_s=60.0)
    taken = time_in_turns(clock.calls(), clock=clock, effort=effort)
    assert taken["a"].median_us == pytest.approx(100) and taken["b"].median_us == pytest.approx(400)
    assert taken["a"].rounds == taken["b"].rounds >= 5, "as many of each"
    assert taken["a"].contention == taken["b"].contention == 0


def test_rounds_get_shorter_while_they_are_disturbed():
    clock = busy_clock(every=6, a=50)
    time_in_turns(clock.calls(), clock=clock, effort=Effort(round_s=0.002, rounds=9, budget_s=0.0, patience_s=60.0))
    assert clock.laps[-1] == ("a", 6)  # 0.3 ms
    clock = FakeClock(a=[50])
    time_in_turns(clock.calls(), clock=clock, effort=EFFORT)
    assert clock.laps[-1][1] >= 40  # 2 ms


def test_where_nothing_is_undisturbed_it_says_so():
    clock = FakeClock(a=[3000], b=[100])
    clock.disturbed_us, clock.lost_overall = {3000}, 0.25
    taken = time_in_turns(clock.calls(), clock=clock, effort=Effort(round_s=0.002, rounds=5, budget_s=0.0))
    assert taken["a"].rounds == 3 and taken["a"].contention == 0.9 > CONTENDED
    assert taken["b"].contention == 0.25, "what the whole machine lost counts, too"


def test_where_too_little_is_undisturbed_the_least_disturbed_counts():
    class Clock(FakeClock):
        def lap(self, call, *, times):
            us = next(all_disturbed)
            return Lap(seconds=us * 1e-6 * times, lost=us / 40_000)

    all_disturbed = itertools.cycle([16_000, 30_000, 8000, 24_000])
    effort = Effort(round_s=0.002, rounds=5, budget_s=0.02)
    taken = time_in_turns({"a": lambda: None}, clock=Clock(), effort=effort)["a"]
    assert taken.median_us == pytest.approx(8000) and CONTENDED < taken.contention <= 0.25


@pytest.mark.parametrize(
    ("laps_us", "best_us", "rounds"),
    [([100], None, 5), ([100], 50, 3), ([100], 200, 5), ([100, 100, 16_000, 16_000, 16_000, 100], 130, 5)],
)
def test_hopeless_ones_are_given_up_early_by_rounds_that_were_not_disturbed(laps_us, best_us, rounds):
    clock = FakeClock(a=laps_us, b=[10])
    clock.disturbed_us = {16_000}
    taken = time_in_turns(clock.calls(), clock=clock, effort=EFFORT, hopeless_above_us=best_us)
    assert taken["a"].rounds == taken["b"].rounds == rounds and taken["a"].median_us == pytest.approx(100)


def test_the_wall_clock_and_the_budget():
    effort = Effort(round_s=0.001, rounds=10_000, budget_s=0.1)
    calls = []
    taken = time_in_turns({"sleep": lambda: calls.append(time.sleep(0.002))}, clock=CpuClock(), effort=effort)["sleep"]
    assert len(calls) < 100, "ten thousand rounds are ten thousand calls"
    assert taken.median_us >= 2000 and taken.rounds >= 3


@pytest.mark.slow
def test_beside_busy_loops_a_time_is_right_or_said_to_be_contended():
    x = torch.randn(8, 96, 28, 28).contiguous(memory_format=torch.channels_last)
    w = torch.randn(96, 1, 3, 3)

    def call():
        with torch.inference_mode():
            return torch.nn.functional.conv2d(x, w, padding=1, groups=96)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        call()
        started = time.thread_time()
        for _ in range(20):
            call()
        alone_us = (time.thread_time() - started) / 20 * 1e6  # CPU time, which other work cannot take
        torch.set_num_threads(min(2, contention.cores()))
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * contention.cores())]
        try:
            efforts = (TRIAL, TRIAL, dataclasses.replace(FINAL, patience_s=1.0))
            taken = [time_in_turns({"call": call}, clock=CpuClock(), effort=effort)["call"] for effort in efforts]
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
    finally:
        torch.set_num_threads(before)
    for measured in taken:
        assert measured.contention > CONTENDED or measured.median_us < 4 * alone_us, (alone_us, taken)


@pytest.mark.parametrize("effort", [TRIAL, FINAL])
def test_the_clock_of_a_gpu_needs_less(effort):
    enough = CudaClock().enough(effort)
    assert 5 <= enough.rounds <= effort.rounds / 3 and enough.round_s < effort.round_s and not enough.patience_s
    assert CpuClock().enough(effort) == effort


WORKLOAD = Workload(pass_="fprop", batch=2, channels=16, input_size=(8, 8), kernel=(3, 3), padding=((1, 1), (1, 1)))
TENSOR_BYTES = 4 * 2 * 16 * 8 * 8
TARGET = dataclasses.replace(cpu_target(), cache_bytes=TENSOR_BYTES, others_cache_bytes=2 * TENSOR_BYTES)


def test_calls_take_turns_and_results_stay_alive():
    made = InTurn([lambda: torch.zeros(64), lambda: torch.ones(64)], held=3)
    for _ in range(4):
        made()
    held = list(made._held)
    assert [int(result[0]) for result in held] == [1, 0, 1]
    assert len({result.data_ptr() for result in held}) == 3
    assert made.turns == 4 and InTurn([lambda: 1] * 6, held=3).turns == 6


@pytest.mark.parametrize(
    ("caches", "pass_", "changing", "copies", "held"),
    [
        ("warm", "fprop", (), 1, 0),
        ("warm", "wgrad", (), 1, 0),
        ("training", "fprop", (), 1, 6),  # results go to other memory
        ("training", "dgrad", (), 1, 6),
        ("training", "wgrad", (0,), 6, 0),  # what was saved has left the cache: of one tensor, twice the cache
        ("cold", "fprop", (0, 1), 6, 6),
        ("cold", "wgrad", (0, 1), 3, 0),  # of two
    ],
)
def test_what_a_call_finds_in_the_caches(caches, pass_, changing, copies, held):
    workload = WORKLOAD.for_pass(pass_)
    inputs = operands(workload, data="normal", seed=0)
    sets = inputs_in_turn(workload, inputs, caches=caches, target=TARGET)
    assert len(sets) == copies
    for at, own in enumerate(inputs):
        assert all(torch.equal(given[at], own) for given in sets)
        assert len({given[at].data_ptr() for given in sets}) == (copies if at in changing else 1)
    assert results_held(workload, caches=caches, target=TARGET) == held


def test_a_gpu_has_a_cache_of_its_own(monkeypatch):
    target = parse_target("cuda:sm_90")
    assert isinstance(target, CudaTarget)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 40, 1 << 40))
    large = dataclasses.replace(WORKLOAD, batch=64, channels=1024)
    expected = math.ceil(2 * target.limits.cache_bytes / (64 * 1024 * 8 * 8 * 4))
    assert results_held(large, caches="cold", target=target) == expected > 1
