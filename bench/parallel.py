"""``python -m bench parallel``: ResNets as pipelines on 2 to 4 processes, against data parallelism and the simulator.

On links of several rates, steps of all variants are timed in turns. A step begins on all ranks together, and its time
is the slowest rank's, without the optimizer's. Beside each stands what the simulator says, by the link as measured and
by the times of layers that are measured on all ranks at once, so that they share the memory's bandwidth as they do in a
step. Data parallelism runs as it is in PyTorch, in the way that ``data_parallel`` chooses, and as it is conventional:
one all-reduce after the backward pass.

``python -m bench.parallel FOLDER`` is one rank.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn

from bench.links import LOOPBACK, add_rates_argument, in_time, name_of, run_ranks, why_not
from bench.models import RESNETS, resnet
from bench.results import add_out_argument, write_results
from dwconv.commands.command_line import ArgumentParser, from_0
from dwconv.errors import DwconvWarning, InvalidChoice
from dwconv.measure.clock import contention
from dwconv.parallel import Communication, communication, data_parallel
from dwconv.parallel.joining import agreed, ranks
from dwconv.parallel.pipeline.pipeline import Pipeline
from dwconv.parallel.planning.costs import layer_costs
from dwconv.parallel.planning.measured_link import measured_link
from dwconv.parallel.planning.partition import partition
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.plan import FREE_LINK, LayerCost, Link, Plan, Stage, sum_us
from dwconv.parallel.planning.shape import Shape
from dwconv.parallel.planning.simulation import simulate
from dwconv.problems.target import cpu_target


@dataclass(frozen=True, kw_only=True)
class Case:
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


_CIFAR_10: dict[str, Any] = {"images": "CIFAR-10 (3×32²)", "classes": 10, "size": 32}
_CIFAR_100: dict[str, Any] = {"images": "CIFAR-100 (3×32²)", "classes": 100, "size": 32}
_CALTECH: dict[str, Any] = {"images": "Caltech-101 (3×96², scaled from 224²)", "classes": 101, "size": 96}
CASES = (
    *(Case(network=network, world=2, **images) for images in (_CIFAR_10, _CALTECH) for network in RESNETS),
    *(Case(network="ResNet-18", world=3, batch=12, microbatches=6, **images) for images in (_CIFAR_10, _CALTECH)),
    *(Case(network="ResNet-18", world=4, microbatches=8, **images) for images in (_CIFAR_10, _CALTECH)),
    *(Case(network=network, world=2, **_CIFAR_100) for network in RESNETS),
)
"""CIFAR-100 last: but for the last layer it is CIFAR-10, and time may be short."""


# -- the command -------------------------------------------------------------------------------------------------------


_LEAST_S = 8.0
"""A case is not begun with less than this left, or less than another took on such a link."""
_BESIDE_S, _LONGEST_OF_SECONDS = 300.0, 20.0
"""Of a case, for what its own time does not hold: the start, and the first steps on a slow link."""


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench parallel", description=(__doc__ or "").partition(": ")[2].partition("\n")[0])
    parser.add_argument(
        "--seconds", type=from_0, default=2400, help="for all of it, default 2400; cases that do not fit are left out"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains this")
    add_rates_argument(parser)
    add_out_argument(parser)
    arguments = parser.parse_args(argv)
    cases = [case for case in CASES if arguments.only in case.name]
    if not cases:
        raise InvalidChoice(f"--only {arguments.only} is in no case; one is {CASES[0].name}")
    jobs = [(case, rate) for case in cases for rate in arguments.rates]
    rows: list[dict[str, Any]] = []
    left_out = [_named(*job) for job in jobs]
    print(_HEAD, flush=True)
    for job, seconds in in_time(jobs, seconds=arguments.seconds, least_s=_LEAST_S, kind=lambda job: job[1]):
        found = measured(*job, seconds=seconds)
        rows += found
        left_out.remove(_named(*job))
        print("\n".join(map(_line, found)), flush=True)
    if not rows:
        raise InvalidChoice(f"--seconds {arguments.seconds:g} is too short for a case; give {2 * _LEAST_S:g} or more")
    if left_out:
        print(f"left out, since {arguments.seconds:g} s were over: {', '.join(left_out)}")
    print(_summed_up([row for row in rows if "failed" not in row]))
    facts = {"left_out": left_out, "threads_a_rank": 1}
    write_results("parallel", target=cpu_target(), rows=rows, folder=arguments.out, **facts)
    return 0


def _named(case: Case, rate: str) -> str:
    return f"{case.name} {name_of(rate)}"


def measured(case: Case, rate: str, *, seconds: float) -> list[dict[str, Any]]:
    """The rows of all variants, plain data parallelism first, by ranks of one thread each; or why that link cannot be
    made. Raises WorkerDied and WorkerTimeout."""
    about = {"network": case.network, "images": case.images, "world": case.world, "rate": rate}
    if rate != LOOPBACK and why_not():
        return [{**about, "failed": why_not()}]
    with tempfile.TemporaryDirectory() as name:
        folder, job = Path(name), Job(case=case, seconds=seconds, ends_at_s=time.time() + seconds)
        (folder / "job.json").write_bytes(msgspec.json.encode(job))
        timeout_s = _BESIDE_S + _LONGEST_OF_SECONDS * seconds
        run_ranks(
            ["-m", "bench.parallel", name], name=_named(case, rate), world=case.world, rate=rate, timeout_s=timeout_s
        )
        rows = msgspec.json.decode((folder / "rows.json").read_bytes(), type=list[dict[str, Any]])
        return [{**about, **row} for row in rows]


_HEAD = (
    f"{'network':10} {'images':38} {'ranks':>5} {'link':11} {'variant':26} {'ms':>8} {'spread':>7} {'× DP':>5} "
    f"{'× conv.':>7} {'simulated':>9} {'error':>6}  way"
)


def _line(row: dict[str, Any]) -> str:
    about = f"{row['network']:10} {row['images']:38} {row['world']:5} {name_of(row['rate']):11}"
    if "failed" in row:
        return f"{about} {row['failed']}"
    return (
        f"{about} {row['name']:26} {row['median_ms']:8.1f} {row['spread_ms']:7.1f} "
        f"{row['times_as_fast_as_data_parallelism']:5.2f} {row['times_as_fast_as_conventional']:7.2f} "
        f"{row['predicted_ms']:9.1f} {row['error']:+6.0%}  {row['way']}"
    )


def _summed_up(rows: Sequence[dict[str, Any]]) -> str:
    """The error of the simulator where each rank has a core."""
    lines = [""]
    for kind, is_plain in (("data parallelism", True), ("pipelines", False)):
        of_2 = [row for row in rows if row["world"] == 2 and bool(row["way"]) == is_plain]
        if of_2:
            errors = [abs(row["error"]) for row in of_2]
            mean = statistics.mean(errors)
            lines.append(f"the simulator on 2 ranks, {kind}: mean error {mean:.0%}, at most {max(errors):.0%}")
    if any(row["world"] > 2 for row in rows):
        lines.append("3 and 4 ranks: where there are fewer cores than ranks, their times say little")
    return "\n".join(lines)


# -- one rank ----------------------------------------------------------------------------------------------------------


_WARM_UP, _MOST_ROUNDS = 2, 11
_COSTS_SHARE, _CHOICE_SHARE = 0.15, 0.25
"""Of the time of a case."""
_TIMEOUT_S = 300.0
DATA_PARALLELISM, CONVENTIONAL, CHOSEN = "data parallelism", "all-reduce after backward", "the way chosen"


@dataclass(frozen=True, kw_only=True)
class Job:
    """The input of every rank."""

    case: Case
    seconds: float
    ends_at_s: float
    """Of ``time.time``: no round begins later."""


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
    job = msgspec.json.decode((folder / "job.json").read_bytes(), type=Job)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DwconvWarning)  # of other work: each finding says how much there was
    with ranks(timeout_s=_TIMEOUT_S, device="cpu") as rank:
        rows = _measured(job)
        if rank.is_first:
            (folder / "rows.json").write_bytes(msgspec.json.encode(rows))


def _measured(job: Job) -> list[dict[str, Any]]:
    case, link = job.case, measured_link()
    torch.manual_seed(1)
    x = torch.randn(case.batch, 3, case.size, case.size)
    target = torch.randint(0, case.classes, (case.batch,))
    costs_s = _COSTS_SHARE * job.seconds / 2
    layers = _costs(case, x[: case.batch // case.microbatches], seconds=costs_s)
    share = _costs(case, x[: case.batch // case.world], seconds=costs_s)
    whole = Stage(first=0, last=len(share), replicas=case.world)
    alone = Plan(layers=share, stages=(whole,), microbatches=1, schedule="1f1b", link=link)
    runners = {
        DATA_PARALLELISM: _data_parallel(case, alone, Communication()),
        CONVENTIONAL: _data_parallel(case, alone, Communication(collective="after-backward")),
        CHOSEN: _data_parallel(case, alone, None, seconds=_CHOICE_SHARE * job.seconds),
    }
    runners |= {name: _pipeline(case, plan) for name, plan in _plans(case, layers, link).items()}
    for number in range(_WARM_UP + _MOST_ROUNDS):
        for runner in runners.values():
            taken = _train(runner, x, target)
            runner.rounds += [taken] if number >= _WARM_UP else []
        if number >= _WARM_UP and agreed(lambda: time.time() > job.ends_at_s):
            break
    plain_s, conventional_s = (_median(runners[name], "step_s") for name in (DATA_PARALLELISM, CONVENTIONAL))
    # Where gloo's threads add gradients, a rank's own threads crowd it; other work disturbs every variant.
    lost = min(_median(runner, "lost") for runner in runners.values())
    return [
        {
            "batch": case.batch,
            "microbatches": case.microbatches,
            "name": name,
            **_times(runner),
            "way": "" if runner.way is None else str(runner.way),
            "times_as_fast_as_data_parallelism": plain_s / _median(runner, "step_s"),
            "times_as_fast_as_conventional": conventional_s / _median(runner, "step_s"),
            "link_gb_s": link.gb_s,
            "latency_us": link.latency_us,
            # Ranks that share a core take time from one another.
            **({"contention": lost} if case.world <= (os.cpu_count() or 1) else {}),
        }
        for name, runner in runners.items()
    ]


def _costs(case: Case, microbatch: Tensor, *, seconds: float) -> tuple[LayerCost, ...]:
    dist.barrier()
    mine = layer_costs(pieces(case.model(), microbatch), microbatch, seconds=seconds)
    return agreed(lambda: mine)


_STAGES = {
    2: {"gpipe": 2, "1f1b": 2, "interleaved": 4, "zero-bubble": 2},
    3: {"1f1b": 2},
    4: {"1f1b": 4, "zero-bubble": 2},
}
"""By ranks and schedule. Fewer stages than ranks have replicas: 2 + 1, or 2 × 2."""


def _plans(case: Case, layers: Sequence[LayerCost], link: Link) -> dict[str, Plan]:
    stages = _STAGES[case.world]
    found = {}
    for schedule, count in stages.items():
        shape = Shape(world=case.world, link=link, microbatches=case.microbatches, schedule=schedule)
        plan = partition(layers, shape, stages=count)
        found[schedule if case.world == 2 else f"{schedule}, {plan.on}"] = plan
    return found


def _pipeline(case: Case, plan: Plan) -> _Runner:
    example = torch.zeros(case.batch // plan.replicas, 3, case.size, case.size)
    loss = nn.functional.cross_entropy
    pipeline = Pipeline(case.model(), plan, loss=loss, example=example, timeout_s=_TIMEOUT_S)
    return _Runner(
        plan=plan,
        step=lambda x, target: pipeline.step(pipeline.share(x), pipeline.share(target)),
        optimizer=_optimizer(pipeline),
        exposed_s=lambda: pipeline.times.exposed_s if pipeline.times else 0.0,
    )


def _data_parallel(case: Case, plan: Plan, way: Communication | None, *, seconds: float = 0.0) -> _Runner:
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


def _train(runner: _Runner, x: Tensor, target: Tensor) -> _Round:
    dist.barrier()
    before, started_s = contention.read(), time.perf_counter()
    runner.step(x, target)
    slowest = torch.tensor([time.perf_counter() - started_s, contention.lost(before, contention.read())])
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    runner.optimizer.step()
    return _Round(step_s=float(slowest[0]), exposed_s=runner.exposed_s(), lost=float(slowest[1]))


def _times(runner: _Runner) -> dict[str, Any]:
    """Of the slowest rank in each step, beside what the simulator says."""
    simulated, times_s = simulate(runner.plan), sorted(each.step_s for each in runner.rounds)
    quarter, median_s = len(times_s) // 4, statistics.median(times_s)
    predicted_us = simulated.step_us
    if runner.way is not None and runner.way.collective == "after-backward":
        gradient_bytes = sum(layer.parameter_bytes for layer in runner.plan.layers)
        predicted_us = simulate(replace(runner.plan, link=FREE_LINK)).step_us
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
