"""A report as HTML: one page without scripts, for a light and a dark theme, a phone and paper."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dwconv.reporting import frame, words
from dwconv.reporting.drawing import name, stacked, text

if TYPE_CHECKING:
    from dwconv.reporting.rows import PassRow
    from dwconv.reporting.sums import ReportSums

_KINDS = {"on dwconv": "p0", "on PyTorch": "p6", "of it tuning may win": "p5"}
"""Parts of a bar, and their colours."""


def whole(report: ReportSums) -> str:
    """A page of its own."""
    return frame.whole(f"{report.model}: depthwise convolution", fragment(report))


def fragment(report: ReportSums) -> str:
    """A part of another page, as of a notebook."""
    parts = [f"<h1>{text(words.heading(report))}</h1>"]
    if report.rows:
        parts += [_lines(words.sums(report)), _commands(report)]
        parts += [_table(report), _lines([words.TIMES_ARE, words.COUNTS_ARE, words.roads(report)], kind="dim")]
    else:
        parts.append(_lines([words.nothing_ran(report)]))
    parts.append(_lines(words.notes(report), kind="dim"))
    return frame.fragment(parts)


def _lines(lines: list[str], *, kind: str = "") -> str:
    return f'<p class="{kind}">' + "<br>\n".join(map(text, lines)) + "</p>" if lines else ""


def _commands(report: ReportSums) -> str:
    commands = "<br>or, for the layer with most to win,<br>".join(
        f"<code>{escape(command)}</code>" for command in words.commands(report)
    )
    return f"<p>{commands}</p>" if commands else ""


def _table(report: ReportSums) -> str:
    key = "".join(f'<span><i class="{kind}"></i>{said}</span>' for said, kind in _KINDS.items())
    most_us = max((each.step_us or 0.0 for each in report.passes), default=0.0)
    bodies = []
    for shown in report.shown:
        said = f"{name(words.names(shown))}<small>{text(shown.workload)}</small>"
        title = escape(", ".join(shown.names))
        first = f'<th class="name" rowspan="{len(shown.passes)}" title="{title}">{said}</th>'
        lines = []
        for each in shown.passes:
            figures = words.figures(shown, each)
            cells = "".join(_cell(heading, figure) for heading, figure in figures.items())
            lines.append(f"<tr>{first}<td>{each.pass_}</td>{_runs_on(each)}{cells}{_bar(each, most_us=most_us)}</tr>")
            first = ""
        bodies.append("<tbody>" + "\n".join(lines) + "</tbody>")
    headings = ("layer", "pass", "runs on", *words.FIGURES, " ")
    heads = "".join(f'<th class="{_side(heading)}">{heading}</th>' for heading in headings)
    table = f'<table class="cards">\n<thead><tr>{heads}</tr></thead>\n' + "\n".join(bodies) + "\n</table>"
    return f'<p class="key dim"><span>share of the depthwise time of a step:</span>{key}</p>\n{frame.scrolled(table)}'


def _runs_on(each: PassRow) -> str:
    runs_on = f"dwconv {each.config.partition(' ')[0]}" if each.config else "PyTorch"
    knobs = f"<code>{escape(each.config)}</code><br>" if each.config else ""
    return f"<td><details><summary>{text(runs_on)}</summary>{knobs}{text(each.reason)}</details></td>"


def _cell(label: str, said: str) -> str:
    """The label is shown where there is no room for columns."""
    return f'<td class="{_side(label) or "said"}" data-label="{label}">{text(said)}</td>' if said else "<td></td>"


def _side(heading: str) -> str:
    return "n" if heading in words.NUMBERS else ""


def _bar(each: PassRow, *, most_us: float) -> str:
    """The longest is the pass that takes most of a step."""
    if not each.step_us or not most_us:
        return "<td></td>"
    kind = _KINDS["on dwconv" if each.provider == "dwconv" else "on PyTorch"]
    win = each.step_to_win_us / most_us
    bar = stacked([(kind, each.step_us / most_us - win), (_KINDS["of it tuning may win"], win)])
    return f'<td class="drawn">{bar}</td>'
