"""What a block gives lies in memory as its parts would give it, so that code behind it that views it goes on to run."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dwconv
from dwconv.problems.problem import memory_format
from tests.call.block_parts import CHANNELS, SIZE, SIZE_3D, Parts, drawn, ran, trace, written
from tests.native_needed import both_ways
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")  # the convolution alone is not planted

Norms = Callable[[int], tuple[nn.Module | None, nn.Module | None]]
"""From the number of axes to the norm before the convolution, and the one after it."""


def instance_norm(axes: int) -> nn.Module:
    return (nn.InstanceNorm3d if axes == 3 else nn.InstanceNorm2d)(CHANNELS, affine=True)


def group_norm(axes: int) -> nn.Module:
    return nn.GroupNorm(CHANNELS, CHANNELS)


BLOCKS: dict[str, tuple[str, Norms]] = {
    "InstanceNorms": ("in+relu6,in+relu", lambda axes: (instance_norm(axes), instance_norm(axes))),
    "an InstanceNorm before": ("in+silu,none", lambda axes: (instance_norm(axes), None)),
    "an InstanceNorm after": ("none,in", lambda axes: (None, instance_norm(axes))),
    "InstanceNorm, GroupNorm": ("in+relu,in+relu", lambda axes: (instance_norm(axes), group_norm(axes))),
    "GroupNorm, InstanceNorm": ("in+relu,in+hardswish", lambda axes: (group_norm(axes), instance_norm(axes))),
    "GroupNorms": ("in+relu6,in+relu", lambda axes: (group_norm(axes), group_norm(axes))),
    "BatchNorms": ("bn+relu6,bn+hardswish", lambda axes: (None, None)),
    "frozen": ("frozen+relu,frozen", lambda axes: (None, None)),
}
ALWAYS_CONTIGUOUS = ("InstanceNorms", "an InstanceNorm after", "GroupNorm, InstanceNorm")


def made(logs, name: str, *, axes: int, last_weight: bool) -> Parts:
    block, norms = BLOCKS[name]
    size = SIZE_3D if axes == 3 else SIZE
    plant(logs / "cpu.jsonl", [workload_of(shape=size, kernel=(3,) * axes, block=block)])
    model = Parts(block, axes=axes)
    for part, norm in zip(("bn1", "bn2"), norms(axes), strict=True):
        if norm is not None:
            setattr(model, part, norm)
    if last_weight:
        model.to(memory_format=memory_format("nhwc", axes=axes))
    trace(model)
    return model


def plain(model: nn.Module) -> nn.Module:
    return dwconv.revert(copy.deepcopy(model))


def plain_sequence(block: dwconv.nn.DepthwiseBlock) -> nn.Module:
    parts = [getattr(block, name) for name in block.parts_of_block]
    return plain(nn.Sequential(*(part for part in parts if part is not None)))


def check(model: nn.Module, x: Tensor, *, expected: nn.Module | None = None) -> Tensor:
    """A step of the model and one of PyTorch's modules, twice: C++ learns in the first what it runs in the next."""
    expected = expected or plain(model)
    for _ in range(2):
        z, wanted = model(x * 1), expected(x * 1)
        assert z.stride() == wanted.stride() and z._is_view() <= wanted._is_view()
        if wanted.is_contiguous():
            z.view(len(z), -1)
        weights = torch.linspace(-1, 1, z.numel()).view(z.shape)
        found = [torch.autograd.grad((each * weights).sum(), x)[0] for each in (z, wanted)]
        for got, right in zip((z, found[0]), (wanted, found[1]), strict=True):
            torch.testing.assert_close(got, right, rtol=1e-3, atol=1e-3)
    return z


@both_ways
@pytest.mark.parametrize("last_weight", [True, False], ids=["moved", "not moved"])
@pytest.mark.parametrize("axes", [2, 3], ids=["2-D", "3-D"])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_gives_it_as_its_parts_do(logs, name, axes, last_weight, way):
    """``moved``: the model was made channels_last, and with it the weight of the convolution."""
    model, x = made(logs, name, axes=axes, last_weight=last_weight), drawn(SIZE_3D if axes == 3 else SIZE)
    z = check(model, x)
    assert ran() == (2, 2)
    assert z.is_contiguous() == (
        name in ALWAYS_CONTIGUOUS or (not last_weight and name.partition(",")[0].endswith(("before", "InstanceNorm")))
    )
    dwconv.reset()
    check(model, x.detach().contiguous().requires_grad_())  # which no block takes
    assert ran() == (0, 0)


