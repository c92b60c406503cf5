"""Run a Python command where there seems to be a GPU.

From a shell: ``python -m tests.standin.run -- -m bench cuda --seconds 600``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import forked
from tests.standin import compiled
from tests.standin import faults as planted
from tests.standin.faults import Fault

PATIENCE_S = 3000.0
"""Time limit of commands that take seconds on a quiet machine: only what hangs reaches it."""
_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]


@dataclass(frozen=True, kw_only=True)
class Done:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str
    journal: Path

    @property
    def launches(self) -> list[dict[str, Any]]:
        """Every launch, in order: its kernel, config, stream, whether it was captured, …"""
        return [line for line in self._lines() if line["what"] == "launch"]

    @property
    def problems(self) -> list[str]:
        """Launches that a GPU would have refused or run wrongly, and errors of the stand-in itself."""
        return [line["reason"] for line in self._lines() if line["what"] == "problem"]

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal.read_text().splitlines()] if self.journal.exists() else []


def run_on_stand_in(
    command: Sequence[str],
    *,
    folder: Path,
    faults: Mapping[Fault, int] | None = None,
) -> Done:
    """Run ``python *command`` with the stand-in in place of a GPU, in it and in all Python processes that it starts.

    ``folder`` is for the journal and the tuning logs. ``faults`` gives the number of the candidate that has each fault,
    in the order in which they are launched. Raises subprocess.TimeoutExpired."""
    journal = folder / "journal.jsonl"
    environment = environment_of(folder, faults=faults)
    done = forked.run([sys.executable, *command], env=environment, cwd=_ROOT, text=True, timeout=PATIENCE_S)
    return Done(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr, journal=journal)


def environment_of(folder: Path, *, faults: Mapping[Fault, int] | None = None) -> dict[str, str]:
    """The environment of such a process. Compiles the libraries if they are missing."""
    libraries = compiled.usual_folder()
    compiled.driver(libraries)
    compiled.device(libraries)
    folder.mkdir(parents=True, exist_ok=True)
    return {
        **os.environ,
        "LD_LIBRARY_PATH": compiled.library_path(libraries),
        "PYTHONPATH": os.pathsep.join([str(_HERE / "on_path"), str(_ROOT)]),
        "DWCONV_TUNING_LOGS": str(folder / "logs"),
        forked.BRIEF: "1",
        "STAND_IN_FOLDER": str(libraries),
        "STAND_IN_JOURNAL": str(folder / "journal.jsonl"),
        planted.VARIABLE: json.dumps(dict(faults or {})),
        planted.FOLDER_VARIABLE: str(folder),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.standin.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("stand-in"), help="for the journal and the tuning logs")
    parser.add_argument("command", nargs="+", help="of Python, after --")
    given = parser.parse_args()
    environment = environment_of(given.folder.resolve())
    return subprocess.run([sys.executable, *given.command], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
