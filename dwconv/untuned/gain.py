"""Gain: how much faster than PyTorch's own op an unmeasured kernel is expected to be, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.target import Target
from dwconv.workload import Workload

STALE_DISCOUNT = 1.25
"""What was measured on this device with other versions of PyTorch, TVM or the template is expected to be as fast as it
was then, but at worst this many times as slow beside PyTorch's op. An assumption: nobody has measured yet by how much
one version differs from the next."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the most promising configuration of an unmeasured workload is expected to do on a target."""

    config: Config
    us: float
    """Its time, in microseconds."""
    gain: float
    """PyTorch's time over its own: how many times as fast it is."""
    at_least: float
    """The gain that 95 of 100 such workloads exceed, measured on networks, or devices, that the model did not know."""
    reason: str
    """Where the configuration and the figures come from, in a few words."""


def expected(workload: Workload, target: Target, records: Iterable[TuningRecord]) -> Expected | None:
    """None where too little is known to expect anything. Nothing is measured or built."""
    return None
