"""``dwconv tune …``, ``dwconv show …`` and the other commands by one name."""

from __future__ import annotations

import sys

from dwconv.commands.command_line import run_one_of

COMMANDS = {
    "tune": "find the fastest configuration of a workload on a device",
    "show": "print a candidate's configuration, TIR, source, launches or records",
    "merge": "one small tuning log out of several",
    "export": "compiled kernels in a folder, to run without tuning log, TVM and compiler",
    "concurrency": "what this machine can count while a task runs, for schedules of concurrent tasks",
    "portfolio": "fit the predictions for untuned layers to tuning logs",
}


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 2 for bad input."""
    return run_one_of(COMMANDS, argv, prog="dwconv", package="dwconv")


if __name__ == "__main__":
    sys.exit(main())
