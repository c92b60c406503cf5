"""``python -m bench spaces``: times hundreds of configurations of every pass, once, for searches to be replayed on.

For each pass: the defaults, the starts that are known from other devices, and many drawn evenly; then the neighbours of
the best and of the first starts, and the best again. It may be killed at any moment: the same command goes on from
there. The table, ``bench/spaces/<device>-<layout>.json.xz``, is written after every pass.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.cases import CPU_LAYERS
from bench.spaces.comparisons import SpaceComparisons
from bench.spaces.journal import SpaceJournal
from bench.spaces.measured_spaces import FOLDER, MeasuredPass, MeasuredSpaces, table_path, write_spaces
from bench.spaces.starts import KnownStarts, known_starts
from dwconv.commands.command_line import ArgumentParser, run, whole, writable_folder
from dwconv.measure.limits.limits import with_limits
from dwconv.measure.runner import Workers
from dwconv.measure.stamp import now
from dwconv.problems.target import CpuTarget, cpu_target
from dwconv.problems.workload import LAYOUTS, PASSES, Layout, Workload
from dwconv.schedules.space import Config
from dwconv.system import versions
from dwconv.tuner.search.spaces import SpaceUnion
from dwconv.tuner.search.unvisited import Unvisited

BESTS, FIRST_STARTS = 3, 2
"""Configurations whose neighbours are timed, too."""
FINALISTS = 26
"""The fastest, which are timed again."""
READINGS = 3
"""Times that each of them is timed."""


def main(argv: Sequence[str]) -> int:
    return run(_spaces, list(argv))


def _spaces(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench spaces", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument("--layout", choices=LAYOUTS, default="nhwc", help="default nhwc")
    parser.add_argument("--random", type=whole, default=600, metavar="N", help="drawn configurations, default 600")
    parser.add_argument("--seed", type=int, default=0, help="of the draws, default 0")
    parser.add_argument("--first", type=whole, metavar="N", help="only the first N passes")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no pass begins after, default: without end")
    parser.add_argument(
        "--logs",
        type=writable_folder,
        default="bench/logs",
        help="folder for what is known so far, default bench/logs",
    )
    parser.add_argument(
        "--out", type=writable_folder, default=str(FOLDER), help=f"folder for the table, default {FOLDER}"
    )
    arguments = parser.parse_args(argv)
    ends_s = time.monotonic() + 60 * arguments.minutes
    target = with_limits(cpu_target())
    chosen = list(in_turn(arguments.layout))[: arguments.first]
    survey = Survey(
        target=target,
        seed=arguments.seed,
        random=arguments.random,
        journal=SpaceJournal(arguments.logs / f"{target.device}-spaces-{arguments.layout}.jsonl"),
        starts=known_starts(chosen, target, path=arguments.logs / f"{target.device}-starts-{arguments.layout}.json"),
    )
    path = table_path(target.device, layout=arguments.layout, folder=arguments.out)
    with Workers(target, jobs=os.cpu_count() or 1) as workers:
        for number, workload in enumerate(chosen, 1):
            if time.monotonic() > ends_s:
                print(f"time is up, {len(chosen) - number + 1} passes are left: run the same command to continue")
                break
            began_s = time.monotonic()
            survey.measure(workload, workers)
            write_spaces(survey.table(chosen[:number]), path)
            print(
                f"{workload.key}: {len(survey.journal.us_of(workload))} configurations, "
                f"{time.monotonic() - began_s:.0f} s, {path.stat().st_size} bytes in {path}",
                flush=True,
            )
    return 0


def in_turn(layout: Layout) -> Iterable[Workload]:
    """The passes of all layers, one of each layer before the next of any."""
    for turn in range(len(PASSES)):
        for number, layer in enumerate(CPU_LAYERS):
            yield list(layer.workloads(dtype="float32", layout=layout))[(number + turn) % len(PASSES)]


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Which configurations are measured, and what is known of them."""

    target: CpuTarget
    seed: int
    random: int
    """Configurations that are drawn."""
    journal: SpaceJournal
    starts: dict[str, KnownStarts]
    """By the workload's key."""

    def measure(self, workload: Workload, workers: Workers) -> None:
        """All that is not measured yet."""
        spaces = SpaceUnion.of(workload, self.target)
        listed = self.starts[workload.key]
        at_first = dict.fromkeys([*spaces.defaults, *listed.tuned, *listed.untuned, *self._drawn(workload)])
        self._time(workload, workers, list(at_first), readings=1)
        bests = [config for config in self._bests(workload, readings=1) if config in at_first]
        centres = [*bests[:BESTS], *listed.tuned[:FIRST_STARTS], *listed.untuned[:FIRST_STARTS]]
        near = dict.fromkeys(near for centre in centres for near in spaces.neighbours(centre))
        self._time(workload, workers, list(near), readings=1)
        for readings in range(2, READINGS + 1):
            finalists = self._bests(workload, readings=readings - 1)[:FINALISTS]
            self._time(workload, workers, finalists, readings=readings)

    def table(self, workloads: Iterable[Workload]) -> MeasuredSpaces:
        """What is known of ``workloads``."""
        return MeasuredSpaces(
            target=self.target,
            versions=versions.installed(),
            created=now(),
            passes=tuple(
                MeasuredPass(
                    workload=workload,
                    us=self.journal.us_of(workload),
                    drawn=tuple(self._drawn(workload)),
                    starts=self.starts[workload.key].tuned,
                    untuned_starts=self.starts[workload.key].untuned,
                )
                for workload in workloads
            ),
        )

    def _drawn(self, workload: Workload) -> list[Config]:
        return Unvisited(SpaceUnion.of(workload, self.target), seed=self.seed).draw(self.random)

    def _time(self, workload: Workload, workers: Workers, configs: Sequence[Config], *, readings: int) -> None:
        """Time those that were in fewer comparisons than ``readings``."""
        comparisons = self.journal.comparisons_of(workload)
        wanted = [config for config in configs if comparisons.get(config, 0) < readings]
        if wanted:
            reference = SpaceUnion.of(workload, self.target).defaults[0]
            for outcomes in SpaceComparisons(workers, workload=workload, reference=reference).run(wanted):
                self.journal.add(workload, outcomes)

    def _bests(self, workload: Workload, *, readings: int) -> list[Config]:
        """Those that worked, the fastest by their first ``readings`` first."""
        us = self.journal.us_of(workload, readings=readings)
        worked = [(time, str(config), config) for config, time in us.items() if time is not None]
        return [config for _, _, config in sorted(worked, key=lambda each: each[:2])]
