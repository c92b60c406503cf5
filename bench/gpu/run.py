"""The input of every stage of ``bench cuda``, and its result.

    pace    how seconds are spent: by how long items have taken so far, not by fixed shares
    state   answers by stage and item, on disk, so that the next run goes on from there

An answer is a dictionary; one with ``failed`` in it gives the reason, and the next run tries it again.
"""

from __future__ import annotations

import _thread
import json
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dwconv.commands.tune_arguments import cores
from dwconv.errors import LogError, one_line
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.log import TuningLog
from dwconv.system.new_file import replace_file

if TYPE_CHECKING:
    from bench.gpu.prepared import PreparedKernels
    from dwconv.measure.runner import WorkerProcesses

_REMEMBERED = 5
_Now = Callable[[], float]


class Pace:
    """The time of one stage, or of all together, and how long items take."""

    def __init__(self, seconds: float, *, first_s: float = 0.0, now: _Now = time.monotonic) -> None:
        self._now = now
        self._ends_s = now() + seconds
        self._first_s = first_s
        self._taken_s: deque[float] = deque(maxlen=_REMEMBERED)

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends_s - self._now())

    @property
    def expected_s(self) -> float:
        """The expected time of the next item, from the items before it."""
        return statistics.mean(self._taken_s) if self._taken_s else self._first_s

    @property
    def fits(self) -> bool:
        """True if another item fits into the time that is left."""
        return self.left_s > 0 and self.left_s >= self.expected_s

    @contextmanager
    def item(self) -> Iterator[None]:
        """Time an item."""
        started_s = self._now()
        try:
            yield
        finally:
            self._taken_s.append(self._now() - started_s)


class Interrupted(Exception):
    """A block ran longer than its time limit."""


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt the block after ``seconds``, as ctrl-C would. Raises Interrupted if the block lets that through."""
    up, over = threading.Event(), threading.Event()
    lock = threading.Lock()

    def interrupt() -> None:
        with lock:
            if not over.is_set():
                up.set()
                _thread.interrupt_main()

    timer = threading.Timer(max(0.0, seconds), interrupt)
    timer.daemon = True
    timer.start()
    try:
        try:
            yield
        finally:
            with lock:
                over.set()
            timer.cancel()
            timer.join()
    except KeyboardInterrupt:
        if not up.is_set():
            raise
        raise Interrupted(f"no end after {seconds:.0f} s") from None


FILE = "cuda.json"
FORMAT = 2
_WRITE_EVERY_S = 0.5

Answers = dict[str, Any]


class _File(msgspec.Struct):
    format: Literal[2]
    device: str
    answers: dict[str, Answers]


class State:
    """The answers in a folder."""

    def __init__(self, path: Path, *, device: str, answers: dict[str, Answers]) -> None:
        self.path = path
        self._device = device
        self._answers = answers
        self._given: set[tuple[str, str]] = set()  # in this run
        self._old: set[tuple[str, str]] = set()  # taken from elsewhere, to be measured again
        self._written_s = float("-inf")

    @classmethod
    def open(cls, folder: Path, *, device: str) -> State:
        """The state in ``folder``, which is created. Raises LogError for one that is damaged, or of another device."""
        path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LogError(f"out={folder} cannot be made: {error.strerror}; name another folder with --out") from error
        state = cls(path, device=device, answers=_read(path, device=device) if path.exists() else {})
        state.flush()
        return state

    def of(self, stage: str) -> Answers:
        """The answers of a stage by item; not to be changed by the caller."""
        return self._answers.get(stage, {})

    def left(self, stage: str, items: Iterable[str]) -> list[str]:
        """Items without an answer, then those that failed in an earlier run or are to be measured again."""
        known = self.of(stage)
        listed = list(items)
        due = [item for item in listed if item in known and (has_failed(known[item]) or (stage, item) in self._old)]
        return [item for item in listed if item not in known] + [
            item for item in due if (stage, item) not in self._given
        ]

    def take(self, stage: str, answers: Answers, *, again: bool = False) -> None:
        """Count answers that are known from elsewhere, where this state has none; with ``again`` only until they are
        measured here."""
        self._answers[stage] = {**answers, **self.of(stage)}
        if again:
            self._old |= {(stage, item) for item, answer in answers.items() if self._answers[stage][item] == answer}

    def put(self, stage: str, item: str, answer: Any) -> None:
        """Keep an answer: on disk at once or, where many come in a row, at the latest with ``flush``."""
        self._answers.setdefault(stage, {})[item] = answer
        self._given.add((stage, item))
        if time.monotonic() - self._written_s >= _WRITE_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Write all answers. Raises LogError."""
        text = json.dumps({"format": FORMAT, "device": self._device, "answers": self._answers}, indent=1)
        try:
            replace_file(self.path, [text.encode(), b"\n"], durable=False)
        except OSError as error:
            why = error.strerror or error
            raise LogError(f"out={self.path} cannot be written: {why}; name another folder with --out") from error
        self._written_s = time.monotonic()


