"""``python -m bench communication``: ways to send gradients, on links of several rates, and waiting for data.

For each network, number of ranks and rate: every way that ``data_parallel`` measures, with what of its communication a
step shows. The control sends all gradients after the backward pass; a way hides what it exposes less. Beside it stand
the link as measured, how long a sum should take by it, and the bytes that left a rank. On loopback steps then train on
batches of a loader, by epochs in turn: as the loader gives them, and loaded ahead.

The ranks are processes on this machine, joined by gloo, which share its cores. ``python -m bench.communication FOLDER``
is one rank.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import dwconv
from bench.links import (
    LOOPBACK,
    add_rates_argument,
    in_time,
    name_of,
    rough_step_s,
    run_ranks,
    sent_bytes,
    shows_where_it_hangs,
    why_not,
)
from bench.models import RESNETS, Network, resnet
from bench.networks import image_for, memory_format_of, network_of
from bench.paired_steps import CLASSES, step_of
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0, whole, whole_from_0
from dwconv.errors import DwconvError, DwconvWarning, InvalidChoice, InvalidWorkload, WorkerDied, WorkerTimeout
from dwconv.measure.clock import contention
from dwconv.parallel import Communication, Rank, communication, data_parallel, prefetch
from dwconv.parallel import run as run_rank
from dwconv.parallel.data.ways import CommunicationReport, WayTimes
from dwconv.parallel.data.ways_to_try import gradient_bytes
from dwconv.parallel.joining import TimeLimit, agreed
from dwconv.parallel.planning.measured_link import measured_link
from dwconv.parallel.planning.pipeline_plan import sum_us
from dwconv.problems.target import cpu_target

NAMES = ("MobileNetV3-Large", "ResNet-50")
"""16 and 90 MiB of gradients: many small ones, and few large ones."""
BATCH, IMAGE = 8, 96
"""Of one rank."""
_START_S, _LEAST_STEPS = 10.0, 25
"""What a job needs at least."""
_SHARE_OF_WAYS = 0.9
"""Of the time of a job that is left when the link is measured: the rest is for the steps of the way chosen."""
_BESIDE_S = 300.0
"""Beside its share, until a job counts as one that hangs: its ranks start, and end once its share is over."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommunicationJob:
    """The input of every rank."""

    network: str
    batch: int
    image: int
    world: int
    rate: str
    seconds: float
    steps: int
    ends_at_s: float = 0.0
    """Of ``time.time``: no step is measured that begins later."""

    @property
    def name(self) -> str:
        return f"{self.network}, {self.world} ranks, {name_of(self.rate)}"


# -- the command -------------------------------------------------------------------------------------------------------


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(
        prog="bench communication", description=(__doc__ or "").partition(": ")[2].partition("\n")[0]
    )
    parser.add_argument(
        "--model", metavar="NAME", help=f"as bench train takes it, or a ResNet; default {', '.join(NAMES)}"
    )
    parser.add_argument("--batch", type=whole, default=BATCH, help=f"images of a rank, default {BATCH}")
    parser.add_argument("--image", type=whole, default=IMAGE, help=f"height and width, default {IMAGE}")
    parser.add_argument("--ranks", type=_worlds, default=(2, 4), metavar="N,N", help="numbers of ranks, default 2,4")
    add_rates_argument(parser)
    parser.add_argument(
        "--seconds", type=from_0, default=1200, help="for all of it, default 1200; what does not fit is left out"
    )
    parser.add_argument(
        "--steps", type=whole_from_0, default=8, help="of an epoch that waits for data, default 8; 0: none"
    )
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    jobs = _jobs(arguments)
    print(_HEAD, flush=True)
    rows = []
    gradients = {job.network: _gradient_bytes(job) for job in jobs}
    least_s = partial(_least_s, gradients)
    errors: list[DwconvError] = []
    for job, seconds in in_time(jobs, seconds=arguments.seconds, least_s=least_s, kind=lambda job: job.rate):
        try:
            row = measured(dataclasses.replace(job, seconds=seconds))
        except (WorkerDied, WorkerTimeout) as error:  # of this one; the others are measured
            errors.append(error)
            row = {**_about(job), "failed": str(error)}
        print(_line(row), flush=True)
        rows.append(row)
    if not rows:
        needed_s = math.ceil(min(map(least_s, jobs)))
        raise InvalidChoice(f"--seconds {arguments.seconds:g} is too short for a network; give {needed_s} or more")
    done = {row["name"] for row in rows}
    if left_out := [job.name for job in jobs if job.name not in done]:
        print(f"left out, since {arguments.seconds:g} s were over: {'; '.join(left_out)}")
    for row in rows:
        if "told" in row:
            print(f"\n{row['name']}, batch {row['batch']} of {row['image']}² a rank\n{row['told']}")
    name = "-".join(["communication", *map(str, arguments.ranks), "ranks"])
    write_results(name, target=cpu_target(), rows=rows, folder=arguments.out, left_out=left_out)
    if errors:
        raise errors[0]
    return 0


