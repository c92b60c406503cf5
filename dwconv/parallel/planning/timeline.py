"""The timeline of one step, simulated or measured: as a trace for chrome://tracing or Perfetto, and as a picture.

rank 0  ▐F0▌▐F1▌▐F2▌      ▐D0▐W0▌▐F3▌     each rank has a row for computing, and a thin one for what it sends
        ╶──╴╶──╴╶──╴
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from dwconv.errors import BrokenInstallation, NoPlan
from dwconv.system.new_file import check_replaceable, replace_file

What = Literal["forward", "dgrad", "wgrad", "backward", "communication"]
"""``backward``: dgrad and wgrad in one, where they were not timed apart."""
WHAT: tuple[What, ...] = get_args(What)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Microseconds count from the beginning of the step. What no event covers is idle time."""

    rank: int
    stage: int
    microbatch: int | None
    """Numbered over the whole batch; None for gradients that are summed over ranks."""
    what: What
    start_us: float
    end_us: float
    detail: str = ""
    """For people, such as ``activations to rank 2``."""


# -- trace and picture -------------------------------------------------------------------------------------------------


_LETTERS: dict[What, str] = {"forward": "F", "dgrad": "D", "wgrad": "W", "backward": "B", "communication": ""}
# Okabe and Ito's colours, distinct for colour-blind readers, on light grey.
_COLOURS: dict[What, str] = {
    "forward": "#56B4E9",
    "dgrad": "#E69F00",
    "wgrad": "#009E73",
    "backward": "#D55E00",
    "communication": "#8C5A8F",
}
_IDLE, _INK, _FAINT = "#EEEEF0", "#22262B", "#6B7178"
_COMPUTE_HEIGHT, _SENDING_HEIGHT, _GAP = 0.56, 0.14, 0.06
"""Heights within a rank's row, which is 1 high."""
_ROW_INCHES, _WIDTH_INCHES, _DPI = 0.62, 13.0, 150
_LIGHTER = 0.6
"""Each further stage of a rank is drawn so much lighter."""
_LETTER_SHARE = 0.0072
"""A label needs so much of the picture's width for each character."""


def timeline_files(prefix: Path) -> tuple[Path, Path]:
    """Where the trace and the picture of ``prefix`` go. Raises NoPlan where they cannot be written."""
    if not prefix.name:
        raise NoPlan(f"timeline={prefix} is a folder; name a prefix in it, such as {prefix / 'step'}")
    trace, picture = (prefix.with_name(prefix.name + suffix) for suffix in (".json", ".png"))
    for path in (trace, picture):
        with _told(path):
            check_replaceable(path)
    return trace, picture


def print_timeline(events: Sequence[Event], trace: Path, picture: Path, *, title: str) -> None:
    """Write both files, and print their names."""
    write_chrome_trace(events, trace)
    print(f"timeline: {trace}")
    draw_timeline(events, picture, title=title)
    print(f"timeline: {picture}")


def write_chrome_trace(events: Sequence[Event], path: Path) -> None:
    """Write the events for chrome://tracing or https://ui.perfetto.dev: a process for each rank, with a thread that
    computes and one that sends. Raises NoPlan if the file cannot be written."""
    with _told(path):
        replace_file(path, [json.dumps(chrome_trace(events)).encode()], durable=False)


def chrome_trace(events: Sequence[Event]) -> dict[str, Any]:
    """The events in Chrome's trace event format."""
    named: list[dict[str, Any]] = []
    for rank in sorted({event.rank for event in events}):
        stages = sorted({event.stage for event in events if event.rank == rank})
        named.append(_metadata("process_name", rank, name=_row_name(rank, stages)))
        named.append(_metadata("process_sort_index", rank, sort_index=rank))
        named += [_metadata("thread_name", rank, tid=tid, name=name) for tid, name in enumerate(("computes", "sends"))]
    shown = [
        {
            "ph": "X",
            "pid": event.rank,
            "tid": int(event.what == "communication"),
            "ts": event.start_us,
            "dur": event.end_us - event.start_us,
            "cat": event.what,
            "name": _name(event),
            "args": {"stage": event.stage, "microbatch": event.microbatch},
        }
        for event in events
    ]
    return {"traceEvents": [*named, *shown], "displayTimeUnit": "ms"}


