"""Formulas of activations, and of their derivatives, for scalars and vectors of float32; epilogues, what fprop makes of
its sums z.

    silu            y = z · σ(z)
    silu_gradient   dz = dy · σ(z) · (1 + z · (1 − σ(z)))            σ(z) = 1 / (1 + exp(−z))

σ comes from exp(−|z|), which cannot overflow, and so does 1 − σ without a difference: both are right to some units in
the last place for every z. exp and the quotient are the device's.

NaN propagates: comparisons that it fails keep z.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from dwconv.problems.block import Activation
from dwconv.problems.workload import Epilogue
from dwconv.schedules.emit import Expr, bind, store

_ERF_ABOVE = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
    -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_BELOW = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip
"""erf(x) = x · above(x²) / below(x²), within 1.5e-7. Source of the coefficients: Eigen, the generic erf of floats."""
_ERF_IS_ONE = 4.0
"""From here on, in float32."""
_SIGN_BIT, _EXPONENT_BIAS, _MANTISSA_BITS = 0x80000000, 127, 23


class Like:
    """Types and constants with as many lanes as a vector."""

    def __init__(self, vector: Expr) -> None:
        self._lanes = int(vector.ty.dtype.lanes)

    def of(self, dtype: str) -> str:
        return dtype if self._lanes == 1 else f"{dtype}x{self._lanes}"

    def float(self, value: float) -> Any:
        return self._everywhere(tirx.FloatImm("float32", value))

    def integer(self, dtype: str, value: int) -> Any:
        return self._everywhere(tirx.IntImm(dtype, value))

    def power_of_two(self, exponent: Expr) -> Any:
        biased = exponent + self.integer("int32", _EXPONENT_BIAS)
        return tirx.reinterpret(self.of("float32"), biased << self.integer("int32", _MANTISSA_BITS))

    def _everywhere(self, value: Any) -> Any:
        return value if self._lanes == 1 else tirx.Broadcast(value, self._lanes)


def _in_register(name: str, value: Expr) -> Expr:
    """Gives a value of float32 a name, and computes it once, in memory that LLVM makes a register. What is bound, and
    what that is made of, TVM would put into each expression that reads it, to simplify it: it would take seconds."""
    lanes = int(value.ty.dtype.lanes)
    register = IRBuilder.name(name, T.alloc_buffer((lanes,), "float32", scope="global"))
    at = tirx.IntImm("int32", 0) if lanes == 1 else tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), lanes)
    store(register, value, at)
    return register[at]


@dataclass(frozen=True, kw_only=True)
class Activations:
    """The formulas, on a device."""

    exp_of_negative: Callable[[Expr, Like], Expr]
    """exp(x) for x ≤ 0"""
    quotient: Callable[[Expr, Expr], Expr]
    """Of numbers of which neither is large or tiny."""
    named: Callable[[str, Expr], Expr] = bind
    """Gives a value a name, and computes it once."""
    kept: Callable[[str, Expr], Expr] = _in_register
    """Gives a name to a value that many others are made of, in a register that TVM does not see through."""

    def activated(self, epilogue: Epilogue, z: Expr, dy: Expr | None) -> Expr:
        """What is stored for a vector of sums ``z``; ``dy``: the gradient of what the forward pass stored."""
        if epilogue == "none":
            return z
        z = self.named("z", z)
        like = Like(z)
        sigmoid, rest = self._sigmoid(z, like)
        if epilogue == "silu":
            return z * sigmoid
        return dy * (sigmoid * (like.float(1.0) + z * rest))

    def activation(self, act: Activation, z: Expr) -> Expr:
        """act(z)"""
        if act == "identity":
            return z
        z = self.named("z", z)
        like = Like(z)
        if act == "relu":
            return _at_least(z, 0.0, like)
        if act == "relu6":
            return _at_most(self.named("a", _at_least(z, 0.0, like)), 6.0, like)
        if act == "hardswish":
            return z * _gate(z, like, self.named)
        if act == "silu":
            return z * self._sigmoid(z, like)[0]
        return z * self._normal(z, like)[0]

    def with_derivative(self, act: Activation, z: Expr) -> tuple[Expr, Expr]:
        """(act(z), act′(z)); at a kink PyTorch's."""
        z = self.named("z", z)
        like = Like(z)
        zero, one = like.float(0.0), like.float(1.0)
        if act == "identity":
            return z, one
        if act == "relu":
            return self.activation(act, z), tirx.Select(z > zero, one, zero)
        if act == "relu6":
            inside = tirx.And(z > zero, z < like.float(6.0))
            return self.activation(act, z), tirx.Select(inside, one, zero)
        if act == "hardswish":
            gate = self.named("gate", _gate(z, like, self.named))
            slope = z * like.float(1 / 3) + like.float(0.5)
            bounded = tirx.Select(z >= like.float(3.0), one, slope)
            return z * gate, tirx.Select(z <= like.float(-3.0), zero, bounded)
        if act == "silu":
            sigmoid, rest = self._sigmoid(z, like)
            return z * sigmoid, sigmoid * (one + z * rest)
        normal, density = self._normal(z, like)
        return z * normal, normal + z * density

    def _normal(self, z: Expr, like: Like) -> tuple[Expr, Expr]:
        """(Φ(z), φ(z)), the distribution and the density of normal numbers: Φ(z) = (1 + erf(z / √2)) / 2."""
        x = self.named("x", z * like.float(math.sqrt(0.5)))
        x = self.named("x", tirx.Select(x > like.float(_ERF_IS_ONE), like.float(_ERF_IS_ONE), x))
        x = self.kept("x", tirx.Select(x < like.float(-_ERF_IS_ONE), like.float(-_ERF_IS_ONE), x))
        square = self.kept("square", x * x)
        erf = self.named(
            "erf", self.quotient(x * polynomial(_ERF_ABOVE, square, like), polynomial(_ERF_BELOW, square, like))
        )
        density = self.exp_of_negative(z * z * like.float(-0.5), like) * like.float(1 / math.sqrt(2 * math.pi))
        return self.kept("normal", like.float(0.5) + like.float(0.5) * erf), self.kept("density", density)

    def _sigmoid(self, z: Expr, like: Like) -> tuple[Expr, Expr]:
        """(σ(z), 1 − σ(z))"""
        bits = tirx.reinterpret(like.of("uint32"), z) | like.integer("uint32", _SIGN_BIT)
        small = self.kept("small", self.exp_of_negative(tirx.reinterpret(like.of("float32"), bits), like))
        large = self.kept("large", self.quotient(like.float(1.0), like.float(1.0) + small))
        small = self.kept("small", small * large)
        is_negative = z < like.float(0.0)
        return (
            self.kept("sigmoid", tirx.Select(is_negative, small, large)),
            self.kept("rest", tirx.Select(is_negative, large, small)),
        )


