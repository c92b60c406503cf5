"""What README and the pages of docs say, for tests that hold it against results and the product."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def text_of(page: str) -> str:
    """All of a page in one line."""
    return " ".join((ROOT / page).read_text().split())


def table_row(page: str, first: str, *, under: str = "", until: str = "") -> list[str]:
    """The cells of a table's row after the first one. Where several tables have it, that after the text ``under``, and
    before the next text ``until``."""
    text = (ROOT / page).read_text()
    text = text[text.index(under) :]
    text = text[: text.index(until)] if until else text
    rows: list[str] = re.findall(rf"^\| {re.escape(first)} \|(.*)\|$", text, re.MULTILINE)
    assert len(rows) == 1, f"{len(rows)} rows of {page} begin with {first}"
    return [cell.strip() for cell in rows[0].split("|")]
