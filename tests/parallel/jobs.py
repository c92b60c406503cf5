"""What the ranks of a test do. ``python -m tests.parallel.jobs FOLDER`` trains until a rank is lost."""

from __future__ import annotations

import atexit
import copy
import gc
import os
import sys
import time
import warnings
from collections import Counter
from contextvars import ContextVar
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import dwconv
from dwconv.call.passes import PlannedPasses
from dwconv.errors import DwconvWarning
from dwconv.parallel import Communication, Rank, communication, data_parallel, ranks, run
from dwconv.parallel.data import choose_way
from dwconv.parallel.data.ways import COLLECTIVES
from tests.planted_records import plant, workload_of
from tests.waiting import eventually

STEPS = 20
BATCH = 8
"""Of all ranks together."""
BUCKET_MB = 0.001
"""So small that the few gradients fill several buckets."""
WAYS = [
    Communication(),
    *(Communication(collective=collective, bucket_mb=BUCKET_MB) for collective in COLLECTIVES),
    Communication(bucket_mb=BUCKET_MB, compressed=True),
    Communication(bucket_mb=BUCKET_MB, powersgd_rank=2),
]


class Net(nn.Module):
    """(N, 3, H, W) -> (N, 5). No layer mixes images, so ranks compute what one process does with all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Conv2d(3, 8, 1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.GroupNorm(2, 8)
        self.plain = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.head = nn.Sequential(nn.Linear(8, 33), nn.ReLU(), nn.Linear(33, 5))

    def forward(self, x: Tensor) -> Tensor:
        features = self.plain(self.norm(self.depthwise(self.widen(x))).relu())
        return self.head(features.mean((2, 3)))


def fresh() -> Net:
    torch.manual_seed(3)
    return Net().to(memory_format=torch.channels_last)


def batches() -> list[tuple[Tensor, Tensor]]:
    """Batches, equal in every process."""
    numbers = torch.Generator().manual_seed(4)
    return [
        (torch.randn(BATCH, 3, 9, 7, generator=numbers), torch.randint(0, 5, (BATCH,), generator=numbers))
        for _ in range(STEPS)
    ]


def trained(model: nn.Module, *, rank: int = 0, world: int = 1) -> list[Tensor]:
    """The parameters after the steps, by SGD with momentum, on this rank's share of every batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    share = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    for images, labels in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[share]), labels[share]).backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


# -- the jobs --------------------------------------------------------------------------------------------------------


