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
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from bench.models import NETWORKS, Network
from bench.networks import add_network_arguments, network_from
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0, run
from dwconv.errors import InvalidChoice, WorkerDied, WorkerTimeout
from dwconv.measure.clock import contention
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
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=_START_S))  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [
            sys.executable,
            "-m",
            "bench.parallel.communication_rank",
            "--model",
            network.name,
            "--out",
            str(out),
        ]
        command += ["--batch", str(network.batch), "--image", str(network.sample[-1])]
        command += ["--seconds", str(arguments.seconds), "--steps", str(arguments.steps)]
        command += ["--contiguous"] if arguments.contiguous else []
        ranks = [
            subprocess.Popen(command, env=_environment(rank, world=world, port=store.port)) for rank in range(world)
        ]
        try:
            timeout_s = _START_S + _LONGEST_OF_SECONDS * arguments.seconds
            codes = [rank.wait(timeout=timeout_s) for rank in ranks]
        except subprocess.TimeoutExpired as error:
            raise WorkerTimeout(f"{network.name} on {world} ranks: no end after {timeout_s:.0f} s") from error
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        if any(codes):
            raise WorkerDied(f"{network.name} on {world} ranks: they ended with the codes {codes}")
        figures: dict[str, Any] = json.loads(out.read_text())
        return figures


def _with_children_s() -> float:
    """CPU time of this process, and of those that it started, once they have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _environment(rank: int, *, world: int, port: int) -> dict[str, str]:
    """As torchrun sets it; the store of the ranks is in this process."""
    return {
        "GLOO_SOCKET_IFNAME": "lo",
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
