"""Training on a grid of ranks, pipeline × data: ``Pipeline`` runs a plan on torch.distributed.pipelining.

            data 0     data 1
    stage 0  rank 0     rank 1     the ranks of a column pass microbatches on to one another;
    stage 1  rank 2     rank 3     the ranks of a row have the same layers, and average their gradients

Each replica takes its own share of the batch. ``step`` leaves in ``parameters()`` the gradients of the loss of the
whole batch, as one process would have them.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dwconv import settings
from dwconv.discovery.step import check_model
from dwconv.errors import InvalidArgument, NoPlan
from dwconv.parallel.joining import check_joined, check_same, described
from dwconv.parallel.pipeline.stages import (
    as_on_the_first,
    boundaries,
    check_runs,
    check_splits,
    make_grid,
    make_schedule,
    make_stages,
)
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.plan import Plan
from dwconv.system import given

TIMEOUT_S = 300.0
_PRINTS_SCHEDULES = "torch.distributed.pipelining.schedules"
"""PyTorch's logger that prints the whole schedule where a step fails."""


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Where the time of this rank's last step went, in seconds."""

    step_s: float
    exposed_s: float
    """How much of it the step stood still for gradients of replicas."""


class Pipeline:
    """A model, spread over the ranks of the default process group by ``plan``.

    Every rank makes the same model, and calls ``step`` as often as the others do. What replicas are seeded with need
    not be the same: they start from the values of the first. Layers may be frozen and unfrozen between steps, on all
    ranks alike. In a step each rank draws random numbers of its own, such as masks of dropout, from a seed that the
    process's generator gives it.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        *,
        loss: Loss,
        example: Tensor,
        reduction: Reduction | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """``loss(output, target)`` is one number, a mean or a sum over its images. ``reduction``: which of them; by
        default that of a loss of PyTorch's, else ``mean``, and the first step raises NoPlan if that is wrong, as for a
        mean in which images count differently. ``example``: one replica's share of a batch, on the device that this
        rank computes on. ``timeout_s``: how long to wait for another rank. Raises NoPlan, and InvalidWorkload if ranks
        have different models."""
        check_model(model)
        check_joined()
        if not isinstance(plan, Plan):
            raise InvalidArgument(f"plan={given.shown(plan)} is no Plan; dwconv.parallel.plan_for_ranks makes one")
        if not isinstance(example, Tensor):
            raise InvalidArgument(f"example={given.shown(example)} is no Tensor; give a replica's share of a batch")
        if not callable(loss):
            raise InvalidArgument(f"loss={given.shown(loss)} cannot be called; give a function of (output, target)")
        timeout_s = given.seconds("timeout_s", timeout_s)
        check_runs(plan)
        check_splits(plan, model)
        if plan.world != dist.get_world_size():
            raise NoPlan(f"the plan is for {plan.world} ranks, and {dist.get_world_size()} run")
        self._loss = BatchLoss(loss, reduction)
        ends = ", ".join(str(stage.last) for stage in plan.stages)
        about = f"{plan.schedule} of {plan.microbatches} microbatches, their {self._loss.reduction}"
        check_same([*described(model), f"{about}, stages that end at layers {ends}"])
        if example.shape[0] % plan.microbatches:
            raise NoPlan(
                f"a replica's share of {example.shape[0]} images is not divisible by {plan.microbatches} microbatches"
            )
        model.to(example.device)
        microbatch = example[: len(example) // plan.microbatches]
        layers = list(pieces(model, microbatch))
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
        state = model.state_dict(keep_vars=True)
        names: defaultdict[int, tuple[str, ...]] = defaultdict(tuple)
        for name, tensor in state.items():
            names[id(tensor)] += (name,)
        self._stages = make_stages(
            layers,
            plan,
            names=names,
            grid=grid,
            edges=edges,
            device=example.device,
            divisor=self._parts if self._loss.reduction == "mean" else 1,
        )
        used = {id(tensor) for piece in layers for tensor in piece.state_dict(keep_vars=True).values()}
        self._unused = {name: tensor for name, tensor in state.items() if id(tensor) not in used}
        as_on_the_first(self._unused.values(), _all_ranks())
        self._keys = list(state)
        self._schedule = make_schedule(plan, self._stages, self._loss)
        self.times: StepTimes | None = None
        """Of the last step."""

    # -- what a training loop calls -----------------------------------------------------------------------------------

    def step(self, x: Tensor | None, target: Tensor | None) -> float:
        """Forward and backward of this replica's share of a batch; returns the loss of all of it. Gradients in
        ``parameters()`` are replaced; None where nothing was trained. Ranks without the first stage may give no ``x``,
        those without the last no ``target``."""
        start_s = time.perf_counter()
        inputs: tuple[Tensor, ...] = ()
        if self._stages[0].is_first:
            if x is None or x.shape != self._example_shape:
                shape = None if x is None else tuple(x.shape)
                raise NoPlan(f"x of shape {shape}; this pipeline was made for {tuple(self._example_shape)} a replica")
            inputs = (x,)
        if self._stages[-1].is_last and (target is None or len(target) != self._example_shape[0]):
            count = None if target is None else len(target)
            raise NoPlan(f"{count} targets; this pipeline was made for {self._example_shape[0]} images a replica")
        for parameter in self.parameters():
            parameter.grad = None
        losses: list[Tensor] = []
        with _random_numbers_of_its_own(self._device), settings.quiet_logger(_PRINTS_SCHEDULES):
            self._schedule.step(
                *inputs, target=target if self._stages[-1].is_last else None, losses=losses, return_outputs=False
            )
        exposed_s = sum(stage.gradients.finish() for stage in self._stages)
        self.times = StepTimes(step_s=time.perf_counter() - start_s, exposed_s=exposed_s)
        return self._over_ranks(losses)

    @property
    def _parts(self) -> int:
        """How many microbatches a batch has, of all replicas."""
        return self.plan.microbatches * self.plan.replicas

    def _over_ranks(self, losses: list[Tensor]) -> float:
        """The loss of the batch. Raises NoPlan, on every rank, if it is not what its microbatches give together."""
        flaw = self._loss.flaw()
        sums = torch.tensor([0.0, bool(flaw)], device=self._device)
        for loss in losses:
            sums[0] += loss.detach() / (self._parts if self._loss.reduction == "mean" else 1)
        dist.all_reduce(sums)
        total, flaws = sums.tolist()
        if flaws:
            raise NoPlan(flaw or "the loss is not what its microbatches give together: see a rank of the last stage")
        return float(total)

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the stages that this rank runs."""
        for stage in self._stages:
            yield from stage.submod.parameters()

    def share(self, batch: Tensor) -> Tensor:
        """This replica's part of a whole batch."""
        if batch.shape[0] % self.plan.replicas:
            raise NoPlan(f"batch={batch.shape[0]} is not divisible by {self.plan.replicas} replicas")
        return batch.chunk(self.plan.replicas)[self.mesh.get_local_rank("data")]

    def state_dict(self) -> dict[str, Any]:
        """A copy of the state of the whole model, as its own ``state_dict()`` has it, on every rank (on the CPU).
        Running statistics are those of this rank's replica."""
        mine = {
            name: tensor.cpu()
            for stage in self._stages
            for own, tensor in stage.submod.state_dict().items()
            for name in stage.names[own]
        }
        all_of_them: list[dict[str, Any]] = [{} for _ in range(self.plan.groups)]
        dist.all_gather_object(all_of_them, mine, group=self.mesh.get_group("pipeline"))
        found = {name: tensor.detach().cpu().clone() for name, tensor in self._unused.items()}
        for part in all_of_them:
            found |= part
        return {key: found[key] for key in self._keys}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of the whole model, of which this rank keeps its part. Raises NoPlan for another model's."""
        for where, keys in (("lacks", set(self._keys) - set(state)), ("has", set(state) - set(self._keys))):
            if keys:
                other = "which the model has" if where == "lacks" else "which the model lacks"
                raise NoPlan(f"the state {where} {', '.join(sorted(keys)[:3])}, {other}; load that of the same model")
        for stage in self._stages:
            stage.submod.load_state_dict({own: state[known[-1]] for own, known in stage.names.items()})
        with torch.no_grad():
            for name, tensor in self._unused.items():
                tensor.copy_(state[name])


