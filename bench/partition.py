"""``python -m bench partition``: the two-level partition on CUDA, taken apart: one level, two levels, virtual threads,
padding, the default and the least computed cost, beside the best of all families.

Each row is a variant of one pass: the configuration of least estimate among those that the variant has, compiled for
the target, and its computed cost. No GPU is needed. Where the target's GPU is here, compiled kernels are also timed
beside cuDNN.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from bench.cases import GPU_LAYERS
from bench.machine_code import counted
from bench.partition_tables import time_us
from bench.report.files import read
from bench.results import UnreadableResults, add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, integers, whole
from dwconv.errors import BuildError, InvalidChoice, NoTemplate, say
from dwconv.kernels import build
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.sass import disassemble
from dwconv.measure.runner import LocalRunner, WorkerProcesses
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.problems.workload import PASSES, Workload
from dwconv.schedules.cuda.gpu.cost import conflicts_us, price
from dwconv.schedules.space import Config, ConfigSpace, Knob, Value
from dwconv.schedules.template import Candidate, template, templates_for
from dwconv.tuner.gpu_cost import computed_cost
from dwconv.tuner.search.search_strategies import estimates, in_order
from dwconv.tuner.search.space_union import SpaceUnion

KERNELS, SIZES, STRIDES = (3, 5, 7, 13), (112, 56, 28, 14, 7), (1, 2)
CHANNELS = {112: 32, 56: 96, 28: 192, 14: 384, 7: 768}
"""By the size of a map: about those that networks have there."""
BATCH = 64
DRAWN = 400
"""Configurations of a large space to begin with; then their neighbours."""
BUILT = 3
"""Configurations of least estimate to compile for each variant."""
ALONE: Mapping[str, Sequence[Value]] = {"vthread_h": [1], "vthread_w": [1]}
ONE_OUTPUT: Mapping[str, Sequence[Value]] = {**ALONE, "tile_h": [1], "tile_w": [1]}
STAGED: Mapping[str, Sequence[Value]] = {"stage": ["shared"]}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Some of the configurations of a template."""

    name: str
    knobs: Mapping[str, Sequence[Value]]
    """The values that are left of some knobs; of those that a template does not have, nothing."""


LEVELS = (
    Variant(name="one level", knobs={**STAGED, **ONE_OUTPUT}),
    Variant(name="two levels", knobs={**STAGED, **ALONE}),
    Variant(name="2 virtual threads", knobs={**STAGED, "vthread_h": [1], "vthread_w": [2]}),
    Variant(name="4 virtual threads", knobs={**STAGED, "vthread_h": [1], "vthread_w": [4]}),
)
COPIED = (
    Variant(name="no padding", knobs={**STAGED, "pipeline": [2, 3], "padding": ["fetched"]}),
    Variant(name="padding", knobs={**STAGED, "padding": ["copied"]}),
)
"""Of rows that a block copies ahead."""
SUMS = (
    Variant(name="one level", knobs={"tile_h": [1], "tile_w": [1], "unroll_h": [1]}),
    Variant(name="two levels", knobs={}),
)
"""Of wgrad, whose threads sum over tiles: it has no virtual threads and stages nothing."""


def command(argv: list[str]) -> int:
    args = parser_of_partition().parse_args(argv)
    wanted = list(workloads(kernels=args.kernels, sizes=args.sizes, strides=args.strides, passes=args.passes))
    for target in [parse_target(name) for name in args.targets.split(",")]:
        if not isinstance(target, CudaTarget):
            raise InvalidChoice(f"target={target} is no GPU; use cuda:sm_90, for example")
        if args.networks:
            _of_networks(target, args)
            continue
        rows = _known(args.out, target) if args.add else {}
        for workload in wanted:
            rows[workload] = _told(workload, target, args, variants=None)
            every = [row for workload in workloads() for row in rows.get(workload, [])]  # what is there so far
            write_results("partition", target=target, rows=every, folder=args.out, batch=BATCH, drawn=DRAWN)
    return 0


