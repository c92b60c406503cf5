"""The order of passes is PyTorch's; the simulated step against what is computed by hand, and rules of every step."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.pipelining import schedules

from dwconv.parallel.planning.pipeline_plan import (
    COPIES_OF_PARAMETERS,
    FREE_LINK,
    SCHEDULES,
    Link,
    Plan,
    Stage,
    actions,
    bucket_sizes,
    sum_us,
    why_not,
)
from dwconv.parallel.planning.simulated_step import simulate_step
from tests.parallel.made_up_layers import layer, plan, plan_of

SHARED = Link(gb_s=0.5, latency_us=20.0, both_ways_gb_s=0.3)
CROWDED = Link(gb_s=0.5, latency_us=20.0, summing_us_a_mb=400.0, crowding_us_a_mb=900.0)
PYTORCH = {
    "interleaved": schedules.ScheduleInterleaved1F1B,
    "zero-bubble": schedules.ScheduleInterleavedZeroBubble,
}
WHAT = {"FORWARD": "forward", "FULL_BACKWARD": "backward", "BACKWARD_INPUT": "dgrad", "BACKWARD_WEIGHT": "wgrad"}


@pytest.mark.parametrize("schedule", PYTORCH)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_interleaved_and_zero_bubble_are_pytorchs(schedule, groups):
    for stages_per_rank, microbatches, group in itertools.product((1, 2, 3), (1, 2, 4, 6, 8, 12), range(groups)):
        rounds = max(1, microbatches // groups)
        if microbatches % rounds:
            continue
        asked = SimpleNamespace(
            n_local_stages=stages_per_rank,
            pp_group_size=groups,
            _n_microbatches=microbatches,
            microbatches_per_round=microbatches // rounds,
        )
        theirs = [
            (WHAT[action.computation_type.name], action.stage_index, action.microbatch_index)
            for action in PYTORCH[schedule]._calculate_single_rank_operations(asked, group)
            if action is not None
        ]
        ends = range(1, groups * stages_per_rank + 1)
        ours = plan_of(ends, schedule=schedule, microbatches=microbatches, stages_per_rank=stages_per_rank)
        assert actions(ours, group) == theirs


@pytest.mark.parametrize(
    ("schedule", "group", "expected"),
    [
        ("gpipe", 0, "F0 F1 F2 F3 B0 B1 B2 B3"),
        ("1f1b", 0, "F0 F1 F2 B0 F3 B1 B2 B3"),
        ("1f1b", 1, "F0 F1 B0 F2 B1 F3 B2 B3"),
        ("1f1b", 2, "F0 B0 F1 B1 F2 B2 F3 B3"),
        ("zero-bubble", 2, "F0 D0 F1 D1 F2 D2 W0 F3 D3 W1 W2 W3"),
    ],
)
def test_orders_as_they_are_drawn(schedule, group, expected):
    letters = {"forward": "F", "backward": "B", "dgrad": "D", "wgrad": "W"}
    found = actions(plan_of([1, 2, 3], schedule=schedule), group)
    assert " ".join(f"{letters[action.what]}{action.microbatch}" for action in found) == expected


def test_why_not_names_what_pytorch_would_refuse():
    assert why_not(plan([layer()] * 4, microbatches=3)) == (
        "1f1b needs at least as many microbatches as stages: 3 are fewer than 4"
    )
    assert "3 rounds of 2 ranks" in why_not(plan([layer()] * 2, microbatches=7, schedule="zero-bubble"))
    assert not why_not(plan([layer()] * 4, microbatches=4))
    assert not why_not(plan([layer()], microbatches=1))


# -- the simulated step ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero-bubble"])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 4), (4, 8), (3, 9)])
def test_the_bubble_of_equal_stages(schedule, stages, microbatches):
    """That of zero-bubble is its first schedule's, ZB-H1: (p − 1)(forward + dgrad − wgrad)."""
    step = simulate_step(plan([layer()] * stages, microbatches=microbatches, schedule=schedule))
    filling_us = (stages - 1) * (100 if schedule == "zero-bubble" else 300)
    assert step.step_us == pytest.approx(microbatches * 300 + filling_us)
    assert step.bubble == pytest.approx(filling_us / (microbatches * 300 + filling_us))
    assert step.exposed_communication_us == 0


@pytest.mark.parametrize("stages_per_rank", [1, 3])
def test_the_bubble_of_interleaved_shrinks_with_the_stages_of_a_rank(stages_per_rank):
    layers = [layer()] * (4 * stages_per_rank)
    step = simulate_step(plan(layers, microbatches=8, schedule="interleaved", stages_per_rank=stages_per_rank))
    assert step.bubble == pytest.approx(3 / (8 * stages_per_rank + 3))


