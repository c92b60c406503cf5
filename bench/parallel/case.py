"""What ``bench parallel`` trains, and what it finds: plain data that the ranks are told, and that they answer with."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from bench.resnets import resnet
from dwconv.parallel.planning.plan import LayerCost


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Made-up images of the shape of a known set."""

    name: str
    classes: int
    size: int
    """Height and width."""
    true_size: int
    """Of the set itself; larger where two cores would take too long."""

    def __str__(self) -> str:
        scaled = "" if self.size == self.true_size else f", scaled from {self.true_size}²"
        return f"{self.name} (3×{self.size}²{scaled})"


IMAGE_SETS = (
    ImageSet(name="CIFAR-10", classes=10, size=32, true_size=32),
    ImageSet(name="CIFAR-100", classes=100, size=32, true_size=32),
    ImageSet(name="Caltech-101", classes=101, size=96, true_size=224),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, its images, and the ranks that train it."""

    network: str
    images: ImageSet
    world: int
    batch: int
    """Of a step, on all ranks together."""
    microbatches: int
    """That the whole batch is cut into."""

    @property
    def name(self) -> str:
        return f"{self.network} {self.images.name} {self.world} ranks"

    def model(self) -> nn.Module:
        return resnet(self.network, classes=self.images.classes, small_images=self.images.size < 64).train()


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to train a case, measured on the ranks and computed."""

    name: str
    median_ms: float
    """Of the slowest rank in each step."""
    spread_ms: float
    """Between the quartiles."""
    steps: int
    predicted_ms: float
    """By the simulator, from layer times."""
    bubble: float
    """The share of idle time that it predicts, with a link that costs nothing."""
    exposed_ms: float
    """How long the first rank stood still for gradients."""
    loss_difference: float | None
    """The largest from one process's loss with the same microbatches; None for data parallelism, which has none."""

    @property
    def error(self) -> float:
        """Of the prediction."""
        return self.predicted_ms / self.median_ms - 1


@dataclass(frozen=True, kw_only=True)
class Finding:
    """All of one case."""

    variants: tuple[Variant, ...]
    link_gb_s: float
    latency_us: float
    layers: tuple[LayerCost, ...]
    """For one microbatch, timed while the other ranks compute, too."""
    contention: float
    """The share of a step's time that other work took from a rank, of the variant that lost least."""
