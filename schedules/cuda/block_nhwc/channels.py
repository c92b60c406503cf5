"""What pixels are multiplied with in a norm: numbers of each channel, made of its parameters, its statistics and its
gradients, which earlier kernels have left where the results of the pass are.

normalised      γ · (v − mean) / √(var + eps) + β            =  v · scale + shift
before_norm     the gradient of v from d, that of the result =  d · scale + v · slope + offset
slope = −scale · dγ / √(var + eps) / N             offset = −scale · dβ / N − slope · mean
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from dwconv.problems.block import Norm
from dwconv.schedules.activations import Activations, Like
from dwconv.schedules.cuda.block_nhwc.cut import BlockCut
from dwconv.schedules.cuda.emit.words import Registers, argument, in_register
from dwconv.schedules.emit import Expr

SCALE, SHIFT, MEAN, SLOPE, OFFSET = "scale", "shift", "mean", "slope", "offset"
NORMALISED = (SCALE, SHIFT)
BEFORE_NORM = (SCALE, SLOPE, OFFSET)
_MADE_OF = {
    SCALE: ("gamma", "var"),
    SHIFT: ("gamma", "var", "beta", "mean"),
    MEAN: ("mean",),
    SLOPE: ("gamma", "var", "dgamma"),
    OFFSET: ("gamma", "var", "dgamma", "dbeta", "mean"),
}


@dataclass(frozen=True, kw_only=True)
class GpuNormTensors:
    """The tensors of the first or of the second norm, each (C,)."""

    norm: Norm
    number: int
    channels: int
    lanes: int
    """Of the vectors of channels in which threads load them."""
    named: dict[str, Any] = field(default_factory=dict)
    """By their names without the number."""

    @classmethod
    def of(cls, cut: BlockCut) -> dict[int, GpuNormTensors]:
        """Those that there are, by number."""
        norms, channels = (cut.block.norm1, cut.block.batch_norm2), cut.workload.channels
        return {
            number: cls(norm=norm, number=number, channels=channels, lanes=cut.vector_c)
            for number, norm in enumerate(norms, start=1)
            if norm
        }

    def take(self, *names: str) -> None:
        """Emits parameters of the kernel."""
        for name in names:
            self.named[name] = argument(f"{name}{self.number}", (self.channels,), "float32")

    def inverse_deviation(self, variance: Expr) -> Expr:
        return kept("inverse", inverse_root(variance + tirx.FloatImm("float32", self.norm.eps)))

    def factors(self, wanted: Sequence[str], channel: Expr, pixels: Expr) -> Factors:
        """Those ``wanted``, for the vector from ``channel`` on; ``pixels``: of a channel, in float32."""
        loaded = {}
        for name in dict.fromkeys(name for row in wanted for name in _MADE_OF[row]):
            loaded[name] = Registers(name, self.lanes)
            loaded[name].load(0, self.named[name], channel, lanes=self.lanes)
        found = Factors(rows=tuple(wanted), values=Registers("factor", len(wanted), self.lanes))
        for lane in range(self.lanes):
            for row, value in self._of_channel(wanted, {name: each[lane] for name, each in loaded.items()}, pixels):
                found.set(row, lane, value)
        return found

    def _of_channel(self, wanted: Sequence[str], given: dict[str, Expr], pixels: Expr) -> list[tuple[str, Expr]]:
        made: dict[str, Expr] = {MEAN: given.get("mean")}
        if SCALE in wanted:
            inverse = self.inverse_deviation(given["var"])
            made[SCALE] = scale = kept("scale", given["gamma"] * inverse)
            if SHIFT in wanted:
                made[SHIFT] = given["beta"] - given["mean"] * scale
            if SLOPE in wanted:
                share = kept("share", quotient(scale, pixels))
                made[SLOPE] = slope = kept("slope", tirx.FloatImm("float32", 0.0) - share * given["dgamma"] * inverse)
                made[OFFSET] = tirx.FloatImm("float32", 0.0) - share * given["dbeta"] - slope * given["mean"]
        return [(row, made[row]) for row in wanted]


@dataclass(frozen=True, kw_only=True)
class Factors:
    """Some rows of them, in registers, for each lane of a vector of channels."""

    rows: tuple[str, ...]
    values: Registers

    def set(self, row: str, lane: int, value: Expr) -> None:
        self.values[self.rows.index(row), lane] = value

    def get(self, row: str, lane: int) -> Expr:
        return self.values[self.rows.index(row), lane]

    def normalised(self, value: Expr, lane: int) -> Expr:
        return value * self.get(SCALE, lane) + self.get(SHIFT, lane)

    def before_norm(self, d: Expr, value: Expr, lane: int) -> Expr:
        return d * self.get(SCALE, lane) + (value * self.get(SLOPE, lane) + self.get(OFFSET, lane))

    def centred(self, value: Expr, lane: int) -> Expr:
        return value - self.get(MEAN, lane)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Factors of all channels of a block of threads, in shared memory from row ``first`` on: threads that need them
    from time to time keep no registers for them."""

    memory: Any
    first: int
    channels: int
    lanes: int
    rows: tuple[str, ...]

    def fill(self, factors: Factors, thread_c: Expr) -> None:
        for number, row in enumerate(self.rows):
            position = (factors.rows.index(row), 0)
            factors.values.save(position, self.memory, self._at(number, thread_c), lanes=self.lanes)

    def load(self, wanted: Sequence[str], thread_c: Expr) -> Factors:
        found = Factors(rows=tuple(wanted), values=Registers("factor", len(wanted), self.lanes))
        for number, row in enumerate(wanted):
            found.values.load((number, 0), self.memory, self._at(self.rows.index(row), thread_c), lanes=self.lanes)
        return found

    def _at(self, row: int, thread_c: Expr) -> Expr:
        return (self.first + row) * self.channels + thread_c * self.lanes


@dataclass(frozen=True, kw_only=True)
class PassTensors:
    """The tensors of a pass, each in one axis."""

    cut: BlockCut
    n: Expr
    x: Any
    w: Any
    norm1: GpuNormTensors | None
    norm2: GpuNormTensors | None
    partial: Any

    @property
    def pixels_of_x(self) -> Expr:
        height, width = self.cut.workload.input_size
        return self.n * (height * width)

    @property
    def pixels_of_y(self) -> Expr:
        height, width = self.cut.workload.output_size
        return self.n * (height * width)


# -- activations, as ``schedules.activations`` has them, with CUDA's own exp: nothing branches ---------------------


def quotient(a: Expr, b: Expr) -> Expr:
    """a / b to 2 units in the last place, for b that is neither beyond 2^126 nor below its inverse: the exact one takes
    ten times as long, and branches."""
    return tirx.call_pure_extern("float32", "__fdividef", a, b)


def inverse_root(value: Expr) -> Expr:
    return tirx.call_pure_extern("float32", "rsqrtf", value)


def kept(name: str, value: Expr) -> Expr:
    return in_register(name, value, dtype="float32")


def _exp_of_negative(x: Expr, like: Like) -> Expr:
    return tirx.call_pure_extern("float32", "expf", x)


_ON_CUDA = Activations(exp_of_negative=_exp_of_negative, quotient=quotient, named=kept, kept=kept)
activation = _ON_CUDA.activation
with_derivative = _ON_CUDA.with_derivative
