"""A result of ``bench cuda`` as results of one kind, type and layout each, like those of the CPU's benchmarks."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec

from bench.cases import CPU_LAYERS, GPU_LAYERS
from bench.report.files import Above0, BlockRow, LayerResult, ResultFile, StepRow
from bench.results import UnreadableResults, counts
from dwconv.problems.workload import DTYPES, LAYOUTS

_WORKLOAD = re.compile(
    r"(?P<pass>\w+)-n(?P<batch>\d+)-c(?P<channels>\d+)-(?P<size>[\dx]+)-k(?P<kernel>[\dx]+)-s(?P<stride>[\dx]+)-"
)
_NAMES = {str(layer).partition(" ")[2]: str(layer) for layer in (*CPU_LAYERS, *GPU_LAYERS)}
"""Layers with their networks, by their sizes."""


class _Turns(msgspec.Struct, kw_only=True):
    us: dict[str, Above0]
    best_other: str
    ratio: Above0


class _Pass(msgspec.Struct, kw_only=True):
    """A pass of a layer, as the stage ``race`` writes it."""

    workload: str
    warm: _Turns
    spread_us: dict[str, float] = {}
    percent_of_limit: float | None = None


def parts(found: ResultFile) -> list[ResultFile]:
    """Layers, blocks and steps of a result of ``bench cuda``, apart; another result as it is. Raises
    UnreadableResults."""
    if found.benchmark != "cuda":
        return [found]
    try:
        return _parts(found)
    except (msgspec.ValidationError, AttributeError, KeyError, TypeError) as error:
        raise UnreadableResults(f"{found.name} is not the output of bench cuda: {error}") from error


def _parts(found: ResultFile) -> list[ResultFile]:
    layers, blocks, steps = (defaultdict[str, list[Any]](list) for _ in range(3))
    for row in msgspec.convert([row for row in found.rows if "failed" not in row], type=list[_Pass]):
        layers["-".join(["cuda", *_type_and_layout(row.workload)])].append(_layer(row))
    for block in found.blocks or []:
        blocks["-".join(["cuda-blocks", *_type_and_layout(block["workload"])])].append(
            msgspec.convert(block, type=BlockRow)
        )
    for key, step in (found.steps or {}).items():
        if counts(step):
            network, _, dtype = key.rpartition(" ")  # of results without fields for these
            way = f"batch {step['batch']}{', compiled' * step['compiled']}" if "batch" in step else ""
            named = {"network": network, "dtype": dtype, **step, "allocator": way}
            steps[f"cuda-train-{named['dtype']}"].append(msgspec.convert(named, type=StepRow))
    every = {"layer_rows": layers, "block_rows": blocks, "step_rows": steps}
    return [
        msgspec.structs.replace(found, benchmark=name, **{kind: rows})
        for kind, of in every.items()
        for name, rows in of.items()
    ]


def _type_and_layout(workload: str) -> Iterator[str]:
    return (word for word in workload.split("-") if word in (*DTYPES, *LAYOUTS))


def _layer(row: _Pass) -> LayerResult:
    """Over the best other, which may be cuDNN's or PyTorch's own in either layout."""
    parts = _WORKLOAD.match(row.workload)
    if parts is None:
        raise msgspec.ValidationError(f"{row.workload} is no workload")
    size, kernel, stride = (
        _short(parts[name].split("x"), "²" if name == "size" else "") for name in ("size", "kernel", "stride")
    )
    sizes = f"{parts['channels']}×{size} k{kernel}" + (f" s{stride}" if stride != "1" else "")
    others = {name: us for name, us in row.warm.us.items() if name != "dwconv"}
    spreads = [row.spread_us.get(name, 0.0) / row.warm.us[name] for name in ("dwconv", row.warm.best_other)]
    off = 1 + math.hypot(*spreads)
    return LayerResult(
        layer=_NAMES.get(sizes, sizes),
        pass_=parts["pass"],
        batch=int(parts["batch"]),
        dwconv_us=row.warm.us["dwconv"],
        pytorch_us=others,
        ratio=row.warm.ratio,
        ratio_spread=row.warm.ratio * (off - 1),
        over_best_other=row.warm.ratio,
        over_best_other_interval=(row.warm.ratio / off, row.warm.ratio * off),
        best_other=row.warm.best_other,
        percent_of_limit=row.percent_of_limit,
    )


def _short(each: list[str], square: str) -> str:
    """``56²`` for ``56x56``, ``3`` for ``3x3``."""
    return f"{each[0]}{square}" if len(set(each)) == 1 else "×".join(each)
