"""Report: the rows with their sums. Prints as a table; in a notebook, and as a file, it is HTML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dwconv.errors import InvalidChoice, one_line
from dwconv.reporting import page, words
from dwconv.reporting.rows import LayerRow, PassRow
from dwconv.reporting.sums import ReportSums
from dwconv.system.new_file import replace_file


class Report(ReportSums):
    """What ran in the depthwise layers of a model, how long it takes, and what tuning can still gain."""

    def __str__(self) -> str:
        return _as_text(self)

    def _repr_html_(self) -> str:
        return page.fragment(self)

    def to_html(self, path: Path | str | None = None) -> str:
        """The report as one page of HTML that needs nothing else. With ``path`` it is also written there. Raises
        InvalidChoice if it cannot be."""
        html = page.whole(self)
        if path is not None:
            try:
                replace_file(Path(path), [html.encode(errors="replace")], durable=False)
            except OSError as error:
                raise InvalidChoice(f"path={path} cannot be written: {error.strerror}; name another file") from None
        return html


_FIGURES = [heading for heading in words.FIGURES if heading != "µs a step"]
_HEADINGS = ("layer", "workload", "pass", "runs on", *_FIGURES)


def _as_text(report: Report) -> str:
    """The table, the sums, the commands and the notes."""
    lines = [words.heading(report)]
    if report.rows:
        reasons = words.numbered([each.why for row in report.shown for each in row.passes if each.why])
        cells = [_cells(row, each, reasons) for row in report.shown for each in row.passes]
        lines += [f"  {line}" for line in _aligned([_HEADINGS, *cells])]
        lines += [f"  [{number}] {reason}" for reason, number in reasons.items()]
        lines += words.sums(report)
        lines += [
            f"{name} {command}" for name, command in zip(("tune:", "  or:"), words.commands(report), strict=False)
        ]
        lines += [words.TIMES_ARE, words.COUNTS_ARE, words.roads(report)]
    else:
        lines.append(words.nothing_ran(report))
    lines += words.notes(report)
    return "\n".join(line if line.isprintable() else one_line(line) for line in lines)


def _cells(row: LayerRow, each: PassRow, reasons: dict[str, int]) -> tuple[str, ...]:
    first = (words.names(row), row.workload) if each is row.passes[0] else ("", "")
    runs_on = f"PyTorch [{reasons[each.why]}]" if each.why else f"dwconv {each.config.partition(' ')[0]}"
    figures = words.figures(row, each)
    return (*first, each.pass_, runs_on, *(figures[heading] for heading in _FIGURES))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_padded(*each) for each in zip(_HEADINGS, row, widths, strict=True)).rstrip() for row in rows]


def _padded(heading: str, cell: str, width: int) -> str:
    return cell.rjust(width) if heading in words.NUMBERS else cell.ljust(width)
