"""Checkpoints of a run: each rank writes its own part after a step, and all go on at the newest step that all have.

FOLDER/plan.json                      the stages, which a later run takes over
FOLDER/step-12.rank-0-of-2.pt         of the last two steps that were saved: a rank may be killed while it writes
FOLDER/model.pt                       the whole model's state, after each epoch
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dwconv.errors import DataFailed, InvalidChoice
from dwconv.system.new_file import replace_file

_KEPT = 2
_NAME = re.compile(r"step-(\d+)\.rank-(\d+)-of-(\d+)\.pt")


class Checkpoints:
    """Those of one rank in a folder."""

    def __init__(self, folder: Path, *, about: Mapping[str, str]) -> None:
        """``about``: what must be the same for a run to go on. Raises DataFailed if the folder cannot be made."""
        self._folder, self._about = folder, dict(about)
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataFailed(f"--checkpoint: {folder} cannot be made: {error.strerror}; name another folder") from None

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """What this rank needs to go on after ``step`` steps."""
        self._write(self._file(step), {"about": self._about, "step": step, **state})
        for old in sorted(self._steps())[:-_KEPT]:
            self._file(old).unlink(missing_ok=True)

    def save_model(self, state: Mapping[str, Any]) -> None:
        """The whole model's, for use elsewhere."""
        self._write(self._folder / "model.pt", state)

    def newest(self) -> dict[str, Any] | None:
        """What ``save`` was given, after the newest step that all ranks have; None if there is none. Every rank calls
        it. What is newer on this rank goes: it would take the place of what all have. Raises InvalidChoice for a
        checkpoint of another run, and DataFailed for one that cannot be read."""
        others = {int(found[3]) for found in self._found()} - {self._world}
        everyones: list[Any] = [None] * self._world
        dist.all_gather_object(everyones, (self._steps(), others))
        common = set.intersection(*(steps for steps, _ in everyones))
        if not common:
            if worlds := set.union(*(others for _, others in everyones)):
                raise InvalidChoice(
                    f"--checkpoint: {self._folder} is of {min(worlds)} ranks, and {self._world} run; start as many, or "
                    "name another folder"
                )
            return None
        newest = max(common)
        state = self._read(self._file(newest))
        for name, value in self._about.items():
            if state["about"].get(name) != value:
                raise InvalidChoice(
                    f"--checkpoint: {self._folder} was written with {name} {state['about'].get(name)}, and this run "
                    f"has {value}; name another folder"
                )
        for step in self._steps():
            if step > newest:
                self._file(step).unlink(missing_ok=True)
        return state

    def _file(self, step: int) -> Path:
        return self._folder / f"step-{step}.rank-{self._rank}-of-{self._world}.pt"

    def _found(self) -> list[re.Match[str]]:
        return [found for each in self._folder.iterdir() if (found := _NAME.fullmatch(each.name))]

    def _steps(self) -> set[int]:
        return {int(each[1]) for each in self._found() if (int(each[2]), int(each[3])) == (self._rank, self._world)}

    def _write(self, path: Path, state: Mapping[str, Any]) -> None:
        content = io.BytesIO()
        torch.save(dict(state), content)
        try:
            replace_file(path, [content.getvalue()], durable=False)
        except OSError as error:
            raise DataFailed(
                f"--checkpoint: {path} cannot be written: {error.strerror}; make room, or name another folder"
            ) from None

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            return torch.load(path, weights_only=True)
        except (OSError, RuntimeError, EOFError, LookupError, ValueError, pickle.UnpicklingError):  # of torn files
            raise DataFailed(f"--checkpoint: {path} cannot be read; remove it, or name another folder") from None
