"""How the weight gradient of small NCHW maps is cut over blocks and threads: plain integers, no TVM here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dwconv.schedules.cuda.gpu.image_planes import ImagePlanes
from dwconv.schedules.taps import HEIGHT, WIDTH, Axis


@dataclass(frozen=True, kw_only=True)
class Cut(ImagePlanes):
    """A configuration in numbers. dy has the tiles, and meets x."""

    @cached_property
    def rows(self) -> Axis:
        return Axis.of_convolution(self.workload, HEIGHT)

    @cached_property
    def columns(self) -> Axis:
        return Axis.of_convolution(self.workload, WIDTH)
