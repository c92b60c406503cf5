"""Blocks whose norms have the statistics of each image: GroupNorm with one channel a group, and InstanceNorm, with an
affine or without, in both modes of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dwconv
from dwconv.discovery import discover
from tests.call.block_checks import (
    alone_is_not_planted,
    assert_compiled_is_one_op,
    assert_cpp_runs_it_alone,
    assert_differentiable_again,
    assert_right_in_16_bits,
    assert_runs_as_one,
    assert_shows_it_and_converts,
    each_way,
    images_kept,
    plant_block,
)
from tests.call.block_parts import (
    CHANNELS,
    SIZE,
    Parts,
    assert_same,
    assert_same_where_saved_tensors_lie_otherwise,
    blocks_in_evaluation,
    drawn,
    in_double,
    ran,
    trace,
)
from tests.native_needed import both_ways

pytestmark = alone_is_not_planted

BLOCK = "in+relu6,in+hardswish"


def with_norms(make: Callable[[], nn.Module]) -> Parts:
    model = Parts(BLOCK)
    model.bn1, model.bn2 = make(), make()
    for parameter in (*model.bn1.parameters(), *model.bn2.parameters()):
        nn.init.normal_(parameter)
    trace(model)
    return model


@each_way(
    [BLOCK, "none,in+relu", "in+silu,none", "in,in", "in@0.01+relu,in@0.1+silu"], kinds=["", "in place", "written"]
)
def test_it_runs_as_one(logs, block, kind, way):
    plant_block(logs, block)
    assert_runs_as_one(block, kind)


class AsFunction(nn.GroupNorm):
    """As timm's: it calls PyTorch's function."""

    def forward(self, x: Tensor) -> Tensor:
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


NORMS: dict[str, Callable[[], nn.Module]] = {
    "GroupNorm without affine": lambda: nn.GroupNorm(CHANNELS, CHANNELS, affine=False),
    "GroupNorm of a library": lambda: AsFunction(CHANNELS, CHANNELS),
    "InstanceNorm": lambda: nn.InstanceNorm2d(CHANNELS),
    "InstanceNorm with affine": lambda: nn.InstanceNorm2d(CHANNELS, affine=True),
    "InstanceNorm without momentum": lambda: nn.InstanceNorm2d(CHANNELS, momentum=None),
}


@both_ways
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", NORMS)
def test_every_such_norm_runs_as_one(logs, name, training, way):
    """In evaluation with gradients, too: the statistics are those of the image."""
    plant_block(logs, BLOCK)
    model = with_norms(NORMS[name]).train(training)
    trace(model)
    assert_same(model, drawn())
    assert ran() == (2, 2)


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "two channels a group": lambda: nn.GroupNorm(CHANNELS // 2, CHANNELS),
    "one group": lambda: nn.GroupNorm(1, CHANNELS),
    "running statistics": lambda: nn.InstanceNorm2d(CHANNELS, track_running_stats=True),
    "a class of its own": lambda: type("Own", (nn.InstanceNorm2d,), {"forward": lambda self, x: x * 2})(CHANNELS),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_norms_are_none(logs, name):
    plant_block(logs, BLOCK)
    assert_same(with_norms(OTHERS[name]), drawn())
    assert ran() == (0, 0)


@both_ways
def test_beside_a_batch_norm_it_is_in_a_block_alone(logs, way):
    """An image has no part in the statistics of another: both kinds are not in one kernel."""
    plant_block(logs, "none,in+hardswish")
    model = Parts(BLOCK)
    model.bn1 = nn.BatchNorm2d(CHANNELS)
    trace(model)
    assert_same(model, drawn())
    assert ran() == (2, 2)


@both_ways
def test_cpp_runs_it_alone(logs, way, monkeypatch):
    plant_block(logs, BLOCK)
    model = with_norms(lambda: nn.InstanceNorm2d(CHANNELS))
    assert_cpp_runs_it_alone(model, drawn(), way, monkeypatch, learns=False)


@both_ways
@pytest.mark.parametrize("images", [1, 2, 5])
def test_batches_of_any_size_give_the_same(logs, images, way):
    plant_block(logs, BLOCK)
    model = Parts(BLOCK)
    assert_same(model, drawn((images, *SIZE[1:])))
    assert ran() == (2, 2)


def test_an_image_of_one_value_is_pytorchs(logs):
    plant_block(logs, BLOCK, shape=(2, CHANNELS, 1, 1))
    with pytest.raises(ValueError, match="more than 1 spatial element"):
        with_norms(lambda: nn.InstanceNorm2d(CHANNELS))(drawn((2, CHANNELS, 1, 1)))
    assert_same(Parts(BLOCK), drawn((2, CHANNELS, 1, 1)))
    assert ran() == (0, 0)


@both_ways
@pytest.mark.parametrize("block", [BLOCK, "none,in"])
def test_a_norm_takes_a_bias_away_again(logs, block, way):
    plant_block(logs, block)
    model = Parts(block, bias=True)
    assert_same(model, drawn())
    assert ran() == (2, 2)


@both_ways
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("is_autocast", [True, False], ids=["autocast", "as they are"])
def test_images_of_16_bits(logs, name, is_autocast, way):
    block = "in+silu,in+silu"
    plant_block(logs, block, dtype=name)
    model, dtype = Parts(block), getattr(torch, name)
    if not is_autocast:
        model.conv.to(dtype)
    assert_right_in_16_bits(model, drawn(), name, is_autocast=is_autocast)
    plain = in_double(model).float()
    plain.conv.to(model.conv.weight.dtype)
    with torch.autocast("cpu", dtype, enabled=is_autocast):
        assert plain(drawn().to(dtype)).dtype is dtype


@both_ways
def test_only_x_and_y_are_kept(logs, way):
    plant_block(logs, BLOCK)
    model, x = Parts(BLOCK), drawn()
    for _ in range(2):
        kept, z = images_kept(model, x)
        assert len(kept) == 2 and x.data_ptr() in kept and z.data_ptr() not in kept


@both_ways
def test_saved_tensors_may_come_back_lying_otherwise(logs, way):
    plant_block(logs, BLOCK)
    assert_same_where_saved_tensors_lie_otherwise(Parts(BLOCK))
    assert ran()[0] == 3


@both_ways
def test_it_can_be_differentiated_again(logs, way):
    plant_block(logs, "in+silu,in")
    assert_differentiable_again(Parts("in+silu,in"), drawn(), power=3)


@pytest.mark.parametrize("name", ["GroupNorm of a library", "InstanceNorm"])
def test_compiled_it_is_one_op_of_the_graph(logs, name):
    plant_block(logs, BLOCK)
    assert_compiled_is_one_op(with_norms(NORMS[name]), drawn())


CHANGES: dict[str, Callable[[Parts], Any]] = {
    "a hook": lambda model: model.bn1.register_forward_hook(lambda norm, given, z: z + 1),
    "another eps": lambda model: setattr(model.bn2, "eps", 0.5),
    "another norm": lambda model: setattr(model, "bn1", nn.GroupNorm(1, CHANNELS)),
}


@both_ways
@pytest.mark.parametrize("change", CHANGES)
def test_another_norm_later_gives_the_same(logs, change, way):
    plant_block(logs, BLOCK)
    model = Parts(BLOCK)
    assert_same(model, drawn())
    CHANGES[change](model)
    assert_same(model, drawn())
    assert ran() == (2, 2)


@both_ways
def test_parameters_are_read_in_every_step(logs, way):
    plant_block(logs, BLOCK)
    model = Parts(BLOCK)
    assert_same(model, drawn())
    model.bn1.weight = nn.Parameter(torch.rand(CHANNELS))
    model.bn2.weight = model.bn2.bias = None
    assert_same(model, drawn())
    assert ran() == (4, 4)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_without_gradients_it_is_separate(logs, training):
    plant_block(logs, BLOCK)
    model = Parts(BLOCK, training=training)
    exact = in_double(model)
    with torch.no_grad():
        torch.testing.assert_close(model(drawn()).double(), exact(drawn().double()), rtol=1e-4, atol=1e-4)
    assert ran() == (0, 0) and blocks_in_evaluation() == 0


class Net(nn.Module):
    """Its tensors are channels_last but for what PyTorch's InstanceNorm gives."""

    def __init__(self, norm: Callable[[int], nn.Module], *, views: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.expand, self.views = nn.Conv2d(CHANNELS, CHANNELS, 1), views
        self.norm1, self.norm2 = norm(CHANNELS), norm(CHANNELS)
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm2(self.conv(F.relu6(self.norm1(self.expand(x)))))
        return z.view(z.shape[0], -1) if self.views else F.hardswish(z)


@pytest.mark.parametrize("norm", [nn.InstanceNorm2d, lambda channels: nn.GroupNorm(channels, channels)])
def test_a_model_shows_it_and_converts(logs, norm):
    plant_block(logs, BLOCK)
    model = Net(norm).to(memory_format=torch.channels_last)
    assert_shows_it_and_converts(model, drawn(), BLOCK, starts="norm1")


def test_a_result_may_be_viewed_as_contiguous(logs):
    """PyTorch's InstanceNorm gives contiguous images, whatever it is given."""
    plant_block(logs, "in+relu6,in")
    model, x = Net(nn.InstanceNorm2d, views=True).to(memory_format=torch.channels_last), drawn()
    dwconv.convert(model, x, blocks=True, seconds=0)
    assert_same(model, x)
    assert ran() == (2, 2)


def test_contiguous_models_have_none(logs):
    plant_block(logs, BLOCK)
    model, x = Net(nn.InstanceNorm2d), drawn().detach().contiguous()
    (block,) = discover(model, x).blocks
    assert block.problem is None and "blocks are channels_last" in block.why_not
