"""Pipeline: what it trains, whatever the schedule, is what one process trains with the same microbatches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import dwconv
from dwconv.parallel.pipeline.pipeline import BatchNorm, Pipeline
from dwconv.parallel.planning.plan import Plan
from tests.parallel.made_up_layers import plan_of
from tests.parallel.ranks import Ranks, needs_gloo
from tests.parallel.small_models import SmallMobileNet, SmallResNet

pytestmark = [pytest.mark.usefixtures("threads_as_asked"), needs_gloo]
STEPS, BATCH = 3, 16


def converted_mobile_net() -> nn.Module:
    """Its depthwise layer is dwconv's, whose two gradients a schedule may ask for apart."""
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
    batch_norm: BatchNorm = "microbatch"

    @property
    def replicas(self) -> int:
        return self.plan.stages[0].replicas

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
    "synchronised": Case(make=SmallResNet, plan=plan_of([9], replicas=2), batch_norm="synchronised"),
}
if torch.__version__ < "2.13":
    del ON_2["zero-bubble, depthwise, channels_last"]  # which is refused
ON_4 = {
    "1f1b": Case(make=SmallResNet, plan=plan_of([4, 9], schedule="1f1b", replicas=2)),
    "interleaved": Case(
        make=SmallResNet, plan=plan_of([2, 4, 6, 9], schedule="interleaved", stages_per_rank=2, replicas=2)
    ),
    "zero-bubble, synchronised": Case(
        make=SmallResNet, plan=plan_of([5, 9], schedule="zero-bubble", replicas=2), batch_norm="synchronised"
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
        batch_norm=case.batch_norm,
        timeout_s=60,
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
    """Those that batch normalisation sees, whole."""
    shares = [share.chunk(case.plan.microbatches) for share in batch.chunk(case.replicas)]
    if case.batch_norm == "synchronised":
        return [torch.cat(parts) for parts in zip(*shares, strict=True)]
    return [part for share in shares for part in share]


def check(trained: list[Trained], case: Case) -> None:
    expected = _trained_by_one_process(case)
    for rank, each in enumerate(trained):
        torch.testing.assert_close(each.losses, expected.losses, rtol=1e-5, atol=1e-5)
        assert list(each.state) == list(expected.state), f"rank {rank}"
        for name, tensor in each.state.items():
            # Where replicas normalise alone, each has seen its own images only.
            if case.replicas == 1 or case.batch_norm == "synchronised" or not _is_statistic(name):
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


@pytest.mark.slow
def test_four_ranks_train_as_one_process(four_ranks):
    for name, trained in _on(four_ranks, ON_4).items():
        check(trained, ON_4[name])
