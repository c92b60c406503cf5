"""The state of ``bench cuda`` on disk: answers by stage and item, so that the next run goes on from there.

An answer is a dictionary; one with ``failed`` in it says why there is none, and is asked for again by the next run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dwconv.errors import LogError
from dwconv.records.log import TuningLog
from dwconv.system.new_file import replace_file

FILE = "cuda.json"
FORMAT = 2
_WRITE_EVERY_S = 0.5

Answers = dict[str, Any]


class State:
    """The answers in a folder."""

    def __init__(self, path: Path, *, device: str, answers: dict[str, Answers]) -> None:
        self.path = path
        self._device = device
        self._answers = answers
        self._given: set[tuple[str, str]] = set()  # in this run
        self._written_s = float("-inf")

    @classmethod
    def open(cls, folder: Path, *, device: str, continue_from: Path | None = None) -> State:
        """The state in ``folder``, which is created. The answers in ``continue_from`` and the tuning log beside it are
        copied.

        Raises LogError for a file that is damaged or missing, or belongs to another device."""
        path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LogError(f"out={folder} cannot be made: {error.strerror}; name another folder with --out") from error
        answers: dict[str, Answers] = {}
        if continue_from is not None:
            way_out = f"name the {FILE} of an earlier run on {device}, or leave --continue-from out"
            answers = _read(continue_from, device=device, option="continue-from", way_out=way_out)
            take_over(continue_from.parent / f"{device}.jsonl", folder / f"{device}.jsonl")
        if path.exists():
            way_out = "remove it, or name another folder with --out"
            for stage, own in _read(path, device=device, option="out", way_out=way_out).items():
                answers[stage] = {**answers.get(stage, {}), **own}
        state = cls(path, device=device, answers=answers)
        state.flush()
        return state

    def of(self, stage: str) -> Answers:
        """The answers of a stage by item; not to be changed by the caller."""
        return self._answers.get(stage, {})

    def left(self, stage: str, items: Iterable[str]) -> list[str]:
        """Items without an answer, then those that failed in an earlier run."""
        known = self.of(stage)
        listed = list(items)
        failed = [item for item in listed if item in known and has_failed(known[item])]
        return [item for item in listed if item not in known] + [
            item for item in failed if (stage, item) not in self._given
        ]

    def take(self, stage: str, answers: Answers) -> None:
        """Count answers that are known from elsewhere, where this state has none."""
        self._answers[stage] = {**answers, **self.of(stage)}

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


def _read(path: Path, *, device: str, option: str, way_out: str) -> dict[str, Answers]:
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"is damaged: {error}"
        raise LogError(f"{option}={path} {why}; {way_out}") from error
    answers = known.get("answers") if isinstance(known, dict) and known.get("format") == FORMAT else None
    if not isinstance(answers, dict) or not all(isinstance(of_stage, dict) for of_stage in answers.values()):
        raise LogError(f"{option}={path} holds no answers of bench cuda in format {FORMAT}; {way_out}")
    if known.get("device") != device:
        raise LogError(f"{option}={path} belongs to {known.get('device')}, this is {device}; {way_out}")
    return answers


def take_over(old: Path, own: Path) -> None:
    """Append to the log ``own`` the records that only the log ``old`` has."""
    if not old.exists() or (own.exists() and old.samefile(own)):
        return
    log = TuningLog(own)
    try:
        with log.locked():
            known = set(own.read_text().splitlines()) if own.exists() else set()
            lines = [line for line in old.read_text().splitlines() if line.strip() and line not in known]
            with own.open("a") as file:
                file.writelines(f"{line}\n" for line in lines)
    except (OSError, UnicodeDecodeError) as error:
        raise LogError(f"continue-from: the log {old} beside it cannot be continued in {own}: {error}") from error
