"""The timeline of a step as a picture: ``bench concurrency --draw step.json`` draws what ``explain(timeline=…)`` wrote.

as it ran     lane 0  ▇▇▇▇▇▇▇ ▇▇▇▇▇▇▇▇▇▇▇▇ ▇▇▇
              lane 1     ▇▇▇▇▇▇▇▇▇
as expected   lane 0  ▇▇▇▇▇▇ ▇▇▇▇▇▇▇▇▇▇ ▇▇▇        the same scale
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from dwconv.errors import InvalidChoice
from dwconv.reporting.drawing import text
from dwconv.reporting.frame import DRAWN, colours
from dwconv.system.new_file import replace_file

_WIDTH_PX, _NAMES_PX, _EDGE_PX = 760.0, 64.0, 12.0
_LANE_PX, _BAR_PX, _HEADING_PX, _AXIS_PX = 26.0, 20.0, 26.0, 22.0
_CHARACTER_PX = 6.4
_COLOURS = {"forward": "fprop", "backward": "dgrad"}
_TICKS = 6


def draw(trace: Path) -> Path:
    """Draw the trace to a file of its name that ends in ``.svg``; returns its path. Raises InvalidChoice, in a line, if
    it is no trace, or the picture cannot be written."""
    try:
        picture = drawn(json.loads(trace.read_text(encoding="utf-8")))
    except OSError as error:
        raise InvalidChoice(f"--draw {trace} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidChoice(f"--draw {trace} is no trace that explain(timeline=…) wrote") from None
    path = trace.with_suffix(".svg")
    try:
        replace_file(path, [picture.encode()], durable=False)
    except OSError as error:
        raise InvalidChoice(f"--draw: {path} cannot be written: {error.strerror}") from None
    return path


def drawn(trace: dict[str, Any]) -> str:
    """The picture of a trace in Chrome's format. Raises ValueError if nothing ran in it."""
    events = [each for each in trace["traceEvents"] if each["ph"] == "X"]
    names = {each["pid"]: each["args"]["name"] for each in trace["traceEvents"] if each["name"] == "process_name"}
    if not events:
        raise ValueError("the trace is empty")
    end_us = max(each["ts"] + each["dur"] for each in events)
    scale = (_WIDTH_PX - _NAMES_PX - _EDGE_PX) / end_us
    parts, y_px = [], _EDGE_PX
    for process, name in sorted(names.items()):
        mine = [each for each in events if each["pid"] == process]
        if not mine:
            continue
        parts.append(f'<text class="ink" x="{_EDGE_PX:g}" y="{y_px + 14:g}">{text(name)}</text>')
        y_px += _HEADING_PX
        for lane in sorted({each["tid"] for each in mine}):
            parts.append(f'<text x="{_EDGE_PX:g}" y="{y_px + 14:g}">lane {lane:d}</text>')
            parts += [_bar(each, scale, y_px=y_px) for each in mine if each["tid"] == lane]
            y_px += _LANE_PX
    parts.append(_axis(end_us, scale, y_px=y_px + 12))
    return _svg(parts, height_px=y_px + _AXIS_PX + _EDGE_PX)


def _bar(event: dict[str, Any], scale: float, *, y_px: float) -> str:
    """A task, its name in it where there is room, and all of it under the pointer."""
    x_px, width_px = _NAMES_PX + event["ts"] * scale, max(event["dur"] * scale, 0.5)
    threads = event["args"]["threads"]
    said = f"{event['name']}: {event['dur']:.0f} µs, {threads} thread{'s' * (threads != 1)}"
    room = int((width_px - 6) / _CHARACTER_PX)
    label = ""
    if room >= min(len(event["name"]), 6):
        label = f'<text class="tag" x="{x_px + 3:.1f}" y="{y_px + 14:g}">{text(event["name"][:room])}</text>'
    return (
        f'<rect class="{_COLOURS.get(event["cat"], "even")} bar" x="{x_px:.1f}" y="{y_px:g}" width="{width_px:.1f}" '
        f'height="{_BAR_PX:g}"><title>{text(said)}</title></rect>{label}'
    )


def _axis(end_us: float, scale: float, *, y_px: float) -> str:
    """Round numbers of milliseconds, at most so many."""
    power = 10.0 ** math.floor(math.log10(end_us / _TICKS))
    step_us = next(power * each for each in (1, 2, 5, 10) if end_us / (power * each) <= _TICKS)
    parts = []
    for place in range(int(end_us / step_us) + 1):
        us = place * step_us
        anchor = "start" if place == 0 else "middle" if us < 0.97 * end_us else "end"
        x_px = _NAMES_PX + us * scale
        parts.append(f'<text text-anchor="{anchor}" x="{x_px:.1f}" y="{y_px:g}">{us / 1e3:g} ms</text>')
    return "".join(parts)


def _svg(parts: list[str], *, height_px: float) -> str:
    size = f'width="{_WIDTH_PX:g}" height="{height_px:g}" viewBox="0 0 {_WIDTH_PX:g} {height_px:g}"'
    own = ".ink { fill: var(--ink); }\n.bar { stroke: var(--ground); stroke-width: .7; }"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>\n{colours("svg")}{DRAWN}{own}\n</style>\n'
        '<rect width="100%" height="100%" rx="8" style="fill: var(--ground)"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
