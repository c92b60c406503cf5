"""``python -m bench cliffs``: awkward shapes against the nearest even one, each tuned for the same few seconds.

The speed of a shape is its share of the limit: the least time that its bytes or its multiplications, whichever take
longer, need on this machine, over the time it took. So a shape may be as slow as its traffic and arithmetic demand, but
not slower because of a rest that fills no vector or tile. Even shapes fill them: channels in 16s, sizes in 7s, kernels
of 3×3 and 7×7. Large kernels are held against 7×7, where arithmetic begins to count; a row or column of seven taps
against 3×3, which has about as many and is bound by traffic as they are. All of them fit the last-level cache. The two
of a pair are verified, and timed in turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cpu import best_of, opened, tune
from bench.race import OURS, Race, Races
from bench.results import MachineWatch, add_log_argument, add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0
from dwconv.errors import WorkerCannotStart, WorkerError, one_line
from dwconv.measure.limits import with_limits
from dwconv.problems.target import CpuTarget, cpu_target
from dwconv.problems.workload import LAYOUTS, PASSES, Layout, Pair, Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate

GOAL = 0.8
_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class CliffShape:
    """A layer at batch 8 that keeps the size of its images."""

    channels: int
    size: int
    kernel: Pair = (3, 3)

    def __str__(self) -> str:
        return f"{self.channels}×{self.size}² k{self.kernel[0]}×{self.kernel[1]}"

    def workloads(self, *, layout: Layout) -> Iterator[Workload]:
        """Its three passes."""
        high, wide = self.kernel
        for pass_ in PASSES:
            yield Workload(
                pass_=pass_, batch=_BATCH, channels=self.channels, input_size=(self.size, self.size),
                kernel=self.kernel, padding=((high // 2, high // 2), (wide // 2, wide // 2)), layout=layout,
            )  # fmt: skip


PAIRS = (
    *((CliffShape(channels=odd, size=size), CliffShape(channels=even, size=size))
      for odd, even, size in ((58, 64, 28), (116, 112, 14), (24, 32, 56))),
    *((CliffShape(channels=channels, size=odd), CliffShape(channels=channels, size=odd + 1))
      for channels, odd in ((192, 27), (96, 55), (576, 13))),
    *((CliffShape(channels=128, size=28, kernel=odd), CliffShape(channels=128, size=28, kernel=even))
      for odd, even in (((1, 7), (3, 3)), ((7, 1), (3, 3)), ((9, 9), (7, 7)), ((11, 11), (7, 7)), ((13, 13), (7, 7)))),
)  # fmt: skip
"""The awkward shape first."""
_EVEN = "even"


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench cliffs", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument("--layout", choices=LAYOUTS, default="nhwc", help="default nhwc")
    parser.add_argument("--seconds", type=from_0, default=5, help="to tune a pass that is untuned, default 5; 0: none")
    parser.add_argument("--only", default="", metavar="TEXT", help="only pairs and passes whose line has this")
    add_log_argument(parser)
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    target = cpu_target()
    log, known = opened(arguments.log, target)
    machine, target = MachineWatch(threads=target.threads), with_limits(target)
    pairs = [
        (f"{odd!s:16} {even!s:16} {pair[0].pass_:6}", *pair)
        for odd, even in PAIRS
        for pair in zip(odd.workloads(layout=arguments.layout), even.workloads(layout=arguments.layout), strict=True)
    ]
    pairs = [pair for pair in pairs if arguments.only in pair[0]]
    wanted = dict.fromkeys(workload for _, *both in pairs for workload in both)
    untuned = [workload for workload in wanted if best_of(workload, target, known=known) is None]
    tune(untuned, target, log=log, known=known, seconds=arguments.seconds)
    rows: list[dict[str, Any]] = []
    print(f"{'shape':16} {'even':16} {'pass':6} {'µs':>8} {'even':>8} {'% limit':>8} {'even':>5} {'ratio':>6}")
    with Races(target) as races:
        for name, odd, even in pairs:
            bests = [best_of(workload, target, known=known) for workload in (odd, even)]
            rows.append({"name": " ".join(name.split()), **_compared(bests, target, races)})
            print(f"{name} {_figures(rows[-1])}", flush=True)
    below = [row for row in rows if (row["ratio"] or 0) < GOAL]
    print(f"\nat least {GOAL:.0%} of the speed of the even shape: {len(rows) - len(below)} of {len(rows)}")
    facts = {"goal": GOAL, "machine": machine.facts(rows)}
    write_results(f"cliffs-{arguments.layout}", target=target, rows=rows, folder=arguments.out, **facts)
    return 0


def _compared(bests: Sequence[TuningRecord | None], target: CpuTarget, races: Races) -> dict[str, Any]:
    """Microseconds and shares of the limit of the awkward shape and the even one, and the ratio of the shares."""
    known = [best for best in bests if best is not None]
    if len(known) < len(bests) or target.limits is None:
        return {"ratio": None, "reason": "untuned, or no candidate worked in the time given"}
    odd, even = (Candidate(best.workload, best.config) for best in known)
    try:
        taken = races.ask(Race(candidate=odd, alone=True, beside={_EVEN: even})).times["warm"].measurements
    except WorkerCannotStart:
        raise
    except WorkerError as error:
        return {"ratio": None, "reason": one_line(str(error), most=200)}
    times = [taken[OURS], taken[_EVEN]]
    limits_us = [target.limits.limit_us(bytes_moved=best.workload.bytes, flops=best.workload.flops) for best in known]
    shares = [limit_us / each.median_us for limit_us, each in zip(limits_us, times, strict=True)]
    return {
        "us": [each.median_us for each in times],
        "spread_us": [each.spread_us for each in times],
        "percent_of_limit": [100 * share for share in shares],
        "ratio": shares[0] / shares[1],
        "contention": max(each.contention for each in times),
        "configs": [best.config.to_dict() for best in known],
    }


def _figures(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return str(row["reason"])
    (us, even_us), (percent, even_percent) = row["us"], row["percent_of_limit"]
    missed = "" if row["ratio"] >= GOAL else f"  below {GOAL}"
    return f"{us:8.1f} {even_us:8.1f} {percent:8.0f} {even_percent:5.0f} {row['ratio']:6.2f}{missed}"
