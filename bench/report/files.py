"""Result files as they are read: checked for what the report needs, so that nothing fails half-way through a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from dwconv.errors import DwconvError
from dwconv.problems.target import Limits
from dwconv.problems.workload import DTYPES, LAYOUTS, DType, Layout

Above0 = Annotated[float, msgspec.Meta(gt=0)]
Interval = tuple[Above0, Above0]
_Row = TypeVar("_Row", bound="msgspec.Struct")


KINDS = ("cpu", "blocks", "train")
"""Benchmarks whose rows are understood; those of others are shown as they are."""


class UnreadableResults(DwconvError):
    """A file that is not the output of a benchmark, or not a whole one."""


class Failed(msgspec.Struct, kw_only=True, frozen=True):
    """A row without times, of any benchmark, and why it has none."""

    name: str
    why: str


class Row(msgspec.Struct, kw_only=True, frozen=True):
    """What the rows of several benchmarks have: the ratio over the fastest of all others, where they raced."""

    over_best_other: Above0 | None = None
    over_best_other_interval: Interval | None = None
    best_other: str = "the best other"
    verdict: str | None = None
    """``faster``, ``tie`` or ``slower`` than the best other."""
    contention: float = 0.0


class LayerRow(Row, kw_only=True, frozen=True):
    """A pass of a layer, as ``bench cpu`` writes it."""

    layer: str
    pass_: str = msgspec.field(name="pass")
    epilogue: str = "none"
    caches: str = "warm"
    network: str | None = None
    count: int | None = None
    dwconv_us: Above0
    pytorch_us: dict[str, Above0] = {}
    ratio: Above0
    """Over PyTorch's better layout."""
    ratio_spread: float = 0.0
    ratio_interval: Interval | None = None
    ratio_float32: float | None = None
    percent_of_limit: float | None = None


class BlockRow(Row, kw_only=True, frozen=True):
    """A block, as ``bench blocks`` writes it."""

    network: str
    layer: str
    block: str
    count: int
    median_us: dict[str, Above0]
    spread_us: dict[str, float]
    over_eager: Above0
    over_best_other: Above0
    kept_bytes: dict[str, int]


class Ratio(msgspec.Struct, kw_only=True, frozen=True):
    """How many times as fast one step is as another, over turns."""

    median: Above0
    quartiles: Interval
    interval: Interval | None = None
    at_most: float | None = None


class StepRow(Row, kw_only=True, frozen=True):
    """A network's training step, as ``bench train`` writes it."""

    network: str
    allocator: str
    median_ms: dict[str, Above0]
    ratio: Ratio
    compiled: dict[str, Ratio] = {}
    inductor: Ratio | None = None
    blocks: dict[str, Ratio] = {}
    compiled_blocks: dict[str, Ratio] = {}
    kept_bytes: dict[str, int] = {}
    profile_ms: dict[str, dict[str, float]] = {}
    best_ours: str = "the best with dwconv"


class ResultFile(msgspec.Struct, kw_only=True, frozen=True):
    """The output of one benchmark."""

    benchmark: str
    rows: list[dict[str, Any]]
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
    layer_rows: Sequence[LayerRow] = ()
    block_rows: Sequence[BlockRow] = ()
    step_rows: Sequence[StepRow] = ()
    failed: Sequence[Failed] = ()
    """The rows of these benchmarks that have no times."""

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
    def where(self) -> str:
        """``bfloat16 on amd-epyc-…``; float32 goes without saying."""
        return " ".join([*(dtype for dtype in DTYPES if dtype in self.benchmark.split("-")), "on", self.device])


def read(path: Path) -> ResultFile:
    """Raises UnreadableResults, which names the file and what is wrong in it."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=ResultFile)
        if found.limits is not None and not _is_sound(found.limits):
            raise UnreadableResults(f"{path}: limits of 0 or less; measure again")
        return msgspec.structs.replace(
            found,
            name=path.name,
            layer_rows=_rows(found, LayerRow, "cpu"),
            block_rows=_rows(found, BlockRow, "blocks"),
            step_rows=_rows(found, StepRow, "train"),
            failed=[_failed(row) for row in found.rows if found.kind in KINDS and "failed" in row],
        )
    except OSError as error:
        raise UnreadableResults(f"{path}: {error.strerror or error}; give files that a benchmark wrote") from error
    except msgspec.ValidationError as error:
        raise UnreadableResults(f"{path} is not the output of a benchmark: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableResults(f"{path} is not JSON: {error}") from error


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


def _failed(row: Mapping[str, Any]) -> Failed:
    parts = (row.get(part) for part in ("layer", "block", "network", "pass", "epilogue", "allocator", "caches"))
    return Failed(name=" ".join(part for part in parts if isinstance(part, str)), why=str(row["failed"]))


def _is_sound(limits: Limits) -> bool:
    rates = (limits.memory_gb_per_s, limits.cache_gb_per_s, limits.peak_gflop_per_s)
    levels = (level.gb_per_s for level in limits.levels)
    return all(math.isfinite(rate) and rate > 0 for rate in (*rates, *levels))


def one_of(facts: Mapping[str, Any]) -> str:
    """``torch 2.13.0, tvm 0.27.0``: what is known of something, in one line."""
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
