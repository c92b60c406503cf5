"""Built kernels on disk, so that a training run builds each of them once and not at every start.

An entry is found by what went into it: the candidate, the target, the versions, and the text of the templates and of
the compiler's driver.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

from dwconv import settings
from dwconv.build import build
from dwconv.build.artifact import Artifact
from dwconv.build.entry import key_of, read_entry, write_entry
from dwconv.schedules.template import Candidate
from dwconv.target import Target
from dwconv.versions import check_can_build


def build_cached(candidate: Candidate, target: Target) -> Artifact:
    """``build``, or what it gave before. Raises what ``build`` raises; a cache that cannot be read or written is no
    error."""
    check_can_build()
    path = settings.cache_folder() / "kernels" / f"{key_of(candidate, target, _versions())}.kernel"
    found = read_entry(path)
    if isinstance(found, Artifact) and found.candidate == candidate:
        return found
    artifact = build(candidate, target)
    write_entry(path, artifact)
    return artifact


@cache
def _versions() -> dict[str, str]:
    """Versions and sources with which the same candidate compiles to the same kernel."""
    import dwconv.build
    import dwconv.schedules

    text = hashlib.sha256()
    for package in (dwconv.schedules, dwconv.build):
        for file in sorted(Path(package.__path__[0]).rglob("*.py")):
            text.update(file.read_bytes())
    return {"tvm": metadata.version("apache-tvm"), "source": text.hexdigest()}
