"""Plain data for other processes and for files, and the entries of a cache on disk.

Dataclasses are written as msgpack, each with its name, and only those of a fixed list.

A worker runs code that may be wrong, so its messages can only be data. Entries are sealed files, so that only kernels
built by this user run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import time
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dwconv.errors import NotKept
from dwconv.kernels.artifact import Argument, Artifact, Extent, Launch, Scalar
from dwconv.problems.block import Block, FrozenNorm, InstanceNorm, LayerNorm, Norm
from dwconv.problems.target import CacheLevel, CpuTarget, CudaTarget, Limits
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.system import private_files
from dwconv.system.new_file import UNFINISHED

_NAME = "@"  # the key of a dataclass's name beside its fields

_known: dict[str, type] = {}

T = TypeVar("T")


def message(kind: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass that may pass between processes, of a name of its own. Its sequences are
    tuples."""
    known = _known.setdefault(kind.__name__, kind)
    assert known.__module__ == kind.__module__, f"{kind.__name__} is {known.__module__}'s"
    return kind


for _kind in (
    *(Workload, Block, Norm, FrozenNorm, InstanceNorm, LayerNorm, Config, Candidate, CpuTarget, CudaTarget, Limits),
    *(CacheLevel, Artifact, Argument, Extent, Scalar, Launch),
):
    message(_kind)


def encode(value: object) -> bytes:
    """Bytes that ``decode`` reads back. Raises TypeError for anything but plain data."""
    return msgspec.msgpack.encode(_plain(value))


def decode(data: bytes) -> Any:
    """The value that ``encode`` wrote. Raises ValueError for other bytes, and for fields of the wrong type."""
    try:
        return _whole(msgspec.msgpack.decode(data))
    except (msgspec.MsgspecError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"not a message: {error}") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and type(value).__name__ in _known:
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {_NAME: type(value).__name__, **fields}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, bytes)):
        return value
    if isinstance(value, str):
        return str(value)  # TVM's strings are a subclass
    raise TypeError(f"{type(value).__name__} cannot pass between processes")


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        fields = {key: _whole(item) for key, item in value.items()}
        return _dataclass(_known[fields.pop(_NAME)], fields) if _NAME in fields else fields
    if isinstance(value, list):
        return tuple(_whole(item) for item in value)
    return value


def _dataclass(kind: type, fields: dict[str, Any]) -> Any:
    for name, hint in _hints(kind).items():
        if name in fields and not _fits(fields[name], hint):
            raise TypeError(f"{kind.__name__}.{name} is {str(fields[name])[:60]!r}")
    return kind(**fields)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """The type of each field."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _fits(value: Any, hint: Any) -> bool:
    """True if a decoded value is of the type ``hint``, as far as messages go."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is dict:
        key, item = inner
        return isinstance(value, dict) and all(_fits(k, key) and _fits(v, item) for k, v in value.items())
    if origin is tuple and inner[-1] is ...:
        return isinstance(value, tuple) and all(_fits(one, inner[0]) for one in value)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(inner) and all(map(_fits, value, inner))
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, hint) and not (hint is int and isinstance(value, bool))


# -- entries of a cache on disk ------------------------------------------------------------------------------------

MOST_ENTRIES = 8000
"""Entries of a kind in a folder; beyond it the oldest go. What is built elsewhere for one run are some 5000 kernels."""


def key_of(*parts: object) -> str:
    """A name for an entry, from the plain data that went into it."""
    return hashlib.sha256(encode(list(parts))).hexdigest()[:40]


def read_entry(path: Path) -> object | None:
    """The entry as it was written; None if there is none, or something else."""
    payload = private_files.read_sealed(path)
    try:
        found: object = None if payload is None else decode(payload)
    except ValueError:
        return None
    return found


def write_entry(path: Path, value: object) -> None:
    """All of it or nothing: other processes may be reading. A folder that cannot be written is no error; a
    warning names it."""
    if write_content(path, encode(value)):
        _make_room(path.parent, suffix=path.suffix)


def write_content(path: Path, content: bytes) -> bool:
    """``write_entry`` of what ``encode`` made, which makes no room for it. False if it could not be written."""
    try:
        private_files.write_sealed(path, content, durable=False)  # made again in no time
    except NotKept as error:
        private_files.tell_not_kept(error)
        return False
    return True


def _make_room(folder: Path, *, suffix: str) -> None:
    """The oldest entries go, and what killed writers left. Other processes may be at it, too: what is gone is gone."""
    try:
        files = list(folder.iterdir())
    except OSError:
        return
    entries = [file for file in files if file.suffix in (suffix, UNFINISHED)]
    if len(entries) > MOST_ENTRIES:
        for file in sorted(entries, key=_written)[: MOST_ENTRIES // 4]:
            with contextlib.suppress(OSError):
                file.unlink()


def _written(file: Path) -> float:
    """When; now, if it is gone."""
    try:
        return file.stat(follow_symlinks=False).st_mtime
    except OSError:
        return time.time()
