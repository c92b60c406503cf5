"""The gradients of a stage, averaged over its replicas inside the backward pass of the last microbatch.

    backward pass   layer 4 │ layer 3 │ layer 2 │ layer 1      buckets fill from the last layer on; each is sent as soon
    link                    └─ bucket 0 ─┘└─── bucket 1 ───     as it has all of its gradients

Each stage has a group of its own for them, so that the transfers of one do not wait for those of another: on gloo a
thread of the backend runs them, on NCCL a stream of the group. Buckets take the ways of data parallelism.

In the first step, and in the first after layers are frozen or unfrozen, the order in which gradients arrive is learnt,
and they are sent behind it. All replicas send buckets in the order of the first.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future

from dwconv.errors import StageFailed
from dwconv.parallel.data.sending import sender
from dwconv.parallel.data.ways import Communication
from dwconv.parallel.pipeline.spans import Span, Step
from dwconv.parallel.planning.pipeline_plan import BUCKET_BYTES

DEFAULT = Communication()


class StageGradients:
    """Averages the gradients of one stage. ``last_backward`` around the backward pass of its last microbatch,
    ``finish`` before they are used."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        group: dist.ProcessGroup | None,
        divisor: int,
        way: Communication = DEFAULT,
        stage: int = 0,
        step: Step | None = None,
    ) -> None:
        """``group``: the replicas of the stage; None if it has one. ``divisor``: of the sums over microbatches and
        replicas. ``way``: how gradients are sent, and how many at a time. ``step``: notes when ``stage`` sends. Raises
        InvalidChoice for PowerSGD."""
        self._parameters = list(parameters)
        self.way, self._group, self._divisor = way, group, divisor
        self._bucket_bytes = BUCKET_BYTES if way.bucket_mb is None else way.bucket_mb * 2**20
        device = self._parameters[0].device if self._parameters else torch.device("cpu")
        self._send = None if group is None else sender(group, way, device=device)
        self._stage, self._step = stage, step or Step()
        self._trained: list[nn.Parameter] = []
        """Those that gradients are expected for: layers may be frozen, and unfrozen, from step to step."""
        self._numbers: dict[int, int] = {}
        """Of the trained parameters, by id."""
        self._learnt: tuple[list[list[int]], Counter[int]] | None = None
        """The parameters of each bucket, and how often the gradient of each arrives in a backward pass."""
        self._arrivals: list[int] = []
        self._buckets: list[_Bucket] = []
        self._sent = 0
        """Buckets, in their order."""

    @contextmanager
    def last_backward(self) -> Iterator[None]:
        """The backward pass of the last microbatch runs inside. Gradients must not be touched between it and
        ``finish``."""
        self._begin()
        hooked = [] if self._group is None else self._trained
        hooks = [each.register_post_accumulate_grad_hook(self.arrived) for each in hooked]  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        for _ in self._buckets[self._sent :]:
            self._send_next()

    def arrived(self, parameter: Tensor) -> None:
        """The last microbatch has added to the gradient of ``parameter``."""
        number = self._numbers[id(parameter)]
        self._arrivals.append(number)
        if self._learnt is None:
            return
        for place, bucket in enumerate(self._buckets):
            if number in bucket.missing:
                bucket.missing[number] -= 1
                if place < self._sent:
                    raise StageFailed(
                        f"stage {self._stage}: a gradient of shape {tuple(parameter.shape)} grew after it was sent; in "
                        "the first step it arrived less often: the layers of a model must run alike in every step"
                    )
        while self._sent < len(self._buckets) and self._buckets[self._sent].is_full:
            self._send_next()

    def finish(self) -> float:
        """Wait until every parameter has its averaged gradient; None where it has none on any replica. Returns the
        seconds that the step stood still for it."""
        before_s = time.perf_counter()
        for bucket in self._buckets:
            bucket.finish()
        waited_s = time.perf_counter() - before_s
        if self._group is None:
            for parameter in self._trained:
                if parameter.grad is not None and self._divisor != 1:
                    parameter.grad.div_(self._divisor)  # in its memory: fresh memory takes as long again
            return waited_s
        about = {"stage": self._stage, "microbatch": None}
        for bucket in self._buckets:
            self._step.spans.append(Span(work="reduce", start_s=bucket.start_s, end_s=bucket.end_s, **about))  # type: ignore[arg-type]
        self._step.spans.append(Span(work="wait", start_s=before_s, end_s=before_s + waited_s, **about))  # type: ignore[arg-type]
        if self._learnt is None:
            self._learn()
        self._buckets = []
        return waited_s

    # -- buckets -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        if [*map(id, trained)] != [*map(id, self._trained)]:
            self._trained, self._learnt = trained, None
            self._numbers = {id(parameter): number for number, parameter in enumerate(trained)}
        self._arrivals, self._sent, self._buckets = [], 0, []
        if self._group is None:
            return
        together, expected = self._learnt or (self._packed(range(len(trained)), limit=float("inf")), Counter())
        self._buckets = [
            _Bucket(
                [trained[each] for each in numbers], {each: expected[each] for each in numbers}, number=number,
                count=len(together),
            )
            for number, numbers in enumerate(together)
        ]  # fmt: skip

    def _send_next(self) -> None:
        assert self._group is not None and self._send is not None
        # What is sent becomes the mean over the replicas.
        self._buckets[self._sent].send(self._send, self._divisor / self._group.size())
        self._sent += 1

    def _learn(self) -> None:
        """Pack the buckets of the steps to come. Gradients that did not arrive in the last backward pass come last."""
        last = {number: place for place, number in enumerate(self._arrivals)}
        order = sorted(range(len(self._trained)), key=lambda number: last.get(number, len(self._arrivals)))
        learnt = [[self._packed(order, limit=self._bucket_bytes), Counter(self._arrivals)]]
        dist.broadcast_object_list(learnt, group=self._group, group_src=0)
        self._learnt = learnt[0][0], learnt[0][1]  # type: ignore[assignment]

    def _packed(self, order: Sequence[int], *, limit: float) -> list[list[int]]:
        """Numbers of parameters, packed by type in this order until a bucket is full."""
        full: list[list[int]] = []
        open_: dict[object, list[int]] = {}
        for number in order:
            parameter = self._trained[number]
            bucket = open_.setdefault((parameter.dtype, parameter.device), [])
            bucket.append(number)
            if sum(self._trained[each].nbytes for each in bucket) >= limit:
                full.append(open_.pop((parameter.dtype, parameter.device)))
        return [*full, *open_.values()]


