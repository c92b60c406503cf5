"""Networks in which depthwise convolution is most of the work, as large as they are published and with the batches of
published trainings: for a GPU. Smaller ones, which two cores train, are in ``models.py``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from bench.dilated import LARGE, SMALL, BranchesNet
from bench.models import LargeKernelBlock, Network
from bench.rows_and_volumes import X3D, Conformer, Mamba, MedNeXtUNet, convolved


class RepLKNet31B(nn.Module):
    """(N, 3, H, W) -> (N, classes): Ding et al. 2022, as it trains, with a 5×5 layer beside each large one."""

    # channels, kernel, blocks
    SIZES = ((128, 31, 2), (256, 29, 2), (512, 27, 18), (1024, 13, 2))

    def __init__(self, classes: int = 1000, *, sizes: Sequence[tuple[int, int, int]] = SIZES) -> None:
        super().__init__()
        relu, before = nn.ReLU, sizes[0][0]
        stages = [
            *convolved(3, before, 3, stride=2, act=relu), *convolved(before, before, 3, groups=before, act=relu),
            *convolved(before, before, act=relu), *convolved(before, before, 3, stride=2, groups=before, act=relu),
        ]  # fmt: skip
        for channels, kernel, blocks in sizes:
            if channels != before:
                stages += convolved(before, channels, act=relu)
                stages += convolved(channels, channels, 3, stride=2, groups=channels, act=relu)
            stages += [LargeKernelBlock(channels, kernel=kernel) for _ in range(blocks)]
            before = channels
        self.stages = nn.Sequential(*stages, nn.BatchNorm2d(before))
        self.head = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(x).mean((2, 3)))


_UNIREP_T = [(80, [SMALL] * 3), (160, [LARGE] * 3), (320, [LARGE, SMALL] * 9), (640, [LARGE] * 3)]

FULL_SIZE = (
    # 64 images on each of 8 GPUs: the command in RepLKNet's README
    Network(name="RepLKNet-31B", make=RepLKNet31B, batch=64),
    # 128 on each of 4: the command in UniRepLKNet's README
    Network(name="UniRepLKNet-T-like", make=partial(BranchesNet, _UNIREP_T), batch=128),
    # 128 clips on 8: configs/Kinetics/X3D_S.yaml of SlowFast
    Network(name="X3D-S", make=partial(X3D, blocks=(3, 5, 11, 7)), batch=16, sample=(3, 13, 160, 160)),
    # 2 patches of 128³, as nnU-Net plans it: the experiments of MedNeXt
    Network(name="MedNeXt-S", make=partial(MedNeXtUNet, rows=((2, 2),) * 5), batch=2, sample=(1, 128, 128, 128)),
    # 16 recordings of up to 16.7 s, a vector for 40 ms: conformer_ctc_bpe.yaml of NeMo, large
    Network(name="Conformer-L-like", make=Conformer, batch=16, sample=(416, 512)),
    # the sizes of mamba-130m; 8 sequences of 2048 tokens are a 32nd of the half million that its authors step with
    Network(name="Mamba-130M-like", make=partial(Mamba, channels=768, blocks=24), batch=8, sample=(2048, 768)),
)
