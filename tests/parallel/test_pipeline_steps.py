"""What a step of a pipeline does when: gradients are sent inside the backward pass, and its timeline holds together."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dwconv.errors import StageFailed
from dwconv.parallel import Communication
from dwconv.parallel.joining import ranks
from dwconv.parallel.pipeline.pipeline import Pipeline
from dwconv.parallel.pipeline.spans import RankStep, Span, Step, events
from dwconv.parallel.pipeline.stage_gradients import StageGradients
from dwconv.parallel.pipeline.stages import make_grid
from dwconv.parallel.planning.trace_events import trace
from tests.parallel.made_up_layers import plan_of, uneven
from tests.parallel.ranks import Ranks, needs_gloo

pytestmark = [pytest.mark.usefixtures("threads_as_asked"), needs_gloo]
X, TARGET = torch.linspace(-1, 1, 16 * 6).view(16, 6), torch.arange(16) % 3
BUCKET_MB = 64 / 2**20
"""Of one layer: each weight of ``layers()`` is larger."""
WAYS = [
    Communication(collective="reduce-scatter", bucket_mb=BUCKET_MB),
    Communication(collective="reduce-broadcast", bucket_mb=BUCKET_MB),
    Communication(collective="redundant", bucket_mb=BUCKET_MB),
    Communication(collective="after-backward", bucket_mb=BUCKET_MB),
    Communication(bucket_mb=BUCKET_MB, compressed=True),
]
ONE_BY_ONE = Communication(bucket_mb=1 / 2**20)
PLANS = {
    "replicas": plan_of([5], replicas=2),
    "replicas, zero-bubble": plan_of([5], replicas=2, schedule="zero-bubble"),
    "2 + 1": uneven([3, 5], [2, 1]),
    "2 + 1, zero-bubble": uneven([3, 5], [2, 1], schedule="zero-bubble"),
    "1 + 2, zero-bubble": uneven([3, 5], [1, 2], schedule="zero-bubble"),
}


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))


def steps(name: str, way: Communication | None = Communication(bucket_mb=BUCKET_MB)) -> list[dict[str, Any]]:  # noqa: B008
    """Two steps on a rank: what it did in each, the timeline of all, and its gradients. ``way``: None to measure."""
    plan, model = PLANS[name], layers()
    pipeline = Pipeline(
        model, plan, loss=nn.functional.cross_entropy, example=X[: len(X) // plan.replicas], communication=way,
        measure_s=0.5, timeout_s=300,
    )  # fmt: skip
    found = []
    for watches in (False, True):
        pipeline.step(pipeline.share(X), pipeline.share(TARGET), watches=watches)
        assert pipeline.times is not None
        found.append(
            {
                "spans": pipeline.times.spans,
                "exposed_s": pipeline.times.exposed_s,
                "step_s": pipeline.times.step_s,
                "events": pipeline.timeline(),
                "ways": pipeline.ways,
                "gradients": {key: each.grad for key, each in model.named_parameters() if each.grad is not None},
            }
        )
    return found


def expected_gradients() -> dict[str, Tensor]:
    model = layers()
    nn.functional.cross_entropy(model(X), TARGET).backward()
    return {key: each.grad for key, each in model.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("name", PLANS)
def test_buckets_are_sent_inside_the_last_backward_pass(two_ranks: Ranks, three_ranks: Ranks, name: str):
    """From the second step on, in the order in which gradients arrive: that of the last layer first."""
    plan = PLANS[name]
    found = (two_ranks if plan.world == 2 else three_ranks).run(steps, name)
    expected = expected_gradients()
    for rank, (first, second) in enumerate(found):
        group, _ = plan.place(rank)
        own = plan.stages[group]
        for step in (first, second):
            assert 0 <= step["exposed_s"] <= step["step_s"]
            for key, gradient in step["gradients"].items():
                if own.first <= int(key.partition(".")[0]) < own.last:
                    torch.testing.assert_close(gradient, expected[key], msg=f"rank {rank}: {key}")
        if plan.counts[group] == 1:
            assert not sums(first) and not sums(second)
            continue
        assert len(sums(first)) == 1 and sums(first)[0].start_s > last_pass(first).end_s
        weights = sum(number in (0, 2, 4) for number in range(own.first, own.last))
        buckets = sums(second)
        assert len(buckets) >= weights
        inside = [each for each in buckets if each.start_s < last_pass(second).end_s]
        assert len(inside) == len(buckets) and buckets[0].start_s > last_pass(second).start_s
        assert all(one.start_s <= other.start_s for one, other in itertools.pairwise(buckets))


def sums(step: dict[str, Any]) -> list[Span]:
    return [span for span in step["spans"] if span.work == "reduce"]


def last_pass(step: dict[str, Any]) -> Span:
    return max(
        (span for span in step["spans"] if span.work in ("backward", "wgrad")), key=lambda span: span.start_s
    )  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_gradients_take_the_ways_of_data_parallelism(two_ranks: Ranks, way: Communication):
    """To the same bits on both ranks."""
    found, expected = two_ranks.run(steps, "replicas", way), expected_gradients()
    exact = {"rtol": 5e-2, "atol": 5e-3} if way.compressed else {"rtol": 1e-5, "atol": 1e-6}
    for number in (0, 1):
        for key, gradient in expected.items():
            one, other = (rank[number]["gradients"][key] for rank in found)
            assert torch.equal(one, other), key
            torch.testing.assert_close(one, gradient, **exact, msg=key)
        assert found[0][number]["ways"] == {0: way}
    ended = last_pass(found[0][1]).end_s
    late = [span.start_s > ended for span in sums(found[0][1])]
    assert late and not any(late)  # noted when buckets are full


def test_each_stage_measures_its_way(three_ranks: Ranks):
    found = three_ranks.run(steps, "2 + 1", None)
    assert found[0][1]["ways"] == found[1][1]["ways"] and [*found[0][1]["ways"]] == [0] and found[2][1]["ways"] == {}
    assert isinstance(found[0][1]["ways"][0], Communication)
    for key, gradient in expected_gradients().items():
        stage = 0 if int(key.partition(".")[0]) < 3 else 2
        torch.testing.assert_close(found[stage][1]["gradients"][key], gradient, msg=key)


@pytest.mark.parametrize("name", ["2 + 1", "1 + 2, zero-bubble"])
def test_the_timeline_of_a_step_holds_together(three_ranks: Ranks, name: str):
    """Every rank has the same: each microbatch passes each stage, nothing is received before it was sent, and a rank
    computes one thing at a time."""
    plan = PLANS[name]
    found = three_ranks.run(steps, name)
    for number in (0, 1):
        timeline = found[0][number]["events"]
        assert all(rank[number]["events"] == timeline for rank in found)
        forward = {(each.stage, each.microbatch): each for each in timeline if each.what == "forward"}
        assert forward.keys() == set(itertools.product(range(2), range(plan.parts)))
        for (stage, microbatch), each in forward.items():
            assert each.rank == plan.rank_of(stage, microbatch)
            if stage:
                assert forward[stage - 1, microbatch].end_us <= each.start_us
        sent = [each for each in timeline if each.what == "send"]
        received = [each for each in timeline if each.what == "receive"]
        assert len(sent) == len(received) == 2 * plan.parts  # activations, and their gradients
        for each in received:
            assert plan.rank_of(each.stage, each.microbatch) == each.rank and each.start_us <= each.end_us
        for rank in range(plan.world):
            busy = sorted(
                (each.start_us, each.end_us) for each in timeline
                if each.rank == rank and each.what in ("forward", "backward", "dgrad", "wgrad")
            )  # fmt: skip
            assert all(one[1] <= other[0] for one, other in itertools.pairwise(busy))
    assert trace({"measured": found[0][1]["events"]})["traceEvents"]


def groups_of_messages(stages_per_rank: int) -> dict[tuple[str, int], str]:
    """The name of the group by which each kind of message goes to each stage."""
    plan = plan_of(range(1, 1 + 2 * stages_per_rank), schedule="interleaved", stages_per_rank=stages_per_rank)
    grid = make_grid(plan, torch.device("cpu"), timeout_s=300)
    return {way: group.group_name for way, group in grid.messages.items()}


@pytest.mark.parametrize("stages_per_rank", [1, 2])
def test_messages_of_both_ways_have_groups_of_their_own(two_ranks: Ranks, stages_per_rank: int):
    """What a receiver says to the sender would wait behind what it sends itself."""
    plan = plan_of(range(1, 1 + 2 * stages_per_rank), stages_per_rank=stages_per_rank)
    found = two_ranks.run(groups_of_messages, stages_per_rank)[0]
    goes: dict[str, set[tuple[int, int]]] = {}
    for (what, stage), group in found.items():
        sender = stage + (-1 if what == "activations" else 1)
        goes.setdefault(group, set()).add((plan.rank_of(sender, 0), plan.rank_of(stage, 0)))
    assert len(found) == 2 * (2 * stages_per_rank - 1) and all(len(ways) == 1 for ways in goes.values())


def test_ranks_of_other_machines_count_from_their_own_start():
    one, other = Step(), Step()
    one.started_s, other.started_s = 100.0, 7.0
    span = Span(work="send", stage=0, microbatch=3, start_s=100.5, end_s=101.0, sends="activations", receiver=1)
    one.spans.append(span)
    other.spans.append(Span(work="forward", stage=1, microbatch=3, start_s=8.5, end_s=9.0))
    steps = [RankStep(machine=name, started_s=step.started_s, spans=tuple(step.spans))
             for name, step in (("here", one), ("there", other))]  # fmt: skip
    found = {(each.rank, each.name): (each.start_us, each.end_us, each.stage) for each in events(steps)}
    assert found == {
        (0, "activations to rank 1"): (0.5e6, 1e6, 0),
        (1, "activations from rank 0"): (0.5e6, 1e6, 1),
        (1, "forward 3"): (1.5e6, 2e6, 1),
    }


def test_a_gradient_that_grows_after_it_was_sent_is_one_line(one_rank):
    """Its layer ran once in the first step, and twice in a later one."""
    weight = nn.Parameter(torch.ones(3))
    gradients = StageGradients([weight], group=torch.distributed.group.WORLD, divisor=1, way=ONE_BY_ONE)
    with gradients.last_backward():
        weight.sum().backward()
    gradients.finish()
    assert torch.equal(weight.grad, torch.ones(3))
    with pytest.raises(StageFailed, match=r"stage 0: a gradient of shape \(3,\) grew after it was sent"), \
            gradients.last_backward():  # fmt: skip
        weight.sum().backward()
        weight.sum().backward()


def test_a_step_learns_anew_which_gradients_come_after_layers_were_frozen(one_rank):
    weights = [nn.Parameter(torch.ones(3)) for _ in range(3)]
    step = Step()
    gradients = StageGradients(
        weights, group=torch.distributed.group.WORLD, divisor=2, way=ONE_BY_ONE, step=step
    )  # fmt: skip

    def train(sent: int) -> None:
        step.begin()
        for each in weights:
            each.grad = None
        with gradients.last_backward():
            sum((number + 2) * each.sum() for number, each in enumerate(weights) if each.requires_grad).backward()
        gradients.finish()
        for number, each in enumerate(weights):
            assert torch.equal(each.grad, (number + 2) * torch.ones(3) / 2) if each.requires_grad else each.grad is None
        assert len([span for span in step.spans if span.work == "reduce"]) == sent

    train(1), train(3), train(3)
    weights[1].requires_grad_(False)
    train(1), train(2)
    weights[1].requires_grad_(True)
    train(1), train(3)


def test_stages_of_one_rank_pass_tensors_on_by_themselves():
    plan = plan_of([1, 2, 3], schedule="interleaved", stages_per_rank=3)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    with ranks():
        pipeline = Pipeline(model, plan, loss=nn.functional.cross_entropy, example=X)
        loss = pipeline.step(X, TARGET)
    found = [each.grad.clone() for each in model.parameters()]
    model.zero_grad()
    whole = nn.functional.cross_entropy(model(X), TARGET)
    whole.backward()
    assert loss == pytest.approx(float(whole.detach()))
    for gradient, each in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, each.grad)