@contextlib.contextmanager
def _random_numbers_of_its_own(device: torch.device) -> Iterator[None]:
    """Where ranks were seeded alike, each draws other numbers inside: replicas have other images, and stages other
    layers. The process's generator gives one seed, and goes on from there. Alone, a rank draws as one process does."""
    if dist.get_world_size() == 1:
        yield
        return
    seed = int(torch.randint(2**62, ())) + dist.get_rank()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def _all_ranks() -> dist.ProcessGroup:
    assert dist.group.WORLD is not None
    return dist.group.WORLD


# -- the loss of a whole batch, from those of its microbatches ---------------------------------------------------------


Reduction = Literal["mean", "sum"]
Loss = Callable[[Tensor, Tensor], Tensor]


class BatchLoss:
    """A loss that is called for each microbatch, and checked once: of all images at once it must be what the
    microbatches give together."""

    def __init__(self, loss: Loss, reduction: Reduction | None) -> None:
        """``reduction``: None for that of the loss itself, as PyTorch's have one; else ``mean``. Raises NoPlan."""
        said = reduction or _said_by(loss) or "mean"
        if said not in get_args(Reduction):
            raise NoPlan(f"reduction={said} is none of {', '.join(get_args(Reduction))}; a loss must be one number")
        self._loss = loss
        self.reduction: Reduction = "mean" if said == "mean" else "sum"
        self._seen: list[tuple[Tensor, Tensor]] | None = None if reduction else []
        """Output and target of each microbatch, until the loss is checked; a given reduction is not checked then."""

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        if self._seen is not None:
            self._seen.append((output.detach(), target.detach()))
        return self._loss(output, target)

    def flaw(self) -> str:
        """After a step, on the rank of the last stage: what is wrong with the loss; empty if nothing is, and on other
        ranks."""
        seen, self._seen = self._seen, None
        if not seen:
            return ""
        outputs, targets = (torch.cat(each) for each in zip(*seen, strict=True))
        count = len(outputs) if len(outputs) % 2 else 2
        parts = zip(outputs.chunk(count), targets.chunk(count), strict=True)
        whole, together = self._of(outputs, targets), torch.stack([self._of(*each) for each in parts])
        found = together.mean() if self.reduction == "mean" else together.sum()
        if torch.allclose(found.double(), whole.double(), rtol=max(1e-4, 32 * torch.finfo(whole.dtype).eps), atol=0):
            return ""
        return (
            f"the loss of {len(outputs)} images is {float(whole):.6g}, and the {self.reduction} of {count} equal parts "
            f"of them {float(found):.6g}: gradients would differ from those of one process; give "
            'reduction="mean" or "sum", which skips this check'
        )

    @torch.no_grad()
    def _of(self, output: Tensor, target: Tensor) -> Tensor:
        return self._loss(output, target)


def _said_by(loss: Loss) -> str | None:
    if isinstance(loss, partial):
        return loss.keywords.get("reduction") or _said_by(loss.func)
    said = getattr(loss, "reduction", None)
    return said if isinstance(said, str) else None
