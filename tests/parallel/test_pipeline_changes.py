"""Pipeline where ranks differ, or change their mind: seeds, layers that are frozen later, losses, other models, state.

One run on two ranks makes all of it; the tests look at what each rank found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dwconv.errors import DwconvError
from dwconv.parallel.data.replicas import data_parallel
from dwconv.parallel.pipeline.pipeline import Pipeline
from dwconv.parallel.planning.pieces import pieces
from tests.parallel.made_up_layers import plan_of
from tests.parallel.ranks import Ranks, needs_gloo

pytestmark = [pytest.mark.usefixtures("threads_as_asked"), needs_gloo]
X, TARGET = torch.linspace(-1, 1, 8 * 6).view(8, 6), torch.arange(8) % 3
MICROBATCHES = 2


class Masks(nn.Dropout):
    """Keeps the masks that it drew."""

    def __init__(self) -> None:
        super().__init__(0.5)
        self.drawn: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.drawn.append(super().forward(torch.ones_like(x)).detach())
        return x * self.drawn[-1]


class Odd(nn.Module):
    """A weight under two names, a parameter that gets no gradient, a layer that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.again = nn.Linear(6, 6)
        self.again.weight = self.first.weight
        self.middle = nn.Linear(6, 6)
        self.shift = nn.Parameter(torch.ones(6))
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(torch.relu(self.first(x))) + self.shift.detach()
        return self.head(torch.relu(self.middle(x)))


