"""SamePadding: layers that pad as TensorFlow does, by the size of their input; in timm, ``Conv2dSame``.

The output has ceil(size / stride) rows and columns. What that needs of padding is halved, and the odd one goes to the
bottom and to the right.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dwconv.call.function_mode import active
from dwconv.call.functional import conv_of_layer
from dwconv.problems.as_written import tensorflow_padding
from dwconv.problems.workload import Padding

_NAME = "Conv2dSame"
_MOST_PIXELS = 100_000
"""Of the image that shows what a layer computes."""


class SamePadding:
    """The forward pass of such a layer, on tuned kernels; to be mixed into its class."""

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self, nn.Conv2d)
        if F.conv2d is not torch.conv2d:  # a counter of calls, or the like, is in its place
            with active():
                result: Tensor = super().forward(x)  # type: ignore[misc]
                return result
        padding = same_padding(self, (x.shape[-2], x.shape[-1]))
        return conv_of_layer(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups, 2)


def same_padding(layer: nn.Conv2d, size: tuple[int, int]) -> Padding:
    """((top, bottom), (left, right)) for an input of ``size``."""
    rows, columns = (
        tensorflow_padding(
            size[axis], kernel=layer.kernel_size[axis], stride=layer.stride[axis], dilation=layer.dilation[axis]
        )
        for axis in range(2)
    )
    return rows, columns


def pads_the_same(layer: nn.Module) -> bool:
    """True of a ``Conv2dSame``, recognised by its name, if one call shows that it computes what ``SamePadding``
    does."""
    if not isinstance(layer, nn.Conv2d) or layer.padding_mode != "zeros":
        return False
    if not any(each.__name__ == _NAME and "forward" in vars(each) for each in type(layer).__mro__):
        return False
    weight = layer.weight
    if type(weight) not in (Tensor, nn.Parameter):  # a part of it may be elsewhere
        return False
    height, width = (
        d * (k - 1) + s + 2 for d, k, s in zip(layer.dilation, layer.kernel_size, layer.stride, strict=True)
    )
    size = (height, width + 1)
    if math.prod(size) > _MOST_PIXELS:
        return False
    ramp = torch.arange(layer.in_channels * size[0] * size[1], device=weight.device) % 7 - 3
    x = ramp.to(weight.dtype).reshape(1, layer.in_channels, *size)
    (top, bottom), (left, right) = same_padding(layer, size)
    with torch.no_grad():
        padded = F.pad(x, (left, right, top, bottom))
        expected = F.conv2d(padded, weight, layer.bias, layer.stride, 0, layer.dilation, layer.groups)
        found = type(layer).forward(layer, x)
    if not isinstance(found, Tensor) or found.shape != expected.shape:
        return False
    return weight.is_meta or torch.allclose(found, expected, equal_nan=True)
