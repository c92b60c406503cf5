"""``python -m bench compile``: how long a CPU candidate takes to build, over random ones of every layer and pass."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Any

from bench.cases import CPU_LAYERS
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, run, whole
from dwconv.errors import BuildError
from dwconv.kernels import build
from dwconv.problems.target import CpuTarget, cpu_target
from dwconv.problems.workload import LAYOUTS, Workload
from dwconv.schedules.template import Candidate
from dwconv.tuner.search.spaces import SpaceUnion

GOAL_MEDIAN_S, GOAL_WORST_S = 0.3, 5.0


def main(argv: Sequence[str]) -> int:
    return run(_compile, list(argv))


def _compile(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench compile", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("--layout", choices=LAYOUTS, default="nhwc", help="default nhwc")
    parser.add_argument("--samples", type=whole, default=10, help="candidates of a layer and pass, default 10")
    parser.add_argument("--first", type=whole, metavar="N", help="only the first N layers")
    parser.add_argument("--only", default="", metavar="TEXT", help="only layers and passes whose line has this")
    parser.add_argument("--seed", type=int, default=0)
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    target = cpu_target()
    rng = random.Random(arguments.seed)
    rows: list[dict[str, Any]] = []
    print(f"{'layer':32} {'pass':6} {'median s':>9} {'worst s':>8}  the slowest", flush=True)
    for layer in CPU_LAYERS[: arguments.first]:
        for workload in layer.workloads(dtype="float32", layout=arguments.layout):
            if arguments.only in f"{layer} {workload.pass_}":
                rows.append({"layer": str(layer), "pass": workload.pass_, **_times(workload, target, arguments, rng)})
                print(_line(rows[-1]), flush=True)
    every = [seconds for row in rows for seconds in row["seconds"]]
    print(
        f"\n{len(every)} candidates: median {statistics.median(every):.2f} s (goal {GOAL_MEDIAN_S}), "
        f"worst {max(every):.2f} s (goal {GOAL_WORST_S:g})"
    )
    write_results(f"compile-{arguments.layout}", target=target, rows=rows, folder=arguments.out)
    return 0


def _times(workload: Workload, target: CpuTarget, arguments: Any, rng: random.Random) -> dict[str, Any]:
    """Build times of some random candidates, one after the other, and the configuration of the slowest."""
    spaces = SpaceUnion.of(workload, target)
    drawn = (spaces.sample(rng) for _ in range(arguments.samples))
    taken: dict[str, float] = {}
    for config in dict.fromkeys(config for config in drawn if config is not None):
        try:
            taken[f"{config.template} {config}"] = build(Candidate(workload, config), target).build_s
        except BuildError as error:
            print(f"{workload.key}: {error}", flush=True)
    return {"seconds": list(taken.values()), "slowest": max(taken, key=lambda config: taken[config], default="")}


def _line(row: dict[str, Any]) -> str:
    seconds = row["seconds"]
    return f"{row['layer']:32} {row['pass']:6} {statistics.median(seconds):9.2f} {max(seconds):8.2f}  {row['slowest']}"
