"""What pages and pictures are drawn with: a log axis, a dot with its interval, stacked bars, names that wrap at spaces.

Places along an axis are percentages, so that a drawing is as wide as the page, or as the picture that it is put into.
Drawings of rows hold no text: names and numbers are HTML beside them, which wraps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from dwconv.errors import one_line

ROW_PX = 18
_ENDS = 5.0
"""Percent of an axis that is left free at both ends, for the numbers there."""
_SERIES: tuple[tuple[float, ...], ...] = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))
_UNITS = re.compile(r"(?<=\d) (?=[µm]s|%|×|[GMK]i?B|GFLOP)")


@dataclass(frozen=True, kw_only=True)
class LogAxis:
    """From ``low`` to ``high``, both above 0."""

    low: float
    high: float
    apart: float = 0.13
    """The least distance of two numbers, as a share of the axis: by default, room for five characters on a phone."""

    @classmethod
    def around(cls, values: Iterable[float], *, apart: float = 0.13) -> LogAxis:
        """One on which all ``values`` have room."""
        found = list(values) or [1.0]
        return cls(low=min(found) / 1.25, high=max(found) * 1.25, apart=apart)

    def percent(self, value: float) -> float:
        """The place of ``value``; of a value outside, the end."""
        share = math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else 0.0
        return _ENDS + (100 - 2 * _ENDS) * min(max(share, 0.0), 1.0)

    @property
    def ticks(self) -> list[float]:
        return round_numbers(self.low, self.high, apart=self.apart / (1 - 2 * _ENDS / 100))


def round_numbers(low: float, high: float, *, apart: float) -> list[float]:
    """Numbers from ``low`` to ``high`` to write along a logarithmic axis: as 1, 2, 5, 10, or 1, 3, 10, or 1, 10, or
    fewer powers of ten; the most that have this share of the axis between them."""
    room = apart * math.log10(high / low)
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    series: tuple[float, ...] = (1.0,)
    every = math.ceil(room)
    for dense in _SERIES:
        if all(math.log10(after / before) >= room for before, after in zip(dense, (*dense[1:], 10.0), strict=True)):
            series, every = dense, 1
            break
    values = [step * 10.0**decade for decade in decades if decade % every == 0 for step in series]
    return [float(f"{value:.6g}") for value in values if low <= value <= high]


_KINDS = {"faster": "win", "tie": "even", "slower": "loss"}

# -- rows of dots ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Dot:
    """How many times as fast, and its interval."""

    ratio: float
    low: float
    high: float
    verdict: str = ""
    """``faster``, ``tie`` or ``slower``, where more than the interval decides."""

    @property
    def kind(self) -> str:
        """``win`` or ``loss``; ``even`` for a tie, or where the interval has 1 in it."""
        if self.verdict in _KINDS:
            return _KINDS[self.verdict]
        return "even" if self.low <= 1 <= self.high else "win" if self.ratio > 1 else "loss"


def grid(axis: LogAxis, *, height_px: float) -> str:
    """A thin line at each number of the axis, a strong one at 1."""
    lines = [f'<line class="grid" {_upright(axis, tick, height_px)}/>' for tick in axis.ticks if tick != 1]
    if axis.low <= 1 <= axis.high:
        lines.append(f'<line class="one" {_upright(axis, 1.0, height_px)}/>')
    return "".join(lines)


def _upright(axis: LogAxis, value: float, height_px: float) -> str:
    at = f"{axis.percent(value):.2f}%"
    return f'x1="{at}" x2="{at}" y1="0" y2="{height_px:g}"'


def dot(axis: LogAxis, shown: Dot, *, y_px: float, mark: str = "fprop", kind: str = "") -> str:
    """A dot on its interval, of the shape ``mark`` and the colour of ``kind``, by default that of the winner."""
    low, at, high = (f"{axis.percent(value):.2f}%" for value in (shown.low, shown.ratio, shown.high))
    line = f'<line class="interval" x1="{low}" x2="{high}" y1="{y_px:g}" y2="{y_px:g}"/>' if low != high else ""
    return f'<g class="{kind or shown.kind}">{line}{marked(at, f"{y_px:g}", mark=mark)}</g>'


def marked(x: str, y: str, *, mark: str, kind: str = "", told: str = "") -> str:
    """A mark of the shape of its pass: a circle, a square, a triangle. ``told`` is shown under the pointer."""
    title = f"<title>{text(told)}</title>" if told else ""
    named = f' class="{kind}"' if kind else ""
    if mark not in _SHAPES:
        return f'<circle{named} cx="{x}" cy="{y}" r="4">{title}</circle>'
    return f'<svg{named} x="{x}" y="{y}" overflow="visible"><path d="{_SHAPES[mark]}">{title}</path></svg>'


_SHAPES = {"dgrad": "M-3.6-3.6h7.2v7.2h-7.2z", "wgrad": "M0-4.6 4.6 3.6h-9.2z"}


def row(axis: LogAxis, shown: Dot) -> str:
    marks = grid(axis, height_px=ROW_PX) + dot(axis, shown, y_px=ROW_PX / 2)
    return f'<svg class="plot" height="{ROW_PX}" aria-hidden="true">{marks}</svg>'


def axis_row(axis: LogAxis) -> str:
    """The numbers of an axis, above its rows."""
    return f'<svg class="plot" height="{ROW_PX}" aria-hidden="true">{axis_numbers(axis, y_px=13, unit="×")}</svg>'


def axis_numbers(axis: LogAxis, *, y_px: float, unit: str = "") -> str:
    return "".join(
        f'<text x="{axis.percent(tick):.2f}%" y="{y_px:g}" text-anchor="middle">{tick:g}{unit}</text>'
        for tick in axis.ticks
    )


# -- bars --------------------------------------------------------------------------------------------------------------


def stacked(parts: Sequence[tuple[str, float]]) -> str:
    cells = "".join(f'<i class="{kind}" style="width:{100 * share:.1f}%"></i>' for kind, share in parts if share > 0)
    return f'<div class="bar">{cells}</div>'


# -- text --------------------------------------------------------------------------------------------------------------


def text(said: str) -> str:
    """``said`` as text of a page or a picture: one line, without characters of HTML. A number stays with its unit."""
    return escape(_UNITS.sub("\u00a0", one_line(said)))


def name(said: str) -> str:
    """A name that wraps at spaces, and a module's after its dots and underscores, but never inside a word."""
    return " ".join(
        "<wbr>".join(f"<span>{escape(part)}</span>" for part in _parts(word)) for word in one_line(said).split(" ")
    )


def _parts(word: str) -> list[str]:
    """``features.``, ``1.``, ``long_``, ``name``; what is no name of a module stays whole."""
    parts = word.rstrip(":,;").split(".")
    is_module = all(part.isidentifier() or part.isdigit() for part in parts) and any(map(str.isidentifier, parts))
    return re.findall(r".+?(?:[._](?![._])|$)", word) if is_module else [word]


def lines_of(said: str, *, most: int) -> list[str]:
    """``said`` in lines of at most ``most`` characters, cut at spaces; a longer word has a line of its own."""
    lines = [""]
    for word in one_line(said).split(" "):
        together = f"{lines[-1]} {word}".strip()
        if len(together) <= most or not lines[-1]:
            lines[-1] = together
        else:
            lines.append(word)
    return lines