def train(rank: Rank, folder: Path) -> dict[str, object]:
    """By every way, from the same start; and what is heard meanwhile of strides."""
    logs = folder / f"logs-{rank.number}"
    plant(
        logs / "log.jsonl",
        [workload_of(shape=(BATCH // rank.world, 8, 9, 7), bias=bias) for bias in (False, True)],
        baseline_us=1e6,
    )
    found = {}
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings(record=True) as heard:
        patched.setenv("DWCONV_TUNING_LOGS", str(logs))
        dwconv.reset()
        warnings.simplefilter("always")
        torch.set_warn_always(True)  # PyTorch would say it once in a process
        for way in WAYS:
            parallel = data_parallel(dwconv.convert(fresh()), communication=way)
            found[str(way)] = trained(parallel, rank=rank.number, world=rank.world)
        torch.set_warn_always(False)
        passes = {frozen: passes_of_a_step(frozen=frozen, rank=rank) for frozen in (False, True)}
    dwconv.reset()
    return {
        "parameters": found,
        "heard": [str(each.message) for each in heard],
        "passes": passes,
    }


def passes_of_a_step(*, frozen: bool, rank: Rank) -> Counter[str]:
    """Tuned kernels that run in a step of the converted model; with ``frozen``, its depthwise layers are."""
    calls: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patched:
        for name in ("fprop", "dgrad", "wgrad", "wgrad_bias"):
            patched.setattr(PlannedPasses, name, counted(getattr(PlannedPasses, name), name, calls))
        model = dwconv.convert(fresh())
        for layer in (model.depthwise, model.plain):
            layer.requires_grad_(not frozen)
        parallel = data_parallel(model, communication=WAYS[1])
        share = slice(rank.number * BATCH // rank.world, (rank.number + 1) * BATCH // rank.world)
        parallel(batches()[0][0][share]).square().mean().backward()
    return calls


def counted(method, name, calls):
    def counting(*arguments, **keywords):
        calls[name] += 1
        return method(*arguments, **keywords)

    return counting


def choose(rank: Rank) -> dict[str, object]:
    """A choice by measurement, with nothing changed by it but the parameters, which become those of the first rank."""
    torch.manual_seed(rank.number)
    model = nn.Sequential(Net(), nn.BatchNorm1d(5), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer_before = copy.deepcopy(optimizer.state_dict())
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    before = copy.deepcopy(model.state_dict())
    drawn = torch.get_rng_state()
    example = torch.randn(2, 3, 9, 7, generator=torch.Generator().manual_seed(0))
    with pytest.MonkeyPatch.context() as patched:  # the same steps on any machine: no way is left out for lack of time
        patched.setattr(choose_way, "_ROUNDS", (5, 5))
        parallel = data_parallel(model, example, compress="powersgd", seconds=3600)
    report = communication(parallel)
    return {
        "chosen": str(report.chosen),
        "rows": report.rows,
        "finals": report.finals,
        "printed": str(report),
        "before": before,
        "after": copy.deepcopy(model.state_dict()),
        "gradients_stay": all(bool((each.grad == 7).all()) for each in model.parameters()),
        "random_numbers_stay": torch.equal(drawn, torch.get_rng_state()),
        "optimizer_stays": optimizer.state_dict() == optimizer_before,
        "hooks": len(model._forward_hooks),
        "trains": [bool(each.isfinite().all()) for each in trained(parallel, rank=rank.number, world=rank.world)],
    }


class Dropped:
    """What gloo's threads may be the last to hold. It takes them a second to drop it where a step has failed: about as
    long as the process then takes to end."""

    takes_s = 0.0

    def __del__(self) -> None:
        time.sleep(self.takes_s)


def learn(folder: Path) -> dict[str, object]:
    """Both, on a rank that has joined."""
    with ranks(device="cpu") as rank:
        return {**train(rank, folder), "choice": choose(rank)}


def step_forever(rank: Rank, folder: Path) -> None:
    """Until a rank is lost, or the test ends; or as often as a file for this rank says. Says when it is under way."""
    own = folder / f"batches-{rank.number}"
    left = int(own.read_text()) if own.exists() else -1
    in_context: ContextVar[Dropped | None] = ContextVar("in_context")
    parallel = data_parallel(fresh(), communication=Communication(bucket_mb=BUCKET_MB))
    images, labels = batches()[0]
    ends = time.monotonic() + 3600
    while time.monotonic() < ends and left:
        left -= 1
        loss = nn.functional.cross_entropy(parallel(images), labels)
        in_context.set(Dropped())
        try:
            loss.backward()  # each of its collectives holds a copy of the context
        except RuntimeError:
            Dropped.takes_s = 1.0
            atexit.register(gc.collect)  # it may run at any moment
            raise
        finally:
            in_context.set(None)
        (folder / f"under-way-{rank.number}").touch()


def meet(folder: Path) -> None:
    """Every rank is there, with all that it imports, before one waits for another for a limited time."""
    (folder / f"there-{os.environ['RANK']}").touch()
    assert eventually(lambda: len([*folder.glob("there-*")]) == int(os.environ["WORLD_SIZE"]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DwconvWarning)
    FOLDER = Path(sys.argv[1])
    meet(FOLDER)
    sys.exit(run(lambda rank: step_forever(rank, FOLDER), timeout_s=float((FOLDER / "timeout").read_text())))
