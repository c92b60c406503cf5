"""Sharing: what is tuned here goes to the records of the team, too, if the settings name any."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from dwconv import settings
from dwconv.errors import RemoteError, one_line
from dwconv.problems.target import Target
from dwconv.records.log import TuningLog
from dwconv.records.shared import SharedRun


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
            with contextlib.suppress(RemoteError):  # told at the end, if it does not work then
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
