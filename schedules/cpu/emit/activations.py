"""Activations of a vector of float32 at a time, and epilogues: the formulas of ``schedules.activations`` with an exp of
vectors, a polynomial of degree 7, since the C library's is called once for each lane. Source of its coefficients:
Cephes, expf.
"""

from __future__ import annotations

import math
import operator

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from dwconv.schedules.activations import Activations, Like, polynomial
from dwconv.schedules.emit import Expr, bind

_POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
"""Their sum is ln 2; a small whole number times the first is exact."""
_LEAST = -104.0
"""exp of it, and of anything below, is 0 in float32."""


def _exp_of_negative(x: Expr, like: Like) -> Expr:
    """exp(x) for x ≤ 0: of x = n · ln 2 + r, a polynomial of r times 2ⁿ, which is multiplied in two halves since 2ⁿ may
    be subnormal."""
    x = bind("x", tirx.max(x, like.float(_LEAST)))
    n = bind("n", T.call_llvm_pure_intrin(like.of("float32"), "llvm.nearbyint", x * like.float(1 / math.log(2))))
    r = bind("r", x - n * like.float(_LN2_HIGH) - n * like.float(_LN2_LOW))
    total = bind("total", polynomial(_POLYNOMIAL, r, like) * (r * r) + r + like.float(1.0))
    whole = bind("whole", tirx.Cast(like.of("int32"), n))
    half = bind("half", whole >> like.integer("int32", 1))
    return total * like.power_of_two(half) * like.power_of_two(whole - half)


_ON_CPU = Activations(exp_of_negative=_exp_of_negative, quotient=operator.truediv)
activated = _ON_CPU.activated
activation = _ON_CPU.activation
with_derivative = _ON_CPU.with_derivative
