"""BoardRunner: from candidates to tuning records of a board.

BoardMeasurer is inside the process with the session: it verifies and times artifacts on the board. Answers are judged
there.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import cached_property

import torch

from dwconv import settings
from dwconv.errors import BoardLost, WorkerCannotStart, WorkerDied, WorkerError
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.entry import message
from dwconv.measure.boards.session import Board, RemoteKernel, Session, time_kernels
from dwconv.measure.building import BUILD_FOR_BOARD
from dwconv.measure.clock import contention
from dwconv.measure.clock.timing import FINAL, TRIAL
from dwconv.measure.measuring import HOPELESS
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.processes.worker import one_line
from dwconv.measure.requests import Check, Final, Measured, Prepare, Trial, misfit_of_answer
from dwconv.measure.runner import LocalRunner, Workers
from dwconv.measure.verify.cases import Case, fresh_case, make_case
from dwconv.measure.verify.verify import explained, verify_runs
from dwconv.problems.operands import Data
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.records.record import Verdict

_CASES: tuple[tuple[int, Data], ...] = ((1, "extreme"), (3, "integers"), (2, "normal"))
"""Batch sizes and data that a finalist is verified on, besides one image more than it was tuned for: each case crosses
the network several times."""


@message
@dataclass(frozen=True, kw_only=True)
class BoardSetup:
    board: Board
    target: CpuTarget


@message
@dataclass(frozen=True, kw_only=True)
class Connect:
    """Begin a session, for the one request that follows."""

    session_s: float


BoardRequest = Connect | Prepare | Trial | Check | Final


class _Cases:
    """Inputs and right answers for all candidates of a workload."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.exact = make_case(workload, data="integers")

    @cached_property
    def of_finalists(self) -> list[Case]:
        more = self.workload.with_batch(self.workload.batch + 1)
        cases = [make_case(self.workload.with_batch(batch), data=data, seed=batch) for batch, data in _CASES]
        return [*cases, make_case(more, data="integers", seed=more.batch)]

    @cached_property
    def fresh(self) -> Case:
        return fresh_case(self.workload, device="cpu")


class BoardMeasurer:
    """Handler: one request of a session at a time. Raises BoardLost for what the board is to blame for."""

    def __init__(self, setup: BoardSetup) -> None:
        self._board = setup.board
        self._threads = setup.target.threads
        self._session: Session | None = None
        self._cases: _Cases | None = None
        import tvm.rpc  # noqa: F401  takes a second or two, which should not count as the first request's time

    def __call__(self, request: BoardRequest) -> Measured:
        if isinstance(request, Connect):
            self._session = None  # an old one ends first
            self._session = Session(self._board, session_s=request.session_s)
            return Measured()
        with torch.inference_mode():
            if isinstance(request, Prepare):
                cases = self._cases_of(request.workload)
                if request.finalists:
                    _ = cases.of_finalists, cases.fresh
                return Measured()
            return self._in_session(request)

    def _in_session(self, request: Trial | Check | Final) -> Measured:
        session, self._session = self._session, None
        if session is None:
            raise BoardLost("there is no session")
        try:
            if isinstance(request, Trial):
                return self._trial(session, request)
            if isinstance(request, Check):
                return self._check(session, request)
            return self._final(session, request.artifacts)
        except Exception as error:
            if not session.is_alive():
                raise BoardLost(one_line(error)) from None
            raise

    def _cases_of(self, workload: Workload) -> _Cases:
        if self._cases is None or self._cases.workload != workload:
            self._cases = None  # free the memory of the one before
            self._cases = _Cases(workload)
        return self._cases

    def _verdict(self, kernel: RemoteKernel, case: Case, *, place: int = 0) -> Verdict:
        """On the board's threads, and on one."""
        return verify_runs(kernel, case, threads=dict.fromkeys((self._threads, 1)), place=place)

    def _trial(self, session: Session, request: Trial) -> Measured:
        cases = self._cases_of(request.artifact.candidate.workload)
        kernel = session.load(request.artifact)
        verdict = verify_runs(kernel, cases.exact, threads=[self._threads])
        if not verdict.right:
            return Measured(verdict=verdict)
        hopeless_above_us = None if request.best_us is None else request.best_us * HOPELESS
        (taken,) = time_kernels([kernel], effort=TRIAL, hopeless_above_us=hopeless_above_us)
        last = verify_runs(kernel, cases.exact, threads=[self._threads])
        if not last.right:
            return Measured(verdict=explained(last, "after it was timed"))
        return Measured(verdict=verdict, kernels=(taken,))

    def _check(self, session: Session, request: Check) -> Measured:
        (artifact,) = request.artifacts
        kernel = session.load(artifact)
        for place, case in enumerate(self._cases_of(artifact.candidate.workload).of_finalists):
            verdict = self._verdict(kernel, case, place=place)
            if not verdict.right:
                return Measured(verdict=explained(verdict, f"at batch size {case.workload.batch}, {case.data} data"))
        return Measured(verdict=verdict)

    def _final(self, session: Session, artifacts: tuple[Artifact, ...]) -> Measured:
        cases = self._cases_of(artifacts[0].candidate.workload)
        kernels = [session.load(artifact) for artifact in artifacts]
        before = [verify_runs(kernel, cases.exact, threads=[self._threads]) for kernel in kernels]  # and leave tensors
        taken = time_kernels(kernels, effort=FINAL)
        after = [self._verdict(kernel, cases.fresh) for kernel in kernels]
        verdicts = [
            explained(one if not one.right else other, "as a finalist")
            for one, other in zip(before, after, strict=True)
        ]
        right = [one for one, verdict in zip(taken, verdicts, strict=True) if verdict.right]
        return Measured(verdicts_after=tuple(verdicts), kernels=tuple(right))


_MEASURE = "dwconv.measure.boards.board_runner:BoardMeasurer"
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
    return _TRANSFERS * sum(artifact.bytes_at(artifact.candidate.workload.batch + 1) for artifact in body.artifacts)
