"""Packs at a URL: uploaded, listed in an index, and downloaded by digest.

    URL/index.json                 every pack: its folder, its digest, and the machines that it is for
    URL/<name>-<digest>/…          a pack, as on disk; each has a writer of its own, and none is ever changed

A pack is code. So nothing is loaded by its address alone: the digest of a pack, or of the index with the digests of all
of them, identifies the bytes. Downloads are kept in the cache folder, by digest, and loaded from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from dwconv import settings
from dwconv.errors import NoDevice, PackError, RemoteError, one_line
from dwconv.packs.manifest import MANIFEST, MOST_MANIFEST_BYTES, Digest, File, Manifest, Name, decode, encode
from dwconv.problems.target import CpuTarget, CudaTarget, Target, cpu_target, cuda_target
from dwconv.system import private_files, versions
from dwconv.system.remote_files import Abandoned, Remote, in_parallel, joined, shown, within

INDEX = "index.json"
_MOST_INDEX_BYTES = 2**24
_MOST_PACK_BYTES = 2**30
_WRITES = 8
"""Of an index that others write at the same time."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A pack in the index."""

    folder: Name
    sha256: Digest
    kind: Literal["cpu", "cuda"]
    device: Name
    arch: Name
    measured: bool
    torch: Name
    dwconv: Name
    created: Name
    bytes: int

    @classmethod
    def of(cls, manifest: Manifest, *, folder: str) -> Entry:
        made_for = manifest.made_for
        return cls(
            folder=folder, sha256=manifest.sha256, kind=made_for.kind, device=made_for.device, arch=made_for.arch,
            measured=made_for.measured, torch=manifest.versions.get("torch", "unknown"),
            dwconv=manifest.versions.get("dwconv", "unknown"), created=manifest.created, bytes=manifest.bytes,
        )  # fmt: skip

    def fits(self, target: Target) -> bool:
        """True if the pack may be loaded on ``target`` with the versions installed; loading it checks the rest."""
        has = versions.installed()
        if self.dwconv != has.get("dwconv"):
            return False
        if isinstance(target, CudaTarget):
            is_there = self.device == target.device or not self.measured
            return self.kind == "cuda" and self.arch == target.arch and is_there and self.torch == has["torch"]
        same_release = self.torch.partition("+")[0] == has["torch"].partition("+")[0]
        return self.kind == "cpu" and target.named(self.device) is not None and same_release

    def threads_off(self, target: Target) -> float:
        """How far the number of threads that it was measured with is from that of a CPU."""
        own = target.named(self.device) if isinstance(target, CpuTarget) else None
        return abs(math.log(own.threads / target.threads)) if own and isinstance(target, CpuTarget) else 0.0


