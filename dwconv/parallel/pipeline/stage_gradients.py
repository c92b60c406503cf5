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

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, group: dist.ProcessGroup | None, microbatches: int
    ) -> None:
        """``group``: the replicas of the stage; None if it has one."""
        self._group = group
        self._divisor = microbatches * (1 if group is None else group.size())
        by_type = defaultdict(list)
        for parameter in parameters:
            if parameter.requires_grad:
                by_type[parameter.dtype, parameter.device].append(parameter)
        self._buckets = [_Bucket(bucket) for bucket in by_type.values()]
        self._works: list[dist.Work] = []
        self._started_s = 0.0
        self._ended_s: list[float] = []

    def start(self) -> None:
        """Begin. Returns at once; gradients must not be touched before ``finish``."""
        self._started_s = time.perf_counter()
        self._ended_s = []
        for bucket in self._buckets:
            flat = bucket.gather().div_(self._divisor)
            if self._group is not None:
                work = dist.all_reduce(flat, group=self._group, async_op=True)
                assert work is not None
                work.get_future().add_done_callback(self._note_end)
                self._works.append(work)

    def finish(self) -> GradientTimes:
        """Wait until every parameter has its averaged gradient."""
        before_s = time.perf_counter()
        for work in self._works:
            work.wait()
        self._works.clear()
        for bucket in self._buckets:
            bucket.assign()
        after_s = time.perf_counter()
        ended_s = min(max(self._ended_s, default=self._started_s), after_s)  # the callback runs beside the wait
        return GradientTimes(started_s=self._started_s, ended_s=ended_s, waited_s=after_s - before_s)

    def _note_end(self, _: Any) -> None:
        self._ended_s.append(time.perf_counter())


class _Bucket:
    """Gradients of one type side by side in memory."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self._flat = parameters[0].new_empty(sum(parameter.numel() for parameter in parameters), requires_grad=False)
        self._views: list[Tensor] = []
        first = 0
        for parameter in parameters:
            view = self._flat[first : first + parameter.numel()]
            # Where a parameter is dense in another order, such as channels_last, its gradient is so, too.
            dense = torch.empty_like(parameter, device="meta")
            self._views.append(view.as_strided(dense.size(), dense.stride()))
            first += parameter.numel()

    def gather(self) -> Tensor:
        """All gradients, copied; 0 where a parameter has none."""
        for parameter, view in zip(self._parameters, self._views, strict=True):
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)
        return self._flat

    def assign(self) -> None:
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view
