"""``python -m dwconv.parallel COMMAND …``: one command by name."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "train": "train a model on made-up images, on the ranks of a plan; started by torchrun",
}
"""Commands by name, with a description; the module of that name in this package has its ``main``."""


def main(argv: list[str]) -> int:
    if not argv or argv[0] not in COMMANDS:
        listed = "\n".join(f"  {name:8}   {purpose}" for name, purpose in COMMANDS.items())
        print(f"usage: python -m dwconv.parallel COMMAND …\n\ncommands (each has --help):\n{listed}", file=sys.stderr)
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    return int(importlib.import_module(f"dwconv.parallel.{argv[0]}").main(argv[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
