"""One pass of a layer, raced in this process: on a still clock, with kernels that compute with the reference."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from bench import layer_race
from bench.layer_race import ControlRace, LayerRace, LayerRacer, LayerTimes
from bench.providers import Provider
from dwconv.errors import BuildError
from dwconv.kernels.entry import decode, encode
from dwconv.measure.measuring import MeasureSetup
from dwconv.measure.providers import pytorch_call
from dwconv.problems.workload import PASSES
from dwconv.schedules.template import Candidate, templates_for
from tests.bench.gpu_runs import TARGET, artifact, faults, load, workload
from tests.bench.still_clock import StillClock


def candidate(pass_="fprop", **changes):
    of = dataclasses.replace(workload(pass_), **changes)
    return Candidate(of, templates_for(of, TARGET)[0].space(of, TARGET).default)


@pytest.fixture
def clock(monkeypatch):
    still = StillClock()
    monkeypatch.setattr(layer_race, "clock_of", lambda target: still)
    return still


@pytest.fixture
def racer(monkeypatch, clock):
    faults.clear()
    monkeypatch.setattr(layer_race, "build_cached", lambda candidate, target: artifact(candidate))
    return LayerRacer(MeasureSetup(target=TARGET, load="tests.bench.gpu_runs:load"))


@pytest.fixture
def rivals(monkeypatch):
    """Who races beside our kernel."""

    def plant(*planted):
        monkeypatch.setattr(layer_race, "providers", lambda *of, compiled: iter(planted))

    return plant


@pytest.mark.parametrize("pass_", PASSES)
def test_all_who_can_run_a_pass_race_and_compute_the_same(racer, pass_):
    times = racer(LayerRace(candidate=candidate(pass_), caches="warm"))
    names = list(times.measurements)
    own = ["blocked"] * torch.backends.mkldnn.is_available()
    assert names[0] == "dwconv" and [name.rpartition("-")[2] for name in names[1:]] == ["nhwc", "nchw", *own]
    assert times.refused == {} and times.rounds_us.keys() == times.measurements.keys()
    assert len({len(rounds) for rounds in times.rounds_us.values()}) == 1
    assert decode(encode(times)) == times, "it passes between processes"


def test_a_rival_that_is_wrong_does_not_race(racer, rivals):
    of = workload()

    def off_by_one(inputs):
        call = pytorch_call(of, *inputs)
        return lambda: call() + 1

    def broken(inputs):
        raise RuntimeError("no kernel\nfor this")

    right = Provider(name="right-nhwc", make=lambda inputs: pytorch_call(of, *inputs))
    rivals(Provider(name="wrong-nhwc", make=off_by_one), right, Provider(name="broken-nhwc", make=broken))
    times = racer(LayerRace(candidate=candidate(), caches="warm"))
    assert list(times.measurements) == ["dwconv", "right-nhwc"]
    assert times.refused["wrong-nhwc"].startswith("wrong: value: ")
    assert times.refused["broken-nhwc"] == "no kernel for this"


def test_our_kernel_is_verified_before_and_after(racer, clock, monkeypatch):
    faults[candidate().config.template] = "wrong"
    with pytest.raises(BuildError, match="wrong: value"):
        racer(LayerRace(candidate=candidate(), caches="warm"))
    assert not clock.laps, "what is wrong is not timed"
    faults.clear()

    def spoil(calls, **how):
        faults[candidate().config.template] = "wrong"
        return LayerTimes(measurements={}, rounds_us={})

    monkeypatch.setattr(layer_race, "rounds_in_turns", spoil)
    racer._load = _Spoilt
    with pytest.raises(BuildError, match="wrong: value"):
        racer(LayerRace(candidate=candidate(), caches="warm"))


class _Spoilt:
    """A kernel that looks up its fault at each call."""

    def __init__(self, built):
        self.artifact = built

    def __call__(self, *inputs):
        return load(self.artifact)(*inputs)

    def run_into(self, *of):
        load(self.artifact).run_into(*of)


def test_a_control_is_the_same_kernel_twice(racer):
    times = racer(ControlRace(candidate=candidate(), caches="warm"))
    assert list(times.measurements) == ["dwconv", "dwconv again"]


def test_cold_calls_are_on_copies_that_fill_the_cache(racer, clock, rivals):
    slow = Provider(name="inductor-nhwc", make=lambda inputs: pytorch_call(workload(), *inputs), slow=True)
    rivals(dataclasses.replace(slow, name="one-nhwc", slow=False), slow)
    times = racer(LayerRace(candidate=candidate(), caches="cold"))
    for turn in clock.ready_for:
        copies = {call.args[0].data_ptr() for call in turn._calls} if turn is clock.ready_for[0] else turn._calls
        assert len(copies) * candidate().workload.bytes > TARGET.cache_bytes
    assert list(times.measurements) == ["dwconv", "one-nhwc"] and "one set of tensors" in times.refused["inductor-nhwc"]
    assert list(racer(LayerRace(candidate=candidate(), caches="warm")).measurements)[-1] == "inductor-nhwc"


def test_what_was_compiled_for_other_workloads_does_not_count_against_this_one(racer, rivals, monkeypatch):
    """torch.compile compiles one piece of code for a few shapes, and then no more."""
    rivals()
    resets = []
    monkeypatch.setattr(torch._dynamo, "reset", lambda: resets.append(1))
    for compiled in (True, False, True):
        racer(LayerRace(candidate=candidate(), caches="warm", compiled=compiled))
    assert len(resets) == 2


def test_other_kernels_of_ours_race_beside(racer, rivals):
    rivals()
    half = candidate(dtype="bfloat16")
    beside = {"dwconv float32": candidate(), "dwconv any size": candidate()}
    times = racer(LayerRace(candidate=half, caches="warm", beside=beside))
    assert list(times.measurements) == ["dwconv", *beside]
    assert torch.get_num_threads() == TARGET.threads
