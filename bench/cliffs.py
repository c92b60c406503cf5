"""``python -m bench cliffs``: awkward shapes against the nearest even one, each tuned for the same few seconds.

The speed of a shape is its share of the limit: the least time that its bytes or its multiplications, whichever take
longer, need on this machine, over the time it took. So a shape may be as slow as its traffic and arithmetic demand, but
not slower because of a rest that fills no vector or tile. Even shapes fill them: channels in 16s, sizes in 7s, kernels
of 3×3 and 7×7. Large kernels are held against 7×7, where arithmetic begins to count; a row or column of seven taps
against 3×3, which has about as many and is bound by traffic as they are. All of them fit the last-level cache. The two
of a pair are timed in turns.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.cases import same_padding
from bench.results import add_out_argument, write_results
from dwconv import native
from dwconv.commands.command_line import ArgumentParser, from_0, run
from dwconv.kernels.cache import build_cached
from dwconv.kernels.kernel import Kernel
from dwconv.measure.clock.timing import FINAL, CpuClock, time_in_turns
from dwconv.measure.limits.limits import with_limits
from dwconv.measure.runner import Workers
from dwconv.problems.operands import operands
from dwconv.problems.target import CpuTarget, cpu_target
from dwconv.problems.workload import LAYOUTS, PASSES, Layout, Pair, Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.tuner.search.loop import tune_workload
from dwconv.tuner.search.runners import RunnerChoice
from dwconv.tuner.search.search_result import Budget

GOAL = 0.8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """A layer at batch 8 with 'same' padding."""

    channels: int
    size: int
    kernel: Pair = (3, 3)

    def __str__(self) -> str:
        return f"{self.channels}×{self.size}² k{self.kernel[0]}×{self.kernel[1]}"

    def workloads(self, *, layout: Layout) -> Iterator[Workload]:
        """Its three passes."""
        for pass_ in PASSES:
            yield Workload(
                pass_=pass_, batch=8, channels=self.channels, input_size=(self.size, self.size), kernel=self.kernel,
                padding=same_padding(self.kernel), layout=layout,
            )  # fmt: skip


PAIRS = (
    *((Shape(channels=odd, size=size), Shape(channels=even, size=size))
      for odd, even, size in ((58, 64, 28), (116, 112, 14), (24, 32, 56))),
    *((Shape(channels=channels, size=odd), Shape(channels=channels, size=odd + 1))
      for channels, odd in ((192, 27), (96, 55), (576, 13))),
    *((Shape(channels=128, size=28, kernel=odd), Shape(channels=128, size=28, kernel=even))
      for odd, even in (((1, 7), (3, 3)), ((7, 1), (3, 3)), ((9, 9), (7, 7)), ((11, 11), (7, 7)), ((13, 13), (7, 7)))),
)  # fmt: skip
"""The awkward shape first."""


def main(argv: Sequence[str]) -> int:
    return run(_cliffs, list(argv))


def _cliffs(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench cliffs", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument("--layout", choices=LAYOUTS, default="nhwc", help="default nhwc")
    parser.add_argument("--seconds", type=from_0, default=5, help="to tune a pass that is untuned, default 5; 0: none")
    parser.add_argument("--only", default="", metavar="TEXT", help="only pairs and passes whose line has this")
    parser.add_argument("--tune-only", action="store_true", help="do not measure what is known")
    parser.add_argument("--log", type=Path, help="tuning log, default bench/logs/cliffs-<device>.jsonl")
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    target = with_limits(cpu_target())
    log = TuningLog(arguments.log or Path("bench/logs") / f"cliffs-{target.device}.jsonl")
    pairs = [
        (f"{odd!s:16} {even!s:16} {pair[0].pass_:6}", *pair)
        for odd, even in PAIRS
        for pair in zip(odd.workloads(layout=arguments.layout), even.workloads(layout=arguments.layout), strict=True)
    ]
    pairs = [pair for pair in pairs if arguments.only in pair[0]]
    if arguments.seconds:
        _tune([workload for _, *both in pairs for workload in both], target, log=log, seconds=arguments.seconds)
    if arguments.tune_only:
        return 0
    native.native()  # compiled here if need be: it is part of what is timed
    known = Database.load([log.path])
    rows: list[dict[str, Any]] = []
    print(
        f"{'shape':16} {'even':16} {'pass':6} {'µs':>8} {'even':>8} {'% limit':>8} {'even':>5} {'ratio':>6}", flush=True
    )
    for name, odd, even in pairs:
        bests = [known.best(workload, target.device) for workload in (odd, even)]
        rows.append({"name": " ".join(name.split()), **_compared([best for best in bests if best], target)})
        print(f"{name} {_figures(rows[-1])}", flush=True)
    below = [row for row in rows if (row["ratio"] or 0) < GOAL]
    print(f"\nat least {GOAL:.0%} of the speed of the even shape: {len(rows) - len(below)} of {len(rows)}")
    write_results(f"cliffs-{arguments.layout}", target=target, rows=rows, folder=arguments.out, goal=GOAL)
    return 0


def _tune(workloads: Sequence[Workload], target: CpuTarget, *, log: TuningLog, seconds: float) -> None:
    """Tune every workload that the log does not have, once."""
    known = Database.load([log.path])
    untuned = [workload for workload in dict.fromkeys(workloads) if known.best(workload, target.device) is None]
    with Workers(target, jobs=os.cpu_count() or 1) as workers:
        budget, runner = Budget(trials=None, seconds=seconds, patience=None), RunnerChoice(workers=workers)
        for workload in untuned:
            tune_workload(workload, target, log=log, budget=budget, runner=runner)


def _compared(bests: Sequence[TuningRecord], target: CpuTarget) -> dict[str, Any]:
    """Microseconds and shares of the limit of the awkward shape and the even one, and the ratio of the shares."""
    if len(bests) < 2 or target.limits is None:
        return {"ratio": None}
    calls = {}
    for name, best in zip(("odd", "even"), bests, strict=True):
        kernel = Kernel.load(build_cached(Candidate(best.workload, best.config), target))
        calls[name] = partial(kernel, *operands(best.workload, data="normal", seed=0))
    taken = time_in_turns(calls, clock=CpuClock(), effort=FINAL)
    us = [measured.median_us for measured in taken.values()]
    limits_us = [target.limits.limit_us(bytes_moved=best.workload.bytes, flops=best.workload.flops) for best in bests]
    shares = [limit_us / each_us for limit_us, each_us in zip(limits_us, us, strict=True)]
    return {
        "us": us,
        "spread_us": [measured.spread_us for measured in taken.values()],
        "percent_of_limit": [100 * share for share in shares],
        "ratio": shares[0] / shares[1],
        "contention": max(measured.contention for measured in taken.values()),
        "configs": [best.config.to_dict() for best in bests],
    }


def _figures(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return "untuned, or no candidate worked in the time given"
    (us, even_us), (percent, even_percent) = row["us"], row["percent_of_limit"]
    missed = "" if row["ratio"] >= GOAL else f"  below {GOAL}"
    return f"{us:8.1f} {even_us:8.1f} {percent:8.0f} {even_percent:5.0f} {row['ratio']:6.2f}{missed}"
