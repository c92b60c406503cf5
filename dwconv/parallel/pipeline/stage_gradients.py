"""The gradients of one stage, averaged over its replicas while other stages still compute.

Each stage has a group of its own, so that the transfers of one do not wait for those of another: on gloo a thread of
the backend runs them, on NCCL a stream of the group.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class GradientTimes:
    """When one stage's gradients were averaged, in seconds of ``time.perf_counter``."""

    started_s: float
    ended_s: float
    waited_s: float
    """How long the step stood still for it: what was not hidden behind computation."""


class StageGradients:
    """Averages the gradients of one stage. ``start`` once its last microbatch is through, ``finish`` before they are
    used."""

    def __init__(self, parameters: Iterable[nn.Parameter], *, group: dist.ProcessGroup | None, divisor: int) -> None:
        """``group``: the replicas of the stage; None if it has one. ``divisor``: of the sums over microbatches and
        replicas."""
        self._group = group
        self._divisor = divisor
        self._parameters = list(parameters)
        self._trained: list[nn.Parameter] = []
        """Those that the buckets are for: layers may be frozen, and unfrozen, from step to step."""
        self._buckets: list[_Bucket] = []
        self._works: list[dist.Work] = []
        self._started_s = 0.0
        self._ended_s: list[float] = []

    def start(self) -> None:
        """Begin. Returns at once; gradients must not be touched before ``finish``."""
        self._started_s = time.perf_counter()
        self._ended_s = []
        self._follow_what_is_trained()
        for bucket in self._buckets:
            flat = bucket.gather(self._divisor)
            if self._group is not None:
                work = dist.all_reduce(flat, group=self._group, async_op=True)
                assert work is not None
                work.get_future().add_done_callback(self._note_end)
                self._works.append(work)

    def finish(self) -> GradientTimes:
        """Wait until every parameter has its averaged gradient; None where it has none on any replica."""
        before_s = time.perf_counter()
        for work in self._works:
            work.wait()
        self._works.clear()
        for bucket in self._buckets:
            bucket.assign()
        after_s = time.perf_counter()
        ended_s = min(max(self._ended_s, default=self._started_s), after_s)  # the callback runs beside the wait
        return GradientTimes(started_s=self._started_s, ended_s=ended_s, waited_s=after_s - before_s)

    def _follow_what_is_trained(self) -> None:
        trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        if [id(each) for each in trained] == [id(each) for each in self._trained]:
            return
        self._trained = trained
        by_type = defaultdict(list)
        for parameter in trained:
            by_type[parameter.dtype, parameter.device].append(parameter)
        self._buckets = [_Bucket(bucket) for bucket in by_type.values()]

    def _note_end(self, _: Any) -> None:
        self._ended_s.append(time.perf_counter())


class _Bucket:
    """Gradients of one type side by side in memory, and behind them, for each, how many replicas have one."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        elements = sum(parameter.numel() for parameter in parameters)
        self._flat = parameters[0].new_empty(elements + len(parameters), requires_grad=False)
        self._gradients, self._counts = self._flat[:elements], self._flat[elements:]
        self._views: list[Tensor] = []
        first = 0
        for parameter in parameters:
            view = self._gradients[first : first + parameter.numel()]
            # Where a parameter is dense in another order, such as channels_last, its gradient is so, too.
            dense = torch.empty_like(parameter, device="meta")
            self._views.append(view.as_strided(dense.size(), dense.stride()))
            first += parameter.numel()

    def gather(self, divisor: int) -> Tensor:
        """All gradients, copied and divided, 0 where a parameter has none; and the counts."""
        for parameter, view in zip(self._parameters, self._views, strict=True):
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)
        self._gradients.div_(divisor)
        has_one = [float(parameter.grad is not None) for parameter in self._parameters]
        self._counts.copy_(torch.tensor(has_one))
        return self._flat

    def assign(self) -> None:
        for parameter, view, count in zip(self._parameters, self._views, self._counts.tolist(), strict=True):
            parameter.grad = view if count else None
