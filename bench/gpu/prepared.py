"""A folder of kernels that were built elsewhere: ``bench cuda prepare`` writes it, ``bench cuda --prepared`` uses it.

    prepared.json      what its kernels are found by, and of each part the digest and the names of its kernels
    0000.xz …          parts: some kernels, compressed together, as they are in the cache

Its kernels go to the cache, where builds, races and calls find them. The name of a kernel is made of all that goes into
it: one for another GPU, or of other versions, is never found. A part that is damaged is left out. The folder is code
that will run.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from bench.gpu.run import say
from dwconv import settings
from dwconv.errors import DwconvError, LogError, WorkerError, one_line
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import found_by, kept_linked, name_of, take_entries
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.runner import ArtifactPool, WorkerProcesses
from dwconv.problems.target import CudaTarget, Target
from dwconv.schedules.template import Candidate
from dwconv.system.new_file import replace_file

FILE = "prepared.json"
FORMAT: Literal[1] = 1
_Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{40}\Z")]
_MOST_BYTES = 2**30
"""Of a part, no longer compressed."""
_READERS = 8


class KernelPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kernels in one file."""

    file: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}\.xz\Z")]
    size_bytes: int
    sha256: _Digest
    kernels: list[_Name]


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    found_by: dict[str, str]
    parts: list[KernelPart]


class Unusable(DwconvError):
    """A folder of prepared kernels that cannot be used here; the message is the reason."""


class PreparedFolder:
    """The folder, to write: parts are added one after the other, also in a later run."""

    def __init__(self, folder: Path, target: CudaTarget) -> None:
        """Makes it, if it is not there. Raises Unusable for one that is damaged, or of kernels that are found by
        something else; LogError if it cannot be written."""
        self.folder = folder
        self._found_by = found_by(target)
        self.parts: list[KernelPart] = []
        if (folder / FILE).exists():
            try:
                self.parts = read_manifest(folder, self._found_by).parts
            except Unusable as error:
                raise Unusable(f"{error}; name another folder with --out") from None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from error
        self._write()

    @property
    def names(self) -> set[str]:
        return {name for part in self.parts for name in part.kernels}

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(part.size_bytes for part in self.parts) + (self.folder / FILE).stat().st_size

    def add(self, kernels: Mapping[str, bytes], *, most_bytes: int) -> bool:
        """Add a part with these entries of the cache, by name; False if the folder would be larger than ``most_bytes``.
        Raises LogError."""
        content = lzma.compress(msgspec.msgpack.encode(kernels), preset=9)
        names = sum(len(name) + 4 for name in kernels)
        if self.size_bytes + len(content) + names + 200 > most_bytes:
            return False
        part = KernelPart(
            file=f"{len(self.parts):04}.xz", size_bytes=len(content), sha256=_digest(content), kernels=sorted(kernels)
        )
        try:
            replace_file(self.folder / part.file, [content], durable=False)
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        self.parts.append(part)
        self._write()
        return True

    def _write(self) -> None:
        manifest = _Manifest(format=FORMAT, found_by=self._found_by, parts=self.parts)
        try:
            replace_file(self.folder / FILE, [msgspec.json.encode(manifest), b"\n"], durable=False)
        except OSError as error:
            raise _unwritable(self.folder, error) from error


