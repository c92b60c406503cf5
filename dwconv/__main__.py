"""``dwconv tune …``, ``dwconv show …`` and the other commands by one name."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "tune": "find the fastest configuration of a workload on a device",
    "show": "print a candidate's configuration, TIR, source, launches or records",
    "merge": "one small tuning log out of several",
    "export": "compiled kernels in a folder or a wheel, to run without tuning log, TVM and compiler",
    "portfolio": "make anew, from tuning logs, what is known of layers that nobody tuned",
}


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 2 for bad input."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in ("-h", "--help"):
        print("usage: dwconv COMMAND …\n\ncommands (each has --help):")
        for name, purpose in COMMANDS.items():
            print(f"  {name:11}{purpose}")
        return 0
    if not arguments or arguments[0] not in COMMANDS:
        given = f"command={arguments[0]} is unknown" if arguments else "no command given"
        print(f"error: {given}; use one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    exit_code: int = importlib.import_module(f"dwconv.{arguments[0]}").main(arguments[1:])
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