class _Bucket:
    """Gradients of one type side by side in memory, divided, 0 where a parameter has none; and behind them, for each,
    how many replicas have one."""

    def __init__(self, parameters: list[nn.Parameter], missing: dict[int, int], *, number: int, count: int) -> None:
        """``missing``: how often the gradient of each parameter has still to arrive, by number. ``number``: of
        ``count`` buckets."""
        self._parameters, self.missing = parameters, missing
        self._number, self._of = number, count
        self._views: list[Tensor] = []
        self._flat: Tensor | None = None
        self._coming: Future[Tensor] | None = None
        self.start_s = self.end_s = 0.0

    @property
    def is_full(self) -> bool:
        """True once all gradients have arrived."""
        return all(left <= 0 for left in self.missing.values())

    def buffer(self) -> Tensor:
        """What is sent."""
        assert self._flat is not None
        return self._flat

    def index(self) -> int:
        """Its place among the buckets of the step."""
        return self._number

    def is_last(self) -> bool:
        """True for the last of the step."""
        return self._number + 1 == self._of

    @torch.no_grad()
    def send(self, send: Callable[[_Bucket], Future[Tensor]], divisor: float) -> None:
        """Begin to average over the replicas. Returns at once."""
        self.start_s = time.perf_counter()
        parameters = self._parameters
        elements = sum(parameter.numel() for parameter in parameters)
        flat = parameters[0].new_zeros(elements + len(parameters), requires_grad=False)
        self._counts, first = flat[elements:], 0
        for parameter in parameters:
            # Where a parameter is dense in another order, such as channels_last, its gradient is so, too.
            dense = torch.empty_like(parameter, device="meta")
            view = flat[first : first + parameter.numel()].as_strided(dense.size(), dense.stride())
            self._views.append(view)
            first += parameter.numel()
            if parameter.grad is not None:
                torch.div(parameter.grad, divisor, out=view)
        self._counts.copy_(torch.tensor([float(parameter.grad is not None) for parameter in parameters]))
        self._flat = flat
        self._coming = send(self)
        if flat.device.type == "cpu":  # on a GPU it would be called when the sum is queued
            self._coming.add_done_callback(self._note_end)

    def _note_end(self, _: object) -> None:
        self.end_s = time.perf_counter()

    def finish(self) -> None:
        """Wait for the mean, and hand it to the parameters."""
        assert self._coming is not None
        self._coming.wait()
        self.end_s = self.end_s or time.perf_counter()  # the callback runs beside the wait
        for parameter, view, count in zip(self._parameters, self._views, self._counts.tolist(), strict=True):
            parameter.grad = view if count else None
