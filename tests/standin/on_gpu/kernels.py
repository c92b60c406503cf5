"""Kernels on this machine's GPU, as tuning would leave them, and a count of their launches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dwconv.kernels import build
from dwconv.kernels.kernel import Kernel
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import PASSES, Pass, Workload
from dwconv.records.log import TuningLog
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, templates_for
from dwconv.schedules.template import template as find
from tests.planted_records import record_of


def target() -> CudaTarget:
    here = parse_target("cuda")
    assert isinstance(here, CudaTarget)
    return here


def default(workload: Workload, template: str) -> Kernel:
    """The template's default for this device, built and loaded."""
    return Kernel.load(build(Candidate(workload, _default(workload, template)), target()))


def plant(log: Path, workloads: Iterable[Workload], *, passes: Sequence[Pass] = PASSES) -> None:
    """Write records, for every pass, in which a kernel is much faster than PyTorch's own operator."""
    for workload in workloads:
        for pass_ in passes:
            of_pass = workload.for_pass(pass_)
            template, *_ = (each for each in templates_for(of_pass, target()) if each.layout == workload.layout)
            config = _default(of_pass, template.name)
            TuningLog(log).append(record_of(of_pass, config=config, device=target().device, baseline_us=1e6))


def _default(workload: Workload, template: str) -> Config:
    return find(template).space(workload, target()).default


class Launches:
    """The launches since this was made, of tuned kernels or of ``statistics``; with a real GPU they are not known, and
    ``seen`` is None."""

    def __init__(self, what: str = "launch") -> None:
        self._what = what
        journal = os.environ.get("STAND_IN_JOURNAL")
        self._journal = Path(journal) if journal else None
        self._before = len(self._lines())

    @property
    def seen(self) -> list[dict[str, Any]] | None:
        return self._lines()[self._before :] if self._journal else None

    def _lines(self) -> list[dict[str, Any]]:
        if self._journal is None or not self._journal.exists():
            return []
        lines = [json.loads(line) for line in self._journal.read_text().splitlines()]
        return [line for line in lines if line["what"] == self._what]
