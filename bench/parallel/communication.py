"""``python -m bench communication``: how gradients get from rank to rank, and how long steps wait for data.

For each network and number of ranks: every collective, bucket size and compression, by the time that a step takes
longer than one without communication; beside all gradients sent after the backward pass. Then steps that train on
batches of a loader, by epochs in turn: as the loader gives them, and loaded ahead.

The ranks are processes on this machine, joined by gloo, which share its cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import dwconv
from bench.models import NETWORKS, Network
from bench.networks import add_network_arguments, image_for, network_from
from bench.paired_steps import CLASSES, step_of
from bench.parallel.ranks import run_ranks
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0, run
from dwconv.errors import DwconvWarning, InvalidChoice
from dwconv.measure.clock import contention
from dwconv.parallel import Rank, communication, data_parallel, prefetch
from dwconv.parallel import run as run_rank
from dwconv.problems.target import cpu_target

NAMES = ("MobileNetV3-Large", "ConvNeXt-like")
"""16 and 54 MiB of gradients: many small ones, and few large ones."""
BATCH, IMAGE = 2, 64
"""Of one rank: so small that communication counts on two cores."""
_START_S = 120.0
_LONGEST_OF_SECONDS = 20.0


def main(argv: Sequence[str]) -> int:
    return run(_communication, list(argv))


def _communication(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench communication", description=(__doc__ or "").partition("\n")[0])
    add_network_arguments(parser)
    parser.add_argument("--ranks", metavar="N,N", default="2,4", help="numbers of ranks, default 2,4")
    parser.add_argument("--seconds", type=from_0, default=40, help="to measure a network at one number, default 40")
    parser.add_argument("--steps", type=int, default=8, help="of an epoch that waits for data, default 8; 0: none")
    add_out_argument(parser)
    arguments = parser.parse_args(argv)

    rows = []
    for network in _networks(arguments):
        for world in _worlds(arguments.ranks):
            before = contention.load(own_s=_with_children_s)
            figures = measured(network, world=world, arguments=arguments)
            figures["contention"] = round(contention.others(before, contention.load(own_s=_with_children_s)), 3)
            image = network.sample[-1]
            print(f"\n{network.name}, batch {network.batch} of {image}×{image} a rank\n{figures['told']}")
            rows.append({"network": network.name, "batch": network.batch, "image": image, **figures})
    write_results("communication", target=cpu_target(), rows=rows, folder=arguments.out)
    return 0


def _networks(arguments: argparse.Namespace) -> list[Network]:
    if arguments.model:
        return [_of_images(network_from(arguments))]
    batch, image = arguments.batch or BATCH, arguments.image or IMAGE
    chosen = [network for network in NETWORKS if network.name in NAMES]
    return [dataclasses.replace(network, batch=batch).resized(image) for network in chosen]


def _of_images(network: Network) -> Network:
    """The network, if it is one of images, which are what is loaded. Raises InvalidChoice."""
    if network.dims != 2:
        raise InvalidChoice(f"--model {network.name}: its inputs are no images; name a network of images")
    return network


def _worlds(given: str) -> list[int]:
    """Raises InvalidChoice."""
    parts = given.split(",")
    if not all(part.isascii() and part.isdigit() and int(part) > 1 for part in parts):
        raise InvalidChoice(f"--ranks {given}: write numbers above 1, such as 2,4")
    return [int(part) for part in parts]


def measured(network: Network, *, world: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of one job, by its first rank. Raises WorkerDied, WorkerTimeout."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = ["bench.parallel.communication", "--model", network.name, "--out", str(out)]
        command += ["--batch", str(network.batch), "--image", str(network.sample[-1])]
        command += ["--seconds", str(arguments.seconds), "--steps", str(arguments.steps)]
        command += ["--contiguous"] if arguments.contiguous else []
        timeout_s = _START_S + _LONGEST_OF_SECONDS * arguments.seconds
        run_ranks(command, name=f"{network.name} on {world} ranks", world=world, timeout_s=timeout_s)
        figures: dict[str, Any] = json.loads(out.read_text())
        return figures


def _with_children_s() -> float:
    """CPU time of this process, and of those that it started, once they have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


# -- one rank: python -m bench.parallel.communication; the first one writes the figures --------------------------------


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


def _rank(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench.parallel.communication", description="one rank of bench communication")
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

    return run_rank(measure, timeout_s=_TIMEOUT_S, device="cpu")


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
    text = [str(report), *(f"{kind}: {each['told']}" for kind, each in waiting.items())]
    return {
        "world": rank.world,
        "threads": threads,
        **dataclasses.asdict(report),
        "waiting": waiting,
        "told": "\n".join(text),
    }


def _waiting(model: nn.Module, arguments: argparse.Namespace, *, batch: int, image: int) -> dict[str, dict[str, Any]]:
    """How long steps wait for a loader in the process of the rank: on request, and ahead."""
    loader = DataLoader(Pictures(arguments.steps * batch, size=image), batch_size=batch)
    step = step_of(model)
    batches = {kind: prefetch(loader, depth=depth) for kind, depth in DEPTHS.items()}
    for _ in range(EPOCHS):
        for each in batches.values():
            for images, labels in each:
                step(images, labels)
    return {kind: {**dataclasses.asdict(each.report()), "told": str(each.report())} for kind, each in batches.items()}


if __name__ == "__main__":
    sys.exit(run(_rank, sys.argv[1:]))
