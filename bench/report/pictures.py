"""Rooflines: every kernel of a device by what it computes for each byte, under the limits of the device. And
pictures for a README, as SVG files that need nothing else: the layers of each device, and training steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.report.charts import axis_of, counted, grouped, workload_of
from bench.report.files import LayerResult, ResultContest, ResultFile, group_of, of_layers, of_steps
from dwconv.errors import InvalidChoice
from dwconv.problems.target import CacheLevel, Limits
from dwconv.problems.workload import PASSES
from dwconv.reporting.drawing import LogAxis, axis_numbers, dot, grid, lines_of, marked, round_numbers, text
from dwconv.reporting.frame import DRAWN, colours

HEIGHT_PX = 340
_LEFT, _RIGHT = 13.0, 99.0
"""Where the plot begins and ends, in percent of the width."""
_TOP_PX, _BOTTOM_PX = 14.0, 40.0
_APART = 0.13
"""The least distance of two numbers along the lower edge, as a share of it; along the left one half of that."""
_TAG_PX = 15.0
"""The least distance of two tags, one below the other."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One kernel."""

    flop_per_byte: float
    gflop_per_s: float
    pass_: str
    is_wide: bool
    """float32; else of 16 bits."""
    label: str


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """The kernels of a device, and its limits: the best of what the files read of each."""

    device: str
    limits: Limits
    points: tuple[Point, ...]
    left_out: int
    """Kernels whose sizes are not known."""


def of_devices(files: Sequence[ResultFile]) -> list[Roofline]:
    """One for each device that has layers and limits."""
    found = []
    for device, members in grouped((file for file in files if file.layer_rows), lambda file: file.device).items():
        known = [file.limits for file in members if file.limits]
        if known:
            points = [_point_of(row, file) for file in members for row in file.layer_rows]
            there = tuple(point for point in points if point)
            found.append(Roofline(device=device, limits=_best(known), points=there, left_out=len(points) - len(there)))
    return found


def _point_of(row: LayerResult, file: ResultFile) -> Point | None:
    workload = workload_of(row, file)
    if workload is None:
        return None
    flop_per_byte, gflop_per_s = workload.flops / workload.bytes, workload.flops / row.dwconv_us / 1e3
    return Point(
        flop_per_byte=flop_per_byte,
        gflop_per_s=gflop_per_s,
        pass_=row.pass_,
        is_wide=file.dtype == "float32",
        label=f"{row.layer} {group_of(row)} {file.dtype} {file.layout}: {flop_per_byte:.3g} FLOP per byte, "
        f"{gflop_per_s:.3g} GFLOP/s",
    )


def _best(known: Sequence[Limits]) -> Limits:
    """Other work can only make a reading worse."""
    levels: dict[int, float] = {}
    for limits in known:
        for level in limits.levels:
            levels[level.bytes] = max(level.gb_per_s, levels.get(level.bytes, 0.0))
    return Limits(
        memory_gb_per_s=max(limits.memory_gb_per_s for limits in known),
        cache_gb_per_s=max(limits.cache_gb_per_s for limits in known),
        cache_bytes=known[0].cache_bytes,
        peak_gflop_per_s=max(limits.peak_gflop_per_s for limits in known),
        levels=tuple(CacheLevel(bytes=size, gb_per_s=rate) for size, rate in sorted(levels.items())),
    )


def rates(limits: Limits) -> dict[str, float]:
    """GB/s of main memory and of each level of the caches, the slowest first, by short names."""
    caches = {f"L{place}": level.gb_per_s for place, level in enumerate(limits.levels, start=1)}
    found = {"mem": limits.memory_gb_per_s} | (caches or {"cache": limits.cache_gb_per_s})
    return dict(sorted(found.items(), key=lambda each: each[1]))


# -- as a page shows them ----------------------------------------------------------------------------------------------


