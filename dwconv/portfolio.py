"""``python -m dwconv.portfolio``: fit the predictions for untuned layers to tuning logs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dwconv import settings
from dwconv.commands.command_line import ArgumentParser, named_path, note, run, writable_file
from dwconv.errors import LogError
from dwconv.system.new_file import replace_file

if TYPE_CHECKING:
    from dwconv.untuned.portfolio_file import Errors, Portfolio


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, 2 for bad input."""
    return run(_portfolio, argv)


def _portfolio(argv: list[str] | None) -> int:
    from dwconv.untuned.portfolio_file import PATH

    parser = ArgumentParser(
        prog="python -m dwconv.portfolio",
        description="Learn from tuning logs how much faster than PyTorch's own op kernels of untuned layers are, and "
        "how sure that is. It decides where such layers run on a predicted kernel.",
    )
    parser.add_argument(
        "logs", type=named_path, nargs="*", metavar="LOG", help="a log, or a folder of logs; default those that ship"
    )
    parser.add_argument("--without", action="append", default=[], metavar="DEVICE", help="leave out a device's records")
    parser.add_argument(
        "--out", type=writable_file, default=str(PATH), metavar="FILE", help="default the file that dwconv reads"
    )
    args = parser.parse_args(argv)

    from dwconv.problems.layer_files import shipped_networks
    from dwconv.records.database import Database
    from dwconv.untuned.make_portfolio import make_portfolio
    from dwconv.untuned.portfolio_file import encode

    database = Database.load(args.logs or [settings.shipped_log_folder()])
    for problem in database.problems:
        note(problem)
    records = [record for record in database if record.device not in args.without]
    if not records:
        raise LogError(f"no records in {', '.join(map(str, args.logs or database.logs))}; name other logs")
    portfolio = make_portfolio(records, shipped_networks())
    _write(args.out, encode(portfolio))
    print(_summary(portfolio))
    print(f"written to {args.out}")
    return 0


def _write(path: Path, text: str) -> None:
    try:
        replace_file(path, [text.encode()], durable=False)
    except OSError as error:
        raise LogError(f"out={path} cannot be written: {error.strerror}; name another file") from None


def _summary(portfolio: Portfolio) -> str:
    """How far the real gain may stay below the expected one."""
    lines = [f"{portfolio.workloads} workloads of {', '.join(portfolio.devices)}"]
    if not portfolio.trees:
        return "\n".join([*lines, "too few workloads to expect a gain"])
    lines += ["", f"{'real gain / expected':22} {'other networks':>24} {'other devices':>24}", _ERRORS_HEAD]
    for name in portfolio.known_device:
        pair = [portfolio.known_device[name], portfolio.other_device.get(name)]
        lines.append(f"{name or 'all':22} " + " ".join(_shown(each) for each in pair))
    lines += ["", f"{'the same layer at another size':22}"]
    for name in portfolio.other_size:
        pair = [portfolio.other_size[name], portfolio.other_size_other_device.get(name)]
        lines.append(f"{'within ' + name:22} " + " ".join(_shown(each) for each in pair))
    return "\n".join(lines)


def _shown(errors: Errors | None) -> str:
    return f"{2**errors.middle:8.2f} {2**errors.least:8.2f} {errors.workloads:6}" if errors else ""


_ERRORS_HEAD = f"{'':22} " + " ".join([f"{'median':>8} {'95 % >':>8} {'passes':>6}"] * 2)


if __name__ == "__main__":
    sys.exit(main())
