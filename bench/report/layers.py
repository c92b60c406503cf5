"""From the names of layers in result files to their sizes, and to the workloads that they were measured on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from bench.cases import CPU_LAYERS, Layer, ListedLayer, listed_layers
from bench.report.files import LayerRow, ResultFile
from dwconv.problems.layer_files import shipped_networks
from dwconv.problems.workload import DType, Layout, Workload

_NAMED = re.compile(r"\d+×(?P<size>[\d×²³]+) k(?P<kernel>[\d×]+)(?: s(?P<stride>[\d×]+))?")


@dataclass(frozen=True, kw_only=True)
class Sized:
    """The sizes of a layer, as its name has them."""

    kernel: str
    """``3``, ``3×3×3``; with its stride, if it has one: ``3 s2``. Empty if the name has none."""
    size: str
    """``112²``, ``13×80×80``; the whole name if it has none."""

    @property
    def order(self) -> tuple[object, ...]:
        """By kernel, then by size, the largest first."""
        kernel, size = (_numbers(text) for text in (self.kernel, self.size))
        return (max(kernel, default=0), kernel, [-number for number in size], self.kernel, self.size)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def sizes_of(row: LayerRow) -> Sized:
    """As the name says: ``MobileNetV2 96×112² k3 s2``."""
    found = _NAMED.search(row.layer)
    if not found:
        return Sized(kernel="", size=row.layer)
    is_row = found["size"].startswith("1×")
    kernel, stride = (_short(found[part] or "1", is_row=is_row) for part in ("kernel", "stride"))
    return Sized(kernel=kernel + (f" s{stride}" if found["stride"] else ""), size=found["size"].removeprefix("1×"))


def _short(sizes: str, *, is_row: bool) -> str:
    """``3`` for ``3×3``, and for ``1×3`` of a row."""
    each = (sizes.removeprefix("1×") if is_row else sizes).split("×")
    return each[0] if len(set(each)) == 1 else "×".join(each)


def workload_of(row: LayerRow, file: ResultFile) -> Workload | None:
    """What was measured; None for a layer that no list of the benchmarks has."""
    return _workloads(file.dtype, file.layout).get((row.layer, row.pass_, row.epilogue))


@cache
def _workloads(dtype: DType, layout: Layout) -> dict[tuple[str, str, str], Workload]:
    layers: tuple[Layer | ListedLayer, ...] = (*CPU_LAYERS, *listed_layers(list(shipped_networks())))
    found: dict[tuple[str, str, str], Workload] = {}
    for layer in layers:
        if isinstance(layer, ListedLayer) and layer.layer.block:
            continue
        for workload in layer.workloads(dtype=dtype, layout=layout):
            found.setdefault((str(layer), workload.pass_, workload.epilogue), workload)
    return found
