"""Packs at a URL: uploaded, and downloaded by digest.

    URL/<name>-<digest>/…          a pack, as on disk; none is ever changed

A pack is code. So nothing is loaded by its address alone: the digest identifies the bytes. Downloads are kept in the
cache folder, by digest, and loaded from there.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from dwconv import settings
from dwconv.errors import PackError, RemoteError
from dwconv.kernels.manifest import MANIFEST, MOST_MANIFEST_BYTES, File, Manifest, decode, encode
from dwconv.system import private_files
from dwconv.system.remote_files import Abandoned, Remote, in_parallel, joined, shown, within

_MOST_PACK_BYTES = 2**30


def put_pack(folder: Path, manifest: Manifest, url: str) -> str:
    """Put the pack in ``folder`` to the packs at ``url``, and return its own URL. Raises PackError."""
    its = joined(url, f"{folder.name}-{manifest.sha256[:12]}")

    def work(_: Abandoned) -> None:
        remote = Remote(its)
        in_parallel(manifest.files, lambda file: remote.write(file.path, (folder / file.path).read_bytes()))
        remote.write(MANIFEST, encode(manifest))  # last: a pack is there when it has one

    try:
        within(settings.FETCH_TIMEOUT_S, work)
    except RemoteError as error:
        raise PackError(f"put={shown(url)} cannot be written: {error}; the pack is in {folder}") from None
    return its


def get_pack(url: str, *, sha256: str | None, trust: bool) -> Path:
    """Fetch the pack at ``url`` to a folder of the cache, whose name is its digest. Raises PackError, without
    ``sha256`` also unless ``trust`` is given."""
    if sha256 is None and not trust:
        raise PackError(
            "a pack is code, and this one comes from elsewhere: name the digest that python -m dwconv.export printed, "
            "sha256=…, or load any pack there with trust=True"
        )
    try:
        return within(settings.FETCH_TIMEOUT_S, lambda abandoned: _got(Remote(url), sha256, abandoned))
    except RemoteError as error:
        raise PackError(f"it cannot be read: {error}") from None


def _got(remote: Remote, sha256: str | None, abandoned: Abandoned) -> Path:
    """Fetch what is not in the cache yet. The manifest comes last."""

    def read(name: str, most_bytes: int) -> bytes:
        try:
            return remote.read_named(name, most_bytes=most_bytes, abandoned=abandoned)
        except FileNotFoundError:
            raise PackError(f"{name} is missing; name a pack, or get it again") from None

    content = read(MANIFEST, MOST_MANIFEST_BYTES)
    manifest = decode(content, sha256=sha256)
    size_bytes = sum(file.bytes for file in manifest.files)
    if size_bytes > _MOST_PACK_BYTES:
        raise PackError(f"it has {size_bytes} bytes, more than the {_MOST_PACK_BYTES} that are fetched")
    folder = settings.cache_folder() / "packs" / manifest.sha256

    def fetch(file: File) -> None:
        if _is_whole(private_files.read(folder / file.path), file):
            return
        found = read(file.path, file.bytes)
        if not _is_whole(found, file):
            raise PackError(f"{file.path} was changed after the pack was made; get the pack again")
        private_files.write(folder / file.path, found, durable=False)

    in_parallel(manifest.files, fetch)
    private_files.write(folder / MANIFEST, content, durable=False)
    return folder


def _is_whole(content: bytes | None, file: File) -> bool:
    return content is not None and hashlib.sha256(content).hexdigest() == file.sha256
