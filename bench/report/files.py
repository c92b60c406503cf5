"""Result files as they are read: checked for what the report needs, so that nothing fails half-way through a page.

Then contests: every comparison with another provider that the files hold, in the same words, whatever it is of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from bench.results import UnreadableResults, read_results
from dwconv.problems.target import Limits
from dwconv.problems.workload import DTYPES, LAYOUTS, DType, Layout
from dwconv.reporting.drawing import Dot

Above0 = Annotated[float, msgspec.Meta(gt=0)]
Interval = tuple[Above0, Above0]
_Row = TypeVar("_Row", bound="msgspec.Struct")


KINDS = ("cpu", "cuda", "blocks", "train", "first")
"""Benchmarks whose rows are understood; those of others are shown as they are."""


class ResultRow(msgspec.Struct, kw_only=True, frozen=True):
    """What the rows of several benchmarks have: the ratio over the fastest of all others, where they raced."""

    over_best_other: Above0 | None = None
    over_best_other_interval: Interval | None = None
    best_other: str = "the best other"
    verdict: str | None = None
    """``faster``, ``tie`` or ``slower`` than the best other."""
    contention: float = 0.0


class LayerResult(ResultRow, kw_only=True, frozen=True):
    """A pass of a layer, as ``bench cpu`` writes it."""

    layer: str
    pass_: str = msgspec.field(name="pass")
    epilogue: str = "none"
    caches: str = "warm"
    network: str | None = None
    batch: int | None = None
    count: int | None = None
    dwconv_us: Above0
    pytorch_us: dict[str, Above0] = {}
    ratio: Above0
    """Over PyTorch's better layout."""
    ratio_spread: float = 0.0
    ratio_interval: Interval | None = None
    ratio_float32: float | None = None
    percent_of_limit: float | None = None


class BlockRow(ResultRow, kw_only=True, frozen=True):
    """A block, as ``bench blocks`` writes it."""

    network: str
    layer: str
    block: str
    count: int
    median_us: dict[str, Above0]
    spread_us: dict[str, float]
    over_eager: Above0
    over_eager_interval: Interval | None = None
    over_best_other: Above0
    kept_bytes: dict[str, int]


class StepRatio(msgspec.Struct, kw_only=True, frozen=True):
    """How many times as fast one step is as another, over turns."""

    median: Above0
    quartiles: Interval
    interval: Interval | None = None
    at_most: float | None = None


class StepRow(ResultRow, kw_only=True, frozen=True):
    """A network's training step, as ``bench train`` writes it."""

    network: str
    allocator: str
    median_ms: dict[str, Above0]
    ratio: StepRatio
    inductor: StepRatio | None = None
    blocks: dict[str, StepRatio] = {}
    compiled_blocks: dict[str, StepRatio] = {}
    graphs: StepRatio | None = None
    graphed_blocks: dict[str, StepRatio] = {}
    kept_bytes: dict[str, int] = {}
    profile_ms: dict[str, dict[str, float]] = {}
    best_ours: str = "the best with dwconv"


class MinuteRow(msgspec.Struct, kw_only=True, frozen=True):
    """A training from its start, as ``bench first_minute`` writes it; sums by the number of steps."""

    model: str
    case: str
    plain_step_s: Above0
    plain_drift: Above0 = 1.0
    convert_s: float
    sums_s: dict[str, Above0]
    plain_sums_s: dict[str, Above0]
    late_step_s: Above0
    open_plans: int = 0


