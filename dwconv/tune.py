"""``python -m dwconv.tune``: find the fastest configuration of a depthwise convolution on a device."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dwconv import native, settings
from dwconv.arguments import INTERRUPTED_EXIT_CODE, run, with_arithmetic, workload_options
from dwconv.errors import NoDevice, NoTemplate, UnknownTarget
from dwconv.tune_arguments import parser_of_tune, workloads_from
from dwconv.tuner.choices import ENDS_BY_ITSELF, Search
from dwconv.workload import Workload

if TYPE_CHECKING:
    from dwconv.records.log import TuningLog
    from dwconv.target import CpuTarget, Target
    from dwconv.tuner.agenda import Agenda
    from dwconv.tuner.loop import SearchPlan
    from dwconv.tuner.report import Outcome
    from dwconv.tuner.runners import RunnerChoice

NOTHING_WORKED_EXIT_CODE = 1


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, 1 if no candidate of any pass worked, 2 for bad input, 130 after ctrl-C."""
    return run(_tune, argv)


def _tune(argv: list[str] | None) -> int:
    parser = parser_of_tune()
    args = parser.parse_args(argv)
    counts = workloads_from(parser, args)

    from dwconv.records.log import TuningLog, log_path

    log = TuningLog(args.log) if args.log else None  # checked first: to know the target takes importing PyTorch

    from dwconv.target import CpuTarget, check_present, parse_target

    target = with_arithmetic(args, parse_target(args.target))
    if isinstance(target, CpuTarget):
        check_present(target)
    args.search = args.search or _usual_search(target)
    _check_search(args, target)
    _check_runner(args, target)
    _check_templates(list(counts), target)
    log = log or TuningLog(log_path(target))
    log.check_writable()
    _say_which_lines_are_damaged(log)
    if isinstance(target, CpuTarget):
        target = _prepared_cpu(target)
    agenda = _agenda(args, counts, target, log)
    outcomes, interrupted = _outcomes(args, agenda, target, log)
    if isinstance(target, CpuTarget):
        _check_limits(outcomes, target)
    _print(args, outcomes, target, log)
    if interrupted:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE
    if left := len(agenda.workloads) - len(outcomes):
        print(f"time is up, {left} passes are left: the same command goes on from here", file=sys.stderr)
    worked = any(outcome.result and outcome.result.best for outcome in outcomes)
    return 0 if worked or not outcomes else NOTHING_WORKED_EXIT_CODE


def _prepared_cpu(target: CpuTarget) -> CpuTarget:
    """``target`` with its limits; tells the user what takes long, and what makes times doubtful."""
    from dwconv.measure.contention import crowding
    from dwconv.measure.limits import are_settled, with_limits

    if crowded := crowding(target.threads):
        print(f"note: {crowded}: they wait for each other, and the times show it", file=sys.stderr)
    if not are_settled(target):
        print("note: measuring, as the first few runs do, how fast this CPU can copy and multiply", file=sys.stderr)
    target = with_limits(target)
    native.native()  # compiled here if need be: the user sees it, and no worker has to do it in its time
    return target


def _agenda(args: argparse.Namespace, counts: Mapping[Workload, int], target: Target, log: TuningLog) -> Agenda:
    """The workloads in the order in which they are tuned, and how long each may take; says what is left out."""
    from dwconv.tuner.agenda import Agenda, costliest_first, without_confirmed

    workloads = costliest_first(counts, target) if args.layers else list(counts)
    if args.minutes is not None:
        left = without_confirmed(workloads, log.load().records, target)
        if known := len(workloads) - len(left):
            print(
                f"note: {known} of {len(workloads)} passes are confirmed in {log.path}, and left out", file=sys.stderr
            )
        return Agenda(workloads=left, seconds=args.seconds or settings.SECONDS, total_s=60 * args.minutes)
    endless = args.trials is not None or args.search in ENDS_BY_ITSELF
    return Agenda(workloads=workloads, seconds=args.seconds or (None if endless else settings.SECONDS))


