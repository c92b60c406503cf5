"""Epilogues: what fprop makes of its sums z, a vector of float32 at a time, before they are stored.

    silu            y = z · σ(z)
    silu_gradient   dz = dy · σ(z) · (1 + z · (1 − σ(z)))            σ(z) = 1 / (1 + exp(−z))

σ comes from exp(−|z|), which cannot overflow, and so does 1 − σ without a difference: both are right to some units in
the last place for every z. exp is a polynomial of degree 7, since the C library's is called once for each lane.
Source of its coefficients: Cephes, expf.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dwconv.problems.workload import Epilogue
from dwconv.schedules.emit import Expr, bind

_POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
"""Their sum is ln 2; a small whole number times the first is exact."""
_LEAST = -104.0
"""exp of it, and of anything below, is 0 in float32."""
_SIGN_BIT, _EXPONENT_BIAS, _MANTISSA_BITS = 0x80000000, 127, 23


def activated(epilogue: Epilogue, z: Expr, dy: Expr | None) -> Expr:
    """What is stored for a vector of sums ``z``; ``dy``: the gradient of what the forward pass stored."""
    if epilogue == "none":
        return z
    z = bind("z", z)
    like = _Like(z)
    sigmoid, rest = _sigmoid(z, like)
    if epilogue == "silu":
        return z * sigmoid
    return dy * (sigmoid * (like.float(1.0) + z * rest))


def _sigmoid(z: Expr, like: _Like) -> tuple[Expr, Expr]:
    """(σ(z), 1 − σ(z))"""
    bits = tirx.reinterpret(like.of("uint32"), z) | like.integer("uint32", _SIGN_BIT)
    small = bind("small", _exp_of_negative(tirx.reinterpret(like.of("float32"), bits), like))
    large = bind("large", like.float(1.0) / (like.float(1.0) + small))
    small = bind("small", small * large)
    is_negative = z < like.float(0.0)
    return (
        bind("sigmoid", tirx.Select(is_negative, small, large)),
        bind("rest", tirx.Select(is_negative, large, small)),
    )


def _exp_of_negative(x: Expr, like: _Like) -> Expr:
    """exp(x) for x ≤ 0: of x = n · ln 2 + r, a polynomial of r times 2ⁿ, which is multiplied in two halves since 2ⁿ may
    be subnormal."""
    x = bind("x", tirx.max(x, like.float(_LEAST)))
    n = bind("n", T.call_llvm_pure_intrin(like.of("float32"), "llvm.nearbyint", x * like.float(1 / math.log(2))))
    r = bind("r", x - n * like.float(_LN2_HIGH) - n * like.float(_LN2_LOW))
    total = like.float(_POLYNOMIAL[0])
    for coefficient in _POLYNOMIAL[1:]:
        total = total * r + like.float(coefficient)
    total = bind("total", total * (r * r) + r + like.float(1.0))
    whole = bind("whole", tirx.Cast(like.of("int32"), n))
    half = bind("half", whole >> like.integer("int32", 1))
    return total * like.power_of_two(half) * like.power_of_two(whole - half)


class _Like:
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
