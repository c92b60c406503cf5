"""Which plan is recommended."""

from __future__ import annotations

import pytest

from dwconv.errors import NoPlan
from dwconv.parallel.planning.compare import propose
from dwconv.parallel.planning.partition import Cluster, Shape
from dwconv.parallel.planning.plan import Link
from dwconv.parallel.planning.prices import FREE_LINK
from tests.parallel.made_up_layers import layer

SLOW = Link(gb_s=0.1, latency_us=10.0)
SHAPE = Shape(microbatches=8, schedule="1f1b")


def test_small_parameters_are_best_left_to_data_parallelism():
    proposal = propose([layer(output_bytes=10**6)] * 4, Cluster(world=4, link=SLOW), SHAPE)
    assert proposal.best.is_data_parallel
    assert proposal.best is proposal.data_parallel
    assert {each.name for each in proposal.candidates} >= {"data parallelism", "4 stages", "2 stages × 2 replicas"}


def test_large_parameters_over_a_slow_link_want_a_pipeline():
    proposal = propose([layer(parameter_bytes=10**7, output_bytes=100)] * 4, Cluster(world=4, link=SLOW), SHAPE)
    assert proposal.best.name == "4 stages"
    assert proposal.data_parallel is not None
    assert proposal.data_parallel.step.step_us > 2 * proposal.best.step.step_us


def test_of_plans_as_fast_data_parallelism_is_recommended():
    layers = [layer(forward_us=0.0, dgrad_us=0.0, wgrad_us=0.0)] * 4
    proposal = propose(layers, Cluster(world=2, link=FREE_LINK), SHAPE)
    assert proposal.best.step.step_us == proposal.candidates[-1].step.step_us
    assert proposal.best.is_data_parallel


def test_a_plan_that_no_mesh_runs_is_beside_one_that_it_does():
    layers = [layer(parameter_bytes=10**7, output_bytes=0), layer(forward_us=700.0, parameter_bytes=0, output_bytes=0)]
    proposal = propose(layers, Cluster(world=3, link=SLOW), Shape(microbatches=6, schedule="1f1b"))
    assert proposal.best.name == "2 stages on 1 + 2 ranks"
    assert not proposal.best.plan.is_even
    assert proposal.best_to_run is not None and proposal.best_to_run.is_data_parallel


def test_data_parallelism_uses_the_costs_of_a_whole_share():
    layers = [layer()] * 2
    at_once = [layer(forward_us=300.0)] * 2  # four microbatches at a time, in the time of three
    cluster = Cluster(world=2, link=FREE_LINK)
    one_by_one = propose(layers, cluster, SHAPE).data_parallel
    together = propose(layers, cluster, SHAPE, on_whole_share=at_once).data_parallel
    assert one_by_one is not None and together is not None
    assert (one_by_one.plan.microbatches, together.plan.microbatches) == (4, 1)
    assert one_by_one.step.step_us == pytest.approx(4 * 2 * 300)
    assert together.step.step_us == pytest.approx(2 * 500)


def test_what_does_not_fit_is_left_out_with_its_reason():
    layers = [layer(saved_bytes=10_000, parameter_bytes=0)] * 4
    cluster = Cluster(world=4, link=FREE_LINK, memory_bytes=35_000)
    proposal = propose(layers, cluster, SHAPE)
    assert proposal.data_parallel is None
    assert any(reason.startswith("data parallelism: needs 4e-05 GB a rank") for reason in proposal.left_out)
    assert max(proposal.best.step.memory_bytes) <= 35_000
    with pytest.raises(NoPlan, match="no plan for world=4: data parallelism: needs"):
        propose(layers, Cluster(world=4, link=FREE_LINK, memory_bytes=5_000), SHAPE)


def test_interleaved_plans_have_several_stages_a_rank():
    shape = Shape(microbatches=8, schedule="interleaved", stages_per_rank=2)
    proposal = propose([layer(parameter_bytes=10**7)] * 8, Cluster(world=4, link=SLOW), shape)
    assert proposal.best.name == "8 stages (2 a rank)"
    assert len(proposal.best.step.memory_bytes) == 4
    pipelines = [each for each in proposal.candidates if not each.is_data_parallel]
    assert [each.plan.stages_per_rank for each in pipelines] == [2, 2]
    assert not proposal.left_out


def test_as_many_stages_as_are_asked_for_are_shared_out_over_the_ranks():
    shape = Shape(microbatches=8, schedule="interleaved", stages_per_rank=2, stages=8)
    proposal = propose([layer(parameter_bytes=10**7)] * 8, Cluster(world=4, link=SLOW), shape)
    assert [each.name for each in proposal.candidates if not each.is_data_parallel] == ["8 stages (2 a rank)"]


def test_pipelines_have_no_more_stages_than_layers():
    proposal = propose([layer()] * 2, Cluster(world=4, link=SLOW), SHAPE)
    assert max(len(each.plan.stages) for each in proposal.candidates) == 2
    assert not proposal.left_out


def test_what_just_fits_into_memory_is_a_plan():
    layers = [layer(parameter_bytes=0, saved_bytes=1000, output_bytes=0)] * 2
    cluster = Cluster(world=2, link=FREE_LINK, memory_bytes=8_000)
    at_once = [layer(parameter_bytes=0, saved_bytes=4000, output_bytes=0)] * 2
    assert propose(layers, cluster, SHAPE, on_whole_share=at_once).data_parallel is not None


def test_more_stages_than_ranks_are_refused():
    with pytest.raises(NoPlan, match="world=2 is smaller than the 3 stages"):
        propose([layer()] * 4, Cluster(world=2, link=FREE_LINK), Shape(microbatches=8, schedule="1f1b", stages=3))
