"""``dwconv tune …`` and ``dwconv show …``: the commands by one name."""

from __future__ import annotations

import sys

COMMANDS = {
    "tune": "find the fastest configuration of a workload on a device",
    "show": "print a candidate's configuration, TIR, source, launches or records",
}


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 2 for bad input."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in ("-h", "--help"):
        print("usage: dwconv COMMAND …\n\ncommands (each has --help):")
        for name, purpose in COMMANDS.items():
            print(f"  {name}   {purpose}")
        return 0
    if not arguments or arguments[0] not in COMMANDS:
        given = f"command={arguments[0]} is unknown" if arguments else "no command given"
        print(f"error: {given}; use one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    if arguments[0] == "tune":
        from dwconv.tune import main as run
    else:
        from dwconv.show import main as run
    return run(arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
