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
_Row = TypeVar("_Row", bound="msgspec.Struct")


class UnreadableResults(DwconvError):
    """A file that is not the output of a benchmark, or not a whole one."""


class LayerRow(msgspec.Struct, kw_only=True, frozen=True):
    """A pass of a layer, as ``bench cpu`` writes it. Without times if it ``failed``."""

    layer: str
    pass_: str = msgspec.field(name="pass")
    epilogue: str = "none"
    network: str | None = None
    count: int | None = None
    failed: str | None = None
    dwconv_us: Above0 | None = None
    pytorch_us: dict[str, Above0] = {}
    ratio: Above0 | None = None
    ratio_spread: float = 0.0
    ratio_interval: tuple[Above0, Above0] | None = None
    ratio_float32: float | None = None
    verdict: Any = None
    percent_of_limit: float | None = None
    contention: float = 0.0


class BlockRow(msgspec.Struct, kw_only=True, frozen=True):
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
    ratio_interval: tuple[Above0, Above0] | None = None
    verdict: Any = None
    percent_of_limit: float | None = None
    contention: float = 0.0


class Ratio(msgspec.Struct, kw_only=True, frozen=True):
    """How many times as fast one step is as another, over turns."""

    median: Above0
    quartiles: tuple[Above0, Above0]
    at_most: float | None = None


class StepRow(msgspec.Struct, kw_only=True, frozen=True):
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
    layers: dict[str, int] = {}
    steps: int | None = None
    contention: float = 0.0


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


def read(path: Path) -> ResultFile:
    """Raises UnreadableResults, which names the file and what is wrong in it."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=ResultFile)
        if found.limits is not None and not _is_sound(found.limits):
            raise UnreadableResults(f"{path}: limits of 0 or less; measure again")
        return msgspec.structs.replace(
            found,
            name=path.name,
            layer_rows=_layer_rows(found, path),
            block_rows=_rows(found, BlockRow, "blocks"),
            step_rows=_rows(found, StepRow, "train"),
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
        try:
            rows.append(msgspec.convert(row, type=of))
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"row {place}: {error}") from error
    return rows


def _layer_rows(found: ResultFile, path: Path) -> Sequence[LayerRow]:
    rows = _rows(found, LayerRow, "cpu")
    for place, row in enumerate(rows):
        if row.failed is None and (row.ratio is None or row.dwconv_us is None):
            raise UnreadableResults(f"{path} is not the output of a benchmark: row {place} has no ratio and no failure")
    return rows


def _is_sound(limits: Limits) -> bool:
    rates = (limits.memory_gb_per_s, limits.cache_gb_per_s, limits.peak_gflop_per_s)
    levels = (level.gb_per_s for level in limits.levels)
    return all(math.isfinite(rate) and rate > 0 for rate in (*rates, *levels))


def one_of(facts: Mapping[str, Any]) -> str:
    """``torch 2.13.0, tvm 0.27.0``: what is known of something, in one line."""
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
