"""The hook: which collectives run when, what fails reaches the step, and what spans say of a step."""

from __future__ import annotations

import copy
import gc
import threading
import time
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d
from torch.futures import Future

from dwconv.parallel import Communication, data_parallel
from dwconv.parallel.data import bucket_spans, sending
from dwconv.parallel.data.bucket_spans import BucketSpan, BucketSpans, InAStep, medians
from dwconv.parallel.data.sending import wrapped
from dwconv.parallel.data.ways import COLLECTIVES
from dwconv.parallel.data.ways_to_try import sent_as_bytes
from tests.parallel.ranks import needs_gloo

pytestmark = needs_gloo
SMALL_MB = 0.0001


class Layers(nn.Sequential):
    """Four, each a bucket of its own."""

    def __init__(self):
        super().__init__(*(nn.Linear(16, 16) for _ in range(4)))


def stepped(model, x=None):
    model(torch.randn(4, 16) if x is None else x).square().mean().backward()


# -- when collectives run ----------------------------------------------------------------------------------------------


def test_the_control_sends_nothing_before_the_backward_pass_is_over(one_rank, monkeypatch):
    """All others send their first bucket while gradients are missing."""
    missing = {}
    for collective in COLLECTIVES:
        model = Layers()
        way = Communication(collective=collective, bucket_mb=SMALL_MB)
        parallel = wrapped(model, way, spans=BucketSpans())  # so that PyTorch's own way calls from Python, too
        for _ in range(2):  # buckets are made anew after the first
            stepped(parallel)
        ready, seen = [], []
        for parameter in model.parameters():
            parameter.register_hook(partial(noted_in, ready))
        with monkeypatch.context() as patched:
            for name in ("all_reduce", "all_to_all_single", "reduce", "all_gather_single", "all_gather_into_tensor"):
                if hasattr(dist, name):
                    patched.setattr(dist, name, noting(getattr(dist, name), ready, seen))
            stepped(parallel)
        missing[collective] = 8 - seen[0]
    assert missing.pop("after-backward") == 0
    assert all(missing.values()), missing


def noted_in(ready, gradient):
    ready.append(gradient)


def noting(collective, ready, seen):
    def noted(*arguments, **keywords):
        seen.append(len(ready))
        return collective(*arguments, **keywords)

    return noted


@pytest.mark.parametrize(
    "way", [{"collective": "reduce-scatter"}, {"collective": "reduce-broadcast"}, {"powersgd_rank": 1}]
)
def test_what_fails_in_a_lane_is_an_error_of_the_step(one_rank, monkeypatch, way):
    parallel = data_parallel(Layers(), communication=Communication(bucket_mb=SMALL_MB, **way))
    for _ in range(3):
        stepped(parallel)

    def fails(*arguments, **keywords):
        raise RuntimeError("Connection closed by peer, as planted")

    monkeypatch.setattr(sending, "_gather", fails)
    monkeypatch.setattr(dist, "broadcast", fails)
    monkeypatch.setattr(sending, "powerSGD_hook", fails)
    with pytest.raises(RuntimeError, match="Connection closed by peer, as planted"):
        stepped(parallel)


def test_models_of_a_group_share_a_lane_that_ends_with_their_job(one_rank):
    before = threading.enumerate()
    for _ in range(2):
        stepped(data_parallel(Layers(), communication=Communication(collective="reduce-scatter")))
    (thread,) = (each for each in threading.enumerate() if each.name.startswith("dwconv-gra") and each not in before)
    dist.destroy_process_group()
    gc.collect()
    thread.join(timeout=600)
    assert not thread.is_alive()
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)


def test_a_lane_waits_as_long_as_its_job(one_rank):
    wrapped(Layers(), Communication(collective="reduce-scatter"))
    (lane,) = (each for group, each in sending._lanes.items() if group is dist.group.WORLD)
    own, of_job = (each._get_backend(torch.device("cpu")).options._timeout for each in (lane.group, dist.group.WORLD))
    assert own == of_job == timedelta(seconds=30)


def again():
    """After the groups of lanes have ended; and in a group of this rank alone."""
    way = Communication(collective="reduce-broadcast")
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    for group in (None, alone[dist.get_rank()]):
        stepped(data_parallel(Layers(), communication=way, process_group=group))
    for group in list(distributed_c10d._world.pg_map):
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)
    stepped(data_parallel(Layers(), communication=way))
    return True


def test_a_lane_whose_group_has_ended_is_made_anew(two_ranks):
    for _ in range(3):
        assert two_ranks.run(again) == [True, True]


WITH_LANES = [Communication(collective="reduce-scatter"), Communication(collective="reduce-broadcast")]


def in_a_group_of_their_own(late, more_groups):
    """Steps of the same ranks in group after group, each ended with its lane. ``late``: a rank that is behind the
    others; ``more_groups``: one that has more groups than the others."""
    ranks, rank = list(range(dist.get_world_size())), dist.get_rank()
    others = [dist.new_group([rank], use_local_synchronization=True) for _ in range(2 * (rank == more_groups))]
    for way in WITH_LANES:
        group = dist.new_group(ranks, timeout=timedelta(seconds=300))
        if rank == late:
            time.sleep(0.3)
        stepped(data_parallel(Layers(), communication=way, process_group=group))
        dist.barrier()
        for each in list(distributed_c10d._world.pg_map):
            if each is not dist.group.WORLD and each not in others:
                dist.destroy_process_group(each)
    return True


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("more_groups", [None, 0, 1])
def test_ranks_find_each_other_for_a_lane_whatever_groups_they_have_or_had(two_ranks, late, more_groups):
    """In the store are the addresses of groups that have ended."""
    assert two_ranks.run(in_a_group_of_their_own, late, more_groups) == [True, True]


