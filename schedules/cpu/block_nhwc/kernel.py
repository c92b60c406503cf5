"""What all passes of a block have: their tensors, and the pixels that they go through."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

from dwconv.problems.workload import IMAGES, Pass
from dwconv.schedules.cpu.block_nhwc.channels import TABLE_ROWS, NormTensors
from dwconv.schedules.cpu.block_nhwc.cut import Cut
from dwconv.schedules.cpu.block_nhwc.pixels import Pixels
from dwconv.schedules.cpu.emit.channel_weights import PackedWeights
from dwconv.schedules.cpu.emit.vectors import Vectors
from dwconv.schedules.cpu.emit.words import argument
from dwconv.schedules.emit import Expr
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
            _, _, *size = workload.shape_of(name) if name in IMAGES else (0, 0)
            of_weights = (channels, *workload.kernel) if name in ("w", "dw") else (channels,)
            shape = (n, math.prod(size), channels) if name in IMAGES else of_weights
            tensors[name] = argument(name, shape, workload.dtype_of(name))
        packed = argument("workspace", (vectors.count, 1, *workload.kernel, vectors.lanes))
        partial = argument("workspace_1", (n * cut.results.blocks, sums, slots)) if sums else None
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
        return self._pixels(*self.cut.workload.input_size)

    @property
    def outputs(self) -> Pixels:
        """Those of y."""
        return self._pixels(*self.cut.workload.output_size)

    def _pixels(self, rows: int, columns: int) -> Pixels:
        return Pixels(cut=self.cut, vectors=self.vectors, n=self.n, rows=rows, columns=columns)