def has_failed(answer: Any) -> bool:
    """True if the answer is only the reason why there is none."""
    return isinstance(answer, dict) and "failed" in answer


def _read(path: Path, *, device: str) -> dict[str, Answers]:
    way_out = "remove it, or name another folder with --out"
    try:
        known = msgspec.json.decode(path.read_bytes(), type=_File)
    except msgspec.ValidationError as error:
        raise LogError(f"out={path} holds no answers of bench cuda in format {FORMAT}: {error}; {way_out}") from error
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LogError(f"out={path} is damaged: {one_line(str(error))}; {way_out}") from error
    if known.device != device:
        raise LogError(f"out={path} belongs to {one_line(known.device)}, this is {device}; {way_out}")
    return known.answers


@dataclass(frozen=True, kw_only=True)
class Run:
    """One stage's part of a run. The target is a GPU; only its kind is used here."""

    target: Target
    state: State
    pace: Pace
    workloads: list[Workload]
    """Workloads to tune and race, the most important first."""
    odd: list[Workload]
    """Workloads on which templates are verified."""
    one_process: bool = False
    """True if kernels run in this process."""
    prepared: PreparedKernels | None = None
    """Kernels that were built elsewhere."""
    known_programs: frozenset[str] = frozenset()
    """Digests of programs that need not be verified."""
    jobs: int = field(default_factory=lambda: max(1, min(12, cores() - 2)))

    @property
    def log(self) -> TuningLog:
        return TuningLog(self.state.path.parent / f"{self.target.device}.jsonl")

    def prepared_first(self, workers: WorkerProcesses) -> WorkerProcesses:
        """``workers`` that do not build what was built elsewhere."""
        return workers if self.prepared is None else self.prepared.first(workers)

    def answers(
        self,
        stage: str,
        items: Iterable[str],
        answer: Callable[[str], Answers | None],
        *,
        in_words: Callable[[Answers], str],
        left: Iterable[str] | None = None,
    ) -> dict[str, Answers]:
        """The answers of ``items`` that there are once all were tried that are ``left``, or as many as the time allows;
        ``answer`` gives None if the time was up before there was one."""
        items = list(items)
        for item in self.state.left(stage, items) if left is None else left:
            if not self.pace.fits:
                break
            with self.pace.item():
                found = answer(item)
            if found is None:
                break
            self.state.put(stage, item, found)
            say(stage, f"{item}: {in_words(found)}")
        known = self.state.of(stage)
        return {item: known[item] for item in items if item in known}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The result of a stage in one line; ``failed`` if it makes the whole run fail."""

    line: str
    failed: bool = False

    @classmethod
    def of(cls, answers: Mapping[str, Answers], line: str, *, count: int) -> Ended:
        """Of some of ``count`` items. The run fails if all that were tried failed."""
        failed = bool(answers) and all(map(has_failed, answers.values()))
        return cls(line=f"{line}{of_all(len(answers), count)}", failed=failed)


def say(stage: str, text: str) -> None:
    """Print a line of progress."""
    print(f"[{stage}] {text}", flush=True)


def of_all(done: int, count: int) -> str:
    """The end of a line that says how many are left; empty if none are."""
    return f"; time is up, {count - done} of {count} left" if done < count else ""
