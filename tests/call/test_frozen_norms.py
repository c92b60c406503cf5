"""Blocks whose norms keep their statistics while the rest trains: frozen from the start or later, with affines that
train or not, of PyTorch's BatchNorm or of modules that are no more than a scale and a shift."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.call.block_checks import (
    alone_is_not_planted,
    assert_compiled_is_one_op,
    assert_cpp_runs_it_alone,
    assert_differentiable_again,
    assert_right_in_16_bits,
    assert_runs_as_one,
    each_way,
    images_kept,
    plant_block,
)
from tests.call.block_parts import (
    CHANNELS,
    FrozenNorm,
    Parts,
    assert_infers_the_same,
    assert_same,
    assert_same_where_saved_tensors_lie_otherwise,
    blocks_in_evaluation,
    drawn,
    freeze,
    in_double,
    in_evaluation,
    ran,
    step,
    trace,
    written,
)
from tests.native_needed import both_ways

pytestmark = alone_is_not_planted

FROZEN = "frozen+relu6,frozen+relu6"


@each_way(
    [
        FROZEN, "frozen+relu,frozen+hardswish", "none,frozen+relu", "frozen+silu,none", "frozen,frozen",
        "bn+relu,frozen+relu6", "frozen+relu,bn+silu", "frozen@0.01+relu,frozen@0.1+relu",
    ],
    kinds=["", "in place", "written"],
)  # fmt: skip
def test_it_runs_as_one(logs, block, kind, way):
    plant_block(logs, block)
    assert_runs_as_one(block, kind)


def frozen_later(model: Parts) -> Parts:
    for norm in (model.bn1, model.bn2):
        freeze(norm)
    return model


@both_ways
@pytest.mark.parametrize("kind", ["", "written"])
def test_norms_may_be_frozen_later_and_learn_again(logs, kind, way):
    plant_block(logs, "bn+relu6,bn+relu6", FROZEN)
    model = Parts("bn+relu6,bn+relu6")
    model = written(model) if kind else model
    assert_same(model, drawn())
    assert_same(frozen_later(model), drawn())
    assert ran() == (4, 4)
    model.train()
    step(model, drawn())  # compared anew from the next call on
    assert_same(model, drawn())
    assert ran() == (6, 6)
    model.bn1.eval()  # one alone was not traced
    assert_same(model, drawn())
    assert ran() == (6, 6)


@both_ways
@pytest.mark.parametrize("trains", [True, False])
def test_affines_may_be_frozen_as_well(logs, trains, way):
    plant_block(logs, FROZEN)
    model = Parts(FROZEN)
    for norm in (model.bn1, model.bn2):
        norm.requires_grad_(trains)
    assert_same(model, drawn())
    assert ran() == (2, 2)
    assert (model.bn1.weight.grad is None) and model.conv.weight.requires_grad


@both_ways
@pytest.mark.parametrize("bias", [False, True])
def test_modules_of_buffers_are_frozen_norms(logs, bias, way):
    plant_block(logs, FROZEN)
    model = Parts("bn+relu6,bn+relu6", bias=bias)
    model.bn1, model.bn2 = FrozenNorm(CHANNELS), FrozenNorm(CHANNELS)
    trace(model)
    assert_same(model, drawn())
    model.bn1.weight = torch.rand(CHANNELS)
    model.bn2.running_var.add_(1.0)
    assert_same(model, drawn())
    assert ran() == (4, 4)
    model.bn1.eps = 0.5
    assert_same(model, drawn())
    assert ran() == (4, 4)


def without_affine(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, affine=False)


@both_ways
@pytest.mark.parametrize("kind", [without_affine, nn.SyncBatchNorm])
def test_norms_without_affines_and_across_processes_are_as_others(logs, kind, way):
    plant_block(logs, FROZEN)
    plant_block(logs, "bn+relu6,bn+relu6", passes=["inference"])
    model = Parts("bn+relu6,bn+relu6")
    model.bn1, model.bn2 = kind(CHANNELS), kind(CHANNELS)
    trace(frozen_later(model))
    assert_same(model, drawn())
    assert ran() == (2, 2)
    trace(model.eval())
    assert_infers_the_same(model)
    assert blocks_in_evaluation() == 2


class Looking(FrozenNorm):
    """As detectron2's: one formula where a gradient is wanted, another where none is."""

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            return super().forward(x).to(x.dtype)
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )


def test_a_module_may_look_whether_a_gradient_is_wanted(logs):
    plant_block(logs, FROZEN)
    model = Parts("bn+relu6,bn+relu6")
    model.bn1, model.bn2 = Looking(CHANNELS), Looking(CHANNELS)
    trace(model)
    assert_same(model, drawn())
    assert ran() == (2, 2)