def section(files: Sequence[ResultFile]) -> str:
    """All of them, with what was left out."""
    lines = of_devices(files)
    if not lines:
        return ""
    parts = [
        "<h2>How near to the limits of the device</h2>",
        "<p>Each mark is one of our kernels: what it computes for each byte that it must move at least, and how "
        "fast it was. The slanted lines are what main memory and the caches can bring, the level one what "
        "arithmetic in float32 can do; both were measured. A kernel whose data stay in a cache may lie above the line "
        "of memory.</p>",
    ]
    for line in lines:
        parts.append(f"<h3>{text(line.device)}</h3>")
        if line.points:
            parts += [f'<svg class="chart" height="{HEIGHT_PX}" role="img">{drawn(line)}</svg>', _key_of(line)]
        is_one = line.left_out == 1
        left_out = f" {counted(line.left_out, 'row')} {'is' if is_one else 'are'} left out: their sizes are not known."
        parts.append(f'<p class="dim">{counted(len(line.points), "kernel")}.{left_out if line.left_out else ""}</p>')
    return "\n".join(parts)


def _key_of(line: Roofline) -> str:
    passes = "".join(
        f'<span><svg overflow="visible">{marked("7", "6", mark=pass_, kind=pass_)}</svg>{text(pass_)}</span>'
        for pass_ in dict.fromkeys(point.pass_ for point in line.points)
    )
    hollow = "" if all(point.is_wide for point in line.points) else "<span>hollow: 16 bits</span>"
    lines = "".join(f"<span>{text(name)}: {rate:.0f} GB/s</span>" for name, rate in rates(line.limits).items())
    return f'<p class="key">{passes}{hollow}{lines}<span>peak: {line.limits.peak_gflop_per_s:.0f} GFLOP/s</span></p>'


@dataclass(frozen=True, kw_only=True)
class _Plot:
    """Logarithmic in both directions; from the lower left corner to the upper right one."""

    x: tuple[float, float]
    y: tuple[float, float]

    def left(self, value: float) -> float:
        """In percent."""
        return _LEFT + (_RIGHT - _LEFT) * _share(value, self.x)

    def top(self, value: float) -> float:
        """In pixels."""
        return HEIGHT_PX - _BOTTOM_PX - (HEIGHT_PX - _TOP_PX - _BOTTOM_PX) * _share(value, self.y)


def _share(value: float, ends: tuple[float, float]) -> float:
    return math.log(value / ends[0]) / math.log(ends[1] / ends[0])


def drawn(line: Roofline) -> str:
    """What is inside of the picture: lines, marks, numbers; as wide as it is put."""
    peak = line.limits.peak_gflop_per_s
    slow = min(rates(line.limits).values())
    x = (min(0.5, *(point.flop_per_byte for point in line.points)) / 1.3,
         max(2 * peak / slow, *(point.flop_per_byte for point in line.points)) * 1.3)  # fmt: skip
    speeds = [point.gflop_per_s for point in line.points]
    plot = _Plot(x=x, y=(min(*speeds, slow * x[0]) / 1.3, max(*speeds, peak) * 1.5))
    return "".join([_axes(plot), _roofs(line, plot), *(_mark(point, plot) for point in line.points), _tags(line, plot)])


def _axes(plot: _Plot) -> str:
    parts = []
    low, high = plot.top(plot.y[0]), plot.top(plot.y[1])
    for value in round_numbers(*plot.x, apart=_APART):
        at = f"{plot.left(value):.2f}%"
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{low:.1f}" y2="{high:.1f}"/>')
        parts.append(f'<text x="{at}" y="{low + 14:.1f}" text-anchor="middle">{value:g}</text>')
    for value in round_numbers(*plot.y, apart=_APART / 2):
        at = f"{plot.top(value):.1f}"
        parts.append(f'<line class="grid" x1="{_LEFT}%" x2="{_RIGHT}%" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{_LEFT - 1.5}%" y="{plot.top(value) + 4:.1f}" text-anchor="end">{_short(value)}</text>')
    parts.append(f'<text x="{_RIGHT}%" y="{HEIGHT_PX - 8}" text-anchor="end">FLOP per byte</text>')
    parts.append(f'<text x="{_LEFT + 1}%" y="{_TOP_PX - 3:g}">GFLOP/s</text>')
    return "".join(parts)


def _short(value: float) -> str:
    """``300``, ``30k``"""
    return f"{value / 1e3:g}k" if value >= 1e4 else f"{value:g}"


