"""``revert``, which restores the classes of converted layers, for tools that expect PyTorch's own."""

from __future__ import annotations

import warnings
from typing import TypeVar

from torch import nn

from dwconv.discovery.step import check_model
from dwconv.errors import DwconvWarning
from dwconv.model.conversion import shown_name
from dwconv.model.graphed import without_graphs
from dwconv.nn import LAYERS, revert_class

Model = TypeVar("Model", bound=nn.Module)


def revert(model: Model) -> Model:
    """Undo ``convert`` in place, and return ``model``: its layers have the classes again that they had before.

    The layers stay the objects they are, with their parameters, hooks, mode and names. So tools that look for PyTorch's
    classes find them: fusing layers, quantisation, pruning. What ``graphed`` captured runs op by op again. A
    ``dwconv.nn.DepthwiseConv2d`` that ``convert`` did not make becomes an ``nn.Conv2d``, too. A layer of a class that
    was made of dwconv's stays; a warning names it. ``convert`` may be called again at any time. Raises InvalidArgument
    for what is no model.
    """
    check_model(model)
    left = []
    for name, module in model.named_modules():
        without_graphs(module)
        if not revert_class(module) and isinstance(module, LAYERS):
            left.append(f"{shown_name(name)}, a {type(module).__name__}")
    if left:
        made_of = "a class made of dwconv's computes what no other does; revert before it is made"
        warnings.warn(f"not reverted: {'; '.join(left)}: {made_of}", DwconvWarning, stacklevel=2)
    return model
