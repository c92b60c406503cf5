"""Session: a connection to a board, and a kernel there. The one file that uses TVM's RPC.

A tracker has the address of a board, by its key. Every exchange with it may wait for ever: it is for a process that is
ended when its time is up.
"""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dwconv import settings
from dwconv.errors import BoardLost, UnknownTarget, one_line
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.entry import message
from dwconv.kernels.library import RUN, is_linked
from dwconv.kernels.load import ANY_NUMBER, most_threads
from dwconv.measure.clock.timing import Effort
from dwconv.problems.target import CpuTarget, Target, device_of
from dwconv.records.record import Measurement


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
        raise UnknownTarget(
            f"key={one_line(key, most=200)} is not the key of a server; use letters, digits and _ . + -"
        )
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


_BIG_CORES = 1
"""TVM's word for how its threads are bound: to the fastest cores first."""
_FEWEST_ROUNDS = 3


class Session:
    """A session with a board, which its server ends after ``session_s``. Raises BoardLost if there is none."""

    def __init__(self, board: Board, *, session_s: float) -> None:
        from tvm import rpc

        address = (board.host, board.port)
        try:
            # TVM's client would try for a minute.
            socket.create_connection(address, timeout=settings.BOARD_CONNECT_TIMEOUT_S).close()
            tracker = rpc.connect_tracker(*address)
            servers = {str(each["key"]).removeprefix("server:") for each in tracker.summary()["server_info"]}
            if board.key not in servers:
                has = ", ".join(sorted(servers)) or "none"
                raise BoardLost(
                    f"no server with the key {board.key} is at the tracker; it has {one_line(has, most=200)}"
                )
            self._remote = tracker.request(board.key, session_timeout=session_s, max_retry=1)
            tracker.close()
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:  # the answer may come from no tracker
            raise BoardLost(one_line(f"{type(error).__name__}: {error}", most=300)) from None
        self._numbers = itertools.count()
        self._threads: int | None = None

    def is_alive(self) -> bool:
        """False if the board does not answer any more."""
        try:
            self._remote.get_function("runtime.NumThreads")()
        except Exception:  # noqa: BLE001  TVM's errors of a connection have many types
            return False
        return True

    def load(self, artifact: Artifact) -> RemoteKernel:
        """Load the library of an artifact there."""
        name = f"kernel{next(self._numbers)}.{'so' if is_linked(artifact.library) else 'o'}"
        self._remote.upload(bytearray(artifact.library), name)
        return RemoteKernel(artifact, self, self._remote.load_module(name))

    def put(self, content: torch.Tensor) -> Any:
        """A tensor of bytes there with that content."""
        from tvm import runtime

        return runtime.tensor(content.numpy(), device=self._remote.cpu())

    def use_threads(self, count: int) -> None:
        """Have kernels run on so many threads."""
        if count != self._threads:
            self._remote.get_function("runtime.config_threadpool")(_BIG_CORES, count)
            self._threads = count

    def timer(self, module: Any, *, number: int, repeat: int) -> Any:
        """A function that calls ``RUN`` that often, and gives the seconds of a call in each of ``repeat`` rounds."""
        return module.time_evaluator(RUN, self._remote.cpu(), number=number, repeat=repeat)


class RemoteKernel:
    """A kernel that is loaded on a board: a ``LoadedKernel`` that is run on copies of the tensors there."""

    def __init__(self, artifact: Artifact, session: Session, module: Any) -> None:
        self.artifact = artifact
        self._session = session
        self._module = module
        self._run = module[RUN]
        self._most_threads = most_threads(artifact) or ANY_NUMBER
        self._last: list[Any] = []

    def __call__(self, *inputs: torch.Tensor) -> Any:
        raise NotImplementedError("a board has no PyTorch that could call it")

    def run_into(
        self, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor], workspaces: Sequence[torch.Tensor]
    ) -> None:
        """Run it there on all the memory that the tensors lie in, on as many threads as PyTorch uses here; what it left
        comes back, whatever it wrote to."""
        tensors = (*inputs, *results, *workspaces)
        memories = [_memory_of(tensor) for tensor in tensors]
        there = [self._session.put(memory) for memory in memories]
        starts = [tensor.storage_offset() * tensor.itemsize for tensor in tensors]
        self._last = [inputs[0].shape[0], *itertools.chain(*zip(there, starts, strict=True))]
        self._session.use_threads(min(torch.get_num_threads(), self._most_threads))
        self._run(*self._last)
        for memory, left in zip(memories, there, strict=True):
            memory.copy_(torch.from_numpy(left.numpy()))

    def round_us(self, *, number: int, repeat: int = 1) -> list[float]:
        """Microseconds of a call in each of ``repeat`` rounds of ``number`` calls, on the tensors of the last run."""
        timed = self._session.timer(self._module, number=number, repeat=repeat)
        return [seconds * 1e6 for seconds in timed(*self._last).results]


def _memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """All the bytes around a tensor."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),))  # type: ignore[call-overload]


def time_kernels(
    kernels: Sequence[RemoteKernel], *, effort: Effort, hopeless_above_us: float | None = None
) -> list[Measurement]:
    """Measure kernels round by round, in turns, so that what disturbs the board meets all of them. Ends early if the
    first kernel is hopeless."""
    once_us = [min(kernel.round_us(number=1, repeat=_FEWEST_ROUNDS)) for kernel in kernels]
    numbers = [max(1, round(effort.round_s * 1e6 / max(us, 0.1))) for us in once_us]
    turn_s = sum(number * us for number, us in zip(numbers, once_us, strict=True)) / 1e6
    turns = max(_FEWEST_ROUNDS, min(effort.rounds, int(effort.budget_s / max(turn_s, 1e-9))))
    if hopeless_above_us is not None and once_us[0] > hopeless_above_us:
        turns = _FEWEST_ROUNDS
    taken: list[list[float]] = [[] for _ in kernels]
    for _ in range(turns):
        for number, kernel, own in zip(numbers, kernels, taken, strict=True):
            own += kernel.round_us(number=number)
    return [Measurement.of(us) for us in taken]
