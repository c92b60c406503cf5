"""A cluster whose nodes measure nothing, in a time that passes only when all wait."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable

from dwconv.errors import NodeLost
from dwconv.problems.workload import Workload
from dwconv.records.line import encode
from dwconv.schedules.space import Config
from dwconv.system import versions
from dwconv.tuner.cluster.node import NodeFacts, NodeReport, NodeTask, Setup
from dwconv.tuner.search.search_result import USUAL_BUDGET, Stop, TuningResult
from tests import fake_tuning as fake

LAYERS = [dataclasses.replace(fake.WORKLOAD, channels=channels) for channels in (16, 64, 32, 96)]
RECORDS = 4
"""Of each workload; the last one is confirmed."""


class Clock:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept_s: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds


class FakeNode:
    """A node that takes ``takes_s`` for each workload. ``dies_s``, ``silent_s``: from then on it answers with an error,
    or nothing. ``sends``: what it makes of a record. ``failure``: why it cannot end its first task."""

    def __init__(
        self,
        name: str,
        *,
        device: str = fake.TARGET.device,
        place: str = "",
        takes_s: float = 10.0,
        versions_there: dict[str, str] | None = None,
        dies_s: float = math.inf,
        silent_s: float = math.inf,
        sends: Callable[[bytes], bytes] = lambda line: line,
        failure: str = "",
    ) -> None:
        self.name = name
        self.target = dataclasses.replace(fake.TARGET, device=device)
        self.place = place or name
        self.takes_s = takes_s
        self.versions_there = versions.installed() if versions_there is None else versions_there
        self.dies_s, self.silent_s = dies_s, silent_s
        self.sends, self.failure = sends, failure
        self.tasks: list[NodeTask] = []
        self.ended = False
        self.pending: tuple[float, object] | None = None
        self.clock = Clock()
        self._began_s, self._sent = 0.0, 0

    @property
    def tuned(self) -> list[Workload]:
        return [task.workload for task in self.tasks]

    def ask(self, method: str, *arguments: object) -> None:
        assert self.pending is None and not self.ended, "one question at a time"
        at_s, answer = getattr(self, f"_{method}")(*arguments)
        if at_s >= self.dies_s:
            at_s, answer = max(self.dies_s, self.clock.now_s), NodeLost("it was unplugged")
        if at_s >= self.silent_s:
            at_s = math.inf
        self.pending = at_s, answer

    def end(self) -> None:
        self.ended, self.pending = True, None

    # -- what the worker answers, and when -----------------------------------------------------------------------

    def _versions(self) -> tuple[float, object]:
        return self.clock.now_s, self.versions_there

    def _start(self, setup: Setup) -> tuple[float, object]:
        return self.clock.now_s, NodeFacts(target=self.target, place=self.place)

    def _begin(self, task: NodeTask) -> tuple[float, object]:
        self.tasks.append(task)
        self._began_s, self._sent = self.clock.now_s, 0
        return self.clock.now_s, None

    def _report(self, wait_s: float) -> tuple[float, object]:
        made_s = [self._began_s + self.takes_s * (number + 1) / RECORDS for number in range(RECORDS)]
        next_s = made_s[self._sent] if self._sent < RECORDS else self.clock.now_s
        at_s = max(self.clock.now_s, min(next_s, self.clock.now_s + wait_s))
        before, self._sent = self._sent, sum(each_s <= at_s for each_s in made_s)
        lines = tuple(map(self._record, range(before, self._sent)))
        ended = made_s[-1] <= at_s
        if ended and self.failure:
            return at_s, NodeReport(lines=lines, ended=True, failure=self.failure)
        return at_s, NodeReport(lines=lines, ended=ended, state=self._state(ended=ended))

    def _record(self, number: int) -> bytes:
        workload = self.tasks[-1].workload
        default = fake.space(workload, self.target).default
        config = Config.of(default.template, **{**dict(default.values), "block_h": [2, 4, 14, 28][number]})
        record = fake.record(workload, config, median_us=50.0 - number)
        confirmed = number == RECORDS - 1
        return self.sends(encode(dataclasses.replace(record, device=self.target.device, confirmed=confirmed)))

    def _state(self, *, ended: bool) -> TuningResult:
        workload = self.tasks[-1].workload
        best = fake.record(workload, fake.space(workload, self.target).default, median_us=47.0)
        return TuningResult(
            workload=workload,
            device=self.target.device,
            budget=USUAL_BUDGET,
            best=dataclasses.replace(best, confirmed=ended, device=self.target.device),
            trials=RECORDS,
            stopped=Stop.TRIALS if ended else None,
        )


class FakeCluster:
    """Its time passes while the driver waits for answers. ``interrupt_s``: when ctrl-C comes."""

    def __init__(self, nodes: Iterable[FakeNode], clock: Clock, *, interrupt_s: float = math.inf) -> None:
        self.links = list(nodes)
        self._clock = clock
        self._interrupt_s = interrupt_s
        for node in self.links:
            node.clock = clock

    def answers(self, *, timeout_s: float) -> list[tuple[FakeNode, object]]:
        due_s = min((node.pending[0] for node in self.links if node.pending), default=math.inf)
        self._clock.now_s = max(self._clock.now_s, min(due_s, self._clock.now_s + timeout_s))
        if self._clock.now_s >= self._interrupt_s:
            raise KeyboardInterrupt
        found = []
        for node in self.links:
            if node.pending and node.pending[0] <= self._clock.now_s:
                found.append((node, node.pending[1]))
                node.pending = None
        return found
