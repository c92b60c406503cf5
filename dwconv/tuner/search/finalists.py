"""Finalists: the fastest few are verified further and timed side by side before one of them is confirmed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config
from dwconv.tuner.search.interrupts import ctrl_c_waits
from dwconv.tuner.search.search_state import SearchState

if TYPE_CHECKING:
    from dwconv.measure.runner import Runner
    from dwconv.records.log import RecordWriter

FINALISTS = 4
_MOST_GROUPS = 4
"""Groups of finalists to try if none of a group passes."""
_CONFIRM_S = 30.0
"""No further group begins after this time, or after the seconds that the search may take if those are more."""
_ATTEMPTS = 3
_WAIT_S = 30.0
"""The machine may become quiet for this long, and no longer than the search may take, before contended finalists are
timed again."""


def confirm(state: SearchState, log: RecordWriter, runner: Callable[[], Runner]) -> None:
    """Verify and time the finalists once more, side by side; if none of them passes, the next best.

    It gives up, and leaves the rest to the next run, if many are wrong in a row, or if they have taken as long as the
    search might. An earlier run's confirmation stands unless something new was measured since. If other work disturbs
    the timing, the finalists get another chance when the machine is quiet. If it stays busy, nothing is confirmed, and
    the next run tries again.
    """
    if state.nothing_new and state.has_confirmed:
        return
    ranking = state.ranking[: _MOST_GROUPS * FINALISTS]
    until_s = time.monotonic() + max(_CONFIRM_S, state.budget_s)
    for start in range(0, len(ranking), FINALISTS):
        if start and time.monotonic() > until_s:
            return
        records = _confirm_together(ranking[start : start + FINALISTS], state, log, runner)
        if not records or any(record.confirmed for record in records):
            return
        if any(record.contended for record in records):
            state.too_busy = True
            return


def _confirm_together(
    finalists: Sequence[Config], state: SearchState, log: RecordWriter, runner: Callable[[], Runner]
) -> list[TuningRecord]:
    """The records of the last attempt."""
    for attempt in range(1, _ATTEMPTS + 1):
        records = []
        for measured in runner().confirm(state.candidates(finalists)):
            record = state.history.judged(measured, busy=state.busy_now)
            with log.locked(), ctrl_c_waits():
                log.append(record)
                state.add(record, confirming=True)
            records.append(record)
        if attempt == _ATTEMPTS or not state.history.contended(records):
            break
        if not state.wait(at_most_s=_WAIT_S / (_ATTEMPTS - 1)):
            break
    return records
