"""``python -m bench.parallel_rank FOLDER``: one rank of ``bench parallel``, which times a case on one link.

Each form of training has a step in every round, which begins on all ranks together:

    rank 0   data parallelism │ all-reduce after backward │ the way chosen │ 1f1b │ …
    rank 1   data parallelism │ all-reduce after backward │ the way chosen │ 1f1b │ …
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn

from bench.links import shows_where_it_hangs
from bench.models import resnet
from dwconv.errors import DwconvWarning
from dwconv.measure.clock import contention
from dwconv.parallel import Communication, communication, data_parallel
from dwconv.parallel.joining import TimeLimit, agreed, ranks
from dwconv.parallel.pipeline.pipeline import Pipeline
from dwconv.parallel.planning.compare import propose
from dwconv.parallel.planning.cost_of_layers import layer_costs
from dwconv.parallel.planning.measured_link import measured_link
from dwconv.parallel.planning.partition import partition
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.pipeline_plan import FREE_LINK, LayerCost, Link, Plan, Stage, sum_us
from dwconv.parallel.planning.shape import Shape
from dwconv.parallel.planning.simulated_step import simulate_step

COSTS_SHARE, CHOICE_SHARE = 0.1, 0.25
"""Of the time of a case."""
LEAST_ROUNDS = 3
_WARM_UP, _MOST_ROUNDS = 2, 11
_SLOW_ROUND_S = 10.0
"""A round that takes longer warms up what is to come well enough."""
_TIMEOUT_S = 300.0
DATA_PARALLELISM, CONVENTIONAL, CHOSEN = "data parallelism", "all-reduce after backward", "the way chosen"
STAGES = {
    2: {"gpipe": 2, "1f1b": 2, "interleaved": 4, "zero-bubble": 2},
    3: {"1f1b": 2},
    4: {"1f1b": 4, "zero-bubble": 2},
}
"""By ranks and schedule. Fewer stages than ranks have replicas: 2 + 1, or 2 × 2."""


@dataclass(frozen=True, kw_only=True)
class ParallelCase:
    """A network, images of the shape of a known set, and the ranks that train it."""

    network: str
    images: str
    """The set, and how large its images are here."""
    classes: int
    size: int
    """Height and width."""
    world: int
    batch: int = 16
    """Of a step, on all ranks together."""
    microbatches: int = 4
    """That the whole batch is cut into."""

    @property
    def name(self) -> str:
        return f"{self.network} {self.images.partition(' ')[0]} {self.world} ranks"

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return resnet(self.network, classes=self.classes, small_images=self.size < 64).train()


@dataclass(frozen=True, kw_only=True)
class ParallelJob:
    """The input of every rank."""

    case: ParallelCase
    seconds: float
    ends_at_s: float
    """Of ``time.time``: no step begins later."""


class _Round(NamedTuple):
    step_s: float
    exposed_s: float
    """How long this rank stood still for gradients."""
    lost: float
    """The share that other work took."""


@dataclass(kw_only=True)
class _Runner:
    """A variant that is being trained."""

    plan: Plan
    step: Callable[[Tensor, Tensor], object]
    """One step on the whole batch, of which it takes its share."""
    optimizer: torch.optim.Optimizer
    way: Communication | None = None
    """Of gradients; None for pipelines."""
    exposed_s: Callable[[], float] = lambda: 0.0
    rounds: list[_Round] = field(default_factory=list)


def main(folder: Path) -> None:
    shows_where_it_hangs()
    job = msgspec.json.decode((folder / "job.json").read_bytes(), type=ParallelJob)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DwconvWarning)  # of other work: each finding says how much there was
    with ranks(timeout_s=_TIMEOUT_S, device="cpu") as rank:
        rows = _measured(job)
        if rank.is_first:
            (folder / "rows.json").write_bytes(msgspec.json.encode(rows))


def _measured(job: ParallelJob) -> list[dict[str, Any]]:
    case, link = job.case, measured_link()
    torch.manual_seed(1)
    x = torch.randn(case.batch, 3, case.size, case.size)
    target = torch.randint(0, case.classes, (case.batch,))
    costs_s = COSTS_SHARE * job.seconds / 2
    layers = _costs(case, x[: case.batch // case.microbatches], seconds=costs_s)
    share = _costs(case, x[: case.batch // case.world], seconds=costs_s)
    whole = Stage(first=0, last=len(share), replicas=case.world)
    alone = Plan(layers=share, stages=(whole,), microbatches=1, schedule="1f1b", link=link)
    runners = {
        DATA_PARALLELISM: _data_parallel(case, alone, Communication()),
        CONVENTIONAL: _data_parallel(case, alone, Communication(collective="after-backward")),
        CHOSEN: _data_parallel(case, alone, None, seconds=CHOICE_SHARE * job.seconds),
    }
    planned = agreed(lambda: propose(layers, _shape(case, link, None), on_whole_share=share).best.plan)
    plans = agreed(lambda: _plans(case, layers, link, planned))
    runners |= {name: _pipeline(case, plan) for name, plan in plans.items()}
    taken_by = next((name for name, plan in plans.items() if plan == planned), CHOSEN)
    if runners[CHOSEN].way == Communication():  # the default once more
        runners[CHOSEN].rounds = runners[DATA_PARALLELISM].rounds
        apart = {name: runner for name, runner in runners.items() if name != CHOSEN}
    else:
        apart = runners
    _train_in_turns(apart.values(), x, target, limit=TimeLimit(job.ends_at_s - time.time()))
    if not all(runner.rounds for runner in apart.values()):
        return [{"failed": f"no round of all forms was over in {job.seconds:.0f} s; give more --seconds"}]
    plain_s, conventional_s = (_median(runners[name], "step_s") for name in (DATA_PARALLELISM, CONVENTIONAL))
    # Where gloo's threads add gradients, a rank's own threads crowd it; other work disturbs every variant.
    lost = min(_median(runner, "lost") for runner in runners.values())
    return [
        {
            "batch": case.batch,
            "microbatches": case.microbatches,
            "name": name,
            "planned": name == taken_by,
            **_times(runner),
            "way": "" if runner.way is None else str(runner.way),
            "times_as_fast_as_data_parallelism": plain_s / _median(runner, "step_s"),
            "times_as_fast_as_conventional": conventional_s / _median(runner, "step_s"),
            "link_gb_s": link.gb_s,
            "both_ways_gb_s": link.both_ways_gb_s,
            "latency_us": link.latency_us,
            "summing_us_a_mb": link.summing_us_a_mb,
            "crowding_us_a_mb": link.crowding_us_a_mb,
            # Ranks that share a core take time from one another.
            **({"contention": lost} if case.world <= (os.cpu_count() or 1) else {}),
        }
        for name, runner in runners.items()
    ]


def _costs(case: ParallelCase, microbatch: Tensor, *, seconds: float) -> tuple[LayerCost, ...]:
    dist.barrier()
    mine = layer_costs(pieces(case.model(), microbatch), microbatch, seconds=seconds)
    return agreed(lambda: mine)


def _plans(case: ParallelCase, layers: Sequence[LayerCost], link: Link, planned: Plan) -> dict[str, Plan]:
    """By name; ``planned`` among them, if it is a pipeline."""
    plans = [
        partition(layers, _shape(case, link, schedule), stages=count) for schedule, count in STAGES[case.world].items()
    ]
    plans += [planned] if len(planned.stages) > 1 and planned not in plans else []
    return {plan.schedule if case.world == 2 else f"{plan.schedule}, {plan.on}": plan for plan in plans}


def _shape(case: ParallelCase, link: Link, schedule: str | None) -> Shape:
    return Shape(world=case.world, link=link, microbatches=case.microbatches, schedule=schedule)


def _pipeline(case: ParallelCase, plan: Plan) -> _Runner:
    example = torch.zeros(case.batch // plan.replicas, 3, case.size, case.size)
    loss = nn.functional.cross_entropy
    pipeline = Pipeline(case.model(), plan, loss=loss, example=example, timeout_s=_TIMEOUT_S)
    return _Runner(
        plan=plan,
        step=lambda x, target: pipeline.step(pipeline.share(x), pipeline.share(target)),
        optimizer=_optimizer(pipeline),
        exposed_s=lambda: pipeline.times.exposed_s if pipeline.times else 0.0,
    )


def _data_parallel(case: ParallelCase, plan: Plan, way: Communication | None, *, seconds: float = 0.0) -> _Runner:
    """Each rank takes its share of the batch at once. ``way``: None for the one that is chosen in ``seconds``."""
    if way is None:
        example = torch.zeros(case.batch // case.world, 3, case.size, case.size)
        model = data_parallel(case.model(), example, seconds=seconds)
    else:
        model = data_parallel(case.model(), communication=way)
    optimizer = _optimizer(model)
    rank, world = dist.get_rank(), case.world

    def step(x: Tensor, target: Tensor) -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.chunk(world)[rank]), target.chunk(world)[rank])
        loss.backward()  # type: ignore[no-untyped-call]

    return _Runner(plan=plan, step=step, optimizer=optimizer, way=communication(model).chosen)


def _optimizer(model: nn.Module | Pipeline) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def _train_in_turns(runners: Collection[_Runner], x: Tensor, target: Tensor, *, limit: TimeLimit) -> None:
    """Rounds of a step of each, until another would end too late, but no fewer than the least unless the time is up.
    Every rank has the same times."""
    warm_up, number = _WARM_UP, 0
    while number < warm_up + _MOST_ROUNDS:
        taken = []
        for runner in runners:
            if limit.is_over():  # where all ranks meet
                return
            taken.append(_train(runner, x, target))
        round_s, number = sum(each.step_s for each in taken), number + 1
        warm_up = 1 if round_s > _SLOW_ROUND_S else warm_up
        if number > warm_up:
            for runner, each in zip(runners, taken, strict=True):
                runner.rounds.append(each)
        if number >= warm_up + LEAST_ROUNDS and limit.elapsed_s() + round_s > limit.seconds:
            return


def _train(runner: _Runner, x: Tensor, target: Tensor) -> _Round:
    before, started_s = contention.read(), time.perf_counter()
    runner.step(x, target)
    slowest = torch.tensor([time.perf_counter() - started_s, contention.lost(before, contention.read())])
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    runner.optimizer.step()
    return _Round(step_s=float(slowest[0]), exposed_s=runner.exposed_s(), lost=float(slowest[1]))


def _times(runner: _Runner) -> dict[str, Any]:
    """Of the slowest rank in each step, beside what the simulator says."""
    simulated, times_s = simulate_step(runner.plan), sorted(each.step_s for each in runner.rounds)
    quarter, median_s = len(times_s) // 4, statistics.median(times_s)
    predicted_us = simulated.step_us
    if runner.way is not None and runner.way.collective == "after-backward":
        gradient_bytes = sum(layer.parameter_bytes for layer in runner.plan.layers)
        predicted_us = simulate_step(replace(runner.plan, link=FREE_LINK)).step_us
        predicted_us += sum_us(runner.plan.link, gradient_bytes, ranks=runner.plan.world)
    return {
        "median_ms": 1e3 * median_s,
        "spread_ms": 1e3 * (times_s[-1 - quarter] - times_s[quarter]),
        "steps": len(times_s),
        "predicted_ms": predicted_us / 1e3,
        "error": predicted_us / 1e6 / median_s - 1,
        "bubble": simulated.bubble,
        "exposed_ms": 1e3 * _median(runner, "exposed_s"),
    }


def _median(runner: _Runner, name: str) -> float:
    return statistics.median(getattr(each, name) for each in runner.rounds)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
