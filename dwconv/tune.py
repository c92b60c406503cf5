"""``python -m dwconv.tune``: find the fastest configuration of a depthwise convolution on a device."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dwconv import native, settings
from dwconv.arguments import (
    INTERRUPTED_EXIT_CODE,
    ArgumentParser,
    add_workload_arguments,
    checked_pass,
    run,
    with_arithmetic,
    workload_from,
    workload_options,
)
from dwconv.errors import NoDevice, NoTemplate, UnknownTarget
from dwconv.workload import PASSES, Workload

if TYPE_CHECKING:
    from dwconv.records.log import TuningLog
    from dwconv.target import CpuTarget, Target
    from dwconv.tuner.agenda import Agenda
    from dwconv.tuner.report import Outcome

NOTHING_WORKED_EXIT_CODE = 1
_SEARCHES = ("evolve", "random", "exhaustive", "analytic")
_RUNNERS = ("auto", "local", "predict")
_CACHES = ("warm", "training")
_WITHOUT_END = ("exhaustive", "analytic")
"""Searches that end by themselves."""
_OF_A_LAYER = ("kernel", "stride", "padding", "dilation", "multiplier")


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, 1 if no candidate of any pass worked, 2 for bad input, 130 after ctrl-C."""
    return run(_tune, argv)


