"""Where a board is: the tracker that knows it, and the key by which it does."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dwconv.errors import UnknownTarget, one_line
from dwconv.kernels.wire import message
from dwconv.problems.board import device_of
from dwconv.problems.target import CpuTarget, Target


@message
@dataclass(frozen=True, kw_only=True)
class Board:
    """A board of that key at a tracker. Prints as ``pi5 at 10.0.0.2:9190``."""

    host: str
    port: int
    key: str

    def __str__(self) -> str:
        return f"{self.key} at {self.host}:{self.port}"

    @property
    def server_command(self) -> str:
        """What starts a server on a board that has Python."""
        return f"python -m tvm.exec.rpc_server --tracker {self.host}:{self.port} --key {self.key}"


def parse_address(text: str, *, key: str) -> Board:
    """The board of that key at the tracker ``HOST:PORT``. Raises UnknownTarget."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not re.fullmatch(r"[A-Za-z0-9_.:%-]{1,253}", host) or not re.fullmatch(r"[1-9][0-9]{0,4}", port):
        raise UnknownTarget(f"rpc={one_line(text, most=200)} is not the HOST:PORT of a tracker, as 10.0.0.2:9190")
    if int(port) > 65535:
        raise UnknownTarget(f"rpc={one_line(text, most=200)}: a port is at most 65535")
    if not re.fullmatch(r"[A-Za-z0-9_.+-]{1,64}", key):
        raise UnknownTarget(f"key={one_line(key, most=200)} is no key of a server; use letters, digits and _ . + -")
    return Board(host=host, port=int(port), key=key)


def target_on(board: Board, target: Target) -> CpuTarget:
    """``target`` as it is called in the records of a board: by its own name, or by the key. Raises UnknownTarget for
    what is no board's."""
    if not isinstance(target, CpuTarget) or target.board is None or target.vector_set is None:
        raise UnknownTarget(
            f"target={target} is in this machine or a GPU; with --rpc use a board's, such as "
            "cpu:aarch64,mcpu=cortex-a76,threads=4"
        )
    if target.board:
        return target
    name = re.sub(r"[^a-z0-9_.+-]", "-", board.key.lower()).lstrip("_.+-") or "board"
    return replace(target, board=name, device=device_of(name, target.vector_set, threads=target.threads))
