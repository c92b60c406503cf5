"""One rank of ``bench parallel``: ``python -m bench.parallel.ranks FOLDER``. It trains all variants in turns.

A step begins together, and its time is the slowest rank's, without the optimizer's. Layers are timed on all ranks at
once, so that they share the memory's bandwidth as they do in a step.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bench.models import resnet
from dwconv.errors import DwconvWarning, WorkerDied, WorkerTimeout
from dwconv.measure.clock import contention
from dwconv.parallel.joining import agreed, ranks
from dwconv.parallel.pipeline.pipeline import Pipeline
from dwconv.parallel.planning.costs import layer_costs
from dwconv.parallel.planning.partition import Cluster, Shape, partition
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.plan import LayerCost, Link, Plan, Stage
from dwconv.parallel.planning.simulation import simulate


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Made-up images of the shape of a known set."""

    name: str
    classes: int
    size: int
    """Height and width."""
    true_size: int
    """Of the set itself; larger where two cores would take too long."""

    def __str__(self) -> str:
        scaled = "" if self.size == self.true_size else f", scaled from {self.true_size}²"
        return f"{self.name} (3×{self.size}²{scaled})"


IMAGE_SETS = (
    ImageSet(name="CIFAR-10", classes=10, size=32, true_size=32),
    ImageSet(name="CIFAR-100", classes=100, size=32, true_size=32),
    ImageSet(name="Caltech-101", classes=101, size=96, true_size=224),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, its images, and the ranks that train it."""

    network: str
    images: ImageSet
    world: int
    batch: int
    """Of a step, on all ranks together."""
    microbatches: int
    """That the whole batch is cut into."""

    @property
    def name(self) -> str:
        return f"{self.network} {self.images.name} {self.world} ranks"

    def model(self) -> nn.Module:
        return resnet(self.network, classes=self.images.classes, small_images=self.images.size < 64).train()


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to train a case, measured on the ranks and computed."""

    name: str
    median_ms: float
    """Of the slowest rank in each step."""
    spread_ms: float
    """Between the quartiles."""
    steps: int
    predicted_ms: float
    """By the simulator, from layer times."""
    bubble: float
    """The share of idle time that it predicts, with a link that costs nothing."""
    exposed_ms: float
    """How long the first rank stood still for gradients."""
    loss_difference: float | None
    """The largest from one process's loss with the same microbatches; None for data parallelism, which has none."""

    @property
    def error(self) -> float:
        """Of the prediction."""
        return self.predicted_ms / self.median_ms - 1


@dataclass(frozen=True, kw_only=True)
class Finding:
    """All of one case."""

    variants: tuple[Variant, ...]
    link_gb_s: float
    latency_us: float
    layers: tuple[LayerCost, ...]
    """For one microbatch, timed while the other ranks compute, too."""
    contention: float
    """The share of a step's time that other work took from a rank, of the variant that lost least."""


STEPS_COMPARED = 2
"""Steps whose losses are compared with one process's; they also warm up."""
_MOST_ROUNDS = 9
_COSTS_SHARE = 0.15
"""Of the time of a case."""
_TIMEOUT_S = 120.0
_LINK_BYTES = 4 * 2**20
_PINGS = 20
_RATE = 0.01


@dataclass(frozen=True, kw_only=True)
class Job:
    """The input of every rank."""

    case: Case
    seconds: float
    ends_at_s: float
    """Of ``time.time``: no round begins later."""


@dataclass(kw_only=True)
class _Runner:
    """A variant that is being trained."""

    plan: Plan
    step: Callable[[Tensor, Tensor], float]
    """One step on the whole batch, of which it takes its share; the loss."""
    optimizer: torch.optim.Optimizer
    exposed_s: Callable[[], float] = lambda: 0.0
    losses: list[float] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    exposed: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)