def _tune(argv: list[str] | None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    counts = _workloads(parser, args)

    from dwconv.records.log import TuningLog, log_path

    log = TuningLog(args.log) if args.log else None  # first, since to know the target takes importing PyTorch

    from dwconv.target import CpuTarget, parse_target

    target = with_arithmetic(args, parse_target(args.target))
    args.search = args.search or _usual_search(target)
    _check_search(args, target)
    _check_runner(args, target)
    _check_templates(list(counts), target)
    log = log or TuningLog(log_path(target))
    log.check_writable()
    _say_what_is_damaged(log)
    if isinstance(target, CpuTarget):
        from dwconv.measure.contention import crowding
        from dwconv.measure.limits import are_settled, with_limits

        if crowded := crowding(target.threads):
            print(f"note: {crowded}: they wait for each other, and the times show it", file=sys.stderr)
        if not are_settled(target):
            print("note: measuring, as the first few runs do, how fast this CPU can copy and multiply", file=sys.stderr)
        target = with_limits(target)
        native.native()  # if it has to be compiled, the user sees it here; no worker has to
    agenda = _agenda(args, counts, target, log)
    from dwconv.tuner.report import busy_note

    outcomes, interrupted = _outcomes(args, agenda, target, log)
    if isinstance(target, CpuTarget):
        _check_limits(outcomes, target)
    _print(args, outcomes, target, log)
    if note := busy_note(outcomes):
        print(note, file=sys.stderr)
    if interrupted:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE
    if left := len(agenda.workloads) - len(outcomes):
        print(f"time is up, {left} passes are left: the same command goes on from here", file=sys.stderr)
    worked = any(outcome.result and outcome.result.best for outcome in outcomes)
    return 0 if worked or not outcomes else NOTHING_WORKED_EXIT_CODE


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m dwconv.tune",
        description="Find the fastest configuration of each pass of a depthwise convolution on a device, and write "
        "every measurement to a log that dwconv.conv2d and dwconv.convert read.",
        epilog=f"Without --trials and --seconds, a pass ends after {settings.TRIALS} trials or {settings.SECONDS:g} s; "
        "with one of them, the other has no end. An exhaustive search tries the whole space unless told otherwise. "
        "Of a network, the layers that take longest come first.",
    )
    add_workload_arguments(parser, shape_required=False)
    network = parser.add_argument_group("or all depthwise layers of a network")
    network.add_argument("--layers", type=Path, metavar="FILE", help="JSON: a list of layers by the network's name")
    network.add_argument("--network", metavar="NAME", action="append", help="a network in FILE; may be repeated")
    network.add_argument("--batch", type=_whole, metavar="N", help="batch size")
    search = parser.add_argument_group("search")
    search.add_argument("--passes", default=",".join(PASSES), metavar="PASS,…", help=f"default {','.join(PASSES)}")
    search.add_argument(
        "--search",
        choices=_SEARCHES,
        help="default evolve; analytic, the configuration of least computed cost on a GPU, nothing measured, where the "
        "GPU is not here",
    )
    search.add_argument(
        "--runner",
        choices=_RUNNERS,
        default="auto",
        help="who finds out what candidates are worth: local measures them here; predict, for a GPU that need not be "
        "here, computes costs and runs the source on the CPU, in the simulator, to verify it; default auto: local, or "
        "else predict",
    )
    search.add_argument("--no-check", action="store_true", help="compute costs only, leave out the simulator")
    search.add_argument("--trials", type=_whole, metavar="N", help="candidates a pass, known ones included")
    search.add_argument("--seconds", type=_positive, metavar="S", help="seconds a pass")
    search.add_argument(
        "--minutes",
        type=_positive,
        metavar="M",
        help="for all passes: what the log has confirmed is left out, and each of the others gets an even share of the "
        f"time, S seconds at most, default {settings.SECONDS:g}",
    )
    search.add_argument(
        "--patience",
        type=_whole,
        metavar="N",
        help=f"stop after N trials without improvement, default {settings.PATIENCE}",
    )
    search.add_argument("--seed", type=int, default=settings.SEED, metavar="N", help=f"default {settings.SEED}")
    search.add_argument(
        "--jobs", type=_whole, default=_cores(), metavar="N", help="builds at a time, default all cores"
    )
    search.add_argument(
        "--caches",
        choices=_CACHES,
        default="warm",
        help="time candidates on the same tensors again and again (warm), or with the caches as a training step "
        "finds them; keep the two in logs of their own; default warm",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--log",
        type=Path,
        metavar="PATH",
        help="log to read and extend, default your own: <device>.jsonl in your data folder",
    )
    output.add_argument("--no-resume", action="store_true", help="measure again what the log knows")
    output.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def _workloads(parser: ArgumentParser, args: argparse.Namespace) -> Counter[Workload]:
    """What to tune, and how often each occurs. Raises InvalidWorkload."""
    passes = [checked_pass(name) for name in dict.fromkeys(args.passes.split(","))]
    if args.layers is None:
        for name in ("network", "batch"):
            if getattr(args, name) is not None:
                parser.error(f"--{name} goes with --layers")
        if args.shape is None or args.kernel is None:
            parser.error("give --shape N,C,H,W and --kernel K, or --layers FILE --network NAME --batch N")
        return Counter(workload_from(args, pass_) for pass_ in passes)
    if args.shape is not None:
        parser.error("give --shape or --layers, not both")
    for name in _OF_A_LAYER:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f"--{name} goes with --shape; FILE gives it for every layer")
    if args.network is None or args.batch is None:
        parser.error("--layers needs --network NAME and --batch N")

    from dwconv.layers import read_layers

    counts: Counter[Workload] = Counter()
    for network in dict.fromkeys(args.network):
        for layer in read_layers(args.layers, network=network):
            for pass_ in passes:
                workload = layer.workload(pass_, batch=args.batch, dtype=args.dtype, layout=args.layout, bias=args.bias)
                counts[workload] += layer.count
    return counts


def _agenda(args: argparse.Namespace, counts: Mapping[Workload, int], target: Target, log: TuningLog) -> Agenda:
    """What is tuned, in which order and for how long; says what is left out."""
    from dwconv.tuner.agenda import Agenda, costliest_first, without_confirmed

    workloads = costliest_first(counts, target) if args.layers else list(counts)
    if args.minutes is not None:
        left = without_confirmed(workloads, log.load().records, target)
        if known := len(workloads) - len(left):
            print(
                f"note: {known} of {len(workloads)} passes are confirmed in {log.path}, and left out", file=sys.stderr
            )
        return Agenda(workloads=left, seconds=args.seconds or settings.SECONDS, total_s=60 * args.minutes)
    endless = args.trials is not None or args.search in _WITHOUT_END
    return Agenda(workloads=workloads, seconds=args.seconds or (None if endless else settings.SECONDS))


