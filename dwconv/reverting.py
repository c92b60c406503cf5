"""``revert``, which gives converted layers the classes back that they had, for tools that look for PyTorch's own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from dwconv.conversion import ConvertedLayer, shown_name
from dwconv.converted_classes import is_functional
from dwconv.nn import DepthwiseConv1d, DepthwiseConv2d


@dataclass(frozen=True, kw_only=True)
class RevertSummary:
    """The result of ``revert``. Prints as a table."""

    reverted: tuple[ConvertedLayer, ...]
    """Layers with the class that they have again."""
    left: tuple[ConvertedLayer, ...]
    """Layers of dwconv that stay what they are, and why."""

    def __str__(self) -> str:
        counts = f"{len(self.reverted)} layers reverted"
        if self.left:
            counts += f", {len(self.left)} left as they are"
        rows = [*self.reverted, *self.left]
        width = max((len(shown_name(row.name)) for row in rows), default=0)
        return "\n".join([counts, *(f"  {shown_name(row.name):<{width}}  {row.text}" for row in rows)])


def revert(model: nn.Module) -> RevertSummary:
    """Undo ``convert`` in place: the layers of ``model`` have the classes again that they had before.

    The layers stay the objects they are, with their parameters, hooks, mode and names. So what looks for PyTorch's
    classes finds them: fusing layers, quantisation, pruning. A ``dwconv.nn.DepthwiseConv2d`` that ``convert`` did not
    make becomes an ``nn.Conv2d``, too. ``convert`` may be called again at any time.
    """
    reverted, left = [], []
    for name, module in model.named_modules():
        if is_functional(module):
            module.__class__ = type(module).plain_class
            reverted.append(ConvertedLayer(name, f"{type(module).__name__}, its functional calls on PyTorch's op"))
        made = type(module)
        plain = vars(made).get("plain_class")  # its own: a subclass computes what its plain class does not
        if plain is None and not isinstance(module, (DepthwiseConv1d, DepthwiseConv2d)):
            continue
        if plain is None:
            why = f"stays {made.__name__}: a class made of {made.__mro__[1].__name__}; revert before it is made"
            left.append(ConvertedLayer(name, why))
        else:
            module.__class__ = plain
            reverted.append(ConvertedLayer(name, plain.__name__))
    return RevertSummary(reverted=tuple(reverted), left=tuple(left))
