"""The parts of a stage that no other rank is needed for: its edges, its gradients, the statistics of its layers."""

from __future__ import annotations

import contextlib
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dwconv
from dwconv.errors import NoPlan
from dwconv.parallel.joining import ranks
from dwconv.parallel.pipeline.pipeline import Pipeline
from dwconv.parallel.pipeline.running_stage import Boundary, StageGradients, StageModule
from dwconv.parallel.pipeline.stages import check_runs, check_splits, synchronise_batch_norms
from tests.parallel.made_up_layers import plan_of
from tests.parallel.ranks import needs_gloo

pytestmark = needs_gloo


@pytest.mark.parametrize("channels_last", [False, True])
def test_what_passes_a_boundary_is_dense_both_ways_and_no_view(channels_last):
    form = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.randn(2, 3, 4, 5).to(memory_format=form)
    boundary = Boundary.like(x)
    before, after = StageModule([], received=None, sent=boundary), StageModule([], received=boundary, sent=None)
    leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
    sent = before(leaf)
    assert sent.is_contiguous() and sent.shape == boundary.sent.shape and not sent._is_view()
    received = sent.detach().requires_grad_()
    result = after(received)
    assert result.stride() == x.stride() and torch.equal(result, x)
    nn.functional.relu(result, inplace=True)  # as the first layer of a stage may
    # A layer may give its gradient in another order in memory than what it read.
    other = torch.contiguous_format if channels_last else torch.channels_last
    found = torch.randn(x.shape).to(memory_format=other)
    (grad,) = torch.autograd.grad(after(received), received, found)
    assert grad.is_contiguous()
    sent.backward(grad)
    assert torch.equal(leaf.grad, found)


def test_tensors_are_sent_in_the_layout_of_the_boundary():
    x = torch.randn(2, 3, 4, 5)
    boundary = Boundary.like(x.to(memory_format=torch.channels_last))
    assert torch.equal(StageModule([], received=None, sent=boundary)(x), x.permute(0, 2, 3, 1).contiguous())
    assert StageModule([], received=None, sent=boundary)(x).is_contiguous()


def test_gradients_are_the_mean_over_microbatches_and_lie_as_their_parameters():
    weights = [
        nn.Parameter(torch.zeros(4, 3, 2, 2).to(memory_format=torch.channels_last)),
        nn.Parameter(torch.zeros(5)),
        nn.Parameter(torch.zeros(2, dtype=torch.float64)),
    ]
    unused = nn.Parameter(torch.zeros(3))
    sums = [torch.randn_like(weight) for weight in weights]
    for weight, total in zip(weights, sums, strict=True):
        weight.grad = total.clone()
    gradients = StageGradients([*weights, unused], group=None, divisor=4)
    before_s = time.perf_counter()
    gradients.start()
    times = gradients.finish()
    assert before_s <= times.started_s == times.ended_s <= times.started_s + times.waited_s <= time.perf_counter()
    for weight, total in zip(weights, sums, strict=True):
        assert torch.equal(weight.grad, total / 4) and weight.grad.stride() == weight.stride()
    assert unused.grad is None


def test_batch_normalisation_over_one_replica_is_pytorchs():
    x = 3 + torch.randn(4, 6, 5, 5)
    norms = [nn.Sequential(nn.BatchNorm2d(6), nn.BatchNorm2d(6, momentum=None, affine=False)) for _ in range(2)]
    with ranks():
        norms[1] = synchronise_batch_norms(norms[1], dist.group.WORLD)
        assert not any(isinstance(module, nn.BatchNorm2d) for module in norms[1].modules())
        results = [norm(x) for norm in norms for _ in range(2)]
        torch.testing.assert_close(results[2:], results[:2])
        for norm in norms:
            norm.eval()
        torch.testing.assert_close(norms[1](x), norms[0](x))
    torch.testing.assert_close(norms[1].state_dict(), norms[0].state_dict())


def test_what_does_not_fit_a_pipeline_is_one_line():
    model, x, target = (
        nn.Sequential(nn.Flatten(), nn.Linear(12, 3)),
        torch.randn(4, 3, 2, 2),
        torch.tensor([0, 1, 2, 0]),
    )
    loss = nn.functional.cross_entropy
    with ranks():
        pipeline = Pipeline(model, plan_of([2]), loss=loss, example=x)
        assert pipeline.step(x, target) == pytest.approx(float(loss(model(x), target).detach()))
        for given, said in (
            ((x[:2], target), "x of shape"),
            ((x, target[:2]), "2 targets"),
            ((x, None), "None targets"),
        ):
            with pytest.raises(NoPlan, match=said):
                pipeline.step(*given)
        for plan, said in (
            (plan_of([2], replicas=2), "for 2 ranks, and 1 run"),
            (plan_of([3]), "for 3 layers, and the model has 2"),
            (plan_of([2], microbatches=3), "not divisible by 3 microbatches"),
        ):
            with pytest.raises(NoPlan, match=said):
                Pipeline(model, plan, loss=loss, example=x)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (plan_of([2, 4], schedule="fifo"), "schedule=fifo is unknown"),
        (plan_of([2, 4], schedule="1f1b", microbatches=1), "1 are fewer than 2; use a multiple of 2, or gpipe"),
        (plan_of([1, 2, 4], schedule="zero-bubble", microbatches=7), "does not come out even"),
        (plan_of([1, 2, 3, 4], schedule="1f1b", stages_per_rank=2), "1f1b runs one stage a rank, not 2"),
        (plan_of([2, 2]), "do not hold each"),
    ],
)
def test_plans_that_cannot_be_run_are_one_line(plan, said):
    with pytest.raises(NoPlan, match=said):
        check_runs(plan)


@pytest.mark.parametrize(("version", "refused"), [("2.11.0+cu130", True), ("2.12.1", True), ("2.13.0", False)])
def test_a_backward_pass_that_pytorch_cannot_split_is_refused(monkeypatch, version, refused):
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))
    plan = plan_of([1, 2], schedule="zero-bubble")
    check_splits(plan, nn.Conv2d(8, 8, 3, groups=8))
    model = dwconv.convert(nn.Sequential(nn.Conv2d(8, 8, 3, groups=8)))
    check_splits(plan_of([1, 2], schedule="1f1b"), model)
    with pytest.raises(NoPlan, match=r"needs PyTorch 2\.13 .* use 1f1b") if refused else contextlib.nullcontext():
        check_splits(plan, model)
