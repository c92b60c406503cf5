"""Blocks whose norms have the statistics of each image: GroupNorm with one channel a group, and InstanceNorm, with an
affine or without, in both modes of a model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dwconv
from dwconv.discovery import discover
from tests.call.block_parts import (
    CHANNELS,
    SIZE,
    Parts,
    assert_same,
    assert_same_where_saved_tensors_lie_otherwise,
    blocks_in_evaluation,
    drawn,
    in_double,
    python_runs_no_block,
    ran,
    step,
    trace,
    written,
)
from tests.native_needed import both_ways
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")  # the convolution alone is not planted

BLOCK = "in+relu6,in+hardswish"


def planted(logs, block=BLOCK, **options) -> None:
    plant(logs / "cpu.jsonl", [workload_of(**{"shape": SIZE, "block": block, **options})])


def with_norms(make: Callable[[], nn.Module]) -> Parts:
    model = Parts(BLOCK)
    model.bn1, model.bn2 = make(), make()
    for parameter in (*model.bn1.parameters(), *model.bn2.parameters()):
        nn.init.normal_(parameter)
    trace(model)
    return model


@both_ways
@pytest.mark.parametrize("kind", ["", "in place", "written"])
@pytest.mark.parametrize(
    "block", [BLOCK, "none,in+relu", "in+silu,none", "in,in", "in@0.01+relu,in@0.1+silu"]
)  # fmt: skip
def test_it_runs_as_one(logs, block, kind, way):
    planted(logs, block)
    model = Parts(block, inplace=kind == "in place")
    assert_same(written(model) if kind == "written" else model, drawn())
    assert ran() == (2, 2)


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
    planted(logs)
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
    planted(logs)
    assert_same(with_norms(OTHERS[name]), drawn())
    assert ran() == (0, 0)


@both_ways
def test_beside_a_batch_norm_it_is_in_a_block_alone(logs, way):
    """An image has no part in the statistics of another: both kinds are not in one kernel."""
    planted(logs, "none,in+hardswish")
    model = Parts(BLOCK)
    model.bn1 = nn.BatchNorm2d(CHANNELS)
    trace(model)
    assert_same(model, drawn())
    assert ran() == (2, 2)


@both_ways
def test_cpp_runs_it_alone(logs, way, monkeypatch):
    planted(logs)
    model, x = with_norms(lambda: nn.InstanceNorm2d(CHANNELS)), drawn()
    expected = step(model, x)
    if way == "compiled":
        python_runs_no_block(monkeypatch)
    for got, wanted in zip(step(model, x), expected, strict=True):
        assert torch.equal(got, wanted)
    assert ran() == (2, 2)


@both_ways
@pytest.mark.parametrize("images", [1, 2, 5])
def test_batches_of_any_size_give_the_same(logs, images, way):
    planted(logs)
    model = Parts(BLOCK)
    assert_same(model, drawn((images, *SIZE[1:])))
    assert ran() == (2, 2)


def test_an_image_of_one_value_is_pytorchs(logs):
    planted(logs, shape=(2, CHANNELS, 1, 1))
    with pytest.raises(ValueError, match="more than 1 spatial element"):
        with_norms(lambda: nn.InstanceNorm2d(CHANNELS))(drawn((2, CHANNELS, 1, 1)))
    assert_same(Parts(BLOCK), drawn((2, CHANNELS, 1, 1)))
    assert ran() == (0, 0)


@both_ways
@pytest.mark.parametrize("block", [BLOCK, "none,in"])
def test_a_norm_takes_a_bias_away_again(logs, block, way):
    planted(logs, block)
    model = Parts(block, bias=True)
    assert_same(model, drawn())
    assert ran() == (2, 2)


@both_ways
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("is_autocast", [True, False], ids=["autocast", "as they are"])
def test_images_of_16_bits(logs, name, is_autocast, way):
    block = "in+silu,in+silu"
    planted(logs, block, dtype=name)
    dtype, allowed = {"bfloat16": (torch.bfloat16, 3e-2), "float16": (torch.float16, 5e-3)}[name]
    model, x = Parts(block), drawn().detach().to(dtype).requires_grad_()
    if not is_autocast:
        model.conv.to(dtype)
    exact, plain = in_double(model), in_double(model).float()
    plain.conv.to(model.conv.weight.dtype)
    for _ in range(2):
        with torch.autocast("cpu", dtype, enabled=is_autocast):
            found, like = step(model, x), plain(x)
        assert found[0].dtype is like.dtype is dtype
        for got, wanted in zip(found, step(exact, x.detach().double().requires_grad_()), strict=True):
            assert float((got.double() - wanted.double()).norm()) <= allowed * float(wanted.double().norm()) + allowed
    assert ran() == (2, 2)


@both_ways
def test_only_x_and_y_are_kept(logs, way):
    planted(logs)
    model, x = Parts(BLOCK), drawn()
    for _ in range(2):
        kept: dict[int, Tensor] = {}

        def pack(tensor: Tensor, kept: dict[int, Tensor] = kept) -> Tensor:
            if tensor.numel() == x.numel():
                kept[tensor.data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            z = model(x)
        assert len(kept) == 2 and x.data_ptr() in kept and z.data_ptr() not in kept


@both_ways
def test_saved_tensors_may_come_back_lying_otherwise(logs, way):
    planted(logs)
    assert_same_where_saved_tensors_lie_otherwise(Parts(BLOCK))
    assert ran()[0] == 3


@both_ways
def test_it_can_be_differentiated_again(logs, way):
    planted(logs, "in+silu,in")
    model, x = Parts("in+silu,in"), drawn()
    exact, given = in_double(model), x.detach().double().requires_grad_()
    found = []
    for each, leaf in ((model, x), (exact, given)):
        for _ in range(2):
            gradients = torch.autograd.grad(each(leaf).pow(3).sum(), [leaf, *each.parameters()], create_graph=True)
            again = torch.autograd.grad(sum(each.square().sum() for each in gradients), [leaf, *each.parameters()])
        found.append([*gradients, *again])
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-3, atol=1e-3 * float(wanted.detach().abs().max()))
    assert ran()[0] == 2


@pytest.mark.parametrize("name", ["GroupNorm of a library", "InstanceNorm"])
def test_compiled_it_is_one_op_of_the_graph(logs, name):
    planted(logs)
    model, x = with_norms(NORMS[name]), drawn()
    exact = copy.deepcopy(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for got, right in zip(step(compiled, x), step(exact, x), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4)
    assert ran() == (2, 2)


CHANGES: dict[str, Callable[[Parts], Any]] = {
    "a hook": lambda model: model.bn1.register_forward_hook(lambda norm, given, z: z + 1),
    "another eps": lambda model: setattr(model.bn2, "eps", 0.5),
    "another norm": lambda model: setattr(model, "bn1", nn.GroupNorm(1, CHANNELS)),
}


@both_ways
@pytest.mark.parametrize("change", CHANGES)
def test_another_norm_later_gives_the_same(logs, change, way):
    planted(logs)
    model = Parts(BLOCK)
    assert_same(model, drawn())
    CHANGES[change](model)
    assert_same(model, drawn())
    assert ran() == (2, 2)


@both_ways
def test_parameters_are_read_in_every_step(logs, way):
    planted(logs)
    model = Parts(BLOCK)
    assert_same(model, drawn())
    model.bn1.weight = nn.Parameter(torch.rand(CHANNELS))
    model.bn2.weight = model.bn2.bias = None
    assert_same(model, drawn())
    assert ran() == (4, 4)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_without_gradients_it_is_separate(logs, training):
    planted(logs)
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
        return z.view(len(z), -1) if self.views else F.hardswish(z)


@pytest.mark.parametrize("norm", [nn.InstanceNorm2d, lambda channels: nn.GroupNorm(channels, channels)])
def test_a_model_shows_it_and_converts(logs, norm):
    planted(logs)
    model, x = Net(norm).to(memory_format=torch.channels_last), drawn()
    (block,) = discover(model, x).blocks
    assert str(block.problem.block) == BLOCK
    dwconv.convert(model, x, blocks=True, seconds=0)
    assert f"block {BLOCK} from norm1 runs as one" in str(dwconv.summary(model))
    assert_same(model, x)
    assert ran() == (2, 2)


def test_a_result_that_is_viewed_as_contiguous_stays_so(logs):
    """PyTorch's InstanceNorm gives contiguous images, whatever it is given."""
    planted(logs, "in+relu6,in")
    model, x = Net(nn.InstanceNorm2d, views=True).to(memory_format=torch.channels_last), drawn()
    dwconv.convert(model, x, blocks=True, seconds=0)
    assert model(x).shape == (SIZE[0], CHANNELS * SIZE[2] * SIZE[3])
    assert ran() == (0, 0)


def test_contiguous_models_have_none(logs):
    planted(logs)
    model, x = Net(nn.InstanceNorm2d), drawn().detach().contiguous()
    (block,) = discover(model, x).blocks
    assert block.problem is None and "blocks are channels_last" in block.why_not
