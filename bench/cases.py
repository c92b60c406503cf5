"""Representative workloads: the kernel sizes, maps, strides, types and layouts that networks have."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from dwconv.problems.as_written import transposed_size
from dwconv.problems.block import Block
from dwconv.problems.layer_files import Layer, shipped_networks
from dwconv.problems.workload import (
    BLOCK_PASSES,
    DTYPES,
    LAYOUTS,
    PASSES,
    TRANSPOSED,
    DType,
    Layout,
    Pass,
    Sizes,
    Workload,
)


@dataclass(frozen=True, kw_only=True)
class BenchLayer:
    """A depthwise layer of a network, or a block around one."""

    network: str
    layer: Layer
    batch: int = 1
    is_square: bool = False
    """True if its name has one size for each axis."""
    is_transposed: bool = False
    """True if the layer is the transposed convolution that ``layer`` undoes."""

    def __str__(self) -> str:
        """Its name in results: ``MobileNetV2 96×112² k3 s2``, ``X3D-S 54×13×80×80 k3×3×3``, ``U-Net 144×28² k3 s2
        transposed``, that with its own sizes."""
        of = self.layer
        read = next(self.workloads(dtype="float32", layout="nhwc")).output_size if self.is_transposed else of.input_size
        if self.is_square:
            size, kernel, stride = f"{read[0]}²", str(of.kernel[0]), str(of.stride[0])
        else:
            size, kernel, stride = ("×".join(map(str, sizes)) for sizes in (read, of.kernel, of.stride))
        strided = f" s{stride}" if set(of.stride) != {1} else ""
        dilated = f" d{max(of.dilation)}" if set(of.dilation) != {1} else ""
        activated = "" if of.epilogue == "none" else f" {of.epilogue}"
        how = f"{strided}{dilated}{activated}" + " transposed" * self.is_transposed
        return f"{self.network} {of.channels}×{size} k{kernel}{how}"

    @property
    def kernel(self) -> int:
        """Its largest size."""
        return max(self.layer.kernel)

    def name_of(self, pass_: Pass) -> Pass:
        """What a pass of its workloads is to the layer itself."""
        return TRANSPOSED[pass_] if self.is_transposed else pass_

    def workloads(self, *, dtype: DType, layout: Layout) -> Iterator[Workload]:
        """Its passes; of a transposed one those of the convolution."""
        for pass_ in self.layer.passes:
            yield self.layer.workload(pass_, batch=self.batch, dtype=dtype, layout=layout, bias=False)


def square(network: str, *, batch: int, channels: int, size: int, kernel: int, stride: int = 1) -> BenchLayer:
    """A layer with square maps, square kernels and the padding that keeps the size at stride 1."""
    layer = Layer(
        channels=channels, input_size=(size, size), kernel=(kernel, kernel), stride=(stride, stride),
        padding=((kernel // 2, kernel // 2),) * 2, count=1, dilation=(1, 1),
    )  # fmt: skip
    return BenchLayer(network=network, layer=layer, batch=batch, is_square=True)


def transposed(
    network: str, *, batch: int, channels: int, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, over: int = 0
) -> BenchLayer:
    """A transposed layer, by its own sizes; ``over`` is its output padding along each axis."""
    sides, flat = tuple((side, side) for side in padding), (1,) * len(kernel)
    made = transposed_size(
        size, kernel=kernel, stride=stride, padding=sides, output_padding=(over,) * len(kernel), dilation=flat
    )
    layer = Layer(
        channels=channels, input_size=made, kernel=kernel, stride=stride, padding=sides, count=1, dilation=flat
    )
    is_square = len(kernel) == 2 and all(len({*sizes}) == 1 for sizes in (size, kernel, stride))
    return BenchLayer(network=network, layer=layer, batch=batch, is_square=is_square, is_transposed=True)


CPU_LAYERS = (
    square("MobileNetV2", batch=8, channels=32, size=112, kernel=3),
    square("MobileNetV2", batch=8, channels=96, size=112, kernel=3, stride=2),
    square("MobileNetV2", batch=8, channels=144, size=56, kernel=3),
    square("MobileNetV2", batch=8, channels=192, size=28, kernel=3),
    square("MobileNetV2", batch=8, channels=576, size=14, kernel=3),
    square("MobileNetV2", batch=8, channels=576, size=14, kernel=3, stride=2),
    square("MobileNetV2", batch=8, channels=960, size=7, kernel=3),
    square("EfficientNet-B0", batch=8, channels=240, size=28, kernel=5, stride=2),
    square("MobileNetV3", batch=8, channels=672, size=14, kernel=5),
    square("ConvNeXt-T", batch=8, channels=96, size=56, kernel=7),
    square("ConvNeXt-T", batch=8, channels=384, size=14, kernel=7),
    square("RepLKNet-31B", batch=2, channels=128, size=28, kernel=31),
)

VOLUME_NETWORKS = (
    "X3D-S 13x160", "X3D-M 16x224", "MedNeXt-S k3 128^3", "R(2+1)D-18 channel-separated 16x112"
)  # fmt: skip
"""Of 3-D layers."""
ROW_NETWORKS = (
    "Mamba-130M (d_inner 1536,L2048,k4)", "Mamba-1.4B (d_inner 4096,L2048,k4)", "Conformer-M (d256,T=400,k31)",
    "Conformer-M (d256,T=1600,k31)", "Conformer-L (d512,T=400,k31)", "Conformer-L (d512,T=1600,k31)",
    "Hyena-SE-7 (C=768,L2048)", "Hyena-MR-128 (C=768,L2048)", "Vocos (ConvNeXt-1D d512,T=938,k7)"
)  # fmt: skip
"""Of 1-D layers."""
BLOCK_NETWORKS = (
    "MobileNetV2 blocks@192", "MobileNetV3-L blocks@224", "EfficientNet-B0 blocks@192", "ConvNeXt-T blocks@224"
)  # fmt: skip
"""Of blocks: norms and activations around depthwise layers."""
DILATED_NETWORKS = (
    "VAN-B0@224 (LKA 5x5, 7x7 d3)", "VAN-B0-LSKA@224 (1x5, 5x1, 1x7 d3, 7x1 d3)", "SLaK-T@224 (51x5,5x51,5x5)",
    "UniRepLKNet-T@224 (training)", "DeepLabV3+@513 (ResNet-50, separable ASPP and decoder)",
    "Conv-TasNet (H512,L3999,k3)"
)  # fmt: skip
"""Of dilated, large and decomposed kernels."""
TRANSPOSED_LAYERS = (
    transposed("U-Net", batch=8, channels=144, size=(28, 28), kernel=(3, 3), stride=(2, 2), padding=(1, 1), over=1),
    transposed("FCN", batch=8, channels=64, size=(28, 28), kernel=(4, 4), stride=(2, 2), padding=(1, 1)),
    transposed(
        "MedNeXt", batch=1, channels=64, size=(24, 24, 24), kernel=(3, 3, 3), stride=(2, 2, 2), padding=(1, 1, 1)
    ),
    transposed("HiFi-GAN", batch=4, channels=256, size=(1, 512), kernel=(1, 16), stride=(1, 8), padding=(0, 4)),
)
"""Decoders, up by 2, as bilinear interpolation begins, of volumes, and of sequences."""
_USUAL_TAPS = 7
_MOST_ELEMENTS = 2**24
"""Of an image or a volume: PyTorch's wgrad takes seconds for a call of a larger one."""


