"""Which kernels are in a pack for every layer: of any batch, any size and any number of channels. On the CPU.

They are built for the least CPU that has a vector set, with a configuration that suits layers of all sizes: it was
chosen for a middling one. Nothing of them was measured when the pack is loaded; a race does that on each machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from dwconv.problems.target import FORCED_VECTOR_SETS, CpuTarget, ForcedVectorSet, cpu_target
from dwconv.problems.workload import LAYOUTS, PASSES, DType, Layout, Pair, Workload
from dwconv.schedules.cpu.shared.registers import vector_registers
from dwconv.schedules.space import Config, ConfigSpace, Value
from dwconv.schedules.template import Candidate, can_run, templates_for
from dwconv.system.cpu_facts import MiB

TAPS = (3, 5, 7)
STRIDES = (1, 2)
ROWS: tuple[tuple[int, Pair], ...] = ((3, (1, 1)), (4, (3, 3)), (4, (3, 0)), (7, (3, 3)), (15, (7, 7)), (31, (15, 15)))
"""Taps and padding of 1-D kernels."""
_BATCH, _CHANNELS, _SIZE, _LENGTH = 8, 192, 28, 512
"""What configurations are chosen for."""
_THREADS = 8


def target_of_vector_set(name: ForcedVectorSet) -> CpuTarget:
    """Every CPU that has it."""
    return replace(
        cpu_target(threads=_THREADS, vector_set=name),
        device=name,
        vector_set=name,
        cache_bytes=32 * MiB,
        others_cache_bytes=0,
    )


def is_of_a_vector_set(target: CpuTarget) -> bool:
    """True if it stands for every CPU that has a vector set."""
    return target.device in FORCED_VECTOR_SETS


def candidates(target: CpuTarget, *, dtype: DType = "float32", taps: Collection[int] = ()) -> list[Candidate]:
    """A kernel of each pass, with and without a bias, of each layer that such a pack has; or of those with as many
    ``taps`` along a row."""
    return [
        Candidate(each, _config(each, template.space(each, target), target))
        for workload in _layers(dtype)
        if not taps or workload.kernel[-1] in taps
        for each in passes_of(workload)
        if can_run(each, target)
        for template in templates_for(each, target)
    ]


def _config(workload: Workload, space: ConfigSpace, target: CpuTarget) -> Config:
    """The default, with tiles that suit narrow images, too: wide ones are cut into halves and quarters there.

    Measured on one thread of an AMD EPYC (family 25 model 17), speed over kernels that are built for layers of 144×56²,
    384×14², 960×7² and 672×12². 3×3, fprop, AVX-512: 2 × 7 0.92, 2 × 8 0.84, 1 × 8 × 2 vectors 0.71; AVX2: 2 × 4 1.17,
    1 × 7 0.84, 1 × 2 × 4 vectors 0.63. 3×3, wgrad, AVX-512: 7 columns 1.00, 14 columns 0.81."""
    wanted: dict[str, Value] = dict(space.default.values)
    if workload.layout == "nchw":
        return space.default
    if workload.pass_ == "wgrad":
        wanted |= {"tile_w": min(_NARROW, space.default.tile_w)}
    elif workload.kernel == (3, 3) and (workload.pass_ == "fprop" or workload.stride == (1, 1)):
        columns = _NARROW if vector_registers(target) >= 32 else 4
        wanted |= {"tile_h": 2, "tile_w": columns, "vectors_c": 1, "order": "wch", "unroll": "taps"}
    return space.nearest(Config.of(space.template, **wanted))


_NARROW = 7
"""Columns of a tile, of images of which many are a multiple as wide."""


def passes_of(layer: Workload) -> Iterator[Workload]:
    """The passes of an fprop, with a bias and without, at the sizes that their configurations are chosen for."""
    for pass_ in PASSES:
        of_pass = layer.for_pass(pass_)
        yield of_pass
        if pass_ != "dgrad":
            yield replace(of_pass, bias=True)


def _layers(dtype: DType) -> Iterator[Workload]:
    for layout in LAYOUTS:
        for taps in TAPS:
            for stride in STRIDES:
                padding = ((taps // 2,) * 2,) * 2
                yield any_layer(
                    kernel=(taps, taps), stride=(stride, stride), padding=padding, dtype=dtype, layout=layout
                )
        for taps, beside in ROWS:
            yield any_layer(kernel=(1, taps), stride=(1, 1), padding=((0, 0), beside), dtype=dtype, layout=layout)


def any_layer(
    *,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[Pair, Pair],
    dtype: DType = "float32",
    layout: Layout = "nhwc",
) -> Workload:
    """An fprop of any size and any number of channels."""
    return Workload(
        pass_="fprop",
        batch=_BATCH,
        channels=_CHANNELS,
        input_size=(1, _LENGTH) if kernel[0] == 1 else (_SIZE * stride[0], _SIZE * stride[1]),
        kernel=kernel,
        stride=stride,
        padding=padding,
        dtype=dtype,
        layout=layout,
        any_size=True,
        any_channels=True,
    )