def draw_timeline(events: Sequence[Event], path: Path, *, title: str) -> None:
    """Draw the events as PNG, a row for each rank. Raises BrokenInstallation without matplotlib, NoPlan if the file
    cannot be written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BrokenInstallation(
            f"timelines need matplotlib, which cannot be imported: {error}; pip install 'dwconv[plot]'"
        ) from None
    ranks = sorted({event.rank for event in events})
    figure = Figure(figsize=(_WIDTH_INCHES, _ROW_INCHES * len(ranks) + 1.5), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    end_us = max((event.end_us for event in events), default=1.0)
    rows = {rank: row for row, rank in enumerate(ranks)}
    for row in rows.values():
        axes.broken_barh([(0, end_us / 1e3)], (row, _COMPUTE_HEIGHT), facecolors=_IDLE, linewidth=0)
    for what in WHAT:
        _draw_events(axes, [event for event in events if event.what == what], rows=rows, end_us=end_us)
    _dress(axes, events, rows=rows, end_us=end_us)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, color=_INK, fontweight="bold")
    _legend(figure, events)
    with _told(path):
        figure.savefig(path, format="png", facecolor="white")


def _draw_events(axes: Any, events: Sequence[Event], *, rows: dict[int, int], end_us: float) -> None:
    """Draw events of one kind, with letters where there is room."""
    for rank, row in rows.items():
        own = [event for event in events if event.rank == rank and event.end_us > event.start_us]
        if not own:
            continue
        is_sending = own[0].what == "communication"
        base = row + _COMPUTE_HEIGHT + _GAP if is_sending else row
        height = _SENDING_HEIGHT if is_sending else _COMPUTE_HEIGHT
        stages = sorted({event.stage for event in events if event.rank == rank})
        axes.broken_barh(
            [(event.start_us / 1e3, (event.end_us - event.start_us) / 1e3) for event in own],
            (base, height),
            facecolors=[_COLOURS[event.what] for event in own],
            alpha=[1.0 if is_sending else _LIGHTER ** stages.index(event.stage) for event in own],
            edgecolor="white",
            linewidth=0 if is_sending else 0.6,
        )
        for event in own:
            label = _label(event)
            if label and event.end_us - event.start_us > _LETTER_SHARE * len(label) * end_us:
                axes.text(
                    (event.start_us + event.end_us) / 2e3,
                    base + height / 2,
                    label,
                    ha="center",
                    va="center_baseline",
                    fontsize=7.5,
                    color=_INK,
                    clip_on=True,
                )


def _dress(axes: Any, events: Sequence[Event], *, rows: dict[int, int], end_us: float) -> None:
    """Axes and the names of the rows."""
    axes.set_xlim(0, end_us / 1e3 * 1.002)
    axes.set_ylim(len(rows) - 0.15, -0.15)
    names = [_row_name(rank, sorted({event.stage for event in events if event.rank == rank})) for rank in rows]
    axes.set_yticks([row + _COMPUTE_HEIGHT / 2 for row in rows.values()], labels=names)
    axes.tick_params(axis="y", length=0, labelcolor=_INK, labelsize=9)
    axes.tick_params(axis="x", color=_FAINT, labelcolor=_FAINT, labelsize=9)
    axes.set_xlabel("ms since the step began", color=_FAINT, fontsize=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)


def _legend(figure: Any, events: Sequence[Event]) -> None:
    from matplotlib.patches import Patch

    used = {event.what for event in events if event.end_us > event.start_us}
    patches = [Patch(color=_COLOURS[what], label=what) for what in WHAT if what in used]
    patches.append(Patch(color=_IDLE, label="idle"))
    figure.legend(
        handles=patches,
        loc="outside upper right",
        ncols=len(patches),
        frameon=False,
        fontsize=9,
        labelcolor=_INK,
        handlelength=1.0,
        handleheight=1.0,
        columnspacing=1.4,
    )


def _row_name(rank: int, stages: Sequence[int]) -> str:
    return f"rank {rank} · stage{'s' if len(stages) > 1 else ''} {', '.join(map(str, stages))}"


def _name(event: Event) -> str:
    if event.detail:
        return event.detail
    return event.what if event.microbatch is None else f"{event.what} {event.microbatch}"


def _label(event: Event) -> str:
    letter = _LETTERS[event.what]
    return f"{letter}{event.microbatch}" if letter and event.microbatch is not None else ""


def _metadata(kind: str, rank: int, *, tid: int = 0, **arguments: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": rank, "tid": tid, "args": arguments}


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """An OSError within is one of a file of ``--timeline``. Raises NoPlan."""
    try:
        yield
    except OSError as error:
        raise NoPlan(f"timeline={path} cannot be written: {error.strerror}; name another file") from None
