"""``python -m bench untuned``: untuned layers: what is predicted and what a race finds, against a search.

Layers are drawn from those of well-known networks, with other batch sizes, channels and maps; passes take turns. This
device's own records are left out: configurations and expectations come from the records of other devices. A search of
some seconds is the measure. At the end the configuration that is predicted, the winner of the race and the winner of
the search are verified and timed side by side, in turns with PyTorch's op.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0, whole, whole_from_0
from dwconv.dispatch.advantage import beats_pytorch, is_safe
from dwconv.errors import say
from dwconv.measure.comparisons import Comparisons
from dwconv.measure.limits import with_limits
from dwconv.measure.runner import LocalRunner, WorkerProcesses
from dwconv.problems.layer_files import Layer, shipped_networks
from dwconv.problems.target import CpuTarget, cpu_target
from dwconv.problems.workload import PASSES, Layout, Pass, Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.tuner.expected_gain import MOST_STARTS
from dwconv.tuner.search.search_loop import SearchPlan, tune_workload
from dwconv.tuner.search.search_result import Budget
from dwconv.untuned.gain import expected
from dwconv.untuned.make_portfolio import make_portfolio
from dwconv.untuned.portfolio_file import Portfolio
from dwconv.untuned.starts import starts

_MOST_FLOPS = 4e9
"""A pass of more would take longer than a benchmark of many has time for."""
_MOST_BATCH = 32
_NEAR = (0.6, 1.5)
"""Shares of a layer's own map and channels that a drawn one has."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """A pass of a drawn layer, and the network whose layer it is like."""

    network: str
    workload: Workload

    def __str__(self) -> str:
        return f"{self.network}: {self.workload.key}"


def draws(networks: dict[str, list[Layer]], *, count: int, seed: int) -> list[Draw]:
    """``count`` passes of layers drawn evenly from all of ``networks``: any batch from 1 to 32, maps and channels from
    0.6 to 1.5 times the layer's own, maps odd, a quarter of the channels odd too. Passes and layouts take turns."""
    rng = random.Random(seed)
    listed = [(network, layer) for network, layers in sorted(networks.items()) for layer in layers]
    return [_draw(rng, listed, pass_=PASSES[turn % len(PASSES)]) for turn in range(count)]


def _draw(rng: random.Random, listed: Sequence[tuple[str, Layer]], *, pass_: Pass) -> Draw:
    while True:
        network, layer = rng.choice(listed)
        layout: Layout = "nchw" if layer.input_size[-2] == 1 else rng.choice(("nhwc", "nchw"))
        changed = Layer(
            channels=_channels(rng, layer.channels),
            input_size=tuple(_odd(rng, size) for size in layer.input_size),
            kernel=layer.kernel,
            stride=layer.stride,
            padding=layer.padding,
            count=1,
            dilation=layer.dilation,
        )
        batch = rng.randint(1, _MOST_BATCH)
        workload = changed.workload(pass_, batch=batch, dtype="float32", layout=layout, bias=False)
        if workload.flops <= _MOST_FLOPS:
            return Draw(network=network, workload=workload)


def _odd(rng: random.Random, size: int) -> int:
    """An odd number near ``size``; 1 stays."""
    return 1 if size == 1 else round(size * rng.uniform(*_NEAR)) | 1


def _channels(rng: random.Random, channels: int) -> int:
    """Near ``channels``: a multiple of 8, or in a quarter of the draws an odd number."""
    near = channels * rng.uniform(*_NEAR)
    return round(near) | 1 if rng.random() < 0.25 else max(8, round(near / 8) * 8)


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench untuned", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument("--draws", type=whole, default=100, metavar="N", help="passes to draw, default 100")
    parser.add_argument("--seed", type=whole_from_0, default=14, help="of the draws, default 14")
    parser.add_argument("--seconds", type=from_0, default=20, help="of a search, default 20")
    parser.add_argument("--first", type=whole, metavar="N", help="only the first N draws")
    parser.add_argument(
        "--logs", type=Path, default=Path("bench/logs"), help="folder for the log of the searches, default bench/logs"
    )
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    target = with_limits(cpu_target())
    known = _without(Database.usual(), target.device)
    say(f"making a portfolio of {len(known)} records of other devices: a minute or two")
    networks = shipped_networks()
    held_out = KnownElsewhere(records=known, portfolio=make_portfolio(known, networks))
    chosen = draws(networks, count=arguments.draws, seed=arguments.seed)[: arguments.first]
    rows: list[dict[str, Any]] = []
    with WorkerProcesses(target, jobs=os.cpu_count() or 1) as workers:
        print(_HEAD, flush=True)
        for draw in chosen:
            best = _searched(draw.workload, target, arguments, workers)
            if best is not None:
                row = _row(draw, best, target, held_out, workers)
                rows.append(row)
                print(_line(row), flush=True)
    print(summary(rows))
    facts = {"seed": arguments.seed, "records_of": held_out.portfolio.devices}
    write_results("untuned", target=target, rows=rows, folder=arguments.out, **facts)
    return 0


