"""The order of passes is the one that torch.distributed.pipelining runs."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from torch.distributed.pipelining import schedules

from dwconv.errors import NoPlan
from dwconv.parallel.planning.orders import Place, actions, place_of, why_not
from tests.parallel.made_up_layers import layer, plan

PYTORCH = {
    "interleaved": schedules.ScheduleInterleaved1F1B,
    "zero-bubble": schedules.ScheduleInterleavedZeroBubble,
}
WHAT = {"FORWARD": "forward", "FULL_BACKWARD": "backward", "BACKWARD_INPUT": "dgrad", "BACKWARD_WEIGHT": "wgrad"}


def _place(*, group: int, groups: int, microbatches: int, stages_per_rank: int = 1) -> Place:
    return Place(
        group=group,
        groups=groups,
        stages_per_rank=stages_per_rank,
        microbatches=microbatches,
        ahead=groups - group,
        behind=group,
    )


def _shown(schedule: str, place: Place) -> str:
    letters = {"forward": "F", "backward": "B", "dgrad": "D", "wgrad": "W"}
    return " ".join(f"{letters[action.what]}{action.microbatch}" for action in actions(schedule, place))


@pytest.mark.parametrize("schedule", PYTORCH)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_interleaved_and_zero_bubble_are_pytorchs(schedule, groups):
    compared = 0
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
        place = _place(group=group, groups=groups, microbatches=microbatches, stages_per_rank=stages_per_rank)
        ours = [(action.what, action.stage, action.microbatch) for action in actions(schedule, place)]
        assert ours == theirs
        compared += 1
    assert compared >= 15 * groups


@pytest.mark.parametrize(
    ("schedule", "group", "expected"),
    [
        ("gpipe", 0, "F0 F1 F2 F3 B0 B1 B2 B3"),
        ("gpipe", 1, "F0 F1 F2 F3 B0 B1 B2 B3"),
        ("1f1b", 0, "F0 F1 F2 B0 F3 B1 B2 B3"),
        ("1f1b", 1, "F0 F1 B0 F2 B1 F3 B2 B3"),
        ("1f1b", 2, "F0 B0 F1 B1 F2 B2 F3 B3"),
        ("zero-bubble", 0, "F0 F1 F2 D0 W0 F3 D1 W1 D2 W2 D3 W3"),
        ("zero-bubble", 2, "F0 D0 F1 D1 F2 D2 W0 F3 D3 W1 W2 W3"),
    ],
)
def test_orders_as_they_are_drawn(schedule, group, expected):
    assert _shown(schedule, _place(group=group, groups=3, microbatches=4)) == expected


def test_replicas_share_out_the_microbatches():
    uneven = plan([layer(), layer()], replicas=[1, 3], microbatches=6)
    places = [place_of(uneven, group=1, replica=replica) for replica in range(3)]
    assert [place.microbatches for place in places] == [2, 2, 2]
    assert place_of(uneven, group=0).ahead == 4  # three are with the other stage
    assert {place.ahead for place in places} == {1}


def test_why_not_names_what_pytorch_would_refuse():
    assert why_not(plan([layer()] * 4, microbatches=3)) == (
        "1f1b needs at least as many microbatches as stages: 3 are fewer than 4"
    )
    assert "3 rounds of 2 ranks" in why_not(plan([layer()] * 2, microbatches=7, schedule="zero-bubble"))
    assert not why_not(plan([layer()] * 4, microbatches=4))
    assert not why_not(plan([layer()], microbatches=1))


def test_an_unknown_schedule_is_named_with_those_there_are():
    with pytest.raises(NoPlan, match="schedule=2f2b is unknown; use one of gpipe, 1f1b, interleaved, zero-bubble"):
        actions("2f2b", _place(group=0, groups=1, microbatches=1))
