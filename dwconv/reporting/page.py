"""A report as HTML: one page without scripts, readable on a light and on a dark ground."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from dwconv.reporting import words

if TYPE_CHECKING:
    from dwconv.reporting.rows import LayerRow, PassRow
    from dwconv.reporting.sums import ReportSums

_STYLE = """
.dwconv { color-scheme: light dark; --ours: #2f81f7; --theirs: #9aa4b2; --win: #e3a008; --line: #8884;
  font: 14px/1.45 system-ui, sans-serif; }
.dwconv table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1em 0; }
.dwconv th, .dwconv td { padding: .2em .7em; text-align: left; border: 0; vertical-align: top; }
.dwconv thead th { border-bottom: 2px solid var(--line); font-weight: 600; white-space: nowrap; }
.dwconv tbody { border-bottom: 1px solid var(--line); }
.dwconv tbody th { font-weight: 600; overflow-wrap: anywhere; max-width: 18em; }
.dwconv td.n, .dwconv th.n { text-align: right; white-space: nowrap; }
.dwconv .dim, .dwconv small { opacity: .7; font-weight: 400; }
.dwconv small { display: block; }
.dwconv details { max-width: 28em; }
.dwconv summary { cursor: pointer; white-space: nowrap; }
.dwconv .bar { display: flex; width: 10em; height: .8em; margin-top: .35em; background: var(--line); border-radius: 3px;
  overflow: hidden; }
.dwconv .bar i { height: 100%; }
.dwconv i.dwconv-ours { background: var(--ours); }
.dwconv i.dwconv-theirs { background: var(--theirs); }
.dwconv i.dwconv-win { background: var(--win); }
.dwconv .key i { display: inline-block; width: .8em; height: .8em; border-radius: 3px; }
.dwconv code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; }
.dwconv h1 { font-size: 1.3em; margin: 0 0 .5em; }
"""
_BODY = "body { margin: 2em; background: Canvas; color: CanvasText; }"


def whole(report: ReportSums) -> str:
    """A page of its own."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(report.model)}: depthwise convolution</title>\n<style>{_BODY}</style>\n</head>\n<body>\n"
        f"{fragment(report)}\n</body>\n</html>\n"
    )


def fragment(report: ReportSums) -> str:
    """A part of another page, as of a notebook."""
    parts = [f"<style>{_STYLE}</style>", f"<h1>{escape(words.heading(report))}</h1>"]
    if report.rows:
        parts += [_lines(words.sums(report)), _commands(report), _table(report)]
        parts.append(_lines([words.TIMES_ARE, words.COUNTS_ARE], kind="dim"))
    else:
        parts.append(_lines([words.nothing_ran(report)]))
    parts.append(_lines(words.notes(report), kind="dim"))
    return '<div class="dwconv">\n' + "\n".join(part for part in parts if part) + "\n</div>"


def _lines(lines: list[str], *, kind: str = "") -> str:
    return f'<p class="{kind}">' + "<br>\n".join(map(escape, lines)) + "</p>" if lines else ""


def _commands(report: ReportSums) -> str:
    commands = "<br>or, for the layer with most to win,<br>".join(
        f"<code>{escape(command)}</code>" for command in words.commands(report)
    )
    return f"<p>{commands}</p>" if commands else ""


def _table(report: ReportSums) -> str:
    key = (
        '<p class="key dim">share of the depthwise time of a step: <i class="dwconv-ours"></i> on dwconv, '
        '<i class="dwconv-theirs"></i> on PyTorch, <i class="dwconv-win"></i> of it tuning may win</p>'
    )
    headings = ("layer", "pass", "runs on", "calls", "dwconv µs", "PyTorch µs", "×", "basis", "µs a step", "", "to win")
    numbers = {"calls", "dwconv µs", "PyTorch µs", "×", "µs a step", "to win"}
    cells = "".join(f'<th class="{"n" if name in numbers else ""}">{name}</th>' for name in headings)
    most_us = max((each.step_us or 0.0 for each in report.passes), default=0.0)
    bodies = "\n".join(_body(row, most_us=most_us) for row in report.shown)
    return f"{key}\n<table>\n<thead><tr>{cells}</tr></thead>\n{bodies}\n</table>"


def _body(row: LayerRow, *, most_us: float) -> str:
    name = f"{escape(words.names(row))}<small>{escape(row.workload)}</small>"
    first = f'<th rowspan="{len(row.passes)}" title="{escape(", ".join(row.names))}">{name}</th>'
    lines = []
    for each in row.passes:
        lines.append(f"<tr>{first}{_cells(row, each, most_us=most_us)}</tr>")
        first = ""
    return "<tbody>" + "\n".join(lines) + "</tbody>"


def _cells(row: LayerRow, each: PassRow, *, most_us: float) -> str:
    numbers = [words.calls(row, each), words.us(each.ours_us), words.us(each.pytorch_us), words.times(each)]
    name = f"dwconv {each.config.partition(' ')[0]}" if each.config else "PyTorch"
    knobs = f"<code>{escape(each.config)}</code><br>" if each.config else ""
    return "".join([
        f"<td>{each.pass_}</td>",
        f"<td><details><summary>{escape(name)}</summary>{knobs}{escape(each.reason)}</details></td>",
        *(f'<td class="n">{escape(number)}</td>' for number in numbers),
        f"<td>{escape(words.basis(each))}</td>",
        f'<td class="n">{words.us(each.step_us)}</td>',
        f"<td>{_bar(each, most_us=most_us)}</td>",
        f'<td class="n">{words.us(each.step_to_win_us) if each.to_win_us else ""}</td>',
    ])  # fmt: skip


def _bar(each: PassRow, *, most_us: float) -> str:
    """The longest is the pass that takes most of a step."""
    if not each.step_us or not most_us:
        return ""
    kind = "dwconv-ours" if each.provider == "dwconv" else "dwconv-theirs"
    win = 100 * each.step_to_win_us / most_us
    rest = 100 * each.step_us / most_us - win
    return (
        f'<div class="bar"><i class="{kind}" style="width:{rest:.1f}%"></i>'
        f'<i class="dwconv-win" style="width:{win:.1f}%"></i></div>'
    )
