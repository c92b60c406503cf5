"""``python -m bench untuned``: layers that nobody tuned for: what is predicted and what a race finds, against a search.

Layers are drawn from those of well-known networks, with other batch sizes, channels and maps; passes take turns. This
device's own records are left out: configurations and expectations come from the records of other devices. A search of
some seconds is the measure. At the end the configuration that is predicted, the winner of the race and the winner of
the search are verified and timed side by side, in turns with PyTorch's op.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.draws import Draw, draws
from bench.results import add_out_argument, write_results
from dwconv.arguments import ArgumentParser, run
from dwconv.dispatch import alternative
from dwconv.layers import shipped_networks
from dwconv.measure.limits import with_limits
from dwconv.measure.runner import LocalRunner, Workers
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.target import CpuTarget, cpu_target
from dwconv.tuner.loop import tune_workload
from dwconv.tuner.result import Budget
from dwconv.tuner.runners import RunnerChoice
from dwconv.untuned.gain import expected
from dwconv.untuned.make import make_portfolio
from dwconv.untuned.portfolio import Portfolio
from dwconv.untuned.starts import starts
from dwconv.workload import Workload

_HEAD = f"{'pass':66} {'PyTorch µs':>10} {'search':>8} {'predicted':>9} {'race':>8} {'at least':>8}  runs"


def main(argv: Sequence[str]) -> int:
    return run(_untuned, list(argv))


def _untuned(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench untuned", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument("--draws", type=int, default=100, metavar="N", help="passes to draw, default 100")
    parser.add_argument("--seed", type=int, default=14, help="of the draws, default 14")
    parser.add_argument("--seconds", type=float, default=20, help="of a search, default 20")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N draws")
    parser.add_argument(
        "--logs", type=Path, default=Path("bench/logs"), help="folder for the log of the searches, default bench/logs"
    )
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    target = with_limits(cpu_target())
    known = _without(Database.usual(), target.device)
    print(f"making a portfolio of {len(known)} records of other devices: a minute or two", file=sys.stderr)
    networks = shipped_networks()
    held_out = Held(records=known, portfolio=make_portfolio(known, networks))
    chosen = draws(networks, count=arguments.draws, seed=arguments.seed)[: arguments.first]
    rows: list[dict[str, Any]] = []
    with Workers(target, jobs=os.cpu_count() or 1) as workers:
        print(_HEAD, flush=True)
        for draw in chosen:
            best = _searched(draw.workload, target, arguments, workers)
            if best is not None:
                row = _row(draw, best, target, held_out, workers)
                rows.append(row)
                print(_line(row), flush=True)
    print(_summary(rows))
    facts = {"seed": arguments.seed, "records_of": held_out.portfolio.devices}
    write_results("untuned", target=target, rows=rows, folder=arguments.out, **facts)
    return 0


@dataclass(frozen=True, kw_only=True)
class Held:
    """What is known without this device."""

    records: list[TuningRecord]
    portfolio: Portfolio


def _without(database: Database, device: str) -> list[TuningRecord]:
    return [record for record in database if record.device != device]


def _searched(
    workload: Workload, target: CpuTarget, arguments: argparse.Namespace, workers: Workers
) -> TuningRecord | None:
    """The best of a search, from its log if it is known there; None if nothing worked."""
    log = TuningLog(arguments.logs / f"{target.device}-untuned.jsonl")
    known = [record for record in log.load().records if record.workload == workload and record.confirmed]
    if known:
        return min(known, key=lambda record: record.rank)
    budget = Budget(trials=None, seconds=arguments.seconds, patience=None)
    return tune_workload(workload, target, log=log, budget=budget, runner=RunnerChoice(workers=workers)).best


def _row(draw: Draw, searched: TuningRecord, target: CpuTarget, held_out: Held, workers: Workers) -> dict[str, Any]:
    """The search's winner, what is predicted, and the race's winner, timed side by side."""
    workload = draw.workload
    guess = expected(workload, target, held_out.records, portfolio=held_out.portfolio)
    listed = [start.config for start in starts(workload, target, held_out.records, portfolio=held_out.portfolio)]
    with LocalRunner(workload, target, workers=workers) as runner:
        raced = list(runner.measure([Candidate(workload, config) for config in listed[:RACERS]]))
        winner = min((record for record in raced if record.measurement), key=lambda record: record.cost)
        finalists = list(dict.fromkeys([searched.config, listed[0], winner.config]))
        confirmed = {
            record.config: record for record in runner.confirm([Candidate(workload, config) for config in finalists])
        }
    us = {config: record.measurement.median_us for config, record in confirmed.items() if record.measurement}
    records = list(confirmed.values())
    theirs = [other[1].median_us for record in records if (other := alternative(record))]
    return {
        "network": draw.network,
        "workload": workload.key,
        "pytorch_us": statistics.median(theirs),
        "search_us": us.get(searched.config),
        "predicted_us": us.get(listed[0]),
        "race_us": us.get(winner.config),
        "raced": len(raced),
        "gain_expected": guess.gain if guess else None,
        "gain_at_least": guess.at_least if guess else None,
        "race_decides": _decides(winner),
        "configs": {
            "search": searched.config.to_dict(), "predicted": listed[0].to_dict(), "race": winner.config.to_dict(),
        },
        "contention": max(record.contention for record in records),
    }  # fmt: skip
