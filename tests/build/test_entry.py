"""Entries of the cache: what makes room for new ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dwconv.build import entry


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "one"
    entry.write_entry(path, {"bytes": b"\0\xff", "numbers": (1, 2)})
    assert entry.read_entry(path) == {"bytes": b"\0\xff", "numbers": (1, 2)}
    assert entry.read_entry(tmp_path / "absent") is None


def test_the_key_tells_what_went_in() -> None:
    assert entry.key_of("a", ("b",)) == entry.key_of("a", ("b",)) != entry.key_of("a", ("c",))


def test_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "MOST_ENTRIES", 8)
    for number in range(9):
        entry.write_entry(tmp_path / str(number), number)
        os.utime(tmp_path / str(number), (number, number))
    entry.write_entry(tmp_path / "new", 9)
    left = {path.name for path in tmp_path.iterdir()}
    assert len(left) <= 8 and "new" in left and "0" not in left
