"""Block: the norms and activations that are fused with a depthwise convolution.

    z = act2(norm2(y)),  y = conv(act1(norm1(x)))

A norm is BatchNorm: of every channel it subtracts the mean and divides by the deviation; in training those of the
batch, in evaluation its running ones. Or a LayerNorm alone follows the convolution, which does so for every pixel over
its channels: z = norm2(y).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from dwconv.errors import InvalidWorkload

Activation = Literal["identity", "relu", "relu6", "hardswish", "silu", "gelu"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)


@dataclass(frozen=True, kw_only=True)
class _AnyNorm:
    eps: float = 1e-5
    """What is added to the variance."""

    def __post_init__(self) -> None:
        if type(self.eps) is not float or not self.eps > 0:
            raise InvalidWorkload(f"eps={self.eps!r} of a norm must be a number above 0")


class Norm(_AnyNorm):
    """A BatchNorm, with γ and β."""


class LayerNorm(_AnyNorm):
    """A LayerNorm over the channels of each pixel, with γ and β."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """The norms and activations before and after a convolution; a norm that is None is missing. Raises InvalidWorkload,
    naming the value."""

    norm1: Norm | None
    act1: Activation
    norm2: Norm | LayerNorm | None
    act2: Activation

    def __post_init__(self) -> None:
        for name in ("act1", "act2"):
            if (value := getattr(self, name)) not in ACTIVATIONS:
                raise InvalidWorkload(f"{name}={value} is unknown; use one of {', '.join(ACTIVATIONS)}")
        if self.norm2 is None and self.act2 != "identity":
            raise InvalidWorkload(f"act2={self.act2} needs a norm before it; leave it out")
        if self.layer_norm and (self.norm1, self.act1, self.act2) != (None, "identity", "identity"):
            raise InvalidWorkload(f"block={self}: beside a LayerNorm there is nothing else; leave the others out")

    @property
    def layer_norm(self) -> LayerNorm | None:
        """The second norm, if it is one."""
        return self.norm2 if isinstance(self.norm2, LayerNorm) else None

    @property
    def batch_norm2(self) -> Norm | None:
        return self.norm2 if isinstance(self.norm2, Norm) else None

    def __str__(self) -> str:
        """``bn+relu6,bn+relu6``: what is before the convolution, and what is after it; ``bn@0.001`` where eps is not
        the usual one, ``ln`` for a LayerNorm, ``none`` for nothing. ``Block.parse`` reads it back."""
        return ",".join(_named(norm, act) for norm, act in ((self.norm1, self.act1), (self.norm2, self.act2)))

    @classmethod
    def parse(cls, text: str) -> Block:
        """The block of that name. Raises InvalidWorkload."""
        parts = [_parsed(part, text) for part in text.split(",")]
        if len(parts) != 2:
            raise InvalidWorkload(f"block={text} is not what comes before the convolution and after it; {_EXAMPLE}")
        (norm1, act1), (norm2, act2) = parts
        if isinstance(norm1, LayerNorm):
            raise InvalidWorkload(f"block={text}: a LayerNorm comes after the convolution; {_EXAMPLE}")
        return cls(norm1=norm1, act1=act1, norm2=norm2, act2=act2)

    def inputs(self, pass_: str, *, bias: bool = False) -> tuple[str, ...]:
        """The tensors that a pass reads. ``forward``: ``x``, ``w``, ``bias`` if there is one, and γ and β of its norms;
        ``inference``: their means and variances as well; ``backward``: ``dz``, ``x``, ``y``, ``w``, and of each norm γ,
        β, and the mean and the variance that the forward pass gave. Without a second norm z is y. A LayerNorm has no
        such statistics: the backward pass computes those of a pixel again, and reads γ alone."""
        learnt = ("gamma", "beta") if pass_ == "forward" or self.layer_norm else ("gamma", "beta", "mean", "var")
        if pass_ != "backward":
            return ("x", "w", *(("bias",) if bias else ()), *self._of_norms(*learnt))
        if self.layer_norm:
            return ("dz", "x", "y", "w", "gamma2")
        images = ("dz", "x", "y") if self.norm2 else ("dy", "x")
        return (*images, "w", *self._of_norms(*learnt))

    def results(self, pass_: str, *, bias: bool = False) -> tuple[str, ...]:
        """Those that it writes: ``z``, ``y``, and of each norm mean and variance, but of a LayerNorm; ``z`` alone;
        ``dx``, ``dw``, ``dbias`` if there is a bias, and of each norm dγ and dβ."""
        if pass_ == "inference":
            return ("z",) if self.norm2 else ("y",)
        if pass_ == "forward":
            statistics = () if self.layer_norm else self._of_norms("mean", "var")
            return (*(("z", "y") if self.norm2 else ("y",)), *statistics)
        return ("dx", "dw", *(("dbias",) if bias else ()), *self._of_norms("dgamma", "dbeta"))

    def _of_norms(self, *names: str) -> tuple[str, ...]:
        norms = (("1", self.norm1), ("2", self.norm2))
        return tuple(f"{name}{number}" for number, norm in norms if norm for name in names)


NOTHING = Block(norm1=None, act1="identity", norm2=None, act2="identity")
"""Around a convolution that is alone. Its backward pass is both gradients, dx and dw, in one kernel."""

_EXAMPLE = "as in bn+relu6,bn+relu6, bn@0.001+hardswish,bn@0.001, none,bn+relu or none,ln@1e-06"
_NORMS: dict[str, type[Norm | LayerNorm]] = {"bn": Norm, "ln": LayerNorm}


def _named(norm: Norm | LayerNorm | None, act: Activation) -> str:
    words = []
    if norm is not None:
        kind = next(name for name, of in _NORMS.items() if type(norm) is of)
        words.append(kind if norm == type(norm)() else f"{kind}@{norm.eps}")
    return "+".join([*words, *([act] if act != "identity" else [])]) or "none"


def _parsed(part: str, whole: str) -> tuple[Norm | LayerNorm | None, Activation]:
    found = re.fullmatch(r"(?:(?P<norm>(?P<kind>bn|ln)(?:@(?P<eps>[^+]*))?)(?:\+|$))?(?P<act>.*)", part, re.DOTALL)
    norm, kind, eps, act = found.group("norm", "kind", "eps", "act")  # type: ignore[union-attr]
    act = "identity" if act in ("", "none") else act
    if act not in ACTIVATIONS:
        raise InvalidWorkload(
            f"block={whole}: {act} is not an activation; use one of {', '.join(ACTIVATIONS)}, {_EXAMPLE}"
        )
    if norm is None:
        return None, act
    try:
        return (_NORMS[kind](eps=float(eps)) if eps else _NORMS[kind]()), act
    except ValueError:
        raise InvalidWorkload(f"block={whole}: {norm} is not a norm with its eps after @; {_EXAMPLE}") from None