def _usual_search(target: Target) -> str:
    """Where nothing can be measured, what is computed decides."""
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


def _checks(args: argparse.Namespace, target: Target) -> bool:
    """True if candidates are to be run in the simulator; says so if that cannot be."""
    from dwconv.tuner.loop import predicts

    if args.no_check or not predicts(target, search=args.search, kind=args.runner):
        return False
    from dwconv.errors import BrokenInstallation
    from dwconv.measure.simulator.compile import check_compiler

    try:
        check_compiler()
    except BrokenInstallation as error:
        print(f"note: candidates are not checked: {error}", file=sys.stderr)
        return False
    return True


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
    """Tune one after the other. After ctrl-C, what came before it, and True."""
    from dwconv.measure.runner import Workers
    from dwconv.records.database import Database
    from dwconv.tuner.loop import tune_workload
    from dwconv.tuner.progress import Progress
    from dwconv.tuner.report import Outcome
    from dwconv.tuner.result import Stop

    chosen = (args.trials, args.seconds, args.minutes) != (None, None, None) or args.search == "exhaustive"
    check = _checks(args, target)
    elsewhere = [] if args.log else list(Database.usual())
    outcomes: list[Outcome] = []
    try:
        with (
            Workers(target, jobs=args.jobs, caches=args.caches) as workers,
            Progress(workloads=len(agenda.workloads)) as progress,
        ):
            for workload, seconds in agenda:
                progress.begin(workload)
                try:
                    result = tune_workload(
                        workload,
                        target,
                        log=log,
                        search=args.search,
                        trials=args.trials if chosen else settings.TRIALS,
                        seconds=seconds,
                        patience=args.patience or (None if args.search in _WITHOUT_END else settings.PATIENCE),
                        seed=args.seed,
                        jobs=args.jobs,
                        resume=not args.no_resume,
                        progress=progress,
                        runner_kind=args.runner,
                        check=check,
                        workers=workers,
                        elsewhere=elsewhere,
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


def _check_limits(outcomes: list[Outcome], target: CpuTarget) -> None:
    """What is faster than the limits allow shows that they were measured on a busy machine."""
    from dwconv.measure.limits import EXCEEDED, doubt

    percents = [outcome.result.percent_of_limit for outcome in outcomes if outcome.result]
    if any(percent is not None and percent > 100 * EXCEEDED for percent in percents):
        doubt(target)
        print("note: a kernel is faster than this CPU's limits, which the next run measures again", file=sys.stderr)


def _print(args: argparse.Namespace, outcomes: list[Outcome], target: Target, log: TuningLog) -> None:
    from dwconv.tuner.report import as_data, print_costs, print_table

    if args.json:
        results = [as_data(outcome, target=target) for outcome in outcomes]
        print(json.dumps({"target": str(target), "device": target.device, "log": str(log.path), "results": results}))
        return
    from rich.console import Console

    console = Console(highlight=False)
    print_table(outcomes, console=console)
    print_costs(outcomes, target=target, console=console)
    for line in _closing_lines(args, outcomes, target, log):
        console.print(line, markup=False, soft_wrap=True)


def _closing_lines(args: argparse.Namespace, outcomes: list[Outcome], target: Target, log: TuningLog) -> list[str]:
    """Where the records are, and what to do next."""
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
    lines.append(f"see:  {show} --what {'source' if target.kind == 'cpu' else 'source | cost | sass'}")
    return lines


def _say_what_is_damaged(log: TuningLog) -> None:
    loaded = log.load()
    if loaded.damaged:
        more = ", …" if loaded.damaged > len(loaded.damages) else ""
        some = ", ".join(str(damage.line) for damage in loaded.damages) + more
        plural = "line" if loaded.damaged == 1 else "lines"
        print(
            f"note: log={log.path}: {loaded.damaged} damaged {plural} set aside (line {some}); the rest counts",
            file=sys.stderr,
        )


def _whole(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return number


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return number


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main())
