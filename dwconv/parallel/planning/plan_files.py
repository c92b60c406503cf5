"""Plans in files: JSON that ``plan --json`` writes and ``train`` reads. Data only, checked when it is read."""

from __future__ import annotations

import math
from codecs import BOM_UTF8
from itertools import pairwise
from pathlib import Path

import msgspec

from dwconv.errors import NoPlan, one_line
from dwconv.parallel.planning.orders import check_schedule
from dwconv.parallel.planning.plan import Plan
from dwconv.system.new_file import replace_file


def write_plan(plan: Plan, path: Path) -> None:
    """Write ``plan`` to a file. Raises NoPlan if it cannot be written."""
    try:
        replace_file(path, [msgspec.json.format(msgspec.json.encode(plan), indent=1), b"\n"], durable=False)
    except OSError as error:
        raise NoPlan(f"plan={path} cannot be written: {error.strerror}; name another file") from None


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises NoPlan if there is none, or if it is not whole."""
    try:
        plan = msgspec.json.decode(path.read_bytes().removeprefix(BOM_UTF8), type=Plan)
        check_plan(plan)
    except OSError as error:
        raise NoPlan(f"plan={path} cannot be read: {error.strerror}; {_WAY_OUT}") from None
    except (msgspec.DecodeError, NoPlan) as error:
        raise NoPlan(f"plan={path} is not a plan: {one_line(str(error))}; {_WAY_OUT}") from None
    return plan


_WAY_OUT = "write one with python -m dwconv.parallel plan --json FILE"


def check_plan(plan: Plan) -> None:
    """Raises NoPlan unless its stages hold every layer once, in order, and its numbers make sense."""
    check_schedule(plan.schedule)
    bounds = [0, *(stage.last for stage in plan.stages)]
    if not plan.stages or bounds[-1] != len(plan.layers) or any(one >= other for one, other in pairwise(bounds)):
        raise NoPlan(f"its stages do not hold each of its {len(plan.layers)} layers once")
    if [stage.first for stage in plan.stages] != bounds[:-1]:
        raise NoPlan("a stage does not begin where the one before ends")
    if min(stage.replicas for stage in plan.stages) < 1 or plan.microbatches < 1:
        raise NoPlan("replicas and microbatches are at least 1")
    if plan.stages_per_rank < 1 or len(plan.stages) % plan.stages_per_rank:
        raise NoPlan(f"{len(plan.stages)} stages are not {plan.stages_per_rank} for each rank")
    if plan.stages_per_rank > 1 and not plan.is_even:
        raise NoPlan("with several stages a rank, all have as many replicas")
    if not (plan.link.gb_s > 0 and 0 <= plan.link.latency_us < math.inf):
        raise NoPlan(f"a link of {plan.link.gb_s:g} GB/s and {plan.link.latency_us:g} µs carries nothing")