def read_manifest(folder: Path, wanted: Mapping[str, str]) -> _Manifest:
    """Raises Unusable for a folder without one, for one that is damaged, and for kernels that are not found by what is
    ``wanted``."""
    try:
        manifest = msgspec.json.decode((folder / FILE).read_bytes(), type=_Manifest)
    except OSError as error:
        raise Unusable(f"{folder / FILE} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unusable(f"{folder / FILE} is damaged: {one_line(str(error), most=200)}") from None
    for what, here in wanted.items():
        if (made := manifest.found_by.get(what)) != here:
            raise Unusable(f"{folder} is for {what} {made}, here is {here}")
    return manifest


def _entries_of(folder: Path, part: KernelPart) -> dict[str, bytes]:
    """Raises Unusable for a part that is not as it was written."""
    try:
        content = (folder / part.file).read_bytes()
    except OSError as error:
        raise Unusable(f"{folder / part.file} cannot be read: {error.strerror}") from None
    if _digest(content) != part.sha256:
        raise Unusable(f"{folder / part.file} is damaged")
    try:
        reader = lzma.LZMADecompressor()
        entries = msgspec.msgpack.decode(reader.decompress(content, _MOST_BYTES), type=dict[_Name, bytes])
    except (lzma.LZMAError, msgspec.DecodeError) as error:
        raise Unusable(f"{folder / part.file} holds no kernels: {error}") from None
    return {name: entries[name] for name in part.kernels if name in entries}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _unwritable(folder: Path, error: OSError) -> LogError:
    return LogError(f"out={folder} cannot be written: {error.strerror}; name another folder with --out")


# -- on the machine with the GPU -------------------------------------------------------------------------------------


class PreparedKernels:
    """Kernels of a folder that are in the cache now. Counts how many a stage takes."""

    def __init__(self, folder: Path, names: frozenset[str]) -> None:
        self.folder = folder
        self.names = names
        self._taken = 0
        self._compiled_before = _compiled()

    @classmethod
    def taken(cls, folder: Path, target: Target) -> PreparedKernels:
        """Puts the kernels of a folder into the cache. One line on stdout for what cannot be used."""
        names: set[str] = set()
        try:
            assert isinstance(target, CudaTarget)
            parts = read_manifest(folder, found_by(target)).parts
        except Unusable as error:
            say("prepared", f"{error}: kernels are compiled here")
            return cls(folder, frozenset())
        with ThreadPoolExecutor(_READERS) as readers:
            reading = [(part, readers.submit(_entries_of, folder, part)) for part in parts]
            for part, entries in reading:
                try:
                    found = entries.result()
                except Unusable as error:
                    say("prepared", f"{error}: its {len(part.kernels)} kernels are compiled here")
                    continue
                take_entries(found)
                names.update(found)
        say("prepared", f"{len(names)} kernels of {folder}")
        return cls(folder, frozenset(names))

    def first(self, workers: WorkerProcesses) -> WorkerProcesses:
        """``workers`` that build only what the cache has not."""
        builders = KeptFirst(workers.builders, workers.target, note=self._note)
        workers.builders, workers.kept = builders, builders.kept
        return workers

    def _note(self, name: str) -> None:
        self._taken += name in self.names

    def of_stage(self) -> str:
        """How many kernels the stage that ends took from the folder, and how many it had compiled."""
        taken, compiled, before = self._taken, _compiled(), self._compiled_before
        self._taken, self._compiled_before = 0, compiled
        return f"{taken} kernels came from {self.folder}, {max(0, compiled - before)} were compiled"


def _compiled() -> int:
    """How many kernels were compiled on this machine so far, in whatever process."""
    try:
        return sum(1 for _ in (settings.cache_folder() / "cubins").iterdir())
    except OSError:
        return 0


class KeptFirst:
    """An ``ArtifactPool`` that takes kernels from the cache. Processes start when one is not there. ``note`` is called
    with the name of each that was."""

    def __init__(self, builders: ArtifactPool, target: Target, *, note: Callable[[str], None]) -> None:
        self._builders = builders
        self._target = target
        self._note = note

    def kept(self, candidate: Candidate) -> Artifact | None:
        found = kept_linked(candidate, self._target)
        if found is not None:
            self._note(name_of(candidate, self._target))
        return found

    def start(self) -> None:
        """Nothing yet."""

    def map(self, bodies: Sequence[Candidate], *, timeout_s: float) -> Iterator[tuple[int, Artifact | WorkerError]]:
        missing = []
        for position, candidate in enumerate(bodies):
            if (found := self.kept(candidate)) is not None:
                yield position, found
            else:
                missing.append(position)
        if missing:
            for at, built in self._builders.map([bodies[each] for each in missing], timeout_s=timeout_s):
                yield missing[at], built

    def stream(
        self,
        next_body: Callable[[], Candidate | None],
        *,
        timeout_s: float,
        beside: IsolatedProcess | None = None,
    ) -> Iterator[tuple[int, Artifact | WorkerError] | None]:
        """Of what was not ``kept``."""
        return self._builders.stream(next_body, timeout_s=timeout_s, beside=beside)

    def kill(self) -> None:
        self._builders.kill()
