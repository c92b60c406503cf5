"""``python -m bench.parallel.communication_rank``: one rank of a job that ``bench communication`` starts. It times
the ways that gradients may take, and then trains by the chosen one, on batches that are loaded when they are asked
for, and ahead. The first rank writes the figures."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import dwconv
from bench.networks import add_network_arguments, image_for, network_from
from bench.paired_steps import CLASSES, step_of
from dwconv.commands.command_line import ArgumentParser, from_0
from dwconv.commands.command_line import run as run_command
from dwconv.errors import DwconvWarning
from dwconv.measure.clock import contention
from dwconv.parallel import Rank, communication, data_parallel, prefetch, run

EPOCHS = 2
"""Of each kind, in turn."""
DEPTHS = {"plain": 0, "prefetch": 2}
_TIMEOUT_S = 120.0


class Pictures(Dataset[tuple[Tensor, int]]):
    """Made-up pictures as a camera gives them, cut out, mirrored and normalised as one does for training."""

    def __init__(self, count: int, *, size: int) -> None:
        self._pictures = torch.randint(0, 256, (16, 3, 2 * size, 2 * size), dtype=torch.uint8)
        self._count, self._size = count, size

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = self._pictures[index % len(self._pictures)].float().div_(255).sub_(0.45).div_(0.225)
        larger = nn.functional.interpolate(picture[None], scale_factor=1.5, mode="bilinear", antialias=True)[0]
        top, left = (7 * index % self._size, 11 * index % self._size)
        cut = larger[:, top : top + self._size, left : left + self._size]
        return (cut.flip(2) if index % 2 else cut.contiguous()), index % CLASSES


def main(argv: Sequence[str]) -> int:
    return run_command(_rank, list(argv))


def _rank(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench.parallel.communication_rank", description=(__doc__ or "").partition("\n")[0])
    add_network_arguments(parser)
    parser.add_argument("--seconds", type=from_0, default=40, help="to measure, default 40")
    parser.add_argument("--steps", type=int, default=8, help="of an epoch that waits for data, default 8; 0: none")
    parser.add_argument("--out", type=Path, required=True, help="the first rank writes the figures there, as JSON")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore", DwconvWarning)  # of what is untuned

    def measure(rank: Rank) -> None:
        figures = _figures(rank, arguments)
        if rank.is_first:
            arguments.out.write_text(json.dumps(figures, indent=1) + "\n")

    return run(measure, timeout_s=_TIMEOUT_S, device="cpu")


def _figures(rank: Rank, arguments: argparse.Namespace) -> dict[str, Any]:
    threads = max(1, contention.cores() // rank.world)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    network = network_from(arguments)
    memory_format = torch.contiguous_format if arguments.contiguous else torch.channels_last
    model = dwconv.convert(network.make().train().to(memory_format=memory_format))  # type: ignore[call-overload]
    example = image_for(network, contiguous=arguments.contiguous)
    parallel = data_parallel(model, example, compress=True, seconds=arguments.seconds)
    report = communication(parallel)
    waiting = _waiting(parallel, arguments, batch=network.batch, image=network.sample[-1]) if arguments.steps else {}
    told = [str(report), *(f"{kind}: {each['told']}" for kind, each in waiting.items())]
    return {
        "world": rank.world,
        "threads": threads,
        **dataclasses.asdict(report),
        "waiting": waiting,
        "told": "\n".join(told),
    }


def _waiting(model: nn.Module, arguments: argparse.Namespace, *, batch: int, image: int) -> dict[str, dict[str, Any]]:
    """How long steps wait for a loader in the process of the rank: when it is asked, and ahead."""
    loader = DataLoader(Pictures(arguments.steps * batch, size=image), batch_size=batch)
    step = step_of(model)
    batches = {kind: prefetch(loader, depth=depth) for kind, depth in DEPTHS.items()}
    for _ in range(EPOCHS):
        for each in batches.values():
            for images, labels in each:
                step(images, labels)
    return {kind: {**dataclasses.asdict(each.report()), "told": str(each.report())} for kind, each in batches.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
