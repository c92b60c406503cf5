"""``python -m bench parallel``: ResNets as pipelines on 2 and 4 processes, against data parallelism and the simulator.

Each schedule's losses are compared with those of one process that takes the same microbatches. Steps of all variants
are timed in turns. Beside each stands what the simulator says, by the times of layers under the same conditions.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.models import RESNETS
from bench.parallel.ranks import IMAGE_SETS, Case, Finding, Job, run_ranks
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0
from dwconv.errors import InvalidChoice
from dwconv.problems.target import cpu_target

_CIFAR_10, _CIFAR_100, _CALTECH = IMAGE_SETS
CASES = (
    *(Case(network=network, images=images, world=2, batch=16, microbatches=4)
      for images in (_CIFAR_10, _CALTECH) for network in RESNETS),
    *(Case(network="ResNet-18", images=images, world=4, batch=16, microbatches=8) for images in (_CIFAR_10, _CALTECH)),
    *(Case(network=network, images=_CIFAR_100, world=2, batch=16, microbatches=4) for network in RESNETS),
)  # fmt: skip
"""CIFAR-100 last: but for the last layer it is CIFAR-10, and time may be short."""
_LEAST_S = 8.0
"""A case is not begun with less than this left, or less than another took."""
_BESIDE_S = 300.0
"""Of a case, for what its own time does not hold: the start, and steps whose losses are compared."""


def command(argv: Sequence[str] | None) -> int:
    arguments = _parser().parse_args(argv)
    cases = [case for case in CASES if arguments.only in case.name]
    if not cases:
        raise InvalidChoice(f"--only {arguments.only} is in no case; one is {CASES[0].name}")
    until_s = time.monotonic() + arguments.seconds
    rows: list[dict[str, Any]] = []
    left_out = []
    print(_HEAD, flush=True)
    longest_s = _LEAST_S
    for number, case in enumerate(cases):
        left_s, started_s = until_s - time.monotonic(), time.monotonic()
        if left_s < longest_s:
            left_out.append(case.name)
            continue
        finding = measured(case, seconds=left_s / (len(cases) - number))
        if finding.variants[0].steps == 1:  # it took as long as it must
            longest_s = max(longest_s, time.monotonic() - started_s)
        for variant in finding.variants:
            rows.append(_row(case, finding, name=variant.name))
            print(_line(rows[-1]), flush=True)
    if not rows:
        raise InvalidChoice(f"--seconds {arguments.seconds:g} is too short for a case; give {2 * _LEAST_S:g} or more")
    if left_out:
        print(f"left out, since {arguments.seconds:g} s were over: {', '.join(left_out)}")
    print(_summed_up(rows))
    facts = {"left_out": left_out, "threads_a_rank": 1}
    write_results("parallel", target=cpu_target(), rows=rows, folder=arguments.out, **facts)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(prog="bench parallel", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument("--seconds", type=from_0, default=600, help="for all of it, default 600; cases that do not fit "
                        "are left out")  # fmt: skip
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains this")
    add_out_argument(parser)
    return parser


def measured(case: Case, *, seconds: float) -> Finding:
    """The finding of all ranks together, each a process with one thread. Raises WorkerDied and WorkerTimeout."""
    with tempfile.TemporaryDirectory() as name:
        folder, job = Path(name), Job(case=case, seconds=seconds, ends_at_s=time.time() + seconds)
        (folder / "job.json").write_bytes(msgspec.json.encode(job))
        command = ["bench.parallel.ranks", name]
        run_ranks(command, name=case.name, world=case.world, timeout_s=seconds + _BESIDE_S, OMP_NUM_THREADS="1")
        return msgspec.json.decode((folder / "finding.json").read_bytes(), type=Finding)


# -- what is printed -------------------------------------------------------------------------------------------------

_HEAD = (
    f"{'network':10} {'images':38} {'ranks':>5} {'variant':26} {'ms':>8} {'spread':>7} {'× DP':>5} "
    f"{'simulated':>9} {'error':>6} {'loss apart':>10}"
)


def _row(case: Case, finding: Finding, *, name: str) -> dict[str, Any]:
    by_name = {variant.name: variant for variant in finding.variants}
    variant, plain = by_name[name], finding.variants[0]
    return {
        "network": case.network,
        "images": str(case.images),
        "world": case.world,
        "batch": case.batch,
        "microbatches": case.microbatches,
        **dataclasses.asdict(variant),
        "error": variant.error,
        "times_as_fast_as_data_parallelism": plain.median_ms / variant.median_ms,
        "link_gb_s": finding.link_gb_s,
        "latency_us": finding.latency_us,
        "layers_ms": sum(layer.forward_us + layer.dgrad_us + layer.wgrad_us for layer in finding.layers) / 1e3,
        # Ranks that share a core take time from one another.
        **({"contention": finding.contention} if case.world <= (os.cpu_count() or 1) else {}),
    }


def _line(row: dict[str, Any]) -> str:
    apart = "" if row["loss_difference"] is None else f"{row['loss_difference']:.0e}"
    return (
        f"{row['network']:10} {row['images']:38} {row['world']:5} {row['name']:26} {row['median_ms']:8.1f} "
        f"{row['spread_ms']:7.1f} {row['times_as_fast_as_data_parallelism']:5.2f} {row['predicted_ms']:9.1f} "
        f"{row['error']:+6.0%} {apart:>10}"
    )


def _summed_up(rows: Sequence[dict[str, Any]]) -> str:
    """The error of the simulator where each rank has a core, and how far losses are apart."""
    apart = max((row["loss_difference"] for row in rows if row["loss_difference"] is not None), default=0.0)
    lines = ["", f"largest difference from the loss of one process with the same microbatches: {apart:.1e}"]
    of_2 = [row for row in rows if row["world"] == 2]
    for kind, is_plain in (("data parallelism", True), ("pipelines", False)):
        errors = [abs(row["error"]) for row in of_2 if (row["name"] == "data parallelism") == is_plain]
        if errors:
            mean = sum(errors) / len(errors)
            lines.append(f"the simulator on 2 ranks, {kind}: mean error {mean:.0%}, at most {max(errors):.0%}")
    if any(row["world"] > 2 for row in rows):
        lines.append("4 ranks share 2 cores or more: where there are fewer cores than ranks, their times say little")
    return "\n".join(lines)
