"""A step of training in one form or the other: stages in a pipeline, or a whole model on every rank."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dwconv.discovery.unchanged import unchanged
from dwconv.errors import DataFailed, NoPlan
from dwconv.parallel.batch_norm import sync_bn
from dwconv.parallel.data.replicas import communication, data_parallel
from dwconv.parallel.pipeline.pipeline import Pipeline
from dwconv.parallel.pipeline.stages import uses_all
from dwconv.parallel.planning.fx_graph import runs
from dwconv.parallel.planning.pipeline_plan import Plan


class CountedLoss:
    """Cross-entropy, which counts the images of this rank and those of which the class was found."""

    reduction = "mean"

    def __init__(self) -> None:
        self.right: Tensor | int = 0
        self.seen = 0

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        if target.device.type == "cpu" and int(target.max()) >= output.shape[1]:
            raise DataFailed(
                f"the data has a class {int(target.max())}, and the model gives {output.shape[1]} classes, from 0 on"
            )
        if output.requires_grad:  # else it is a check, not a step
            self.right = self.right + (output.detach().argmax(1) == target).sum()
            self.seen += len(target)
        return nn.functional.cross_entropy(output, target)


class Trainer(Protocol):
    """What trains a model on this rank."""

    loss: CountedLoss
    step_s: float
    """Of the last step."""

    @property
    def takes_data(self) -> bool:
        """False for a stage in the middle."""

    def share(self, batch: Tensor) -> Tensor:
        """This rank's part of a whole batch."""

    def step(self, x: Tensor | None, target: Tensor | None, *, watches: bool = False) -> float:
        """Gradients of the loss of a whole batch, which is returned; of this rank's part of it."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those that this rank trains."""

    def state(self) -> dict[str, Any]:
        """A copy of what this rank has of the model."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Put it back."""

    def gathered(self) -> nn.Module:
        """The whole model, as it is trained now, on every rank."""

    def summary(self) -> str:
        """How gradients are sent, or waited for."""


class PipelineTrainer:
    """Stages × replicas."""

    def __init__(
        self, model: nn.Module, plan: Plan, example: Tensor, *, sync_bn: bool, measure_s: float, timeout_s: float
    ) -> None:
        """``example``: the share of a rank of the first stage. ``measure_s``: for the way of each stage's gradients."""
        self._model, self.loss, self.step_s = model, CountedLoss(), 0.0
        self.pipeline = Pipeline(
            model, plan, loss=self.loss, example=example, sync_bn=sync_bn, measure_s=measure_s, timeout_s=timeout_s
        )  # fmt: skip
        self._exposed_s: list[float] = []
        group, _ = plan.place(dist.get_rank())
        self.takes_data = group in (0, plan.groups - 1)

    def share(self, batch: Tensor) -> Tensor:
        return self.pipeline.share(batch)

    def step(self, x: Tensor | None, target: Tensor | None, *, watches: bool = False) -> float:
        loss = self.pipeline.step(x, target, watches=watches)
        assert self.pipeline.times is not None
        self.step_s = self.pipeline.times.step_s
        self._exposed_s.append(self.pipeline.times.exposed_s)
        return loss

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.pipeline.parameters()

    def state(self) -> dict[str, Any]:
        return self.pipeline.rank_state_dict()

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.pipeline.load_rank_state_dict(state)

    def gathered(self) -> nn.Module:
        self._model.load_state_dict(self.pipeline.state_dict())
        return self._model

    def summary(self) -> str:
        waits_s = sorted(self._exposed_s)[len(self._exposed_s) // 2] if self._exposed_s else 0.0
        ways = "; ".join(f"those of stage {stage} are sent in {way}" for stage, way in self.pipeline.ways.items())
        return f"{1e3 * waits_s:.1f} ms of it wait for gradients of replicas" + (ways and f", {ways}")


class DataParallelTrainer:
    """The whole model on every rank, its gradients sent the way that was measured to be the fastest."""

    def __init__(self, model: nn.Module, example: Tensor, *, synchronises: bool, measure_s: float) -> None:
        """``example``: the share of a rank. ``measure_s``: 0 for DistributedDataParallel's own way."""
        if synchronises:
            sync_bn(model)
        self.loss, self.step_s, self.takes_data = CountedLoss(), 0.0, True
        self._model, self._world = model, dist.get_world_size()
        options: dict[str, Any] = {"find_unused_parameters": not uses_all(model, example)}
        if measure_s:
            options |= {"example_inputs": example, "seconds": measure_s}
        self._replica = data_parallel(model, **options)

    def share(self, batch: Tensor) -> Tensor:
        if len(batch) % self._world:
            raise NoPlan(f"batch={len(batch)} is not divisible by {self._world} ranks")
        return batch.chunk(self._world)[dist.get_rank()]

    def step(self, x: Tensor | None, target: Tensor | None, *, watches: bool = False) -> float:
        assert x is not None and target is not None
        started_s = time.perf_counter()
        for parameter in self._model.parameters():
            parameter.grad = None
        loss = self.loss(self._replica(x), target)
        loss.backward()  # type: ignore[no-untyped-call]
        self.step_s = time.perf_counter() - started_s
        total = loss.detach().clone()
        dist.all_reduce(total)
        return float(total) / self._world

    def parameters(self) -> Iterator[nn.Parameter]:
        return self._model.parameters()

    def state(self) -> dict[str, Any]:
        return {name: tensor.detach().cpu().clone() for name, tensor in self._model.state_dict().items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._model.load_state_dict(state)

    def gathered(self) -> nn.Module:
        return self._model

    def summary(self) -> str:
        if self._world == 1:
            return "no gradient is sent"
        return f"gradients are sent in {communication(self._replica).chosen}"


def is_data_parallel(plan: Plan) -> bool:
    """Whether a plan needs no pipeline: each rank takes its share of the batch at once."""
    return len(plan.stages) == 1 and plan.microbatches == 1


def classes_of(model: nn.Module, images: Tensor) -> int:
    """How many classes the model gives, which is as before afterwards. Raises NoPlan if it gives anything else."""
    with unchanged(model, [images]), torch.no_grad(), runs(type(model).__name__, images):
        output = model(images)
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if not isinstance(output, Tensor) or output.dim() != 2:
        raise NoPlan(f"the model gives {shape} for {len(images)} images; train needs a tensor of (N, classes)")
    return output.shape[1]