class ResultFile(msgspec.Struct, kw_only=True, frozen=True):
    """The output of one benchmark."""

    benchmark: str
    rows: list[dict[str, Any]]
    blocks: Any = None
    steps: Any = None
    """Of ``bench cuda`` rows by network and type."""
    command: str = ""
    created: str = ""
    device: str = ""
    threads: int | None = None
    limits: Limits | None = None
    versions: dict[str, str | None] = {}
    control: Any = None
    machine: Any = None
    name: str = ""
    """The file's, without its folder."""
    layer_rows: Sequence[LayerResult] = ()
    block_rows: Sequence[BlockRow] = ()
    step_rows: Sequence[StepRow] = ()
    minute_rows: Sequence[MinuteRow] = ()

    @property
    def kind(self) -> str:
        """``cpu``, ``train``, ``blocks``, …: the first word of its name."""
        return self.benchmark.partition("-")[0]

    @property
    def dtype(self) -> DType:
        """As its name says."""
        return next((dtype for dtype in DTYPES if dtype in self.benchmark.split("-")), "float32")

    @property
    def layout(self) -> Layout:
        """As its name says."""
        return next((layout for layout in LAYOUTS if layout in self.benchmark.split("-")), "nhwc")

    @property
    def title(self) -> str:
        """``cpu, 1d, bfloat16, nhwc``"""
        return self.benchmark.replace("-", ", ")

    @property
    def failed(self) -> dict[str, str]:
        """Why rows of these benchmarks have no times, by what they are about."""
        parts = ("layer", "block", "network", "pass", "epilogue", "allocator", "caches")
        failed = [row for row in self.rows if self.kind in KINDS and "failed" in row]
        return {
            " ".join(row[part] for part in parts if isinstance(row.get(part), str)): row["failed"] for row in failed
        }

    @property
    def heading(self) -> str:
        """``cpu, 1d, bfloat16, nhwc on amd-epyc-…``"""
        return f"{self.title} on {self.device or 'an unknown device'}"

    @property
    def where(self) -> str:
        """``bfloat16 on amd-epyc-…``; float32 goes without saying."""
        return " ".join([*(dtype for dtype in DTYPES if dtype in self.benchmark.split("-")), "on", self.device])


def read(path: Path) -> ResultFile:
    """Raises UnreadableResults, which names the file and what is wrong in it."""
    found = read_results(path, ResultFile)
    try:
        return msgspec.structs.replace(
            found,
            name=path.name,
            layer_rows=_rows(found, LayerResult, "cpu"),
            block_rows=_rows(found, BlockRow, "blocks"),
            step_rows=_rows(found, StepRow, "train"),
            minute_rows=_rows(found, MinuteRow, "first"),
        )
    except msgspec.ValidationError as error:
        raise UnreadableResults(f"{path} is not the output of a benchmark: {error}") from error


def _rows(found: ResultFile, of: type[_Row], kind: str) -> Sequence[_Row]:
    if found.kind != kind:
        return ()
    rows = []
    for place, row in enumerate(found.rows):
        if "failed" in row:
            continue
        try:
            rows.append(msgspec.convert(row, type=of))
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"row {place}: {error}") from error
    return rows


_EAGER = ("plain", "plain, contiguous")


@dataclass(frozen=True, kw_only=True)
class ResultContest:
    """One row of ours against the best other."""

    name: str
    """The layer, the block or the network."""
    group: str
    """The pass, or what else it is one of."""
    over: str
    """The provider that it is compared with."""
    dot: Dot
    times: str
    """Both times, in words."""
    notes: tuple[str, ...] = ()
    file: ResultFile = field(repr=False)

    @property
    def ratio(self) -> float:
        return self.dot.ratio


def of_all(files: Sequence[ResultFile]) -> list[ResultContest]:
    """Those of layers, blocks and steps, against the fastest of all others that raced."""
    return [contest for file in files for contest in (*_layers_at_worst(file), *of_blocks(file), *of_steps(file))]


def group_of(row: LayerResult) -> str:
    """``fprop``, ``dgrad``, ``wgrad``; of an activation in the kernel ``silu``, ``silu gradient``; with other caches
    than warm ones ``fprop, cold``."""
    said = row.pass_ if row.epilogue == "none" else row.epilogue.replace("_", " ")
    return said if row.caches == "warm" else f"{said}, {row.caches}"


def of_layers(file: ResultFile) -> Iterator[ResultContest]:
    """Over PyTorch's better layout."""
    for row in file.layer_rows:
        other, other_us = min(row.pytorch_us.items(), key=lambda each: each[1], default=("PyTorch", 0.0))
        notes = [f"{row.percent_of_limit:.0f} % of the limit"] if row.percent_of_limit is not None else []
        notes += [f"{row.ratio_float32:.2f} × our float32"] if row.ratio_float32 is not None else []
        if row.over_best_other is not None:
            notes.append(f"{row.over_best_other:.3g} × {row.best_other}" + (f": {row.verdict}" if row.verdict else ""))
        yield ResultContest(
            name=row.layer + (f" ({row.count} of them)" if row.count and row.count > 1 else ""),
            group=group_of(row),
            over="PyTorch's better layout",
            dot=over_pytorch(row),
            times=f"{in_us(row.dwconv_us)}, {other} {in_us(other_us)}" if other_us else in_us(row.dwconv_us),
            notes=tuple(notes),
            file=file,
        )


