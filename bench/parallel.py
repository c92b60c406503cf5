"""``python -m bench parallel``: ResNets as pipelines on 2 to 4 processes, against data parallelism and the simulator.

On links of several rates, steps of all variants are timed in turns. A step begins on all ranks together, and its time
is the slowest rank's, without the optimizer's. Beside each stands what the simulator says, by the link as measured and
by the times of layers that are measured on all ranks at once, so that they share the memory's bandwidth as they do in a
step. Data parallelism runs as it is in PyTorch, in the way that ``data_parallel`` chooses, and as it is conventional:
one all-reduce after the backward pass. A mark stands at the form that ``plan`` would take.

Where steps take seconds, as over a slow link, each form has three steps at least, after one to warm up.
"""

from __future__ import annotations

import functools
import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import torch

from bench.links import LOOPBACK, add_rates_argument, in_time, name_of, rough_step_s, run_ranks, why_not
from bench.models import RESNETS
from bench.parallel_rank import (
    CHOICE_SHARE,
    CHOSEN,
    COSTS_SHARE,
    DATA_PARALLELISM,
    LEAST_ROUNDS,
    STAGES,
    ParallelCase,
    ParallelJob,
)
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0
from dwconv.errors import DwconvError, InvalidChoice, WorkerDied, WorkerTimeout
from dwconv.parallel.data.ways_to_try import gradient_bytes
from dwconv.parallel.planning.compare import SURELY
from dwconv.problems.target import cpu_target

_CIFAR_10: dict[str, Any] = {"images": "CIFAR-10 (3×32²)", "classes": 10, "size": 32}
_CIFAR_100: dict[str, Any] = {"images": "CIFAR-100 (3×32²)", "classes": 100, "size": 32}
_CALTECH: dict[str, Any] = {"images": "Caltech-101 (3×96², scaled from 224²)", "classes": 101, "size": 96}
CASES = (
    *(ParallelCase(network=network, world=2, **images) for images in (_CIFAR_10, _CALTECH) for network in RESNETS),
    *(
        ParallelCase(network="ResNet-18", world=3, batch=12, microbatches=6, **images)
        for images in (_CIFAR_10, _CALTECH)
    ),
    *(ParallelCase(network="ResNet-18", world=4, microbatches=8, **images) for images in (_CIFAR_10, _CALTECH)),
    *(ParallelCase(network=network, world=4, microbatches=8, **_CIFAR_10) for network in RESNETS[1:]),
    *(ParallelCase(network=network, world=2, **_CIFAR_100) for network in RESNETS),
)
"""CIFAR-100 last: but for the last layer it is CIFAR-10, and time may be short."""
METHOD = {"ResNet-18": 1.47, "ResNet-34": 1.39, "ResNet-50": 2.44}
"""The method's own figures: how many times as fast as conventional data parallelism its layer-wise pipelines were."""


# -- the command -------------------------------------------------------------------------------------------------------


_START_S = 10.0
_BESIDE_S = 300.0
"""Beside its share, until a case counts as one that hangs: its ranks start, and end once its share is over."""


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench parallel", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument(
        "--seconds", type=from_0, default=2400, help="for all of it, default 2400; cases that do not fit are left out"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains this")
    add_rates_argument(parser)
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    cases = [case for case in CASES if arguments.only in case.name]
    if not cases:
        raise InvalidChoice(f"--only {arguments.only} is in no case; one is {CASES[0].name}")
    jobs = [(case, rate) for case in cases for rate in arguments.rates]
    rows: list[dict[str, Any]] = []
    left_out = [_named(*job) for job in jobs]
    print(_HEAD, flush=True)
    errors: list[DwconvError] = []
    for job, seconds in in_time(jobs, seconds=arguments.seconds, least_s=_least_s, kind=lambda job: job[1]):
        try:
            found = measured(*job, seconds=seconds)
        except (WorkerDied, WorkerTimeout) as error:  # of this one; the others are measured
            errors.append(error)
            found = [{**_about(*job), "failed": str(error)}]
        rows += found
        left_out.remove(_named(*job))
        print("\n".join(map(_line, found)), flush=True)
    if not rows:
        needed_s = math.ceil(min(map(_least_s, jobs)))
        raise InvalidChoice(f"--seconds {arguments.seconds:g} is too short for a case; give {needed_s} or more")
    if left_out:
        print(f"left out, since {arguments.seconds:g} s were over: {', '.join(left_out)}")
    print(_summed_up([row for row in rows if "failed" not in row]))
    facts = {"left_out": left_out, "threads_a_rank": 1}
    write_results("parallel", target=cpu_target(), rows=rows, folder=arguments.out, **facts)
    if errors:
        raise errors[0]
    return 0


def _named(case: ParallelCase, rate: str) -> str:
    return f"{case.name} {name_of(rate)}"


def _about(case: ParallelCase, rate: str) -> dict[str, Any]:
    return {"network": case.network, "images": case.images, "world": case.world, "rate": rate}


@functools.cache
def _gradient_bytes(case: ParallelCase) -> int:
    with torch.device("meta"):
        return gradient_bytes(case.model())


def _least_s(job: tuple[ParallelCase, str]) -> float:
    """What a case needs: the least rounds, of which some forms send all gradients; and as long for the rest."""
    case, rate = job
    computes_s, sends_s = rough_step_s(_gradient_bytes(case), world=case.world, rate=rate)
    forms = 3 + len(STAGES[case.world])
    round_s = 3 * sends_s + forms * computes_s
    return _START_S + (1 + LEAST_ROUNDS) * round_s / (1 - COSTS_SHARE - CHOICE_SHARE)


