"""Two pictures for a README: every layer's speedup, and the roofline. SVG files that need nothing else, on a ground of
their own that follows the reader's colours."""

from __future__ import annotations

from collections.abc import Sequence

from bench.report.charts import axis_of, grouped
from bench.report.files import Contest, ResultFile, of_layers
from bench.report.roofline import HEIGHT_PX, Roofline, drawn, of_devices, rates
from dwconv.errors import InvalidChoice
from dwconv.problems.workload import PASSES
from dwconv.reporting.drawing import LogAxis, axis_numbers, dot, grid, lines_of, marked, text
from dwconv.reporting.frame import DRAWN, colours

WIDTH_PX = 720
_NAMES_PX = 232
_LINE_PX = 16
_MARK_PX = 11
_CHARACTER_PX = 7.2
"""A wide one: what a line of names has room for."""
_EDGE_PX = 12
_KEY_PX = 50


def of(files: Sequence[ResultFile]) -> dict[str, str]:
    """The text of each picture by the name of its file. Raises InvalidChoice for files without layers, or of several
    devices."""
    with_layers = [file for file in files if file.layer_rows]
    devices = dict.fromkeys(file.device for file in with_layers)
    if len(devices) != 1:
        said = f"of {len(devices)} devices, {', '.join(devices)}" if devices else "without layers"
        raise InvalidChoice(f"--pictures: the files are {said}; give files of bench cpu of one device")
    found = {"speedups.svg": speedups(with_layers)}
    for line in of_devices(with_layers):
        if line.points:
            found["roofline.svg"] = roofline(line, with_layers)
    return found


# -- every layer -------------------------------------------------------------------------------------------------------


def speedups(files: Sequence[ResultFile]) -> str:
    """A line of dots for each pass of each layer."""
    contests = [contest for file in files for contest in of_layers(file)]
    axis = axis_of(contests)
    groups = list(dict.fromkeys(contest.group for contest in contests))
    parts, y_px = [*_head("Times as fast as PyTorch's better layout", files)], 66.0
    parts.append(_key([(_kind(group), group) for group in groups], y_px=_KEY_PX))
    by_layer = grouped(contests, lambda contest: (contest.file.name, contest.name))
    heights = [_height(members) for members in by_layer.values()]
    width, whole = WIDTH_PX - _NAMES_PX - _EDGE_PX, sum(heights)
    parts.append(f'<svg x="{_NAMES_PX}" y="{y_px:g}" width="{width}" height="{whole + 20:g}">')
    parts.append(
        f'{axis_numbers(axis, y_px=12, unit="×")}<svg y="18" height="{whole:g}">{grid(axis, height_px=whole)}</svg>'
    )
    parts.append("</svg>")
    y_px += 18
    for members, height in zip(by_layer.values(), heights, strict=True):
        parts.append(_layer(members, axis, y_px=y_px, height_px=height, width_px=width))
        y_px += height
    return _svg(parts, height_px=y_px + _EDGE_PX)


def _names(members: Sequence[Contest]) -> list[str]:
    return lines_of(members[0].name, most=int((_NAMES_PX - _EDGE_PX - 8) / _CHARACTER_PX))


def _height(members: Sequence[Contest]) -> float:
    return max(_LINE_PX * len(_names(members)), _MARK_PX * len(members)) + 8.0


def _layer(members: Sequence[Contest], axis: LogAxis, *, y_px: float, height_px: float, width_px: float) -> str:
    names = _names(members)
    first_px = y_px + (height_px - _LINE_PX * len(names)) / 2 + 11
    lines = [
        f'<text class="ink" x="{_EDGE_PX}" y="{first_px + _LINE_PX * place:g}">{text(line)}</text>'
        for place, line in enumerate(names)
    ]
    start_px = (height_px - _MARK_PX * len(members)) / 2 + _MARK_PX / 2
    dots = [
        dot(axis, contest.dot, y_px=start_px + _MARK_PX * place, mark=_kind(contest.group), kind=_kind(contest.group))
        for place, contest in enumerate(members)
    ]
    rule = f'<line class="grid" x1="{_EDGE_PX}" x2="{WIDTH_PX - _EDGE_PX}" y1="{y_px:g}" y2="{y_px:g}"/>'
    plot = f'<svg x="{_NAMES_PX}" y="{y_px:g}" width="{width_px:g}" height="{height_px:g}">{"".join(dots)}</svg>'
    return "".join([rule, *lines, plot])


def _kind(group: str) -> str:
    return group if group in PASSES else "even"


# -- the roofline ------------------------------------------------------------------------------------------------------


def roofline(line: Roofline, files: Sequence[ResultFile]) -> str:
    """What a page shows of it, with its names in the picture."""
    passes = [(pass_, pass_) for pass_ in dict.fromkeys(point.pass_ for point in line.points)]
    said = [f"{name} {rate:.0f} GB/s" for name, rate in rates(line.limits).items()]
    said.append(f"peak {line.limits.peak_gflop_per_s:.0f} GFLOP/s")
    parts = [*_head("Each kernel under the limits of the device", files), _key(passes, y_px=_KEY_PX)]
    parts.append(f'<text x="{_EDGE_PX}" y="70">{text(", ".join(said))}</text>')
    width = WIDTH_PX - 2 * _EDGE_PX
    parts.append(f'<svg x="{_EDGE_PX}" y="80" width="{width}" height="{HEIGHT_PX}">{drawn(line)}</svg>')
    return _svg(parts, height_px=80 + HEIGHT_PX + _EDGE_PX)


# -- what both have ----------------------------------------------------------------------------------------------------


def _head(title: str, files: Sequence[ResultFile]) -> list[str]:
    said = f"{'; '.join(file.title for file in files)}; {files[0].device}"
    return [
        f'<text class="title" x="{_EDGE_PX}" y="22">{text(title)}</text>',
        f'<text x="{WIDTH_PX - _EDGE_PX}" y="{_KEY_PX}" text-anchor="end">{text(said)}</text>',
    ]


def _key(kinds: Sequence[tuple[str, str]], *, y_px: float) -> str:
    parts = []
    for place, (kind, said) in enumerate(kinds):
        x_px = _EDGE_PX + 5 + 90 * place
        parts.append(marked(f"{x_px:g}", f"{y_px - 4:g}", mark=kind, kind=kind))
        parts.append(f'<text x="{x_px + 10:g}" y="{y_px:g}">{text(said)}</text>')
    return "".join(parts)


def _svg(parts: Sequence[str], *, height_px: float) -> str:
    size = f'width="{WIDTH_PX}" height="{height_px:g}" viewBox="0 0 {WIDTH_PX} {height_px:g}"'
    own = "text { font-size: 12px; }\n.ink, .title { fill: var(--ink); }\n.title { font-size: 15px; font-weight: 600; }"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>\n{colours("svg")}{DRAWN}{own}\n</style>\n'
        '<rect width="100%" height="100%" rx="8" style="fill: var(--ground)"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
