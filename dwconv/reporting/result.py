"""Report: the rows with their sums, as a table and as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dwconv import settings
from dwconv.errors import InvalidChoice, one_line
from dwconv.measure.step_share import OnGpu
from dwconv.model.conversion import ConvertedLayer
from dwconv.reporting import page, words
from dwconv.reporting.rows import LayerRow, PassRow
from dwconv.system.new_file import replace_file

_MOST_SIZES = 3
"""Rows of one layer that are shown. The others count in the sums."""
_OVERHEAD_S = 3.0
"""Time that tuning takes for a pass beside its search."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What ran in the depthwise layers of a model, how long it takes, and what tuning can still gain. Prints as a
    table; in a notebook, and as a file, it is HTML."""

    model: str
    """The name of its class."""
    converted: int
    """How many layers are dwconv's."""
    rows: tuple[LayerRow, ...]
    """What ran, in the order of the model; what one layer ran most often comes first."""
    idle: tuple[str, ...]
    """Layers of dwconv that did not run."""
    left: tuple[ConvertedLayer, ...]
    """Convolutions with groups that are not dwconv's, and why."""
    is_compiled: bool
    """True if torch.compile compiles the model or a part of it."""
    of_an_example: bool
    """True if a step is one on the example; else it is taken from what was counted."""
    share_on_pytorch: float | None = None
    """The share of a whole step on the example that they would take on PyTorch's op, without the optimizer; None if it
    was not measured."""
    on_gpu: OnGpu | None = None
    """What a step on the example takes of the host and of the GPU, without the optimizer; None on a CPU."""

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
                replace_file(Path(path), [html.encode()], durable=False)
            except OSError as error:
                raise InvalidChoice(f"path={path} cannot be written: {error.strerror}; name another file") from None
        return html

    # -- sums ------------------------------------------------------------------------------------------------------

    @property
    def passes(self) -> list[PassRow]:
        """All passes of all rows."""
        return [each for row in self.rows for each in row.passes]

    @property
    def depthwise_us(self) -> float:
        """The time of depthwise convolution in a step, as far as it is known."""
        return sum(each.step_us or 0.0 for each in self.passes)

    @property
    def share(self) -> float | None:
        """The share of a whole step that depthwise convolution takes; None if that is not known."""
        if self.share_on_pytorch is None or not self.depthwise_us:
            return None
        now = self.share_on_pytorch * self.depthwise_us / (self.depthwise_us + self.saved_us)
        return now / (now + 1 - self.share_on_pytorch)

    @property
    def saved_us(self) -> float:
        """How much longer it would take on PyTorch's op, as far as both are known."""
        return sum(each.saved_us or 0.0 for each in self.passes)

    @property
    def to_win_us(self) -> float:
        """What tuning is expected to win of a step."""
        return sum(each.step_to_win_us for each in self.passes)

    @property
    def unknown(self) -> int:
        """Passes whose time is not known."""
        return sum(each.now_us is None for each in self.passes)

    @cached_property
    def most_to_win(self) -> LayerRow | None:
        """The row with the largest expected gain; None if there is nothing."""
        row = max(self.rows, key=lambda row: row.step_to_win_us, default=None)
        return row if row and row.step_to_win_us else None

    @property
    def call(self) -> str:
        """The call that tunes these passes; empty if there is nothing."""
        sizes = {
            (row.problem.workload(each.pass_).batchless_key, row.device)
            for row in self.rows
            for each in row.passes
            if each.to_win_us
        }
        minutes = math.ceil(len(sizes) * (settings.SECONDS + _OVERHEAD_S) / 60)
        return f"dwconv.tune(model, example_inputs, minutes={minutes})" if sizes else ""

    @cached_property
    def shown(self) -> tuple[LayerRow, ...]:
        """The rows without those of sizes that a layer ran less often than others."""
        seen: dict[tuple[str, ...], int] = {}
        found = []
        for row in self.rows:
            seen[row.names] = seen.get(row.names, 0) + 1
            if seen[row.names] <= _MOST_SIZES:
                found.append(row)
        return tuple(found)


# -- as text ----------------------------------------------------------------------------------------------------------

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
        lines += [words.TIMES_ARE, words.COUNTS_ARE]
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
