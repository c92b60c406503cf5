"""Training on stages × replicas: ``Pipeline`` runs a plan on the ranks of a job.

             data 0     data 1                  uneven
    stage 0  rank 0     rank 1       stage 0  rank 0  rank 1     microbatches go from stage to stage;
    stage 1  rank 2     rank 3       stage 1      rank 2         the ranks of a row have the same layers, and average
                                                                 their gradients

Each replica of the first stage takes its own share of the batch. ``step`` leaves in ``parameters()`` the gradients of
the loss of the whole batch, as one process would have them.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dwconv.discovery.step import check_model
from dwconv.errors import InvalidArgument, InvalidChoice, NoPlan
from dwconv.parallel.batch_norm import is_synchronised
from dwconv.parallel.data.ways import Communication
from dwconv.parallel.joining import check_joined, check_same, described
from dwconv.parallel.pipeline.batch_loss import BatchLoss, Loss, Reduction
from dwconv.parallel.pipeline.running_step import RunningStep
from dwconv.parallel.pipeline.spans import RankStep, Span, Step, events
from dwconv.parallel.pipeline.stages import (
    as_on_the_first,
    boundaries,
    check_runs,
    check_splits,
    make_grid,
    make_stages,
)
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.pipeline_plan import Plan
from dwconv.parallel.planning.trace_events import Event
from dwconv.system import given

TIMEOUT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class RankStepTimes:
    """Where the time of this rank's last step went, in seconds."""

    step_s: float
    exposed_s: float
    """How much of it the step stood still for gradients of replicas."""
    spans: tuple[Span, ...] = ()
    """What this rank did; on a GPU, when the host queued it."""


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
        communication: Communication | None = None,
        measure_s: float = 0.0,
        sync_bn: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """``loss(output, target)`` is one number, a mean or a sum over its images. ``reduction``: which of them; by
        default that of a loss of PyTorch's, else ``mean``, and the first step raises NoPlan if that is wrong, as for a
        mean in which images count differently. ``example``: one replica's share of a batch, on the device that this
        rank computes on. ``communication``: the way in which the gradients of a stage are sent to its replicas; by
        default in buckets of 25 MiB or, with ``measure_s``, the way that is the fastest for each stage, measured on all
        replicas together in about so many seconds a stage. ``sync_bn``: batch normalisation with the statistics of a
        microbatch of every replica together, not of each alone. ``timeout_s``: how long to wait for another rank.
        Raises NoPlan, and InvalidWorkload if ranks have different models."""
        check_model(model)
        check_joined()
        if not isinstance(plan, Plan):
            raise InvalidArgument(f"plan={given.shown(plan)} is no Plan; dwconv.parallel.plan_for_ranks makes one")
        if not isinstance(example, Tensor):
            raise InvalidArgument(f"example={given.shown(example)} is no Tensor; give a replica's share of a batch")
        if not callable(loss):
            raise InvalidArgument(f"loss={given.shown(loss)} cannot be called; give a function of (output, target)")
        timeout_s = given.seconds("timeout_s", timeout_s)
        measure_s = given.number("measure_s", measure_s, way_out="give seconds, or 0")
        if communication is not None and not isinstance(communication, Communication):
            raise InvalidArgument(
                f"communication={given.shown(communication)} is no way to communicate; give a Communication()"
            )
        check_runs(plan)
        if given.flag("sync_bn", sync_bn) and any(plan.parts % count for count in plan.counts):
            raise NoPlan(
                f"sync_bn: {plan.parts} microbatches are not divisible by the replicas of each stage, {plan.on}; "
                "change one of them"
            )
        check_splits(plan, model)
        if is_synchronised(model) and not sync_bn:
            raise InvalidChoice(
                "the model has norms that wait for all ranks, from sync_bn, and other ranks run other layers; give "
                "Pipeline sync_bn=True"
            )
        if plan.world != dist.get_world_size():
            raise NoPlan(f"the plan is for {plan.world} ranks, and {dist.get_world_size()} run")
        self._loss = BatchLoss(loss, reduction)
        ends = ", ".join(str(stage.last) for stage in plan.stages)
        about = f"{plan.schedule} on {plan.on} ranks of {plan.parts} microbatches, their {self._loss.reduction}"
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
        self._numbers = plan.runs(*plan.place(dist.get_rank()))
        self._step = Step()
        grid = make_grid(plan, example.device, timeout_s=timeout_s, synchronises=sync_bn)
        self.mesh = grid.mesh
        """Dimensions ``pipeline`` and ``data``; None where stages have different numbers of replicas."""
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
            divisor=plan.parts if self._loss.reduction == "mean" else 1,
            step=self._step,
            device=example.device,
            way=communication,
            measure_s=measure_s,
        )
        used = {id(tensor) for piece in layers for tensor in piece.state_dict(keep_vars=True).values()}
        self._unused = {name: tensor for name, tensor in state.items() if id(tensor) not in used}
        as_on_the_first(self._unused.values(), _all_ranks())
        self._keys = list(state)
        self._running = RunningStep(
            plan, self._stages, messages=grid.messages, edges=edges, device=example.device, step=self._step
        )
        self.times: RankStepTimes | None = None
        """Of the last step."""

    # -- what a training loop calls -----------------------------------------------------------------------------------

    def step(self, x: Tensor | None, target: Tensor | None, *, watches: bool = False) -> float:
        """Forward and backward of this rank's share of a batch; returns the loss of all of it. Gradients in
        ``parameters()`` are replaced; None where nothing was trained. Ranks without the first stage may give no ``x``,
        those without the last no ``target``. ``watches``: a thread notes when messages have gone, for ``timeline``;
        without it that is noted between passes."""
        self._check_given(x, target)
        self._step.begin()
        for parameter in self.parameters():
            parameter.grad = None
        inputs, targets = (
            () if given is None else given.chunk(len(self._numbers))
            for given in (x if self._stages[0].is_first else None, target if self._stages[-1].is_last else None)
        )
        with _random_numbers_of_its_own(self._device):
            losses = self._running.run(inputs, targets, self._loss, watches=watches)
        exposed_s = sum(stage.gradients.finish() for stage in self._stages)
        step_s = time.perf_counter() - self._step.started_s
        self.times = RankStepTimes(step_s=step_s, exposed_s=exposed_s, spans=tuple(self._step.spans))
        return self._over_ranks(losses)

    def _check_given(self, x: Tensor | None, target: Tensor | None) -> None:
        """Raises NoPlan for what this rank cannot take."""
        if self._stages[0].is_first and (x is None or x.shape != self._example_shape):
            shape = None if x is None else tuple(x.shape)
            raise NoPlan(f"x of shape {shape}; this pipeline was made for {tuple(self._example_shape)} a replica")
        wanted = len(self._numbers) * self._example_shape[0] // self.plan.microbatches
        if self._stages[-1].is_last and (target is None or len(target) != wanted):
            count = None if target is None else len(target)
            raise NoPlan(f"{count} targets; this pipeline was made for {wanted} images a replica")

    @property
    def ways(self) -> dict[int, Communication]:
        """How the gradients of each stage of this rank are sent to its replicas, by number; without those that have
        none."""
        counts = self.plan.counts
        return {each.index: each.gradients.way for each in self._stages if counts[each.index % self.plan.groups] > 1}

    def timeline(self) -> list[Event]:
        """The last step on all ranks, for ``write_timeline``; every rank calls it. On a GPU times are those at which
        the host queued the work."""
        ranks: list[Any] = [None] * self.plan.world
        dist.all_gather_object(ranks, RankStep.of(self._step))
        return events(ranks)

    def _over_ranks(self, losses: list[Tensor]) -> float:
        """The loss of the batch. Raises NoPlan, on every rank, if it is not what its microbatches give together."""
        flaw = self._loss.flaw()
        sums = torch.tensor([0.0, bool(flaw)], device=self._device)
        for loss in losses:
            sums[0] += loss / (self.plan.parts if self._loss.reduction == "mean" else 1)
        dist.all_reduce(sums)
        total, flaws = sums.tolist()
        if flaws:
            raise NoPlan(flaw or "the loss is not what its microbatches give together: see a rank of the last stage")
        return float(total)

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the stages that this rank runs."""
        for stage in self._stages:
            yield from stage.module.parameters()

    def share(self, batch: Tensor) -> Tensor:
        """This rank's part of a whole batch: the images of its microbatches. Each replica of the first stage has a part
        of the batch in one piece; where replicas differ, those of other stages have microbatches of several parts."""
        plan = self.plan
        if batch.shape[0] % plan.replicas:
            raise NoPlan(f"batch={batch.shape[0]} is not divisible by {plan.replicas} replicas")
        shares = batch.chunk(plan.replicas)
        if plan.is_even:
            return shares[self._numbers.start]
        if len(shares[0]) % plan.microbatches:
            raise NoPlan(
                f"a replica's share of {len(shares[0])} images is not divisible by {plan.microbatches} microbatches"
            )
        parts = [share.chunk(plan.microbatches) for share in shares]
        return torch.cat([parts[each % plan.replicas][each // plan.replicas] for each in self._numbers])

    def state_dict(self) -> dict[str, Any]:
        """A copy of the state of the whole model, as its own ``state_dict()`` has it, on every rank (on the CPU).
        Running statistics are those of the first replica of each stage."""
        mine = self.rank_state_dict()
        found = {name: tensor.detach().cpu().clone() for name, tensor in self._unused.items()}
        for group in range(self.plan.groups):
            first = self.plan.ranks(group).start
            part: list[Any] = [mine if dist.get_rank() == first else None]
            dist.broadcast_object_list(part, src=first)
            found |= part[0]
        return {key: found[key] for key in self._keys}

    def rank_state_dict(self) -> dict[str, Any]:
        """A copy of what this rank has of the model (on the CPU), with the running statistics of its own replica."""
        return {
            name: tensor.detach().cpu().clone()
            for stage in self._stages
            for own, tensor in stage.module.state_dict().items()
            for name in stage.names[own]
        }

    def load_rank_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what ``rank_state_dict`` gave on this rank, with the same plan."""
        for stage in self._stages:
            stage.module.load_state_dict({own: state[known[-1]] for own, known in stage.names.items()})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of the whole model, of which this rank keeps its part. Raises NoPlan for another model's."""
        for where, keys in (("lacks", set(self._keys) - set(state)), ("has", set(state) - set(self._keys))):
            if keys:
                other = "which the model has" if where == "lacks" else "which the model lacks"
                raise NoPlan(f"the state {where} {', '.join(sorted(keys)[:3])}, {other}; load that of the same model")
        self.load_rank_state_dict(state)
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
