"""One pass of a layer, raced in this process: on a still clock, with kernels that compute with the reference."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import torch

from bench import race as race_module
from bench.providers import Provider
from bench.race import Race, Racer
from dwconv.errors import BuildError
from dwconv.kernels.entry import decode, encode
from dwconv.measure.clock.timing import Effort
from dwconv.measure.providers import pytorch_call
from dwconv.measure.requests import MeasureSetup
from dwconv.problems.workload import PASSES
from dwconv.schedules.template import Candidate, templates_for
from tests.bench.gpu_runs import TARGET, artifact, faults, load, workload
from tests.bench.still_clock import StillClock

OWN = ["blocked"] * torch.backends.mkldnn.is_available()
"""oneDNN's own layout, where PyTorch has it."""
OF_THE_CPU = ["nhwc", "nchw", *OWN]


def candidate(pass_="fprop", **changes):
    of = dataclasses.replace(workload(pass_), **changes)
    return Candidate(of, templates_for(of, TARGET)[0].space(of, TARGET).default)


@pytest.fixture
def clock(monkeypatch):
    still = StillClock()
    monkeypatch.setattr(race_module, "clock_of", lambda target: still)
    return still


@pytest.fixture
def raced(monkeypatch, clock):
    faults.clear()
    monkeypatch.setattr(race_module, "build_cached", lambda candidate, target: artifact(candidate))
    racer = Racer(MeasureSetup(target=TARGET, load="tests.bench.gpu_runs:load"))

    def race(*caches, pass_="fprop", **how):
        return racer(Race(**{"candidate": candidate(pass_), "caches": caches or ("warm",), **how}))

    return race


@pytest.fixture
def rivals(monkeypatch):
    """What races beside our kernel; what is slow to make, only compiled."""

    def plant(*planted):
        monkeypatch.setattr(
            race_module, "providers", lambda *of, compiled: (each for each in planted if compiled or not each.slow)
        )

    return plant


def rival(name, **fields):
    return Provider(**{"name": name, "make": lambda inputs: pytorch_call(workload(), *inputs), **fields})


def layouts(taken):
    return [name.rpartition("-")[2] for name in taken.measurements]


@pytest.mark.parametrize("pass_", PASSES)
def test_all_providers_of_a_pass_race_warm_and_cold_and_compute_the_same(raced, pass_):
    answer = raced("warm", "cold", pass_=pass_)
    assert list(answer.times) == ["warm", "cold"] and answer.refused == {}
    for taken in answer.times.values():
        assert layouts(taken) == ["dwconv", *OF_THE_CPU] and taken.rounds_us.keys() == taken.measurements.keys()
        assert len({len(rounds) for rounds in taken.rounds_us.values()}) == 1
        assert all(each.median_us == pytest.approx(10) for each in taken.measurements.values())
    assert decode(encode(answer)) == answer, "it passes between processes"


def test_a_rival_that_is_wrong_or_cannot_be_captured_does_not_race(raced, rivals, clock):
    def off_by_one(inputs):
        call = pytorch_call(workload(), *inputs)
        return lambda: call() + 1

    def broken(inputs):
        raise RuntimeError("no kernel\nfor this")

    clock.uncapturable = (2,)
    rivals(rival("wrong-nhwc", make=off_by_one), rival("right-nhwc"), rival("waits-nhwc"),
           rival("broken-nhwc", make=broken))  # fmt: skip
    answer = raced()
    assert list(answer.times["warm"].measurements) == ["dwconv", "right-nhwc"]
    assert answer.refused.pop("wrong-nhwc").startswith("wrong: value: ")
    assert answer.refused == {
        "waits-nhwc": "it cannot be captured: it waits for the device", "broken-nhwc": "no kernel for this",
    }  # fmt: skip


def test_our_kernel_is_verified_before_and_after(raced, clock, monkeypatch):
    faults[candidate().config.template] = "wrong"
    with pytest.raises(BuildError, match="wrong: value"):
        raced()
    assert not clock.laps, "what is wrong is not timed"
    faults.clear()

    def spoil(calls, **how):
        faults[candidate().config.template] = "wrong"

    monkeypatch.setattr(race_module, "rounds_in_turns", spoil)
    racer = Racer(MeasureSetup(target=TARGET, load="tests.bench.test_race:_Spoilt"))
    with pytest.raises(BuildError, match="wrong: value"):
        racer(Race(candidate=candidate(), caches=("warm",)))