class OfGradients(FrozenNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.requires_grad else x


class Halved(FrozenNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 0.5


class Deciding(FrozenNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if bool((x.detach().sum() > -1e9).item()) else x


class OfItsMode(FrozenNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.training else x


@pytest.mark.parametrize("kind", [Halved, Deciding, OfItsMode, OfGradients])
def test_a_module_that_is_something_else_is_none(logs, kind):
    plant_block(logs, FROZEN)
    model = Parts("bn+relu6,bn+relu6")
    model.bn1, model.bn2 = kind(CHANNELS), kind(CHANNELS)
    trace(model)
    assert_same(model, drawn())
    assert ran() == (0, 0)


def test_in_16_bits_such_a_module_gives_float32(logs):
    plant_block(logs, FROZEN, dtype="bfloat16")
    model = Parts("bn+relu6,bn+relu6")
    model.bn1, model.bn2 = FrozenNorm(CHANNELS), FrozenNorm(CHANNELS)
    trace(model)
    model.conv.to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(drawn().to(torch.bfloat16)).dtype is torch.float32
    assert ran() == (0, 0)


@both_ways
@pytest.mark.parametrize("block", [FROZEN, "none,frozen", "bn+relu6,frozen+relu"])
def test_a_bias_goes_into_the_shift(logs, block, way):
    """It has a gradient here, as a norm that keeps its statistics takes nothing away."""
    plant_block(logs, block)
    assert_same(Parts(block, bias=True), drawn())
    assert ran() == (2, 2)


@both_ways
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("block", ["frozen+silu,frozen", "frozen+silu,frozen+silu", FROZEN])
def test_images_of_16_bits(logs, block, name, way):
    """Beside a kink rounding decides which slope a value has: only few values are there."""
    plant_block(logs, block, dtype=name)
    allowed = 0.4 if block == FROZEN else None
    assert_right_in_16_bits(Parts(block), drawn(), name, allowed=allowed, least=0.0)


@both_ways
def test_in_evaluation_it_is_one_with_gradients_as_well(logs, way):
    plant_block(logs, FROZEN)
    plant_block(logs, "bn+relu6,bn+relu6", passes=["inference"])
    model = in_evaluation("bn+relu6,bn+relu6")
    assert_same(model, drawn())
    assert ran() == (2, 2) and blocks_in_evaluation() == 0
    assert_infers_the_same(model)
    assert ran() == (2, 2) and blocks_in_evaluation() == 2


@both_ways
def test_cpp_runs_it_alone(logs, way, monkeypatch):
    plant_block(logs, FROZEN)
    model = Parts(FROZEN)
    assert_cpp_runs_it_alone(model, drawn(), way, monkeypatch, learns=False)
    assert model.bn1.num_batches_tracked == 0


KEPT = {FROZEN: "xz", "frozen+relu,frozen": "x", "frozen+silu,frozen+silu": "xy", "bn+relu,bn+relu": "xy"}


@both_ways
@pytest.mark.parametrize("block", KEPT)
def test_only_what_is_needed_is_kept(logs, block, way):
    plant_block(logs, block)
    model, x = Parts(block), drawn()
    for _ in range(2):
        kept, z = images_kept(model, x)
        has_z = z.data_ptr() in kept
        assert len(kept) == len(KEPT[block]) and has_z is ("z" in KEPT[block]) and x.data_ptr() in kept


@both_ways
def test_saved_tensors_may_come_back_lying_otherwise(logs, way):
    plant_block(logs, FROZEN)
    assert_same_where_saved_tensors_lie_otherwise(Parts(FROZEN))
    assert ran()[0] == 3


@both_ways
def test_it_can_be_differentiated_again(logs, way):
    plant_block(logs, FROZEN)
    assert_differentiable_again(Parts(FROZEN), drawn())


def test_compiled_it_is_one_op_of_the_graph(logs):
    plant_block(logs, FROZEN)
    assert_compiled_is_one_op(Parts(FROZEN), drawn())


@both_ways
@pytest.mark.parametrize("block", [FROZEN, "bn+relu6,frozen+relu6"])
def test_what_is_made_of_the_result_in_place_changes_no_gradient(logs, block, way):
    """PyTorch's ReLU6 keeps what it is given: its result may be changed. Then z is computed once more."""
    plant_block(logs, block)
    model, x = Parts(block), drawn()
    exact, given = in_double(model), x.detach().double().requires_grad_()
    for _ in range(2):
        found, wanted = (
            torch.autograd.grad(each(leaf).mul_(3.0).sub_(1.0).square().sum(), [leaf, *each.parameters()])
            for each, leaf in ((model, x), (exact, given))
        )
        for got, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(got.double(), right, rtol=1e-3, atol=1e-3 * float(right.abs().max()))
    assert ran()[0] >= 2
