"""``python -m bench report``: one page, or pictures, made from the files that benchmarks wrote.

report        the command
  ├─ files        what is in the files, checked; every comparison in them, in the same words
  ├─ gpu          what ``bench cuda`` wrote, in the same words
  ├─ charts       headlines by device, the worst, every layer, networks, which provider is fastest where
  ├─ steps        training steps, blocks, the first minute; how to reproduce; the rows of all other benchmarks
  └─ pictures     kernels under the limits of their device; pictures for a README

It is drawn with what ``dwconv.report(model).to_html()`` is drawn with: ``dwconv/reporting/frame.py``, ``drawing.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.report import charts, pictures, steps
from bench.report.files import ResultFile, read
from bench.report.gpu import parts
from dwconv.commands.command_line import ArgumentParser
from dwconv.errors import InvalidChoice
from dwconv.reporting import frame
from dwconv.reporting.drawing import text
from dwconv.system.new_file import replace_file

PAGE = Path("report.html")


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench report", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="JSON that benchmarks wrote: bench/results/*"
    )
    parser.add_argument("--out", type=Path, help=f"the page, default {PAGE}, or none with --pictures alone")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw layers by device, and steps, there")
    arguments = parser.parse_args(argv)
    files = [part for path in arguments.files for part in parts(read(path))]
    if arguments.pictures:
        for name, picture in pictures.of(files).items():
            _write(arguments.pictures / name, picture)
    if arguments.out or not arguments.pictures:
        _write(arguments.out or PAGE, page(files))
    return 0


def page(files: Sequence[ResultFile]) -> str:
    """The whole page. The same files make the same page."""
    return frame.whole("dwconv, measured", frame.fragment(_sections(files)))


def _sections(files: Sequence[ResultFile]) -> list[str]:
    devices = ", ".join(dict.fromkeys(file.device for file in files if file.device))
    by_name = {file.name: len(file.rows) for file in files}
    counted = f"{sum(by_name.values())} rows of {len(by_name)} files"
    return [
        "<h1>dwconv, measured</h1>",
        f"<p>{counted}, from {text(devices) or 'a device that no file names'}.</p>",
        charts.headlines(files),
        charts.worst(files),
        charts.networks(files),
        charts.speedups(files),
        charts.winners(files),
        pictures.section(files),
        steps.section(files),
        steps.blocks(files),
        steps.first_minute(files),
        steps.others(files),
        steps.reproduce(files),
    ]


def _write(path: Path, page: str) -> None:
    try:
        replace_file(path, [page.encode()], durable=False)
    except OSError as error:
        raise InvalidChoice(f"{path} cannot be written: {error.strerror}; name another place") from error
    print(f"written to {path}")
