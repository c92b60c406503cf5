"""``python -m bench cuda [STAGE …]``: on a machine with a GPU, in stages, what shows most in a second first.

    smoke      a minute of first contact              race       dwconv and every other in turns
    host       µs of a call on the host               blocks     as one and one by one
    train      steps of four usual networks           sequences  1-D layers and packages for them
    depthwise  steps where depthwise is the work      partition  one level, two levels, virtual threads
    sizes      layers at sizes never tuned            verify     every template, in every type
    first_run  convert without records or kernels     cores      the benchmarks of the CPU
    tune       layers of networks                     streams    what runs beside kernels

Each stage can run alone. DIR/cuda.json holds every answer at once, the log beside it tuning's records; a stage run
again continues where it stopped. Answers are also written as results of a benchmark. Results that ship for the device
are not measured again without --again; steps some of whose passes were never raced do not count yet. Named stages share
the time; without names each gets its minutes before the next one begins.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cases import gpu_workloads, odd_workloads
from bench.gpu.blocks import FIRST_S as BLOCK_S
from bench.gpu.blocks import block_candidates, blocks_stage
from bench.gpu.cores import cores_stage
from bench.gpu.first_run import FIRST_S as FIRST_RUN_S
from bench.gpu.first_run import first_run_candidates, first_run_stage
from bench.gpu.host import FIRST_S as HOST_S
from bench.gpu.host import host_candidates, host_stage
from bench.gpu.partition import FIRST_S as PARTITION_S
from bench.gpu.partition import partition_candidates, partition_stage
from bench.gpu.plan import GpuPlan
from bench.gpu.prepared import PreparedKernels
from bench.gpu.race import FIRST_S as RACE_S
from bench.gpu.race import in_words, race_candidates, race_stage, worst_first
from bench.gpu.run import Answers, Ended, Interrupted, Pace, Run, State, interrupted_after, say
from bench.gpu.sequences import FIRST_S as SEQUENCES_S
from bench.gpu.sequences import sequence_candidates, sequences_stage
from bench.gpu.sizes import FIRST_S as SIZES_S
from bench.gpu.sizes import size_candidates, sizes_stage
from bench.gpu.smoke import MOST_S as SMOKE_MOST_S
from bench.gpu.smoke import smoke_candidates, smoke_stage
from bench.gpu.streams import streams_stage
from bench.gpu.train import FIRST_S as TRAIN_S
from bench.gpu.train import ROWS, depthwise_candidates, depthwise_stage, train_candidates, train_stage
from bench.gpu.tune import BESIDE_S, LEAST_S, tune_candidates, tune_stage
from bench.gpu.verify import PROGRAMS, right_programs, verify_candidates, verify_stage
from bench.gpu.verify import in_words as in_words_of_verdict
from bench.results import FOLDER, counts, read_results, write_results
from dwconv import native
from dwconv.commands.command_line import ArgumentParser, from_0, whole
from dwconv.errors import DwconvError, one_line
from dwconv.native.compile import LIMIT_S
from dwconv.problems.target import Target, parse_target
from dwconv.problems.workload import Workload
from dwconv.schedules.template import Candidate
from dwconv.settings import shipped_log_folder
from dwconv.tuner.step_time import with_both_gradients


@dataclass(frozen=True, kw_only=True)
class GpuStage:
    """How a stage is run."""

    run: Callable[[Run], Ended]
    minutes: float
    """What it takes to show most of what it can: its share of the time, beside the others'."""
    candidates: Callable[[GpuPlan], Iterable[Candidate]] = lambda plan: ()
    """What it builds, as far as that is known before: the most important first."""
    first_s: float = 0.0
    """Expected time of its first item."""
    most_s: float = math.inf
    measures_calls: bool = False
    """True if it waits for the C++ of calls."""


