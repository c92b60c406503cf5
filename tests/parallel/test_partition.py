"""The plan that dynamic programming finds is the best of all plans, each tried."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwconv.errors import NoPlan
from dwconv.parallel.planning.partition import Cluster, Shape, bottleneck_us, memory_bytes, partition
from dwconv.parallel.planning.plan import LayerCost, Link, Plan, Stage
from dwconv.parallel.planning.prices import FREE_LINK
from dwconv.parallel.planning.simulation import simulate
from tests.parallel.made_up_layers import layer, plan

LINK = Link(gb_s=1.0, latency_us=10.0)


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


def test_a_slow_layer_gets_more_ranks():
    layers = [layer(forward_us=100), layer(forward_us=700, dgrad_us=700, wgrad_us=700), layer(forward_us=100)]
    found = partition(layers, Cluster(world=4, link=FREE_LINK), Shape(microbatches=4, schedule="1f1b", stages=3))
    assert [stage.replicas for stage in found.stages] == [1, 2, 1]


def test_a_large_tensor_is_not_cut():
    layers = [layer(output_bytes=1000), layer(output_bytes=10**9), layer(), layer()]
    found = partition(layers, Cluster(world=2, link=LINK), Shape(microbatches=4, schedule="1f1b", stages=2))
    assert found.stages[0].last in (1, 3)


def test_large_parameters_are_not_shared_by_replicas_over_a_slow_link():
    layers = [layer(parameter_bytes=10**9), layer(parameter_bytes=10**9)]
    found = partition(layers, Cluster(world=2, link=LINK), Shape(microbatches=4, schedule="1f1b"))
    assert [stage.replicas for stage in found.stages] == [1, 1]


def test_memory_moves_a_cut():
    layers = [layer(saved_bytes=9000), layer(saved_bytes=9000), layer(saved_bytes=0), layer(saved_bytes=0)]
    shape = Shape(microbatches=8, schedule="1f1b", stages=2)
    roomy = partition(layers, Cluster(world=2, link=FREE_LINK), shape)
    tight = partition(layers, Cluster(world=2, link=FREE_LINK, memory_bytes=25_000), shape)
    assert roomy.stages[0].last == 2  # holds two microbatches of 18 kB
    assert tight.stages[0].last == 1
    with pytest.raises(NoPlan, match=r"fits into memory=1e-05 GB a rank; give more memory"):
        partition(layers, Cluster(world=2, link=FREE_LINK, memory_bytes=10_000), shape)


def test_zero_bubble_needs_memory_for_gradients_that_wait():
    layers = [layer(saved_bytes=0), layer(saved_bytes=9000)]
    for schedule, fits in (("1f1b", True), ("zero-bubble", False)):  # the last stage holds one microbatch, or two
        cluster = Cluster(world=2, link=FREE_LINK, memory_bytes=15_000)
        shape = Shape(microbatches=8, schedule=schedule, stages=2)
        if fits:
            assert len(partition(layers, cluster, shape).stages) == 2
        else:
            with pytest.raises(NoPlan, match="no plan of 2 stages"):
                partition(layers, cluster, shape)


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


def test_bottleneck_by_hand():
    drawn = plan([layer(output_bytes=90_000), layer()], replicas=[2, 1], microbatches=2, link=LINK)
    stages_us = (2 * 300 + 2 * (10 + 0.02), 4 * 300)
    assert bottleneck_us(drawn) == pytest.approx(max(*stages_us, 4 * 100))