def polynomial(coefficients: tuple[float, ...], x: Expr, like: Like) -> Expr:
    total = like.float(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + like.float(coefficient)
    return total


def _at_least(z: Expr, bound: float, like: Like) -> Expr:
    return tirx.Select(z < like.float(bound), like.float(bound), z)


def _at_most(z: Expr, bound: float, like: Like) -> Expr:
    return tirx.Select(z > like.float(bound), like.float(bound), z)


def _gate(z: Expr, like: Like, named: Callable[[str, Expr], Expr]) -> Expr:
    """(z + 3) / 6, between 0 and 1. The sum is exact where it is small."""
    gate = named("gate", z + like.float(3.0))
    return _at_most(named("gate", _at_least(gate, 0.0, like)), 6.0, like) * like.float(1 / 6)


# -- on the CPU, where the C library's exp would be called once for each lane -----------------------------------------

_POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
"""Of degree 7. Source of the coefficients: Cephes, expf."""
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
"""Their sum is ln 2; a small whole number times the first is exact."""
_LEAST = -104.0
"""exp of it, and of anything below, is 0 in float32."""


def _exp_of_negative(x: Expr, like: Like) -> Expr:
    """exp(x) for x ≤ 0: of x = n · ln 2 + r, a polynomial of r times 2ⁿ, which is multiplied in two halves since 2ⁿ may
    be subnormal."""
    x = _in_register("x", tirx.max(x, like.float(_LEAST)))
    n = _in_register(
        "n", T.call_llvm_pure_intrin(like.of("float32"), "llvm.nearbyint", x * like.float(1 / math.log(2)))
    )
    r = _in_register("r", x - n * like.float(_LN2_HIGH) - n * like.float(_LN2_LOW))
    total = _in_register("total", polynomial(_POLYNOMIAL, r, like) * (r * r) + r + like.float(1.0))
    whole = bind("whole", tirx.Cast(like.of("int32"), n))
    half = bind("half", whole >> like.integer("int32", 1))
    return total * like.power_of_two(half) * like.power_of_two(whole - half)


ON_CPU = Activations(exp_of_negative=_exp_of_negative, quotient=operator.truediv)
