"""Block: what stands around a depthwise convolution as one with it.

    z = act2(norm2(y)),  y = conv(act1(norm1(x)))

A norm is BatchNorm: of every channel it subtracts the mean and divides by the deviation; in training those over the
batch, in evaluation those that it has learnt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from dwconv.errors import InvalidWorkload

Activation = Literal["identity", "relu", "relu6", "hardswish", "silu", "gelu"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)


@dataclass(frozen=True, kw_only=True)
class Norm:
    """A BatchNorm, with γ and β."""

    eps: float = 1e-5
    """What is added to the variance."""

    def __post_init__(self) -> None:
        if type(self.eps) is not float or not self.eps > 0:
            raise InvalidWorkload(f"eps={self.eps!r} of a norm must be a number above 0")


@dataclass(frozen=True, kw_only=True)
class Block:
    """The norms and activations before and after a convolution; a norm that is None is missing. Raises InvalidWorkload,
    naming the value."""

    norm1: Norm | None
    act1: Activation
    norm2: Norm | None
    act2: Activation

    def __post_init__(self) -> None:
        for name in ("act1", "act2"):
            if (value := getattr(self, name)) not in ACTIVATIONS:
                raise InvalidWorkload(f"{name}={value} is unknown; use one of {', '.join(ACTIVATIONS)}")
        if self.norm2 is None and self.act2 != "identity":
            raise InvalidWorkload(f"act2={self.act2} without a norm before it is no block; leave it out")

    def __str__(self) -> str:
        """``bn+relu6,bn+relu6``: what is before the convolution, and what is after it; ``bn@0.001`` where eps is not
        the usual one, ``none`` for nothing. ``Block.parse`` reads it back."""
        return ",".join(_named(norm, act) for norm, act in ((self.norm1, self.act1), (self.norm2, self.act2)))

    @classmethod
    def parse(cls, text: str) -> Block:
        """The block of that name. Raises InvalidWorkload."""
        parts = [_parsed(part, text) for part in text.split(",")]
        if len(parts) != 2:
            raise InvalidWorkload(f"block={text} is not what comes before the convolution and after it; {_EXAMPLE}")
        (norm1, act1), (norm2, act2) = parts
        return cls(norm1=norm1, act1=act1, norm2=norm2, act2=act2)

    def inputs(self, pass_: str) -> tuple[str, ...]:
        """The tensors that a pass reads. ``forward``: ``x``, ``w``, and γ and β of its norms; ``inference``: their
        means and variances as well; ``backward``: ``dz``, ``x``, ``y``, ``w``, and of each norm γ, β, and the mean and
        the variance that the forward pass gave. Without a second norm z is y."""
        if pass_ == "forward":
            return ("x", "w", *self._of_norms("gamma", "beta"))
        if pass_ == "inference":
            return ("x", "w", *self._of_norms("gamma", "beta", "mean", "var"))
        images = ("dz", "x", "y") if self.norm2 else ("dy", "x")
        return (*images, "w", *self._of_norms("gamma", "beta", "mean", "var"))

    def results(self, pass_: str) -> tuple[str, ...]:
        """Those that it writes: ``z``, ``y``, and of each norm mean and variance; ``z`` alone; ``dx``, ``dw``, and of
        each norm dγ and dβ."""
        if pass_ == "inference":
            return ("z",) if self.norm2 else ("y",)
        if pass_ == "forward":
            return (*(("z", "y") if self.norm2 else ("y",)), *self._of_norms("mean", "var"))
        return ("dx", "dw", *self._of_norms("dgamma", "dbeta"))

    def _of_norms(self, *names: str) -> tuple[str, ...]:
        """``gamma1``, … of the first norm, ``gamma2``, … of the second, where there are such."""
        norms = (("1", self.norm1), ("2", self.norm2))
        return tuple(f"{name}{number}" for number, norm in norms if norm for name in names)


_EXAMPLE = "as in bn+relu6,bn+relu6, bn@0.001+hardswish,bn@0.001 or none,bn+relu"
_USUAL = Norm()


def _named(norm: Norm | None, act: Activation) -> str:
    words = [] if norm is None else ["bn" if norm == _USUAL else f"bn@{norm.eps}"]
    return "+".join([*words, *([act] if act != "identity" else [])]) or "none"


def _parsed(part: str, whole: str) -> tuple[Norm | None, Activation]:
    norm, act = re.fullmatch(r"(?:(bn(?:@[^+]*)?)(?:\+|$))?(.*)", part, re.DOTALL).groups()  # type: ignore[union-attr]
    act = "identity" if act in ("", "none") else act
    if act not in ACTIVATIONS:
        raise InvalidWorkload(f"block={whole}: {act} is no activation; use one of {', '.join(ACTIVATIONS)}, {_EXAMPLE}")
    try:
        return None if norm is None else Norm(eps=float(norm[3:] or _USUAL.eps)), act
    except ValueError:
        raise InvalidWorkload(f"block={whole}: {norm} is no norm with the eps after @; {_EXAMPLE}") from None
