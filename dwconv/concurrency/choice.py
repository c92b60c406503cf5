"""Choice: what runs a graph, and all that was measured to choose it; and the log of choices.

One JSON object a line in ``<device>.jsonl`` of the user's own folder, like a tuning log. It is data: names and numbers,
checked while it is read, and a schedule from it runs only if it fits the graph. A line that cannot be read is passed
over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dwconv import settings
from dwconv.concurrency.task_graph import Microseconds, Placement, Schedule, Threads
from dwconv.concurrency.timeline import TaskRun
from dwconv.errors import LogError, one_line
from dwconv.records.line_file import lines, open_file
from dwconv.records.log import TuningLog
from dwconv.records.record import Measurement

_CHARACTERS = 500
_MOST_US = 1e18
_Name = Annotated[str, msgspec.Meta(max_length=_CHARACTERS)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_FEW, _MANY = msgspec.Meta(max_length=200), msgspec.Meta(max_length=100_000)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What runs a graph. It is data alone, so that it can be kept in a log, as a line of which other fields are
    ignored: later versions may add to it."""

    format: Literal[1] = 1
    graph: _Name
    """The digest of the graph, forward and backward together."""
    device: _Name
    cores: Threads
    """Threads that PyTorch had."""
    asked: _Name
    """The options that decide what may be chosen."""
    winner: _Name
    """``plain``, or the name of the schedule."""
    reason: _Name
    schedules: Annotated[tuple[Schedule, ...], msgspec.Meta(max_length=2)] = ()
    """Of the forward graph, and of the backward graph if there is one; none for plain execution."""
    steps: Annotated[Mapping[_Name, Measurement], _FEW] = field(default_factory=dict)
    """A step, forward and backward: plain, and with each schedule that was measured."""
    peaks: Annotated[Mapping[_Name, _Bytes], _FEW] = field(default_factory=dict)
    """By schedule, and ``plain`` for plain order: bytes that the results of tasks take at most."""
    notes: Annotated[tuple[_Name, ...], _FEW] = ()
    """What else there is to say of the models and strategies, a line each."""
    timeline: Annotated[tuple[Annotated[tuple[TaskRun, ...], _MANY], ...], msgspec.Meta(max_length=2)] = ()
    """Of the forward graph, and of the backward graph if there is one: its tasks as expected, and as they ran; plain
    execution as one task at a time. None if nothing was measured."""
    handover_us: Microseconds = 0.0
    change_us: Microseconds = 0.0
    trusted: bool = True
    """False if other work disturbed the times, or nothing was measured: it is not kept."""
    versions: Annotated[Mapping[_Name, _Name], _FEW] = field(default_factory=dict)
    created: _Name = ""
    """The time, ISO 8601, UTC."""

    def __post_init__(self) -> None:
        for step in self.steps.values():
            if not (0 < step.median_us < _MOST_US and 0 <= step.spread_us < _MOST_US and 0 <= step.contention <= 1):
                raise ValueError(f"a step of {step.median_us:g} ± {step.spread_us:g} µs cannot be")


# -- the log -----------------------------------------------------------------------------------------------------------

_decoder = msgspec.json.Decoder(Choice)


def encode(choice: Choice) -> bytes:
    """``choice`` as one line of JSON, without the line break. Raises LogError if it could not be read again."""
    rounded = tuple(replace(each, placements=tuple(map(_rounded, each.placements))) for each in choice.schedules)
    timeline = tuple(tuple(map(_rounded_run, graph)) for graph in choice.timeline)
    line = msgspec.json.encode(replace(choice, schedules=rounded, timeline=timeline))
    decode(line)
    return line


def _rounded(placed: Placement) -> Placement:
    return msgspec.structs.replace(placed, start_us=round(placed.start_us, 2), end_us=round(placed.end_us, 2))


def _rounded_run(ran: TaskRun) -> TaskRun:
    start_us, end_us = (None if us is None else round(us, 2) for us in (ran.start_us, ran.end_us))
    return TaskRun(placed=_rounded(ran.placed), start_us=start_us, end_us=end_us, lane=ran.lane)


def decode(line: bytes) -> Choice:
    """The choice in one line, its texts safe to print. Raises LogError, saying what is wrong, if there is none."""
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LogError(one_line(f"not a choice of schedules: {error}", most=_CHARACTERS)) from None
    return replace(
        found,
        winner=_said(found.winner),
        reason=_said(found.reason),
        steps={_said(name): step for name, step in found.steps.items()},
        peaks={_said(name): size for name, size in found.peaks.items()},
        notes=tuple(map(_said, found.notes)),
        created=_said(found.created),
    )


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
