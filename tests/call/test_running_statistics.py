"""Running statistics of a block's norms: the same bits in C++ and in Python, as near to exact ones as PyTorch's own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import dwconv
from dwconv.call.frozen_forward import plain_class
from tests.call.block_checks import alone_is_not_planted, plant_block
from tests.call.block_parts import SIZE, WHOLE, Parts, ran, trace
from tests.native_needed import both_ways, go_through_python, needs_native

pytestmark = alone_is_not_planted
STEPS = 6


def with_gaps(norm: nn.BatchNorm2d) -> None:
    for name in ("running_mean", "running_var"):
        setattr(norm, name, getattr(norm, name).repeat_interleave(2)[::2])


def without(norm: nn.BatchNorm2d) -> None:
    norm.running_mean = norm.running_var = norm.num_batches_tracked = None


def momentum(value):
    return lambda norm: setattr(norm, "momentum", value)


KINDS = {
    "0.1": momentum(0.1),
    "a third": momentum(1 / 3),
    "0.9": momentum(0.9),
    "tiny": momentum(1e-9),
    "none of the batch": momentum(0.0),
    "all of the batch": momentum(1.0),
    "a whole number": momentum(1),
    "the mean of all batches": momentum(None),
    "with gaps": with_gaps,
    "without statistics": without,
}


def made(block: str, kind: str) -> Parts:
    model = Parts(block, bias=kind == "0.9" and block == WHOLE)
    for norm in (model.bn1, model.bn2):
        if isinstance(norm, nn.BatchNorm2d):
            KINDS[kind](norm)
    trace(model)
    return model


def batches(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(3)
    images = (torch.randn(SIZE) * (number + 0.3) + number for number in range(STEPS))
    return [each.to(dtype, memory_format=torch.channels_last) for each in images]


def trained(model: nn.Module, dtype: torch.dtype) -> list[torch.Tensor]:
    """Every running mean and variance, after some steps."""
    for x in batches(dtype):
        with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
            model(x).float().sum().backward()
    return [each.clone() for each in model.buffers()]


CASES = [
    *((WHOLE, kind, "float32") for kind in KINDS),
    *((block, "a third", "float32") for block in ("none,bn+relu", "bn+silu,none")),
    *((WHOLE, "a third", dtype) for dtype in ("bfloat16", "float16")),
]


@pytest.mark.parametrize(("block", "kind", "dtype"), CASES)
def test_python_gives_the_bits_of_cpp(logs, block, kind, dtype, monkeypatch):
    plant_block(logs, block, dtype=dtype)
    number_type = getattr(torch, dtype)
    needs_native()
    in_cpp = trained(made(block, kind), number_type)
    assert ran() == (STEPS, STEPS)
    go_through_python(monkeypatch)
    dwconv.reset()
    in_python = trained(made(block, kind), number_type)
    assert ran() == (STEPS, STEPS)
    for ours, theirs in zip(in_cpp, in_python, strict=True):
        assert torch.equal(ours, theirs)


@both_ways
@pytest.mark.parametrize("kind", ["0.1", "a third", "the mean of all batches", "with gaps"])
def test_they_are_as_near_to_exact_ones_as_pytorchs(logs, kind, way):
    plant_block(logs, WHOLE)
    model = made(WHOLE, kind)
    plain, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    for each in (plain, exact):
        each.__class__ = plain_class(type(each))
    ours, theirs = trained(model, torch.float32), trained(plain, torch.float32)
    for x in batches(torch.float64):
        exact(x)
    for got, pytorchs, right in zip(ours, theirs, exact.buffers(), strict=True):
        error, allowed = (each.double().sub(right.double()).abs().max() for each in (got, pytorchs))
        assert error <= 2 * allowed + 4e-7 * right.abs().max()
