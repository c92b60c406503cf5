"""Race: a few known configurations of each workload that nobody tuned on this device, in seconds.

    counts ──► what is not known yet, most to win first ──► starts ──► heats ──► log

A search looks for configurations. A race only finds out which of the known ones is the fastest here, and whether
PyTorch's own op is faster still. What wins is verified as the finalists of a search are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from dwconv.errors import EnvironmentFailure, LogError, WorkerError
from dwconv.measure.heats import Heats
from dwconv.records.record import TuningRecord
from dwconv.target import Target
from dwconv.tuner.interrupts import ctrl_c_waits
from dwconv.tuner.race_result import RaceResult
from dwconv.tuner.race_standing import RaceStanding
from dwconv.workload import Workload

if TYPE_CHECKING:
    from dwconv.measure.runner import Workers
    from dwconv.records.log import TuningLog

TellProgress = Callable[[RaceResult], None]


def race(
    counts: Mapping[Workload, int],
    target: Target,
    *,
    log: TuningLog,
    seconds: float,
    records: Iterable[TuningRecord],
    workers: Workers,
    progress: TellProgress | None = None,
) -> RaceResult:
    """Race what ``records`` do not tell of this device yet; what is measured is in ``log`` at once.

    ``counts``: how often a step runs each workload; those with most to win come first. After ``seconds``, which count
    the start of the ``workers``, no further one begins. They start only if there is something to race, and stay with
    the caller. ``progress`` is called with the result so far after every workload.

    Ctrl-C is raised, when what was measured is in the log. A log that cannot be written, workers that cannot start and
    a machine that is short of something end the race; ``problem`` of the result says so."""
    standing = RaceStanding(counts, target, records=list(records), seconds=seconds)
    if not standing.waiting:
        return standing.report()
    try:
        log.check_writable()
        if progress:
            progress(standing.report())
        for records_of_heat in Heats(workers, is_worth=standing.is_worth).run(standing.next_heat):
            with log.locked(), ctrl_c_waits():
                for record in records_of_heat:
                    log.append(record)
                standing.add(records_of_heat)
            if progress:
                progress(standing.report())
    except (LogError, WorkerError, EnvironmentFailure) as error:
        standing.problem = str(error)
    return standing.report()