@pytest.mark.parametrize("way", [{}, *({"collective": one} for one in COLLECTIVES), {"powersgd_rank": 1}])
def test_a_model_can_be_copied_and_joined_whichever_way_it_sends(one_rank, way):
    """As averages of weights do, and loops with uneven numbers of batches."""
    parallel = data_parallel(Layers(), communication=Communication(bucket_mb=SMALL_MB, **way))
    stepped(parallel)
    stepped(copy.deepcopy(parallel))
    with parallel.join():
        stepped(parallel)


def uneven():
    """Parameters of two types; one is not used; one has a size that two ranks cannot share evenly."""
    torch.manual_seed(0)
    found = {}
    for collective in COLLECTIVES:
        for compressed in (False, True):
            model = nn.ModuleDict({"a": nn.Linear(3, 5), "b": nn.Linear(5, 1).double(), "unused": nn.Linear(3, 3)})
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(0.5)
            model.forward = lambda x, model=model: model["b"](model["a"](x).double())
            way = Communication(collective=collective, bucket_mb=SMALL_MB, compressed=compressed)
            parallel = data_parallel(model, communication=way, find_unused_parameters=True)
            for _ in range(3):
                model.zero_grad()
                parallel(torch.full((2, 3), 1.0 + 2 * dist.get_rank())).sum().backward()
            found[str(way)] = [None if each.grad is None else each.grad.clone() for each in model.parameters()]
    return found


def test_every_way_takes_gradients_of_any_type_and_size(two_ranks):
    """Small whole numbers, which bfloat16 has exactly."""
    for found in two_ranks.run(uneven):
        for gradients in found.values():
            weight, bias, weight_b, bias_b, *unused = gradients
            assert weight.dtype is torch.float32 and weight_b.dtype is torch.float64
            assert torch.equal(weight, torch.full((5, 3), 2.0)) and torch.equal(bias, torch.ones(5))
            assert torch.equal(weight_b, torch.full((1, 5), 7.0, dtype=torch.float64)) and float(bias_b) == 2.0
            assert unused == [None, None]


def factors():
    """What PyTorch counts that PowerSGD sends, and what is expected."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 32, 3), nn.Flatten(), nn.Linear(32, 40), nn.BatchNorm1d(40), nn.Linear(40, 3))
    way = Communication(powersgd_rank=2, bucket_mb=SMALL_MB)
    states = []
    with pytest.MonkeyPatch.context() as patched:
        made = sending.PowerSGDState
        patched.setattr(sending, "PowerSGDState", lambda *a, **k: states.append(made(*a, **k)) or states[-1])
        parallel = data_parallel(model, communication=way)
    for _ in range(5):
        parallel(torch.randn(4, 8, 3, 3)).square().mean().backward()
    _, before, after = states[0].compression_stats()
    return 4 * after / 3, 4 * before / 3, sent_as_bytes(model, way)


def test_the_bytes_of_powersgd_are_those_that_pytorch_counts(two_ranks):
    for sent, whole, expected in two_ranks.run(factors):
        assert sent == expected < whole / 2


# -- spans -------------------------------------------------------------------------------------------------------------


def test_waiting_and_transfer_of_a_step():
    """The first bucket waits one second for rank 1, the second two for rank 0, while the first is on its way."""
    first = [BucketSpan(1.0, 5.0), BucketSpan(4.0, 7.0)]
    second = [BucketSpan(2.0, 5.5), BucketSpan(2.5, 7.0)]
    found = medians([[first], [second]])
    assert found.transfer_s == pytest.approx(5.0)  # 2 to 7 on both
    assert found.waiting_s == pytest.approx(1.0)
    apart = medians([[[BucketSpan(1.0, 2.0), BucketSpan(5.0, 6.0)]], [[BucketSpan(1.5, 2.0), BucketSpan(3.0, 6.0)]]])
    assert apart == InAStep(pytest.approx(1.5), pytest.approx(2.0))


@pytest.mark.parametrize(("machine", "waiting_s"), [("one", 3.0), ("", 0.0)])
def test_ranks_on_several_machines_count_from_the_beginning_of_a_step(one_rank, monkeypatch, machine, waiting_s):
    """A clock that is 3 s ahead counts as waiting only where both ranks have it."""
    steps = {0.0: [[BucketSpan(1.0, 5.0)]], 3.0: [[BucketSpan(4.0, 5.0 if machine else 8.0)]]}
    everyones = [(machine, spans_of, [began]) for began, spans_of in steps.items()]
    monkeypatch.setattr(dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(dist, "all_gather_object", lambda found, mine, group: found.__setitem__(slice(None), everyones))
    assert bucket_spans.in_a_step(BucketSpans(), dist.group.WORLD).waiting_s == pytest.approx(waiting_s)


def test_spans_note_each_bucket_of_a_step(one_rank):
    noted = BucketSpans()
    assert noted.note(finished()).value() == 1  # before the first step
    for collective in COLLECTIVES:
        noted = BucketSpans()
        parallel = wrapped(Layers(), Communication(collective=collective, bucket_mb=SMALL_MB), spans=noted)
        for _ in range(2):
            stepped(parallel)
        noted.begin()
        stepped(parallel)
        (buckets,) = noted.steps
        assert len(buckets) == 4 and all(noted.began_s[0] < sent <= summed for sent, summed in buckets), collective
        assert buckets == sorted(buckets, key=lambda bucket: bucket.sent_s)


def finished():
    found = Future()
    found.set_result(1)
    return found
