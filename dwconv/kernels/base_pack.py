"""Base packs: the kernels for every layer that the package brings, a folder for each vector set.

    dwconv/kernels/base/avx512/manifest.json      read when the first kernel is wanted
                               kernels/….kernel   each read, and checked by its digest, when it is wanted itself

``make dist`` puts them into the wheel, and a checkout has none. They count as kernels that a race has built here: they
run where a race or a record found them faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dwconv.errors import DwconvError, one_line, warn
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import source
from dwconv.kernels.manifest import MANIFEST, File
from dwconv.kernels.pack_files import (
    artifact_in,
    check_machine,
    check_version,
    checked,
    path_of,
    read_manifest,
    with_its_tensors,
)
from dwconv.schedules.template import Candidate

BASE = Path(__file__).parent / "base"
_REINSTALL = "install dwconv again; without it kernels are built here, or PyTorch's op runs"


@dataclass(frozen=True, kw_only=True)
class BasePack:
    """The base pack of a vector set."""

    folder: Path
    files: Mapping[str, File]
    """Of its kernels, by their paths."""

    def artifact_of(self, candidate: Candidate) -> Artifact | None:
        """The kernel of a candidate, checked; None if it has none. A damaged file gives a warning, once."""
        return _artifact(self.folder, file, candidate) if (file := self.files.get(path_of(candidate))) else None


@cache
def base_pack(vector_set: str) -> BasePack | None:
    """The base pack of a vector set; None if the package brings none that runs here. A damaged one gives a warning,
    once."""
    folder = BASE / vector_set
    if not (folder / MANIFEST).exists():
        return None
    try:
        manifest, _ = read_manifest(folder)
        check_machine(manifest.made_for)
        check_version(manifest)
    except DwconvError as error:
        _warn(folder, error)
        return None
    if manifest.versions.get("sources") != source():  # of a checkout that has changed since
        return None
    return BasePack(folder=folder, files={file.path: file for file in manifest.kernels})


@cache
def _artifact(folder: Path, file: File, candidate: Candidate) -> Artifact | None:
    try:
        found = with_its_tensors(artifact_in(checked(folder, file), file), file)
    except DwconvError as error:
        _warn(folder, error)
        return None
    return found if found.candidate == candidate else None


def _warn(folder: Path, error: DwconvError) -> None:
    warn(one_line(f"the kernels of the package in {folder} are left out: {error}; {_REINSTALL}"))


def forget() -> None:
    """Read what the package brings again."""
    base_pack.cache_clear()
    _artifact.cache_clear()