def test_what_passes_apart_cost_counts_where_a_schedule_splits_them():
    """By hand: the first stage, which has no gradient to send, splits nothing."""
    first, second = layer(split_us=1000.0), layer(split_us=30.0)
    for schedule, more_us in (("gpipe", 0), ("1f1b", 0), ("zero-bubble", 4 * 30)):
        steps = [simulate_step(plan(layers, schedule=schedule)) for layers in ([layer()] * 2, [first, second])]
        wgrads = [[event for event in step.events if event.what == "wgrad"] for step in steps]
        before_us, now_us = (sum(event.end_us - event.start_us for event in events) for events in wgrads)
        assert now_us - before_us == pytest.approx(more_us), schedule


def test_communication_beside_computing_costs_only_the_fill():
    """Two stages: activations cross once before the second can begin, gradients once before the first can end."""
    link = Link(gb_s=1.0, latency_us=10.0)
    step = simulate_step(plan([layer(output_bytes=40_000)] * 2, microbatches=8, schedule="gpipe", link=link))
    assert step.exposed_communication_us == pytest.approx(2 * (10 + 40))


def test_a_link_slower_than_computing_sets_the_pace():
    link = Link(gb_s=1.0, latency_us=0.0)
    step = simulate_step(plan([layer(output_bytes=1_000_000)] * 2, microbatches=4, schedule="gpipe", link=link))
    assert step.step_us == pytest.approx(100 + 4 * 1000 + 100 + 200 + 4 * 1000 + 200)


def test_messages_to_both_neighbours_share_the_link_of_a_rank():
    """The stage in the middle computes in no time, and sends activations to one neighbour while it sends gradients to
    the other: in a long step each microbatch takes its link both transfers."""
    link = Link(gb_s=1.0, latency_us=0.0)
    middle = layer(forward_us=0, dgrad_us=0, wgrad_us=0, output_bytes=1_000_000)
    layers = [layer(output_bytes=1_000_000), middle, layer(output_bytes=0)]

    def step_us(microbatches):
        return simulate_step(plan(layers, microbatches=microbatches, link=link)).step_us

    assert (step_us(40) - step_us(20)) / 20 == pytest.approx(2 * 1000, rel=0.05)
    sent = [event for event in simulate_step(plan(layers, link=link)).events if event.what == "send"]
    middles = sorted((event.start_us, event.end_us) for event in sent if event.rank == 1)
    assert len(middles) == 8 and all(one[1] <= other[0] for one, other in itertools.pairwise(middles))


def test_a_sum_over_replicas_waits_for_what_its_rank_sends():
    """And what is sent afterwards waits for the sum."""
    link = Link(gb_s=1.0, latency_us=0.0)
    layers = [layer(output_bytes=1_000_000, parameter_bytes=0), layer(output_bytes=0, parameter_bytes=2_000_000)]
    step = simulate_step(plan(layers, replicas=2, microbatches=1, schedule="gpipe", link=link))
    sends = {event.name: (event.start_us, event.end_us) for event in step.events if event.rank == 2}
    assert sends["gradients to rank 0"] == (1400, 2400)
    assert sends["sum of gradients"] == (2400, 4400)
    assert step.step_us == 4400


def test_what_a_rank_sends_and_receives_at_once_is_slower():
    """Here by half. The first gradients leave while the second activations are on their way, 300 µs of 1000: both go
    on at half speed until the activations are there, 700 µs later at full speed; then the gradients have 300 left."""
    link = Link(gb_s=1.0, latency_us=0.0, both_ways_gb_s=0.5)
    layers = [layer(output_bytes=1_000_000), layer(output_bytes=0)]
    step = simulate_step(plan(layers, microbatches=2, link=link))
    sent = {
        (event.rank, event.microbatch): (event.start_us, event.end_us) for event in step.events if event.what == "send"
    }
    assert sent == {(0, 0): (100, 1100), (0, 1): (1100, 2800), (1, 0): (1400, 3100), (1, 1): (3100, 4100)}
    assert step.step_us == 4300
    received = [(event.start_us, event.end_us) for event in step.events if event.what == "receive"]
    assert sorted(received) == sorted(sent.values())
    assert simulate_step(plan(layers, microbatches=2, link=Link(gb_s=1.0, latency_us=0.0))).step_us == 3600


