"""FLOPs of the ops, for ``torch.utils.flop_counter``: as many as it counts for PyTorch's own convolution, so that a
converted model has those of the plain one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.flop_counter import conv_backward_flop, conv_flop, register_flop_formula

Ints = Sequence[int]


def register(ops: Any) -> None:
    """``ops``: the namespace with the ops of ``torch_ops``, whose arguments the formulas take as shapes."""
    for op, formula in (
        (ops.fprop, _fprop),
        (ops.dgrad, _dgrad),
        (ops.wgrad, _wgrad),
        (ops.wgrad_bias, _wgrad_bias),
        (ops.backward, _both),
    ):
        register_flop_formula(op)(formula)


def _fprop(x: Ints, w: Ints, bias: Ints | None, *geometry: Any, out_shape: Ints, **_: Any) -> int:
    return conv_flop(x, w, bias, *geometry[:3], False, out_val=out_shape)


def _dgrad(dy: Ints, w: Ints, input_shape: Ints, *geometry: Any, **_: Any) -> int:
    return _backward(dy, input_shape, w, mask=(True, False, False))


def _wgrad(x: Ints, dy: Ints, kernel_size: Ints, *geometry: Any, **_: Any) -> int:
    return _backward(dy, x, (dy[1], 1, *kernel_size), mask=(False, True, False))


def _wgrad_bias(x: Ints, dy: Ints, kernel_size: Ints, *geometry: Any, **_: Any) -> int:
    return _backward(dy, x, (dy[1], 1, *kernel_size), mask=(False, True, True))


def _both(x: Ints, dy: Ints, w: Ints, *geometry: Any, **_: Any) -> int:
    return _backward(dy, x, w, mask=(True, True, False))


def _backward(dy: Ints, x: Ints, w: Ints, *, mask: tuple[bool, bool, bool]) -> int:
    """PyTorch's formula, from shapes alone."""
    unused = (None,) * 4  # bias, stride, padding, dilation
    results = (list(x), list(w), None)
    formula: Any = conv_backward_flop  # it takes the results by name
    return formula(list(dy), list(x), list(w), *unused, False, None, x[1], mask, out_val=results)
