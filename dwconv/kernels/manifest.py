"""Manifest: what a pack holds, what it is for, and the digest of every file. ``manifest.json``, checked while it is
read: other fields than these, or values of other types, are refused."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec

from dwconv.errors import PackError, one_line
from dwconv.problems.target import FORCED_VECTOR_SETS

FORMAT: Literal[3] = 3
"""Version of the format that is written. In 2 kernels were not compressed; ``format_1`` reads those of 1."""
MANIFEST = "manifest.json"
RECORDS = "records.jsonl"
MOST_MANIFEST_BYTES = 2**24

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.\-+ ():/]{1,200}\Z")]
_Path = Annotated[str, msgspec.Meta(pattern=r"^(kernels/|native/)?[A-Za-z0-9_\-][A-Za-z0-9_.\-+]{0,199}\Z")]
"""Of a file in the pack: no way leads out of it."""
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Bytes = Annotated[int, msgspec.Meta(ge=1, le=2**28)]


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Has no other fields than those that it names."""


class File(Strict, frozen=True, kw_only=True):
    """A file of the pack."""

    path: _Path
    sha256: Digest
    bytes: _Bytes


class MadeFor(Strict, frozen=True, kw_only=True):
    """The device that the kernels run on."""

    kind: Literal["cpu", "cuda"]
    device: Name
    """As in records; of a GPU that was not there, its architecture; of every CPU with a vector set, that."""
    arch: Name
    """``sm_90``; of a CPU ``x86_64`` or the like."""
    instructions: list[Name] = []
    """All that the CPU had, or that the vector set takes."""
    measured: bool
    """False if the kernels were chosen by computed costs, or by rules."""
    generic: bool = False
    """Of a GPU: whether the kernels take any size and any number of channels."""

    @property
    def every_layer(self) -> bool:
        """True if the kernels take any size and any number of channels, and run on every CPU with a vector set, or on
        every GPU of an architecture."""
        return self.generic or self.device in FORCED_VECTOR_SETS


class Native(Strict, frozen=True, kw_only=True):
    """The compiled C++ of calls, and what it can be loaded into."""

    file: File
    bound_to: dict[str, str]


class Manifest(Strict, frozen=True, kw_only=True):
    format: Literal[1, 2, 3] = FORMAT
    name: Name
    created: Name
    """The time, ISO 8601, UTC."""
    needs: str
    """What a reader has to have, in words."""
    made_for: MadeFor
    versions: dict[Name, Name]
    """Of dwconv, PyTorch, TVM, and what compiled or linked the kernels."""
    bytes: Count
    """Of all files beside the manifest."""
    records: File
    kernels: list[File]
    """Each an ``Artifact``, as ``kernels.pack_files`` writes it; in format 1 its code alone."""
    native: Native | None = None
    sha256: Digest = "0" * 64
    """Of the manifest without it."""

    @property
    def files(self) -> list[File]:
        native = [self.native.file] if self.native else []
        return [self.records, *self.kernels, *native]

    def sealed(self) -> Manifest:
        """The manifest with its digest."""
        return msgspec.structs.replace(self, sha256=self.digest())

    def digest(self) -> str:
        return _digest(msgspec.to_builtins(self))


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(content: bytes, *, sha256: str | None = None) -> Manifest:
    """Raises PackError, saying what is wrong; also for another pack than that of digest ``sha256``."""
    try:
        version = msgspec.json.decode(content, type=_Version).format
        if not 1 <= version <= FORMAT:
            raise PackError(f"its format is {version}, and this dwconv reads 1 to {FORMAT}; make it again")
        fields = msgspec.json.decode(content)
        digest = _digest(fields)
        if version == 1:
            fields["kernels"] = [kernel["file"] for kernel in fields["kernels"]]
        manifest = msgspec.convert(fields, Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise PackError(f"its manifest is damaged: {one_line(str(error), most=200)}") from None
    if manifest.sha256 != digest:
        raise PackError("its manifest was changed after it was made; get the pack again")
    if sha256 is not None and digest != sha256.lower():
        raise PackError(f"its digest is {digest}, not the given {sha256}")
    return manifest


_BY_NAME = ("versions", "bound_to", "workload", "config", "resources")
"""Fields that have keys of their own."""


def _digest(fields: dict[str, Any]) -> str:
    """Of all fields as they stand in the file, so that fields which older packs do not have change no digest."""
    ordered = _ordered({**fields, "sha256": "0" * 64})
    return hashlib.sha256(msgspec.json.encode(ordered)).hexdigest()


def _ordered(value: Any, *, by_name: bool = False) -> Any:
    if isinstance(value, dict):
        items = sorted(value.items()) if by_name else value.items()
        return {key: _ordered(item, by_name=by_name or key in _BY_NAME) for key, item in items}
    if isinstance(value, list):
        return [_ordered(item, by_name=by_name) for item in value]
    return value


class _Version(msgspec.Struct):
    format: int