def _of_networks(target: CudaTarget, args: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for layer in GPU_LAYERS:
        for workload in layer.workloads(dtype="float32", layout="nchw"):
            if workload.pass_ in args.passes:
                found = _told(workload, target, args, variants=[])
                rows += [{"layer": str(layer), "batch": workload.batch, **row} for row in found]
                write_results("partition-networks", target=target, rows=rows, folder=args.out, drawn=DRAWN)


def _told(
    workload: Workload, target: CudaTarget, args: argparse.Namespace, *, variants: Sequence[Variant] | None
) -> list[dict[str, Any]]:
    """Its rows, and a line of them."""
    built = args.built if workload.input_size[0] in args.compile else 0
    rows = rows_of(workload, target, built=built, variants=variants)
    say(summary(workload, rows))
    return rows


def _known(folder: Path, target: CudaTarget) -> dict[Workload, list[dict[str, Any]]]:
    """The rows of the file that an earlier run wrote, by workload. Raises UnreadableResults."""
    path = folder / f"partition-{target.device}.json"
    by_names = {tuple(map(str, names_of(workload).values())): workload for workload in workloads()}
    rows: dict[Workload, list[dict[str, Any]]] = {}
    for row in read(path).rows if path.exists() else []:
        names = tuple(str(row.get(name)) for name in NAMES)
        if names not in by_names:
            raise UnreadableResults(
                f"{path} has a row of {' '.join(names)}, which is none of this benchmark; remove it"
            )
        rows.setdefault(by_names[names], []).append(row)
    return rows


def parser_of_partition() -> argparse.ArgumentParser:
    """The parser of the command."""
    parser = ArgumentParser(prog="python -m bench partition", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "--targets", default="cuda:sm_80,cuda:sm_90", metavar="TARGET,…", help="default sm_80 and sm_90"
    )
    for name, values, meaning in (
        ("kernels", KERNELS, "of square kernels"),
        ("sizes", SIZES, "of square maps, among 112, 56, 28, 14 and 7"),
        ("strides", STRIDES, "along both axes"),
        (
            "compile",
            SIZES,
            "of the maps whose kernels are compiled; of others there are estimates, in a tenth of the time",
        ),
    ):
        parser.add_argument(
            f"--{name}",
            type=partial(integers, name),
            default=values,
            metavar="N,…",
            help=f"{meaning}; default {','.join(map(str, values))}",
        )
    parser.add_argument(
        "--built", type=whole, default=BUILT, metavar="N",
        help=f"configurations of least estimate that are compiled for each variant; default {BUILT}",
    )  # fmt: skip
    parser.add_argument(
        "--networks", action="store_true",
        help="the layers that bench cuda times, contiguous, instead; --compile and --passes choose, too",
    )  # fmt: skip
    parser.add_argument("--add", action="store_true", help="keep the rows of other workloads that the file has")
    parser.add_argument(
        "--passes", type=lambda text: text.split(","), default=PASSES, metavar="PASS,…", help="default all three"
    )
    add_out_argument(parser)
    return parser


def workloads(
    *,
    kernels: Sequence[int] = KERNELS,
    sizes: Sequence[int] = SIZES,
    strides: Sequence[int] = STRIDES,
    passes: Sequence[str] = PASSES,
) -> Iterator[Workload]:
    """Float32, contiguous, with the padding that keeps the size at stride 1."""
    for pass_, size, kernel, stride in itertools.product(passes, sizes, kernels, strides):
        if pass_ not in PASSES or size not in CHANNELS:
            raise InvalidChoice(f"there is no {pass_} of {size}² maps here; use {', '.join(PASSES)} of {SIZES}")
        forward = Workload(
            pass_="fprop", batch=BATCH, channels=CHANNELS[size], input_size=(size, size), kernel=(kernel, kernel),
            stride=(stride, stride), padding=((kernel // 2, kernel // 2),) * 2,
        )  # fmt: skip
        yield forward.for_pass(pass_)


NAMES = ("pass", "size", "kernel", "stride")


def names_of(workload: Workload) -> dict[str, Any]:
    """What distinguishes it in the rows."""
    values = workload.pass_, workload.input_size[0], workload.kernel[0], workload.stride[0]
    return dict(zip(NAMES, values, strict=True))


# -- the variants of one workload --------------------------------------------------------------------------------------


def rows_of(
    workload: Workload, target: CudaTarget, *, built: int, variants: Sequence[Variant] | None = None
) -> list[dict[str, Any]]:
    """A row for each of ``variants``, by default all that the workload has, the default of the two-level template, its
    least cost, and the best of all. So many configurations of least estimate are ``built``, and that of least computed
    cost is the variant's; 0: none, that of least estimate is."""
    compiles = built > 0
    parts = variants_of(workload) if variants is None else variants
    found = configs_of(workload, target, built=built, variants=parts)
    measured = measured_us(workload, target, list(found.values())) if compiles and target.present else {}
    return [
        {
            **names_of(workload),
            "variant": name,
            "config": config.to_dict(),
            **_facts(workload, config, target, compiles=compiles),
            **(_machine_code(workload, config, target) if compiles else {}),
            **measured.get(config, {}),
        }
        for name, config in found.items()
    ]


def configs_of(workload: Workload, target: CudaTarget, *, built: int, variants: Sequence[Variant]) -> dict[str, Config]:
    """The configuration of each row of ``rows_of``."""

    def least(configs: Iterable[Config]) -> Config:
        return min(configs, key=lambda config: _us(workload, config, target, compiles=built > 0))

    def best_of(found: Mapping[Config, float]) -> Config:
        return least(_promising(found, max(1, built)))

    chosen: dict[str, Config] = {}
    bests: list[Config] = []
    for known in templates_for(workload, target):
        space = known.space(workload, target)
        try:
            found = estimates(SpaceUnion([space]), workload, target, seed=0, drawn=DRAWN)
        except NoTemplate:
            continue
        bests.append(best_of(found))
        if space.template == f"cuda.{workload.pass_}_nchw":
            chosen["default"] = space.default
            for variant in variants:
                part = _estimates_of_part(space, variant, found, workload, target)
                chosen |= {variant.name: best_of(part)} if part else {}
            chosen["least cost"] = least([*chosen.values(), bests[-1]])  # the whole space has what its parts have
    return {**chosen, "best of all": least([*chosen.values(), *bests])}


def _estimates_of_part(
    space: ConfigSpace, variant: Variant, found: Mapping[Config, float], workload: Workload, target: CudaTarget
) -> dict[Config, float]:
    """Of the configurations that a variant has: from those that were ``found`` in the whole space on, where it has
    some of these."""
    part = restricted(space, variant.knobs, near=min(found, key=found.__getitem__))
    if part is None:
        return {}
    values = {knob.name: knob.values for knob in part.knobs}
    known = {
        config: taken_us
        for config, taken_us in found.items()
        if all(value in values[name] for name, value in config.values)
    }
    try:
        return estimates(SpaceUnion([part]), workload, target, seed=0, drawn=DRAWN, known=known)
    except NoTemplate:
        return {}


def variants_of(workload: Workload) -> Sequence[Variant]:
    """What is compared of its pass."""
    if workload.pass_ == "wgrad":
        return SUMS
    return (*LEVELS, *COPIED)


def restricted(space: ConfigSpace, knobs: Mapping[str, Sequence[Value]], *, near: Config) -> ConfigSpace | None:
    """The part of a space in which ``knobs`` have these values alone, its default ``near`` a configuration; None if a
    knob has none of them."""
    left = {
        knob.name: [value for value in knob.values if value in knobs.get(knob.name, knob.values)]
        for knob in space.knobs
    }
    if not all(left.values()):
        return None
    parts = [Knob(knob.name, left[knob.name], absent=knob.absent) for knob in space.knobs]
    return ConfigSpace(space.template, *parts, rules=space.rules, preferred=dict(near.values))


def _promising(found: Mapping[Config, float], count: int) -> list[Config]:
    """The first ones, one of each estimate."""
    alike: dict[float, Config] = {}
    for config in in_order(found):
        alike.setdefault(found[config], config)
        if len(alike) == count:
            break
    return list(alike.values())


# -- what is known of a configuration ----------------------------------------------------------------------------------


def _us(workload: Workload, config: Config, target: CudaTarget, *, compiles: bool) -> float:
    return float(_facts(workload, config, target, compiles=compiles)["computed_us" if compiles else "estimated_us"])


@cache
def _facts(workload: Workload, config: Config, target: CudaTarget, *, compiles: bool) -> dict[str, Any]:
    """Of the kernel that takes longest; bytes of all. Without compiling, of the estimate."""
    works = template(config.template).works
    assert works is not None, "a template of CUDA says what its kernels do"
    estimated = works(workload, config, target)
    prices = [price(work, target) for work in estimated]
    facts: dict[str, Any] = {"estimated_us": sum(each.microseconds for each in prices)}
    if compiles:
        try:
            cost = computed_cost(_built(Candidate(workload, config), target), workload, target)
        except BuildError as error:
            return {**facts, "computed_us": math.inf, "failed": str(error)}
        facts |= {"computed_us": cost.microseconds, "spill_bytes": cost.slowest.resources.get("spill_bytes", 0)}
        estimated, prices = [kernel.work for kernel in cost.kernels], [kernel.price for kernel in cost.kernels]
    work, priced = max(zip(estimated, prices, strict=True), key=lambda each: each[1].microseconds)
    return facts | {
        "limiter": priced.limiter,
        "busy_us": priced.busy_us,
        "registers": work.registers,
        "shared_bytes": work.shared_bytes,
        "threads": work.threads,
        "blocks_per_sm": priced.occupancy.blocks_per_sm,
        "threads_per_sm": priced.occupancy.threads_per_sm,
        "transactions_a_request": work.transactions_a_request,
        "conflicts_us": conflicts_us(estimated, target),
        "instructions_a_product": work.instructions / work.fma if work.fma else None,
        "dram_bytes": sum(each.dram_bytes for each in prices),
        "cache_bytes": sum(each.cache_bytes for each in estimated),
        "waves": priced.waves,
    }


@cache
def _built(candidate: Candidate, target: CudaTarget) -> Artifact:
    return build(candidate, target)


def _machine_code(workload: Workload, config: Config, target: CudaTarget) -> dict[str, dict[str, int]]:
    """What is counted in the kernel that takes longest."""
    try:
        artifact = _built(Candidate(workload, config), target)
    except BuildError:
        return {}
    kernel = computed_cost(artifact, workload, target).slowest.kernel
    return {"machine_code": counted(disassemble(artifact.cubin)[kernel])}


def measured_us(
    workload: Workload, target: CudaTarget, configs: Sequence[Config], *, workers: WorkerProcesses | None = None
) -> dict[Config, dict[str, float]]:
    """Times on this device, side by side with PyTorch's op, which is cuDNN's where that is faster; without those that
    failed."""
    candidates = [Candidate(workload, config) for config in dict.fromkeys(configs)]
    with LocalRunner(workload, target, workers=workers) as runner:
        records = list(runner.confirm(candidates))
    return {
        record.config: {
            "measured_us": record.measurement.median_us,
            **{f"{name}_us": other.median_us for name, other in record.providers.items()},
        }
        for record in records
        if record.measurement
    }


def summary(workload: Workload, rows: Sequence[Mapping[str, Any]]) -> str:
    """One line: the microseconds of each variant."""
    times = [f"{row['variant']} {time_us(row):.1f}" for row in rows]
    return f"{workload.key}: {', '.join(times)} ({rows[-1]['config']['template']})"
