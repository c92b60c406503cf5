"""Candidates are verified and timed on a board; here, in another process of this machine."""

from __future__ import annotations

import dataclasses
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from dwconv import settings, tune
from dwconv.errors import BoardLost
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.library import build_for_board
from dwconv.measure.boards.board_runner import BoardRunner, BoardWorkers
from dwconv.measure.boards.session import Board, target_on
from dwconv.problems.target import FORCED_VECTOR_SETS, CpuTarget, parse_target
from dwconv.records.log import TuningLog
from dwconv.records.record import Status
from dwconv.schedules.template import Candidate, templates_for
from dwconv.system import cpu_facts
from dwconv.tuner import choices
from tests.measure.boards import planted_boards
from tests.planted_records import workload_of
from tests.servers import closed_port, hanging_server
from tests.waiting import eventually

pytest.importorskip("tornado")
pytest.importorskip("cloudpickle")
HERE = next((name for name in FORCED_VECTOR_SETS if cpu_facts.cpu_facts().has(name)), None)
pytestmark = pytest.mark.skipif(HERE is None, reason="this CPU has none of the vector sets that can be named")
WORKLOAD = workload_of()
Build = Callable[[Candidate, CpuTarget], Artifact]
ROOT = Path(__file__).parents[3]


class Boards:
    """A process with a tracker and the servers of boards."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.measure.boards.board_process"], cwd=ROOT, start_new_session=True, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.port = int(self._process.stdout.readline())

    def serve(self, key: str) -> Board:
        self._process.stdin.write(f"{key}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "serves\n"
        return Board(host="127.0.0.1", port=self.port, key=key)

    def sessions(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children()

    def kill_sessions(self) -> None:
        """Kill what serves a session; its server ends with it."""
        for session in self.sessions():
            session.kill()

    def end(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def boards() -> Iterator[Boards]:
    boards = Boards()
    yield boards
    boards.end()


def target_of(board: Board) -> CpuTarget:
    return target_on(board, parse_target(f"cpu:{HERE},threads=2"))


def candidates(target: CpuTarget) -> list[Candidate]:
    (template,) = (each for each in templates_for(WORKLOAD, target) if each.layout == "nhwc")
    return [Candidate(WORKLOAD, template.space(WORKLOAD, target).default)]


class Bench:
    """A board, and the processes that build for it and talk to it."""

    def __init__(self, boards: Boards, key: str) -> None:
        self.board = boards.serve(key)
        self.target = target_of(self.board)
        self.workers = BoardWorkers(self.board, self.target, jobs=1)

    def planted(self, build: Build, **limits: float) -> BoardRunner:
        """A runner whose kernels ``build`` makes, in this process."""
        self.workers.builders = BuildsHere(build, self.target)
        return BoardRunner(WORKLOAD, self.target, workers=self.workers, **limits)


class BuildsHere:
    """In the place of a pool of build workers, which take seconds to start."""

    def __init__(self, build: Build, target: CpuTarget) -> None:
        self._build, self._target = build, target

    def map(self, candidates: Sequence[Candidate], *, timeout_s: float) -> Iterator[tuple[int, Artifact]]:
        return ((number, self._build(each, self._target)) for number, each in enumerate(candidates))

    def start(self) -> None: ...

    def kill(self) -> None: ...


@pytest.fixture(scope="module")
def bench(boards: Boards) -> Iterator[Bench]:
    """Shared: its processes take seconds to start."""
    bench = Bench(boards, "pi-5")
    yield bench
    bench.workers.close()


# -- what is measured --------------------------------------------------------------------------------------------------


def test_the_command_tunes_on_a_board(bench, tmp_path, monkeypatch, capsys):
    """With processes that have started already, and are needed later."""
    bench.planted(build_for_board)
    monkeypatch.setattr(choices, "BoardWorkers", lambda board, target, *, jobs: bench.workers)
    monkeypatch.setattr(bench.workers, "close", lambda: None)
    log = tmp_path / "board.jsonl"
    shape = ("--shape", "2,8,9,7", "--kernel", "3", "--layout", "nhwc", "--passes", "fprop", "--trials", "2")
    there = ("--rpc", f"127.0.0.1:{bench.board.port}", "--key", "pi-5", "--target", f"cpu:{HERE},threads=2")
    assert tune.main([*shape, *there, "--log", str(log)]) == 0
    records = TuningLog(log).load().records
    assert {record.device for record in records} == {f"pi-5-{HERE}-2t"}
    assert all(record.status is Status.OK and record.verdict.right for record in records), records
    assert all(record.measured and not record.providers for record in records)
    assert [record.confirmed for record in records] == [False] * 2 + [True] * (len(records) - 2) and len(records) > 2
    out = capsys.readouterr().out
    assert "measured on the board" in out and f"--target cpu:{HERE},threads=2,name=pi-5" in out
    assert "dwconv.convert" not in out


@pytest.mark.slow
def test_the_command_starts_what_builds_and_measures(boards, tmp_path):
    boards.serve("Shelf_1")
    log = tmp_path / "board.jsonl"
    shape = ("--shape", "2,8,9,7", "--kernel", "3", "--layout", "nhwc", "--passes", "wgrad", "--trials", "2")
    there = ("--rpc", f"127.0.0.1:{boards.port}", "--key", "Shelf_1", "--target", f"cpu:{HERE},threads=2")
    assert tune.main([*shape, *there, "--jobs", "1", "--log", str(log)]) == 0
    assert any(record.confirmed for record in TuningLog(log).load().records)


def test_a_wrong_kernel_is_found_wrong_there(bench):
    (record,) = bench.planted(planted_boards.wrong).measure(candidates(bench.target))
    assert record.status is Status.WRONG and record.detail.startswith("value: ") and record.measurement is None
    assert "after it was timed" not in record.detail
    (finalist,) = bench.planted(planted_boards.wrong).confirm(candidates(bench.target))
    assert finalist.status is Status.WRONG and "at batch size 1, extreme data" in finalist.detail


def test_a_kernel_that_writes_outside_is_found_there(bench):
    (record,) = bench.planted(planted_boards.outside).measure(candidates(bench.target))
    assert record.status is Status.WRONG and record.detail == "guard band: it wrote outside y"


def test_the_reported_time_is_that_of_the_slow_kernel(bench):
    (record,) = bench.planted(planted_boards.slow).measure(candidates(bench.target))
    assert record.status is Status.OK
    assert 1e6 * planted_boards.SLOW_S <= record.measurement.median_us < 10e6 * planted_boards.SLOW_S


# -- a board that goes away --------------------------------------------------------------------------------------------


def in_the_middle(boards: Boards, act) -> threading.Thread:
    """Do it while a kernel runs."""

    assert eventually(lambda: not boards.sessions()), "those of other tests have ended"

    def wait_and_act() -> None:
        assert eventually(lambda: bool(boards.sessions()))
        time.sleep(planted_boards.SLOW_S / 2)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def test_a_server_that_is_killed_and_comes_back_costs_no_candidate(boards, bench, capsys):
    def kill_and_serve() -> None:
        boards.kill_sessions()
        boards.serve(bench.board.key)

    runner = bench.planted(planted_boards.slow)
    acting = in_the_middle(boards, kill_and_serve)
    (record,) = runner.measure(candidates(bench.target))
    acting.join()
    assert record.status is Status.OK and record.verdict.right


def test_a_server_that_is_killed_and_stays_away_ends_tuning_without_a_record(boards, monkeypatch, bench, capsys):
    monkeypatch.setattr(settings, "BOARD_WAIT_S", 0.5)
    runner = bench.planted(planted_boards.slow)
    acting = in_the_middle(boards, boards.kill_sessions)
    try:
        with pytest.raises(BoardLost) as raised:
            list(runner.measure(candidates(bench.target)))
    finally:
        acting.join()
        boards.serve(bench.board.key)
    assert f"the board {bench.board} does not answer: " in str(raised.value)
    assert f"--tracker 127.0.0.1:{boards.port} --key pi-5" in str(raised.value) and "\n" not in str(raised.value)
    assert capsys.readouterr().err.count("note: waiting 0.5 s for the board") == 1


@pytest.mark.slow
def test_a_kernel_that_hangs_costs_its_limit_and_one_candidate(boards, monkeypatch):
    """The client waits for ever, and so would the server: both are ended."""
    monkeypatch.setattr(settings, "BOARD_MARGIN_S", 0.5)
    bench = Bench(boards, "hangs")
    try:
        runner = bench.planted(planted_boards.hanging, run_timeout_s=0.5)
        (record,) = runner.measure(candidates(bench.target))
        assert record.status is Status.TIMEOUT and "no answer after" in record.detail
        bench.workers.check()
        assert eventually(lambda: len(boards.sessions()) <= 1), "the hanging session ended"
    finally:
        bench.workers.close()


@pytest.fixture
def workers_of():
    """Makes workers for a board, and ends them."""
    made = []

    def make(board: Board) -> BoardWorkers:
        made.append(BoardWorkers(board, target_of(board), jobs=1))
        return made[-1]

    yield make
    for workers in made:
        workers.close()


def test_an_absent_board_is_an_error_at_once(boards, bench, monkeypatch):
    """With the same process: it takes seconds to start."""
    nobody = dataclasses.replace(bench.board, port=closed_port())
    monkeypatch.setattr(bench.workers, "board", nobody)
    from dwconv.measure.boards.session import Session

    with pytest.raises(BoardLost, match=r"Connection ?[Rr]efused"):
        Session(nobody, session_s=1)

    def told() -> str:
        with pytest.raises(BoardLost, match=r"^no server with the key other is at the tracker; it has ") as refused:
            Session(dataclasses.replace(bench.board, key="other"), session_s=1)
        return str(refused.value)

    assert eventually(lambda: "pi-5" in told()), "a server that was ended comes back"


def test_a_tracker_that_never_answers_costs_the_limit(workers_of, monkeypatch):
    monkeypatch.setattr(settings, "BOARD_CONNECT_TIMEOUT_S", 0.3)
    with hanging_server() as server:
        host, port = server.address
        workers = workers_of(Board(host=host, port=port, key="pi"))
        with pytest.raises(BoardLost, match=r"the board pi at .* does not answer: no answer after 0.3 s"):
            workers.check()


# -- what is built -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "machine"), [("cpu:aarch64,mcpu=cortex-a76", 183), ("cpu:avx2,threads=2", 62)])
def test_kernels_are_compiled_for_the_cpu_of_the_board(text, machine, monkeypatch):
    """ELF's numbers of machines. Without a linker for it, an object goes there, for the board to link."""
    from dwconv.kernels import library

    monkeypatch.setenv("PATH", "/nonexistent")
    target = parse_target(text)
    artifact = library.build_for_board(candidates(target)[0], target)
    assert artifact.library[:4] == b"\x7fELF" and not library.is_linked(artifact.library)
    assert int.from_bytes(artifact.library[18:20], "little") == machine


def test_a_linker_for_the_board_is_used_where_it_is_named(monkeypatch, tmp_path):
    from dwconv.errors import BuildError
    from dwconv.kernels import library

    target = parse_target(f"cpu:{HERE},threads=2")
    linker = settings.program(settings.linker())
    if linker is None or platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("there is no linker here")
    monkeypatch.setenv("DWCONV_BOARD_LINKER", f"{linker} -s")
    assert library.linker_for(target) == [linker, "-s"]
    assert library.is_linked(library.build_for_board(candidates(target)[0], target).library)
    monkeypatch.setenv("DWCONV_BOARD_LINKER", str(tmp_path / "nothing"))
    with pytest.raises(BuildError, match=r"DWCONV_BOARD_LINKER=.*nothing cannot be run: No such file"):
        library.build_for_board(candidates(target)[0], target)