@dataclass(frozen=True, kw_only=True)
class KnownElsewhere:
    """What is known without this device."""

    records: list[TuningRecord]
    portfolio: Portfolio


def _without(database: Database, device: str) -> list[TuningRecord]:
    return [record for record in database if record.device != device]


def _searched(
    workload: Workload, target: CpuTarget, arguments: argparse.Namespace, workers: WorkerProcesses
) -> TuningRecord | None:
    """The best of a search, from its log if it is known there; None if nothing worked."""
    log = TuningLog(arguments.logs / f"{target.device}-untuned.jsonl")
    known = [record for record in log.load().records if record.workload == workload and record.confirmed]
    if known:
        return min(known, key=lambda record: record.rank)
    budget = Budget(trials=None, seconds=arguments.seconds, patience=None)
    return tune_workload(workload, target, log=log, budget=budget, plan=SearchPlan(workers=workers)).best


def _row(
    draw: Draw, searched: TuningRecord, target: CpuTarget, held_out: KnownElsewhere, workers: WorkerProcesses
) -> dict[str, Any]:
    """The winner of the search, what is predicted, and the winner of the race, timed side by side."""
    workload = draw.workload
    guess = expected(workload, target, held_out.records, portfolio=held_out.portfolio)
    listed = [start.config for start in starts(workload, target, held_out.records)]
    racers = [Candidate(workload, config) for config in listed[:MOST_STARTS]]
    (raced,) = Comparisons(workers, is_worth=lambda record: beats_pytorch(record, target)).run(
        partial(next, iter([racers]), None)
    )
    winner = min((record for record in raced if record.measurement), key=lambda record: record.rank)
    with LocalRunner(workload, target, workers=workers) as runner:
        finalists = dict.fromkeys([searched.config, listed[0], winner.config])
        finals = list(runner.confirm([Candidate(workload, config) for config in finalists]))
    us = {record.config: record.measurement.median_us for record in finals if record.measurement}
    chosen = {"search": searched.config, "predicted": listed[0], "race": winner.config}
    theirs_us = [other[1].median_us for record in finals if (other := record.alternative)]
    is_claimed = guess is not None and is_safe(guess, workload, target, sweeps=False)
    return {
        "network": draw.network,
        "workload": workload.key,
        "pytorch_us": min(theirs_us),
        **{f"{name}_us": us.get(config) for name, config in chosen.items()},
        "raced": len(racers),
        "expected": {"gain": guess.gain, "at_least": guess.at_least} if guess else None,
        "runs": {
            "predicted": "dwconv" if is_claimed else "pytorch",
            "race": "dwconv" if beats_pytorch(winner, target) else "pytorch",
        },
        "configs": {name: config.to_dict() for name, config in chosen.items()},
        "contention": max(record.contention for record in finals),
    }


_HEAD = f"{'network: pass':84} {'PyTorch':>8} {'search':>8} {'predicted':>9} {'race':>8} µs  runs"


def _line(row: dict[str, Any]) -> str:
    name = f"{row['network'].partition('@')[0]}: {row['workload']}"
    us = [row[f"{each}_us"] or math.nan for each in ("pytorch", "search", "predicted", "race")]
    return f"{name:84} {us[0]:8.1f} {us[1]:8.1f} {us[2]:9.1f} {us[3]:8.1f}     {', '.join(row['runs'].values())}"


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Speeds of what is predicted and of what wins the race, against the search and PyTorch's op: of all passes, and of
    those whose kernel runs."""
    whole = [row for row in rows if row["search_us"] and row["predicted_us"] and row["race_us"]]
    lines = ["", f"{'':22} {'search = 1':>10} {'least × PyTorch':>16} {'passes':>7}"]
    for name in ("predicted", "race"):
        ours = [row for row in whole if row["runs"][name] == "dwconv"]
        for said, some in ((name, whole), (f"{name}, if it runs", ours)):
            if some:
                share = statistics.geometric_mean([row["search_us"] / row[f"{name}_us"] for row in some])
                least = min(row["pytorch_us"] / row[f"{name}_us"] for row in some)
                lines.append(f"{said:22} {share:10.3f} {least:16.2f} {len(some):7}")
    return "\n".join(lines)