def _roofs(line: Roofline, plot: _Plot) -> str:
    peak = line.limits.peak_gflop_per_s
    slanted = [
        _line(plot, (plot.x[0], rate * plot.x[0]), (peak / rate, peak))
        for rate in rates(line.limits).values()
        if rate * plot.x[0] < peak
    ]
    first = min(peak / max(rates(line.limits).values()), plot.x[1])
    return "".join([*slanted, _line(plot, (max(first, plot.x[0]), peak), (plot.x[1], peak))])


def _line(plot: _Plot, start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    return (
        f'<line class="roof" x1="{plot.left(x1):.2f}%" y1="{plot.top(y1):.1f}" '
        f'x2="{plot.left(x2):.2f}%" y2="{plot.top(y2):.1f}"/>'
    )


def _mark(point: Point, plot: _Plot) -> str:
    kind = point.pass_ if point.is_wide else f"{point.pass_} hollow"
    at = f"{plot.left(point.flop_per_byte):.2f}%", f"{plot.top(point.gflop_per_s):.1f}"
    return marked(*at, mark=point.pass_, kind=kind, told=point.label)


def _tags(line: Roofline, plot: _Plot) -> str:
    """The names of the lines where they begin, moved up where two would lie on each other."""
    tags, free_px = [], math.inf
    for name, rate in rates(line.limits).items():
        y_px = min(plot.top(min(rate * plot.x[0], line.limits.peak_gflop_per_s)) - 5, free_px - _TAG_PX)
        tags.append(f'<text class="tag" x="{_LEFT + 0.7}%" y="{y_px:.1f}">{text(name)}</text>')
        free_px = y_px
    y_px = plot.top(line.limits.peak_gflop_per_s) - 5
    return "".join([*tags, f'<text class="tag" x="{_RIGHT}%" y="{y_px:.1f}" text-anchor="end">peak</text>'])


WIDTH_PX = 720
_NAMES_PX = 232
_LINE_PX = 16
_MARK_PX = 11
_CHARACTER_PX = 7.2
"""A wide one: what a line of names has room for."""
_EDGE_PX = 12
_HEADING_PX = 22
_KEY_PX = 50


_MARKS: dict[str, str] = {pass_: pass_ for pass_ in PASSES}
_MARKS |= {"converted": "fprop", "blocks": "dgrad", "blocks + inductor": "wgrad", "blocks + graphs": "wgrad"}
"""How a group of contests is drawn; another one in grey. Marks of a line come in this order."""


def of(files: Sequence[ResultFile]) -> dict[str, str]:
    """The text of each picture by the name of its file. Raises InvalidChoice for files without layers and steps."""
    found = {}
    for device, members in grouped((file for file in files if file.layer_rows), lambda file: file.device).items():
        contests = [contest for file in members for contest in of_layers(file)]
        title = "Layers, times as fast as the best of PyTorch"
        found[f"layers-{device}.svg"] = speedups(contests, title, lambda each: each.file.heading)
    steps = [contest for file in files for contest in of_steps(file) if _is_pictured(contest)]
    steps = [replace(contest, name=contest.name.partition(",")[0]) for contest in steps]
    if steps:
        title = "Training steps, times as fast as plain ones of the same kind"
        found["steps.svg"] = speedups(steps, title, lambda each: each.file.where.removeprefix("on "))
    if not found:
        raise InvalidChoice(
            "--pictures: these files have neither layers nor steps; give files of bench cpu, train or cuda"
        )
    return found


def _is_pictured(contest: ResultContest) -> bool:
    """Of the same kind: eager, compiled or in graphs, in a process that keeps memory."""
    plain, _, how = contest.over.partition(" + ")
    same = plain == "plain" and how == contest.group.partition(" + ")[2]
    return same and contest.group in _MARKS and "glibc" not in contest.name


# -- ratios, line by line ----------------------------------------------------------------------------------------------


def speedups(contests: Sequence[ResultContest], title: str, heading: Callable[[ResultContest], str]) -> str:
    """A line for each name, with a mark for each pass, or kind of step; the lines of each heading together."""
    axis = axis_of(contests)
    kinds = grouped(sorted({contest.group for contest in contests}, key=_order), _kind)
    parts, y_px = [f'<text class="title" x="{_EDGE_PX}" y="22">{text(title)}</text>'], 66.0
    parts.append(_key([(kind, ", ".join(groups)) for kind, groups in kinds.items()], y_px=_KEY_PX))
    by_heading = grouped(contests, heading)
    lines = {said: grouped(members, lambda contest: contest.name) for said, members in by_heading.items()}
    width = WIDTH_PX - _NAMES_PX - _EDGE_PX
    whole = sum(_HEADING_PX + sum(map(_height, by_name.values())) for by_name in lines.values())
    parts.append(f'<svg x="{_NAMES_PX}" y="{y_px:g}" width="{width}" height="{whole + 20:g}">')
    parts.append(
        f'{axis_numbers(axis, y_px=12, unit="×")}<svg y="18" height="{whole:g}">{grid(axis, height_px=whole)}</svg>'
    )
    parts.append("</svg>")
    y_px += 18
    for said, by_name in lines.items():
        parts.append(f'<text x="{_EDGE_PX}" y="{y_px + 15:g}">{text(said)}</text>')
        y_px += _HEADING_PX
        for members in by_name.values():
            parts.append(_layer(members, axis, y_px=y_px, height_px=_height(members), width_px=width))
            y_px += _height(members)
    return _svg(parts, height_px=y_px + _EDGE_PX)


def _names(members: Sequence[ResultContest]) -> list[str]:
    return lines_of(members[0].name, most=int((_NAMES_PX - _EDGE_PX - 8) / _CHARACTER_PX))


def _height(members: Sequence[ResultContest]) -> float:
    return max(_LINE_PX * len(_names(members)), _MARK_PX * len(members)) + 8.0


def _layer(members: Sequence[ResultContest], axis: LogAxis, *, y_px: float, height_px: float, width_px: float) -> str:
    names = _names(members)
    first_px = y_px + (height_px - _LINE_PX * len(names)) / 2 + 11
    lines = [
        f'<text class="ink" x="{_EDGE_PX}" y="{first_px + _LINE_PX * place:g}">{text(line)}</text>'
        for place, line in enumerate(names)
    ]
    start_px = (height_px - _MARK_PX * len(members)) / 2 + _MARK_PX / 2
    dots = [
        dot(axis, contest.dot, y_px=start_px + _MARK_PX * place, mark=_kind(contest.group), kind=_kind(contest.group))
        for place, contest in enumerate(sorted(members, key=lambda contest: _order(contest.group)))
    ]
    rule = f'<line class="grid" x1="{_EDGE_PX}" x2="{WIDTH_PX - _EDGE_PX}" y1="{y_px:g}" y2="{y_px:g}"/>'
    plot = f'<svg x="{_NAMES_PX}" y="{y_px:g}" width="{width_px:g}" height="{height_px:g}">{"".join(dots)}</svg>'
    return "".join([rule, *lines, plot])


def _kind(group: str) -> str:
    return _MARKS.get(group, "even")


def _order(group: str) -> int:
    return [*_MARKS, group].index(group)


def _key(kinds: Sequence[tuple[str, str]], *, y_px: float) -> str:
    parts = []
    x_px = _EDGE_PX + 5.0
    for kind, said in kinds:
        parts.append(marked(f"{x_px:g}", f"{y_px - 4:g}", mark=kind, kind=kind))
        parts.append(f'<text x="{x_px + 10:g}" y="{y_px:g}">{text(said)}</text>')
        x_px += 40 + _CHARACTER_PX * len(said)
    return "".join(parts)


def _svg(parts: Sequence[str], *, height_px: float) -> str:
    size = f'width="{WIDTH_PX}" height="{height_px:g}" viewBox="0 0 {WIDTH_PX} {height_px:g}"'
    own = "text { font-size: 12px; }\n.ink, .title { fill: var(--ink); }\n.title { font-size: 15px; font-weight: 600; }"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>\n{colours("svg")}{DRAWN}{own}\n</style>\n'
        '<rect width="100%" height="100%" rx="8" style="fill: var(--ground)"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