def pipeline_of(model: nn.Module, *, replicas: int = 1, stages: int = 1, schedule: str = "1f1b", **options: Any) -> Any:
    layers = len(pieces(model, X[:2]))
    plan = plan_of(
        [layers * (stage + 1) // stages for stage in range(stages)],
        replicas=replicas,
        schedule=schedule,
        microbatches=MICROBATCHES,
    )
    return Pipeline(
        model, plan, **{"loss": nn.functional.cross_entropy, **options}, example=X[: len(X) // replicas], timeout_s=300
    )


def step(pipeline: Pipeline) -> float:
    return pipeline.step(pipeline.share(X), pipeline.share(TARGET))


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    return {name: None if each.grad is None else each.grad.clone() for name, each in model.named_parameters()}


def error_of(function: Callable[[], Any]) -> str:
    try:
        function()
    except DwconvError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def on_a_rank() -> dict[str, Any]:
    """On each of two ranks."""
    rank = torch.distributed.get_rank()
    found: dict[str, Any] = {}
    torch.manual_seed(rank)
    model = Odd()
    for each in model.middle.parameters():
        each.requires_grad_(False)
    found["before"] = model.state_dict()["head.weight"].clone()
    pipeline = pipeline_of(model, replicas=2)
    found["state"] = pipeline.state_dict()
    step(pipeline)
    found["middle is frozen"] = gradients(model)
    for each in model.middle.parameters():
        each.requires_grad_(True)
    found["loss"] = step(pipeline)
    found["all is trained"] = gradients(model)
    for each in model.first.parameters():
        each.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    step(pipeline)
    optimizer.step()
    found["first is frozen"] = gradients(model)
    found["moved"] = pipeline.state_dict()
    with torch.no_grad():
        for each in model.state_dict().values():
            each.add_(1)  # those of layers that never run, too
    pipeline.load_state_dict(found["state"])
    found["loaded"] = pipeline.state_dict()
    found["another's state"] = error_of(lambda: pipeline.load_state_dict({**found["state"], "tail.bias": X}))
    found["a part of the state"] = error_of(lambda: pipeline.load_state_dict({"head.bias": X}))

    torch.manual_seed(7)
    summed = Odd()
    pipeline = pipeline_of(summed, replicas=2, loss=nn.CrossEntropyLoss(reduction="sum"))
    found["sum"] = step(pipeline), gradients(summed)
    by_mean, by_sum = nn.functional.cross_entropy, nn.CrossEntropyLoss(reduction="sum")
    found["a sum that says nothing"] = error_of(
        lambda: step(pipeline_of(Odd(), replicas=2, loss=lambda y, target: by_sum(y, target)))
    )
    weight = torch.tensor([1.0, 2.0, 30.0])
    weighted = nn.CrossEntropyLoss(weight=weight)
    found["weights"] = error_of(lambda: step(pipeline_of(Odd(), replicas=2, loss=weighted)))
    found["weights, as told"] = error_of(lambda: step(pipeline_of(Odd(), replicas=2, loss=weighted, reduction="mean")))
    found["no number"] = error_of(lambda: pipeline_of(Odd(), loss=nn.CrossEntropyLoss(reduction="none"), replicas=2))
    other = Odd() if rank else nn.Sequential(nn.Linear(6, 3))
    found["other model"] = error_of(lambda: pipeline_of(other, replicas=2))
    found["other plan"] = error_of(lambda: pipeline_of(Odd(), stages=2, loss=by_mean if rank else by_sum))
    found["other model, data parallel"] = error_of(lambda: data_parallel(other))

    for name, options in (("replicas", {"replicas": 2}), ("stages", {"stages": 2})):
        masks = [Masks(), Masks()]
        pipeline = pipeline_of(nn.Sequential(masks[0], nn.Linear(6, 6), masks[1], nn.Linear(6, 3)), **options)
        drawn = []
        for _ in range(2):
            torch.manual_seed(3)
            masks[0].drawn.clear(), masks[1].drawn.clear()
            step(pipeline)
            drawn.append(torch.stack([*masks[0].drawn, *masks[1].drawn]))
        found[f"masks of {name}"] = (*drawn, torch.rand(2))

    for schedule in ("1f1b", "zero-bubble"):
        for name, trained in EDGES:
            torch.manual_seed(0)
            model = edge(trained)
            loss = step(pipeline_of(model, stages=2, schedule=schedule))
            found[f"{name}, {schedule}"] = loss, gradients(model)
    return found


EDGES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("a first stage without parameters", (3, 5)),
    ("a first stage that is frozen", (5,)),
    ("a second stage that is frozen", (1,)),
    ("a second stage that is frozen in part", (1, 3)),
)


def edge(trained: tuple[int, ...]) -> nn.Sequential:
    """Six layers, of which three are one stage."""
    if 1 not in trained and 3 in trained:
        model = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Flatten(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    else:
        model = nn.Sequential(nn.Tanh(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    for number, layer in enumerate(model):
        for each in layer.parameters():
            each.requires_grad_(number in trained)
    return model


@pytest.fixture(scope="module")
def found(two_ranks: Ranks) -> list[dict[str, Any]]:
    return two_ranks.run(on_a_rank)


def of_one_process(model: nn.Module, *, reduction: str = "mean") -> tuple[float, dict[str, Tensor | None]]:
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(X), TARGET, reduction=reduction)
    loss.backward()
    return float(loss.detach()), gradients(model)


def odd_with(state: dict[str, Tensor], frozen: str = "") -> Odd:
    model = Odd()
    model.load_state_dict(state)
    for name, each in model.named_parameters():
        each.requires_grad_(not frozen or not name.startswith(frozen))
    return model


def check(gradients: dict[str, Tensor | None], expected: dict[str, Tensor | None]) -> None:
    assert gradients.keys() == expected.keys()
    for name, each in expected.items():
        assert (gradients[name] is None) == (each is None), name
        if each is not None:
            torch.testing.assert_close(gradients[name], each, msg=name)


def test_layers_are_frozen_and_unfrozen_between_steps(found):
    for rank in found:
        state = rank["state"]
        check(rank["middle is frozen"], of_one_process(odd_with(state, "middle"))[1])
        loss, expected = of_one_process(odd_with(state))
        assert rank["loss"] == pytest.approx(loss)
        check(rank["all is trained"], expected)
        assert expected["shift"] is None and expected["unused.weight"] is None
        check(rank["first is frozen"], of_one_process(odd_with(state, "first"))[1])
        for name, tensor in rank["moved"].items():
            kept = name.startswith(("first", "again.weight", "shift", "unused"))
            assert torch.equal(tensor, state[name]) == kept, name  # weight decay moves what has a gradient of 0


def test_the_state_is_the_whole_models(found):
    """Replicas start as the first, whatever they were seeded with."""
    whole = Odd().state_dict()
    assert not torch.equal(found[0]["before"], found[1]["before"])
    assert torch.equal(found[0]["state"]["head.weight"], found[0]["before"])
    for rank in found:
        assert list(rank["state"]) == list(whole)
        for name, tensor in rank["state"].items():
            assert torch.equal(rank["loaded"][name], tensor) and torch.equal(found[0]["state"][name], tensor), name
        assert rank["another's state"] == (
            "NoPlan: the state has tail.bias, which the model lacks; load that of the same model"
        )
        assert rank["a part of the state"].startswith("NoPlan: the state lacks again.bias, again.weight, first.bias")


def test_a_sum_over_images_is_not_divided(found):
    torch.manual_seed(7)
    loss, expected = of_one_process(Odd(), reduction="sum")
    for rank in found:
        assert rank["sum"][0] == pytest.approx(loss)
        check(rank["sum"][1], expected)


def test_a_loss_that_is_no_mean_is_refused_in_the_first_step_unless_the_user_says_what_it_is(found):
    for rank in found:
        assert 'give reduction="mean" or "sum"' in rank["a sum that says nothing"]
        assert "gradients would differ from those of one process" in rank["weights"]
        assert not rank["weights, as told"]
        assert rank["no number"].startswith("NoPlan: reduction=none is none of mean, sum")


def test_ranks_with_other_models_end_with_one_line_each(found):
    for rank in found:
        for what in ("other model", "other model, data parallel"):
            assert rank[what] == (
                "InvalidWorkload: rank 1 has shift of float32 (6,) where rank 0 has 0.weight of float32 (3, 6); "
                "give every rank the same model and plan"
            )
        assert (
            "rank 1 has 1f1b on 2 × 1 ranks of 2 microbatches, their mean, stages that end at layers"
            in rank["other plan"]
        )


@pytest.mark.parametrize("name", ["replicas", "stages"])
def test_ranks_that_were_seeded_alike_draw_other_masks(found, name):
    (masks, again, after), (others, _, after_others) = (rank[f"masks of {name}"] for rank in found)
    assert torch.equal(masks, again) and torch.equal(after, after_others)
    assert masks.shape == others.shape and not any(torch.equal(*pair) for pair in zip(masks, others, strict=True))


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
@pytest.mark.parametrize(("name", "trained"), EDGES)
def test_stages_where_nothing_or_little_is_trained(found, name, trained, schedule):
    torch.manual_seed(0)
    loss, expected = of_one_process(edge(trained))
    together: dict[str, Tensor | None] = {}
    for rank, stage in zip(found, ((0, 1, 2), (3, 4, 5)), strict=True):
        assert rank[f"{name}, {schedule}"][0] == pytest.approx(loss)
        of_rank = rank[f"{name}, {schedule}"][1]
        together |= {key: each for key, each in of_rank.items() if int(key.partition(".")[0]) in stage}
    check(together, expected)
