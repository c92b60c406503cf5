"""Activations of a scalar, as ``schedules.activations`` has them, with CUDA's own exp. Nothing in them branches: the
threads of a warp stay together, whatever the data."""

from __future__ import annotations

from tvm import tirx

from dwconv.schedules.activations import Activations, Like
from dwconv.schedules.cuda.emit.words import in_register
from dwconv.schedules.emit import Expr


def quotient(a: Expr, b: Expr) -> Expr:
    """a / b to 2 units in the last place, for b that is neither beyond 2^126 nor below its inverse: the exact one takes
    ten times as long, and branches."""
    return tirx.call_pure_extern("float32", "__fdividef", a, b)


def inverse_root(value: Expr) -> Expr:
    """1 / √value to 2 units in the last place."""
    return tirx.call_pure_extern("float32", "rsqrtf", value)


def kept(name: str, value: Expr) -> Expr:
    """A number in float32 that is computed once."""
    return in_register(name, value, dtype="float32")


def _exp_of_negative(x: Expr, like: Like) -> Expr:
    return tirx.call_pure_extern("float32", "expf", x)


_ON_CUDA = Activations(exp_of_negative=_exp_of_negative, quotient=quotient, named=kept)
activation = _ON_CUDA.activation
with_derivative = _ON_CUDA.with_derivative
