"""``python -m dwconv.parallel COMMAND …``: plan a pipeline, or train on several ranks."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "plan": "cut a model into pipeline stages for several ranks, and predict a step of it",
    "train": "train a model on made-up images, on the ranks of a plan; started by torchrun",
}


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 2 for bad input."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in ("-h", "--help"):
        print("usage: python -m dwconv.parallel COMMAND …\n\ncommands (each has --help):")
        for name, purpose in COMMANDS.items():
            print(f"  {name:8}{purpose}")
        return 0
    if not arguments or arguments[0] not in COMMANDS:
        given = f"command={arguments[0]} is unknown" if arguments else "no command given"
        print(f"error: {given}; use one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    exit_code: int = importlib.import_module(f"dwconv.parallel.{arguments[0]}").main(arguments[1:])
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
