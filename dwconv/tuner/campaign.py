"""Campaign: many workloads tuned on the devices of one name, as a user chose it. The command and ``dwconv.tune`` both
run one, one workload after the other; the driver of a cluster hands its workloads out to the nodes.

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
from dwconv.records.database import Database
from dwconv.records.log import TuningLog, log_path
from dwconv.records.shared import SharedRun
from dwconv.tuner.agenda import Agenda, without_searched
from dwconv.tuner.choices import Choices, check_choices
from dwconv.tuner.expected_gain import StepTime, Until, expected_gains_us, most_to_win_first, with_both_gradients
from dwconv.tuner.results_table import Outcome, Progress
from dwconv.tuner.search import loop
from dwconv.tuner.search.loop import SearchPlan
from dwconv.tuner.search.search_result import ENDS_BY_ITSELF, Stop, TuningResult
from dwconv.tuner.search.strategies import to_race_again
from dwconv.tuner.tuned import Gain, Tuned


def tune_all(counts: Mapping[Workload, int], target: Target, choices: Choices, *, network: bool) -> Tuned:
    """Tune every workload; ``counts`` says how often a step runs it. ``network``: those with most to win come first.

    Ctrl-C ends the campaign, and what was found until then is in the result. Raises a DwconvError if nothing can be
    tuned as it was chosen, or nothing can be written."""
    campaign = Campaign(counts, target, choices, network=network, is_here=target.present)
    with shared(campaign.log, target, wanted=choices.log is None and target.present) as share_if_due:
        interrupted = _tune(campaign, between=share_if_due)
    if isinstance(target, CpuTarget) and target.present:
        campaign.outcomes = with_true_limits(campaign.outcomes, target)
    return campaign.tuned(interrupted=interrupted)


class Campaign:
    """The workloads of one device's name, and what came of them. ``counts`` says how often a step runs each.
    ``network``: those with most to win come first. ``is_here``: the device is in this machine, and is made ready. Says
    what is left out. Raises a DwconvError if nothing can be tuned as it was chosen, or nothing can be written."""

    def __init__(
        self,
        counts: Mapping[Workload, int],
        target: Target,
        choices: Choices,
        *,
        network: bool,
        is_here: bool = False,
    ) -> None:
        check_choices(choices, target, list(counts))
        self.log, self.known = _opened_log(choices, target)
        if is_here and isinstance(target, CpuTarget):
            target = prepared_cpu(target, choices)
        counts = with_both_gradients(counts, target) if choices.both_gradients else counts
        self.target, self.choices = target, choices
        self.agenda = self._agenda(counts, network=network)
        self.step = StepTime(counts, target, self.known) if network or choices.until else None
        """Of a network; None if there are no steps."""
        self._before = self.step.to_gain if self.step else None
        self.outcomes: list[Outcome] = []

    @property
    def total(self) -> int:
        """Workloads, tuned or not."""
        return len(self.agenda.workloads)

    @property
    def left(self) -> int:
        """Workloads without an outcome."""
        return self.total - len(self.outcomes)

    def until(self, workload: Workload) -> Until | None:
        """When the search of a workload that begins now ends; None without ``--until``."""
        if self.choices.until is None or self.step is None:
            return None
        calls, step_us = self.step.calls(workload), self.step.to_gain.depthwise_us
        return Until(share=self.choices.until, calls=calls, step_us=step_us)

    def add(self, workload: Workload, result: TuningResult | None, *, reason: str = "") -> None:
        """The search of ``workload`` has ended; ``reason`` says why it could not be tuned."""
        self.outcomes.append(Outcome(workload=workload, result=result, reason=reason))
        if self.step and result and result.best:
            self.step.update(workload)

    def tuned(self, *, interrupted: bool) -> Tuned:
        """What was found, if it ends now."""
        return Tuned(
            outcomes=tuple(self.outcomes),
            target=self.target,
            log=self.log.path,
            is_own_log=self.choices.log is None,
            left=self.left,
            interrupted=interrupted,
            gain=Gain(before=self._before, after=self.step.to_gain) if self.step and self._before else None,
            tuning_left=self.step.tuning_left() if self.step and self.choices.until else None,
        )

    def _agenda(self, counts: Mapping[Workload, int], *, network: bool) -> Agenda:
        """The workloads in the order in which they are tuned, and how long each may take; says what is left out."""
        choices, target, known = self.choices, self.target, self.known
        workloads = most_to_win_first(counts, target, known) if network else list(counts)
        total_s = 60 * choices.minutes if choices.minutes else None
        if choices.refresh:
            left = to_race_again(workloads, known, target)
            if others := len(workloads) - len(left):
                _say(f"{others} of {len(workloads)} passes have nothing to race again, and are left out")
            return Agenda(workloads=left, seconds=choices.seconds, total_s=total_s)
        if choices.minutes is None:
            endless = choices.trials is not None or choices.search_on(target) in ENDS_BY_ITSELF
            return Agenda(workloads=workloads, seconds=choices.seconds or (None if endless else settings.SECONDS))
        left = without_searched(workloads, known.of_own_places, target)
        if searched := len(workloads) - len(left):
            by = f"{self.log.path}{' or the team' * (known.own > 1)}"
            _say(f"{searched} of {len(workloads)} passes were searched before, by {by}, and are left out")
        return Agenda(
            workloads=left,
            seconds=choices.seconds or settings.SECONDS,
            total_s=total_s,
            expected_gains_us=expected_gains_us({each: counts[each] for each in left}, target, known),
        )


def _say(what: str) -> None:
    print(f"note: {one_line(what)}", file=sys.stderr)


def _opened_log(choices: Choices, target: Target) -> tuple[TuningLog, Database]:
    """The log to write, and what is known: what it holds, and behind that the usual places. The next search uses what
    one finds. Says which files are damaged. Raises LogError if it cannot be written."""
    log = TuningLog(choices.log or log_path(target))
    log.check_writable()
    known = Database.behind_log(log.path, alone=choices.log is not None)
    log.followers.append(known.add)
    for problem in known.problems:
        print(f"note: {problem}", file=sys.stderr)
    return log, known


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


def _tune(campaign: Campaign, *, between: Callable[[], None]) -> bool:
    """Tune one workload after the other; True after ctrl-C. ``between`` is called while nothing is timed."""
    choices, target, step = campaign.choices, campaign.target, campaign.step
    search = choices.search_on(target)
    try:
        with (
            choices.workers(target) as workers,
            Progress(workloads=campaign.total) as progress,
        ):
            plan = choices.plan_on(target, campaign.known, workers=workers)
            plan = dataclasses.replace(plan, check=plan.check and _can_check(plan, target))
            for workload, seconds in campaign.agenda:
                progress.to_gain = str(step.to_gain) if step else ""
                progress.begin(workload)
                budget = choices.budget(search=search, seconds=seconds, until=campaign.until(workload))
                try:
                    result = loop.tune_workload(
                        workload, target, log=campaign.log, plan=plan, budget=budget, progress=progress
                    )
                except NoTemplate as error:
                    progress.skip(str(error))
                    campaign.add(workload, None, reason=str(error))
                    continue
                campaign.add(workload, result)
                progress.to_gain = str(step.to_gain) if step else ""
                progress.finish(result)
                between()
                if result.stopped is Stop.INTERRUPTED:
                    return True
    except KeyboardInterrupt:  # between two workloads, or once more
        return True
    return False


def _can_check(plan: SearchPlan, target: Target) -> bool:
    """True if candidates are to be run in the simulator and a compiler for it is there; says so if it is missing."""
    if not plan.predicts(target):
        return False
    try:
        check_compiler()
    except BrokenInstallation as error:
        _say(f"candidates are not checked: {error}")
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
