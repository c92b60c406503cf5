"""A plan in a file is the plan that was written, or one line says what is wrong with it."""

from __future__ import annotations

import dataclasses
import json
from codecs import BOM_UTF8

import pytest

from dwconv.errors import NoPlan
from dwconv.parallel.planning.plan import Link, Plan, Stage
from dwconv.parallel.planning.plan_files import check_plan, read_plan, write_plan
from tests.parallel.made_up_layers import layer, plan

PLAN = plan([layer(name="first"), layer(), layer()], replicas=[2, 2, 2], link=Link(gb_s=12.5, latency_us=3.0))


def _changed(data: dict[str, object]) -> str:
    return json.dumps({**json.loads(json.dumps(dataclasses.asdict(PLAN))), **data})


def test_what_was_written_is_read(tmp_path):
    write_plan(PLAN, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == PLAN
    marked = BOM_UTF8 + (tmp_path / "plan.json").read_bytes()
    (tmp_path / "plan.json").write_bytes(marked)
    assert read_plan(tmp_path / "plan.json") == PLAN


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a plan"),
        ("[1, 2]", "is not a plan"),
        (_changed({"schedule": "2f2b"}), "schedule=2f2b is unknown"),
        (_changed({"microbatches": 0}), "replicas and microbatches are at least 1"),
        (_changed({"microbatches": "four"}), "microbatches"),
        (_changed({"stages": []}), "do not hold each of its 3 layers once"),
        (_changed({"stages": [{"first": 0, "last": 2, "replicas": 1}]}), "do not hold each of its 3 layers once"),
        (_changed({"link": {"gb_s": 0.0, "latency_us": 0.0}}), "carries nothing"),
        (_changed({"stages_per_rank": 2}), "3 stages are not 2 for each rank"),
        (_changed({"stages_per_rank": 0}), "3 stages are not 0 for each rank"),
        (_changed({"stages": [{"first": 0, "last": 3, "replicas": 0}]}), "replicas and microbatches are at least 1"),
        (
            _changed(
                {"stages_per_rank": 3, "stages": [{"first": n, "last": n + 1, "replicas": 1 + n} for n in range(3)]}
            ),
            "with several stages a rank, all have as many replicas",
        ),
    ],
)
def test_one_line_says_what_is_wrong_with_a_file(tmp_path, text, message):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(NoPlan) as raised:
        read_plan(path)
    assert str(path) in str(raised.value) and message in str(raised.value) and "\n" not in str(raised.value)
    assert "plan --json FILE" in str(raised.value)


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path):
    with pytest.raises(NoPlan, match=r"none\.json cannot be read: No such file"):
        read_plan(tmp_path / "none.json")
    with pytest.raises(NoPlan, match=r"plan\.json cannot be written"):
        write_plan(PLAN, tmp_path / "no folder" / "plan.json")


def test_stages_follow_each_other():
    stages = (Stage(first=0, last=2, replicas=1), Stage(first=1, last=3, replicas=1))
    check_plan(dataclasses.replace(PLAN, stages_per_rank=3))
    check_plan(dataclasses.replace(PLAN, link=Link(gb_s=1.0, latency_us=0.0)))
    for link in (Link(gb_s=1.0, latency_us=-1.0), Link(gb_s=1.0, latency_us=float("inf"))):
        with pytest.raises(NoPlan, match="carries nothing"):
            check_plan(dataclasses.replace(PLAN, link=link))
    with pytest.raises(NoPlan, match="do not hold each"):
        check_plan(dataclasses.replace(PLAN, stages=(*PLAN.stages[:2], PLAN.stages[1], PLAN.stages[2])))
    with pytest.raises(NoPlan, match="does not begin where the one before ends"):
        check_plan(dataclasses.replace(PLAN, stages=stages))


def test_a_plan_says_whether_a_mesh_can_run_it():
    uneven = Plan(
        layers=PLAN.layers,
        stages=(Stage(first=0, last=1, replicas=1), Stage(first=1, last=3, replicas=2)),
        microbatches=2,
        schedule="1f1b",
        link=PLAN.link,
    )
    assert PLAN.is_even and not uneven.is_even
    assert (PLAN.world, uneven.world) == (6, 3)
