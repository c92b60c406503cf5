"""Which plan is recommended, and in which words."""

from __future__ import annotations

import dataclasses

import pytest
from rich.console import Console

from dwconv.errors import NoPlan
from dwconv.parallel.planning.compare import Proposal, print_proposal, propose, recommendation
from dwconv.parallel.planning.partition import Cluster, Shape
from dwconv.parallel.planning.plan import FREE_LINK, Link
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


def test_pipelines_have_no_more_stages_than_layers():
    proposal = propose([layer()] * 2, Cluster(world=4, link=SLOW), SHAPE)
    assert max(len(each.plan.stages) for each in proposal.candidates) == 2
    assert not proposal.left_out


def test_what_just_fits_into_memory_is_a_plan():
    layers = [layer(parameter_bytes=0, saved_bytes=1000, output_bytes=0)] * 2
    cluster = Cluster(world=2, link=FREE_LINK, memory_bytes=8_000)
    at_once = [layer(parameter_bytes=0, saved_bytes=4000, output_bytes=0)] * 2
    assert propose(layers, cluster, SHAPE, on_whole_share=at_once).data_parallel is not None


# -- the words of a comparison -----------------------------------------------------------------------------------------


UNEVEN = (
    layer(name="embedding", parameter_bytes=10**7, output_bytes=0),
    layer(name="head", forward_us=700.0, parameter_bytes=0, output_bytes=0),
)


def _uneven() -> Proposal:
    return propose(UNEVEN, Cluster(world=3, link=SLOW), Shape(microbatches=6, schedule="1f1b"))


def _printed(proposal: Proposal) -> str:
    console = Console(width=100, highlight=False)
    with console.capture() as captured:
        print_proposal(proposal, console)
    return captured.get()


def test_a_best_plan_that_no_mesh_runs_is_said_with_the_best_that_one_does():
    text = recommendation(_uneven())
    assert text.startswith("recommended: 2 stages on 1 + 2 ranks, ")
    assert text.endswith(
        "its replicas differ, which no mesh pipeline × data can run: data parallelism is the best that can be run"
    )
    only = dataclasses.replace(_uneven(), candidates=_uneven().candidates[:1])
    assert "plain data parallelism does not fit; no mesh pipeline × data can run it" in recommendation(only)


def test_data_parallelism_is_recommended_with_what_the_best_pipeline_takes():
    layers, shape = [layer(output_bytes=10**6)] * 4, Shape(microbatches=8, schedule="1f1b")
    proposal = propose(layers, Cluster(world=4, link=SLOW), shape)
    assert recommendation(proposal).startswith("recommended: plain data parallelism; the best pipeline, ")
    assert recommendation(proposal).endswith(" times as long")
    alone = dataclasses.replace(proposal, candidates=proposal.candidates[:1])
    assert recommendation(alone) == "recommended: plain data parallelism"


def test_stages_with_their_ranks_and_layers():
    lines = [line.split() for line in _printed(_uneven()).splitlines()]
    assert ["0", "0", "embedding", "0.10", "0.10", "0.10", "10.0", "0.000"] in [line[:8] for line in lines]
    assert ["1", "1", "to", "2", "head", "0.70", "0.10", "0.10"] in [line[:8] for line in lines]
    assert ["2", "stages", "on", "1", "+", "2", "ranks"] in [line[:7] for line in lines]
    (row,) = (line for line in lines if line[:2] == ["2", "stages"] and line[-1] in ("yes", "no"))
    assert row[-1] == "no"


def test_what_is_left_out_is_printed_with_its_reason():
    layers = [layer(saved_bytes=10_000, parameter_bytes=0)] * 4
    cluster = Cluster(world=4, link=SLOW, memory_bytes=35_000)
    printed = _printed(propose(layers, cluster, Shape(microbatches=8, schedule="1f1b")))
    assert "left out: data parallelism: needs 4e-05 GB a rank" in printed