def _jobs(arguments: argparse.Namespace) -> list[CommunicationJob]:
    names = [arguments.model] if arguments.model else NAMES
    for name in names:
        _network(name, batch=arguments.batch, image=arguments.image)
    about = {"batch": arguments.batch, "image": arguments.image, "steps": arguments.steps, "seconds": 0.0}
    return [
        CommunicationJob(network=name, world=world, rate=rate, **about)
        for name in names
        for world in arguments.ranks
        for rate in arguments.rates
    ]


def _gradient_bytes(job: CommunicationJob) -> int:
    return gradient_bytes(_network(job.network, batch=job.batch, image=job.image).make())


def _least_s(gradients: dict[str, int], job: CommunicationJob) -> float:
    """What a job needs: about as many steps as it takes to choose among all-reduces, compressed ones, and the
    control."""
    return _START_S + _LEAST_STEPS * sum(rough_step_s(gradients[job.network], world=job.world, rate=job.rate))


def _network(name: str, *, batch: int, image: int) -> Network:
    """One of images, which are what is loaded. Raises InvalidWorkload."""
    if name in RESNETS:
        make = partial(resnet, name, classes=101, small_images=image < 64)
        return Network(name=name, make=make, batch=batch, sample=(3, image, image))
    network = network_of(name, batch=batch)
    if network.dims != 2:
        raise InvalidWorkload(f"--model {name}: its inputs are no images; name a network of images")
    return network.resized(image)


def _worlds(text: str) -> tuple[int, ...]:
    found = tuple(map(whole, text.split(",")))
    if min(found) < 2:
        raise argparse.ArgumentTypeError(
            f"{text} has one rank, which sends nothing; write numbers above 1, such as 2,4"
        )
    return found


def _about(job: CommunicationJob) -> dict[str, Any]:
    return {**dataclasses.asdict(job), "name": job.name}


