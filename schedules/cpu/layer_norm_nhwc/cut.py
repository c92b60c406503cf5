"""How a configuration cuts a convolution with its LayerNorm: by the cuts of the families whose tiles it takes. No TVM
here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dwconv.problems.block import LayerNorm
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.cpu.fprop_dgrad_nhwc.cut import GatherNhwcCut
from dwconv.schedules.cpu.wgrad_nhwc.cut import WeightCut
from dwconv.schedules.space import Config, Value
from dwconv.schedules.taps import Axes


@dataclass(frozen=True)
class LayerNormCut:
    """Forward, a task is a block of rows of y. Backward, it is a block of rows of dx, with about as many of the rows of
    dy, which no other task counts; it goes down both in strips."""

    workload: Workload
    config: Config
    target: CpuTarget
    any_axes: tuple[Axes, Axes] | None = None
    """Of a kernel of any size those of the gather and of the weight gradient: sizes are expressions."""

    @property
    def norm(self) -> LayerNorm:
        assert self.workload.block is not None and self.workload.block.layer_norm is not None
        return self.workload.block.layer_norm

    @property
    def gather(self) -> GatherNhwcCut:
        """Of fprop or, with strips for its blocks, of dgrad. Every block has all channels."""
        cut = GatherNhwcCut.of(self.gathered, gather_config(self.workload, self.config), self.target)
        return replace(cut, work=replace(cut.work, axes=self.any_axes[0])) if self.any_axes else cut

    @property
    def gathered(self) -> Workload:
        """The pass of the convolution whose tiles these are."""
        return self.workload.convolution("fprop" if self.workload.pass_ == "forward" else "dgrad")

    @property
    def weights(self) -> WeightCut:
        """Of wgrad."""
        config = weight_config(self.workload, self.config)
        cut = WeightCut.of(self.workload.convolution("wgrad"), config, self.target)
        return replace(cut, work=replace(cut.work, axes=self.any_axes[1])) if self.any_axes else cut

    @property
    def block_strips(self) -> int:
        """Strips of a task."""
        return -(-int(self.config.block_h) // self.gather.rows.block_rows)

    @property
    def blocks(self) -> Any:
        """Tasks of an image, in the backward pass."""
        rows = self.gather.rows
        each = rows.block_rows * self.block_strips
        return (rows.rows + (each - 1)) // each


def gather_config(workload: Workload, config: Config) -> Config:
    """That of the convolution's fprop or dgrad."""
    knobs: dict[str, Value] = {name: config.to_dict()[name] for name in ("tile_h", "tile_w", "vectors_c", "order")}
    rows = config.block_h if workload.pass_ == "forward" else config.strip_h
    return Config.of("", block_h=rows, block_c=workload.channels, unroll=config.unroll, **knobs)


def weight_config(workload: Workload, config: Config) -> Config:
    """That of the convolution's wgrad, whose tasks are images and whose blocks are strips."""
    return Config.of(
        "",
        parallel="images",
        tasks=workload.batch,
        block_h=min(int(config.strip_h), workload.output_size[0]),
        group_kh=config.group_kh,
        tile_h=1,
        tile_w=config.dy_w,
        vectors_c=1,
        order=config.dy_order,
        unroll="none" if config.unroll == "none" else "kw",
    )
