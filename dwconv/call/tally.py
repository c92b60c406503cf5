"""Tally: how often a plan was called, and with which weight: each layer has its own.

It also counts the gradients that each forward call requested: in a training step, the backward passes that follow. C++
counts its own calls in the same way. Ops that run for a compiled graph are counted by their pass alone: their weight
may be a copy.
"""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dwconv.problems.workload import Pass

_FORWARD: tuple[Pass, ...] = ("fprop", "forward", "inference")


@dataclass(frozen=True, kw_only=True)
class WeightCalls:
    """Calls with one weight."""

    weight: Tensor
    passes: Counter[Pass]


class _OfWeight:
    """Counted in every call that goes through Python, so only named numbers."""

    __slots__ = ("calls", "for_w", "for_x", "is_transposed", "weight")

    def __init__(self, weight: Tensor, *, is_transposed: bool) -> None:
        self.weight, self.is_transposed = weakref.ref(weight), is_transposed
        self.calls = self.for_x = self.for_w = 0


class Tally:
    """Grows with every call."""

    def __init__(self) -> None:
        self.taught: list[Any] = []
        """The plan's calls in C++, which count as well."""
        self.block: Any | None = None
        """The plan's block in C++, which counts as well."""
        self.taken: list[tuple[tuple[Pass, ...], Any]] = []
        """Ops that C++ runs, with the passes of each: they count how often."""
        self.ops: Counter[Pass] = Counter()
        """Ops that Python ran, behind PyTorch's dispatcher or as a block, by pass."""
        self._of_weights: dict[tuple[int, bool], _OfWeight] = {}

    def count(self, weight: Tensor, *, for_x: bool, for_w: bool, is_transposed: bool = False) -> None:
        """A forward call, and whether it needs the gradient of the input, and of the weight. ``is_transposed``: the
        forward pass of a transposed convolution, which is a dgrad."""
        found = self._of_weights.get((id(weight), is_transposed))
        if found is None or found.weight() is not weight:
            found = self._new(weight, is_transposed=is_transposed)
        found.calls += 1
        found.for_x += for_x
        found.for_w += for_w

    def calls_in_cpp(self, weight: int) -> int:
        """The calls that C++ took, with the weight of that ``id``."""
        return sum(each[1] for call in self.taught for each in call.counted() if id(each[0]) == weight)

    def counted(self) -> list[WeightCalls]:
        """The calls with each weight that is still there."""
        here = [
            (each.weight(), *((each.for_x, each.calls) if each.is_transposed else (each.calls, each.for_x)), each.for_w)
            for each in self._of_weights.values()
        ]
        taken = [each for call in self.taught for each in call.counted()]
        return [
            WeightCalls(weight=weight, passes=Counter[Pass]({"fprop": fprop, "dgrad": dgrad, "wgrad": wgrad}))
            for weight, fprop, dgrad, wgrad in (*here, *taken)
            if weight is not None
        ]

    def roads(self) -> tuple[int, int]:
        """Forward calls in C++, and through Python."""
        in_cpp = sum(each[1] for call in self.taught for each in call.counted())
        in_cpp += sum(call.calls for passes, call in self.taken if passes[0] in _FORWARD)
        in_cpp += 0 if self.block is None else self.block.forwards
        in_python = sum(each.calls for each in self._of_weights.values()) + sum(self.ops[pass_] for pass_ in _FORWARD)
        return in_cpp, in_python

    def counted_ops(self) -> Counter[Pass]:
        """``ops``, and those that C++ ran, with the passes of the block."""
        counted = Counter[Pass](self.ops)
        for passes, call in self.taken:
            counted.update(dict.fromkeys(passes, call.calls))
        if self.block is not None:
            forwards: Pass = "forward" if self.block.trains else "inference"
            counted.update({forwards: self.block.forwards, "backward": self.block.backwards})
        return counted

    def _new(self, weight: Tensor, *, is_transposed: bool) -> _OfWeight:
        """Weights that are gone make room: some layers make theirs anew in every call."""
        self._of_weights = {key: each for key, each in self._of_weights.items() if each.weight() is not None}
        found = self._of_weights[id(weight), is_transposed] = _OfWeight(weight, is_transposed=is_transposed)
        return found
