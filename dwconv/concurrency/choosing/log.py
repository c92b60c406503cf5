"""The log of choices: one JSON object a line, like a tuning log. It is data: names and numbers, checked while it is
read, and a schedule from it runs only if it fits the graph.

``<device>.jsonl`` in the user's own folder. A line that cannot be read is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dwconv import settings
from dwconv.concurrency.choosing.choice import Choice, GradientTimes
from dwconv.concurrency.scheduling.schedule import Placement, Schedule
from dwconv.errors import LogError, one_line
from dwconv.records.log import TuningLog
from dwconv.records.reading import lines, open_file
from dwconv.records.record import Measurement

FORMAT = 1
_MOST_NAMED = 200
_MOST_TASKS = 100_000
_CHARACTERS = 500

_Name = Annotated[str, msgspec.Meta(max_length=_CHARACTERS)]
_Microseconds = Annotated[float, msgspec.Meta(ge=0, lt=1e18)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Threads = Annotated[int, msgspec.Meta(ge=1, le=4096)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_FEW = msgspec.Meta(max_length=_MOST_NAMED)


class _StepLine(msgspec.Struct):
    median_us: Annotated[float, msgspec.Meta(gt=0, lt=1e18)]
    spread_us: _Microseconds
    rounds: _Count
    contention: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class _PlacementLine(msgspec.Struct, array_like=True):
    task: _Count
    worker: Annotated[int, msgspec.Meta(ge=0, lt=4096)]
    threads: _Threads
    start_us: _Microseconds
    end_us: _Microseconds


class _ScheduleLine(msgspec.Struct):
    strategies: Annotated[list[_Name], _FEW]
    cores: _Threads
    placements: Annotated[list[_PlacementLine], msgspec.Meta(max_length=_MOST_TASKS)]

    def to_schedule(self) -> Schedule:
        placements = tuple(Placement(**msgspec.structs.asdict(each)) for each in self.placements)
        return Schedule(strategies=tuple(self.strategies), cores=self.cores, placements=placements)


class _GradientLine(msgspec.Struct):
    name: _Name
    serial_us: _Microseconds
    at_once_us: _Microseconds


class _ChoiceLine(msgspec.Struct):
    """Other fields are ignored: later versions may tell more."""

    format: Literal[1]
    graph: _Name
    device: _Name
    cores: _Threads
    asked: _Name
    winner: _Name
    reason: _Name
    schedules: Annotated[list[_ScheduleLine], msgspec.Meta(max_length=2)]
    kept_whole: Annotated[list[_Count], msgspec.Meta(max_length=_MOST_TASKS)]
    steps: Annotated[dict[_Name, _StepLine], _FEW]
    peaks: Annotated[dict[_Name, _Bytes], _FEW]
    notes: Annotated[dict[_Name, _Name], _FEW]
    gradients: Annotated[list[_GradientLine], msgspec.Meta(max_length=_MOST_TASKS)]
    handover_us: _Microseconds
    change_us: _Microseconds
    versions: Annotated[dict[_Name, _Name], _FEW]
    created: _Name

    def to_choice(self) -> Choice:
        return Choice(
            graph=self.graph, device=self.device, cores=self.cores, asked=self.asked, winner=_said(self.winner),
            reason=_said(self.reason), schedules=tuple(each.to_schedule() for each in self.schedules),
            kept_whole=tuple(self.kept_whole),
            steps={_said(name): Measurement(**msgspec.structs.asdict(step)) for name, step in self.steps.items()},
            peaks={_said(name): size for name, size in self.peaks.items()},
            notes={_said(name): _said(note) for name, note in self.notes.items()},
            gradients=tuple(
                GradientTimes(name=_said(each.name), serial_us=each.serial_us, at_once_us=each.at_once_us)
                for each in self.gradients
            ),
            handover_us=self.handover_us, change_us=self.change_us, versions=self.versions, created=_said(self.created),
        )  # fmt: skip


_decoder = msgspec.json.Decoder(_ChoiceLine)


def encode(choice: Choice) -> bytes:
    """``choice`` as one line of JSON, without the line break. Raises LogError if it could not be read again."""
    kept = {name: getattr(choice, name) for name in _ChoiceLine.__struct_fields__ if name not in _WRITTEN_OTHERWISE}
    line = msgspec.json.encode(
        {
            "format": FORMAT,
            **kept,
            "schedules": [
                {
                    "strategies": schedule.strategies,
                    "cores": schedule.cores,
                    "placements": [
                        (each.task, each.worker, each.threads, round(each.start_us, 2), round(each.end_us, 2))
                        for each in schedule.placements
                    ],
                }
                for schedule in choice.schedules
            ],
        }
    )
    decode(line)
    return line


_WRITTEN_OTHERWISE = ("format", "schedules")


def decode(line: bytes) -> Choice:
    """The choice in one line. Raises LogError, saying what is wrong, if there is none."""
    try:
        return _decoder.decode(line).to_choice()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LogError(one_line(f"not a choice of schedules: {error}", most=_CHARACTERS)) from None


def path_for(device: str) -> Path:
    """Where choices for the device are kept."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", device)
    return settings.concurrency_log_folder() / f"{name}.jsonl"


def keep(choice: Choice) -> Path:
    """Write ``choice`` to the user's log. Raises LogError."""
    path = path_for(choice.device)
    TuningLog(path).append_line(encode(choice))
    return path


def kept(*, graph: str, device: str, cores: int, asked: str, versions: Mapping[str, str]) -> Choice | None:
    """The last choice that was kept of the graph, for this device, number of threads, options and versions; None if
    there is none. Raises LogError if the log cannot be opened."""
    found: Choice | None = None
    path = path_for(device)
    try:
        with open_file(path) as file:
            for line in lines(file):
                if line is None or graph.encode() not in line:
                    continue
                try:
                    choice = decode(line)
                except LogError:
                    continue
                known = (choice.graph, choice.device, choice.cores, choice.asked, choice.versions)
                if known == (graph, device, cores, asked, versions):
                    found = choice
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LogError(f"log={path} cannot be read: {error.strerror}; set DWCONV_CONCURRENCY_LOGS") from None
    return found


def _said(text: str) -> str:
    """Text from a log, safe to print."""
    return one_line(text, most=_CHARACTERS)