def _usual_search(target: Target) -> str:
    """Analytic where nothing can be measured, so that computed costs decide."""
    return "evolve" if target.present else "analytic"


def _check_search(args: argparse.Namespace, target: Target) -> None:
    if args.search == "analytic" and target.kind != "cuda":
        raise UnknownTarget(
            f"--search analytic computes what a kernel costs a GPU, the target is {target}; use --target cuda:sm_90, "
            "or --search evolve"
        )


def _check_runner(args: argparse.Namespace, target: Target) -> None:
    """Raises a DwconvError if the runner that was asked for cannot work."""
    if args.runner == "predict" and target.kind != "cuda":
        raise UnknownTarget(f"--runner predict is for GPUs, the target is {target}; use --target cuda:sm_90")
    if args.runner == "local" and not target.present:
        raise NoDevice(f"--runner local measures, and {target} is not in this machine; use --runner predict")


def _check_templates(workloads: list[Workload], target: Target) -> None:
    """Raises NoTemplate if nothing of what was asked for can be tuned."""
    from dwconv.schedules.template import templates_for

    reasons: list[NoTemplate] = []
    for workload in workloads:
        try:
            templates_for(workload, target)
        except NoTemplate as error:
            reasons.append(error)
        else:
            return
    raise reasons[0]


def _outcomes(args: argparse.Namespace, agenda: Agenda, target: Target, log: TuningLog) -> tuple[list[Outcome], bool]:
    """Tune one workload after the other. After ctrl-C, the outcomes so far, and True."""
    from dwconv.measure.runner import Workers
    from dwconv.tuner.loop import tune_workload
    from dwconv.tuner.progress import Progress
    from dwconv.tuner.report import Outcome
    from dwconv.tuner.result import Budget, Stop

    plan, runner = _plan(args), _runner(args, target)
    chosen = (args.trials, args.seconds, args.minutes) != (None, None, None) or args.search == "exhaustive"
    trials = args.trials if chosen else settings.TRIALS
    patience = args.patience or (None if args.search in ENDS_BY_ITSELF else settings.PATIENCE)
    outcomes: list[Outcome] = []
    try:
        with (
            Workers(target, jobs=args.jobs, caches=args.caches) as workers,
            Progress(workloads=len(agenda.workloads)) as progress,
        ):
            runner = dataclasses.replace(runner, workers=workers)
            for workload, seconds in agenda:
                progress.begin(workload)
                budget = Budget(trials=trials, seconds=seconds, patience=patience)
                try:
                    result = tune_workload(
                        workload, target, log=log, plan=plan, budget=budget, runner=runner, progress=progress
                    )
                except NoTemplate as error:
                    progress.skip(str(error))
                    outcomes.append(Outcome(workload=workload, reason=str(error)))
                    continue
                progress.finish(result)
                outcomes.append(Outcome(workload=workload, result=result))
                if result.stopped is Stop.INTERRUPTED:
                    return outcomes, True
    except KeyboardInterrupt:  # between two workloads, or once more
        return outcomes, True
    return outcomes, False


def _plan(args: argparse.Namespace) -> SearchPlan:
    from dwconv.records.database import Database
    from dwconv.tuner.loop import SearchPlan

    elsewhere = [] if args.log else list(Database.usual())
    return SearchPlan(strategy=args.search, seed=args.seed, resume=not args.no_resume, elsewhere=elsewhere)


def _runner(args: argparse.Namespace, target: Target) -> RunnerChoice:
    from dwconv.tuner.runners import RunnerChoice

    chosen = RunnerChoice(kind=args.runner, jobs=args.jobs, check=not args.no_check)
    return dataclasses.replace(chosen, check=chosen.check and _can_check(chosen, target, search=args.search))


