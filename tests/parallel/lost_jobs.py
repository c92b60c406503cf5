"""Jobs of two ranks in which the second is killed at some moment. ``python -m tests.parallel.lost_jobs PHASE SECONDS``

Each phase plants the death in rank 1 alone; both run the same code.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dwconv.errors import DwconvWarning
from dwconv.parallel import Communication, Pipeline, Rank, data_parallel, joining, lost_ranks, run
from dwconv.parallel.data import choose_way, sending
from dwconv.parallel.planning import measured_link as timing
from tests.parallel.jobs import BUCKET_MB, batches, fresh, meet
from tests.parallel.made_up_layers import plan_of

STEPS = 4


def dies(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def planted(rank: Rank, owner: object, name: str, *, call: int = 1) -> None:
    """Rank 1 dies in that call of ``owner.name``."""
    real, calls = getattr(owner, name), 0

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return dies() if calls == call else real(*arguments, **options)

    if rank.number == 1:
        setattr(owner, name, counting)


def steps(parallel: nn.Module, *, optimizer: torch.optim.Optimizer | None = None) -> None:
    images, labels = batches()[0]
    for _ in range(STEPS):
        nn.functional.cross_entropy(parallel(images), labels).backward()
        if optimizer is not None:
            optimizer.step()


def before_it_joins(rank: Rank) -> None:
    """Not reached."""
    raise AssertionError(rank)


def making_a_group(rank: Rank) -> None:
    planted(rank, dist.distributed_c10d, "_new_process_group_helper")
    data_parallel(fresh(), communication=Communication(collective="reduce-scatter"))


def measuring_the_link(rank: Rank) -> None:
    planted(rank, timing, "_both_ways_s", call=2)
    timing.measured_link()


def measuring_ways(rank: Rank) -> None:
    planted(rank, choose_way.Contest, "step", call=5)
    data_parallel(fresh(), batches()[0][0], seconds=3600)


def in_the_backward_pass(rank: Rank) -> None:
    parallel = data_parallel(fresh(), communication=Communication(bucket_mb=BUCKET_MB))
    steps(parallel)
    if rank.number == 1:
        parallel.module.norm.weight.register_hook(dies)
    steps(parallel)


def in_the_lane(rank: Rank) -> None:
    planted(rank, sending, "_gather", call=4)
    steps(data_parallel(fresh(), communication=Communication(collective="reduce-scatter", bucket_mb=BUCKET_MB)))


def after_the_backward_pass(rank: Rank) -> None:
    parallel = data_parallel(fresh(), communication=Communication(collective="after-backward", bucket_mb=BUCKET_MB))
    if rank.number == 1:
        parallel.module.widen.weight.register_hook(dies)
    steps(parallel)


def in_the_optimizer(rank: Rank) -> None:
    parallel = data_parallel(fresh())
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    planted(rank, optimizer, "step", call=3)
    steps(parallel, optimizer=optimizer)


def in_a_stage(rank: Rank) -> None:
    """The first waits for its gradients."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4))
    x = torch.randn(8, 3, 4)
    pipeline = Pipeline(model, plan_of([2, 4]), loss=nn.functional.cross_entropy, example=x)
    target = torch.zeros(8, dtype=torch.int64)
    pipeline.step(x, target)
    if rank.number == 1:
        model[3].register_forward_hook(dies)
    pipeline.step(x, target)


def in_a_norm_of_a_stage(rank: Rank) -> None:
    """The other waits for its statistics, inside the stage."""
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(128, 4))
    x = torch.randn(8, 3, 4, 4)
    plan = plan_of([4], replicas=2, microbatches=2)
    pipeline = Pipeline(model, plan, loss=nn.functional.cross_entropy, example=x, sync_bn=True)
    if rank.number == 1:
        model[0].register_forward_hook(dies)
    pipeline.step(x, torch.zeros(8, dtype=torch.int64))


def while_it_leaves(rank: Rank) -> None:
    """The other has no need of it any more."""
    planted(rank, joining, "leave")
    steps(data_parallel(fresh()))


def with_its_model_left(rank: Rank) -> None:
    """None is lost: both leave, and then drop the model, while a thread of gloo runs Python."""
    parallel = data_parallel(fresh())
    steps(parallel)
    atexit.register([parallel].clear)
    dist.all_reduce(torch.zeros(1), async_op=True).get_future().then(lambda _: time.sleep(1.0))


def what_runs_at_exit_hangs(rank: Rank) -> None:
    """On the one that is left, with Python's lock. The time until the process ends counts from then on."""
    end_within, exit_codes = lost_ranks.end_within, []
    lost_ranks.end_within = lambda seconds, exit_code: exit_codes.append(exit_code)

    def hang() -> None:
        for exit_code in exit_codes:
            end_within(0.1, exit_code)
        ctypes.PyDLL(None).pause()

    atexit.register(hang)
    in_the_backward_pass(rank)


def its_own_error(rank: Rank) -> None:
    """Not killed: it raises while its gradients are on their way, and Python is shut down."""
    parallel = data_parallel(fresh(), communication=Communication(bucket_mb=BUCKET_MB))
    steps(parallel)

    def fails(_: object) -> None:
        raise ValueError("no more of these gradients")

    if rank.number == 1:
        parallel.module.widen.weight.register_hook(fails)
    steps(parallel)


AT_ONCE: list[Callable[[Rank], None]] = [
    measuring_ways, in_the_lane, in_a_norm_of_a_stage, what_runs_at_exit_hangs,
]  # fmt: skip
LIKEWISE: list[Callable[[Rank], None]] = [
    measuring_the_link, in_the_backward_pass, after_the_backward_pass, in_the_optimizer, in_a_stage,
]  # fmt: skip
"""The other learns it from its connections. Not so before it is connected: ``before_it_joins``, ``making_a_group``."""


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DwconvWarning)
    PHASE, SECONDS = sys.argv[1:]
    if PHASE == "before_it_joins" and os.environ["RANK"] == "1":
        dies()
    if PHASE == "making_a_group":
        meet(Path())
    lost_ranks._SLOWER_BY_S = 1.0
    sys.exit(run(globals()[PHASE], timeout_s=float(SECONDS)))
