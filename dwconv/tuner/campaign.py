"""Campaign: many workloads tuned one after the other, as a user chose it. The command and ``dwconv.tune`` both run it.

Notes, and how the searches stand, go to stderr. What is tuned here goes to the records of the team, too, if the
settings name any.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping

from dwconv import native, settings
from dwconv.errors import BrokenInstallation, NoTemplate, RemoteError, one_line
from dwconv.measure import limits
from dwconv.measure.clock import contention
from dwconv.measure.simulator.compile import check_compiler
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.log import TuningLog
from dwconv.records.shared import SharedRun
from dwconv.tuner.device_campaign import Choices, DeviceCampaign, check_choices, opened_log
from dwconv.tuner.results_table import Outcome, Progress
from dwconv.tuner.search import loop
from dwconv.tuner.search.loop import RunnerChoice
from dwconv.tuner.search.search_result import Search, Stop
from dwconv.tuner.tuned import Tuned


@contextlib.contextmanager
def shared(log: TuningLog, target: Target, *, wanted: bool) -> Iterator[Callable[[], None]]:
    """What is appended to ``log`` inside is shared at the end, whatever that is, and one line says where it is; and
    now and then, if the yielded function is called, while nothing is timed. Nothing is shared without a URL, and where
    it is not ``wanted``."""
    url = settings.shared_records()
    if url is None or not wanted:
        yield lambda: None
        return
    run = SharedRun(url, device=target.device)
    log.followers.append(run.add)

    def put_if_due() -> None:
        if run.is_due:
            with contextlib.suppress(RemoteError):  # reported at the end, if it does not work then
                run.put()

    try:
        yield put_if_due
    finally:
        log.followers.remove(run.add)
        try:
            if count := run.put():
                _say(f"{count} record{'s' * (count != 1)} shared: {run.shown}")
        except RemoteError as error:
            lost = f"what was measured is not shared, {run.shown} cannot be written: {error}; it is in {log.path}"
            _say(f"{lost}, and python -m dwconv.merge can put that there later")


def _say(what: str) -> None:
    print(f"note: {one_line(what)}", file=sys.stderr)


def tune_all(counts: Mapping[Workload, int], target: Target, choices: Choices, *, network: bool) -> Tuned:
    """Tune every workload; ``counts`` says how often a step runs it. ``network``: those with most to win come first.

    Ctrl-C ends the campaign, and what was found until then is in the result. Raises a DwconvError if nothing can be
    tuned as it was chosen, or nothing can be written."""
    check_choices(choices, target, list(counts))
    log, known = opened_log(choices, target)
    if isinstance(target, CpuTarget) and target.present:
        target = prepared_cpu(target, choices)
    campaign = DeviceCampaign.of(counts, target, choices, log=log, known=known, network=network)
    with shared(log, target, wanted=choices.log is None and choices.measures(target)) as share_if_due:
        outcomes, interrupted = _outcomes(campaign, between=share_if_due)
    if isinstance(target, CpuTarget) and target.present:
        outcomes = with_true_limits(outcomes, target)
    return campaign.tuned(outcomes, interrupted=interrupted)


def prepared_cpu(target: CpuTarget, choices: Choices) -> CpuTarget:
    """``target`` with its limits; prints what takes long, and what makes times doubtful."""
    if oversubscribed := contention.oversubscription(target.threads):
        print(f"note: {oversubscribed}: they wait for each other, which makes times longer", file=sys.stderr)
    if not limits.are_settled(target):
        print("note: measuring how fast this CPU copies and multiplies, as the first few runs do", file=sys.stderr)
    target = limits.with_limits(target)
    # Compiled here if need be: the user sees it, and no worker has to do it in its time.
    if native.native(may_compile=choices.compiles_calls) is None and not choices.compiles_calls:
        print(
            f"note: kernels are timed through Python: {choices.minutes:g} minutes are too few to compile what bypasses "
            "it",
            file=sys.stderr,
        )
    return target


# -- while it runs ---------------------------------------------------------------------------------------------------


def _outcomes(campaign: DeviceCampaign, *, between: Callable[[], None]) -> tuple[list[Outcome], bool]:
    """Tune one workload after the other. After ctrl-C, the outcomes so far, and True. ``between`` is called after each
    workload, while nothing is timed."""
    choices, target, step = campaign.choices, campaign.target, campaign.step
    search = choices.search_on(target)
    plan = choices.plan_on(target, campaign.known)
    runner = choices.runner_choice
    runner = dataclasses.replace(runner, check=runner.check and _can_check(runner, target, search=search))
    outcomes: list[Outcome] = []
    try:
        with (
            choices.workers(target) as workers,
            Progress(workloads=len(campaign.agenda.workloads)) as progress,
        ):
            runner = dataclasses.replace(runner, workers=workers)
            for workload, seconds in campaign.agenda:
                progress.to_gain = str(step.to_gain) if step else ""
                progress.begin(workload)
                budget = choices.budget(search=search, seconds=seconds, until=campaign.until(workload))
                try:
                    result = loop.tune_workload(
                        workload, target, log=campaign.log, plan=plan, budget=budget, runner=runner, progress=progress
                    )
                except NoTemplate as error:
                    progress.skip(str(error))
                    outcomes.append(Outcome(workload=workload, reason=str(error)))
                    continue
                if step and result.best:
                    step.update(workload)
                    progress.to_gain = str(step.to_gain)
                progress.finish(result)
                outcomes.append(Outcome(workload=workload, result=result))
                between()
                if result.stopped is Stop.INTERRUPTED:
                    return outcomes, True
    except KeyboardInterrupt:  # between two workloads, or once more
        return outcomes, True
    return outcomes, False


def _can_check(runner: RunnerChoice, target: Target, *, search: Search) -> bool:
    """True if candidates are to be run in the simulator and a compiler for it is there; says so if it is missing."""
    if not runner.predicts(target, strategy=search):
        return False
    try:
        check_compiler()
    except BrokenInstallation as error:
        print(f"note: candidates are not checked: {error}", file=sys.stderr)
        return False
    return True


def with_true_limits(outcomes: list[Outcome], target: CpuTarget) -> list[Outcome]:
    """A kernel faster than the limits allow shows that they were measured on a busy machine: they are measured again
    at once, and the outcomes compared with the better ones."""
    if not any(outcome.result and outcome.result.beyond_limit for outcome in outcomes):
        return outcomes
    print("note: a kernel is faster than this CPU's limits, which are measured again", file=sys.stderr)
    limits.doubt(target)
    found = limits.with_limits(dataclasses.replace(target, limits=None)).limits
    return [outcome.beside(found) if found else outcome for outcome in outcomes]
