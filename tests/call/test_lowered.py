"""bfloat16 on the CPU, which has no kernels yet: PyTorch's op runs, and that is said once."""

from __future__ import annotations

import warnings

import pytest
import torch

import dwconv
from dwconv.errors import DwconvWarning


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught if each.category is DwconvWarning and "bfloat16" in str(each.message)]


@pytest.mark.parametrize("autocast", [True, False])
def test_it_is_said_once_with_what_is_planned(logs, autocast):
    dtype = torch.float32 if autocast else torch.bfloat16
    layers = [dwconv.convert(torch.nn.Conv2d(c, c, 3, groups=c, dtype=dtype)) for c in (4, 8)]

    def step(layer):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            y = layer(torch.randn(2, layer.groups, 9, 7, dtype=dtype))
        assert y.dtype is torch.bfloat16
        y.sum().backward()

    (message,) = warned(lambda: step(layers[0]))
    assert "PyTorch's own op on the CPU" in message and "planned" in message and "without torch.autocast" in message
    assert not warned(lambda: [step(layer) for layer in layers]), "of no other layer, and not again"
    dwconv.reset()
    assert len(warned(lambda: step(layers[1]))) == 1


def test_of_float32_and_float64_nothing_is_said(logs):
    for dtype in (torch.float32, torch.float64):
        layer = dwconv.convert(torch.nn.Conv2d(8, 8, 3, groups=8, dtype=dtype))
        assert not warned(lambda layer=layer, dtype=dtype: layer(torch.randn(2, 8, 9, 7, dtype=dtype)))
