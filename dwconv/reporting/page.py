"""A report as HTML: one page without scripts, for a light and a dark theme, a phone and paper."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dwconv.reporting import frame, words
from dwconv.reporting.drawing import Dot, LogAxis, axis_row, name, row, stacked, text

if TYPE_CHECKING:
    from dwconv.reporting.rows import LayerRow, PassRow, ReportSums

_KINDS = {"on dwconv": "p0", "on PyTorch": "p6", "of it tuning may win": "p5", "all else in a step": "p7"}
"""Parts of a bar, and their colours."""
_APART = 0.3
"""Of the numbers along the axis of a narrow column."""
_NUMBERS = {"calls", "dwconv µs", "PyTorch µs", "×", "µs a step", "to win"}
"""Columns whose text stands on the right."""


def whole(report: ReportSums) -> str:
    """A page of its own."""
    return frame.whole(f"{report.model}: depthwise convolution", fragment(report))


def fragment(report: ReportSums) -> str:
    """A part of another page, as of a notebook."""
    parts = [f"<h1>{text(words.heading(report))}</h1>"]
    if report.rows:
        parts += [_lines([*words.sums(report), *words.without_share(report)]), _step(report)]
        parts += [_commands(report), _table(report), _lines([words.TIMES_ARE, words.COUNTS_ARE], kind="dim")]
    else:
        parts.append(_lines([words.nothing_ran(report)]))
    parts.append(_lines(words.notes(report), kind="dim"))
    return frame.fragment(parts)


def _lines(lines: list[str], *, kind: str = "") -> str:
    return f'<p class="{kind}">' + "<br>\n".join(map(text, lines)) + "</p>" if lines else ""


def _step(report: ReportSums) -> str:
    """A whole step as one bar, where all of it is known."""
    if report.share is None:
        return ""
    ours_us = sum(each.step_us or 0.0 for each in report.passes if each.provider == "dwconv")
    ours = report.share * ours_us / report.depthwise_us
    parts = {"on dwconv": ours, "on PyTorch": report.share - ours, "all else in a step": 1 - report.share}
    key = "".join(
        f'<span><i class="{_KINDS[said]}"></i>{said}: {words.percent(share)}</span>' for said, share in parts.items()
    )
    bar = stacked([(_KINDS[said], share) for said, share in parts.items()])
    return f'<p class="dim">a whole step:</p>\n{bar}\n<p class="key dim">{key}</p>'


def _commands(report: ReportSums) -> str:
    commands = "<br>or, for the layer with most to win,<br>".join(
        f"<code>{escape(command)}</code>" for command in words.commands(report)
    )
    return f"<p>{commands}</p>" if commands else ""


def _table(report: ReportSums) -> str:
    key = "".join(
        f'<span><i class="{_KINDS[said]}"></i>{said}</span>'
        for said in ("on dwconv", "on PyTorch", "of it tuning may win")
    )
    axis = LogAxis.around(
        [1.0, *(each.times for shown in report.shown for each in shown.passes if each.times)], apart=_APART
    )
    headings = {
        "layer": "", "pass": "", "runs on": "", "calls": "", "dwconv µs": "", "PyTorch µs": "", "×": "",
        "times as fast": axis_row(axis), "basis": "", "µs a step": "", " ": "", "to win": "",
    }  # fmt: skip
    cells = "".join(
        f'<th class="{"n" if name in _NUMBERS else "drawn" if drawn else ""}">{drawn or name}</th>'
        for name, drawn in headings.items()
    )
    most_us = max((each.step_us or 0.0 for each in report.passes), default=0.0)
    bodies = "\n".join(_body(shown, axis, most_us=most_us) for shown in report.shown)
    return (
        f'<p class="key dim"><span>share of the depthwise time of a step:</span>{key}</p>\n'
        f'<table class="cards">\n<thead><tr>{cells}</tr></thead>\n{bodies}\n</table>'
    )


def _body(shown: LayerRow, axis: LogAxis, *, most_us: float) -> str:
    said = f"{name(words.names(shown))}<small>{text(shown.workload)}</small>"
    title = escape(", ".join(shown.names))
    first = f'<th class="name" rowspan="{len(shown.passes)}" title="{title}">{said}</th>'
    lines = []
    for each in shown.passes:
        lines.append(f"<tr>{first}{_cells(shown, each, axis, most_us=most_us)}</tr>")
        first = ""
    return "<tbody>" + "\n".join(lines) + "</tbody>"


def _cells(shown: LayerRow, each: PassRow, axis: LogAxis, *, most_us: float) -> str:
    runs_on = f"dwconv {each.config.partition(' ')[0]}" if each.config else "PyTorch"
    knobs = f"<code>{escape(each.config)}</code><br>" if each.config else ""
    return "".join([
        f"<td>{each.pass_}</td>",
        f"<td><details><summary>{text(runs_on)}</summary>{knobs}{text(each.reason)}</details></td>",
        _cell("calls", words.calls(shown, each)),
        _cell("dwconv µs", words.us(each.ours_us)),
        _cell("PyTorch µs", words.us(each.pytorch_us)),
        _cell("×", words.times(each)),
        f'<td class="drawn">{_dot(each, axis)}</td>',
        _cell("basis", words.basis(each)),
        _cell("µs a step", words.us(each.step_us)),
        f'<td class="drawn">{_bar(each, most_us=most_us)}</td>',
        _cell("to win", words.us(each.step_to_win_us) if each.to_win_us else ""),
    ])  # fmt: skip


def _cell(label: str, said: str) -> str:
    """The label is shown where there is no room for columns."""
    if not said:
        return "<td></td>"
    return f'<td class="{"n" if label in _NUMBERS else "said"}" data-label="{label}">{text(said)}</td>'


def _dot(each: PassRow, axis: LogAxis) -> str:
    return row(axis, Dot(ratio=each.times, low=each.times, high=each.times)) if each.times else ""


def _bar(each: PassRow, *, most_us: float) -> str:
    """The longest is the pass that takes most of a step."""
    if not each.step_us or not most_us:
        return ""
    kind = _KINDS["on dwconv" if each.provider == "dwconv" else "on PyTorch"]
    win = each.step_to_win_us / most_us
    return stacked([(kind, each.step_us / most_us - win), (_KINDS["of it tuning may win"], win)])
