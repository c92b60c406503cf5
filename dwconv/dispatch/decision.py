"""Decision: what runs a workload, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.system import versions
from dwconv.untuned import gain

if TYPE_CHECKING:
    from dwconv.records.record import TuningRecord
    from dwconv.schedules.space import Config
    from dwconv.schedules.template import Candidate

Provider = Literal["dwconv", "pytorch"]


@dataclass(frozen=True, kw_only=True)
class DispatchDecision:
    """What runs a workload, and why."""

    provider: Provider
    reason: str
    record: TuningRecord | None = None
    """The best that was measured of the workload on this device, also where PyTorch's own op is faster, and also with
    other versions than those installed."""
    expected: gain.Expected | None = None
    """What the decision relies on where nothing that was measured decides."""
    workload: Workload | None = None
    """The workload that the kernel is built for: the call's, or the same at another batch size or without the bias."""
    target: Target | None = None
    """The target that the kernel is built for; on a CPU perhaps with another number of threads than PyTorch uses
    now."""
    config: Config | None = None
    """The configuration that the kernel is built with: the record's, or the legal one that is nearest to it; or the
    one that is expected to be best."""
    any_size: Candidate | None = None
    """The kernel of any size that ``expected`` is of: it may serve other sizes of the layer, even if it does not run
    here."""
    is_open: bool = False
    """True if PyTorch's op runs until a decision is made in the background."""
    too_many_sizes: bool = False
    """True if PyTorch's op runs since predictions were made for as many other sizes of the layer as may be."""
    code: str = ""
    """The digest that the kernel's code had in the run that was locked."""
    is_not_as_locked: bool = False
    """True if something else runs than in the run that was locked."""
    command: str = ""
    """The command that tunes it; empty if it was measured, at least without the bias, and if tuning can change
    nothing."""

    def __str__(self) -> str:
        tune = f"; tune it{versions.where_to_tune()}: {self.command}" if self.command else ""
        return f"{self.provider}: {self.reason}{tune}"
