"""The files of a pack: read once and checked by the manifest's digests, so that the bytes that were checked are those
that run; and what they need of this machine."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import stat
import zlib
from pathlib import Path

from dwconv.errors import DwconvError, PackError
from dwconv.kernels import entry
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.manifest import MANIFEST, MOST_MANIFEST_BYTES, File, MadeFor, Manifest, decode
from dwconv.schedules.template import Candidate
from dwconv.system import cpu_facts, versions
from dwconv.system.new_file import check_name
from dwconv.system.openmp import openmp_is_here


def path_of(candidate: Candidate) -> str:
    """Where a pack has the kernel of a candidate: readable, and different for every candidate."""
    key = candidate.workload.key
    digest = hashlib.sha256(f"{key} {candidate.config.to_dict()}".encode()).hexdigest()[:8]
    return f"kernels/{re.sub('[,@]', '_', key)}-{digest}.kernel"


def read_manifest(folder: Path, *, sha256: str | None = None) -> tuple[Manifest, bytes]:
    """The manifest of a pack, and its text. Raises PackError if it is damaged, or another than that of the digest."""
    content = content_of(folder / MANIFEST, most_bytes=MOST_MANIFEST_BYTES)
    return decode(content, sha256=sha256), content


def content_of(path: Path, *, most_bytes: int) -> bytes:
    """Raises PackError if it is no file, cannot be read, or is larger."""
    try:
        check_name(path)
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise PackError(f"{path.name} is not a file")
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise PackError(f"{path.name} cannot be read: {error.strerror}; name a folder of dwconv.export") from None
    if len(content) > most_bytes:
        raise PackError(f"{path.name} is larger than the {most_bytes} bytes that it should have")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Opens a pipe without waiting for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def checked(folder: Path, file: File) -> bytes:
    """The content of a file that the manifest lists. Raises PackError if it is another."""
    content = content_of(folder / file.path, most_bytes=file.bytes)
    if len(content) < file.bytes:
        raise PackError(f"{file.path} is cut off: {len(content)} of {file.bytes} bytes; get the pack again")
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise PackError(f"{file.path} was changed after the pack was made; get the pack again")
    return content


def content_with(artifact: Artifact) -> bytes:
    """A kernel as a file of a pack has it: compressed, which leaves two fifths of machine code."""
    return zlib.compress(entry.encode(artifact), 9)


def artifact_in(content: bytes, file: File) -> Artifact:
    """The kernel that ``content_with`` or, in format 2, ``entry.encode`` wrote. Raises PackError for what is none."""
    try:
        found = entry.decode(_decompressed(content) if content[:1] == _COMPRESSED else content)
    except (ValueError, zlib.error, DwconvError) as error:
        raise PackError(f"{file.path} is no kernel: {error}") from None
    if not isinstance(found, Artifact):
        raise PackError(f"{file.path} is no kernel")
    return found


_COMPRESSED = b"\x78"
"""How zlib's streams begin; as an entry it would be the number 120."""
_MOST_BYTES = 2**28
"""Of a kernel, no longer compressed."""


def _decompressed(content: bytes) -> bytes:
    """Raises zlib.error, and ValueError for what is cut off, or has too much in it or after it."""
    reader = zlib.decompressobj()
    whole = reader.decompress(content, _MOST_BYTES)
    if not reader.eof or reader.unused_data:
        raise ValueError("it does not end where its file does")
    return whole


def with_its_tensors(found: Artifact, file: File) -> Artifact:
    """Raises PackError for a kernel that takes other tensors than its workload has."""
    takes = tuple(argument.name for argument in found.arguments)
    tensors = (*found.candidate.workload.inputs, *found.candidate.workload.results)
    if takes[: len(tensors)] != tensors:
        raise PackError(f"{file.path} takes {', '.join(takes)}, not {', '.join(tensors)}")
    return found


def check_machine(made_for: MadeFor) -> None:
    """Raises PackError if the machine code of a CPU's pack cannot run here."""
    if platform.machine() != made_for.arch or platform.system() != "Linux":
        raise PackError(f"it is for Linux on {made_for.arch}, this is {platform.system()} on {platform.machine()}")
    if lacking := set(made_for.instructions) - cpu_facts.instructions():
        raise PackError(f"its machine code may need {', '.join(sorted(lacking))}, which this CPU does not have")
    if not openmp_is_here():
        raise PackError("its kernels need the OpenMP runtime of PyTorch's Linux packages, which is not here")


def check_version(manifest: Manifest) -> None:
    """Raises PackError for the pack of another dwconv: its entries may mean something else here."""
    made, here = manifest.versions.get("dwconv"), versions.installed().get("dwconv")
    if made != here:
        raise PackError(f"it was made by dwconv {made}, this is dwconv {here}; make it again")