def run_ranks(command: Sequence[str], *, name: str, world: int, timeout_s: float, **environment: str) -> None:
    """Runs ``python -m COMMAND`` on so many ranks, started as torchrun does; their store is in this process. None
    outlives this. Raises WorkerDied and WorkerTimeout, with the ``name`` of what they run."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=_TIMEOUT_S))  # type: ignore[attr-defined]
    shared = {
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo", **os.environ, **environment,
        "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }  # fmt: skip
    processes = [
        subprocess.Popen([sys.executable, "-m", *command], env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(world)
    ]
    try:
        codes = [each.wait(timeout=timeout_s) for each in processes]
    except subprocess.TimeoutExpired as error:
        raise WorkerTimeout(f"{name}: no end after {timeout_s:.0f} s") from error
    finally:
        for each in processes:
            each.kill()
            each.wait()
    if any(codes):
        raise WorkerDied(f"{name}: they ended with the codes {codes}")


def main(folder: Path) -> None:
    job = msgspec.json.decode((folder / "job.json").read_bytes(), type=Job)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DwconvWarning)  # of other work: each finding says how much there was
    with ranks(timeout_s=_TIMEOUT_S, device="cpu") as rank:
        finding = _measured(job)
        if rank.is_first:
            (folder / "finding.json").write_bytes(msgspec.json.encode(finding))


def _measured(job: Job) -> Finding:
    case = job.case
    batches = list(_batches(case))
    link = _link()
    costs_s = _COSTS_SHARE * job.seconds / 2
    layers = _costs(case, batches[0][0][: case.batch // case.microbatches], seconds=costs_s)
    share = _costs(case, batches[0][0][: case.batch // case.world], seconds=costs_s)
    runners = {"data parallelism": _data_parallel(case, share, link)}
    for name, shape in _shapes(case).items():
        plan = partition(layers, Cluster(world=case.world, link=link), shape)
        runners[name] = _pipeline(case, plan)
    for x, target in batches[:STEPS_COMPARED]:
        for runner in runners.values():
            _train(runner, x, target)
    alone = agreed(lambda: _alone(case, batches[:STEPS_COMPARED]))
    for number in range(_MOST_ROUNDS):
        x, target = batches[number % len(batches)]
        for runner in runners.values():
            _train(runner, x, target, timed=True)
        if agreed(lambda: time.time() > job.ends_at_s):
            break
    return Finding(
        variants=tuple(_variant(name, runner, alone) for name, runner in runners.items()),
        link_gb_s=link.gb_s,
        latency_us=link.latency_us,
        layers=layers,
        # Where gloo's threads add gradients, a rank's own threads crowd it; other work disturbs every variant.
        contention=min(statistics.median(runner.lost) for runner in runners.values()),
    )


def _batches(case: Case) -> Iterator[tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    for _ in range(STEPS_COMPARED):
        x = torch.randn(case.batch, 3, case.images.size, case.images.size)
        yield x, torch.randint(0, case.images.classes, (case.batch,))


def _made(case: Case) -> nn.Module:
    torch.manual_seed(0)
    return case.model()


# -- what a plan is made of ------------------------------------------------------------------------------------------


def _link() -> Link:
    """From rank 0 to rank 1 and back, while the others wait."""
    rank = dist.get_rank()
    small, large = torch.zeros(1), torch.zeros(_LINK_BYTES // 4)
    medians_s = []
    for message in (small, large):
        times_s = []
        for _ in range(_PINGS):
            dist.barrier()
            started_s = time.perf_counter()
            if rank == 0:
                dist.send(message, 1)
                dist.recv(message, 1)
            elif rank == 1:
                dist.recv(message, 0)
                dist.send(message, 0)
            times_s.append((time.perf_counter() - started_s) / 2)
        medians_s.append(statistics.median(times_s))
    latency_s, both_s = medians_s
    carried_s = max(both_s - latency_s, 1e-9)
    return agreed(lambda: Link(gb_s=_LINK_BYTES / 1e9 / carried_s, latency_us=1e6 * latency_s))


def _costs(case: Case, microbatch: Tensor, *, seconds: float) -> tuple[LayerCost, ...]:
    dist.barrier()
    mine = layer_costs(pieces(_made(case), microbatch), microbatch, seconds=seconds)
    return agreed(lambda: mine)


def _shapes(case: Case) -> dict[str, Shape]:
    if case.world == 2:
        return {
            schedule: Shape(
                microbatches=case.microbatches,
                schedule=schedule,
                stages=4 if schedule == "interleaved" else 2,
                is_even=True,
                stages_per_rank=2 if schedule == "interleaved" else 1,
            )
            for schedule in ("gpipe", "1f1b", "interleaved", "zero-bubble")
        }
    return {
        f"{schedule}, {stages} stages × {case.world // stages}": Shape(
            microbatches=case.microbatches, schedule=schedule, stages=stages, is_even=True
        )
        for schedule, stages in (("1f1b", case.world), ("zero-bubble", case.world // 2))
    }


# -- variants --------------------------------------------------------------------------------------------------------


def _pipeline(case: Case, plan: Plan) -> _Runner:
    example = torch.zeros(case.batch // plan.stages[0].replicas, 3, case.images.size, case.images.size)
    pipeline = Pipeline(_made(case), plan, loss=nn.functional.cross_entropy, example=example, timeout_s=_TIMEOUT_S)
    return _Runner(
        plan=plan,
        step=lambda x, target: pipeline.step(pipeline.share(x), pipeline.share(target)),
        optimizer=torch.optim.SGD(pipeline.parameters(), lr=_RATE, momentum=0.9),
        exposed_s=lambda: pipeline.times.exposed_s if pipeline.times else 0.0,
    )


def _data_parallel(case: Case, share: tuple[LayerCost, ...], link: Link) -> _Runner:
    """PyTorch's own, as it is: each rank takes its share of the batch at once."""
    model = DistributedDataParallel(_made(case))
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE, momentum=0.9)
    rank, world = dist.get_rank(), case.world

    def step(x: Tensor, target: Tensor) -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.chunk(world)[rank]), target.chunk(world)[rank])
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    whole = Stage(first=0, last=len(share), replicas=world)
    plan = Plan(layers=share, stages=(whole,), microbatches=1, schedule="1f1b", link=link)
    return _Runner(plan=plan, step=step, optimizer=optimizer)