class Index(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal[1] = 1
    packs: list[Entry] = []


# -- put ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PutPack:
    """A pack that was put to a URL, and the digest of the index that lists it."""

    url: str
    index_sha256: str


def put_pack(folder: Path, manifest: Manifest, url: str) -> PutPack:
    """Put the pack in ``folder`` to the packs at ``url``, and list it there. Raises PackError."""
    name = f"{folder.name}-{manifest.sha256[:12]}"

    def work(_: Abandoned) -> None:
        remote = Remote(joined(url, name))
        in_parallel(manifest.files, lambda file: remote.write(file.path, (folder / file.path).read_bytes()))
        remote.write(MANIFEST, encode(manifest))  # last: a pack is there when it has one

    try:
        within(settings.FETCH_TIMEOUT_S, work)
        index = within(settings.FETCH_TIMEOUT_S, lambda abandoned: _listed(url, abandoned))
    except RemoteError as error:
        raise PackError(f"put={shown(url)} cannot be written: {error}; the pack is in {folder}") from None
    return PutPack(url=joined(url, name), index_sha256=hashlib.sha256(index).hexdigest())


def _listed(url: str, abandoned: Abandoned) -> bytes:
    """The index, with every pack at ``url``. Others may write it, too: a writer reads it again."""
    for _ in range(_WRITES):
        found = _content(Remote(url), INDEX, most_bytes=_MOST_INDEX_BYTES, abandoned=abandoned)
        known = {entry.folder: entry for entry in _decoded(found).packs} if found else {}
        entries = [known.get(name) or _entry(url, name, abandoned) for name in Remote(url).folders()]
        index = Index(packs=[entry for entry in entries if entry])
        wanted = msgspec.json.format(msgspec.json.encode(index), indent=1) + b"\n"
        if wanted == found:
            return wanted
        Remote(url).write(INDEX, wanted)
    raise RemoteError(f"others write its {INDEX} all the time; try again")


def _entry(url: str, name: str, abandoned: Abandoned) -> Entry | None:
    """None for what is no pack, or is not there as a whole yet."""
    content = _content(Remote(joined(url, name)), MANIFEST, most_bytes=MOST_MANIFEST_BYTES, abandoned=abandoned)
    try:
        manifest = decode(content) if content else None
        return msgspec.convert(msgspec.to_builtins(Entry.of(manifest, folder=name)), Entry) if manifest else None
    except (PackError, msgspec.ValidationError):
        return None


# -- get ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GotPack:
    """A pack that was fetched: a folder in the cache, and the digest that it was fetched by."""

    folder: Path
    sha256: str


def get_pack(url: str, *, sha256: str | None, trust: bool) -> GotPack:
    """Fetch the pack at ``url``, or of the packs that an index lists there the one for this machine. ``sha256`` is the
    digest of the pack or of the index. Raises PackError, without it also unless ``trust`` is given."""
    if sha256 is None and not trust:
        raise PackError(
            "a pack is code, and this one comes from elsewhere: name the digest that python -m dwconv.export printed, "
            "sha256=…, or load any pack there with trust=True"
        )
    digest = sha256.lower() if sha256 else None
    try:
        return within(settings.FETCH_TIMEOUT_S, lambda abandoned: _got(url, digest, abandoned))
    except RemoteError as error:
        raise PackError(f"it cannot be read: {error}") from None


def _got(url: str, digest: str | None, abandoned: Abandoned) -> GotPack:
    remote = Remote(url)
    content = _content(remote, MANIFEST, most_bytes=MOST_MANIFEST_BYTES, abandoned=abandoned)
    if content is None:
        listed = _content(remote, INDEX, most_bytes=_MOST_INDEX_BYTES, abandoned=abandoned)
        if listed is None:
            raise PackError(f"there is neither {MANIFEST} nor {INDEX}; name a pack, or a folder of packs")
        entry = _chosen(listed, digest)
        remote, digest = Remote(joined(url, entry.folder)), entry.sha256
        content = _content(remote, MANIFEST, most_bytes=MOST_MANIFEST_BYTES, abandoned=abandoned)
        if content is None:
            raise PackError(f"{entry.folder} is in the index, and not there")
    manifest = decode(content)
    if not manifest.is_whole():
        raise PackError("its manifest was changed after it was made; get the pack again")
    if digest is not None and manifest.sha256 != digest:
        raise PackError(f"its digest is {manifest.sha256}, not the given {digest}")
    return _kept(remote, manifest, content, abandoned)


def _chosen(listed: bytes, digest: str | None) -> Entry:
    """Of an index the pack with that digest; or, if that is the index's own, the one for this machine."""
    index = _decoded(listed)
    own = hashlib.sha256(listed).hexdigest()
    if digest not in (None, own):
        for entry in index.packs:
            if entry.sha256 == digest:
                return entry
        raise PackError(f"the digest of its index is {own}, and no pack in it has the given {digest}")
    for target in _targets():
        found = [entry for entry in index.packs if entry.fits(target)]
        if found:
            nearest = min((not entry.measured, entry.threads_off(target)) for entry in found)
            found = [entry for entry in found if (not entry.measured, entry.threads_off(target)) == nearest]
            return max(found, key=lambda entry: entry.created)
    has, here = versions.installed(), " or ".join(target.device for target in _targets())
    what = ", ".join(dict.fromkeys(f"{one.device} with PyTorch {one.torch}" for one in index.packs[:5])) or "nothing"
    raise PackError(
        f"none of its {len(index.packs)} packs is for {here}, PyTorch {has['torch']}, dwconv {has['dwconv']}; "
        f"it has {what}: make one here (python -m dwconv.export)"
    )


def _targets() -> list[Target]:
    """The devices of this machine, the GPU first."""
    targets: list[Target] = []
    with contextlib.suppress(NoDevice):
        targets.append(cuda_target())
    return [*targets, cpu_target()]


def _kept(remote: Remote, manifest: Manifest, content: bytes, abandoned: Abandoned) -> GotPack:
    """Fetch what is not in the cache yet. The manifest comes last."""
    size_bytes = sum(file.bytes for file in manifest.files)
    if size_bytes > _MOST_PACK_BYTES:
        raise PackError(f"it has {size_bytes} bytes, more than the {_MOST_PACK_BYTES} that are fetched")
    folder = settings.cache_folder() / "packs" / manifest.sha256

    def fetch(file: File) -> None:
        if _is_whole(private_files.read(folder / file.path), file):
            return
        try:
            found = remote.read_named(file.path, most_bytes=file.bytes, abandoned=abandoned)
        except FileNotFoundError:
            raise PackError(f"{file.path} is missing; get the pack again") from None
        if not _is_whole(found, file):
            raise PackError(f"{file.path} was changed after the pack was made; get the pack again")
        private_files.write(folder / file.path, found, durable=False)

    in_parallel(manifest.files, fetch)
    private_files.write(folder / MANIFEST, content, durable=False)
    return GotPack(folder=folder, sha256=manifest.sha256)


def _is_whole(content: bytes | None, file: File) -> bool:
    return content is not None and hashlib.sha256(content).hexdigest() == file.sha256


def _content(remote: Remote, name: str, *, most_bytes: int, abandoned: Abandoned) -> bytes | None:
    """None if there is no such file."""
    try:
        return remote.read_named(name, most_bytes=most_bytes, abandoned=abandoned)
    except FileNotFoundError:
        return None


def _decoded(content: bytes) -> Index:
    try:
        return msgspec.json.decode(content, type=Index)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PackError(f"its {INDEX} is damaged: {one_line(str(error), most=200)}") from None
