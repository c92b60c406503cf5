"""The time of training, summed from its start, is never more than 3 s above plain training's, on a simulated clock:
whatever builds take, and whatever kernels save in a step of what they were measured to save."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace

import pytest
import torch

from dwconv.call import background_builds, spending
from dwconv.call.spending import SURE, Spending
from dwconv.system import cpu_facts

CPU = torch.device("cpu")
MOST_BEHIND_S = 3.0
EXPECTED_S = 0.5


class Build:
    """A kernel: how long it takes, and what it saves of a step. Called as the work of a task."""

    def __init__(self, *, takes_s: float, measured_s: float, saves_s: float) -> None:
        self.left_s, self.measured_s, self.saves_s = takes_s, measured_s, saves_s
        self.is_there = threading.Event()

    def __call__(self, maker) -> None:
        raise AssertionError("its time only passes")


class Machine:
    """Two cores, which training uses both. ``slows``: the share of a step that a build beside it takes away. Its clock
    stands in for that of ``background_builds``, and for the condition on which calls and threads wait."""

    def __init__(self, *, slows: float) -> None:
        self.now_s = 0.0
        self.saved_s = 0.0
        self.slows = slows
        self.running: list[tuple[object, ...]] = []
        self.waited_s = 0.0

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        pass

    def notify_all(self) -> None:
        pass

    def wait_for(self, is_over, timeout_s: float) -> bool:
        """A call waits."""
        ends_s = self.now_s + timeout_s
        while not is_over() and self.now_s < ends_s - 1e-9:
            self.waited_s += (passed := self.pass_time(ends_s - self.now_s))
            assert passed > 0
        return bool(is_over())

    def train(self, step_s: float) -> None:
        """A step that takes so long alone."""
        while step_s > 1e-9:
            self.begin()
            pace = 1.0 - self.slows * bool(self.running)
            step_s -= pace * self.pass_time(step_s / pace if pace > 0 else 1e9)

    def begin(self) -> None:
        while background_builds._may_begin():
            self.running.append(background_builds._next(SimpleNamespace(cpu_s=lambda: self.now_s)))

    def pass_time(self, most_s: float) -> float:
        """Until a build has ended, or for so long."""
        self.begin()
        passes_s = min([most_s, *(task.work.left_s for task, _ in self.running)])
        self.now_s += passes_s
        for begun in [*self.running]:
            begun[0].work.left_s -= passes_s
            if begun[0].work.left_s < 1e-9:
                self.running.remove(begun)
                background_builds._end(*begun, "")
                begun[0].work.is_there.set()
        return passes_s


@pytest.fixture
def machine_of(monkeypatch):
    """A machine on which nothing was built yet."""

    def made(**options) -> Machine:
        machine = Machine(**options)
        monkeypatch.setattr(background_builds, "_changed", machine)
        monkeypatch.setattr(background_builds, "_start_threads", lambda: None)
        simulated = Spending(lambda: machine.saved_s, now=lambda: machine.now_s)
        monkeypatch.setattr(spending, "of_process", simulated)
        monkeypatch.setattr(background_builds, "PREDICTION_S", EXPECTED_S)
        monkeypatch.setattr(cpu_facts, "cores", torch.get_num_threads)
        return machine

    background_builds.forget()
    yield made
    background_builds._tasks.clear()
    background_builds._by_key.clear()
    background_builds._Threads.busy = 0


def trained(machine: Machine, builds: list[Build], *, steps: int, step_s: float) -> list[float]:
    """How far training is behind plain training after each step. A call of each step waits for a kernel, if it may."""
    for each in builds:
        background_builds.predict(each, device=CPU, saves_us=1e6 * each.measured_s)
    behind_s = []
    background_builds.begin()
    for number in range(1, steps + 1):
        if missing := [each for each in builds if not each.is_there.is_set()]:
            background_builds.wait(missing[0].is_there)
        there = [each for each in builds if each.is_there.is_set()]
        machine.train(step_s - sum(each.saves_s for each in there))
        machine.saved_s += sum(each.measured_s for each in there)
        behind_s.append(machine.now_s - number * step_s)
    return behind_s


@pytest.mark.parametrize("times", [0.4, 1.0, 2.5], ids=lambda each: f"builds take {each:g} of what is expected")
@pytest.mark.parametrize("real", [SURE, 0.5, 1.0], ids=lambda each: f"steps gain {each:.0%}")
@pytest.mark.parametrize("slows", [0.3, 0.8])
def test_training_is_never_far_behind_and_falls_below_plain(machine_of, times, real, slows):
    """Forty kernels, as a network of twenty layers has."""
    drawn = random.Random(0)
    machine, step_s = machine_of(slows=slows), 0.15
    builds = []
    for _ in range(40):
        measured_s = drawn.uniform(0.1, 1.0) * step_s / 40
        takes_s = EXPECTED_S * times * drawn.uniform(0.8, 1.2)
        builds.append(Build(takes_s=takes_s, measured_s=measured_s, saves_s=real * measured_s))
    behind_s = trained(machine, builds, steps=3000, step_s=step_s)
    assert max(behind_s) <= MOST_BEHIND_S
    assert machine.waited_s > 0, "the first calls waited"
    assert behind_s[-1] < 0


@pytest.mark.parametrize("slows", [0.3, 0.9])
def test_kernels_that_save_nothing_in_a_step_cost_no_more_than_the_first_seconds(machine_of, slows):
    """However often they run."""
    machine = machine_of(slows=slows)
    builds = [Build(takes_s=0.7, measured_s=1e-9, saves_s=0.0) for _ in range(40)]
    behind_s = trained(machine, builds, steps=3000, step_s=0.1)
    assert 1.0 < max(behind_s) <= MOST_BEHIND_S
    assert behind_s[-1] == pytest.approx(behind_s[-1000]), "nothing is built any more"


def test_the_first_kernels_come_even_if_they_take_longer_than_may_be_spent(machine_of):
    """As on a machine that is busy. They take a hundredth of the time of training."""
    machine, step_s, steps = machine_of(slows=0.9), 0.5, 3000
    builds = [Build(takes_s=6.0, measured_s=0.0, saves_s=0.0) for _ in range(3)]
    behind_s = trained(machine, builds, steps=steps, step_s=step_s)
    assert all(each.is_there.is_set() for each in builds)
    assert all(behind <= MOST_BEHIND_S + 6.0 + 0.01 * number * step_s for number, behind in enumerate(behind_s))


def test_what_calls_do_once_counts_as_a_wait(machine_of):
    machine = machine_of(slows=0.5)
    spending.of_process.spend(5.0)  # before the first call
    background_builds.begin()
    spending.of_process.spend(2.5)
    background_builds.predict(build := Build(takes_s=0.5, measured_s=1e-3, saves_s=1e-3), device=CPU, saves_us=1e3)
    background_builds.wait(build.is_there)
    machine.train(1.0)
    assert machine.now_s == pytest.approx(1.0) and not build.is_there.is_set()
    background_builds.forget()


def test_what_is_built_while_ready_waits_is_not_counted(machine_of):
    machine = machine_of(slows=0.5)
    background_builds.begin()
    left_s = spending.of_process.left_s
    builds = [Build(takes_s=4.0, measured_s=0.0, saves_s=0.0) for _ in range(5)]
    for each in builds:
        background_builds.predict(each, device=CPU)
    assert background_builds.finish(timeout_s=60.0) and machine.now_s >= 4.0
    assert all(each.is_there.is_set() for each in builds)
    assert spending.of_process.left_s >= left_s