def listed_layers(networks: Sequence[str]) -> tuple[BenchLayer, ...]:
    """The layers of ``networks``, without those whose images or volumes are too large to be measured often."""
    listed = shipped_networks()
    return tuple(
        BenchLayer(network=network.partition(" ")[0], layer=layer)
        for network in networks
        for layer in listed[network]
        if layer.channels * math.prod(layer.input_size) <= _MOST_ELEMENTS
    )


def dilated_layers() -> tuple[BenchLayer, ...]:
    """Those of ``DILATED_NETWORKS``, once each. The first of each kernel that is dilated, large or of another height
    than width come first, networks in turn: a few are of all networks."""
    listed = [*dict.fromkeys(listed_layers(DILATED_NETWORKS))]
    firsts: dict[str, dict[tuple[Sizes, Sizes], BenchLayer]] = defaultdict(dict)
    for layer in listed:
        of, is_row = layer.layer, layer.layer.input_size[0] == 1
        is_decomposed = len({*of.kernel[is_row:]}) > 1
        if layer.kernel > _USUAL_TAPS or is_decomposed or {*of.dilation} != {1}:
            firsts[layer.network].setdefault((of.kernel, of.dilation), layer)
    turns = zip_longest(*(found.values() for found in firsts.values()))
    return tuple(dict.fromkeys([*(layer for turn in turns for layer in turn if layer), *listed]))


GPU_LAYERS = (
    square("ConvNeXt-T", batch=64, channels=96, size=56, kernel=7),
    square("MobileNetV2", batch=64, channels=144, size=56, kernel=3),
    square("EfficientNet-B0", batch=64, channels=240, size=28, kernel=5, stride=2),
    square("MobileNetV2", batch=64, channels=576, size=14, kernel=3),
    square("MobileNetV2", batch=64, channels=96, size=112, kernel=3, stride=2),
    square("ConvNeXt-T", batch=64, channels=384, size=14, kernel=7),
    square("MobileNetV3", batch=64, channels=960, size=7, kernel=5),
    square("RepLKNet-31B", batch=16, channels=128, size=56, kernel=31),
    square("RepLKNet-31B", batch=32, channels=1024, size=7, kernel=13),
)


