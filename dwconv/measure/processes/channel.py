"""A socket between two processes that carries whole messages."""

from __future__ import annotations

import socket
import time
from typing import Any

from dwconv.kernels import wire

_START = b"dwconv\x00\x01"  # anything else was not sent by ``send``
_LENGTH_BYTES = 8
_INSTANT_S = 1e-3
_LONGEST = 2**30  # a longer message comes from a worker gone wild


def send(connection: socket.socket, message: object, *, deadline: float | None = None) -> None:
    """Send a message. Raises TimeoutError after ``deadline`` (of time.monotonic), OSError if the other side is gone."""
    data = wire.encode(message)
    _limit(connection, deadline)
    connection.sendall(_START + len(data).to_bytes(_LENGTH_BYTES, "big") + data)


def receive(connection: socket.socket, *, deadline: float | None = None) -> Any:
    """The next message. Raises TimeoutError after ``deadline``, EOFError or OSError if the other side is gone,
    ValueError if it is no message."""
    start = _receive_exactly(connection, len(_START), deadline)
    if start != _START:
        raise ValueError(f"{start!r} starts no message")
    length = int.from_bytes(_receive_exactly(connection, _LENGTH_BYTES, deadline), "big")
    if length > _LONGEST:
        raise ValueError(f"a message of {length} bytes")
    return wire.decode(_receive_exactly(connection, length, deadline))


def _receive_exactly(connection: socket.socket, count: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        _limit(connection, deadline)
        part = connection.recv(min(count - len(data), 1 << 20))
        if not part:
            raise EOFError("the other side is gone")
        data += part
    return bytes(data)


def _limit(connection: socket.socket, deadline: float | None) -> None:
    """Make the next call on ``connection`` end at the deadline. Data that has arrived by then can still be read."""
    connection.settimeout(None if deadline is None else max(deadline - time.monotonic(), _INSTANT_S))
