"""Epochs: steps on all batches, the accuracy after each, and checkpoints in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Subset

from dwconv.parallel.training.batches import Batches
from dwconv.parallel.training.checkpoints import Checkpoints
from dwconv.parallel.training.datasets import Images
from dwconv.parallel.training.forms import Trainer
from dwconv.parallel.training.progress import StepsDone

_APART = 1_000_003
"""Between the seeds of runs, so that their steps have others."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What came out of one."""

    number: int
    """From 1 on."""
    loss: float
    """The mean over its batches, while they were trained on."""
    accuracy: float
    """Of the same, before each step."""
    held_out: float | None
    """The accuracy on the images that are held out, after the epoch; None if there are none."""
    seconds: float


@dataclass(kw_only=True)
class TrainingRun:
    """One run on this rank."""

    trainer: Trainer
    batches: Batches
    held_out: Images | None
    steps: int
    """In all, those of an earlier run included."""
    rate: float
    seed: int
    checkpoints: Checkpoints | None = None
    save_every: int = 1
    """Steps between checkpoints."""
    watched: int = -1
    """The number of the step of which a thread notes when messages go."""
    times_s: list[float] = field(default_factory=list)
    """Of the steps of this run."""

    def __post_init__(self) -> None:
        parameters = list(self.trainer.parameters())  # none, where the layers of this rank have none
        self._optimizer = torch.optim.SGD(parameters, lr=self.rate, momentum=0.9) if parameters else None
        self.done = 0
        self._losses = 0.0
        """Summed over the steps of the epoch."""

    def resume(self) -> int:
        """Goes on where the checkpoints are; the steps that were done. Every rank calls it."""
        state = None if self.checkpoints is None else self.checkpoints.newest()
        if state is not None:
            self.trainer.load_state(state["model"])
            if self._optimizer is not None:
                self._optimizer.load_state_dict(state["optimizer"])
            self.done, self._losses = state["step"], state["losses"]
            self.trainer.loss.right, self.trainer.loss.seen = state["right"], state["seen"]
        return self.done

    def epochs(self, progress: StepsDone, on_step: Callable[[int, float], None]) -> Iterator[Epoch]:
        """Trains, epoch by epoch; the last one may be cut short. ``on_step`` is called with the number of every step,
        from 1 on, and its loss."""
        while self.done < self.steps:
            number, first = divmod(self.done, self.batches.steps)
            started_s = time.monotonic()
            for x, target in self._of_epoch(number, first):
                torch.manual_seed((self.seed * _APART + self.done) * dist.get_world_size() + dist.get_rank())
                loss = self.trainer.step(x, target, watches=self.done + 1 == self.watched)
                if self._optimizer is not None:
                    self._optimizer.step()
                self._losses += loss
                self.done += 1
                self.times_s.append(self.trainer.step_s)
                progress(self.done, loss)
                on_step(self.done, loss)
                ends = self.done == self.steps or self.done % self.batches.steps == 0
                if self.checkpoints is not None and not ends and self.done % self.save_every == 0:
                    self._save(self.checkpoints)
                if self.done == self.steps:
                    break
            yield self._ended(number, started_s)

    def _of_epoch(self, number: int, first: int) -> Iterator[tuple[Tensor | None, Tensor | None]]:
        if self.trainer.takes_data:
            yield from self.batches.of_epoch(number, first=first)
        else:
            yield from ((None, None) for _ in range(first, self.batches.steps))

    def _ended(self, number: int, started_s: float) -> Epoch:
        counts = torch.tensor([float(self.trainer.loss.right), float(self.trainer.loss.seen)], dtype=torch.float64)
        right, seen = _summed(counts)
        steps = self.done - number * self.batches.steps
        accuracy = None
        if self.held_out is not None or self.checkpoints is not None:
            model = self.trainer.gathered()
            accuracy = None if self.held_out is None else _accuracy(model, self.held_out, self.batches)
            if self.checkpoints is not None and dist.get_rank() == 0:
                self.checkpoints.save_model(model.state_dict())
        found = Epoch(
            number=number + 1, loss=self._losses / steps, accuracy=right / max(1.0, seen), held_out=accuracy,
            seconds=time.monotonic() - started_s,
        )  # fmt: skip
        if self.done % self.batches.steps == 0:
            self._losses, self.trainer.loss.right, self.trainer.loss.seen = 0.0, 0, 0
        if self.checkpoints is not None:
            self._save(self.checkpoints)
        return found

    def _save(self, checkpoints: Checkpoints) -> None:
        state: dict[str, Any] = {
            "model": self.trainer.state(),
            "optimizer": None if self._optimizer is None else self._optimizer.state_dict(),
            "losses": self._losses,
            "right": int(self.trainer.loss.right),
            "seen": self.trainer.loss.seen,
        }
        checkpoints.save(self.done, state)


def _summed(mine: Tensor) -> list[float]:
    """Over all ranks."""
    on = torch.device("cuda") if torch.cuda.is_available() and dist.get_backend() == "nccl" else torch.device("cpu")
    total = mine.to(on)
    dist.all_reduce(total)
    return total.tolist()


@torch.no_grad()
def _accuracy(model: nn.Module, images: Images, batches: Batches) -> float:
    """On images that the ranks share out: the share of which the class is found."""
    own = range(dist.get_rank(), len(images), dist.get_world_size())
    model.eval()
    right, seen = 0, 0
    for x, target in batches.like(Subset(images, own)):  # type: ignore[arg-type]
        right += int((model(x).argmax(1) == target).sum())
        seen += len(target)
    model.train()
    found, of = _summed(torch.tensor([right, seen], dtype=torch.float64))
    return found / max(1.0, of)
