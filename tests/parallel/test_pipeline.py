"""Pipeline: what it trains, whatever the schedule, is what one process trains with the same microbatches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import dwconv
from dwconv.errors import NoPlan
from dwconv.parallel.joining import ranks
from dwconv.parallel.pipeline.batch_loss import BatchLoss
from dwconv.parallel.pipeline.pipeline import Pipeline
from dwconv.parallel.pipeline.running_stage import Boundary, StageModule
from dwconv.parallel.pipeline.stage_gradients import StageGradients
from dwconv.parallel.pipeline.stages import check_runs, check_splits
from dwconv.parallel.planning.pipeline_plan import Plan
from tests.parallel.made_up_layers import plan_of, uneven
from tests.parallel.ranks import Ranks, needs_gloo
from tests.parallel.small_models import SmallMobileNet, SmallResNet

pytestmark = [pytest.mark.usefixtures("threads_as_asked"), needs_gloo]

STEPS, BATCH = 3, 16


def converted_mobile_net() -> nn.Module:
    """Its depthwise layer is dwconv's, whose two gradients a schedule may compute apart."""
    return dwconv.convert(SmallMobileNet())


def layers_alone() -> nn.Module:
    """Ends a stage with a view."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 5)
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, and how it is trained."""

    make: Callable[[], nn.Module]
    plan: Plan
    channels_last: bool = False
    sync_bn: bool = False

    @property
    def replicas(self) -> int:
        """Of the first stage."""
        return self.plan.replicas

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        model = self.make()
        return model.to(memory_format=torch.channels_last) if self.channels_last else model

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        torch.manual_seed(1)
        form = torch.channels_last if self.channels_last else torch.contiguous_format
        return [
            (torch.randn(BATCH, 3, 8, 8).to(memory_format=form), torch.randint(0, 5, (BATCH,))) for _ in range(STEPS)
        ]


ON_2 = {
    "gpipe": Case(make=SmallResNet, plan=plan_of([4, 9], schedule="gpipe")),
    "1f1b, uneven, channels_last": Case(make=SmallResNet, plan=plan_of([8, 9], schedule="1f1b"), channels_last=True),
    "interleaved": Case(make=SmallResNet, plan=plan_of([2, 4, 6, 9], schedule="interleaved", stages_per_rank=2)),
    "zero-bubble": Case(make=SmallResNet, plan=plan_of([5, 9], schedule="zero-bubble")),
    "zero-bubble, view": Case(make=layers_alone, plan=plan_of([3, 4], schedule="zero-bubble")),
    "zero-bubble, depthwise, channels_last": Case(
        make=converted_mobile_net, plan=plan_of([3, 6], schedule="zero-bubble"), channels_last=True
    ),
    "one stage, 2 replicas": Case(make=SmallResNet, plan=plan_of([9], replicas=2)),
    "sync_bn": Case(make=SmallResNet, plan=plan_of([9], replicas=2), sync_bn=True),
    "sync_bn, channels_last": Case(make=SmallResNet, plan=plan_of([9], replicas=2), channels_last=True, sync_bn=True),
}
if torch.__version__ < "2.13":
    del ON_2["zero-bubble, depthwise, channels_last"]  # which is refused