OWN: tuple[tuple[DType, Layout], ...] = (("float16", "nhwc"), ("float32", "nchw"))
"""Types and layouts in which networks train on a GPU: mixed precision in channels_last, and PyTorch's defaults."""
_OTHERS: tuple[tuple[DType, Layout], ...] = (("float16", "nchw"), ("bfloat16", "nhwc"), ("float32", "nhwc"))
_GPU_ROWS_AND_VOLUMES: dict[str, tuple[int, Layout]] = {
    "Mamba-130M (d_inner 1536,L2048,k4)": (4, "nchw"),
    "Mamba-1.4B (d_inner 4096,L2048,k4)": (4, "nchw"),
    "Conformer-L (d512,T=1600,k31)": (16, "nchw"),
    "X3D-S 13x160": (16, "nhwc"),
    "MedNeXt-S k3 128^3": (2, "nhwc"),
}
"""Networks of sequences and volumes, each with its batch and its layout; some layers of each."""
_FEW = 3
"""Layers of each of these networks."""


def gpu_workloads(*, every: bool = False) -> list[Workload]:
    """All passes of every layer in the types and layouts of ``OWN``; with ``every`` also sequences and volumes in
    float16, and more types and layouts; bfloat16 runs like float16.

    All layers in one type and layout come before the next, so that a budget that ends early has seen every layer."""

    def images(types: Sequence[tuple[DType, Layout]]) -> list[Workload]:
        layers = ((layer, dtype, layout) for dtype, layout in types for layer in GPU_LAYERS)
        return [each for layer, dtype, layout in layers for each in layer.workloads(dtype=dtype, layout=layout)]

    return [*images(OWN), *(_rows_and_volumes() if every else ()), *images(_OTHERS if every else ())]


def _rows_and_volumes() -> Iterator[Workload]:
    for network, (batch, layout) in _GPU_ROWS_AND_VOLUMES.items():
        for each in listed_layers([network])[-_FEW:]:
            for workload in each.workloads(dtype="float16", layout=layout):
                yield workload.with_batch(batch)


def odd_workloads() -> list[Workload]:
    """Small workloads that no tile divides, in every type, to verify every template on."""
    problems: tuple[dict[str, Any], ...] = (
        {"input_size": (9, 11), "kernel": (3, 3), "padding": ((1, 1), (1, 1))},
        {"input_size": (13, 10), "kernel": (3, 5), "stride": (2, 2), "padding": ((1, 2), (2, 1))},
        {"input_size": (12, 9), "kernel": (3, 3), "dilation": (2, 2), "padding": ((2, 2), (2, 2))},
        {"input_size": (8, 8), "kernel": (3, 3), "multiplier": 2, "padding": ((1, 1), (1, 1))},
        {"input_size": (1, 40), "kernel": (1, 7), "padding": ((0, 0), (3, 3))},
        {"input_size": (7, 7), "kernel": (7, 7), "padding": ((3, 3), (3, 3))},
        {"input_size": (15, 17), "kernel": (31, 31), "padding": ((15, 15), (15, 15))},
        {"input_size": (9, 13), "kernel": (5, 7), "padding": ((2, 2), (3, 3)), "channels": 24, "bias": True},
        {
            "input_size": (5, 7, 9), "kernel": (3, 3, 5), "stride": (2, 1, 2), "dilation": (1, 2, 1),
            "padding": ((2, 0), (2, 2), (1, 3)),
        },
    )  # fmt: skip
    alone = [
        Workload(pass_="fprop", dtype=dtype, layout=layout, **{"batch": 3, "channels": 20, **problem}).for_pass(pass_)
        for problem in problems
        for pass_ in PASSES
        for dtype in DTYPES
        for layout in LAYOUTS
    ]
    both = [each.for_pass("backward") for each in alone if each.pass_ == "wgrad" and not each.bias]
    return [*alone, *both, *odd_blocks(problems[:3], dtypes=DTYPES)]


def odd_blocks(problems: Sequence[dict[str, Any]], *, dtypes: Sequence[DType] = ("float32",)) -> list[Workload]:
    """``problems`` with norms and activations around them, in one type after the other."""
    blocks = ("bn+relu6,bn+hardswish", "none,bn+silu", "bn+gelu,none")
    return [
        Workload(
            pass_=pass_,
            batch=3,
            channels=20,
            dtype=dtypes[(at + number) % len(dtypes)],
            layout="nhwc",
            block=Block.parse(block),
            **problem,
        )
        for at, problem in enumerate(problems)
        for number, block in enumerate(blocks)
        for pass_ in BLOCK_PASSES
    ]
