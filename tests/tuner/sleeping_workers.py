"""Workers that search over a fake template and sleep instead of measuring, so that a machine can be a cluster."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import ray

from dwconv.problems.workload import PASSES
from dwconv.records.record import TuningRecord
from dwconv.schedules import template as template_module
from dwconv.schedules.template import Candidate
from dwconv.tuner.cluster.node import NodeFacts, Setup
from dwconv.tuner.cluster.node_worker import NodeWorker
from dwconv.tuner.search import search_loop, search_state
from tests import fake_tuning as fake
from tests import forked
from tests.waiting import eventually

TRIALS, NODES = 4, 2
TEMPLATES = {f"fake.{pass_}": fake.template(pass_=pass_) for pass_ in PASSES}


class SleepingRunner(fake.FakeRunner):
    """Takes ``trial_s`` for each candidate, whatever it is."""

    def __init__(self, device: str, *, trial_s: float) -> None:
        super().__init__()
        self._device, self._trial_s = device, trial_s

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        for record in super().measure(candidates):
            time.sleep(self._trial_s)
            yield dataclasses.replace(record, device=self._device)

    def confirm(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        return (dataclasses.replace(record, device=self._device) for record in super().confirm(candidates))


class SleepingWorker(NodeWorker):
    """A worker on a machine of its own, as it says. Its first pass is measured beside the first one of another node."""

    device = fake.TARGET.device
    trial_s, beside_others, passes = 0.25, 1, 0

    def start(self, setup: Setup) -> NodeFacts:
        template_module.all_templates = lambda: TEMPLATES
        search_loop.make_runner = lambda *_, **__: self.runner()
        search_state.Quiet = lambda **_: SimpleNamespace(busy=0.0, look=lambda: True, wait=lambda timeout_s: True)
        target = dataclasses.replace(fake.TARGET, device=self.device)
        self._ready = setup.choices, target, SimpleNamespace(measurer=SimpleNamespace(running=True))
        return NodeFacts(target=target, place=ray.get_runtime_context().get_node_id())

    def runner(self) -> SleepingRunner:
        """Of the next pass."""
        self.passes += 1
        if self.passes <= self.beside_others:
            self.meet()
        return SleepingRunner(self.device, trial_s=self.trial_s)

    def meet(self) -> None:
        """Wait until every node is at a pass of this number. Those that worked one after the other would wait without
        end."""
        context = ray.get_runtime_context()
        folder = Path(os.environ[forked.FOLDER]) / f"ray-{context.get_job_id()}"
        folder.mkdir(exist_ok=True)
        (folder / f"{self.passes}-{context.get_node_id()}").touch()
        assert eventually(lambda: len([*folder.glob(f"{self.passes}-*")]) == NODES)


class AbreastWorker(SleepingWorker):
    """Each of its passes is measured beside one of another node."""

    trial_s, beside_others = 0.01, 6