def test_a_sum_sends_and_receives_at_once():
    """All that time, so nothing slows it down further."""
    layers = [layer(parameter_bytes=60_000, output_bytes=0)]
    both = Link(gb_s=1.0, latency_us=5.0, both_ways_gb_s=0.25)
    assert sum_us(both, 60_000, ranks=3) == 4 * (5 + 4 * 20)
    step = simulate_step(plan(layers, replicas=3, microbatches=1, link=both))
    assert {event.end_us - event.start_us for event in step.events if event.what == "reduce"} == {4 * (5 + 4 * 20)}
    assert both.at(2.0) == Link(gb_s=2.0, latency_us=5.0, both_ways_gb_s=0.5)
    assert both.at_once == Link(gb_s=0.25, latency_us=5.0)


def test_gradients_of_replicas_are_summed_once_the_last_has_them():
    link = Link(gb_s=1.0, latency_us=5.0)
    layers = [layer(parameter_bytes=60_000, output_bytes=0)] * 2
    step = simulate_step(plan(layers, replicas=3, schedule="gpipe", link=link))
    sums = [event for event in step.events if event.what == "reduce"]
    assert sorted(event.rank for event in sums) == [0, 1, 2, 3, 4, 5]
    assert [event.end_us - event.start_us for event in sums] == pytest.approx([4 * (5 + 20)] * 6)
    assert {event.end_us for event in sums if event.stage == 0} == {step.step_us}


def test_data_parallelism_sums_buckets_beside_the_backward_pass():
    mib = 2**20
    link = Link(gb_s=1.0, latency_us=0.0)
    layers = tuple(layer(dgrad_us=30_000, wgrad_us=30_000, parameter_bytes=30 * mib) for _ in range(3))
    whole = Stage(first=0, last=3, replicas=2)
    step = simulate_step(Plan(layers=layers, stages=(whole,), microbatches=1, schedule="1f1b", link=link))
    once_us = sum_us(link, 30 * mib, ranks=2)
    assert once_us < 60_000  # a bucket is summed while the next fills
    assert step.step_us == pytest.approx(300 + 3 * 60_000 + once_us)
    assert step.exposed_communication_us == pytest.approx(once_us)
    assert step.bubble == pytest.approx(0)
    begun = [event.start_us for event in step.events if event.what == "reduce" and event.rank == 0]
    ended = [event.end_us for event in step.events if event.what == "wgrad" and event.rank == 0]
    assert begun == pytest.approx(ended)  # a bucket is a layer here, and goes as soon as it is there


@pytest.mark.parametrize(
    ("gb_s", "summing_us", "crowding_us", "sums_us", "lost_us"),
    [
        (1.0, 0.0, 0.0, 30_000, 0),
        (1.0, 500.0, 0.0, 45_000, 0),
        (1.0, 500.0, 750.0, 45_000, 22_500),  # computing goes on at half speed meanwhile
        (1.0, 0.0, 1000.0, 30_000, 30_000),  # it stands still
        (1.0, 0.0, 1500.0, 45_000, 45_000),  # and the sum waits for a core
        (0.5, 500.0, 750.0, 75_000, 22_500),
    ],
)
def test_a_sum_takes_computing_from_its_ranks(gb_s, summing_us, crowding_us, sums_us, lost_us):
    """By hand: three layers, of which each is a bucket, so two sums go on beside computing."""
    link = Link(gb_s=gb_s, latency_us=0.0, summing_us_a_mb=summing_us, crowding_us_a_mb=crowding_us)
    assert link.at(2 * gb_s).at(gb_s) == link
    size_bytes, backward_us = 30_000_000, 80_000
    layers = (layer(dgrad_us=30_000, wgrad_us=50_000, parameter_bytes=size_bytes),) * 3
    assert sum_us(link, size_bytes, ranks=2) == pytest.approx(sums_us)
    whole = Stage(first=0, last=3, replicas=2)
    step = simulate_step(Plan(layers=layers, stages=(whole,), microbatches=1, schedule="1f1b", link=link))
    assert step.step_us == pytest.approx(300 + 3 * backward_us + 2 * lost_us + sums_us)
    assert step.exposed_communication_us == pytest.approx(2 * lost_us + sums_us)
    sums = [event for event in step.events if event.what == "reduce" and event.rank == 1]
    assert [event.end_us - event.start_us for event in sums] == pytest.approx([sums_us] * 3)


