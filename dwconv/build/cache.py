"""Built kernels on disk, so that a training run builds each of them once and not at every start.

An entry is found by what went into it: the candidate, the target, the versions, and the text of the templates and of
the compiler's driver. It carries the digest of its content; one that is torn or was changed is built again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path

from dwconv import settings
from dwconv.build import build, wire
from dwconv.build.artifact import Artifact
from dwconv.schedules.template import Candidate
from dwconv.target import Target

_DIGEST_BYTES = hashlib.sha256().digest_size


def build_cached(candidate: Candidate, target: Target) -> Artifact:
    """``build``, or what it gave before. Raises what ``build`` raises; a cache that cannot be read or written is no
    error."""
    path = _path(candidate, target)
    found = _read(path)
    if found is not None and found.candidate == candidate:
        return found
    artifact = build(candidate, target)
    _write(path, artifact)
    return artifact


def _path(candidate: Candidate, target: Target) -> Path:
    key = hashlib.sha256(wire.encode([candidate, target, _versions()])).hexdigest()
    return settings.cache_folder() / "kernels" / f"{key[:40]}.kernel"


@cache
def _versions() -> dict[str, str]:
    """What the same candidate could be compiled to something else by."""
    import dwconv.build
    import dwconv.schedules

    text = hashlib.sha256()
    for package in (dwconv.schedules, dwconv.build):
        for file in sorted(Path(package.__path__[0]).rglob("*.py")):
            text.update(file.read_bytes())
    return {"tvm": metadata.version("apache-tvm"), "source": text.hexdigest()}


def _read(path: Path) -> Artifact | None:
    try:
        content = path.read_bytes()
        digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != digest:
            return None
        found = wire.decode(payload)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, Artifact) else None


def _write(path: Path, artifact: Artifact) -> None:
    """All of it or nothing: other processes may be reading."""
    payload = wire.encode(artifact)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink()
            raise
