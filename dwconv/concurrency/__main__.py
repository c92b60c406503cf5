"""``python -m dwconv.concurrency counters``: what this machine can count, and its second hardware threads."""

from __future__ import annotations

import sys

from dwconv.commands.command_line import run_one_of

COMMANDS = {"counters": "what the processor or the kernel counts here while a task runs, and what S4 has to use"}


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 2 for bad input."""
    return run_one_of(COMMANDS, argv, prog="python -m dwconv.concurrency", package="dwconv.concurrency")


if __name__ == "__main__":
    sys.exit(main())
