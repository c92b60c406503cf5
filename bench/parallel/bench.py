"""``python -m bench parallel``: ResNets as pipelines on 2 and 4 processes, against data parallelism and the simulator.

Each schedule's losses are compared with those of one process that takes the same microbatches. Steps of all variants
are timed in turns. Beside each stands what the simulator says, by the times of layers under the same conditions. What
4 and 8 GPUs would give is computed, from the same layer times, made shorter by a factor, and a link: both are options.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.models import RESNETS
from bench.parallel.ranks import IMAGE_SETS, Case, Finding, Job, run_ranks
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0, run
from dwconv.errors import InvalidChoice
from dwconv.parallel.planning.compare import propose
from dwconv.parallel.planning.partition import Cluster, Shape
from dwconv.parallel.planning.plan import LayerCost, Link
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


def main(argv: Sequence[str]) -> int:
    return run(_parallel, list(argv))


def _parallel(argv: Sequence[str] | None) -> int:
    arguments = _parser().parse_args(argv)
    cases = [case for case in CASES if arguments.only in case.name]
    if not cases:
        raise InvalidChoice(f"--only {arguments.only} is in no case; one is {CASES[0].name}")
    until_s = time.monotonic() + arguments.seconds
    rows: list[dict[str, Any]] = []
    gpus: list[Computed] = []
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
        if case.world == 2:
            link = Link(gb_s=arguments.link_gb_s, latency_us=arguments.link_latency_us)
            gpus += computed(case, finding.layers, link=link, faster=arguments.faster)
    if not rows:
        raise InvalidChoice(f"--seconds {arguments.seconds:g} is too short for a case; give {2 * _LEAST_S:g} or more")
    if left_out:
        print(f"left out, since {arguments.seconds:g} s were over: {', '.join(left_out)}")
    print(_summed_up(rows))
    if gpus:
        print(table_of_computed(gpus, faster=arguments.faster, gb_s=arguments.link_gb_s))
    facts = {"computed": [dataclasses.asdict(each) for each in gpus], "left_out": left_out, "threads_a_rank": 1}
    write_results("parallel", target=cpu_target(), rows=rows, folder=arguments.out, **facts)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(prog="bench parallel", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument("--seconds", type=from_0, default=600, help="for all of it, default 600; cases that do not fit "
                        "are left out")  # fmt: skip
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name has this")
    parser.add_argument("--link-gb-s", type=float, default=12.0, metavar="GB", help="of the GPUs, default 12 (PCIe 3)")
    parser.add_argument("--link-latency-us", type=float, default=10.0, metavar="US", help="of the GPUs, default 10")
    parser.add_argument("--faster", type=float, default=100.0, metavar="X", help="a GPU is so many times as fast as a "
                        "thread here, default 100")  # fmt: skip
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


# -- what GPUs would give: computed from layer times of this machine, and a link that is stated ------------------------


WORLDS = (4, 8)
_MICROBATCHES_A_RANK = 4
_SCHEDULE = "zero-bubble"


@dataclass(frozen=True, kw_only=True)
class Computed:
    """Two plans of one case on so many GPUs, neither of which ran."""

    network: str
    images: str
    world: int
    batch: int
    data_parallel_ms: float
    pipeline_ms: float
    """Of the best pipeline."""
    pipeline: str
    bubble: float

    @property
    def ratio(self) -> float:
        """How many times as fast the pipeline is."""
        return self.data_parallel_ms / self.pipeline_ms


def computed(case: Case, layers: Sequence[LayerCost], *, link: Link, faster: float) -> list[Computed]:
    """By layers that take ``faster`` times less time than here. The batch grows with the GPUs."""
    on_gpu = [
        dataclasses.replace(
            layer,
            forward_us=layer.forward_us / faster,
            dgrad_us=layer.dgrad_us / faster,
            wgrad_us=layer.wgrad_us / faster,
        )
        for layer in layers
    ]
    found = []
    for world in WORLDS:
        microbatches = _MICROBATCHES_A_RANK * world
        proposal = propose(
            on_gpu, Cluster(world=world, link=link), Shape(microbatches=microbatches, schedule=_SCHEDULE)
        )
        plain = proposal.data_parallel
        best = next((each for each in proposal.candidates if not each.is_data_parallel), None)
        if plain is None or best is None:
            continue
        found.append(
            Computed(
                network=case.network,
                images=case.images.name,
                world=world,
                batch=microbatches * case.batch // case.microbatches,
                data_parallel_ms=plain.step.step_us / 1e3,
                pipeline_ms=best.step.step_us / 1e3,
                pipeline=best.name,
                bubble=best.step.bubble,
            )
        )
    return found


def table_of_computed(rows: Sequence[Computed], *, faster: float, gb_s: float) -> str:
    """As text."""
    lines = [
        "",
        f"computed, not measured: GPUs {faster:g} times as fast as a thread here, a link of {gb_s:g} GB/s each way, "
        f"{_SCHEDULE}",
        f"{'network':10} {'images':12} {'GPUs':>4} {'batch':>5} {'data parallel ms':>16} {'pipeline ms':>11} "
        f"{'×':>5} {'bubble':>6}  pipeline",
    ]
    lines += [
        f"{row.network:10} {row.images:12} {row.world:4} {row.batch:5} {row.data_parallel_ms:16.2f} "
        f"{row.pipeline_ms:11.2f} {row.ratio:5.2f} {row.bubble:6.0%}  {row.pipeline}"
        for row in rows
    ]
    return "\n".join(lines)
