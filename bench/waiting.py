"""``python -m bench waiting``: what it costs a block that its tensors wait for its end.

Dispatch compares what was measured: the kernels of a block, and PyTorch's functions with the tuned convolution between
them. A step takes more than either, as one and one by one: modules are called, tensors wait, autograd records. What it
takes more as one has to be added before the two are compared:

    waiting = (step as one − its kernels) − (step one by one − functions and convolution)

Of the smallest block, whose kernels take next to nothing, in training and in evaluation, in turns. Once more with the
caches emptied before each step: the interpreter then finds none of its own, as in a step of a large network.
"""

from __future__ import annotations

import copy
import os
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch

import dwconv
from bench.blocks import AS_ONE, CONVERTED, Case, plain_of, runs_as_one
from bench.cases import ListedLayer
from bench.cpu import tuned
from bench.machine import MachineWatch
from bench.paired_steps import take_turns
from bench.results import add_log_argument, add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0, run, whole
from dwconv.dispatch import advantage
from dwconv.dispatch.decide import decisions
from dwconv.errors import WorkerDied
from dwconv.measure.clock.caches import TIMES_THE_CACHE
from dwconv.measure.clock.timing import CpuClock, Lap
from dwconv.measure.limits.limits import with_limits
from dwconv.measure.runner import Workers
from dwconv.problems.block import Block
from dwconv.problems.layer_files import Layer
from dwconv.problems.problem import Problem
from dwconv.problems.target import CpuTarget, cpu_target
from dwconv.problems.workload import PASSES
from dwconv.records.database import Database
from dwconv.records.log import TuningLog, log_path
from dwconv.records.record import TuningRecord

SMALLEST = ListedLayer(
    network="smallest",
    layer=Layer(
        channels=8,
        input_size=(9, 7),
        kernel=(3, 3),
        stride=(1, 1),
        padding=((1, 1), (1, 1)),
        count=1,
        dilation=(1, 1),
        block=Block.parse("bn+relu6,bn+relu6"),
    ),
)
BATCH = 2
STEPS_A_LAP = 20


def main(argv: Sequence[str]) -> int:
    return run(_waiting, list(argv))


def _waiting(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench waiting", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=from_0, default=3, help="to tune an untuned pass, default 3")
    parser.add_argument("--turns", type=whole, default=200, help="of laps that count, default 200")
    add_log_argument(parser)
    add_out_argument(parser)
    arguments = parser.parse_args(argv)

    target = cpu_target()
    log = TuningLog(arguments.log or log_path(target))
    known = Database.behind_log(log.path, alone=arguments.log is not None)
    log.followers.append(known.add)
    machine = MachineWatch(threads=target.threads)
    target = with_limits(target)
    cases = [Case(batch=BATCH, dtype="float32", trains=trains) for trains in (True, False)]
    with Workers(target, jobs=os.cpu_count() or 1) as workers:
        for workload in [each for case in cases for each in case.workloads(SMALLEST)]:
            if known.best(workload, target.device) is None:
                tuned(workload, target, log=log, known=known, workers=workers, seconds=arguments.seconds)
    if arguments.log is not None:
        os.environ["DWCONV_TUNING_LOGS"] = str(arguments.log)
    dwconv.reset()
    rows = [row_of(case, target, known=known, turns=arguments.turns) for case in cases]
    for row in rows:
        print(line_of(row), flush=True)
    write_results("waiting", target=target, rows=rows, folder=arguments.out, machine=machine.facts(rows))
    return 0


def row_of(case: Case, target: CpuTarget, *, known: Database, turns: int) -> dict[str, Any]:
    """The steps of the smallest block, as one and one by one, and what follows for waiting. Raises WorkerDied if it
    does not run as one."""
    passes = case.passes(SMALLEST)
    block = [record for each in passes if (record := known.best(each, target.device)) is not None]
    kernels_us, functions_us = measured_us(case, block, target)
    plain, x, dz = plain_of(SMALLEST, case)
    as_one, one_by_one = (dwconv.convert(copy.deepcopy(plain), x, seconds=0, blocks=blocks) for blocks in (True, False))
    steps = {AS_ONE: case.step_of(as_one, x, dz), CONVERTED: case.step_of(one_by_one, x, dz)}
    clock = CpuClock()
    warm = {name: partial(clock.lap, step, times=STEPS_A_LAP) for name, step in steps.items()}
    cold = {name: partial(_after_the_caches, step, clock, target) for name, step in steps.items()}
    with mock.patch.object(advantage, "waiting_us", return_value=-1e9):  # it runs as one whatever waiting costs
        dwconv.reset()
        for step in steps.values():
            clock.lap(step, times=STEPS_A_LAP)
        laps, cold_laps = take_turns(warm, count=turns), take_turns(cold, count=turns)
    if not runs_as_one(passes[0]):
        raise WorkerDied("the smallest block did not run as one: give more --seconds, or another --log")
    found = {name: [lap.seconds / STEPS_A_LAP * 1e6 for lap in taken] for name, taken in laps.items()}
    emptied = {name: [lap.seconds * 1e6 for lap in taken] for name, taken in cold_laps.items()}
    more_us = [one - other - kernels_us + functions_us for one, other in zip(*found.values(), strict=True)]
    return {
        "trains": case.trains,
        "kernels_us": kernels_us,
        "functions_us": functions_us,
        "step_us": {name: statistics.median(each) for name, each in found.items()},
        "emptied_step_us": {name: statistics.median(each) for name, each in emptied.items()},
        "waiting_us": statistics.median(more_us),
        "waiting_quartiles_us": statistics.quantiles(more_us, n=4)[::2],
        "contention": statistics.mean(lap.lost for taken in laps.values() for lap in taken),
    }


def measured_us(case: Case, block: Sequence[TuningRecord], target: CpuTarget) -> tuple[float, float]:
    """What dispatch compares: the kernels of the block, and the functions with the tuned convolution."""
    found, _ = decisions(Problem.of(case.workload(SMALLEST).convolution("fprop")), torch.device("cpu"))
    passes = PASSES if case.trains else PASSES[:1]
    tuned_ones = [found[pass_].record for pass_ in passes if found[pass_].provider == "dwconv"]
    convolution = [record for record in tuned_ones if record is not None]
    kernels_us = sum(record.measurement.median_us for record in block if record.measurement)
    return kernels_us, advantage.one_by_one_us(block, convolution, target, passes=len(passes))


def _after_the_caches(step: Callable[[], object], clock: CpuClock, target: CpuTarget) -> Lap:
    """A step that finds nothing in them."""
    torch.ones(TIMES_THE_CACHE * (target.cache_bytes + target.others_cache_bytes), dtype=torch.int8).add_(1)
    return clock.lap(step, times=1)


def line_of(row: dict[str, Any]) -> str:
    """What is printed."""
    warm, emptied = ([row[key][name] for name in (AS_ONE, CONVERTED)] for key in ("step_us", "emptied_step_us"))
    low, high = row["waiting_quartiles_us"]
    return (
        f"{'training' if row['trains'] else 'evaluation'}: {warm[0]:.0f} µs as one, of which kernels take "
        f"{row['kernels_us']:.0f}; {warm[1]:.0f} one by one, of which functions and convolution take "
        f"{row['functions_us']:.0f}: waiting {row['waiting_us']:.0f} ({low:.0f} to {high:.0f}); caches emptied before "
        f"each step, {emptied[0]:.0f} and {emptied[1]:.0f}"
    )
