"""``tune_workload`` on the fake workload, with runners that are passed in."""

import dataclasses
from types import SimpleNamespace

import pytest

from dwconv.tuner.search import search_loop
from dwconv.tuner.search.search_loop import SearchPlan, tune_workload
from dwconv.tuner.search.search_result import Budget
from tests import fake_tuning as fake

PLAN = SearchPlan(workers=SimpleNamespace(measurer=SimpleNamespace(running=True)))
AFRESH = dataclasses.replace(PLAN, resume=False)


def tune(log, *runners, plan=PLAN, progress=None, **budget):
    """24 trials, unless ``budget`` says otherwise, by the first of ``runners`` that is left."""
    budget = Budget(**{"trials": 24, "seconds": None, "patience": None, **budget})
    left = list(runners)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_loop, "make_runner", lambda *_, **__: left.pop(0))
        return tune_workload(fake.WORKLOAD, fake.TARGET, log=log, plan=plan, budget=budget, progress=progress)
