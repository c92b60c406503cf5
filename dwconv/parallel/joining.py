"""Joining: the ranks of a job begin and end together.

A rank that is killed, or hangs, takes the others with it: their next collective fails, at once or after ``timeout_s``,
and each reports it in one line. Their launcher need not watch them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous

from dwconv import settings
from dwconv.commands.command_line import ArgumentParser
from dwconv.errors import (
    BrokenInstallation,
    DataFailed,
    DwconvError,
    InvalidArgument,
    InvalidChoice,
    InvalidWorkload,
    NoDevice,
    RankLost,
    StageFailed,
)
from dwconv.parallel.lost_ranks import keep_groups, leave, lost_ranks_told, made_in_time, run_command
from dwconv.system import given

TIMEOUT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Rank:
    """This process among those of its job."""

    number: int
    """0 to ``world`` − 1."""
    world: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """True for the one that prints and saves."""
        return self.number == 0


@contextmanager
def ranks(*, timeout_s: float = TIMEOUT_S, device: str | None = None) -> Iterator[Rank]:
    """Joins the job that ``torchrun`` started, and leaves it at the end. Without ``torchrun`` this process is the only
    rank. If ``torch.distributed`` is initialised already, that job is used, with its own timeout, and goes on.

    ``timeout_s``: how long a collective waits for the other ranks. ``device``: ``cpu``, ``cuda`` or ``cuda:N``; by
    default the GPU of the rank's place on its machine where there are GPUs, else the CPU. gloo communicates what is on
    the CPU, NCCL what is on GPUs.

    Raises RankLost where communication fails, because another rank has ended or does not answer."""
    if not dist.is_available():
        raise BrokenInstallation("this PyTorch was built without torch.distributed; install one that has it")
    timeout_s = given.number("timeout_s", timeout_s, way_out="give seconds, such as 600")
    if timeout_s <= 0:
        raise InvalidChoice(f"timeout_s={timeout_s:g} leaves no time to wait for ranks; give seconds, such as 600")
    own = _device(device)
    joins = not dist.is_initialized()
    here = "this rank"
    with lost_ranks_told(lambda: here):
        if joins and settings.rank_is_given():
            made_in_time(lambda: _join(timedelta(seconds=timeout_s)), timeout_s=timeout_s)
        elif joins:
            alone = dist.HashStore()  # type: ignore[attr-defined]
            dist.init_process_group(store=alone, rank=0, world_size=1, timeout=timedelta(seconds=timeout_s))
        rank = Rank(number=dist.get_rank(), world=dist.get_world_size(), device=own)
        here = f"rank {rank.number} of {rank.world}"
        try:
            yield rank
        except BaseException:
            if joins:
                keep_groups()
            raise
        finally:
            if joins:
                leave()


def run(train: Callable[[Rank], object], *, timeout_s: float = TIMEOUT_S, device: str | None = None) -> int:
    """Joins the job, calls ``train(rank)``, and returns the exit code, for ``sys.exit``. dwconv's errors become one
    line on stderr and exit code 2; the errors of ``train`` are raised as they are. With several ranks the process ends
    with that line, such as where one is lost: ``run`` does not return."""

    if not callable(train):
        raise InvalidArgument(f"train={given.shown(train)} cannot be called; give a function of a Rank")

    def command(argv: list[str] | None) -> int:
        with ranks(timeout_s=timeout_s, device=device) as rank:
            train(rank)
        return 0

    return run_command(command)


def _join(timeout: timedelta) -> None:
    if settings.restarts():
        # Ranks that torchrun has restarted find its store as it was, with the addresses of those that have ended.
        store, rank, world = next(rendezvous("env://", timeout=timeout))
        store = dist.PrefixStore(f"restart {settings.restarts()}", store)  # type: ignore[attr-defined]
        dist.init_process_group(store=store, rank=rank, world_size=world, timeout=timeout)
    else:
        dist.init_process_group(timeout=timeout)


def _device(named: str | None) -> torch.device:
    """The device of this rank, which becomes the process's own."""
    try:
        chosen = torch.device(named or ("cuda" if torch.cuda.is_available() else "cpu"))
    except (RuntimeError, TypeError):
        raise InvalidChoice(f"device={named} is unknown; use cpu, cuda or cuda:N") from None
    place = settings.local_rank()
    if chosen.type != "cuda":
        return chosen
    index = place if chosen.index is None else chosen.index
    if index >= torch.cuda.device_count():
        raise NoDevice(
            f"rank {place} of this machine needs GPU {index}, of {torch.cuda.device_count()}; "
            "start no more ranks than GPUs, or train with device='cpu'"
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


# -- what all ranks have in common, and what the first decides or prints -----------------------------------------------


_T = TypeVar("_T")
_TO_PRINT_S = 5.0
"""What is wrong on all ranks is printed by the first: their starter may end it as soon as another ends."""


class NotHere(DwconvError):
    """The first rank's part failed there; it prints why."""


def agreed(decide: Callable[[], _T]) -> _T:
    """What ``decide`` gives on the first rank, on every rank: measured times differ, and plans by them. Where it raises
    a DwconvError, the others raise NotHere."""
    answer: list[Any] = [None, None]
    failure = None
    if dist.get_rank() == 0:
        try:
            answer[0] = decide()
        except DwconvError as error:
            failure, answer[1] = error, error.exit_code
    dist.broadcast_object_list(answer)
    if failure is not None:
        raise failure
    if answer[1] is not None:
        raise NotHere("see the first rank")
    return answer[0]


def made_on_all(make: Callable[[], _T]) -> _T:
    """What ``make`` gives on this rank; every rank has to call it. Where it raises a DwconvError on some, all raise:
    what the first of them did, so that the first rank prints it."""
    made, error = None, None
    try:
        made = make()
    except DwconvError as caught:
        error = caught
    everyones: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyones, None if error is None else str(error))
    failed = next((rank for rank, text in enumerate(everyones) if text is not None), None)
    if failed is None:
        return made  # type: ignore[return-value]
    if failed == 0:
        raise error if error is not None and dist.get_rank() == 0 else NotHere("see the first rank")
    raise InvalidWorkload(f"on rank {failed}: {everyones[failed]}")


