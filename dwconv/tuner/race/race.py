"""Race: a few known configurations of each workload that nobody tuned on this device, in seconds.

    counts ──► what is not known yet, most to win first ──► starts ──► comparisons ──► log

A search looks for configurations. A race only finds out which of the known ones is the fastest here, and whether
PyTorch's own op is faster still. What wins is verified as the finalists of a search are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dwconv.errors import EnvironmentFailure, LogError, WorkerError
from dwconv.measure.comparisons import Comparisons
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.tuner.race.race_result import RaceResult
from dwconv.tuner.race.race_state import RaceState
from dwconv.tuner.search.interrupts import ctrl_c_waits

if TYPE_CHECKING:
    from dwconv.dispatch.kernel_state import KernelState
    from dwconv.measure.runner import Workers
    from dwconv.records.database import Database
    from dwconv.records.log import TuningLog
    from dwconv.schedules.template import Candidate

TellProgress = Callable[[RaceResult], None]


def race(
    counts: Mapping[Workload, int],
    target: Target,
    *,
    log: TuningLog,
    seconds: float,
    known: Database,
    workers: Workers,
    state: KernelState | None = None,
    progress: TellProgress | None = None,
) -> RaceResult:
    """Race what ``known`` does not tell of this device yet; what is measured is in ``log`` at once.

    ``counts``: how often a step runs each workload; those with most to win come first. After ``seconds``, which count
    the start of the ``workers``, no further one begins. They start only if there is something to race, and stay with
    the caller. ``progress`` is called with the result so far before and after every workload.

    Ctrl-C is raised, when what was measured is in the log. A log that cannot be written, workers that cannot start and
    a machine that is short of something end the race; ``problem`` of the result says so."""
    race_state = RaceState(counts, target, known=known, seconds=seconds, state=state)
    if not race_state.waiting:
        return race_state.report()
    try:
        log.check_writable()
        if progress:
            progress(race_state.report())

        def next_comparison() -> list[Candidate] | None:
            found = race_state.next_comparison()
            if progress and found:
                progress(race_state.report())
            return found

        for records_of_comparison in Comparisons(workers, is_worth=race_state.is_worth).run(next_comparison):
            with log.locked(), ctrl_c_waits():
                for record in records_of_comparison:
                    log.append(record)
                race_state.add(records_of_comparison)
            if progress:
                progress(race_state.report())
    except (LogError, WorkerError, EnvironmentFailure) as error:
        race_state.problem = str(error)
    return race_state.report()
