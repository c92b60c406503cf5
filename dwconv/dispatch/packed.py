"""Packed: the kernels and records that packs have brought into this process. ``dwconv.packs`` checks and adds them.

Everything here was checked against the pack's manifest, and is for a device and for versions that are here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dwconv.problems.target import CpuTarget, Target
from dwconv.schedules.template import Candidate

if TYPE_CHECKING:
    from dwconv.kernels.artifact import Artifact
    from dwconv.problems.workload import Workload
    from dwconv.records.record import TuningRecord
    from dwconv.schedules.space import Config


@dataclass(frozen=True, kw_only=True)
class PackedKernels:
    """The content of one pack."""

    device: str
    """A device's name as in records; the architecture of a GPU, if nothing was measured."""
    measured: bool
    """False if its kernels were chosen by computed costs."""
    tvm: str
    """The version of TVM that generated the kernels."""
    artifacts: Mapping[Candidate, Artifact]
    records: tuple[TuningRecord, ...]
    log: Path
    """The file of the records."""

    def fits(self, target: Target) -> bool:
        """True if the kernels run on ``target``. Those of a CPU run on any number of threads."""
        if isinstance(target, CpuTarget):
            return target.named(self.device) is not None
        return self.device == (target.device if self.measured else target.arch)


_packs: dict[str, PackedKernels] = {}
"""By the digest of the manifest; the last one loaded comes first when records are asked for."""


def add(pack: PackedKernels, *, digest: str) -> None:
    """Add a pack, or the same one again."""
    _packs.pop(digest, None)
    _packs[digest] = pack


def forget() -> None:
    """Forget all packs."""
    _packs.clear()


def records() -> list[TuningRecord]:
    """What was measured of the kernels of all packs, and of PyTorch's ops where those are faster."""
    return [record for pack in _latest_first() if pack.measured for record in pack.records]


def logs() -> list[Path]:
    """The files of these records."""
    return [pack.log for pack in _latest_first() if pack.measured]


def artifact_of(candidate: Candidate, target: Target) -> Artifact | None:
    """The built kernel; None if no pack has it."""
    for pack in _latest_first():
        if pack.fits(target) and (artifact := pack.artifacts.get(candidate)):
            return artifact
    return None


def has(workload: Workload, config: Config, target: Target) -> bool:
    """True if a pack has the kernel."""
    return artifact_of(Candidate(workload, config), target) is not None


def tvm_of(record: TuningRecord) -> str:
    """The version of TVM that generated the record's kernel, if a pack has that; empty if none has."""
    candidate = Candidate(record.workload, record.config)
    return next((pack.tvm for pack in _latest_first() if candidate in pack.artifacts), "")


def unmeasured(workload: Workload, target: Target) -> Candidate | None:
    """The kernel for ``workload``, chosen for the nearest batch size, of a pack whose kernels were never measured."""
    found = [
        candidate
        for pack in _latest_first()
        if not pack.measured and pack.fits(target)
        for candidate in pack.artifacts
        if candidate.workload.batchless_key == workload.batchless_key
    ]
    return min(found, key=lambda one: abs(math.log(one.workload.batch / workload.batch)), default=None)


def _latest_first() -> list[PackedKernels]:
    return [*_packs.values()][::-1]