class TimeLimit:
    """Seconds from now on, for a group of ranks that measure together: to all of them they are over at the same moment.
    What one rank alone found would leave it waiting for the others, or them for it."""

    def __init__(
        self, seconds: float, *, group: dist.ProcessGroup | None = None, device: torch.device | str = "cpu"
    ) -> None:
        """``group``: None for all ranks. ``device``: on which its ranks can communicate."""
        self.seconds, self._group, self._device = seconds, group, device
        self._began_s = time.monotonic()

    def elapsed_s(self) -> float:
        """Of the slowest rank; each waits here for the others, and gives the same."""
        return self.longest([[time.monotonic() - self._began_s]])[0][0]

    def longest(self, seconds: Sequence[Sequence[float]]) -> list[list[float]]:
        """Each of these numbers as it is on the rank where it is the largest."""
        numbers = torch.tensor(seconds, dtype=torch.float64, device=self._device)
        dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=self._group)
        found: list[list[float]] = numbers.tolist()
        return found

    def is_over(self) -> bool:
        """Likewise: True for all as soon as it is for one."""
        return self.longest([[time.monotonic() - self._began_s - self.seconds]])[0][0] >= 0


def check_same(mine: Sequence[str], *, group: dist.ProcessGroup | None = None, what: str = "model and plan") -> None:
    """Raises InvalidWorkload, on every rank of ``group``, unless all of them give the same lines, of ``what``.
    ``group``: None for all ranks. Collectives on tensors that differ would end the process, or wait for each other."""
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, list(mine), group=group)
    for rank, lines in enumerate(everyone):
        if lines != everyone[0]:
            first, other = next(pair for pair in zip_longest(everyone[0], lines) if pair[0] != pair[1])
            raise InvalidWorkload(
                f"rank {rank} has {other or 'nothing more'} where rank 0 has {first or 'nothing more'}; give every "
                f"rank the same {what}"
            )


def check_joined() -> None:
    """Raises InvalidChoice in a process that has not joined a job."""
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidChoice("this process has not joined a job; call it inside `with dwconv.parallel.ranks():`")


def described(model: nn.Module) -> list[str]:
    """What replicas must have in common: names, types and sizes of parameters and buffers."""
    return [
        f"{name} of {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
    ]


class ParserOfRanks(ArgumentParser):
    """Prints errors on the first rank alone."""

    def error(self, message: str) -> NoReturn:
        if not settings.is_first_rank():
            raise NotHere(message)
        super().error(message)


def run_on_ranks(command: Callable[[list[str] | None], int], argv: list[str] | None) -> int:
    """Run a command on every rank: bad input, which all of them have, is one line of the first."""
    if settings.is_first_rank():
        return run_command(command, argv)

    def silent(given: list[str] | None) -> int:
        try:
            return command(given)
        except (RankLost, StageFailed, DataFailed, NoDevice):  # which this rank alone may have seen
            raise
        except DwconvError as error:
            sys.stdout.flush()
            time.sleep(_TO_PRINT_S)
            return error.exit_code

    return run_command(silent, argv)
