"""``python -m dwconv.merge``: make one small tuning log out of several, with the records dispatch can choose from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dwconv.commands.command_line import ArgumentParser, note, path_or_url, run, whole
from dwconv.errors import LogError
from dwconv.system.remote_files import shown

_KEPT = 3


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, 2 for bad input."""
    return run(_merge, argv)


def _merge(argv: list[str] | None) -> int:
    parser = ArgumentParser(
        prog="python -m dwconv.merge",
        description="Write one small log out of several: of each workload on each device the best measured records, "
        "the only ones that dispatch reads.",
    )
    parser.add_argument("logs", type=path_or_url, nargs="+", metavar="LOG", help="a log, or a folder of logs; or a URL")
    parser.add_argument(
        "--out",
        type=path_or_url,
        required=True,
        metavar="FILE",
        help="the log to write, or its URL; it must not exist",
    )
    parser.add_argument("--keep", type=whole, default=_KEPT, metavar="N", help=f"records a workload, default {_KEPT}")
    args = parser.parse_args(argv)

    from dwconv.records.condense import condensed, write_whole
    from dwconv.records.database import Database
    from dwconv.records.shared import fetched, put_merged

    for path in args.logs:
        _check(path)
    if isinstance(args.out, Path) and os.path.lexists(args.out):
        raise LogError(f"out={args.out} exists already; name another file")
    database = Database.load(path if isinstance(path, Path) else fetched(path) for path in args.logs)
    for problem in database.problems:
        note(problem)
    records = condensed(database, keep=args.keep)
    if not records:
        raise LogError(f"no measurement is in {', '.join(map(_named, args.logs))}; nothing was written")
    if isinstance(args.out, Path):
        write_whole(args.out, records)
    else:
        put_merged(args.out, records)
    workloads = len({(record.device, record.workload) for record in records})
    print(f"{_named(args.out)}: {len(records)} of {sum(1 for _ in database)} records, {workloads} workloads")
    return 0


def _check(path: Path | str) -> None:
    """Raises LogError for a path that cannot be looked at; a URL is looked at when it is read."""
    try:
        if isinstance(path, Path):
            path.stat()
    except FileNotFoundError:
        raise LogError(f"log={path} does not exist; name one that does") from None
    except OSError as error:
        raise LogError(f"log={path} cannot be read: {error.strerror}; name another") from None


def _named(path: Path | str) -> str:
    return str(path) if isinstance(path, Path) else shown(path)


if __name__ == "__main__":
    sys.exit(main())
