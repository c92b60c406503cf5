"""Race: a few known configurations of each untuned workload, in seconds.

    counts ──► what is not known yet, most to win first ──► kernels for every layer, a build for each kind of layer
                          │                                                │
                          └─► starts, where there are none ──► comparisons ┴──► log
                                     where a kernel for the size alone is worth its build ─► comparisons ──► log

A search looks for configurations. A race only finds out which of the known ones is the fastest here, and whether
PyTorch's own op is faster still. Kernels for every layer (``untuned.every_layer``) come first: many passes share one
build. A kernel is built for one size where it is expected to save more in a thousand steps than its build takes. What
wins is verified as the finalists of a search are. Gradients of the convolution in a block come last, and only where the
block may still run as its parts. RaceState holds what is still to come, RaceResult how it ended.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dwconv.dispatch import loaded_packs
from dwconv.dispatch.kernel_state import KernelState
from dwconv.errors import EnvironmentFailure, LogError, WorkerError
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.tuner.race_result import RaceResult
from dwconv.tuner.race_state import RaceState, TellProgress
from dwconv.tuner.search.search_result import ctrl_c_waits

if TYPE_CHECKING:
    from dwconv.measure.runner import WorkerProcesses
    from dwconv.records.log import TuningLog
    from dwconv.schedules.template import Candidate


def race(
    counts: Mapping[Workload, int],
    target: Target,
    *,
    log: TuningLog,
    seconds: float,
    known: Database,
    workers: WorkerProcesses,
    state: KernelState | None = None,
    progress: TellProgress | None = None,
) -> RaceResult:
    """Race what ``known`` does not have of this device yet; what is measured is in ``log`` at once.

    ``counts``: how often a step runs each workload; those with most to win come first. After ``seconds``, which count
    the start of the ``workers``, no further one begins. They start only if there is something to race, and stay with
    the caller. ``progress`` is called with the result so far before and after every workload.

    Ctrl-C is raised, when what was measured is in the log. A log that cannot be written, workers that cannot start and
    a machine that is short of something end the race; ``problem`` of the result says so."""
    from dwconv.measure.clock import contention  # late: where kernels come from packs, psutil may be missing
    from dwconv.measure.comparisons import Comparisons

    quiet = contention.Quiet(threads=target.threads if isinstance(target, CpuTarget) else 1)
    race_state = RaceState(
        counts, target, known=known, seconds=seconds, state=state, progress=progress, is_quiet=quiet.look
    )
    if not race_state.waiting:
        return race_state.report()
    try:
        log.check_writable()
        race_state.tell()
        if seconds > 0:
            _start(workers, target)
            race_state.order()
        comparisons = Comparisons(workers, is_worth=race_state.is_worth)
        while True:
            _build_for_every_layer(race_state, workers)
            for records_of_comparison in comparisons.run(race_state.next_comparison):
                with log.locked(), ctrl_c_waits():
                    judged = race_state.judged(records_of_comparison)
                    for record in judged:
                        log.append(record)
                    race_state.add(judged)
                race_state.tell()
            if not race_state.goes_on():
                break
    except (LogError, WorkerError, EnvironmentFailure) as error:
        race_state.problem = str(error)
    return race_state.report()


def first_comparisons(counts: Mapping[Workload, int], target: Target, *, known: Database) -> Iterator[list[Candidate]]:
    """The candidates of each comparison that ``race`` has before anything is measured, in its order."""
    race_state = RaceState(counts, target, known=known, seconds=math.inf)
    race_state.order()
    return iter(race_state.next_comparison, None)


def _start(workers: WorkerProcesses, target: Target) -> None:
    """Now, so that they are ready once it is known what comes first."""
    if not loaded_packs.are_for_every_layer(target):
        workers.builders.start()
    workers.measurer.start()


def _build_for_every_layer(race_state: RaceState, workers: WorkerProcesses) -> None:
    """All cores build, since nothing is timed."""
    from dwconv.measure.built_and_checked import built_and_checked

    if (first := race_state.next_for_every_layer()) is None:
        return
    if built_and_checked(itertools.chain([first], iter(race_state.next_for_every_layer, None)), workers):
        loaded_packs.note_built()