def over_pytorch(row: LayerResult | BlockRow | StepRow) -> Dot:
    """Over PyTorch's better layout; of a training step over the plain model's."""
    if isinstance(row, LayerResult):
        return _dot(row.ratio, row.ratio_interval, spread=row.ratio_spread)
    if isinstance(row, StepRow):
        return _dot(row.ratio.median, row.ratio.interval or row.ratio.quartiles, spread=0.0)
    eager = min(_EAGER, key=lambda name: row.median_us.get(name, math.inf))
    return _dot(row.over_eager, row.over_eager_interval, spread=row.over_eager * _relative(row, eager))


def _layers_at_worst(file: ResultFile) -> Iterator[ResultContest]:
    """The layers of a file, over the fastest provider."""
    for row, contest in zip(file.layer_rows, of_layers(file), strict=True):
        best = _against_best(row)
        yield replace(contest, dot=best, over=row.best_other) if best else contest


def _against_best(row: ResultRow) -> Dot | None:
    if row.over_best_other is None or row.over_best_other_interval is None:
        return None
    low, high = row.over_best_other_interval
    return Dot(ratio=row.over_best_other, low=low, high=high, verdict=row.verdict or "")


def of_blocks(file: ResultFile) -> Iterator[ResultContest]:
    for row in file.block_rows:
        best = min((name for name in row.median_us if name != "as one"), key=row.median_us.__getitem__, default="")
        times = [f"{name} {in_us(row.median_us[name])}" for name in ("as one", best) if name in row.median_us]
        yield ResultContest(
            name=f"{row.layer} {row.block}",
            group="block",
            over=row.best_other,
            dot=_against_best(row)
            or _dot(row.over_best_other, None, spread=row.over_best_other * _relative(row, best)),
            times=", ".join(times),
            file=file,
        )


def _relative(row: BlockRow, other: str) -> float:
    """The spread of a ratio, relative to it."""
    parts = [row.spread_us.get(name, 0.0) / row.median_us[name] for name in ("as one", other) if name in row.median_us]
    return float(sum(part**2 for part in parts) ** 0.5)


def of_steps(file: ResultFile) -> Iterator[ResultContest]:
    """Each pair of models once; of the best ones the ratio that was judged by the control."""
    for row in file.step_rows:
        contests = {pair: _step(row, pair, ratio, file) for pair, ratio in ratios_of(row).items()}
        if best := _against_best(row):
            pair = row.best_ours, row.best_other
            contests[pair] = replace(_step(row, pair, row.ratio, file), dot=best)
        yield from contests.values()


def ratios_of(row: StepRow) -> dict[tuple[str, str], StepRatio]:
    """By the model of ours, and that of PyTorch's which it is compared with."""
    found = {("converted", "plain"): row.ratio}
    for how, ratio in (("inductor", row.inductor), ("graphs", row.graphs)):
        if ratio:
            found[f"converted + {how}", f"plain + {how}"] = ratio
    for how, over in (("", row.blocks), (" + inductor", row.compiled_blocks), (" + graphs", row.graphed_blocks)):
        found |= {
            (f"blocks{how}", rival): over[rival] for rival in dict.fromkeys((*_EAGER, f"plain{how}")) if rival in over
        }
    return found


def _step(row: StepRow, pair: tuple[str, str], ratio: StepRatio, file: ResultFile) -> ResultContest:
    name, over = pair
    ms = [f"{each} {row.median_ms[each]:.4g} ms" for each in pair if each in row.median_ms]
    return ResultContest(
        name=", ".join(filter(None, (row.network, row.allocator))),
        group=name,
        over=over,
        dot=_dot(ratio.median, ratio.interval or ratio.quartiles, spread=0.0),
        times=", ".join(ms),
        file=file,
    )


def _dot(ratio: float, interval: tuple[float, float] | None, *, spread: float) -> Dot:
    """With the interval that was measured, or the ratio times and divided by its relative spread: a ratio is never
    below 0."""
    if interval:
        low, high = interval
        return Dot(ratio=ratio, low=low, high=high)
    off = 1 + max(spread, 0.0) / ratio
    return Dot(ratio=ratio, low=ratio / off, high=ratio * off)


def in_us(time_us: float) -> str:
    """``7.3 µs``, ``1240 µs``, ``192 ms``"""
    return f"{time_us / 1e3:.0f} ms" if time_us >= 1e5 else f"{time_us:.{0 if time_us >= 100 else 1}f} µs"
