"""Gain: how much faster than PyTorch's own op an unmeasured kernel is expected to be, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dwconv.errors import NoTemplate
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import estimated_us, template
from dwconv.untuned.evidence import of_workload
from dwconv.untuned.portfolio_file import Portfolio, kinds, shipped, sort_of
from dwconv.untuned.starts import starts

STALE_DISCOUNT = 1.25
"""What was measured on this device with other versions of PyTorch, TVM or the template is expected to be as fast as it
was then, but at worst this many times as slow beside PyTorch's op. An assumption: it was not measured by how much
one version differs from the next."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the most promising configuration of an unmeasured workload is expected to do on a target."""

    config: Config
    us: float
    """Its estimated time, in microseconds."""
    gain: float
    """PyTorch's time over its own: how many times as fast it is."""
    at_least: float
    """The gain that 95 of 100 such workloads exceed, measured on networks, or devices, that the model did not know."""
    reason: str
    """Where the configuration and the figures come from, in a few words."""
    source: str = ""
    """The sizes at which the same layer was measured on this device, ``8×96×28×28``; empty if it was at none."""


def expected(
    workload: Workload, target: Target, records: Iterable[TuningRecord], *, portfolio: Portfolio | None = None
) -> Expected | None:
    """None where too little is known to expect anything, or nothing can run the workload. Nothing is measured or built.
    ``portfolio`` is the shipped one unless given."""
    known = portfolio or shipped()
    is_known = target.device in known.devices
    errors = known.known_device if is_known else known.other_device
    trees = known.trees.get(sort_of(workload))
    error = next((errors[kind] for kind in kinds(workload) if kind in errors), None)
    if target.kind != "cpu" or error is None or trees is None:
        return None
    try:
        first = next(iter(starts(workload, target, records, most=1)), None)
    except NoTemplate:
        return None
    if first is None or template(first.config.template).estimate_us is None:
        return None
    power = trees.predict(of_workload(workload))
    judged = f"{error.workloads} passes of other {'networks' if is_known else 'devices'}"
    return Expected(
        config=first.config,
        us=estimated_us(workload, first.config, target),
        gain=2 ** (power + error.middle),
        at_least=2 ** (power + error.least),
        reason=f"{first.reason}; judged on {judged}",
    )