def test_a_sum_of_one_stage_leaves_the_computing_of_others_alone():
    link = Link(gb_s=1.0, latency_us=0.0, crowding_us_a_mb=500.0)
    layers = [layer(output_bytes=0, parameter_bytes=0, wgrad_us=900), layer(output_bytes=0, parameter_bytes=400_000)]
    plans = [plan(layers, replicas=2, microbatches=1, schedule="gpipe", link=each) for each in (link, FREE_LINK)]
    crowded, free = map(simulate_step, plans)
    assert crowded.step_us == free.step_us


def test_buckets_fill_from_the_last_layer():
    mib = 2**20
    layers = [layer(parameter_bytes=size * mib) for size in (4, 30, 10, 10, 10)]
    assert bucket_sizes(layers) == [4 * mib, 30 * mib, 30 * mib, 0, 0]
    assert bucket_sizes([layer(parameter_bytes=0)]) == [0]


def test_memory_is_what_is_on_its_way():
    kept = [500, 500 + 1000, 500 + 1000]  # what a layer saves, and what it received
    for schedule, on_their_way in (("gpipe", [6, 6, 6]), ("1f1b", [3, 2, 1]), ("zero-bubble", [3, 3, 3])):
        step = simulate_step(plan([layer()] * 3, microbatches=6, schedule=schedule))
        expected = [COPIES_OF_PARAMETERS * 40 + count * each for count, each in zip(on_their_way, kept, strict=True)]
        assert list(step.memory_bytes) == expected


# -- rules -----------------------------------------------------------------------------------------------------------

times_us = st.floats(1, 1000)
layers_of_all_kinds = st.builds(
    layer,
    forward_us=times_us,
    dgrad_us=times_us,
    wgrad_us=st.just(0.0) | times_us,
    output_bytes=st.integers(1, 10**6),
    parameter_bytes=st.integers(0, 10**6),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    schedule = draw(st.sampled_from(SCHEDULES))
    stages_per_rank = draw(st.integers(1, 2)) if schedule == "interleaved" else 1
    count = draw(st.integers(1, 4)) * stages_per_rank
    replicas = draw(st.integers(1, 2))
    of_each = st.integers(1, 3) if schedule != "interleaved" else st.just(replicas)
    return plan(
        draw(st.lists(layers_of_all_kinds, min_size=count, max_size=count)),
        replicas=draw(st.just([replicas] * count) | st.lists(of_each, min_size=count, max_size=count)),
        microbatches=draw(st.sampled_from([4, 8, 12])),
        schedule=schedule,
        link=draw(
            st.sampled_from(
                [FREE_LINK, Link(gb_s=1.0, latency_us=20.0), Link(gb_s=0.1, latency_us=0.0), SHARED, CROWDED]
            )
        ),
        stages_per_rank=stages_per_rank,
    )


@settings(max_examples=60)
@given(plans())
def test_every_step_keeps_the_rules(drawn):
    """Every pass runs once, in an order that data allows, whatever the replicas of each stage: no rank waits for ever.
    A rank computes one thing at a time, and sends and receives one thing at a time, whichever its neighbour; no memory
    is lost."""
    step = simulate_step(drawn)
    passes = [event for event in step.events if event.what in ("forward", "dgrad", "wgrad")]
    computed = {(event.what, event.stage, event.microbatch): event for event in passes}
    wanted = set(itertools.product(("forward", "dgrad", "wgrad"), range(len(drawn.stages)), range(drawn.parts)))
    assert set(computed) == wanted and len(passes) == len(wanted)
    assert all(event.rank == drawn.rank_of(event.stage, event.microbatch) for event in passes)
    for (what, stage, microbatch), event in computed.items():
        if what == "forward" and stage:
            assert computed["forward", stage - 1, microbatch].end_us <= event.start_us
        if what == "dgrad":
            assert computed["forward", stage, microbatch].end_us <= event.start_us
            if stage + 1 < len(drawn.stages):
                assert computed["dgrad", stage + 1, microbatch].end_us <= event.start_us
        if what == "wgrad":
            assert computed["dgrad", stage, microbatch].end_us <= event.start_us
    assert step.step_us >= max(event.end_us for event in step.events) - 1e-6
    by_part = {}
    for event in step.events:
        for part in {"send": ["sends"], "receive": ["receives"], "reduce": ["sends", "receives"]}.get(
            event.what, ["computes"]
        ):
            by_part.setdefault((event.rank, part), []).append(event)
    for some in by_part.values():
        assert all(one.end_us <= other.start_us + 1e-6 for one, other in itertools.pairwise(some))
    assert len(step.memory_bytes) == drawn.world and all(each > 0 for each in step.memory_bytes)
    assert 0 <= step.bubble < 1 and step.exposed_communication_us >= 0
