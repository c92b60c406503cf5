"""Packed: the kernels and records that packs have brought into this process. ``dwconv.packs`` checks and adds them.

Everything here was checked against the pack's manifest, and is for a device and for versions that are here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dwconv.problems.target import CpuTarget, Target
from dwconv.schedules.template import Candidate
from dwconv.system.cpu_facts import VECTOR_SETS

if TYPE_CHECKING:
    from dwconv.kernels.artifact import Artifact
    from dwconv.problems.workload import Workload
    from dwconv.records.record import TuningRecord
    from dwconv.schedules.space import Config


VECTOR_BYTES = {each.name: each.bytes for each in VECTOR_SETS}


@dataclass(frozen=True, kw_only=True)
class PackedKernels:
    """The content of one pack."""

    device: str
    """A device's name as in records; if nothing was measured, the architecture of a GPU or the vector set of a CPU."""
    measured: bool
    """False if its kernels were chosen by computed costs."""
    only_raced: bool = False
    """True if a kernel that was not measured runs only where a race found it to be faster."""
    tvm: str
    """The version of TVM that generated the kernels."""
    artifacts: Mapping[Candidate, Artifact]
    records: tuple[TuningRecord, ...]
    log: Path
    """The file of the records."""

    def fits(self, target: Target) -> bool:
        """True if the kernels run on ``target``. Those of a CPU run on any number of threads, those of a vector set on
        all vectors that are as wide."""
        if isinstance(target, CpuTarget):
            if self.device in VECTOR_BYTES:
                return VECTOR_BYTES[self.device] <= target.vector_bytes
            return target.named(self.device) is not None
        return self.device == (target.device if self.measured else target.arch)

    def for_layer(self, workload: Workload) -> list[Artifact]:
        """The kernels of any size and any number of channels that run ``workload``, as they were built."""
        return [one for one in self._of_kind.get(workload.layer_kind, ()) if one.takes(workload)]

    @property
    def is_for_every_layer(self) -> bool:
        """True if it has such kernels."""
        return bool(self._of_kind)

    @cached_property
    def _of_kind(self) -> dict[str, list[Artifact]]:
        found: dict[str, list[Artifact]] = {}
        for candidate, artifact in self.artifacts.items():
            if candidate.workload.any_channels:
                found.setdefault(candidate.workload.layer_kind, []).append(artifact)
        return found


_packs: dict[str, PackedKernels] = {}
"""By the digest of the manifest; the records of the last one loaded come first."""


def add(pack: PackedKernels, *, digest: str) -> None:
    """Add a pack, or the same one again."""
    _packs.pop(digest, None)
    _packs[digest] = pack


def count() -> int:
    """How many packs there are."""
    return len(_packs)


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
    """The built kernel, or one for every layer at the size of the candidate; None if no pack has it."""
    for pack in _latest_first():
        if pack.fits(target) and (artifact := pack.artifacts.get(candidate)):
            return artifact
    every = for_every_layer(candidate, target)
    return every.at(candidate.workload) if every else None


def for_every_layer(candidate: Candidate, target: Target) -> Artifact | None:
    """The kernel of any size and any number of channels that is the candidate at one of them, as it was built; None if
    no pack has it, or one has the candidate itself."""
    packs = [pack for pack in _latest_first() if pack.fits(target)]
    if any(candidate in pack.artifacts for pack in packs):
        return None
    found = (one for pack in packs for one in pack.for_layer(candidate.workload))
    return next((one for one in found if one.candidate.config == candidate.config), None)


def configs_for(workload: Workload, target: Target) -> list[Config]:
    """Those of the kernels for every layer that run ``workload``."""
    packs = [pack for pack in _latest_first() if pack.fits(target)]
    return [*dict.fromkeys(one.candidate.config for pack in packs for one in pack.for_layer(workload))]


def are_for_every_layer() -> bool:
    """True if a pack has kernels of any size and any number of channels."""
    return any(pack.is_for_every_layer for pack in _latest_first())


def has(workload: Workload, config: Config, target: Target) -> bool:
    """True if a pack has the kernel."""
    return artifact_of(Candidate(workload, config), target) is not None


def tvm_of(record: TuningRecord) -> str:
    """The version of TVM that generated the record's kernel, if a pack has that; empty if none has."""
    candidate = Candidate(record.workload, record.config)
    return next((pack.tvm for pack in _latest_first() if candidate in pack.artifacts), "")


def unmeasured(workload: Workload, target: Target) -> Candidate | None:
    """The kernel for ``workload``, chosen for the nearest batch size, of a pack whose kernels were never measured; or
    one for every layer."""
    packs = [pack for pack in _latest_first() if pack.fits(target) and not (pack.measured or pack.only_raced)]
    found = [one for pack in packs for one in pack.artifacts if one.workload.batchless_key == workload.batchless_key]
    found += [Candidate(workload, one.candidate.config) for pack in packs for one in pack.for_layer(workload)]
    return min(found, key=lambda one: abs(math.log(one.workload.batch / workload.batch)), default=None)


def _latest_first() -> list[PackedKernels]:
    return [*_packs.values()][::-1]