def _alone(case: Case, batches: list[tuple[Tensor, Tensor]]) -> list[float]:
    """The losses of one process that takes the same microbatches."""
    model = _made(case)
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE, momentum=0.9)
    losses = []
    for x, target in batches:
        optimizer.zero_grad()
        total = 0.0
        for part, expected in zip(x.chunk(case.microbatches), target.chunk(case.microbatches), strict=True):
            loss = nn.functional.cross_entropy(model(part), expected) / case.microbatches
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        optimizer.step()
        losses.append(total)
    return losses


# -- steps -----------------------------------------------------------------------------------------------------------


def _train(runner: _Runner, x: Tensor, target: Tensor, *, timed: bool = False) -> None:
    dist.barrier()
    before, started_s = contention.read(), time.perf_counter()
    loss = runner.step(x, target)
    mine = torch.tensor([time.perf_counter() - started_s, contention.lost(before, contention.read())])
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    runner.optimizer.step()
    if timed:
        runner.times_s.append(float(mine[0]))
        runner.lost.append(float(mine[1]))
        runner.exposed.append(runner.exposed_s())
    else:
        runner.losses.append(loss)


def _variant(name: str, runner: _Runner, alone: list[float]) -> Variant:
    simulated = simulate(runner.plan)
    times_s = sorted(runner.times_s)
    quarter = len(times_s) // 4
    apart = max(abs(one - other) for one, other in zip(runner.losses, alone, strict=True))
    return Variant(
        name=name,
        median_ms=1e3 * statistics.median(times_s),
        spread_ms=1e3 * (times_s[-1 - quarter] - times_s[quarter]),
        steps=len(times_s),
        predicted_ms=simulated.step_us / 1e3,
        bubble=simulated.bubble,
        exposed_ms=1e3 * statistics.median(runner.exposed),
        loss_difference=None if len(runner.plan.stages) == 1 else apart,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
