"""Campaign: many workloads tuned on the devices of one name, as a user chose it. The command and ``dwconv.tune`` both
run one, one workload after the other; the driver of a cluster hands its workloads out to the nodes.

Notes, and how the searches stand, go to stderr. What is tuned here goes to the records of the team, too, if the
settings name any.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from dwconv import native, settings
from dwconv.errors import BrokenInstallation, NoTemplate, RemoteError, WorkerError, one_line, say
from dwconv.measure import limits
from dwconv.measure.clock import contention
from dwconv.measure.simulator.host_compile import check_compiler
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog, log_path
from dwconv.records.shared import SharedRun
from dwconv.tuner.agenda import Agenda, without_searched
from dwconv.tuner.campaign_result import Tuned
from dwconv.tuner.expected_gain import expected_gains_us, most_to_win_first
from dwconv.tuner.results_table import Outcome, Progress, state
from dwconv.tuner.search import search_loop
from dwconv.tuner.search.search_result import Budget, Stop, TuningResult
from dwconv.tuner.step_time import StepTime, ToGain, with_both_gradients
from dwconv.tuner.user_choices import UserChoices, check_choices


def tune_all(counts: Mapping[Workload, int], target: Target, choices: UserChoices, *, network: bool) -> Tuned:
    """Tune every workload; ``counts`` says how often a step runs it. ``network``: those with most to win come first.

    Ctrl-C ends the campaign, and what was found until then is in the result. Raises a DwconvError if nothing can be
    tuned as it was chosen, or nothing can be written."""
    campaign = Campaign(counts, target, choices, network=network, is_here=target.present)
    with shared(campaign.log, target, wanted=choices.log is None and target.present) as share_if_due:
        interrupted = _tune(campaign, between=share_if_due)
    if isinstance(target, CpuTarget) and doubt_limits(campaign.outcomes, target) and not interrupted:
        campaign.outcomes = _beside_new_limits(campaign.outcomes, target)
    return campaign.tuned(interrupted=interrupted)


class Campaign:
    """The workloads of one device's name, and what came of them. ``counts`` says how often a step runs each.
    ``network``: those with most to win come first. ``is_here``: the device is in this machine, and is made ready. Says
    what is left out. Raises a DwconvError if nothing can be tuned as it was chosen, or nothing can be written."""

    def __init__(
        self,
        counts: Mapping[Workload, int],
        target: Target,
        choices: UserChoices,
        *,
        network: bool,
        is_here: bool = False,
    ) -> None:
        check_choices(choices, target, list(counts))
        self.log, self.known = _opened_log(choices, target)
        if is_here and isinstance(target, CpuTarget):
            target = prepared_cpu(target, choices, passes=len(counts))
        counts = with_both_gradients(counts, target) if choices.both_gradients else counts
        self.target, self.choices = target, choices
        self._step = StepTime(counts, target, self.known) if network or choices.until else None
        self._before = self.to_gain
        self.outcomes: list[Outcome] = []
        self.agenda = self._agenda(counts, network=network)

    @property
    def total(self) -> int:
        """Workloads, tuned or not."""
        return len(self.agenda.workloads)

    @property
    def to_gain(self) -> ToGain | None:
        """What tuning may still gain of a step; None if there are no steps."""
        return self._step.to_gain if self._step else None

    @property
    def left(self) -> int:
        """Workloads without an outcome."""
        return self.total - len(self.outcomes)

    def budget(self, workload: Workload, *, seconds: float | None) -> Budget:
        """Of a search that begins now."""
        until = self._step.until(workload, share=self.choices.until) if self._step and self.choices.until else None
        return dataclasses.replace(self.choices.budget(self.target, seconds=seconds), until=until)

    def add(self, workload: Workload, result: TuningResult | None, *, reason: str = "") -> None:
        """The search of ``workload`` has ended; ``reason`` says why it could not be tuned."""
        self.outcomes.append(Outcome(workload=workload, result=result, reason=reason))
        if self._step and result and result.best:
            self._step.update(workload)

    def tuned(self, *, interrupted: bool) -> Tuned:
        """What was found, if it ends now."""
        return Tuned(
            outcomes=tuple(self.outcomes),
            target=self.target,
            log=self.log.path,
            is_own_log=self.choices.log is None,
            left=self.left,
            interrupted=interrupted,
            gained=(self._before, self.to_gain),
            tuning_left_us=self._step.tuning_left_us if self._step and self.choices.until else None,
        )

    def _agenda(self, counts: Mapping[Workload, int], *, network: bool) -> Agenda:
        """The workloads in the order in which they are tuned, and how long each may take; says what is left out."""
        choices, target, known = self.choices, self.target, self.known
        workloads = most_to_win_first(counts, target, known) if network else list(counts)
        if choices.minutes is None:
            return Agenda(workloads, seconds=choices.seconds_on(target))
        left = without_searched(workloads, known.of_own_places, target)
        if searched := len(workloads) - len(left):
            by = f"{self.log.path}{' or the team' * (known.own > 1)}"
            _say(f"{searched} of {len(workloads)} passes were searched before, by {by}, and are left out")
        gains_us = expected_gains_us({each: counts[each] for each in left}, target, known)
        seconds, total_s = choices.seconds_on(target), 60 * choices.minutes
        return Agenda(left, seconds=seconds, total_s=total_s, expected_gains_us=gains_us)


def _say(what: str) -> None:
    say(f"note: {one_line(what)}")


def _opened_log(choices: UserChoices, target: Target) -> tuple[TuningLog, Database]:
    """The log to write, and what is known: what it holds, and behind that the usual places. The next search uses what
    one finds. Says which files are damaged. Raises LogError if it cannot be written."""
    log = TuningLog(choices.log or log_path(target))
    log.check_writable()
    known = Database.behind_log(log.path, alone=choices.log is not None)
    log.followers.append(known.add)
    for problem in known.problems:
        _say(problem)
    return log, known


def prepared_cpu(target: CpuTarget, choices: UserChoices, *, passes: float = math.inf) -> CpuTarget:
    """``target`` with its limits; prints what takes long, and what makes times doubtful."""
    if oversubscribed := contention.oversubscription(target.threads):
        _say(f"{oversubscribed}: they wait for each other, which makes times longer")
    if not limits.are_settled(target):
        _say("measuring how fast this CPU copies and multiplies, as the first few runs do")
    target = limits.with_limits(target)
    # Compiled here if need be: the user sees it, and no worker has to do it in its time.
    limit_s = choices.compiles_for_s(passes=passes)
    if native.native(may_compile=limit_s > 0, limit_s=limit_s) is None and not native.is_out():
        budget = f"{choices.minutes:g} minutes" if choices.minutes else f"{choices.seconds or 0:g} seconds a pass"
        is_short = f"{budget} are too few to compile what bypasses it"
        is_late = f"what bypasses it is not compiled after {limit_s:.0f} s; the next run may have it"
        _say(f"kernels are timed through Python: {is_late if limit_s else is_short}")
    return target


def _tune(campaign: Campaign, *, between: Callable[[], None]) -> bool:
    """Tune one workload after the other; True after ctrl-C. ``between`` is called while nothing is timed."""
    choices, target = campaign.choices, campaign.target
    try:
        with choices.workers(target) as workers, Progress(workloads=campaign.total) as progress:
            plan = choices.plan_on(target, campaign.known, workers=workers)
            if plan.predicts(target):
                _say_if_nothing_is_checked()
            for workload, seconds in campaign.agenda:
                progress.begin(workload, to_gain=campaign.to_gain)
                budget = campaign.budget(workload, seconds=seconds)
                try:
                    result = search_loop.tune_workload(
                        workload, target, log=campaign.log, plan=plan, budget=budget, progress=progress
                    )
                except NoTemplate as error:
                    progress.finish(str(error))
                    campaign.add(workload, None, reason=str(error))
                    continue
                campaign.add(workload, result)
                progress.finish(state(result), to_gain=campaign.to_gain)
                between()
                if result.stopped is Stop.INTERRUPTED:
                    return True
    except KeyboardInterrupt:  # between two workloads, or once more
        return True
    return False


def _say_if_nothing_is_checked() -> None:
    """Candidates whose cost is computed are run in the simulator, if a compiler for it is there."""
    try:
        check_compiler()
    except BrokenInstallation as error:
        _say(f"candidates are not checked: {error}")


def doubt_limits(outcomes: Iterable[Outcome], target: Target) -> bool:
    """True if a kernel is faster than the limits of this CPU allow. That shows that they were measured on a busy
    machine: they are measured again when they are next needed."""
    if isinstance(target, CpuTarget) and target.present and any(each.beyond_limit for each in outcomes):
        _say("a kernel is faster than this CPU's limits, which are measured again")
        limits.doubt(target)
        return True
    return False


def _beside_new_limits(outcomes: list[Outcome], target: CpuTarget) -> list[Outcome]:
    """``outcomes``, compared with limits that are measured now, where that works."""
    try:
        found = limits.with_limits(dataclasses.replace(target, limits=None)).limits
    except WorkerError as error:
        _say(f"the limits could not be measured: {error}")
        return outcomes
    return [each.beside(found) for each in outcomes] if found else outcomes


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
