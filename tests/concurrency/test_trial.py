"""A trial changes nothing; tasks are timed on made-up inputs; a hand-over takes some time."""

from __future__ import annotations

import torch
from torch import nn

from dwconv.concurrency.choosing.trial import Trial
from dwconv.concurrency.graph.gradient_pairs import pairs, split
from dwconv.concurrency.graph.tasks import cut
from dwconv.concurrency.times.handover import handover_us
from dwconv.concurrency.times.pair_times import pair_times
from dwconv.concurrency.times.task_timer import TaskTimer, made_up
from dwconv.measure.clock.timing import Lap
from tests.traced_graphs import branches, branches_inputs, traced


def test_a_trial_changes_nothing():
    torch.manual_seed(0)
    weight, mean, x = nn.Parameter(torch.randn(4, 4)), torch.zeros(4), torch.randn(3, 4)
    seen = []

    def graph(weight, mean, x):
        mean.mul_(0.9).add_(x.mean(0))
        seen.append(mean)
        return [(x @ weight + torch.rand(4)).tanh(), x * 2]

    before, state = [weight.detach().clone(), mean.clone(), x.clone()], torch.get_rng_state()
    trial = Trial([weight, mean, x], written=(1,))
    with trial.unchanged():
        (gradient,) = trial.step(graph)()
        trial.step(graph)()
    assert gradient.shape == weight.shape and gradient.abs().sum() > 0 and weight.grad is None
    assert all(map(torch.equal, [weight.detach(), mean, x], before))
    assert mean._version == 0, "autograd would refuse it to a backward pass that has saved it"
    assert torch.equal(torch.get_rng_state(), state) and seen[1].abs().sum() > 0
    with torch.no_grad():
        assert Trial([weight, mean, x], written=(1,)).step(graph)() is None


class Counting:
    """Every call takes a millisecond for each thread that it may not use."""

    def __init__(self):
        self.calls = 0

    def ready(self, call):
        return call

    def lap(self, call, *, times):
        call()
        self.calls += 1
        return Lap(seconds=times * 1e-3 / torch.get_num_threads())

    def enough(self, effort):
        return effort

    def overall(self):
        return lambda: 0.0


def test_a_task_is_timed_once_for_each_count_and_signature():
    found = cut(split(traced(branches, branches_inputs())))
    clock = Counting()
    timer = TaskTimer(found, clock=clock)
    before = torch.get_num_threads()
    us = {(task.index, threads): timer.timed(task, threads) for task in found.graph.tasks for threads in (1, 2)}
    assert us[0, 1] == 1000.0 and us[0, 2] == 500.0 and torch.get_num_threads() == before
    calls = clock.calls
    for task in found.graph.tasks:
        timer.timed(task, 1)
    assert clock.calls == calls


def test_gradients_are_timed_whole_apart_and_at_once():
    found = cut(split(traced(branches, branches_inputs())))
    taken = pair_times(found, TaskTimer(found, clock=Counting()), cores=2)
    assert [each.pair for each in taken] == pairs(found) and len(taken) == 3
    assert all(each.whole_us and each.apart_us and each.at_once_us for each in taken)
    assert pair_times(found, TaskTimer(found, clock=Counting()), cores=1) == []


def test_made_up_tensors_lie_as_the_traced_ones():
    base = torch.randn(4, 6)
    for example in (base.t(), base[1:, ::2], base[:, :1].expand(4, 9), torch.ones(3, dtype=torch.int64), base > 0):
        found = made_up(example)
        assert (found.shape, found.stride(), found.dtype) == (example.shape, example.stride(), example.dtype)
        assert not found.is_floating_point() or bool(((found >= 0.5) & (found <= 1.5)).all())
        assert found.is_floating_point() or not found.any()
    assert made_up(7) == 7


def test_a_hand_over_takes_time():
    assert 0 < handover_us() < 1e6