class _Spoilt:
    """A kernel that looks up its fault at each call."""

    def __init__(self, built):
        self.artifact = built

    def __call__(self, *inputs):
        return load(self.artifact)(*inputs)

    def run_into(self, *of):
        load(self.artifact).run_into(*of)


def test_a_control_is_the_same_kernel_twice(raced):
    assert list(raced(control=True).times["warm"].measurements) == ["dwconv", "dwconv again"]


def test_cold_calls_are_on_copies_that_fill_the_cache_twice_and_hold_their_results(raced, clock, rivals):
    rivals(rival("one-nhwc"))
    raced("cold")
    for turn in clock.ready_for:
        copies = turn._calls
        assert len(copies) == len(clock.ready_for[0]._calls)
        for _ in range(turn.turns):
            turn()
        results = turn._held
        assert sum(result.nbytes for result in results) >= 2 * TARGET.cache_bytes
        assert len({result.data_ptr() for result in results}) == len(results)
    ours = clock.ready_for[0]._calls
    read_bytes = sum(tensor.nbytes for tensor in ours[0].args)
    assert len(ours) * read_bytes >= 2 * TARGET.cache_bytes > (len(ours) - 1) * read_bytes
    assert len({call.args[0].data_ptr() for call in ours}) == len(ours) >= 2


def test_what_compiles_is_not_timed_cold_and_is_not_held_against_the_next_workload(raced, rivals, monkeypatch):
    """torch.compile compiles one piece of code for a few shapes, and then no more."""
    resets, made = [], []
    monkeypatch.setattr(torch._dynamo, "reset", lambda: resets.append(1))
    slow = rival("inductor-nhwc", make=lambda inputs: made.append(1) or pytorch_call(workload(), *inputs), slow=True)
    rivals(slow)
    answer = raced("warm", "cold", compiled=True)
    assert "inductor-nhwc" in answer.times["warm"].measurements and answer.refused == {} and len(made) == 1
    assert list(answer.times["cold"].measurements) == ["dwconv"]
    assert "one set of tensors" in raced("cold", compiled=True).refused["inductor-nhwc"]
    raced()
    assert len(resets) == 2


def test_settings_are_around_making_and_capturing_not_around_what_is_timed(raced, clock, rivals, monkeypatch):
    inside = []
    seen = {"made": [], "captured": [], "timed": []}

    @contextlib.contextmanager
    def settings():
        inside.append(1)
        yield
        inside.pop()

    def made(inputs):
        seen["made"].append(len(inside))
        call = pytorch_call(workload(), *inputs)
        return lambda: (seen["timed"].append(len(inside)) if clock.laps else None) or call()

    monkeypatch.setattr(clock, "ready", lambda call: seen["captured"].append(len(inside)) or call)
    rivals(rival("other-nhwc", make=made, settings=settings))
    assert "other-nhwc" in raced("warm", "cold").times["warm"].measurements
    assert set(seen["made"]) == {1} and seen["captured"][2:4] == [1, 1] and set(seen["timed"]) == {0}


def test_a_provider_that_comes_too_late_does_not_race(raced):
    answer = raced(making_s=0.0, effort=Effort(round_s=0.0, rounds=15, budget_s=0.0))
    assert layouts(answer.times["warm"]) == ["dwconv", "nhwc"]
    assert list(answer.refused.values()) == ["no time"] * (1 + len(OWN))


def test_other_kernels_of_ours_race_beside(raced, rivals):
    rivals()
    beside = {"dwconv float32": candidate(), "dwconv any size": candidate()}
    answer = raced(candidate=candidate(dtype="bfloat16"), beside=beside)
    assert list(answer.times["warm"].measurements) == ["dwconv", *beside]


def test_kernels_of_one_type_are_timed_on_the_same_tensors(raced, rivals, monkeypatch):
    """Tensors of its own would have left the caches while the others ran."""
    made = []
    monkeypatch.setattr(race_module, "inputs_in_turn", lambda workload, *of, **how: made.append(workload) or [of[0]])
    rivals()
    beside = {"dwconv float32": candidate(), "dwconv any size": candidate(dtype="bfloat16")}
    raced(candidate=candidate(dtype="bfloat16"), beside=beside)
    assert [each.dtype for each in made] == ["bfloat16", "float32"]
    assert torch.get_num_threads() == TARGET.threads
