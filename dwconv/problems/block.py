"""Block: the norms and activations that are fused with a depthwise convolution.

    z = act2(norm2(y)),  y = conv(act1(norm1(x)))

A norm is BatchNorm: of every channel it subtracts the mean and divides by the deviation; in training those of the
batch, in evaluation its running ones. A frozen norm has its running ones in training, too: a scale and a shift. An
InstanceNorm, which is GroupNorm with one channel a group, has those of every image. Or a LayerNorm alone follows the
convolution, which does so for every pixel over its channels: z = norm2(y).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from dwconv.errors import InvalidWorkload

Activation = Literal["identity", "relu", "relu6", "hardswish", "silu", "gelu"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
Statistics = Literal["batch", "running", "image", "pixel"]
"""Of what a norm has its mean and variance in training."""


@dataclass(frozen=True, kw_only=True)
class _AnyNorm:
    statistics: ClassVar[Statistics] = "batch"
    eps: float = 1e-5
    """What is added to the variance."""

    def __post_init__(self) -> None:
        if type(self.eps) is not float or not self.eps > 0:
            raise InvalidWorkload(f"eps={self.eps!r} of a norm must be a number above 0")


class Norm(_AnyNorm):
    """A BatchNorm, with γ and β."""

    @property
    def is_frozen(self) -> bool:
        """Whether it keeps its running statistics in training."""
        return self.statistics == "running"

    @property
    def is_of_images(self) -> bool:
        """Whether each image has statistics of its own: no pass is given them, nor gives them."""
        return self.statistics == "image"


class FrozenNorm(Norm):
    """One that keeps its running statistics while the rest trains."""

    statistics = "running"


class InstanceNorm(Norm):
    """One with the statistics of each image."""

    statistics = "image"


class LayerNorm(_AnyNorm):
    """A LayerNorm over the channels of each pixel, with γ and β."""

    statistics = "pixel"


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
        if len({norm.is_of_images for norm in self.batch_norms}) > 1:
            raise InvalidWorkload(f"block={self}: beside an InstanceNorm there is no BatchNorm; leave one out")

    @property
    def layer_norm(self) -> LayerNorm | None:
        """The second norm, if it is one."""
        return self.norm2 if isinstance(self.norm2, LayerNorm) else None

    @property
    def batch_norm2(self) -> Norm | None:
        return self.norm2 if isinstance(self.norm2, Norm) else None

    @property
    def norms(self) -> tuple[Norm | LayerNorm, ...]:
        return tuple(norm for norm in (self.norm1, self.norm2) if norm)

    @property
    def batch_norms(self) -> tuple[Norm, ...]:
        """Those of channels: all but a LayerNorm."""
        return tuple(norm for norm in (self.norm1, self.batch_norm2) if norm)

    @property
    def is_frozen(self) -> bool:
        """Whether its norms are BatchNorms, and all keep their statistics."""
        return bool(self.batch_norms) and all(norm.is_frozen for norm in self.batch_norms)

    @property
    def is_of_images(self) -> bool:
        """Whether its norms are InstanceNorms."""
        return any(norm.is_of_images for norm in self.batch_norms)

    @property
    def thawed(self) -> Block:
        """With norms that learn their statistics: the name of a block in evaluation, too."""
        return replace(
            self,
            norm1=_thawed(self.norm1) if self.norm1 else None,
            norm2=_thawed(self.norm2) if isinstance(self.norm2, Norm) else self.norm2,
        )

    @property
    def kept(self) -> str:
        """The image beside x that the backward pass reads: ``y``; ``z``, where a frozen norm and the sign of z are
        enough; none at all without an activation after a frozen norm, and without a second norm."""
        if self.norm2 is None or (isinstance(self.norm2, FrozenNorm) and self.act2 == "identity"):
            return ""
        return "z" if isinstance(self.norm2, FrozenNorm) and self.act2 in _KNOWN_BY_RESULT else "y"

    def __str__(self) -> str:
        """``bn+relu6,bn+relu6``: what is before the convolution, and what is after it; ``bn@0.001`` where eps is not
        the usual one, ``frozen`` for a frozen norm, ``in`` for an InstanceNorm, ``ln`` for a LayerNorm, ``none`` for
        nothing. ``Block.parse`` reads it back."""
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
        """The tensors that a pass reads. ``forward``: ``x``, ``w``, ``bias`` if there is one, and γ and β of its norms,
        of frozen ones and in ``inference`` their means and variances as well; ``backward``: ``dz``, ``x``, what is
        ``kept``, ``w``, and of each norm γ, β, and the mean and the variance that the forward pass gave or was given.
        Without a second norm z is y. A LayerNorm and an InstanceNorm have no such statistics: the backward pass
        computes those of a pixel, or of an image, again; of a LayerNorm it reads γ alone."""
        if self.layer_norm:
            before = ("x", "w", *(("bias",) if bias else ()))
            return ("dz", "x", "y", "w", "gamma2") if pass_ == "backward" else (*before, "gamma2", "beta2")
        norms = [
            f"{name}{number}"
            for number, norm in self._numbered()
            for name in (_OF_NORM[:2] if norm.is_of_images or (pass_ == "forward" and not norm.is_frozen) else _OF_NORM)
        ]
        if pass_ != "backward":
            return ("x", "w", *norms)
        images = ("dz" if self.norm2 else "dy", "x", *([self.kept] if self.kept else []))
        return (*images, "w", *norms)

    def results(self, pass_: str, *, bias: bool = False) -> tuple[str, ...]:
        """Those that it writes: ``z``, ``y`` if it is ``kept``, and the mean and the variance of each norm that has
        those of the batch; ``z`` alone; ``dx``, ``dw``, ``dbias`` if there is a bias, and of each norm dγ and dβ."""
        if pass_ == "inference":
            return ("z",) if self.norm2 else ("y",)
        if pass_ == "forward":
            learning = [number for number, norm in self._numbered() if norm.statistics == "batch"]
            images = ("z", *(["y"] if self.kept == "y" else [])) if self.norm2 else ("y",)
            return (*images, *(f"{name}{number}" for number in learning for name in ("mean", "var")))
        norms = [number for number, norm in (("1", self.norm1), ("2", self.norm2)) if norm]
        gradients = [f"{name}{number}" for number in norms for name in ("dgamma", "dbeta")]
        return ("dx", "dw", *(("dbias",) if bias else ()), *gradients)

    def _numbered(self) -> list[tuple[str, Norm]]:
        """The BatchNorms."""
        return [(number, norm) for number, norm in (("1", self.norm1), ("2", self.batch_norm2)) if norm]


NOTHING = Block(norm1=None, act1="identity", norm2=None, act2="identity")
"""Around a convolution that is alone. Its backward pass is both gradients, dx and dw, in one kernel."""

_OF_NORM = ("gamma", "beta", "mean", "var")
_KNOWN_BY_RESULT: tuple[Activation, ...] = ("relu", "relu6")
"""Activations whose result shows their derivative."""
_EXAMPLE = (
    "as in bn+relu6,bn+relu6, bn@0.001+hardswish,bn@0.001, none,bn+relu, frozen,frozen+relu, in+relu,in+relu or "
    "none,ln@1e-06"
)
_NORMS: dict[str, type[Norm | LayerNorm]] = {"bn": Norm, "frozen": FrozenNorm, "in": InstanceNorm, "ln": LayerNorm}


def _thawed(norm: Norm) -> Norm:
    return Norm(eps=norm.eps) if norm.is_frozen else norm


def _named(norm: Norm | LayerNorm | None, act: Activation) -> str:
    words = []
    if norm is not None:
        kind = next(name for name, of in _NORMS.items() if type(norm) is of)
        words.append(kind if norm == type(norm)() else f"{kind}@{norm.eps}")
    return "+".join([*words, *([act] if act != "identity" else [])]) or "none"


def _parsed(part: str, whole: str) -> tuple[Norm | LayerNorm | None, Activation]:
    norms = r"(?:(?P<norm>(?P<kind>bn|frozen|in|ln)(?:@(?P<eps>[^+]*))?)(?:\+|$))?"
    found = re.fullmatch(norms + r"(?P<act>.*)", part, re.DOTALL)
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
