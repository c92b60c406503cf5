"""Walks: the rooms of the house, its modules, that a call enters, and where it climbs back up.

    python -m tests.walks convert | example | conv2d | tuned | repeated | step

A room is entered when code of it runs, in the thread of the call; imports are no part of a walk. A climb is a call from
a room to one that stands above it in the contracts of ``pyproject.toml``, by way of other packages too.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


class Walk:
    """Enter it, and call."""

    def __init__(self) -> None:
        self.rooms: dict[str, str] = {}
        """In the order in which they were entered, with the first function that was called."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """From one room to another; first of all from the caller, whose name is empty."""
        self._importing = 0

    def __enter__(self) -> Walk:
        sys.setprofile(self._follow)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _follow(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "return"):
            return
        if frame.f_code.co_name == "<module>":
            self._importing += 1 if event == "call" else -1
        elif event == "call" and not self._importing and (room := room_of(frame.f_code.co_filename)):
            before = frame.f_back
            while before is not None and not room_of(before.f_code.co_filename):
                before = before.f_back
            caller = room_of(before.f_code.co_filename) if before else ""
            if caller != room:
                self.rooms.setdefault(room, f"{frame.f_code.co_name}, from {caller or 'outside'}")
                self.calls[caller, room] += 1

    def climbs(self) -> list[str]:
        """``records.database -> dispatch.knowledge``: each once."""
        return [f"{one} -> {other}" for one, other in self.calls if stands_above(other, one)]

    def of_house(self) -> list[str]:
        """The rooms without the families of templates: a workload's misfits look at them all."""
        return [room for room in self.rooms if not room.startswith("schedules.")]


@cache
def room_of(file: str) -> str:
    """``call.functional``; empty for a file of another package."""
    path = Path(file)
    if not path.is_absolute() or "site-packages" in path.parts:
        return ""
    path = path.resolve().with_suffix("")
    for folder, above in ((ROOT / "dwconv", ()), (ROOT / "schedules", ("schedules",))):
        if path.is_relative_to(folder):
            inside = [*above, *path.relative_to(folder).parts]
            return ".".join(inside[:-1] if inside[-1] == "__init__" else inside)
    return ""


def stands_above(room: str, other: str) -> bool:
    """By the first folder in which they are apart."""
    one, two = (each.split(".") if each else [] for each in (room, other))
    shared = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    if shared == min(len(one), len(two)):
        return False
    layers = contracts().get(".".join(["dwconv", *one[:shared]]), {})
    return layers.get(one[shared], 0) < layers.get(two[shared], 0)


@cache
def contracts() -> dict[str, dict[str, int]]:
    """The layer of each room, by folder; the uppermost is 1."""
    import tomllib

    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return {
        folder: {
            room.strip(): number for number, rooms in enumerate(each["layers"], start=1) for room in rooms.split("|")
        }
        for each in tools["importlinter"]["contracts"]
        if each["type"] == "layers"
        for folder in each["containers"]
    }


def prepared(name: str) -> Callable[[], Any]:
    """The call that a walk is of."""
    import torch

    import dwconv
    from tests.models import OneBlock

    torch.manual_seed(0)
    if name in ("convert", "example"):
        model, convert = OneBlock().to(memory_format=torch.channels_last), dwconv.convert
        x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
        return (lambda: convert(model)) if name == "convert" else lambda: convert(model, x, seconds=0)
    x, w = torch.randn(2, 8, 9, 9), torch.randn(8, 1, 3, 3, requires_grad=True)
    conv2d = dwconv.conv2d
    if name == "tuned":
        from dwconv import settings
        from tests.planted_records import plant, workload_of

        x = x.to(memory_format=torch.channels_last)
        plant(settings.written_log_path() / "log.jsonl", [workload_of(shape=(2, 8, 9, 9))])
    if name == "repeated":
        conv2d(x, w, padding=1)
    if name == "step":
        conv2d(x, w, padding=1).sum().backward()
        return lambda: conv2d(x, w, padding=1).sum().backward()
    return lambda: conv2d(x, w, padding=1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.walks", description=__doc__.partition("\n")[0])
    parser.add_argument("walk", choices=("convert", "example", "conv2d", "tuned", "repeated", "step"))
    call = prepared(parser.parse_args().walk)
    with Walk() as walk:
        call()
    for number, (room, why) in enumerate(walk.rooms.items(), start=1):
        print(f"{number:3} {room:32} {why}")
    print(f"{len(walk.rooms)} rooms, {len(walk.of_house())} without families of templates")
    print(f"{len(walk.climbs())} climbs: {'; '.join(walk.climbs())}")


if __name__ == "__main__":
    main()