def measured(job: CommunicationJob) -> dict[str, Any]:
    """The figures of one job, by its first rank; or why its link cannot be made. Raises WorkerDied, WorkerTimeout."""
    about = _about(job)
    job = dataclasses.replace(job, ends_at_s=time.time() + job.seconds)
    if job.rate != LOOPBACK and why_not():
        return {**about, "failed": why_not()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.json").write_bytes(msgspec.json.encode(job))
        before = contention.load(own_s=_with_children_s)
        run_ranks(
            ["-m", "bench.communication", name], name=job.name, world=job.world, rate=job.rate,
            timeout_s=_BESIDE_S + job.seconds,
        )  # fmt: skip
        lost = contention.others(before, contention.load(own_s=_with_children_s))
        row = {**about, **msgspec.json.decode((folder / "row.json").read_bytes())}
        # Ranks that share a core take time from one another.
        return {**row, **({"contention": round(lost, 3)} if job.world <= (os.cpu_count() or 1) else {})}


def _with_children_s() -> float:
    """CPU time of this process, and of those that it started, once they have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


_HEAD = (
    f"{'network':18} {'ranks':>5} {'link':11} {'GB/s':>6} {'µs':>6} {'MiB':>6} {'step alone':>10} {'sum: by link':>12} "
    f"{'seen':>8} {'exposed: control':>16} {'default':>8} {'chosen':>8} {'hidden':>6}  chosen"
)


def _line(row: dict[str, Any]) -> str:
    about = f"{row['network']:18} {row['world']:5} {name_of(row['rate']):11}"
    if "failed" in row:
        return f"{about} {row['failed']}"
    return (
        f"{about} {row['link_gb_s']:6.3f} {row['latency_us']:6.0f} {row['gradient_bytes'] / 2**20:6.1f} "
        f"{row['local_ms']:10.1f} {row['sum_by_link_ms']:12.1f} {_ms(row['sum_ms'], 8)} "
        f"{_ms(row['control_exposed_ms'], 16)} {row['default_exposed_ms']:8.1f} {row['chosen_exposed_ms']:8.1f} "
        f"{'' if row['hidden'] is None else format(row['hidden'], '.0%'):>6}  {row['way']}"
    )


def _ms(value: float | None, width: int) -> str:
    """Blank for what there was no time to measure."""
    return f"{'' if value is None else format(value, '.1f'):>{width}}"


# -- one rank; the first one writes the figures ------------------------------------------------------------------------


EPOCHS = 2
"""Of each kind, in turn."""
DEPTHS = {"plain": 0, "prefetch": 2}
_COUNTED_STEPS = 3
_TIMEOUT_S = 300.0


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


def main(folder: Path) -> int:
    shows_where_it_hangs()
    job = msgspec.json.decode((folder / "job.json").read_bytes(), type=CommunicationJob)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DwconvWarning)  # of what is untuned

    def measure(rank: Rank) -> None:
        row = _figures(job)
        if rank.is_first:
            (folder / "row.json").write_bytes(msgspec.json.encode(row))

    return run_rank(measure, timeout_s=_TIMEOUT_S, device="cpu")


def _figures(job: CommunicationJob) -> dict[str, Any]:
    link = measured_link()
    torch.manual_seed(0)
    network = _network(job.network, batch=job.batch, image=job.image)
    memory_format = memory_format_of(network, contiguous=False)
    model = dwconv.convert(network.make().train().to(memory_format=memory_format))  # type: ignore[call-overload]
    example = image_for(network, contiguous=False)
    model(example).mean().backward()  # builds what is built for the first step, and takes of the time, too
    model.zero_grad(set_to_none=True)
    limit = TimeLimit(max(1.0, job.ends_at_s - time.time()))
    left_s = agreed(lambda: limit.seconds)
    parallel = data_parallel(model, example, compress="powersgd", seconds=_SHARE_OF_WAYS * left_s)
    report = communication(parallel)
    if not report.rows:
        return {"failed": f"{report.reason}; give more --seconds"}
    waiting = _waiting(parallel, job, limit) if job.steps and job.rate == LOOPBACK else {}
    text = [str(report), *(f"{kind}: {each['told']}" for kind, each in waiting.items())]
    return {
        "link_gb_s": link.gb_s,
        "both_ways_gb_s": link.both_ways_gb_s,
        "latency_us": link.latency_us,
        "summing_us_a_mb": link.summing_us_a_mb,
        "crowding_us_a_mb": link.crowding_us_a_mb,
        "sum_by_link_ms": sum_us(link, report.gradient_bytes, ranks=job.world) / 1e3,
        **summary(report),
        "seen_bytes": _bytes_of_a_step(parallel, example, limit),
        **dataclasses.asdict(report),
        "waiting": waiting,
        "told": "\n".join(text),
    }


def summary(report: CommunicationReport) -> dict[str, Any]:
    """What the control, the default and the chosen way expose; and what share the chosen way hides of the control's,
    None where there was no time for that. The chosen way may be compressed; ``exact`` is the best that is not."""
    rows = {row.communication: row for row in report.rows}
    control, default = rows.get(Communication(collective="after-backward")), rows[Communication()]
    finals = {row.communication: row for row in report.finals}
    exact = min((row for row in report.rows if not row.communication.compression), key=_exposed_share)
    chosen = finals.get(report.chosen, rows[report.chosen])
    return {
        "local_ms": report.local_us / 1e3,
        "sum_ms": None if control is None else (control.transfer_us or 0.0) / 1e3,
        "control_exposed_ms": None if control is None else control.exposed_us / 1e3,
        "default_exposed_ms": finals.get(default.communication, default).exposed_us / 1e3,
        "chosen_exposed_ms": chosen.exposed_us / 1e3,
        "hidden": _hidden(chosen, control),
        "way": str(report.chosen),
        "exact": str(exact.communication),
        "exact_exposed_ms": exact.exposed_us / 1e3,
        "exact_hidden": _hidden(exact, control),
    }


def _exposed_share(row: WayTimes) -> float:
    return row.exposed_share


def _hidden(row: WayTimes, control: WayTimes | None) -> float | None:
    if control is None:
        return None
    return min(1.0, 1 - row.exposed_share / control.exposed_share) if control.exposed_share > 0 else 0.0


def _bytes_of_a_step(model: nn.Module, example: Tensor, limit: TimeLimit) -> float | None:
    """What a rank sent, on average, with the headers of packets; None on loopback. Of one step where time is up."""
    before, count = sent_bytes(), 0
    while not count or (count < _COUNTED_STEPS and not limit.is_over()):
        model(example).mean().backward()
        count += 1
    dist.barrier()
    after = sent_bytes()
    if before is None or after is None:
        return None
    mean = torch.tensor([(after - before) / count], dtype=torch.float64)
    dist.all_reduce(mean)
    return float(mean) / dist.get_world_size()


def _waiting(model: nn.Module, job: CommunicationJob, limit: TimeLimit) -> dict[str, dict[str, Any]]:
    """How long steps wait for a loader in the process of the rank: on request, and ahead. An epoch ends after a step
    where time is up."""
    loader = DataLoader(Pictures(job.steps * job.batch, size=job.image), batch_size=job.batch)
    step = step_of(model)
    batches = {kind: prefetch(loader, depth=depth) for kind, depth in DEPTHS.items()}
    for _ in range(EPOCHS):
        for each in batches.values():
            for images, labels in each:
                step(images, labels)
                if limit.is_over():
                    break
    return {kind: {**dataclasses.asdict(each.report()), "told": str(each.report())} for kind, each in batches.items()}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
