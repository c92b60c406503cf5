"""A stage of PyTorch's pipelining that notes when it computed what, and averages its gradients once they are there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

from dwconv.errors import DwconvError, StageFailed, described_error
from dwconv.parallel.pipeline.boundary import Boundary, StageModule
from dwconv.parallel.pipeline.stage_gradients import GradientTimes, StageGradients

Work = Literal["forward", "backward", "dgrad", "wgrad", "gradients"]


@dataclass(frozen=True, kw_only=True)
class Span:
    """A stage was busy with ``work`` for a while; times in seconds of ``time.perf_counter``."""

    work: Work
    stage: int
    microbatch: int | None
    """None for the gradients, which belong to all of them."""
    start_s: float
    end_s: float


class RunningStage(PipelineStage):
    """Stage ``index`` of ``count``, on this rank."""

    def __init__(
        self,
        module: StageModule,
        *,
        index: int,
        count: int,
        device: torch.device,
        group: dist.ProcessGroup,
        gradients: StageGradients,
        given: Boundary,
        output: Boundary,
    ) -> None:
        """``group``: the pipeline that it is part of. ``given``: what the first stage gets. ``output``: what the last
        one gives."""
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
        self.gradients = gradients
        self.spans: list[Span] = []

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        with self._noted("forward", fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        # The first stage has no gradient to hand on: of a split backward pass, PyTorch leaves all to the second half.
        nothing = self.is_first and not full_backward
        with (
            contextlib.nullcontext() if nothing else self._noted("backward" if full_backward else "dgrad", bwd_chunk_id)
        ):
            super().backward_one_chunk(
                bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward
            )
        if last_backward:
            self.gradients.start()

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        with self._noted("backward" if self.is_first else "wgrad", bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)
        if last_backward:
            self.gradients.start()

    def finish(self) -> GradientTimes:
        """Wait for the averaged gradients."""
        times = self.gradients.finish()
        self.spans.append(
            Span(
                work="gradients",
                stage=self.stage_index,
                microbatch=None,
                start_s=times.started_s,
                end_s=times.ended_s,
            )
        )
        return times

    @contextlib.contextmanager
    def _noted(self, work: Work, microbatch: int) -> Iterator[None]:
        start_s = time.perf_counter()
        try:
            yield
        except DwconvError:
            raise
        except Exception as error:  # noqa: BLE001  the layers are the user's
            cause = error.__cause__ or error  # PyTorch's own error shows tensors, for pages
            reason = described_error(cause)
            said = f"{work} of microbatch {microbatch} in stage {self.stage_index} of {self.num_stages}: {reason}"
            raise StageFailed(said) from cause
        self.spans.append(
            Span(
                work=work,
                stage=self.stage_index,
                microbatch=microbatch,
                start_s=start_s,
                end_s=time.perf_counter(),
            )
        )