@both_ways
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", ["InstanceNorms", "an InstanceNorm before", "GroupNorms"])
def test_so_does_a_written_one_in_both_modes(logs, name, training, way):
    model = written(made(logs, name, axes=2, last_weight=False)).train(training)
    x = drawn()
    check(model, x, expected=plain_sequence(model))
    assert ran() == (2, 2)
    with torch.no_grad():
        assert model(x).stride() == plain_sequence(model)(x).stride()


@pytest.mark.parametrize("last_weight", [True, False], ids=["moved", "not moved"])
@pytest.mark.parametrize("axes", [2, 3], ids=["2-D", "3-D"])
@pytest.mark.parametrize("name", ["InstanceNorms", "an InstanceNorm before", "GroupNorm, InstanceNorm", "BatchNorms"])
def test_so_does_compiled_code(logs, name, axes, last_weight):
    model, x = made(logs, name, axes=axes, last_weight=last_weight), drawn(SIZE_3D if axes == 3 else SIZE)
    torch._dynamo.reset()
    check(torch.compile(model, backend="aot_eager", fullgraph=True), x, expected=plain(model))
    assert ran() == (2, 2)


@both_ways
def test_a_weight_may_be_moved_later(logs, way):
    model = made(logs, "an InstanceNorm before", axes=2, last_weight=False)
    assert check(model, drawn()).is_contiguous()
    model.to(memory_format=torch.channels_last)
    assert not check(model, drawn()).is_contiguous()
    assert ran() == (4, 4)


@both_ways
@pytest.mark.parametrize("lies", ["channels_last", "contiguous", "unsqueezed"])
@pytest.mark.parametrize("size", [(2, CHANNELS, 1, 1), (1, CHANNELS, 9, 7)], ids=["a pixel", "an image"])
def test_strides_decide_where_a_size_of_1_leaves_it_open(logs, size, lies, way):
    plant(logs / "cpu.jsonl", [workload_of(shape=size, block="bn+relu6,bn+hardswish")])
    model, x = Parts("bn+relu6,bn+hardswish"), torch.randn(size)
    if lies == "channels_last":
        x = torch.empty_like(x, memory_format=torch.channels_last).copy_(x)
    elif lies == "unsqueezed" and len(x) == 1:
        x = x[0].permute(1, 2, 0).contiguous().permute(2, 0, 1)[None]
    check(model, x.requires_grad_())
    assert ran()[0] == (2 if lies == "channels_last" and size[2] > 1 else 0)


class Head(nn.Module):
    """Another module views what the block gives."""

    def forward(self, z: Tensor) -> Tensor:
        return z.view(z.shape[0], -1)


class Net(nn.Module):
    def __init__(self, axes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        convolution = nn.Conv3d if axes == 3 else nn.Conv2d
        self.expand = convolution(CHANNELS, CHANNELS, 1, bias=False)
        self.norm1, self.norm2 = instance_norm(axes), instance_norm(axes)
        self.conv = convolution(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.hardswish(self.norm2(self.conv(F.relu6(self.norm1(self.expand(x)))))))


@both_ways
@pytest.mark.parametrize("axes", [2, 3], ids=["2-D", "3-D"])
def test_a_converted_model_views_it_in_another_module(logs, axes, way):
    size = SIZE_3D if axes == 3 else SIZE
    plant(logs / "cpu.jsonl", [workload_of(shape=size, kernel=(3,) * axes, block="in+relu6,in+hardswish")])
    model, x = Net(axes).to(memory_format=memory_format("nhwc", axes=axes)), drawn(size)
    expected = copy.deepcopy(model)
    dwconv.convert(model, x, blocks=True, seconds=0)
    check(model, x, expected=expected)
    assert ran() == (2, 2)
