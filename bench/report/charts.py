"""Ratios: what is worst, every layer by its pass, the means of networks, and the fastest provider at each size.

The names of layers in result files lead to their sizes, and to the workloads that they were measured on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import geometric_mean
from typing import TypeVar

from bench.cases import CPU_LAYERS, GPU_LAYERS, TRANSPOSED_LAYERS, BenchLayer, listed_layers
from bench.report.files import BlockRow, LayerResult, ResultContest, ResultFile, of_all, of_blocks, of_layers, ratios_of
from dwconv.problems.layer_files import shipped_networks
from dwconv.problems.workload import PASSES, DType, Layout, Workload
from dwconv.reporting.drawing import LogAxis, axis_row, name, row, text
from dwconv.reporting.frame import HEAT_FROM, heat, scrolled

_NAMED = re.compile(
    r"\d+×(?P<size>[\d×²³]+) k(?P<kernel>[\d×]+)(?: s(?P<stride>[\d×]+))?(?P<how>(?: d\d+)?(?:.* transposed)?)"
)


@dataclass(frozen=True, kw_only=True)
class Sized:
    """The sizes of a layer, as its name has them."""

    kernel: str
    """``3``, ``3×3×3``; with its stride and its dilation, if it has any: ``3 s2``, ``7 d3``; ``3 s2 transposed``. Empty
    if the name has none."""
    size: str
    """``112²``, ``13×80×80``; the whole name if it has none."""

    @property
    def order(self) -> tuple[object, ...]:
        """By kernel, then by size, the largest first."""
        kernel, size = (_numbers(text) for text in (self.kernel, self.size))
        return (max(kernel, default=0), kernel, [-number for number in size], self.kernel, self.size)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def sizes_of(row: LayerResult) -> Sized:
    """As the name says: ``MobileNetV2 96×112² k3 s2``."""
    found = _NAMED.search(row.layer)
    if not found:
        return Sized(kernel="", size=row.layer)
    is_row = found["size"].startswith("1×")
    kernel, stride = (_short(found[part] or "1", is_row=is_row) for part in ("kernel", "stride"))
    kernel += (f" s{stride}" if found["stride"] else "") + found["how"]
    return Sized(kernel=kernel, size=found["size"].removeprefix("1×"))


def _short(sizes: str, *, is_row: bool) -> str:
    """``3`` for ``3×3``, and for ``1×3`` of a row."""
    each = (sizes.removeprefix("1×") if is_row else sizes).split("×")
    return each[0] if len(set(each)) == 1 else "×".join(each)


def workload_of(row: LayerResult, file: ResultFile) -> Workload | None:
    """What was measured; None for a layer that no list of the benchmarks has."""
    found = _workloads(file.dtype, file.layout).get((row.layer, row.pass_, row.epilogue))
    return found.with_batch(row.batch) if found and row.batch else found


@cache
def _workloads(dtype: DType, layout: Layout) -> dict[tuple[str, str, str], Workload]:
    networks = listed_layers(list(shipped_networks()))
    layers: tuple[BenchLayer, ...] = (*CPU_LAYERS, *GPU_LAYERS, *TRANSPOSED_LAYERS, *networks)
    found: dict[tuple[str, str, str], Workload] = {}
    for layer in layers:
        if layer.layer.block:
            continue
        for workload in layer.workloads(dtype=dtype, layout=layout):
            found.setdefault((str(layer), layer.name_of(workload.pass_), workload.epilogue), workload)
    return found


WORST = 10
_T = TypeVar("_T")
_K = TypeVar("_K")


def grouped(items: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """In the order in which the keys come."""
    found: dict[_K, list[_T]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found


def shown(ratio: float) -> str:
    """Three digits, without an exponent: ``0.98``, ``2.19``, ``29.4``, ``354``"""
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.3g}"


def facts(*parts: str) -> str:
    """``memory kept; train, nhwc on amd-epyc-…``; what is empty is left out."""
    return "; ".join(filter(None, parts))


def headlines(files: Sequence[ResultFile]) -> str:
    """A table for each device: the geometric mean and the least of kernels, blocks and steps."""
    by_device = grouped(files, lambda file: file.device)
    return "\n".join(_headlines(device, found) for device, of in by_device.items() if (found := _ratios(of)))


def _headlines(device: str, found: Mapping[str, Sequence[float]]) -> str:
    lines = "".join(
        f'<tr><th class="name">{text(said)}</th><td class="n">{len(ratios)}</td>'
        f'<td class="n">{shown(geometric_mean(ratios))}</td><td class="n">{shown(min(ratios))}</td></tr>'
        for said, ratios in found.items()
    )
    head = "".join(f'<th class="n">{each}</th>' for each in ("rows", "mean", "least"))
    table = f'<table class="cards"><thead><tr><th></th>{head}</tr></thead>\n<tbody>{lines}</tbody></table>'
    return f"<h2>{text(device or 'An unknown device')}, times as fast</h2>\n{scrolled(table)}"


def _ratios(files: Sequence[ResultFile]) -> dict[str, list[float]]:
    """By what is compared with what. A step with several allocators counts once."""
    found: dict[str, list[float]] = defaultdict(list)
    for file in files:
        for layer in file.layer_rows:
            found[f"{file.title}: kernels over PyTorch's best"].append(layer.ratio)
    for file in files:
        for block in file.block_rows:
            found[f"{file.title} over PyTorch's ops"].append(block.over_eager)
    for file in files:
        of_type = "" if file.dtype == "float32" else f", {file.dtype}"
        for step in {step.network: step for step in reversed(file.step_rows)}.values():
            for (ours, other), ratio in ratios_of(step).items():
                found[f"steps{of_type}: {ours} over {other}"].append(ratio.median)
    return found


def worst(files: Sequence[ResultFile]) -> str:
    """The losses, and what is next to them."""
    found = sorted(of_all(files), key=lambda contest: contest.ratio)
    losses = [contest for contest in found if contest.ratio < 1]
    failed = [(file, *each) for file in files for each in file.failed.items()]
    are = "is" if len(losses) == 1 else "are"
    said = f"{counted(len(losses), 'row')} of {len(found)} {are} slower than the other side"
    sure = sum(contest.dot.kind == "loss" for contest in losses)
    said += f", {sure} of them beyond the noise." if losses else "."
    parts = ["<h2>Losses, and the ten worst rows</h2>", f"<p>{said}</p>"]
    if found:
        parts.append(_rows(found[: max(WORST, len(losses))], _with_its_file))
    if failed:
        parts.append(f"<h3>Without a time: {counted(len(failed), 'row')}</h3><ul>")
        parts += [
            f'<li class="name">{name(about)}<small>{text(file.title)}: {text(why)}</small></li>'
            for file, about, why in failed
        ]
        parts.append("</ul>")
    return "\n".join(parts)


def counted(count: int, thing: str) -> str:
    """``no rows``, ``1 row``, ``2 rows``"""
    return f"{count or 'no'} {thing}{'' if count == 1 else 's'}"


def speedups(files: Sequence[ResultFile]) -> str:
    """Every layer, by file and pass; one axis for each file."""
    parts = ["<h2>Layer by layer</h2>"]
    parts.append(
        "<p>How many times as fast as PyTorch's better layout, on a logarithmic axis; the strong line is 1×. The bar "
        "through a dot is the interval that was measured, or the spread of both times. "
        "A grey dot has 1× inside of its interval.</p>"
    )
    for file in files:
        contests = list(of_layers(file))
        if not contests:
            continue
        parts.append(f"<details open><summary><b>{text(file.heading)}</b> {text(file.created)}</summary>")
        axis = axis_of(contests)
        for group, members in grouped(contests, lambda contest: contest.group).items():
            mean = geometric_mean(contest.ratio for contest in members)
            parts.append(f"<h3>{text(group)}: {shown(mean)}× on average, {counted(len(members), 'layer')}</h3>")
            parts.append(_rows(members, _with_its_times, axis=axis))
        parts.append("</details>")
    return "\n".join(parts) if len(parts) > 2 else ""


def axis_of(contests: Sequence[ResultContest]) -> LogAxis:
    """One with room for all dots, their intervals, and 1."""
    return LogAxis.around(
        [1.0, *(end for each in contests for end in (each.ratio, max(each.dot.low, each.ratio / 4), each.dot.high))]
    )


def _with_its_file(contest: ResultContest) -> str:
    return facts(f"{contest.group}, over {contest.over}", contest.times, contest.file.heading)


def _with_its_times(contest: ResultContest) -> str:
    return "; ".join((contest.times, *contest.notes))


def _rows(
    contests: Sequence[ResultContest], said: Callable[[ResultContest], str], *, axis: LogAxis | None = None
) -> str:
    axis = axis or axis_of(contests)
    lines = [f'<div class="row axis"><div class="name"></div><div class="at">{axis_row(axis)}</div><div></div></div>']
    lines += [
        f'<div class="row"><div class="name">{name(contest.name)}<small>{text(said(contest))}</small></div>'
        f'<div class="at">{row(axis, contest.dot)}</div>'
        f'<div class="n"><b>{shown(contest.ratio)}×</b>'
        f"<small>{shown(contest.dot.low)}–{shown(contest.dot.high)}</small></div></div>"
        for contest in contests
    ]
    return '<div class="rows">' + "\n".join(lines) + "</div>"


def steps(files: Sequence[ResultFile], of: Callable[[ResultFile], Iterable[ResultContest]]) -> str:
    """The rows of one kind of contest, of all files, on one axis."""
    contests = [contest for file in files for contest in of(file)]
    if not contests:
        return ""
    return _rows(contests, lambda each: facts(f"{each.group} over {each.over}", each.times, each.file.where))


# -- networks ----------------------------------------------------------------------------------------------------------


def networks(files: Sequence[ResultFile]) -> str:
    """Geometric means by network and pass, and how often its layers occur where the file says so."""
    tables = [_networks_of(file) for file in files if file.layer_rows or file.block_rows]
    return f'<h2>By network</h2>\n<div class="tables">{"".join(tables)}</div>' if tables else ""


def _networks_of(file: ResultFile) -> str:
    contests = [*of_layers(file), *of_blocks(file)]
    rows: list[LayerResult | BlockRow] = [*file.layer_rows, *file.block_rows]
    by_network = grouped(
        zip(rows, contests, strict=True), lambda pair: pair[0].network or pair[0].layer.partition(" ")[0]
    )
    groups = list(grouped(contests, lambda contest: contest.group))
    head = "".join(f'<th class="n">{text(group)}</th>' for group in (*groups, "least"))
    bodies = []
    for network, pairs in by_network.items():
        counts = {each.layer: each.count for each, _ in pairs}
        known = [count for count in counts.values() if count is not None]
        said = counted(len(counts), "layer") + (f", {sum(known)} in the network" if len(known) == len(counts) else "")
        cells = []
        for group in groups:
            ratios = [contest.ratio for _, contest in pairs if contest.group == group]
            cells.append(_heat(geometric_mean(ratios)) if ratios else "<td></td>")
        cells.append(_heat(min(contest.ratio for _, contest in pairs)))
        bodies.append(f'<tr><th class="name">{name(network)}<small>{said}</small></th>{"".join(cells)}</tr>')
    table = (
        f'<table class="heat wide networks" style="--columns: {len(groups) + 1}">'
        f'<thead><tr><th class="first">network</th>{head}</tr></thead><tbody>{"".join(bodies)}</tbody></table>'
    )
    return f"<div><h3>{text(file.heading)}</h3>{scrolled(table)}</div>"


def _heat(ratio: float, note: str = "") -> str:
    small = f"<small>{note}</small>" if note else ""
    return f'<td class="{heat(ratio)}">{shown(ratio)}{small}</td>'


# -- the fastest at each size ------------------------------------------------------------------------------------------


def winners(files: Sequence[ResultFile]) -> str:
    """A table for each file, which has one type and layout: kernel and size down, passes across."""
    tables = [_winners_of(file) for file in files if file.layer_rows]
    if not tables:
        return ""
    labels = [f"&lt; {HEAT_FROM[0]:g}", *(f"≥ {start:g}" for start in HEAT_FROM)]
    key = "".join(f'<td class="h{place}">{label}</td>' for place, label in enumerate(labels))
    return (
        "<h2>The fastest at each size</h2>\n<p>Kernel and size of the map, by pass: blue where ours is faster, "
        "orange where PyTorch's is. Where several layers have the same sizes it is their geometric mean, with the "
        f'least and the greatest below.</p><table class="heat legend"><tbody><tr>{key}</tr></tbody></table>\n'
        f'<div class="tables">{"".join(tables)}</div>'
    )


def _winners_of(file: ResultFile) -> str:
    contests = grouped(zip(map(sizes_of, file.layer_rows), of_layers(file), strict=True), lambda pair: pair[0])
    groups = list(dict.fromkeys(contest.group for contest in of_layers(file)))
    head = "".join(f'<th class="n">{text(group)}</th>' for group in groups)
    bodies = "".join(
        f'<tr><th class="name">{name(sized.kernel)}</th><td class="name size">{name(sized.size)}</td>'
        + "".join(_mean_cell([each.ratio for _, each in pairs if each.group == group]) for group in groups)
        + "</tr>"
        for sized, pairs in sorted(contests.items(), key=_order)
    )
    wide = " wide" if len(groups) > len(PASSES) else ""
    table = (
        f'<table class="heat{wide}" style="--columns: {len(groups)}">'
        f'<thead><tr><th class="first">K</th><th class="first">size</th>{head}</tr></thead>'
        f"<tbody>{bodies}</tbody></table>"
    )
    return f"<div><h3>{text(file.heading)}</h3>{scrolled(table)}</div>"


def _order(item: tuple[Sized, object]) -> tuple[object, ...]:
    return item[0].order


def _mean_cell(ratios: Sequence[float]) -> str:
    if not ratios:
        return "<td></td>"
    note = f"{shown(min(ratios))}–{shown(max(ratios))}" if len(ratios) > 1 else ""
    return _heat(geometric_mean(ratios), note)