def _can_check(runner: RunnerChoice, target: Target, *, search: Search) -> bool:
    """True if candidates are to be run in the simulator and a compiler for it is there; says so if it is missing."""
    if not runner.predicts(target, strategy=search):
        return False
    from dwconv.errors import BrokenInstallation
    from dwconv.measure.simulator.compile import check_compiler

    try:
        check_compiler()
    except BrokenInstallation as error:
        print(f"note: candidates are not checked: {error}", file=sys.stderr)
        return False
    return True


def _check_limits(outcomes: list[Outcome], target: CpuTarget) -> None:
    """A kernel faster than the limits allow shows that they were measured on a busy machine: measure them again."""
    from dwconv.measure.limits import EXCEEDED, doubt

    percents = [outcome.result.percent_of_limit for outcome in outcomes if outcome.result]
    if any(percent is not None and percent > 100 * EXCEEDED for percent in percents):
        doubt(target)
        print("note: a kernel is faster than this CPU's limits, which the next run measures again", file=sys.stderr)


def _print(args: argparse.Namespace, outcomes: list[Outcome], target: Target, log: TuningLog) -> None:
    from dwconv.tuner.report import as_data, busy_note

    if args.json:
        results = [as_data(outcome, target=target) for outcome in outcomes]
        print(json.dumps({"target": str(target), "device": target.device, "log": str(log.path), "results": results}))
    else:
        _print_table(args, outcomes, target, log)
    if note := busy_note(outcomes):
        print(note, file=sys.stderr)


def _print_table(args: argparse.Namespace, outcomes: list[Outcome], target: Target, log: TuningLog) -> None:
    from rich.console import Console

    from dwconv.tuner.report import print_costs, print_table

    console = Console(highlight=False)
    print_table(outcomes, console=console)
    print_costs(outcomes, target=target, console=console)
    for line in _closing_lines(args, outcomes, target, log):
        console.print(line, markup=False, soft_wrap=True)


def _closing_lines(args: argparse.Namespace, outcomes: list[Outcome], target: Target, log: TuningLog) -> list[str]:
    """The lines under the table: where the records are, and what to do next."""
    measured = sum(outcome.result.measured for outcome in outcomes if outcome.result)
    resumed = sum(outcome.result.resumed for outcome in outcomes if outcome.result)
    lines = ["", f"log: {log.path} ({measured} new trials, {resumed} known before)"]
    bests = [outcome.result.best for outcome in outcomes if outcome.result and outcome.result.best]
    if not bests:
        return lines
    first = bests[0].workload
    show = f"python -m dwconv.show {workload_options(first)} --pass {first.pass_} --target {args.target}"
    show += f" --log {args.log}" if args.log else ""
    show += " --fast-math" if args.fast_math else ""
    if not any(best.measured for best in bests):
        lines += [
            "predicted: computed, not measured; such a record never runs as if it were tuned",
            f"next: tune on the GPU itself: python -m dwconv.tune {workload_options(first)} --target cuda",
        ]
    else:
        where = f", with DWCONV_TUNING_LOGS={log.path}" if args.log else ""
        faster = sum((best.speedup or 0) > 1 and not best.contended for best in bests)
        lines.append(f"faster than PyTorch's own op: {faster} of {len(bests)}; where not, PyTorch's op keeps running")
        lines.append(f"next: dwconv.convert(model) uses these kernels{where}")
        if target.kind == "cpu" and first.layout == "nchw":
            lines.append("hint: on a CPU channels_last is usually faster: --layout nhwc")
    for what in ("source",) if target.kind == "cpu" else ("source", "cost", "sass"):
        lines.append(f"see:  {show} --what {what}")
    return lines


def _say_which_lines_are_damaged(log: TuningLog) -> None:
    loaded = log.load()
    if loaded.damaged:
        more = ", …" if loaded.damaged > len(loaded.damages) else ""
        some = ", ".join(str(damage.line) for damage in loaded.damages) + more
        plural = "line" if loaded.damaged == 1 else "lines"
        print(
            f"note: log={log.path}: {loaded.damaged} damaged {plural} set aside (line {some}); the rest counts",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
