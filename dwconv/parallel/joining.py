"""Joining: the ranks of a job meet, and end together.

A rank that is killed, or hangs, takes the others with it: their next collective fails, at once or after ``timeout_s``,
and each says so in one line. Whoever starts the ranks need not watch them.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from dwconv import settings
from dwconv.commands import command_line
from dwconv.errors import BrokenInstallation, InvalidChoice, NoDevice, RankLost, one_line

TIMEOUT_S = 600.0
_LOST = r"Connection (?:closed|reset) by peer|Timed out waiting|Application timeout caused pair closure|Broken pipe"
_OF_COMMUNICATION = re.compile(rf"{_LOST}|gloo/|NCCL")
"""In messages of PyTorch's RuntimeErrors: gloo has no class of errors, and DistributedDataParallel makes others of
them."""
_LONGEST_REASON = 160
_timeout = timedelta(seconds=TIMEOUT_S)


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
    if timeout_s <= 0:
        raise InvalidChoice(f"timeout_s={timeout_s:g} leaves no time to wait for ranks; give seconds, such as 600")
    own = _device(device)
    joins = not dist.is_initialized()
    here = "this rank"
    with lost_ranks_told(lambda: here):
        if joins:
            _join(timeout_s)
        rank = Rank(number=dist.get_rank(), world=dist.get_world_size(), device=own)
        here = f"rank {rank.number} of {rank.world}"
        try:
            yield rank
        finally:
            if joins:
                dist.destroy_process_group()


def run(train: Callable[[Rank], object], *, timeout_s: float = TIMEOUT_S, device: str | None = None) -> int:
    """Joins the job, calls ``train(rank)``, and returns the exit code, for ``sys.exit``. dwconv's errors become one
    line on stderr and exit code 2; the errors of ``train`` are raised as they are. Where a rank is lost, the process
    ends with that line: ``run`` does not return."""

    def command(argv: list[str] | None) -> int:
        with ranks(timeout_s=timeout_s, device=device) as rank:
            train(rank)
        return 0

    return run_command(command)


def run_command(command: Callable[[list[str] | None], int], argv: list[str] | None = None) -> int:
    """``command_line.run`` for a command that joins the ranks. Where one of them is lost, the process ends here, with
    the exit code.

    Collectives that fail need Python's lock, on gloo's threads, to drop the Python objects that they hold. A thread
    that asks for it while Python shuts down aborts the process. So Python is not shut down."""
    is_lost = False

    def watched(given: list[str] | None) -> int:
        nonlocal is_lost
        try:
            return command(given)
        except RankLost:
            is_lost = True
            raise

    exit_code = command_line.run(watched, argv)
    if is_lost:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
    return exit_code


def group_timeout() -> timedelta:
    """How long collectives wait in the job that ``ranks`` joined; the default if somebody else joined it."""
    return _timeout


@contextmanager
def lost_ranks_told(here: Callable[[], str]) -> Iterator[None]:
    """Makes one line of what PyTorch raises where communication fails. ``here``: names this rank."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        if isinstance(error, dist.DistError) or _OF_COMMUNICATION.search(str(error)):
            reason = one_line(_told_by_gloo(str(error)), most=_LONGEST_REASON)
            raise RankLost(
                f"{here()} lost touch with the others ({reason}): another rank has ended, or does not answer; "
                "look at what that one printed, then start all ranks again"
            ) from error
        raise


def _told_by_gloo(message: str) -> str:
    """Without the place in gloo's source, and without what was wrapped around it."""
    found = re.search(rf"((?:{_LOST})[^\n]*?)(?: to Tensor)?$", message, re.M)
    return found[1] if found else message


def _join(timeout_s: float) -> None:
    global _timeout
    _timeout = timedelta(seconds=timeout_s)
    if settings.rank_is_given():
        dist.init_process_group(timeout=_timeout)
    else:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1, timeout=_timeout)  # type: ignore[attr-defined]


def _device(named: str | None) -> torch.device:
    """The device of this rank, which becomes the process's own."""
    try:
        chosen = torch.device(named or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
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
