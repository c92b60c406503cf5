"""Packs that were changed, as by accident or on purpose; and how they are refused."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import dwconv
from dwconv.dispatch import loaded_packs
from dwconv.errors import PackError
from dwconv.kernels import entry
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.manifest import MANIFEST, File, Manifest, decode, encode
from dwconv.kernels.pack_files import artifact_in


def forge(pack: Path, change: Callable[[Manifest], Manifest], *, seal: bool = True) -> None:
    """Change the manifest; with a digest that fits it, as can be made of any pack."""
    manifest = change(decode((pack / MANIFEST).read_bytes()))
    (pack / MANIFEST).write_bytes(encode(manifest.sealed() if seal else manifest))


def made_for(**fields: object) -> Callable[[Manifest], Manifest]:
    def change(manifest: Manifest) -> Manifest:
        return msgspec.structs.replace(manifest, made_for=msgspec.structs.replace(manifest.made_for, **fields))

    return change


def forge_records(pack: Path, content: bytes) -> None:
    """Other records, with a manifest that fits them."""
    (pack / "records.jsonl").write_bytes(content)

    def change(manifest: Manifest) -> Manifest:
        digest = hashlib.sha256(content).hexdigest()
        file = msgspec.structs.replace(manifest.records, sha256=digest, bytes=len(content))
        return msgspec.structs.replace(manifest, records=file)

    forge(pack, change)


def kernels_in(pack: Path) -> dict[str, Artifact]:
    """By their files."""
    files = decode((pack / MANIFEST).read_bytes()).kernels
    return {file.path: artifact_in((pack / file.path).read_bytes(), file) for file in files}


def forge_kernels(pack: Path, change: Callable[[dict[str, Artifact]], dict[str, object]]) -> None:
    """Other kernels, or bytes, in the place of those in some files, with a manifest that fits them."""
    artifacts, files = kernels_in(pack), []
    for path, kernel in (artifacts | change(artifacts)).items():
        content = kernel if isinstance(kernel, bytes) else zlib.compress(entry.encode(kernel))
        (pack / path).write_bytes(content)
        files.append(File(path=path, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content)))
    forge(pack, lambda manifest: msgspec.structs.replace(manifest, kernels=files))


def refused(pack: Path, words: str, **options: object) -> None:
    """In one line that names the pack; and nothing of it is known afterwards."""
    with pytest.raises(PackError, match=words) as raised:
        dwconv.load_pack(pack, **options)
    assert str(raised.value).startswith(f"pack={pack}: ") and "\n" not in str(raised.value)
    assert loaded_packs.records() == []


def some(pack: Path, pattern: str) -> Path:
    return sorted(pack.glob(pattern))[0]