def measured(case: ParallelCase, rate: str, *, seconds: float) -> list[dict[str, Any]]:
    """The rows of all variants, plain data parallelism first, by ranks of one thread each; or why that link cannot be
    made. Raises WorkerDied and WorkerTimeout."""
    about = _about(case, rate)
    if rate != LOOPBACK and why_not():
        return [{**about, "failed": why_not()}]
    with tempfile.TemporaryDirectory() as name:
        folder, job = Path(name), ParallelJob(case=case, seconds=seconds, ends_at_s=time.time() + seconds)
        (folder / "job.json").write_bytes(msgspec.json.encode(job))
        run_ranks(
            ["-m", "bench.parallel_rank", name],
            name=_named(case, rate),
            world=case.world,
            rate=rate,
            timeout_s=_BESIDE_S + seconds,
        )
        rows = msgspec.json.decode((folder / "rows.json").read_bytes(), type=list[dict[str, Any]])
        return [{**about, **row} for row in rows]


_PLANNED = "  ← plan"
_HEAD = (
    f"{'network':10} {'images':38} {'ranks':>5} {'link':11} {'variant':26} {'ms':>8} {'spread':>7} {'× DP':>5} "
    f"{'× conv.':>7} {'simulated':>9} {'error':>6}  way"
)


def _line(row: dict[str, Any]) -> str:
    about = f"{row['network']:10} {row['images']:38} {row['world']:5} {name_of(row['rate']):11}"
    if "failed" in row:
        return f"{about} {row['failed']}"
    return (
        f"{about} {row['name']:26} {row['median_ms']:8.1f} {row['spread_ms']:7.1f} "
        f"{row['times_as_fast_as_data_parallelism']:5.2f} {row['times_as_fast_as_conventional']:7.2f} "
        f"{row['predicted_ms']:9.1f} {row['error']:+6.0%}  {row['way']}{_PLANNED if row['planned'] else ''}"
    )


def _summed_up(rows: Sequence[dict[str, Any]]) -> str:
    """What ``plan`` takes; the error of the simulator where each rank has a core; and when a pipeline pays."""
    lines = [""]
    for row in rows:
        if row["planned"]:
            lines.append(
                f"{row['network']}, {row['images']}, {row['world']} ranks, {name_of(row['rate'])}: plan takes "
                f"{row['name']}, {row['times_as_fast_as_conventional']:.2f} × as fast as all-reduce after the backward "
                f"pass (the method: {METHOD[row['network']]}), {row['times_as_fast_as_data_parallelism']:.2f} × "
                "PyTorch's default"
            )
    for rate in dict.fromkeys(row["rate"] for row in rows):
        for kind, is_plain in (("data parallelism", True), ("pipelines", False)):
            of_2 = [row for row in rows if (row["world"], row["rate"], bool(row["way"])) == (2, rate, is_plain)]
            if of_2:
                errors = [abs(row["error"]) for row in of_2]
                found = f"mean error {statistics.mean(errors):.0%}, at most {max(errors):.0%}"
                lines.append(f"the simulator on 2 ranks, {name_of(rate)}, {kind}: {found}")
    if any(row["world"] > 2 for row in rows):
        lines.append("3 and 4 ranks: where there are fewer cores than ranks, their times say little")
    for each in cases_over_links(rows):
        lines.append(
            f"{each.network}, {each.images}, {each.world} ranks: a pipeline breaks even at "
            f"{each.break_even('median_ms')} Gbit/s as measured, {each.break_even('predicted_ms')} as simulated"
        )
    return "\n".join(lines)


# -- when a pipeline pays ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class OverLinks:
    """A case over several links."""

    network: str
    images: str
    world: int
    rows: Mapping[str, Sequence[dict[str, Any]]]
    """Of its forms, by rate."""

    def times(self, rate: str, time: str) -> float:
        """How many times as fast as data parallelism by PyTorch's default the best pipeline is, by this time."""
        of_forms = {row["name"]: row[time] for row in self.rows[rate]}
        pipelines = [row[time] for row in self.rows[rate] if not row["way"]]
        return of_forms[DATA_PARALLELISM] / min(pipelines)

    def break_even(self, time: str) -> str:
        """The bandwidth in Gbit/s at which both are as fast, between links as they were measured: where the logarithm
        of the ratio is 0 on a straight line over that of the bandwidth. Outside of them, on which side."""
        points = sorted((8 * self.rows[rate][0]["link_gb_s"], math.log(self.times(rate, time))) for rate in self.rows)
        for (slower, above), (faster, below) in reversed([*pairwise(points)]):
            if above > 0 >= below:
                return f"{slower * (faster / slower) ** (above / (above - below)):.2g}"
        return f"> {points[-1][0]:.2g}" if points[-1][1] > 0 else f"< {points[0][0]:.2g}"


def taken_by_plan(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of the forms of a case over one link, what ``plan`` takes by their simulated steps: the best pipeline if it is
    surely faster than data parallelism, else the way chosen for that."""
    (chosen,) = (row for row in rows if row["name"] == CHOSEN)
    pipeline = min((row for row in rows if not row["way"]), key=_predicted_ms)
    return pipeline if SURELY * _predicted_ms(pipeline) < _predicted_ms(chosen) else chosen


def _predicted_ms(row: dict[str, Any]) -> float:
    return row["predicted_ms"]


def cases_over_links(rows: Sequence[dict[str, Any]]) -> list[OverLinks]:
    """Those that were measured over two links at least."""
    found: dict[tuple[str, str, int], dict[str, list[dict[str, Any]]]] = {}
    for row in rows:
        by_rate = found.setdefault((row["network"], row["images"], row["world"]), {})
        by_rate.setdefault(row["rate"], []).append(row)
    return [
        OverLinks(network=network, images=images, world=world, rows=by_rate)
        for (network, images, world), by_rate in found.items()
        if len(by_rate) > 1
    ]
