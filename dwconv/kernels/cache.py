"""Built kernels on disk, so that a training run builds each of them once and not at every start; and which kernels were
found right here, or wrong, so that each is checked once.

    3f….kernel      an artifact, found by what went into it: the candidate, what it is compiled for, the versions,
                    NVRTC's too, and the text of the templates and of the compiler's driver
    3f….library     of a CPU the same, linked: the system loads it in a fifth of a millisecond, where LLVM would need
                    a tenth of a second to make machine code of it once more
    5c….expected    what was predicted of a workload, found by that, the target, the versions and its sources
    a0….checked     what was seen of an artifact, found by the artifact itself, the target and the versions
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from dwconv import settings
from dwconv.errors import BrokenInstallation, BuildError
from dwconv.kernels import build, compiled_for, nvrtc
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.entry import key_of, read_entry, write_content, write_entry
from dwconv.kernels.library import shared_library
from dwconv.kernels.load_cpu import can_load_libraries
from dwconv.problems.target import CpuTarget, CudaTarget, Target, compiled_for_gpu
from dwconv.problems.workload import Workload
from dwconv.schedules.template import Candidate
from dwconv.system.versions import can_build, check_can_build, installed


def build_cached(candidate: Candidate, target: Target) -> Artifact:
    """``build``, or what it gave before. Raises what ``build`` raises; a cache that cannot be read or written is no
    error."""
    check_can_build()
    if found := _kept(candidate, target, suffix="kernel"):
        return found
    artifact = build(candidate, target)
    write_entry(_path(candidate, target, suffix="kernel"), artifact)
    return artifact


def kept_linked(candidate: Candidate, target: Target, *, links: bool | None = None) -> Artifact | None:
    """What ``build_linked`` kept: an artifact that is loaded in a millisecond or two; None if there is none. ``links``:
    whether libraries can be loaded where it will run; None to find out, which imports PyTorch."""
    if not can_build():  # nothing was built
        return None
    if target.kind != "cpu":
        return _kept(candidate, target, suffix="kernel")
    links = can_load_libraries() if links is None else links
    return _kept(candidate, target, suffix="library") if links else None


def build_linked(candidate: Candidate, target: Target, *, links: bool | None = None) -> Artifact:
    """``build_cached``; of a CPU as a library, where something links one. Raises what ``build`` raises."""
    if target.kind == "cpu" and links is None:
        links = can_load_libraries()
    if found := kept_linked(candidate, target, links=links):
        return found
    artifact = build_cached(candidate, target)
    if not links:
        return artifact
    try:
        linked = dataclasses.replace(artifact, library=shared_library(artifact))
    except (BrokenInstallation, BuildError):  # LLVM loads it, as long as it is given the time
        return artifact
    write_entry(_path(candidate, target, suffix="library"), linked)
    return linked


def build_for_race(candidate: Candidate, target: Target) -> Artifact:
    """``build_cached``; a kernel of any size, which will run if it wins, as a library."""
    if candidate.workload.any_size and target.kind == "cpu":
        return build_linked(candidate, target, links=True)
    return build_cached(candidate, target)


def _kept(candidate: Candidate, target: Target, *, suffix: str) -> Artifact | None:
    found = read_entry(_path(candidate, target, suffix=suffix))
    return found if isinstance(found, Artifact) and found.candidate == candidate else None


def _path(candidate: Candidate, target: Target, *, suffix: str) -> Path:
    return settings.cache_folder() / "kernels" / f"{name_of(candidate, target)}.{suffix}"


def name_of(candidate: Candidate, target: Target) -> str:
    """What a kernel is found by, made of all that goes into it: equal on every machine that would build the same."""
    if isinstance(target, CpuTarget):
        return key_of(candidate, compiled_for(candidate, target), _versions(), [])
    return key_of(candidate, compiled_for_gpu(target), _versions(), _nvrtc_version())


def found_by(target: CudaTarget) -> dict[str, str]:
    """What kernels for a GPU are found by beside their candidates, in words."""
    of_gpu = dataclasses.asdict(compiled_for_gpu(target))
    return {
        "architecture": of_gpu.pop("arch"),
        "TVM": _versions()["tvm"],
        "NVRTC": ".".join(map(str, _nvrtc_version())) or "none",
        "sources of kernels": _versions()["source"][:16],
        **{name: str(value) for name, value in of_gpu.items() if name not in ("device", "present", "limits")},
    }


def take_entries(entries: Mapping[str, bytes]) -> None:
    """Keep artifacts that were built elsewhere, encoded, by ``name_of``: from now on they are found as if they had been
    built here. One under the name of another is not found."""
    for name, content in entries.items():
        write_content(settings.cache_folder() / "kernels" / f"{name}.kernel", content)


def _nvrtc_version() -> list[int]:
    """Of the one that compiles for a GPU here; empty where there is none. The driver of an earlier CUDA rejects what
    a later one compiled."""
    try:
        return nvrtc.library().version
    except BrokenInstallation:
        return []


def expected_path(workload: Workload, target: Target, *, evidence: Iterable[Path]) -> Path:
    """Where a prediction is kept, which the files ``evidence`` were read for."""
    read = []
    for file in evidence:
        with contextlib.suppress(OSError):
            found = file.stat()
            read.append((str(file), found.st_size, found.st_mtime_ns))
    return settings.cache_folder() / "kernels" / f"{key_of(workload, target, _versions(), read)}.expected"


@dataclass(frozen=True, kw_only=True)
class CheckResults:
    """The results of the checks of a kernel on this machine."""

    threads: frozenset[int] = frozenset()
    """The numbers of threads on which it was right; empty for a GPU's."""
    fault: str = ""
    """What was wrong, on whatever number of threads; empty if nothing was."""

    def tells(self, threads: Set[int]) -> bool:
        """Whether it is known how a kernel does on each of these numbers of threads."""
        return self.fault != "" or threads <= self.threads


def checked(artifact: Artifact, target: Target) -> CheckResults | None:
    """The kept results for the artifact's kernel; None if there are none."""
    match read_entry(_checked_path(artifact, target)):
        case {"threads": tuple(threads), "fault": str(fault)} if all(type(count) is int for count in threads):
            return CheckResults(threads=frozenset(threads), fault=fault)
    return None


def remember_checked(artifact: Artifact, target: Target, *, threads: Iterable[int] = (), fault: str = "") -> None:
    """Add to the kept results. A cache that cannot be written is no error: the next process checks again."""
    known = checked(artifact, target) or CheckResults()
    found: dict[str, object] = {"threads": sorted(known.threads.union(threads)), "fault": known.fault or fault}
    write_entry(_checked_path(artifact, target), found)


def _checked_path(artifact: Artifact, target: Target) -> Path:
    machine = dataclasses.replace(target, threads=1) if isinstance(target, CpuTarget) else target
    found_by = (dataclasses.replace(artifact, build_s=0.0), machine, installed(), source())
    return settings.cache_folder() / "kernels" / f"{key_of(*found_by)}.checked"


@cache
def _versions() -> dict[str, str]:
    """Versions and sources with which the same candidate compiles to the same kernel."""
    return {"tvm": metadata.version("apache-tvm"), "source": source()}


@cache
def source() -> str:
    """The digest of the templates and the compiler's driver."""
    import dwconv.kernels
    import dwconv.schedules

    text = hashlib.sha256()
    for package in (dwconv.schedules, dwconv.kernels):
        for file in sorted(Path(package.__path__[0]).rglob("*.py")):
            text.update(file.read_bytes())
    return text.hexdigest()