STAGES = {
    "smoke": GpuStage(run=smoke_stage, candidates=smoke_candidates, minutes=0.5, most_s=SMOKE_MOST_S),
    "host": GpuStage(run=host_stage, candidates=host_candidates, minutes=2, first_s=HOST_S, measures_calls=True),
    "train": GpuStage(run=train_stage, candidates=train_candidates, minutes=4, first_s=TRAIN_S, measures_calls=True),
    "depthwise": GpuStage(
        run=depthwise_stage, candidates=depthwise_candidates, minutes=3, first_s=TRAIN_S, measures_calls=True
    ),
    "sizes": GpuStage(run=sizes_stage, candidates=size_candidates, minutes=1.5, first_s=SIZES_S, measures_calls=True),
    "first_run": GpuStage(
        run=first_run_stage, candidates=first_run_candidates, minutes=2, first_s=FIRST_RUN_S, measures_calls=True
    ),
    "tune": GpuStage(run=tune_stage, candidates=tune_candidates, minutes=1.5, first_s=LEAST_S + BESIDE_S),
    "race": GpuStage(run=race_stage, candidates=race_candidates, minutes=1.5, first_s=RACE_S),
    "blocks": GpuStage(run=blocks_stage, candidates=block_candidates, minutes=1, first_s=BLOCK_S, measures_calls=True),
    "sequences": GpuStage(run=sequences_stage, candidates=sequence_candidates, minutes=2, first_s=SEQUENCES_S),
    "partition": GpuStage(run=partition_stage, candidates=partition_candidates, minutes=2, first_s=PARTITION_S),
    "verify": GpuStage(run=verify_stage, candidates=verify_candidates, minutes=2),
    "cores": GpuStage(run=cores_stage, minutes=6),
    "streams": GpuStage(run=streams_stage, minutes=1.5, measures_calls=True),
}
KEPT = ("host", "sizes", "first_run", "sequences", "partition", "cores", "streams")
"""Stages whose answers are in the results as they are, and count in the next run."""


PREPARE = "prepare"
_EPILOG = f"Where there is no GPU, bench cuda {PREPARE} builds the kernels of stages for one: see its --help."
_GRACE = 0.02
"""A stage is interrupted when it exceeds its time by this share of the seconds of all stages."""


def command(argv: Sequence[str] | None) -> int:
    if argv and argv[0] == PREPARE:
        from bench.gpu import prepare

        return prepare.command(argv[1:])
    parser = ArgumentParser(prog="bench cuda", description=(__doc__ or "").partition("\n")[0], epilog=_EPILOG)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"{', '.join(STAGES)}; default: all, in that order")
    parser.add_argument("--seconds", type=from_0, default=480.0, help="for all stages together, default 480")
    parser.add_argument("--out", type=Path, default=Path("bench-cuda"), help="folder for the results")
    add_workload_arguments(parser)
    parser.add_argument("--again", action="store_true", help="measure again what ships for this device")
    parser.add_argument("--one-process", action="store_true", help="smoke and verify run kernels in this process")
    parser.add_argument(
        "--prepared", type=Path, metavar="FOLDER", help=f"run the kernels that bench cuda {PREPARE} built: it is code"
    )
    parser.add_argument("--newer", action="store_true", help="verify no program that was right in what ships")
    arguments = parser.parse_args(argv)
    stages = chosen_stages(parser, arguments.stages)
    budget = Pace(arguments.seconds)
    target = parse_target("cuda")
    if any(STAGES[name].measures_calls for name in stages):
        native.soon()  # it is compiled beside the stages before
    wanted = with_both_gradients(dict.fromkeys(gpu_workloads(every=arguments.all), 1), target)
    workloads = list(wanted)[: arguments.first]
    state = State.open(arguments.out, device=target.device)
    shipped = shipped_results(target)
    for stage, answers in _answers_in(shipped).items():
        state.take(stage, answers, again=arguments.again)
    records, own = (folder / f"{target.device}.jsonl" for folder in (shipped_log_folder(), arguments.out))
    if records.exists() and not own.exists():
        shutil.copy(records, own)
    prepared = PreparedKernels.taken(arguments.prepared, target) if arguments.prepared else None
    return run_stages(
        stages, target, state, budget=budget, workloads=workloads, odd=odd_workloads(), here=arguments.one_process,
        prepared=prepared, known_programs=frozenset(shipped.get(PROGRAMS, []) if arguments.newer else []),
        in_turn=not arguments.stages,
    )  # fmt: skip


def add_workload_arguments(parser: ArgumentParser) -> None:
    """Add ``--first`` and ``--all``, which say what is tuned and raced."""
    parser.add_argument("--first", type=whole, metavar="N", help="tune and race only the first N workloads")
    parser.add_argument("--all", action="store_true", help="tune and race every type in every layout")


def chosen_stages(parser: ArgumentParser, named: Sequence[str]) -> list[str]:
    """The stages that are named, or all, in their order. Ends the command for one that is unknown."""
    if unknown := [name for name in named if name not in STAGES]:
        parser.error(f"stage {unknown[0]} is unknown; use {', '.join(STAGES)}")
    return [name for name in STAGES if name in named or not named]


