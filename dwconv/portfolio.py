"""``python -m dwconv.portfolio``: make anew, from tuning logs, what is known of layers that nobody tuned."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dwconv.arguments import ArgumentParser, run
from dwconv.errors import LogError

if TYPE_CHECKING:
    from dwconv.records.record import TuningRecord
    from dwconv.untuned.portfolio import Portfolio


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, 2 for bad input."""
    return run(_portfolio, argv)


def _portfolio(argv: list[str] | None) -> int:
    from dwconv.untuned.portfolio import PATH

    parser = ArgumentParser(
        prog="python -m dwconv.portfolio",
        description="Choose, from tuning logs, the few configurations of each regime that together come closest to the "
        "best, and learn how much faster than PyTorch's own op they are. Untuned layers run on what is chosen here.",
    )
    parser.add_argument(
        "logs", type=Path, nargs="*", metavar="LOG", help="a log, or a folder of logs; default those that ship"
    )
    parser.add_argument("--without", action="append", default=[], metavar="DEVICE", help="leave out a device's records")
    parser.add_argument("--out", type=Path, default=PATH, metavar="FILE", help="default the file that dwconv reads")
    args = parser.parse_args(argv)

    from dwconv import settings
    from dwconv.new_file import replace_file
    from dwconv.records.database import Database
    from dwconv.untuned.make import make_portfolio
    from dwconv.untuned.portfolio import encode

    database = Database.load(args.logs or [settings.shipped_log_folder()])
    for problem in database.problems:
        print(f"note: {problem}", file=sys.stderr)
    records = [record for record in database if record.device not in args.without]
    if not records:
        raise LogError(f"no records in {', '.join(map(str, args.logs or database.logs))}; name other logs")
    portfolio = make_portfolio(records)
    args.out.write_text(encode(portfolio))
    print(_summary(portfolio, args.out))
    return 0