ON_3 = {
    "1f1b, 2 + 1": Case(make=SmallResNet, plan=uneven([5, 9], [2, 1], schedule="1f1b"), channels_last=True),
    "gpipe, 1 + 2": Case(make=SmallResNet, plan=uneven([5, 9], [1, 2], schedule="gpipe", microbatches=8)),
    "1f1b, 1 + 2, sync_bn": Case(
        make=layers_alone, plan=uneven([1, 4], [1, 2], schedule="1f1b", microbatches=8), sync_bn=True
    ),
    "zero-bubble, 1 + 2": Case(
        make=SmallMobileNet, plan=uneven([3, 6], [1, 2], schedule="zero-bubble", microbatches=8), channels_last=True
    ),
}
ON_4 = {
    "2 + 1 + 1": Case(make=SmallResNet, plan=uneven([4, 6, 9], [2, 1, 1], schedule="1f1b")),
    "zero-bubble, 1 + 2 + 1": Case(
        make=SmallResNet, plan=uneven([4, 6, 9], [1, 2, 1], schedule="zero-bubble", microbatches=8)
    ),
    "3 + 1": Case(make=SmallMobileNet, plan=uneven([3, 6], [1, 3], schedule="1f1b", microbatches=8)),
    "1f1b": Case(make=SmallResNet, plan=plan_of([4, 9], schedule="1f1b", replicas=2)),
    "zero-bubble": Case(make=SmallResNet, plan=plan_of([5, 9], schedule="zero-bubble", replicas=2)),
    "zero-bubble, sync_bn": Case(
        make=SmallResNet, plan=plan_of([5, 9], schedule="zero-bubble", replicas=2), sync_bn=True
    ),
    "4 stages": Case(make=SmallResNet, plan=plan_of([2, 4, 6, 9], schedule="zero-bubble", microbatches=8)),
}


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What came out."""

    losses: list[float]
    state: dict[str, Tensor]


def trained_by(cases: dict[str, Case]) -> dict[str, Trained]:
    """On one rank, all cases in turn."""
    return {name: _trained_by_pipeline(case) for name, case in cases.items()}


def _trained_by_pipeline(case: Case) -> Trained:
    batches = case.batches()
    pipeline = Pipeline(
        case.model(),
        case.plan,
        loss=nn.functional.cross_entropy,
        example=batches[0][0][: BATCH // case.replicas],
        timeout_s=300,
        sync_bn=case.sync_bn,
    )
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x, target in batches:
        losses.append(pipeline.step(pipeline.share(x), pipeline.share(target)))
        optimizer.step()
    return Trained(losses=losses, state=pipeline.state_dict())


def _trained_by_one_process(case: Case) -> Trained:
    model = case.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x, target in case.batches():
        optimizer.zero_grad()
        groups = list(zip(_microbatches(case, x), _microbatches(case, target), strict=True))
        total = torch.zeros(())
        for part, expected in groups:
            loss = nn.functional.cross_entropy(model(part), expected) / len(groups)
            loss.backward()
            total += loss.detach()
        optimizer.step()
        losses.append(float(total))
    return Trained(losses=losses, state=model.state_dict())


def _microbatches(case: Case, batch: Tensor) -> list[Tensor]:
    """Those that batch normalisation sees, whole: with ``sync_bn`` one of each replica."""
    shares = [share.chunk(case.plan.microbatches) for share in batch.chunk(case.replicas)]
    parts = [part for parts in zip(*shares, strict=True) for part in parts]
    together = max(case.plan.counts) if case.sync_bn else 1
    return [torch.cat(parts[first : first + together]) for first in range(0, len(parts), together)]


def check(trained: list[Trained], case: Case) -> None:
    expected = _trained_by_one_process(case)
    for rank, each in enumerate(trained):
        torch.testing.assert_close(each.losses, expected.losses, rtol=1e-5, atol=1e-5)
        assert list(each.state) == list(expected.state), f"rank {rank}"
        for name, tensor in each.state.items():
            # Where replicas normalise alone, each has seen its own images only.
            if set(case.plan.counts) == {1} or case.sync_bn or not _is_statistic(name):
                torch.testing.assert_close(
                    tensor, expected.state[name], rtol=1e-4, atol=1e-5, msg=f"rank {rank}: {name}"
                )


def _is_statistic(name: str) -> bool:
    return name.endswith(("running_mean", "running_var", "num_batches_tracked"))


@pytest.fixture(scope="module")
def trained_on_2(two_ranks: Ranks) -> dict[str, list[Trained]]:
    return _on(two_ranks, ON_2)


def _on(together: Ranks, cases: dict[str, Case]) -> dict[str, list[Trained]]:
    """By case, what each rank has."""
    answers = together.run(trained_by, cases)
    return {name: [answer[name] for answer in answers] for name in cases}


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op")
@pytest.mark.parametrize("name", ON_2)
def test_two_ranks_train_as_one_process(trained_on_2, name):
    check(trained_on_2[name], ON_2[name])


@pytest.fixture(scope="module")
def trained_on_3(three_ranks: Ranks) -> dict[str, list[Trained]]:
    return _on(three_ranks, ON_3)


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op")
@pytest.mark.parametrize("name", ON_3)
def test_stages_with_other_numbers_of_replicas_train_as_one_process(trained_on_3, name):
    check(trained_on_3[name], ON_3[name])


@pytest.mark.slow
def test_four_ranks_train_as_one_process(four_ranks):
    for name, trained in _on(four_ranks, ON_4).items():
        check(trained, ON_4[name])


# -- the parts of a stage that no other rank is needed for -------------------------------------------------------------


@pytest.mark.parametrize("channels_last", [False, True])
def test_what_passes_a_boundary_is_dense_both_ways_and_no_view(channels_last):
    form = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.randn(2, 3, 4, 5).to(memory_format=form)
    boundary = Boundary.like(x)
    before, after = StageModule([], received=None, sent=boundary), StageModule([], received=boundary, sent=None)
    leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
    sent = before(leaf)
    assert sent.is_contiguous() and sent.shape == boundary.buffer(x.device).shape and not sent._is_view()
    other = torch.contiguous_format if channels_last else torch.channels_last
    assert torch.equal(before(x.contiguous(memory_format=other)), sent)  # whatever the layout that a layer gives
    received = sent.detach().requires_grad_()
    result = after(received)
    assert result.stride() == x.stride() and torch.equal(result, x)
    nn.functional.relu(result, inplace=True)  # as the first layer of a stage may
    # A layer may give its gradient in another order in memory than what it read.
    found = torch.randn(x.shape).to(memory_format=other)
    (grad,) = torch.autograd.grad(after(received), received, found)
    assert grad.is_contiguous()
    sent.backward(grad)
    assert torch.equal(leaf.grad, found)


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
    with gradients.last_backward():
        pass
    assert gradients.finish() >= 0
    for weight, total in zip(weights, sums, strict=True):
        assert torch.equal(weight.grad, total / 4) and weight.grad.stride() == weight.stride()
    assert unused.grad is None


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
        with pytest.raises(NoPlan, match=r"sync_bn: 3 microbatches are not divisible by .* 1 \+ 2"):
            Pipeline(model, uneven([1, 2], [1, 2], microbatches=3), loss=loss, example=x, sync_bn=True)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (plan_of([2, 4], schedule="fifo"), "schedule=fifo is unknown"),
        (plan_of([2, 4], schedule="1f1b", microbatches=1), "1 are fewer than 2; use a multiple of 2, or gpipe"),
        (plan_of([1, 2, 4], schedule="zero-bubble", microbatches=7), "does not divide evenly"),
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


# -- the loss of a batch -----------------------------------------------------------------------------------------------


def flaw_of(loss: Callable[[Tensor, Tensor], Tensor], *, dtype: torch.dtype, images: int = 64) -> str:
    """What is wrong with a loss that says nothing of itself, after a step of four microbatches."""
    torch.manual_seed(0)
    outputs, targets = (torch.randn(images, 10) + 3).to(dtype), torch.randint(0, 10, (images,))
    checked = BatchLoss(loss, None)
    for part in zip(outputs.chunk(4), targets.chunk(4), strict=True):
        checked(*part)
    return checked.flaw()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("images", [64, 60])
def test_rounding_is_no_flaw_of_a_loss_and_a_sum_is(dtype, images):
    """Sums in 16 bits round at the second digit."""

    def summed(output: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(output, target, reduction="sum")

    assert not flaw_of(lambda *of: nn.functional.cross_entropy(*of), dtype=dtype, images=images)
    assert not flaw_of(lambda y, _: y.square().mean(), dtype=dtype, images=images)
    assert "gradients would differ" in flaw_of(summed, dtype=dtype, images=images)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_loss_that_is_off_by_a_thousandth_is_a_flaw(dtype):
    """A weight of images that differ: gradients would be those of another loss."""

    def nearly(output: Tensor, target: Tensor) -> Tensor:
        weights = torch.linspace(1, 1.02, len(output), dtype=output.dtype)
        return (weights * output[:, 0]).sum() / len(output) * (1 + 0.004 * len(output) / 64)

    assert "gradients would differ" in flaw_of(nearly, dtype=dtype)


def test_a_loss_of_zero_is_no_flaw():
    assert not flaw_of(lambda y, _: (y * 0).mean(), dtype=torch.float32)
    assert not flaw_of(lambda y, _: (y * 1e-9).sum() - (y.detach() * 1e-9).sum(), dtype=torch.float32)
