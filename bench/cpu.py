"""``python -m bench cpu``: tuned kernels against all other providers, over layers of well-known networks.

Untuned passes are tuned first. Then a kernel is timed against itself, as a control. Then the best configuration of each
pass is verified and timed once more, in turns with PyTorch's op on contiguous and on channels_last tensors and with
oneDNN on tensors in its own layout: medians, ratios with their intervals, and the share of the machine's limit. A type
of 16 bits is also held against our own float32 kernel of the same pass, in turns; with ``--any-size`` kernels of any
size, tuned too, and those of packs for every layer, against the one for the size. Rows that other work disturbed are
timed again at the end.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.cases import (
    CPU_LAYERS,
    ROW_NETWORKS,
    TRANSPOSED_LAYERS,
    VOLUME_NETWORKS,
    BenchLayer,
    dilated_layers,
    listed_layers,
)
from bench.evidence import Control, ratio_of, summary_of, timed_again
from bench.race import (
    AGAIN,
    ANY_CHANNELS,
    ANY_SIZE,
    HEAD,
    OURS,
    WIDE_TYPE,
    Race,
    Races,
    line_of,
    means_of,
    row_of,
)
from bench.results import MachineWatch, add_log_argument, add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0, whole
from dwconv.errors import WorkerCannotStart, WorkerError
from dwconv.measure.clock.timing import Caches
from dwconv.measure.limits import with_limits
from dwconv.measure.runner import WorkerProcesses
from dwconv.problems.target import CpuTarget, Target, cpu_target, pack_target
from dwconv.problems.workload import DTYPES, LAYOUTS, Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog, log_path
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.tuner.search.search_loop import SearchPlan, tune_workload
from dwconv.tuner.search.search_result import Budget
from dwconv.untuned import every_layer
from dwconv.untuned.other_size import adopted

CONTROLS = 3
"""Kernels that are timed against themselves, of passes spread over all."""


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench cpu", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layout", choices=LAYOUTS, default="nhwc", help="default nhwc")
    parser.add_argument("--dims", choices=("1", "2", "3"), default="2", help="layers of so many dimensions, default 2")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--dilated", action="store_true", help="dilated, large and decomposed kernels, 1-D and 2-D")
    kinds.add_argument("--transposed", action="store_true", help="transposed layers, 1-D, 2-D and 3-D")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="default float32")
    parser.add_argument("--seconds", type=from_0, default=20, help="to tune an untuned kernel, default 20; 0: none")
    add_log_argument(parser)
    add_out_argument(parser)
    parser.add_argument("--any-size", action="store_true", help="also time the kernels that take any size and channels")
    parser.add_argument("--first", type=whole, metavar="N", help="only the first N layers")
    arguments = parser.parse_args(argv)

    target, kind = cpu_target(), next((each for each in ("dilated", "transposed") if getattr(arguments, each)), "")
    log, known = opened(arguments.log, target)
    layers = [
        (layer, workload)
        for layer in layers_of(kind or arguments.dims)[: arguments.first]
        for workload in layer.workloads(dtype=arguments.dtype, layout=arguments.layout)
    ]
    wanted = [workload for _, workload in layers]
    if arguments.any_size:
        wanted += [workload.with_any_size() for workload in wanted]
    machine = MachineWatch(threads=target.threads)
    target = with_limits(target)
    untuned = [workload for workload in wanted if best_of(workload, target, known=known) is None]
    tune(untuned, target, log=log, known=known, seconds=arguments.seconds)
    chosen = [
        _Chosen(layer=layer, workload=workload, record=best_of(workload, target, known=known))
        for layer, workload in layers
    ]
    with Races(target) as races:
        control = control_of(chosen, races)
        print(f"{control}\n{HEAD}", flush=True)

        def row(number: int) -> dict[str, Any]:
            beside = _beside(chosen[number], target, races, known=known, any_size=arguments.any_size)
            found = _raced(chosen[number], target, races, beside=beside, control=control)
            print(line_of(found), flush=True)
            return found

        rows = timed_again([row(number) for number in range(len(chosen))], row, threads=target.threads)
    print(summary_of(rows, control))
    print(means_of(rows))
    of = kind or (f"{arguments.dims}d" if arguments.dims != "2" else "")
    dtype = arguments.dtype if arguments.dtype != "float32" else ""
    words = filter(None, ("any-size" if arguments.any_size else "cpu", of, dtype, arguments.layout))
    facts = {"control": control.as_row(), "machine": machine.facts(rows)}
    write_results("-".join(words), target=target, rows=rows, folder=arguments.out, **facts)
    return 0


def layers_of(kind: str) -> Sequence[BenchLayer]:
    """The layers of ``1``, ``2`` or ``3`` dimensions; those of ``dilated``, large and decomposed kernels, once each; or
    ``transposed`` ones."""
    if kind == "dilated":
        return dilated_layers()
    if kind in ("1", "3"):
        return listed_layers(ROW_NETWORKS if kind == "1" else VOLUME_NETWORKS)
    return TRANSPOSED_LAYERS if kind == "transposed" else CPU_LAYERS


def best_of(workload: Workload, target: Target, *, known: Database) -> TuningRecord | None:
    """The fastest kernel of any size, or of one, as ``workload`` is."""
    ranked = known.ranked(workload, target.device)
    return next((record for record in ranked if record.workload.any_size == workload.any_size), None)


def opened(log: Path | None, target: Target) -> tuple[TuningLog, Database]:
    """The log that is extended, and what is known, which follows it. ``log``: of ``--log``, which counts alone."""
    extended = TuningLog(log or log_path(target))
    known = Database.behind_log(extended.path, alone=log is not None)
    extended.followers.append(known.add)
    return extended, known


def tune(
    untuned: Sequence[Workload],
    target: Target,
    *,
    log: TuningLog,
    known: Database,
    seconds: float,
    caches: Caches = "warm",
) -> None:
    """Search each pass for some seconds."""
    if not untuned or not seconds:
        return
    budget = Budget(trials=None, seconds=seconds, patience=None)
    with WorkerProcesses(target, jobs=os.cpu_count() or 1, caches=caches) as workers:
        for number, workload in enumerate(untuned, 1):
            print(f"tuning {workload.key}, {number} of {len(untuned)}", flush=True)
            tune_workload(workload, target, log=log, plan=SearchPlan(known=known, workers=workers), budget=budget)


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """A pass of a layer, and its best record."""

    layer: BenchLayer
    workload: Workload
    record: TuningRecord | None


def control_of(chosen: Sequence[_Chosen], races: Races) -> Control:
    """Of a few kernels, spread over all passes, each against itself."""
    tuned = [Candidate(each.workload, each.record.config) for each in chosen if each.record and each.record.measurement]
    ratios = []
    for candidate in tuned[:: max(1, -(-len(tuned) // CONTROLS))]:
        try:
            rounds_us = races.ask(Race(candidate=candidate, control=True)).times["warm"].rounds_us
        except WorkerCannotStart:
            raise
        except WorkerError:
            continue  # its row says why
        ratios.append(ratio_of(rounds_us[AGAIN], over=rounds_us[OURS]))
    return Control.over(ratios)


def _beside(
    chosen: _Chosen, target: CpuTarget, races: Races, *, known: Database, any_size: bool
) -> dict[str, Candidate]:
    """Our other kernels of the pass: in float32; of any size, of the best configuration that is known or else of the
    nearest to ours; and as a pack for every layer has it."""
    workload, beside = chosen.workload, {}
    if workload.dtype != "float32" and (wide := best_of(replace(workload, dtype="float32"), target, known=known)):
        beside[WIDE_TYPE] = Candidate(wide.workload, wide.config)
    if any_size and chosen.record:
        of_any_size = workload.with_any_size()
        best = best_of(of_any_size, target, known=known) or chosen.record
        if config := adopted(best.config, of_any_size, target):
            beside[ANY_SIZE] = Candidate(of_any_size, config)
        if packed := _packed(workload, target):
            beside[ANY_CHANNELS] = _fastest(packed, Candidate(workload, chosen.record.config), races)
    return beside


def _packed(workload: Workload, target: CpuTarget) -> list[Candidate]:
    """The kernels of a pack for every layer that run a workload."""
    pack = pack_target(target)
    kernels = every_layer.candidates(pack, dtype=workload.dtype, taps=(max(workload.kernel),)) if pack else []
    return [each for each in every_layer.for_layer(workload, target) if each in kernels]


def _fastest(kernels: Sequence[Candidate], own: Candidate, races: Races) -> Candidate:
    """In a race of their own, as ``dwconv.convert`` holds it before it times the winner."""
    if len(kernels) == 1:
        return kernels[0]
    raced = races.ask(Race(candidate=own, control=True, beside={str(each): each for each in kernels}))
    took = raced.times["warm"].measurements
    return min(kernels, key=lambda each: took[str(each)].median_us)


def _raced(
    chosen: _Chosen, target: CpuTarget, races: Races, *, beside: dict[str, Candidate], control: Control
) -> dict[str, Any]:
    """The row of a pass."""
    about = {"layer": str(chosen.layer), "pass": chosen.layer.name_of(chosen.workload.pass_), "caches": "warm"}
    record = chosen.record
    if record is None or record.measurement is None:
        return {**about, "failed": record.detail if record else "untuned, or no candidate worked in the time given"}
    transposed = chosen.layer.is_transposed
    race = Race(candidate=Candidate(chosen.workload, record.config), beside=beside, transposed=transposed)
    try:
        raced = races.ask(race)
    except WorkerCannotStart:
        raise
    except WorkerError as error:
        return {**about, "failed": str(error)}
    row = row_of(race, raced, target, name=", ".join(about.values()), control=control)
    return {**about, "kernel": chosen.layer.kernel, **row}
