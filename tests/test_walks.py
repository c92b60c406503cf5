"""The rooms that a reader of a call goes through, and where it climbs: ``python -m tests.walks`` lists them."""

from __future__ import annotations

import sys

import pytest

from tests import forked
from tests.walks import Walk, room_of, stands_above

pytest.importorskip("tomllib", reason="Python 3.10 cannot read pyproject.toml")

RECORDS = "records.database -> dispatch.knowledge"
"""Records know neither versions nor packs: they are ranked by what knowledge says of each."""
MODEL = ["call.arguments -> discovery.call_watch", "call.signature -> discovery.forward_graph"]
"""The model runs, with modes and proxies of discovery: they observe what tensors are used for."""


@pytest.mark.parametrize(
    ("walk", "most", "climbs", "through"),
    [
        ("convert", 10, [], "model.foreseen"),
        ("example", 57, MODEL, "discovery.find_blocks"),
        ("conv2d", 36, [], "dispatch.decide"),
        ("tuned", 54, [RECORDS], "kernels.kernel"),  # one fewer where its programs are kept from an earlier run
    ],
)
def test_no_walk_enters_more_rooms_or_climbs_more_often(tmp_path, monkeypatch, walk, most, climbs, through):
    """Rooms of templates are left out: some walks look at all families."""
    monkeypatch.setenv("DWCONV_TUNING_LOGS", str(tmp_path))
    monkeypatch.setenv("DWCONV_NATIVE", "0")
    done = forked.run([sys.executable, "-W", "ignore", "-m", "tests.walks", walk], text=True)
    *rooms, counts, climbed = done.stdout.splitlines()
    assert any(through in room.split() for room in rooms), done.stdout + done.stderr
    assert int(counts.split()[2]) <= most, f"one more: merge, or say why not\n{done.stdout}"
    assert {*climbed.partition(": ")[2].split("; ")} - {""} <= {*climbs}, done.stdout


def test_a_walk_sees_rooms_and_climbs():
    from dwconv.call import call_plan, process_kernels

    with Walk() as walk:
        process_kernels.attempt(call_plan.plans)
    assert [*walk.rooms] == ["call.process_kernels", "call.call_plan", "system.forks"]
    assert walk.climbs() == ["call.process_kernels -> call.call_plan"]
    assert room_of(call_plan.__file__) == "call.call_plan"
    assert stands_above("dispatch.decide", "dispatch.locked") and not stands_above("dispatch.locked", "dispatch.decide")
    assert not any(stands_above(one, one) for one in ("native", "call.functional", "schedules.template"))
