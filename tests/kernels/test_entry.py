"""Entries of the cache, what makes room for new ones, and messages between processes."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path

import msgspec
import pytest

from dwconv.kernels import entry
from dwconv.kernels.artifact import Argument, Extent
from dwconv.measure.requests import Measured
from dwconv.records.record import Measurement, Verdict


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


def test_only_entries_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what another process is writing, nor its lock, nor any other file."""
    monkeypatch.setattr(entry, "MOST_ENTRIES", 4)
    others = [".3.kernel.0f.part", "extension.lock", "cache-key", "notes.txt", "one.cubin"]
    for name in others:
        (tmp_path / name).write_text("")
    for name in others[1:]:
        os.utime(tmp_path / name, (0, 0))
    for number in range(12):
        entry.write_entry(tmp_path / f"{number}.kernel", number)
    left = {path.name for path in tmp_path.iterdir()}
    assert left > set(others) and len(left) <= len(others) + 4


def test_what_a_killed_writer_left_goes_after_a_day(tmp_path: Path) -> None:
    left = tmp_path / ".3.kernel.0f.part"
    left.write_text("half an ent")
    entry.write_entry(tmp_path / "1.kernel", 1)
    assert left.exists()
    os.utime(left, (0, 0))
    entry.write_entry(tmp_path / "2.kernel", 2)
    assert not left.exists()


def test_two_processes_may_make_room_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other has removed does not stop us."""
    monkeypatch.setattr(entry, "MOST_ENTRIES", 8)
    for number in range(8):
        entry.write_entry(tmp_path / f"{number}.kernel", number)
        os.utime(tmp_path / f"{number}.kernel", (number + 1, number + 1))
    stat = Path.stat

    def stat_too_late(path: Path, **named: bool) -> os.stat_result:
        if path.name == "0.kernel":
            path.unlink(missing_ok=True)
        return stat(path, **named)

    monkeypatch.setattr(Path, "stat", stat_too_late)
    entry.write_entry(tmp_path / "new.kernel", 9)
    monkeypatch.undo()
    left = {path.name for path in tmp_path.iterdir()}
    assert "0.kernel" not in left and "1.kernel" not in left and "new.kernel" in left


# -- messages --------------------------------------------------------------------------------------------------------

TIME = Measurement(median_us=1.0, spread_us=0.0, rounds=3)
RIGHT = Verdict(right=True, max_error=0.0, allowed_error=math.inf)


@pytest.mark.parametrize(
    "value",
    [
        Measured(verdict=RIGHT, kernels=(TIME, TIME), providers={"onednn-nhwc": TIME}),
        Measured(),
        Argument("x", "float32", (Extent(), 3, Extent(times=2, over=3))),
        dataclasses.replace(TIME, median_us=2),  # a whole number is a number
        {"plain": (1, "data", None, b"bytes")},
    ],
)
def test_a_message_comes_out_as_it_went_in(value: object) -> None:
    assert entry.decode(entry.encode(value)) == value


@pytest.mark.parametrize(
    "wrong",
    [
        {"@": "Measured", "verdict": {"@": "Measurement", "median_us": 1.0, "spread_us": 0.0, "rounds": 3}},
        {"@": "Measured", "kernels": [1.5]},
        {"@": "Measured", "kernels": 1.5},
        {"@": "Measured", "providers": {"onednn-nhwc": "fast"}},
        {"@": "Measurement", "median_us": "1", "spread_us": 0.0, "rounds": 3},
        {"@": "Measurement", "median_us": 1.0, "spread_us": 0.0, "rounds": True},
        {"@": "Verdict", "right": 1, "max_error": 0.0, "allowed_error": 0.0},
        {"@": "Argument", "name": "x", "dtype": "float32", "shape": [1.5]},
        {"@": "Argument", "name": "x"},
        {"@": "Unheard", "of": 1},
        {"@": ["Measured"]},
    ],
)
def test_fields_of_other_types_are_no_message(wrong: object) -> None:
    with pytest.raises(ValueError, match="not a message"):
        entry.decode(msgspec.msgpack.encode(wrong))


def test_endless_nesting_is_no_message() -> None:
    with pytest.raises(ValueError, match="not a message"):
        entry.decode(b"\x91" * 100_000)
