"""What all passes of a block have: their tensors, and the pixels that they go through."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dwconv.problems.workload import IMAGES, Pass
from dwconv.schedules.cpu.block_nhwc.channels import TABLE_ROWS, NormTensors
from dwconv.schedules.cpu.block_nhwc.cut import Cut, RowBlocks
from dwconv.schedules.cpu.block_nhwc.pixels import Pixels
from dwconv.schedules.cpu.block_nhwc.sums import Parts
from dwconv.schedules.cpu.emit.channel_weights import PackedWeights
from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.cpu.emit.words import argument, seen_as, settled
from dwconv.schedules.emit import Expr, ceil_div, is_number
from dwconv.schedules.gather import Gather

Kernel = TypeVar("Kernel", bound="BlockKernel")


@dataclass(frozen=True, kw_only=True)
class BlockKernel:
    cut: Cut
    vectors: Vectors
    n: Expr
    tensors: dict[str, Any]
    """By the names of ``Block.inputs`` and ``Block.results``: images (n, pixels, C), w and dw (C, KH, KW), others
    (C,)."""
    norm1: NormTensors | None
    norm2: NormTensors | None
    weights: PackedWeights
    partial: Any
    """Sums of parts of all images, (parts, sums, whole vectors of channels); None where none are taken."""

    @classmethod
    def arguments(cls: type[Kernel], cut: Cut, n: Expr, *, gathers: Pass, sums: int) -> Kernel:
        """Emits the kernel's parameters. ``gathers``: the pass of the convolution whose order the weights have."""
        workload, block = cut.workload, cut.block
        channels, vectors = workload.channels, Vectors(workload.channels, cut.lanes)
        work, slots = Gather.of(workload.convolution(gathers)), vectors.count * vectors.lanes
        tensors = {}
        for name in (*workload.inputs, *workload.results):
            size = cut.x_size if name in ("x", "dx") else cut.y_size
            of_weights = (channels, *workload.kernel) if name in ("w", "dw") else (channels,)
            of_images = (n, *(size if cut.any_axes else [math.prod(size)]), channels)
            tensors[name] = argument(name, of_images if name in IMAGES else of_weights, workload.dtype_of(name))
        packed = argument("workspace", (vectors.count, 1, *workload.kernel, vectors.lanes))
        # Sizes of an argument are a symbol each, or a part of one.
        parts = (n, cut.results.blocks) if cut.any_axes else (n * cut.results.blocks,)
        partial = argument("workspace_1", (*parts, sums, slots)) if sums else None
        norms = {
            number: NormTensors(
                norm=norm,
                vectors=vectors,
                named={name[:-1]: tensor for name, tensor in tensors.items() if name.endswith(number)},
                table=argument(f"workspace_{1 + int(number)}", (TABLE_ROWS, slots)),
            )
            for number, norm in (("1", block.norm1), ("2", block.batch_norm2))
            if norm
        }
        if cut.any_axes:
            cut = replace(cut, any_results=replace(cut.results, blocks=settled("blocks", cut.results.blocks)))
            for name in filter(tensors.__contains__, IMAGES):
                size = cut.x_size if name in ("x", "dx") else cut.y_size
                tensors[name] = seen_as(tensors[name], n, math.prod(size), channels)
            partial = seen_as(partial, math.prod(parts), sums, slots) if sums else None
        return cls(
            cut=cut,
            vectors=vectors,
            n=n,
            tensors=tensors,
            norm1=norms.get("1"),
            norm2=norms.get("2"),
            weights=PackedWeights(work=work, vectors=vectors, w=tensors["w"], packed=packed),
            partial=partial,
        )

    @property
    def inputs(self) -> Pixels:
        """Those of x."""
        return self._pixels(*self.cut.x_size)

    @property
    def outputs(self) -> Pixels:
        """Those of y."""
        return self._pixels(*self.cut.y_size)

    def _pixels(self, rows: Expr, columns: Expr) -> Pixels:
        """In about as many blocks of rows as tasks of the convolution have."""
        whole = RowBlocks.of(rows, _settled("block_rows", ceil_div(rows, self.cut.results.blocks)))
        parts = Parts(
            images=self.n,
            blocks=_settled("blocks", whole.blocks),
            pixels=whole.block_rows * columns,
            image_pixels=rows * columns,
        )
        return Pixels(vectors=self.vectors, parts=parts)


def _settled(name: str, value: Expr) -> Expr:
    return value if is_number(value) else settled(name, value)
