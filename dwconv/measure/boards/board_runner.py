"""BoardRunner: from candidates to tuning records of a board."""

from __future__ import annotations

import sys
import time

from dwconv import settings
from dwconv.errors import BoardLost, WorkerCannotStart, WorkerDied, WorkerError
from dwconv.measure.boards.address import Board
from dwconv.measure.boards.board_measurer import BoardSetup, Connect
from dwconv.measure.building import BUILD_FOR_BOARD
from dwconv.measure.clock import contention
from dwconv.measure.measuring import Check, Final, Measured, Trial
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.runner import LocalRunner, Workers, misfit_of_answer
from dwconv.problems.target import CpuTarget

_MEASURE = "dwconv.measure.boards.board_measurer:BoardMeasurer"
_TRANSFERS = 8
"""How often the tensors of a candidate cross the network in one request, about."""
_PAUSE_S = 1.0


class BoardWorkers(Workers):
    """The processes that build here, and the one that talks to a board."""

    def __init__(self, board: Board, target: CpuTarget, *, jobs: int) -> None:
        measurer = IsolatedProcess(
            _MEASURE, BoardSetup(board=board, target=target), threads=contention.cores(), misfit=misfit_of_answer
        )
        super().__init__(target, jobs=jobs, build=BUILD_FOR_BOARD, measurer=measurer)
        self.board = board

    def check(self) -> None:
        """Raises BoardLost if the board does not answer now."""
        try:
            self.connect(session_s=settings.BOARD_CONNECT_TIMEOUT_S)
        except WorkerError as error:
            raise self.lost(error) from None

    def connect(self, *, session_s: float) -> None:
        """Begin a session. Raises WorkerError."""
        self.measurer.call(Connect(session_s=session_s), timeout_s=settings.BOARD_CONNECT_TIMEOUT_S)

    def lost(self, error: WorkerError) -> BoardLost:
        """The error that ends tuning."""
        return BoardLost(
            f"the board {self.board} does not answer: {error}; start its tracker and its server "
            f"({self.board.server_command}), then run the same command again"
        )


class BoardRunner(LocalRunner):
    """A Runner whose candidates run on a board; builds, and judging, are here. Raises BoardLost if the board stays
    away: what ran then has no record."""

    _workers: BoardWorkers

    def _request(self, body: Trial | Check | Final, *, share: int = 1) -> Measured | WorkerError:
        """The answer, or the error that the request is to blame for: a session that is lost is tried once more, on a
        board that is there again."""
        measurer = self._workers.measurer
        limit_s = self._run_timeout_s * share + _transferred_bytes(body) / settings.BOARD_BYTES_PER_S
        for attempt in (1, 2):
            self._connect(finalists=not isinstance(body, Trial), limit_s=limit_s)
            try:
                answer: Measured = measurer.call(body, timeout_s=limit_s)
            except WorkerError as error:
                if not (isinstance(error, WorkerDied) or str(error).startswith(BoardLost.__name__)):
                    return error
                if attempt == 2:  # the board was there again in between
                    return error if isinstance(error, WorkerDied) else WorkerDied(f"the session ended: {error}")
            else:
                return answer
        raise AssertionError("every attempt returns, or goes on to the next")

    def _connect(self, *, finalists: bool, limit_s: float) -> None:
        """Begin a session for a request of ``limit_s``; wait for a board that is away. Raises BoardLost."""
        until_s, said = time.monotonic() + settings.BOARD_WAIT_S, False
        while True:
            self._prepare(finalists=finalists)
            try:
                self._workers.connect(session_s=limit_s + settings.BOARD_MARGIN_S)
            except WorkerError as error:
                if isinstance(error, WorkerCannotStart):
                    raise
                if time.monotonic() >= until_s:
                    raise self._workers.lost(error) from None
                if not said:
                    board, wait_s = self._workers.board, settings.BOARD_WAIT_S
                    print(f"note: waiting {wait_s:g} s for the board {board}: {error}", file=sys.stderr)
                    said = True
                time.sleep(min(_PAUSE_S, settings.BOARD_WAIT_S / 10))
            else:
                return


def _transferred_bytes(body: Trial | Check | Final) -> int:
    artifacts = body.artifacts if isinstance(body, Final) else (body.artifact,)
    return _TRANSFERS * sum(artifact.bytes_at(artifact.candidate.workload.batch + 1) for artifact in artifacts)
