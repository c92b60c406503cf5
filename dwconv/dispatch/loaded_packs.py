"""Packed: the kernels and records that packs have brought into this process. ``dwconv.packs`` checks and adds them.

Everything here was checked against the pack's manifest, and is for a device and for versions that are here. Kernels for
every layer that a race has built lie in the cache folder, and count as a pack's; so do those that the package brings.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dwconv import settings
from dwconv.problems.target import FORCED_VECTOR_SETS, CpuTarget, Target, vector_set_of
from dwconv.schedules.template import Candidate
from dwconv.system import versions
from dwconv.system.cpu_facts import VECTOR_SETS, cpu_facts

if TYPE_CHECKING:
    from dwconv.kernels.artifact import Artifact
    from dwconv.kernels.base_pack import BasePack
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
    _built.clear()
    _has_built.cache_clear()


def records() -> list[TuningRecord]:
    """What was measured of the kernels of all packs, and of PyTorch's ops where those are faster."""
    return [record for pack in _latest_first() if pack.measured for record in pack.records]


def logs() -> list[Path]:
    """The files of these records."""
    return [pack.log for pack in _latest_first() if pack.measured]


def artifact_of(candidate: Candidate, target: Target) -> Artifact | None:
    """The built kernel, or one for every layer at the size of the candidate, or at any; None if no pack has it."""
    for pack in _latest_first():
        if pack.fits(target) and (artifact := pack.artifacts.get(candidate)):
            return artifact
    if (every := for_every_layer(candidate, target)) is None:
        return None
    return replace(every, candidate=candidate) if candidate.workload.any_size else every.at(candidate.workload)


def for_every_layer(candidate: Candidate, target: Target) -> Artifact | None:
    """The kernel of any size and any number of channels that is the candidate at one of them, as it was built; None if
    no pack has it, or one has the candidate itself."""
    if any(candidate in pack.artifacts for pack in _latest_first() if pack.fits(target)):
        return None
    found = _for_layer(candidate.workload, target)
    return next((one for one in found if one.candidate.config == candidate.config), None)


def configs_for(workload: Workload, target: Target) -> list[Config]:
    """Those of the kernels for every layer that run ``workload``."""
    return [*dict.fromkeys(one.candidate.config for one in _for_layer(workload, target))]


def _for_layer(workload: Workload, target: Target) -> list[Artifact]:
    packs = [pack for pack in _latest_first() if pack.fits(target)]
    return [*(one for pack in packs for one in pack.for_layer(workload)), *_built_here(workload, target)]


def _built_here(workload: Workload, target: Target) -> list[Artifact]:
    """Those that the package brings, and those that an earlier race, or this one, has built into the cache folder."""
    if not (isinstance(target, CpuTarget) and target.present):
        return []
    if not (_has_built(settings.cache_folder()) or base_is_for(target)):
        return []
    from dwconv.untuned import every_layer

    key = workload.layer_kind, target.device, every_layer.has_few_channels(workload, target)
    if key not in _built:
        found = (kept(each, target) for each in every_layer.all_for_layer(workload, target))
        _built[key] = [artifact for artifact in found if artifact is not None]
    return [one for one in _built[key] if one.takes(workload)]


def kept(candidate: Candidate, target: Target, *, links: bool | None = None) -> Artifact | None:
    """A kernel as it lies in the cache folder, or, for every layer, in the package; None if it is in neither.
    ``links`` is that of ``cache.kept_linked``."""
    from dwconv.kernels.cache import kept_linked

    if found := kept_linked(candidate, target, links=links):
        return found
    base = _base_of(target)
    return base.artifact_of(candidate) if base else None


def base_is_for(target: Target) -> bool:
    """True if the package brings kernels for every layer that run on ``target``."""
    return _base_of(target) is not None


def _base_of(target: Target) -> BasePack | None:
    from dwconv.kernels.base_pack import base_pack

    name = vector_set_of(target) if isinstance(target, CpuTarget) and target.present else None
    return base_pack(name) if name else None


def general_of(candidate: Candidate, target: Target) -> Candidate | None:
    """The kernel for every layer that could be built here in the place of a candidate of any size; None if there is
    none."""
    if not (candidate.workload.any_size and isinstance(target, CpuTarget) and target.present):
        return None
    from dwconv.kernels.load_cpu import can_load_libraries
    from dwconv.untuned import every_layer

    return every_layer.general_of(candidate, target) if versions.can_build() and can_load_libraries() else None


def note_built() -> None:
    """Kernels for every layer were built into the cache folder."""
    marker = settings.cache_folder() / "kernels" / _MARKER
    with contextlib.suppress(OSError):  # they are in the folder, or nothing is
        marker.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        marker.touch()
    _built.clear()
    _has_built.cache_clear()


@cache
def _has_built(folder: Path) -> bool:
    return (folder / "kernels" / _MARKER).exists()


_MARKER = "every-layer"
_built: dict[tuple[str, str, bool], list[Artifact]] = {}
"""By the kind of layer, the device, and whether the layer has few channels."""


def are_for_every_layer(target: Target | None = None) -> bool:
    """True if a pack has kernels of any size and any number of channels, or the package has them for this CPU.
    ``target``: what they are to run on, if that is known."""
    if any(pack.is_for_every_layer for pack in _latest_first()):
        return True
    if target is not None:
        return base_is_for(target)
    from dwconv.kernels.base_pack import base_pack

    return any(base_pack(name) for name in FORCED_VECTOR_SETS if cpu_facts().has(name))


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
