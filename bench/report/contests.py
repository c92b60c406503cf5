"""Contests: every comparison with somebody else that the files hold, in the same words, whatever it is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from bench.report.files import BlockRow, LayerRow, Ratio, ResultFile, Row, StepRow
from dwconv.reporting.drawing import Dot

RIVALS = ("plain", "plain, contiguous", "plain + inductor")
"""PyTorch's own models among those of a step."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """One row of ours against somebody else's best."""

    name: str
    """The layer, the block or the network."""
    group: str
    """The pass, or what else it is one of."""
    over: str
    """Who it is compared with."""
    dot: Dot
    times: str
    """Both times, in words."""
    notes: tuple[str, ...] = ()
    file: ResultFile = field(repr=False)

    @property
    def ratio(self) -> float:
        return self.dot.ratio


def of_all(files: Sequence[ResultFile]) -> list[Contest]:
    """Those of layers, blocks and steps, against the fastest of all others that raced."""
    return [contest for file in files for contest in (*_layers_at_worst(file), *of_blocks(file), *of_steps(file))]


def group_of(row: LayerRow) -> str:
    """``fprop``, ``dgrad``, ``wgrad``; of an activation in the kernel ``silu``, ``silu gradient``; with other caches
    than warm ones ``fprop, cold``."""
    said = row.pass_ if row.epilogue == "none" else row.epilogue.replace("_", " ")
    return said if row.caches == "warm" else f"{said}, {row.caches}"


def of_layers(file: ResultFile) -> Iterator[Contest]:
    """Over PyTorch's better layout."""
    for row in file.layer_rows:
        other, other_us = min(row.pytorch_us.items(), key=lambda each: each[1], default=("PyTorch", 0.0))
        notes = [f"{row.percent_of_limit:.0f} % of the limit"] if row.percent_of_limit is not None else []
        notes += [f"{row.ratio_float32:.2f} × our float32"] if row.ratio_float32 is not None else []
        if row.over_best_other is not None:
            notes.append(f"{row.over_best_other:.3g} × {row.best_other}" + (f": {row.verdict}" if row.verdict else ""))
        yield Contest(
            name=row.layer + (f" ({row.count} of them)" if row.count and row.count > 1 else ""),
            group=group_of(row),
            over="PyTorch's better layout",
            dot=_dot(row.ratio, row.ratio_interval, spread=row.ratio_spread),
            times=f"{in_us(row.dwconv_us)}, {other} {in_us(other_us)}" if other_us else in_us(row.dwconv_us),
            notes=tuple(notes),
            file=file,
        )


def _layers_at_worst(file: ResultFile) -> Iterator[Contest]:
    """The same, over whoever was the fastest."""
    for row, contest in zip(file.layer_rows, of_layers(file), strict=True):
        best = _against_best(row)
        yield replace(contest, dot=best, over=row.best_other) if best else contest


def _against_best(row: Row) -> Dot | None:
    if row.over_best_other is None or row.over_best_other_interval is None:
        return None
    low, high = row.over_best_other_interval
    return Dot(ratio=row.over_best_other, low=low, high=high, verdict=row.verdict or "")


def of_blocks(file: ResultFile) -> Iterator[Contest]:
    for row in file.block_rows:
        best = min((name for name in row.median_us if name != "as one"), key=row.median_us.__getitem__, default="")
        times = [f"{name} {in_us(row.median_us[name])}" for name in ("as one", best) if name in row.median_us]
        yield Contest(
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


def of_steps(file: ResultFile) -> Iterator[Contest]:
    """Each pair of models once; of the best ones the ratio that was judged by the control."""
    for row in file.step_rows:
        ratios = {("converted", "plain"): row.ratio}
        if row.inductor:
            ratios["converted + inductor", "plain + inductor"] = row.inductor
        for name, over in (("blocks", row.blocks), ("blocks + inductor", row.compiled_blocks)):
            ratios |= {(name, rival): over[rival] for rival in RIVALS if rival in over}
        contests = {(name, over): _step(row, name, over, ratio, file) for (name, over), ratio in ratios.items()}
        if best := _against_best(row):
            contests[row.best_ours, row.best_other] = replace(
                _step(row, row.best_ours, row.best_other, row.ratio, file), dot=best
            )
        yield from contests.values()


def _step(row: StepRow, name: str, over: str, ratio: Ratio, file: ResultFile) -> Contest:
    low, high = ratio.interval or ratio.quartiles
    ms = [f"{each} {row.median_ms[each]:.4g} ms" for each in (name, over) if each in row.median_ms]
    return Contest(
        name=f"{row.network}: {name}, {row.allocator}",
        group="step",
        over=over,
        dot=Dot(ratio=ratio.median, low=low, high=high),
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
