"""Small networks to train; workers load them by their names."""

from __future__ import annotations

import time
from functools import partial

import torch
from torch import Tensor, nn

from bench.concurrency.models import Classifier, TrainedNetwork, images_of
from bench.models import Network
from bench.rows_and_volumes import X3D, Conformer, Mamba, MedNeXt
from tests.models import OneBlock, TinyNet

TINY = Network(name="Tiny", make=TinyNet, batch=3, sample=(3, 12, 12))
VIDEO = Network(name="Video", make=partial(X3D, channels=(8, 16), blocks=(1, 2)), batch=2, sample=(3, 3, 12, 12))
VOLUME = Network(name="Volume", make=partial(MedNeXt, channels=4, rows=((2, 1), (3, 1))), batch=2, sample=(1, 6, 6, 6))
SPEECH = Network(
    name="Speech", make=partial(Conformer, channels=8, blocks=2, kernel=5, heads=2), batch=2, sample=(11, 8)
)
SEQUENCE = Network(name="Sequence", make=partial(Mamba, channels=8, blocks=2), batch=2, sample=(11, 8))


class Tardy(TinyNet):
    """Slow with contiguous images."""

    def forward(self, x):
        time.sleep(1.0 * x.is_contiguous())
        return super().forward(x)


TARDY = Network(name="Tardy", make=Tardy, batch=2, sample=(3, 12, 12))


class Spacious(OneBlock):
    """Two images fill the memory of the device."""

    def forward(self, x):
        if len(x) > 2:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {x.nbytes} bytes.")
        return super().forward(x)


SPACIOUS = Network(name="Spacious", make=Spacious, batch=8, sample=(3, 12, 12))


class TwoBranches(nn.Module):
    """(N, 3, H, W) -> (N, 10): two convolutions that can run side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 5, padding=2)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(torch.cat([self.left(x).relu(), self.right(x).relu()], 1).mean((2, 3)))
        return found


BRANCHES = TrainedNetwork(name="Branches", make=lambda: Classifier(TwoBranches()), data=images_of(2, 12))
