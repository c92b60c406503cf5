"""A stage of PyTorch's pipelining on this rank, and the averages of its gradients.

Each stage has a group of its own for them, so that the transfers of one do not wait for those of another: on gloo a
thread of the backend runs them, on NCCL a stream of the group.

At its edges tensors go to another rank: dense in the order that both sides expect. What is sent is memory, not a
tensor, so strides that differ between the two sides would give wrong numbers without an error. A channels_last map is
sent as the NHWC tensor that it is in memory: no side copies it. Neither edge gives a view, since the first layer of a
stage may work in place, and what a stage gives is detached in place after its backward pass.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.distributed.pipelining import PipelineStage

from dwconv.errors import DwconvError, StageFailed, described_error


class RunningStage(PipelineStage):
    """Stage ``index`` of ``count``, on this rank."""

    def __init__(
        self, module: StageModule, *, index: int, count: int, device: torch.device, group: dist.ProcessGroup,
        gradients: StageGradients, names: Mapping[str, tuple[str, ...]], given: Boundary, output: Boundary,
    ) -> None:  # fmt: skip
        """``group``: the pipeline that it is part of. ``names``: what the model calls the stage's tensors; one that is
        shared has several. ``given``: what the first stage gets. ``output``: what the last one gives."""
        # With shapes given, PyTorch runs no trial step on memory that holds anything, which would go into the running
        # statistics of batch normalisation.
        super().__init__(
            module,
            index,
            count,
            device,
            input_args=module.received.sent if module.received else given.given,
            output_args=(module.sent or output).sent,
            group=group,
        )
        self.gradients, self.names = gradients, names

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        with self._named("forward", fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        with self._named("backward" if full_backward else "dgrad", bwd_chunk_id):
            super().backward_one_chunk(
                bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward
            )
        if last_backward:
            self.gradients.start()

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        with self._named("wgrad", bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)
        if last_backward:
            self.gradients.start()

    @contextlib.contextmanager
    def _named(self, work: str, microbatch: int) -> Iterator[None]:
        """An error within says where it happened."""
        try:
            yield
        except DwconvError:
            raise
        except Exception as error:  # noqa: BLE001  the layers are the user's
            cause = error.__cause__ or error  # PyTorch's own error shows tensors, for pages
            where = f"{work} of microbatch {microbatch} in stage {self.stage_index} of {self.num_stages}"
            raise StageFailed(f"{where}: {described_error(cause)}") from cause


# -- gradients, averaged over replicas while other stages still compute ------------------------------------------------


class StageGradients:
    """Averages the gradients of one stage. ``start`` once its last microbatch is through, ``finish`` before they are
    used."""

    def __init__(self, parameters: Iterable[nn.Parameter], *, group: dist.ProcessGroup | None, divisor: int) -> None:
        """``group``: the replicas of the stage; None if it has one. ``divisor``: of the sums over microbatches and
        replicas."""
        self._group = group
        self._divisor = divisor
        self._parameters = list(parameters)
        self._buckets: list[_Bucket] = []
        self._works: list[dist.Work] = []

    def start(self) -> None:
        """Begin. Returns at once; gradients must not be touched before ``finish``."""
        by_type = defaultdict(list)
        for parameter in self._parameters:
            if parameter.requires_grad:
                by_type[parameter.dtype, parameter.device].append(parameter)
        self._buckets = [_Bucket(bucket, divisor=self._divisor) for bucket in by_type.values()]
        if self._group is not None:
            for bucket in self._buckets:
                work = dist.all_reduce(bucket.flat, group=self._group, async_op=True)
                assert work is not None
                self._works.append(work)

    def finish(self) -> float:
        """Wait until every parameter has its averaged gradient; None where it has none on any replica. Returns the
        seconds that the step stood still for it."""
        before_s = time.perf_counter()
        for work in self._works:
            work.wait()
        self._works.clear()
        for bucket in self._buckets:
            bucket.assign()
        self._buckets.clear()
        return time.perf_counter() - before_s


class _Bucket:
    """Gradients of one type side by side in memory, divided, 0 where a parameter has none; and behind them, for each,
    how many replicas have one."""

    def __init__(self, parameters: list[nn.Parameter], *, divisor: int) -> None:
        self._parameters = parameters
        elements = sum(parameter.numel() for parameter in parameters)
        self.flat = parameters[0].new_zeros(elements + len(parameters), requires_grad=False)
        self._counts = self.flat[elements:]
        self._views: list[Tensor] = []
        first = 0
        for parameter in parameters:
            # Where a parameter is dense in another order, such as channels_last, its gradient is so, too.
            dense = torch.empty_like(parameter, device="meta")
            view = self.flat[first : first + parameter.numel()].as_strided(dense.size(), dense.stride())
            self._views.append(view)
            first += parameter.numel()
            if parameter.grad is not None:
                torch.div(parameter.grad, divisor, out=view)
        self._counts.copy_(torch.tensor([float(parameter.grad is not None) for parameter in parameters]))

    def assign(self) -> None:
        for parameter, view, count in zip(self._parameters, self._views, self._counts.tolist(), strict=True):
            parameter.grad = view if count else None


# -- the edges of a stage ----------------------------------------------------------------------------------------------


_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """The tensor between two stages, for one microbatch."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    channels_last: bool

    @staticmethod
    def like(tensor: Tensor) -> Boundary:
        """The boundary that ``tensor`` crosses."""
        last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
        return Boundary(
            shape=tuple(tensor.shape), dtype=tensor.dtype, channels_last=last and not tensor.is_contiguous()
        )

    @property
    def sent(self) -> Tensor:
        """An example, without memory, of what is sent."""
        shape = [self.shape[axis] for axis in _TO_NHWC] if self.channels_last else self.shape
        return torch.empty(shape, dtype=self.dtype, device="meta", requires_grad=self.dtype.is_floating_point)

    @property
    def given(self) -> Tensor:
        """An example, without memory, of what the user gives to the first stage."""
        memory_format = torch.channels_last if self.channels_last else torch.contiguous_format
        return torch.empty(self.shape, dtype=self.dtype, device="meta", memory_format=memory_format)


class StageModule(nn.Module):
    """The layers of one stage, from what the rank before sends to what the rank after expects."""

    def __init__(self, layers: Sequence[nn.Module], *, received: Boundary | None, sent: Boundary | None) -> None:
        """``received``, ``sent``: None at the ends of the model."""
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.received, self.sent = received, sent

    def forward(self, x: Tensor) -> Tensor:
        if self.received is not None:
            x = _Received.apply(x, self.received.channels_last)  # type: ignore[no-untyped-call]
        for layer in self.layers:
            x = layer(x)
        if self.sent is not None:
            x = _Sent.apply(x, self.sent.channels_last)  # type: ignore[no-untyped-call]
        return x


class _Received(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, channels_last: bool) -> Tensor:
        ctx.channels_last = channels_last
        return _not_a_view(x.permute(_TO_NCHW) if channels_last else x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _dense(grad, channels_last=ctx.channels_last), None


class _Sent(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, channels_last: bool) -> Tensor:
        ctx.channels_last = channels_last
        return _not_a_view(_dense(x, channels_last=channels_last))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.permute(_TO_NCHW) if ctx.channels_last else grad, None


def _dense(tensor: Tensor, *, channels_last: bool) -> Tensor:
    return (tensor.permute(_TO_NHWC) if channels_last else tensor).contiguous()


def _not_a_view(tensor: Tensor) -> Tensor:
    """A tensor on the same memory that autograd does not take for a view of another."""
    alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return alias.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