def run_stages(
    stages: Sequence[str],
    target: Target,
    state: State,
    *,
    budget: Pace,
    workloads: list[Workload],
    odd: list[Workload],
    here: bool = False,
    prepared: PreparedKernels | None = None,
    known_programs: frozenset[str] = frozenset(),
    in_turn: bool = False,
) -> int:
    """Run some stages and print a summary; the exit status is 0 if none failed. They share the time; ``in_turn``: each
    gets its minutes, or its share if that is more, as long as there is any."""
    ended: dict[str, Ended] = {}
    grace_s = max(1.0, _GRACE * budget.left_s)
    try:
        for position, name in enumerate(stages):
            if budget.left_s <= 0:
                ended[name] = Ended(line="time was up before it started")
                say(name, ended[name].line)
                continue
            stage = STAGES[name]
            if stage.measures_calls:
                _wait_for_calls(name, within_s=budget.left_s)
            share_s = budget.left_s * stage.minutes / sum(STAGES[each].minutes for each in stages[position:])
            seconds = max(share_s, 60 * stage.minutes) if in_turn else share_s
            pace = Pace(min(stage.most_s, seconds, budget.left_s), first_s=stage.first_s)
            say(name, f"at most {pace.left_s:.0f} of {budget.left_s:.0f} s")
            ended[name] = _ended(
                name,
                Run(
                    target=target, state=state, pace=pace, workloads=workloads, odd=odd, one_process=here,
                    prepared=prepared, known_programs=known_programs if name == "verify" else frozenset(),
                ),
                within_s=pace.left_s + grace_s,
            )  # fmt: skip
            state.flush()
            if prepared is not None:
                say(name, prepared.of_stage())
            say(name, ended[name].line)
    finally:  # after ctrl-C, too
        state.flush()
        print(_summary(ended, state), flush=True)
        _write_results(state, target)
    return int(any(each.failed for each in ended.values()))


def _wait_for_calls(name: str, *, within_s: float) -> None:
    """Until the C++ of calls is compiled, or it is known that there will be none."""
    began_s = time.monotonic()
    native.native(limit_s=min(LIMIT_S, within_s))
    if (waited_s := time.monotonic() - began_s) >= 1:
        say(name, f"waited {waited_s:.0f} s for the C++ of calls")


def _ended(name: str, run: Run, *, within_s: float) -> Ended:
    """The result of a stage; or, if it could not run, the reason. The other stages go on."""
    try:
        with interrupted_after(within_s):
            return STAGES[name].run(run)
    except Interrupted:
        return Ended(line="time was up in the middle of something; what was known by then is kept")
    except DwconvError as error:
        return Ended(line=f"could not run: {one_line(str(error))}", failed=True)
    except Exception as error:  # noqa: BLE001  on a new device the other stages are still worth running
        traceback.print_exc(file=sys.stderr)
        return Ended(line=one_line(f"could not run: {type(error).__name__}: {error}", most=300), failed=True)


def _summary(ended: dict[str, Ended], state: State) -> str:
    lines = ["", f"summary, from {state.path}:"]
    for name, each in ended.items():
        lines.append(f"  {name:9} {'FAILED: ' if each.failed else ''}{each.line}")
        if name == "race":
            lines += [f"    {key}: {in_words(answer)}" for key, answer in worst_first(state.of("race"))]
    return "\n".join(lines)


def shipped_results(target: Target) -> dict[str, Any]:
    """What ``_write_results`` wrote of the device before; empty if nothing ships of it."""
    path = FOLDER / f"cuda-{target.device}.json"
    return read_results(path, dict[str, Any]) if path.exists() else {}


def _answers_in(shipped: dict[str, Any]) -> dict[str, Answers]:
    """By stage and item, as a state has them."""
    steps = shipped.get("steps", {})
    return {
        **{stage: shipped.get(stage, {}) for stage in KEPT},
        "race": {row["workload"]: row for row in shipped.get("rows", [])},
        "blocks": {row["workload"]: row for row in shipped.get("blocks", [])},
        **{stage: {name: steps[name] for name in rows if name in steps} for stage, rows in ROWS.items()},
    }


def _write_results(state: State, target: Target) -> None:
    """Of all runs so far, if there are any."""
    rows = [{"workload": key, **answer} for key, answer in worst_first(state.of("race"))]
    if not rows and not any(state.of(stage) for stage in ("blocks", *ROWS, *KEPT)):
        return
    shipped = shipped_results(target)
    steps = shipped.get("steps", {})
    for name, row in [each for stage in ROWS for each in state.of(stage).items()]:
        if counts(row) or not (name in steps and counts(steps[name])):
            steps[name] = row
    verified = Counter(in_words_of_verdict(answer).partition(":")[0] for answer in state.of("verify").values())
    facts = {
        "measured": state.of("limits").get("device") or shipped.get("measured"),
        "verified": dict(verified) or shipped.get("verified", {}),
        PROGRAMS: sorted({*shipped.get(PROGRAMS, []), *right_programs(state.of("verify"), state.of(PROGRAMS))}),
        **{stage: answers for stage in KEPT if (answers := state.of(stage))},
        "blocks": [{"workload": key, **answer} for key, answer in state.of("blocks").items()],
        "steps": steps,
    }
    write_results("cuda", target=target, rows=rows, folder=state.path.parent, **facts)
