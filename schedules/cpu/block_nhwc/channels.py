"""What a block has of each channel: γ, β and statistics of a norm, and the numbers that pixels are multiplied with.

normalised      γ · (v − mean) / √(var + eps) + β            =  v · scale + shift
before_norm     the gradient of v from d, that of the result =  d · scale + v · slope + offset
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dwconv.problems.block import Norm
from dwconv.schedules.cpu.emit.vectors import NumberedVector, Vectors
from dwconv.schedules.emit import Expr, bind, store

SCALE, SHIFT, SLOPE, OFFSET = range(4)
TABLE_ROWS = 4


@dataclass(frozen=True, kw_only=True)
class NormTensors:
    """The tensors of a norm, each (C,), and ``table`` (``TABLE_ROWS``, whole vectors of channels)."""

    norm: Norm
    vectors: Vectors
    named: dict[str, Any]
    table: Any

    def load(self, name: str, vector: NumberedVector) -> Expr:
        return bind(name, self.named[name][self.vectors.span(vector.start)])

    def store(self, name: str, value: Expr, vector: NumberedVector) -> None:
        store(self.named[name], value, self.vectors.span(vector.start))

    def set(self, row: int, value: Expr, vector: NumberedVector) -> None:
        store(self.table, value, row, self.vectors.slot(vector.number))

    def get(self, row: int, vector: NumberedVector) -> Expr:
        return self.table[row, self.vectors.slot(vector.number)]

    def inverse_deviation(self, variance: Expr) -> Expr:
        every = self.vectors.everywhere
        root = tirx.sqrt(variance + every(tirx.FloatImm("float32", self.norm.eps)))
        return bind("inverse", every(tirx.FloatImm("float32", 1.0)) / root)

    def set_normalised(self, vector: NumberedVector, mean: Expr, variance: Expr) -> None:
        """Fills in scale and shift."""
        scale = bind("scale", self.load("gamma", vector) * self.inverse_deviation(variance))
        self.set(SCALE, scale, vector)
        self.set(SHIFT, self.load("beta", vector) - mean * scale, vector)

    def set_before_norm(self, vector: NumberedVector, total: Expr, dot: Expr, pixels: Expr) -> None:
        """Stores dγ and dβ, and fills in slope and offset. ``total``: Σd; ``dot``: Σ d · (v − mean); of so many
        ``pixels``."""
        mean, inverse = self.load("mean", vector), self.inverse_deviation(self.load("var", vector))
        self.store("dgamma", dot * inverse, vector)
        self.store("dbeta", total, vector)
        share = bind("share", self.get(SCALE, vector) / self.vectors.everywhere(pixels))
        slope = bind("slope", self.vectors.zero() - share * (dot * inverse) * inverse)
        self.set(SLOPE, slope, vector)
        self.set(OFFSET, self.vectors.zero() - share * total - slope * mean, vector)

    def normalised(self, value: Expr, vector: NumberedVector) -> Expr:
        return value * self.get(SCALE, vector) + self.get(SHIFT, vector)

    def before_norm(self, d: Expr, value: Expr, vector: NumberedVector) -> Expr:
        return d * self.get(SCALE, vector) + (value * self.get(SLOPE, vector) + self.get(OFFSET, vector))

    def centred(self, value: Expr, vector: NumberedVector) -> Expr:
        return value - self.load("mean", vector)
