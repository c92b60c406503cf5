"""Blocks around a 3-D convolution: norms that learn, are frozen, or are of each image, in training and evaluation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.call.block_checks import (
    alone_is_not_planted,
    assert_compiled_is_one_op,
    assert_cpp_runs_it_alone,
    assert_right_in_16_bits,
    assert_runs_as_one,
    assert_shows_it_and_converts,
    each_way,
    plant_block,
)
from tests.call.block_parts import (
    CHANNELS,
    SIZE_3D,
    Parts,
    assert_infers_the_same,
    assert_same,
    blocks_in_evaluation,
    drawn,
    in_evaluation,
    ran,
    trace,
)
from tests.native_needed import both_ways

pytestmark = alone_is_not_planted

BLOCK = "bn+relu6,bn+hardswish"


def planted(logs, block: str = BLOCK, **options) -> None:
    plant_block(logs, block, shape=SIZE_3D, **options)


@each_way(
    [BLOCK, "in+relu,in+silu", "frozen+relu6,frozen+relu6", "none,bn+relu", "bn+silu,none", "none,in+relu"],
    kinds=["", "written"],
)
def test_it_runs_as_one(logs, block, kind, way):
    planted(logs, block)
    assert_runs_as_one(block, kind, drawn(SIZE_3D))


@both_ways
def test_with_a_stride(logs, way):
    """Running variances are of as many values as their image has."""
    planted(logs, stride=2)
    model = Parts(BLOCK, stride=2, axes=3)
    model.bn1.momentum = model.bn2.momentum = 1.0
    assert_same(model, drawn(SIZE_3D))
    assert ran() == (2, 2)


@both_ways
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_images_of_16_bits(logs, name, way):
    block = "bn+silu,bn+silu"
    planted(logs, block, dtype=name)
    assert_right_in_16_bits(Parts(block, axes=3), drawn(SIZE_3D), name)


@both_ways
def test_in_evaluation_it_is_one(logs, way):
    planted(logs, passes=["inference"])
    assert_infers_the_same(in_evaluation(BLOCK, axes=3), x=drawn(SIZE_3D).detach())
    assert blocks_in_evaluation() == 2


@both_ways
def test_cpp_runs_it_alone(logs, way, monkeypatch):
    planted(logs)
    assert_cpp_runs_it_alone(Parts(BLOCK, axes=3), drawn(SIZE_3D), way, monkeypatch, learns=True)


@both_ways
def test_it_is_one_only_where_it_can_be(logs, way):
    planted(logs)
    model = Parts(BLOCK, axes=3)
    for _ in range(2):
        model(drawn((3, *SIZE_3D[1:])))
    assert ran()[0] == 2
    model(drawn(SIZE_3D).detach().contiguous())
    model(drawn((2, CHANNELS, 5, 6, 9)))
    assert ran()[0] == 2


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, nn.InstanceNorm2d])
def test_a_norm_of_other_images_is_none(logs, kind):
    planted(logs)
    model = Parts(BLOCK, axes=3)
    model.bn1 = kind(CHANNELS)
    trace(model)
    with pytest.raises(ValueError, match=r"expected .*4D"):
        model(drawn(SIZE_3D))


def test_compiled_it_is_one_op_of_the_graph(logs):
    planted(logs)
    assert_compiled_is_one_op(Parts(BLOCK, axes=3), drawn(SIZE_3D))


class Net(nn.Module):
    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.expand = nn.Conv3d(CHANNELS, CHANNELS, 1, bias=False)
        self.norm1, self.norm2 = norm(CHANNELS), norm(CHANNELS)
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.hardswish(self.norm2(self.conv(F.relu6(self.norm1(self.expand(x))))))


@pytest.mark.parametrize(("norm", "block"), [(nn.BatchNorm3d, BLOCK), (nn.InstanceNorm3d, "in+relu6,in+hardswish")])
def test_a_model_shows_it_and_converts(logs, norm, block):
    planted(logs, block)
    model = Net(norm).to(memory_format=torch.channels_last_3d)
    assert_shows_it_and_converts(model, drawn(SIZE_3D), block, starts="norm1")
