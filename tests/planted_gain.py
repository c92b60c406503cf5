"""What is expected of unmeasured workloads, as a test sets it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import templates_for
from dwconv.untuned import gain
from dwconv.untuned.gain import Expected


class PlantedGain:
    """Stands in for ``expected``: the default of the template of the workload's own layout, ``gain`` times as fast as
    PyTorch's op, which takes 1000 µs; None for what ``knows`` does not accept."""

    def __init__(self) -> None:
        self.gain, self.at_least, self.pytorch_us = 12.3, 6.1, 1000.0
        self.knows = lambda workload: True
        self.asked: list[Workload] = []
        self.records: list[TuningRecord] = []
        self.config: Config | None = None

    def __call__(self, workload: Workload, target: Target, records: Iterable[TuningRecord]) -> Expected | None:
        self.asked.append(workload)
        self.records = list(records)
        if not self.knows(workload):
            return None
        config = self.config or default_of(workload, target)
        us = self.pytorch_us / self.gain
        return Expected(config=config, us=us, gain=self.gain, at_least=self.at_least, reason="as it was planted")


def default_of(workload: Workload, target: Target) -> Config:
    """The default of the template of the workload's own layout."""
    (template,) = (found for found in templates_for(workload, target) if found.layout == workload.layout)
    return template.space(workload, target).default


def plant_gain(monkeypatch: pytest.MonkeyPatch) -> PlantedGain:
    """Plant it for the test, where unmeasured workloads are predicted; a call waits for its kernel, so that a test need
    not. Tests of kernels that arrive in the background say so: ``monkeypatch.delenv("DWCONV_UNTUNED")``."""
    monkeypatch.setenv("DWCONV_UNTUNED", "wait")
    planted = PlantedGain()
    monkeypatch.setattr(gain, "expected", planted)
    return planted
