"""fprop and dgrad as one thing: every result is a sum of what its taps meet in the source. No TVM here.

result[o, c] = bias[c] + Σ over m, k of source[meets(o, k), c // fan_out · fan_in + m] · w[c · fan_in + m, k]

With an epilogue, what is made of that sum is stored in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dwconv.problems.workload import ITEMSIZE, DType, Epilogue, Pass, Workload
from dwconv.schedules.taps import Axes, Axis

GATHERS: tuple[Pass, ...] = ("fprop", "dgrad")
"""The passes that are such a sum."""


@dataclass(frozen=True, kw_only=True)
class PassOfAxes:
    """What is known of a pass of the convolution, whichever it is."""

    axes: Axes
    channels: int
    """Of the result; of a weight gradient those of dy, one for each kernel."""
    chosen_channels: int = 0
    """Those that the configuration was chosen for, if ``channels`` is a symbol; else 0."""
    dtype: DType = "float32"
    bias: bool = False
    """Whether one is added to every sum; of a weight gradient, whether its own is computed too."""
    x_pitch: int = 0
    """Channels of the tensor that holds x, of which x's are the first; 0: as many as x has."""

    @property
    def depths(self) -> Axis:
        return self.axes.depths

    @property
    def rows(self) -> Axis:
        return self.axes.rows

    @property
    def columns(self) -> Axis:
        return self.axes.columns

    @property
    def itemsize(self) -> int:
        """Bytes of an element of an image."""
        return ITEMSIZE[self.dtype]


@dataclass(frozen=True, kw_only=True)
class Gather(PassOfAxes):
    """A pass as a sum over taps. Result channel c sums source channels c // fan_out · fan_in + m, m < fan_in."""

    source: str
    result: str
    fan_in: int = 1
    fan_out: int = 1
    epilogue: Epilogue = "none"

    @classmethod
    def of(cls, workload: Workload) -> Gather:
        """The sum of an fprop or a dgrad.

        y[o, c] = Σ x[o · stride + k · dilation − padding, c // multiplier] · w[c, k]
        dx[i, c] = Σ dy[(i + padding − k · dilation) / stride, c · multiplier + m] · w[c · multiplier + m, k]"""
        return _gather(workload)

    @property
    def result_planes(self) -> int:
        """Planes of an image of the result: one for each channel, in 3-D one for each of its depths."""
        return self.channels * self.depths.outputs

    @property
    def sums_one_plane(self) -> bool:
        """Whether every plane of the result is made of exactly one plane of the source, as in 2-D."""
        return self.fan_in == 1 and self.depths.one_to_one

    @property
    def planes(self) -> float:
        """Planes of the source that a plane of the result sums, the mean of all."""
        return self.fan_in * self.depths.live_pairs / self.depths.outputs

    @property
    def reads_dy(self) -> bool:
        """Whether the epilogue takes, besides the sum, an element of dy, with the strides of the result."""
        return self.epilogue == "silu_gradient"

    @property
    def source_channels(self) -> int:
        return groups_of(self.channels, self.fan_out) * self.fan_in

    @property
    def source_pitch(self) -> int:
        """Channels of the tensor that holds the source, of which the source's are the first."""
        return self.x_pitch or self.source_channels

    @property
    def multiplier(self) -> int:
        return self.fan_in * self.fan_out

    @property
    def weights(self) -> int:
        """Kernels: one for every source channel that a result channel sums."""
        return self.channels * self.fan_in


def groups_of(channels: int, size: int) -> int:
    """Groups of so many of the channels, which are whole groups. Of a symbol it is rounded up, as sizes of arguments
    are."""
    return channels if size == 1 else (channels + size - 1) // size


@lru_cache(maxsize=16)
def _gather(workload: Workload) -> Gather:
    """Every configuration of a search needs it."""
    if workload.pass_ == "dgrad":
        axes, channels = Axes.of_input_gradient(workload), workload.channels
        dtype, fan_in = workload.dtype, workload.multiplier
        return Gather(source="dy", result="dx", axes=axes, channels=channels, dtype=dtype, fan_in=fan_in)
    return Gather(
        source="x", result=workload.results[0], axes=Axes.of_convolution(workload), channels=workload.out_channels,
        dtype=workload.dtype, fan_out=workload.multiplier, bias=workload.bias, epilogue=workload.epilogue,
        x_pitch=workload.x_pitch,
    )  # fmt: skip
