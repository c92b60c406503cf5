"""What all ranks have in common, and what only the first decides or prints, and the others learn."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NoReturn, TypeVar

import torch.distributed as dist
from torch import nn

from dwconv import settings
from dwconv.commands.command_line import ArgumentParser
from dwconv.errors import DwconvError, InvalidWorkload, RankLost, StageFailed
from dwconv.parallel.joining import run_command

_T = TypeVar("_T")
_TO_PRINT_S = 5.0
"""What is wrong on all ranks is printed by the first: whoever starts the ranks may end it as soon as another ends."""


class NotHere(DwconvError):
    """What the first rank was asked failed there, which prints why."""


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
    decided: _T = answer[0]
    return decided


def check_same(mine: Sequence[str], *, group: dist.ProcessGroup | None = None) -> None:
    """Raises InvalidWorkload, on every rank of ``group``, unless all of them give the same lines. ``group``: None for
    all ranks. Collectives on tensors that differ would end the process, or wait for each other."""
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, list(mine), group=group)
    for rank, lines in enumerate(everyone):
        if lines != everyone[0]:
            first, other = next(pair for pair in zip_longest(everyone[0], lines) if pair[0] != pair[1])
            raise InvalidWorkload(
                f"rank {rank} has {other or 'nothing more'} where rank 0 has {first or 'nothing more'}; give every "
                "rank the same model and plan"
            )


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


def run_on_ranks(command: Callable[[list[str] | None], int], argv: list[str]) -> int:
    """Run a command on every rank: bad input, which all of them have, is one line of the first."""
    if settings.is_first_rank():
        return run_command(command, argv)

    def silent(given: list[str] | None) -> int:
        try:
            return command(given)
        except (RankLost, StageFailed):  # which this rank alone may know
            raise
        except DwconvError as error:
            sys.stdout.flush()
            time.sleep(_TO_PRINT_S)
            return error.exit_code

    return run_command(silent, argv)
