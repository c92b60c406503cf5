"""Report: the rows with their sums. Prints as a table; in a notebook, and as a file, it is HTML."""

from __future__ import annotations

from pathlib import Path

from dwconv.errors import InvalidChoice
from dwconv.reporting import page, text
from dwconv.reporting.sums import ReportSums
from dwconv.system.new_file import replace_file


class Report(ReportSums):
    """What ran in the depthwise layers of a model, how long it takes, and what tuning may still win."""

    def __str__(self) -> str:
        return text.of(self)

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
