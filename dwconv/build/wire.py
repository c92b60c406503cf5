"""What passes between processes, and to disk: dataclasses as msgpack, each with its name, and only those that are
known here.

A worker runs code that may be wrong; nothing it sends can be more than data.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any, TypeVar

import msgspec

from dwconv.build.artifact import Argument, Artifact, Extent, Launch, Scalar
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.target import CpuTarget, CudaTarget, Limits
from dwconv.workload import Workload

_NAME = "@"  # the key of a dataclass's name beside its fields

_known: dict[str, type] = {}

T = TypeVar("T")


def message(kind: type[T]) -> type[T]:
    """Class decorator: a frozen dataclass that may pass between processes. Its sequences are tuples."""
    _known[kind.__name__] = kind
    return kind


for _kind in (
    *(Workload, Config, Candidate, CpuTarget, CudaTarget, Limits),
    *(Artifact, Argument, Extent, Scalar, Launch),
):
    message(_kind)


def encode(value: object) -> bytes:
    """``decode`` reads it back. Raises TypeError for what is no plain data."""
    return msgspec.msgpack.encode(_plain(value))


def decode(data: bytes) -> Any:
    """Raises ValueError for what ``encode`` did not write."""
    try:
        return _whole(msgspec.msgpack.decode(data))
    except (msgspec.MsgspecError, TypeError, KeyError) as error:
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
        return _known[fields.pop(_NAME)](**fields) if _NAME in fields else fields
    if isinstance(value, list):
        return tuple(_whole(item) for item in value)
    return value
