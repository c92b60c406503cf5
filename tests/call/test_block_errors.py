"""In 16 bits under autocast the gradients of a block are as near to those in float64 as those of PyTorch's ops."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from dwconv.call.frozen_forward import plain_class
from tests.call.block_checks import alone_is_not_planted, plant_block
from tests.call.block_parts import SIZE, Parts, in_double, ran

pytestmark = alone_is_not_planted
SEEDS = 11


def gradients(model: nn.Module, x: Tensor, dz: Tensor, dtype: torch.dtype | None) -> list[Tensor]:
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        z = model(x * 1)
    return [z.detach(), *torch.autograd.grad(z, [x, *model.parameters()], dz)]


def drawn(model: nn.Module, seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape, generator=generator) * (0.3 if each.dim() > 1 else 1.0))
    x, dz = (torch.randn(SIZE, generator=generator).to(dtype, memory_format=torch.channels_last) for _ in range(2))
    return x.requires_grad_(), dz


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("block", "allowed"),
    [("bn+silu,bn+silu", 0.9), ("bn+relu6,bn+hardswish", 1.2), ("none,bn+relu6", 1.4)],
)
def test_errors_are_no_larger_than_pytorchs(logs, block, dtype, allowed):
    """Near a kink of an activation one element on the other side is most of the error: medians of several draws."""
    plant_block(logs, block, dtype=dtype)
    number_type = getattr(torch, dtype)
    model = Parts(block)
    errors: list[list[Tensor]] = []
    for seed in range(SEEDS):
        x, dz = drawn(model, seed, number_type)
        plain, exact = copy.deepcopy(model), in_double(model)
        plain.__class__ = plain_class(type(plain))
        plain.conv.__class__ = nn.Conv2d
        right = gradients(exact, x.detach().double().requires_grad_(), dz.double(), None)
        for number, each in enumerate((model, plain)):
            found = gradients(each, x, dz, number_type)
            relative = [(got.double() - good).norm() / good.norm() for got, good in zip(found, right, strict=True)]
            errors += [[] for _ in range(len(relative) * 2 - len(errors))]
            for place, error in enumerate(relative):
                errors[2 * place + number].append(error)
    assert ran() == (SEEDS, SEEDS)
    for ours, theirs in zip(errors[::2], errors[1::2], strict=True):
        assert torch.stack(ours).median() <= allowed * torch.stack(theirs).median() + 1e-6
