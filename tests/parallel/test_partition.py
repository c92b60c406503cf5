"""The plan that dynamic programming finds is the best of all plans, each tried."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwconv.errors import NoPlan
from dwconv.parallel.planning.partition import Cluster, Shape, _held, partition
from dwconv.parallel.planning.plan import (
    COPIES_OF_PARAMETERS,
    FREE_LINK,
    LayerCost,
    Link,
    Plan,
    Stage,
    stage_cost,
    sum_us,
    transfer_us,
)
from dwconv.parallel.planning.simulation import simulate
from tests.parallel.made_up_layers import layer

LINK = Link(gb_s=1.0, latency_us=10.0)


def bottleneck_us(plan: Plan) -> float:
    """The time that the slowest stage or link of a plan is busy in a step."""
    total = plan.microbatches * plan.stages[0].replicas
    worst = 0.0
    for number, stage in enumerate(plan.stages):
        cost = stage_cost(plan.layers, first=stage.first, last=stage.last)
        busy_us = total / stage.replicas * (cost.forward_us + cost.dgrad_us + cost.wgrad_us)
        worst = max(worst, busy_us + sum_us(plan.link, cost.parameter_bytes, ranks=stage.replicas))
        if number + 1 < len(plan.stages):
            messages = total / min(stage.replicas, plan.stages[number + 1].replicas)
            worst = max(worst, messages * transfer_us(plan.link, cost.output_bytes))
    return worst


def memory_bytes(plan: Plan) -> list[int]:
    """The most that a rank of each stage needs, for plans with one stage a rank."""
    total = plan.microbatches * plan.stages[0].replicas
    needed = []
    for number, stage in enumerate(plan.stages):
        cost = stage_cost(plan.layers, first=stage.first, last=stage.last)
        before, after = (sum(each.replicas for each in some) for some in (plan.stages[:number], plan.stages[number:]))
        held = _held(plan.schedule, total=total, replicas=stage.replicas, before=before, after=after)
        needed.append(COPIES_OF_PARAMETERS * cost.parameter_bytes + held * cost.kept_bytes)
    return needed


def _all_plans(layers: Sequence[LayerCost], cluster: Cluster, shape: Shape) -> Iterator[Plan]:
    """Every way to cut the layers and to share out the ranks."""
    for count in range(1, min(len(layers), cluster.world) + 1):
        if shape.stages not in (None, count):
            continue
        for cuts in itertools.combinations(range(1, len(layers)), count - 1):
            bounds = [0, *cuts, len(layers)]
            for replicas in itertools.product(range(1, cluster.world + 1), repeat=count):
                if sum(replicas) != cluster.world or any(shape.microbatches % each for each in replicas):
                    continue
                if shape.is_even and len(set(replicas)) > 1:
                    continue
                yield Plan(
                    layers=tuple(layers),
                    stages=tuple(
                        Stage(first=first, last=last, replicas=each)
                        for first, last, each in zip(bounds, bounds[1:], replicas, strict=False)
                    ),
                    microbatches=shape.microbatches // replicas[0],
                    schedule=shape.schedule,
                    link=cluster.link,
                )


layers_of_all_kinds = st.builds(
    layer,
    forward_us=st.integers(1, 300).map(float),
    dgrad_us=st.integers(0, 300).map(float),
    wgrad_us=st.integers(0, 300).map(float),
    output_bytes=st.integers(0, 400_000),
    saved_bytes=st.integers(0, 10_000),
    parameter_bytes=st.integers(0, 400_000),
)


@given(
    layers=st.lists(layers_of_all_kinds, min_size=1, max_size=6),
    cluster=st.builds(
        Cluster,
        world=st.integers(1, 4),
        link=st.sampled_from([FREE_LINK, LINK, Link(gb_s=0.1, latency_us=0.0)]),
        memory_bytes=st.none() | st.integers(100_000, 3_000_000),
    ),
    shape=st.builds(
        Shape,
        microbatches=st.sampled_from([4, 6, 12]),
        schedule=st.sampled_from(["gpipe", "1f1b", "zero-bubble"]),
        stages=st.none() | st.integers(1, 4),
        is_even=st.booleans(),
    ),
)
@settings(max_examples=300)
def test_no_plan_is_better_than_the_one_found(layers, cluster, shape):
    fitting = [
        each
        for each in _all_plans(layers, cluster, shape)
        if cluster.memory_bytes is None or max(memory_bytes(each)) <= cluster.memory_bytes
    ]
    if not fitting:
        with pytest.raises(NoPlan):
            partition(layers, cluster, shape)
        return
    found = partition(layers, cluster, shape)
    assert found in fitting  # it keeps to the rules
    assert bottleneck_us(found) == pytest.approx(min(map(bottleneck_us, fitting)))


@given(
    layers=st.lists(layers_of_all_kinds, min_size=1, max_size=4),
    world=st.integers(1, 4),
    schedule=st.sampled_from(["gpipe", "1f1b", "zero-bubble"]),
)
def test_the_memory_that_is_reckoned_with_is_what_the_step_takes(layers, world, schedule):
    shape = Shape(microbatches=12, schedule=schedule)
    for each in itertools.islice(_all_plans(layers, Cluster(world=world, link=LINK), shape), 12):
        simulated = iter(simulate(each).memory_bytes)
        for stage, reckoned in zip(each.stages, memory_bytes(each), strict=True):
            taken = [next(simulated) for _ in range(stage.replicas)]
            assert max(taken) <= reckoned
            if each.is_even:
                assert max(taken) == reckoned


def test_memory_moves_a_cut():
    layers = [layer(saved_bytes=9000), layer(saved_bytes=9000), layer(saved_bytes=0), layer(saved_bytes=0)]
    shape = Shape(microbatches=8, schedule="1f1b", stages=2)
    roomy = partition(layers, Cluster(world=2, link=FREE_LINK), shape)
    tight = partition(layers, Cluster(world=2, link=FREE_LINK, memory_bytes=25_000), shape)
    assert roomy.stages[0].last == 2  # holds two microbatches of 18 kB
    assert tight.stages[0].last == 1
    with pytest.raises(NoPlan, match=r"fits into memory=1e-05 GB a rank; give more memory"):
        partition(layers, Cluster(world=2, link=FREE_LINK, memory_bytes=10_000), shape)


def test_interleaved_stages_go_round_the_ranks():
    layers = [layer(forward_us=float(number)) for number in (3, 1, 2, 2, 1, 3, 2, 2)]
    shape = Shape(microbatches=4, schedule="interleaved", stages_per_rank=2, stages=4)
    found = partition(layers, Cluster(world=4, link=FREE_LINK), shape)
    assert (found.groups, found.world, found.is_even, found.microbatches) == (2, 4, True, 2)
    assert [stage.last for stage in found.stages] == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("world", "change", "message"),
    [
        (0, {}, "world=0 is too small; use at least 1"),
        (2, {"stages": 3}, "world=2 is smaller than the 3 stages; every stage needs a rank of its own"),
        (9, {"stages": 5}, "stages=5 are more than the 4 layers; use at most 4"),
        (4, {"stages": 3, "is_even": True}, "world=4 ranks do not share out evenly over 3 stages with 8 microbatches"),
        (4, {"schedule": "2f2b"}, "schedule=2f2b is unknown"),
        (8, {"stages_per_rank": 2, "stages": 3}, "stages=3 are not 2 for each rank"),
    ],
)
def test_one_line_says_why_there_is_no_plan(world, change, message):
    shape = dataclasses.replace(Shape(microbatches=8, schedule="1f1b"), **change)
    with pytest.raises(NoPlan, match=message):
        partition([layer()] * 4, Cluster(world=world, link=FREE_LINK), shape)
