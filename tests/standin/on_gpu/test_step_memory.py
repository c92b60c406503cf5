"""What the steps of a model need of a GPU's memory at most, beside other models."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn

import dwconv
from bench.paired_steps import made_up, step_of
from bench.step_memory import held_bytes, peak_bytes, ran_out_of_memory
from dwconv.errors import CannotBeCaptured

MIB = 2**20
LEFT_OVER = 24 * MIB
"""What an allocator rounds up to, and what libraries keep."""
IMAGES, WIDE = (256, 64, 1, 1), 65536


def network() -> nn.Sequential:
    """It keeps 64 MiB of activations for the backward pass, of 16 MiB of weights."""
    return nn.Sequential(nn.Conv2d(64, WIDE, 1, bias=False), nn.Sigmoid(), nn.AvgPool2d(1), nn.Flatten(), _Few())


class _Few(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(len(x), 2, -1).mean(2)


@pytest.fixture
def image() -> torch.Tensor:
    return torch.randn(IMAGES, device="cuda")


def test_a_step_needs_weights_gradients_momentum_and_activations_however_many_models_lie_beside(
    image: torch.Tensor,
) -> None:
    model = network().to("cuda")
    (weights,) = model.parameters()
    activations = 4 * IMAGES[0] * WIDE
    assert (weights.nbytes, activations) == (16 * MIB, 64 * MIB)

    def peak() -> int:
        step = partial(step_of(model), *made_up(image))
        step()
        return peak_bytes(model, step)

    alone = peak()
    assert 3 * weights.nbytes + activations < alone < 4 * weights.nbytes + 4 * activations + LEFT_OVER
    others = [copy.deepcopy(model) for _ in range(6)]
    assert abs(peak() - alone) < LEFT_OVER and len(others) == 6


def test_graphs_hold_what_their_steps_need(image: torch.Tensor) -> None:
    before = held_bytes()
    model = dwconv.graphed(network().to("cuda"), image, seconds=0)
    held = held_bytes() - before
    step = partial(step_of(model), *made_up(image))
    step()
    found = peak_bytes(model, step, of_graphs=held)
    weights = sum(each.nbytes for each in model.parameters())
    assert found >= held + weights - LEFT_OVER and held > weights + 4 * IMAGES[0] * WIDE - LEFT_OVER


def test_memory_that_a_capture_lacks_is_told_from_all_else_that_it_cannot_hold() -> None:
    class Lacks(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.cuda.is_current_stream_capturing():
                torch.empty(2**45, device="cuda")
            return super().forward(x)

    class Reads(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * x.sum().item()

    seen = []
    for kind in (Lacks, Reads):
        with pytest.raises(CannotBeCaptured) as raised:
            dwconv.graphed(kind(8, 8, 1).to("cuda"), torch.randn(2, 8, 6, 6, device="cuda"), seconds=0)
        seen.append(ran_out_of_memory(raised.value))
    assert seen == [True, False]
