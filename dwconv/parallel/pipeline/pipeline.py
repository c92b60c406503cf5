"""Training on a grid of ranks, pipeline × data: ``Pipeline`` runs a plan on torch.distributed.pipelining.

            data 0     data 1
    stage 0  rank 0     rank 1     the ranks of a column pass microbatches on to one another;
    stage 1  rank 2     rank 3     the ranks of a row have the same layers, and average their gradients

Each replica takes its own share of the batch. ``step`` leaves in ``parameters()`` the gradients of the mean loss over
the whole batch, as one process would have them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dwconv.errors import NoPlan
from dwconv.parallel.pipeline.pipeline_schedules import check_runs, check_splits, make_schedule
from dwconv.parallel.pipeline.running_stage import Span
from dwconv.parallel.pipeline.stages import boundaries, make_grid, make_stages
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.plan import Plan

BatchNorm = Literal["microbatch", "synchronised"]
TIMEOUT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Where the time of this rank's last step went, in seconds."""

    started_s: float
    """Of ``time.perf_counter``."""
    step_s: float
    gradients_s: float
    """From the start of the first stage's gradient averaging to the end of the last's; 0 with one replica."""
    exposed_s: float
    """How much of it the step stood still for."""
    spans: tuple[Span, ...]


class Pipeline:
    """A model, spread over the ranks of the default process group as ``plan`` says.

    Every rank makes the same model (seed first), and calls ``step`` as often as the others do.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        *,
        loss: Callable[[Tensor, Tensor], Tensor],
        example: Tensor,
        batch_norm: BatchNorm = "microbatch",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """``loss(output, target)`` is a mean over its images. ``example``: one replica's share of a batch, on the
        device that this rank computes on. ``batch_norm``: statistics of each microbatch alone, or of that microbatch
        on all replicas together. ``timeout_s``: how long to wait for another rank. Raises NoPlan."""
        check_runs(plan)
        check_splits(plan, model)
        if batch_norm not in get_args(BatchNorm):
            raise NoPlan(f"batch_norm={batch_norm} is unknown; use one of {', '.join(get_args(BatchNorm))}")
        if plan.world != dist.get_world_size():
            raise NoPlan(f"the plan is for {plan.world} ranks, and {dist.get_world_size()} run")
        if example.shape[0] % plan.microbatches:
            raise NoPlan(
                f"a replica's share of {example.shape[0]} images is not divisible by {plan.microbatches} microbatches"
            )
        model.to(example.device)
        microbatch = example[: len(example) // plan.microbatches]
        layers = list(pieces(model, microbatch))
        self.has_batch_norm = any(isinstance(module, _BatchNorm) for module in model.modules())
        """Whether ``batch_norm`` makes a difference."""
        if len(layers) != len(plan.layers):
            raise NoPlan(f"the plan is for {len(plan.layers)} layers, and the model has {len(layers)}")
        self.plan = plan
        self._example_shape, self._device = example.shape, example.device
        grid = make_grid(plan, example.device, timeout_s=timeout_s)
        self.mesh = grid.mesh
        """Dimensions ``pipeline`` and ``data``."""
        edges = boundaries(model, layers, plan, microbatch)
        self.output_shape = edges[-1].shape
        """What the model gives for a microbatch."""
        made = make_stages(
            layers,
            plan,
            names={id(tensor): name for name, tensor in model.state_dict(keep_vars=True).items()},
            grid=grid,
            edges=edges,
            device=example.device,
            synchronised=batch_norm == "synchronised",
        )
        self._stages = [each.running for each in made]
        self._names = [each.names for each in made]
        self._schedule = make_schedule(plan, self._stages, loss)
        self.times: StepTimes | None = None
        """Of the last step."""

    # -- what a training loop calls -----------------------------------------------------------------------------------

    def step(self, x: Tensor | None, target: Tensor | None) -> float:
        """Forward and backward of this replica's share of a batch; returns the mean loss over all of it. Gradients in
        ``parameters()`` are replaced. Ranks without the first stage may give no ``x``, those without the last no
        ``target``."""
        start_s = time.perf_counter()
        inputs: tuple[Tensor, ...] = ()
        if self._stages[0].is_first:
            if x is None or x.shape != self._example_shape:
                given = None if x is None else tuple(x.shape)
                raise NoPlan(f"x of shape {given}; this pipeline was made for {tuple(self._example_shape)} a replica")
            inputs = (x,)
        if self._stages[-1].is_last and (target is None or len(target) != self._example_shape[0]):
            count = None if target is None else len(target)
            raise NoPlan(f"{count} targets; this pipeline was made for {self._example_shape[0]} images a replica")
        for parameter in self.parameters():
            parameter.grad = None
        losses: list[Tensor] = []
        for stage in self._stages:
            stage.spans.clear()
        self._schedule.step(
            *inputs, target=target if self._stages[-1].is_last else None, losses=losses, return_outputs=False
        )
        synced = [stage.finish() for stage in self._stages]
        self.times = StepTimes(
            started_s=start_s,
            step_s=time.perf_counter() - start_s,
            gradients_s=max(each.ended_s for each in synced) - min(each.started_s for each in synced),
            exposed_s=sum(each.waited_s for each in synced),
            spans=tuple(span for stage in self._stages for span in stage.spans),
        )
        return self._mean_over_ranks(losses)

    def _mean_over_ranks(self, losses: list[Tensor]) -> float:
        total = torch.zeros((), device=self._device)
        for loss in losses:
            total += loss.detach() / (self.plan.microbatches * self.plan.stages[0].replicas)
        dist.all_reduce(total)
        return float(total)

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the stages that this rank runs."""
        for stage in self._stages:
            yield from stage.submod.parameters()

    def share(self, batch: Tensor) -> Tensor:
        """This replica's part of a whole batch."""
        replicas = self.plan.stages[0].replicas
        if batch.shape[0] % replicas:
            raise NoPlan(f"batch={batch.shape[0]} is not divisible by {replicas} replicas")
        return batch.chunk(replicas)[self.mesh.get_local_rank("data")]

    def state_dict(self) -> dict[str, Any]:
        """The state of the whole model, under its own names, on every rank (on the CPU). Running statistics are those
        of this rank's replica."""
        mine = {
            stage.stage_index: {names[name]: tensor.cpu() for name, tensor in stage.submod.state_dict().items()}
            for stage, names in zip(self._stages, self._names, strict=True)
        }
        all_of_them: list[dict[int, dict[str, Any]]] = [{} for _ in range(self.plan.groups)]
        dist.all_gather_object(all_of_them, mine, group=self.mesh.get_group("pipeline"))
        stages = {index: state for part in all_of_them for index, state in part.items()}
        return {name: tensor for _, state in sorted(stages.items()) for name, tensor in state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of the whole model, of which this rank keeps its part."""
        for stage, names in zip(self._stages, self._names, strict=True):
            stage.submod.load_state_dict({mine: state[name] for mine, name in names.items()})
