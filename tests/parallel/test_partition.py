"""The plan that dynamic programming finds is the best of all plans, each tried; and which plan is recommended."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwconv.errors import NoPlan
from dwconv.parallel.planning import partition as partition_module
from dwconv.parallel.planning.compare import propose, recommendation, report
from dwconv.parallel.planning.partition import partition
from dwconv.parallel.planning.pipeline_plan import FREE_LINK, Link, Plan, Stage
from dwconv.parallel.planning.shape import Shape
from dwconv.parallel.planning.simulated_step import simulate_step
from tests.parallel.made_up_layers import layer

LINK = Link(gb_s=1.0, latency_us=10.0)
SLOW = Link(gb_s=0.1, latency_us=10.0)


def shape(world: int, link: Link = FREE_LINK, **change) -> Shape:
    return Shape(**{"world": world, "link": link, "microbatches": 8, "schedule": "1f1b", **change})


layers_of_all_kinds = st.builds(
    layer,
    forward_us=st.integers(1, 300).map(float),
    dgrad_us=st.integers(0, 300).map(float),
    wgrad_us=st.integers(0, 300).map(float),
    output_bytes=st.integers(0, 400_000),
    saved_bytes=st.integers(0, 10_000),
    parameter_bytes=st.integers(0, 400_000),
)


def every_plan(layers, asked: Shape, *, stages: int) -> list[Plan]:
    """Each way to cut, and to divide the ranks, that fits into memory in a simulated step."""
    found = []
    for counts in itertools.product(range(1, asked.world + 1), repeat=stages):
        is_asked = asked.replicas in (None, counts[0]) and (asked.replicas is None or len(set(counts)) == 1)
        if sum(counts) != asked.world or not is_asked or asked.microbatches % counts[0]:
            continue
        for cuts in itertools.combinations(range(1, len(layers)), stages - 1):
            bounds = itertools.pairwise([0, *cuts, len(layers)])
            made = tuple(Stage(first=b[0], last=b[1], replicas=count) for b, count in zip(bounds, counts, strict=True))
            plan = Plan(
                layers=tuple(layers), stages=made, microbatches=asked.microbatches // counts[0],
                schedule=asked.schedule, link=asked.link,
            )  # fmt: skip
            if max(simulate_step(plan).memory_bytes) <= (asked.memory_bytes or math.inf):
                found.append(plan)
    return found


@given(
    layers=st.lists(layers_of_all_kinds, min_size=1, max_size=5),
    stages=st.integers(1, 3),
    more_ranks=st.integers(0, 1),
    replicas=st.none() | st.just(1),
    schedule=st.sampled_from(["gpipe", "1f1b", "zero-bubble"]),
    link=st.sampled_from([FREE_LINK, LINK, Link(gb_s=0.1, latency_us=0.0, both_ways_gb_s=0.06)]),
    memory_bytes=st.none() | st.integers(100_000, 3_000_000),
    few=st.sampled_from([200, 0]),
)
@settings(max_examples=120, deadline=None)
def test_no_plan_is_better_than_the_one_found(layers, stages, more_ranks, replicas, schedule, link, memory_bytes, few):
    """Where each plan is simulated. A search (``few`` = 0) finds one that fits where there is one, and none that lies
    beside it is better."""
    asked = shape(
        stages + more_ranks * (replicas is None), link, schedule=schedule, memory_bytes=memory_bytes, replicas=replicas,
        microbatches=4,
    )  # fmt: skip
    fitting = every_plan(layers, asked, stages=stages)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partition_module, "_FEW", few)
        if not fitting:
            with pytest.raises(NoPlan):
                partition(layers, asked, stages=stages)
            return
        found = partition(layers, asked, stages=stages)
    us = simulate_step(found).step_us
    assert found in fitting
    beside = fitting if few else [plan for plan in fitting if are_beside(plan, found)]
    assert us == pytest.approx(min([us, *(simulate_step(plan).step_us for plan in beside)]))


def are_beside(one: Plan, other: Plan) -> bool:
    """With one cut elsewhere by one layer, or with one rank elsewhere."""
    cuts = [abs(a.last - b.last) for a, b in zip(one.stages, other.stages, strict=True)]
    counts = [abs(a - b) for a, b in zip(one.counts, other.counts, strict=True)]
    return (sum(cuts), sum(counts)) in ((1, 0), (0, 2))


def test_a_stage_that_takes_longer_gets_more_replicas():
    layers = [layer(forward_us=100.0), layer(forward_us=100.0), layer(forward_us=2000.0)]
    found = partition(layers, shape(3), stages=2)
    assert found.on == "1 + 2" and found.stages[0].last == 2
    swapped = partition([*reversed(layers)], shape(3), stages=2)
    assert swapped.on == "2 + 1" and swapped.stages[0].last == 1
    assert (swapped.microbatches, swapped.parts) == (4, 8)
    assert not [plan for plan in every_plan(layers, shape(3), stages=2) if plan.is_even]
    even = partition(layers, shape(4, replicas=2), stages=2)
    assert even.is_even and simulate_step(even).step_us > simulate_step(partition(layers, shape(4), stages=2)).step_us


def test_a_search_begins_at_the_least_bottleneck_and_keeps_to_its_options(monkeypatch):
    """Of plans too many to try each. Three of 24 layers take long: each is alone with the replicas that it needs."""
    monkeypatch.setattr(partition_module, "_FEW", 0)
    layers = [layer(forward_us=5000.0 if number in (3, 12, 20) else 10.0, dgrad_us=0.0, wgrad_us=0.0, output_bytes=0)
              for number in range(24)]  # fmt: skip
    found = partition(layers, shape(3, microbatches=16), stages=3)
    heavy = [{3, 12, 20} & {*range(stage.first, stage.last)} for stage in found.stages]
    assert [len(each) for each in heavy] == [1, 1, 1]
    best = min(
        simulate_step(dataclasses.replace(found, stages=stages)).step_us
        for cuts in itertools.combinations(range(3, 22, 2), 2)
        for stages in [
            tuple(
                Stage(first=first, last=last, replicas=1) for first, last in itertools.pairwise((0, *cuts, len(layers)))
            )
        ]
    )
    assert simulate_step(found).step_us <= best * 1.01
    assert partition(layers, shape(4, microbatches=16, replicas=2), stages=2).counts == (2, 2)


def test_memory_moves_a_cut():
    layers = [layer(saved_bytes=9000), layer(saved_bytes=9000), layer(saved_bytes=0), layer(saved_bytes=0)]
    assert partition(layers, shape(2), stages=2).stages[0].last == 2  # holds two microbatches of 18 kB
    assert partition(layers, shape(2, memory_bytes=25_000), stages=2).stages[0].last == 1
    with pytest.raises(NoPlan, match=r"fits into memory=1e-05 GB a rank; give more memory"):
        partition(layers, shape(2, memory_bytes=10_000), stages=2)


def test_interleaved_stages_go_round_the_ranks():
    layers = [layer(forward_us=float(number)) for number in (3, 1, 2, 2, 1, 3, 2, 2)]
    found = partition(layers, shape(4, microbatches=4, schedule="interleaved"), stages=4)
    assert (found.groups, found.world, found.replicas, found.microbatches) == (2, 4, 2, 2)
    assert [stage.last for stage in found.stages] == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("world", "change", "message"),
    [
        (0, {}, "world=0 is too small; use at least 1"),
        (2, {"stages": 3}, "world=2 is smaller than the 3 stages; every stage needs a rank of its own"),
        (4, {"stages": 3, "microbatches": 1}, "world=4 ranks do not share out over 3 stages with 1 microbatches"),
        (4, {"stages": 6, "schedule": "interleaved"}, "world=4 ranks do not share out over 3 stages with 8"),
        (4, {"schedule": "2f2b"}, "schedule=2f2b is unknown"),
        (8, {"schedule": "interleaved", "stages": 3}, "stages=3 are not 2 for each rank"),
    ],
)
def test_one_line_says_why_there_is_no_plan(world, change, message):
    with pytest.raises(NoPlan, match=message):
        propose([layer()] * 4, shape(world, **change))


# -- which plan is recommended ----------------------------------------------------------------------------------------


def test_small_parameters_are_best_left_to_data_parallelism():
    proposal = propose([layer(output_bytes=10**6)] * 4, shape(4, SLOW))
    assert proposal.best is proposal.data_parallel
    assert {each.name for each in proposal.candidates} == {
        "data parallelism", "4 stages, 1f1b", "3 stages on 1 + 2 + 1 ranks, 1f1b", "2 stages × 2 replicas, 1f1b"
    }  # fmt: skip
    assert recommendation(proposal).startswith("recommended: plain data parallelism; the best pipeline, ")
    assert recommendation(proposal).endswith(" times as long")
    alone = dataclasses.replace(proposal, candidates=proposal.candidates[:1])
    assert recommendation(alone) == "recommended: plain data parallelism"


def test_large_parameters_over_a_slow_link_make_a_pipeline_pay():
    proposal = propose([layer(parameter_bytes=10**7, output_bytes=100)] * 4, shape(4, SLOW))
    assert proposal.best.name == "4 stages, 1f1b" and proposal.best is proposal.pipeline
    assert proposal.data_parallel.step.step_us > 2 * proposal.best.step.step_us
    interleaved = propose([layer(parameter_bytes=10**7)] * 8, shape(4, SLOW, schedule="interleaved"))
    assert interleaved.best.name == "8 stages (2 a rank), interleaved" and len(interleaved.best.step.memory_bytes) == 4
    assert [each.plan.stages_per_rank for each in interleaved.candidates] == [2, 2, 1] and not interleaved.left_out


@pytest.mark.parametrize(("share_us", "stages"), [(1050, 1), (1090, 1), (1120, 2), (1500, 2)])
def test_a_pipeline_is_taken_only_if_it_is_faster_for_sure(share_us, stages):
    """Two stages take 1,000 µs, simulated. A real step may be some percent off."""
    shape_ = shape(2, microbatches=8, schedule="gpipe")
    layers = [layer(forward_us=1000 / 9 / 2, dgrad_us=1000 / 9 / 2, wgrad_us=0.0)] * 2
    share = [layer(forward_us=share_us / 2, dgrad_us=0.0, wgrad_us=0.0)] * 2
    proposal = propose(layers, shape_, on_whole_share=share)
    assert proposal.pipeline.step.step_us == pytest.approx(1000)
    assert len(proposal.best.plan.stages) == len(proposal.best_of(None).plan.stages) == stages
    assert ("too close to be sure" in recommendation(proposal)) == (stages == 1)


SCHEDULES_OF_2 = {"gpipe": 2, "1f1b": 2, "zero-bubble": 2, "interleaved": 4}


@pytest.mark.parametrize("link", [FREE_LINK, LINK, SLOW])
def test_of_all_schedules_that_of_the_shortest_step_is_taken(link):
    """Unless one is named."""
    layers = [layer(forward_us=50.0 * number, parameter_bytes=10**7, output_bytes=30_000) for number in (3, 1, 4, 2)]
    steps_us = {
        schedule: simulate_step(partition(layers, shape(2, link, schedule=schedule), stages=stages)).step_us
        for schedule, stages in SCHEDULES_OF_2.items()
    }
    proposal = propose(layers, shape(2, link, schedule=None))
    assert proposal.pipeline.step.step_us == min(steps_us.values()) < steps_us["1f1b"]
    assert steps_us[proposal.pipeline.plan.schedule] == min(steps_us.values())
    assert {each.plan.schedule for each in proposal.candidates if each is not proposal.data_parallel} == {*steps_us}
    for schedule in SCHEDULES_OF_2:
        named = propose(layers, shape(2, link, schedule=schedule))
        assert {each.plan.schedule for each in named.candidates if len(each.plan.stages) > 1} == {schedule}


def test_what_a_schedule_keeps_in_memory_counts():
    """``zero-bubble`` keeps what its later wgrad needs."""
    layers = [layer(saved_bytes=10_000, parameter_bytes=0, output_bytes=100)] * 3
    needed = {
        schedule: max(simulate_step(partition(layers, shape(3, schedule=schedule), stages=3)).memory_bytes)
        for schedule in ("1f1b", "zero-bubble")
    }
    assert needed["1f1b"] < needed["zero-bubble"]
    for limit, expected in ((needed["zero-bubble"], "zero-bubble"), (needed["zero-bubble"] - 1, "1f1b")):
        found = propose(layers, shape(3, schedule=None, stages=3, memory_bytes=limit))
        assert found.best.plan.schedule == expected and max(found.best.step.memory_bytes) <= limit


@pytest.mark.parametrize(("split_us", "is_taken"), [(0.0, True), (10.0, True), (300.0, False)])
def test_what_splitting_costs_counts(split_us, is_taken):
    """Unless ``zero-bubble`` is named."""
    layers = [layer(parameter_bytes=10**7, split_us=split_us)] * 4
    found = propose(layers, shape(4, SLOW, schedule=None, stages=4))
    assert (found.pipeline.plan.schedule == "zero-bubble") == is_taken
    assert propose(layers, shape(4, SLOW, schedule="zero-bubble")).pipeline.plan.schedule == "zero-bubble"


def test_where_backward_passes_cannot_be_split_zero_bubble_is_left_out():
    layers = [layer(parameter_bytes=10**7)] * 4
    free, bound = (propose(layers, shape(4, SLOW, schedule=None, splits=splits)) for splits in (True, False))
    assert free.best.plan.schedule == "zero-bubble"
    assert {each.plan.schedule for each in bound.candidates} == {"1f1b", "gpipe", "interleaved"}


def test_with_sync_bn_microbatches_share_out_evenly():
    """Of 8, the stage with three replicas would be best, but for that."""
    layers = [layer(), layer(forward_us=700.0, parameter_bytes=0)]
    found, evenly = (partition(layers, shape(4, LINK, evenly=each), stages=2).counts for each in (False, True))
    assert found == (1, 3) and evenly == (2, 2)
    with pytest.raises(NoPlan, match="world=3 ranks do not share out over 2 stages with 7 microbatches"):
        propose(layers, shape(3, LINK, evenly=True, stages=2, microbatches=7))


def test_a_report_shows_the_best_schedule_of_each_number_of_stages():
    proposal = propose([layer(parameter_bytes=10**7)] * 8, shape(4, SLOW, schedule=None))
    shown = [line.partition("  ")[0] for line in report(proposal).splitlines()[2:]]
    shown = shown[: shown.index("")]
    best = [proposal.best_of(stages).name for stages in (1, 2, 3, 4, 8)]
    assert sorted(shown) == sorted(best) and shown[0] == proposal.best.name


def test_of_plans_as_fast_data_parallelism_is_recommended():
    proposal = propose([layer(forward_us=0.0, dgrad_us=0.0, wgrad_us=0.0)] * 4, shape(2))
    assert proposal.best.step.step_us == proposal.candidates[-1].step.step_us
    assert proposal.best.is_data_parallel


def test_data_parallelism_uses_the_costs_of_a_whole_share():
    at_once = [layer(forward_us=300.0)] * 2  # four microbatches at a time, in the time of three
    one_by_one = propose([layer()] * 2, shape(2)).data_parallel
    together = propose([layer()] * 2, shape(2), on_whole_share=at_once).data_parallel
    assert (one_by_one.plan.microbatches, together.plan.microbatches) == (4, 1)
    assert one_by_one.step.step_us == pytest.approx(4 * 2 * 300)
    assert together.step.step_us == pytest.approx(2 * 500)


def test_what_does_not_fit_is_left_out_with_its_reason():
    layers = [layer(saved_bytes=10_000, parameter_bytes=0)] * 4
    proposal = propose(layers, shape(4, memory_bytes=35_000))
    assert proposal.data_parallel is None
    assert "left out: data parallelism: needs 4e-05 GB a rank" in report(proposal)
    assert max(proposal.best.step.memory_bytes) <= 35_000
    with pytest.raises(NoPlan, match="no plan for world=4: data parallelism: needs"):
        propose(layers, shape(4, memory_bytes=5_000))
    exact = [layer(parameter_bytes=0, saved_bytes=4000, output_bytes=0)] * 2
    assert propose(exact, shape(2, memory_bytes=8_000), on_whole_share=exact).data_parallel is not None


def test_pipelines_have_no_more_stages_than_layers():
    proposal = propose([layer()] * 2, shape(4, SLOW))
    assert max(len(each.plan.stages) for each in proposal.candidates) == 2
    assert not proposal.left_out


def test_stages_with_their_ranks_and_layers():
    layers = [layer(name="in"), layer(name="mid", parameter_bytes=10**7), layer(name="out", forward_us=700.0)]
    lines = [line.split() for line in report(propose(layers, shape(4, SLOW, stages=2, replicas=2))).splitlines()]
    assert ["0", "0", "to", "1", "0.20", "0.20", "0.20", "10.0", "30.0", "in", "…", "mid"] in lines
    assert ["1", "2", "to", "3", "0.70", "0.10", "0.10", "0.000"] in [line[:8] for line in lines]


def test_both_neighbours_of_a_stage_use_its_link():
    """Where only the larger of two messages counted, the second cut would come a layer earlier: two of 300 kB then take
    the link of the second stage longer than all else."""
    costs = [(50, 200), (50, 300), (1, 0), (50, 300), (50, 300)]
    layers = [layer(forward_us=us, dgrad_us=0, wgrad_us=0, output_bytes=kb * 1000) for us, kb in costs]
    found = partition(layers, shape(4, Link(gb_s=1.0, latency_us=0.0)), stages=4)
    assert [stage.last for stage in found.stages] == [1, 3, 4, 5]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero-bubble"])
@pytest.mark.parametrize("heaviest", [0, 1, 2])
def test_a_plan_fits_into_just_the_memory_that_it_needs(schedule, heaviest):
    """Whichever stage needs the most."""
    layers = [layer(saved_bytes=50_000 if number == heaviest else 500) for number in range(3)]
    needed = max(simulate_step(partition(layers, shape(3, schedule=schedule), stages=3)).memory_bytes)
    assert partition(layers, shape(3, schedule=schedule, memory_bytes=needed), stages=3)
    with pytest.raises(NoPlan, match="no plan of 3 stages for 3 ranks fits into memory="):
        partition(layers, shape(3, schedule=schedule, memory_bytes=needed - 1), stages=3)


def test_a_pipeline_that_pytorch_would_refuse_is_left_out():
    proposal = propose([layer()] * 4, shape(4, microbatches=2), on_whole_share=[layer()] * 4)
    assert "4 stages, 1f1b" not in [each.name for each in proposal.candidates]
    assert proposal.left_out[-1].startswith("4 stages, 1f1b: 1f1b needs at least as many microbatches as stages")
