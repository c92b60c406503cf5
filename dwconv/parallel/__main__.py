"""``python -m dwconv.parallel COMMAND …``: plan a pipeline, or train on several ranks."""

from __future__ import annotations

import sys

from dwconv.commands.command_line import run_one_of

COMMANDS = {
    "plan": "cut a model into pipeline stages for several ranks, and predict a step of it",
    "train": "train a model on made-up images, on the ranks of a plan; started by torchrun",
}


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 2 for bad input."""
    return run_one_of(COMMANDS, argv, prog="python -m dwconv.parallel", package="dwconv.parallel")


if __name__ == "__main__":
    sys.exit(main())
