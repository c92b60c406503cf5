"""Which kernels are in a pack for every layer: of any batch, any size and any number of channels.

On the CPU they are built for the least one that has a vector set, with one configuration for all sizes, chosen for a
layer of medium size. For a GPU of an architecture there are several of each, those of least computed cost. They are
unmeasured when the pack is loaded; a race measures them on each machine.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from dwconv.problems.target import FORCED_VECTOR_SETS, CpuTarget, ForcedVectorSet, Target, cpu_target
from dwconv.problems.workload import LAYOUTS, PASSES, DType, Layout, Pair, Workload
from dwconv.schedules.cpu.shared.limits import vector_registers
from dwconv.schedules.space import Config, ConfigSpace, Value
from dwconv.schedules.template import Candidate, ScheduleTemplate, can_run, templates_for
from dwconv.system.cpu_facts import MiB

TAPS = (3, 5, 7)
STRIDES = (1, 2)
ROWS: tuple[tuple[int, Pair], ...] = ((3, (1, 1)), (4, (3, 3)), (4, (3, 0)), (7, (3, 3)), (15, (7, 7)), (31, (15, 15)))
"""Taps and padding of 1-D kernels."""
_BATCH, _GPU_BATCH, _CHANNELS, _SIZE, _LENGTH = 8, 64, 192, 28, 512
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
    """True if it means every CPU that has a vector set."""
    return target.device in FORCED_VECTOR_SETS


def candidates(target: Target, *, dtype: DType = "float32", taps: Collection[int] = ()) -> list[Candidate]:
    """Kernels of each pass, with and without a bias, of each layer that such a pack has; or of those with as many
    ``taps`` along a row."""
    return [
        Candidate(each, config)
        for workload in _layers(dtype, batch=_BATCH if isinstance(target, CpuTarget) else _GPU_BATCH)
        if not taps or workload.kernel[-1] in taps
        for each in passes_of(workload)
        if can_run(each, target)
        for template in templates_for(each, target)
        for config in configs(template, each, target)
    ]


def configs(template: ScheduleTemplate[Any], workload: Workload, target: Target) -> list[Config]:
    """Of a kernel in such a pack: on a CPU one, on a GPU several, the estimated best first."""
    if isinstance(target, CpuTarget):
        return [_config(workload, template.space(workload, target), target)]
    space, drawn = template.space(workload, target), random.Random(workload.key)
    found = {space.default, *filter(None, (space.sample(drawn) for _ in range(_SAMPLES)))}
    assert template.estimate_us is not None, "templates of any number of channels have estimates"
    costs = {config: template.estimate_us(workload, config, target) for config in found}
    ranked = sorted(found, key=lambda config: (config != space.default, costs[config], str(config)))
    best = ranked[:_OF_A_LAYER]
    is_wide = workload.layout == "nhwc" and all(config.vector_c > _NARROW_VECTOR for config in best)
    if is_wide:  # for numbers of channels that are few vectors
        best[1:] = [*best[1:-1], *[each for each in ranked if each.vector_c == _NARROW_VECTOR][:1]]
    return best


_SAMPLES, _OF_A_LAYER, _NARROW_VECTOR = 200, 5, 2
"""Configurations for a GPU: those that are drawn by chance, and those that are taken, one of them with a vector of so
few channels."""


def _config(workload: Workload, space: ConfigSpace, target: CpuTarget) -> Config:
    """The default, with tiles that suit narrow images, too: wide ones are cut into halves and quarters there.

    Measured on one thread of an AMD EPYC (family 25 model 17), speed over kernels that are built for layers of 144×56²,
    384×14², 960×7² and 672×12². 3×3, fprop, AVX-512: 2 × 7 0.92, 2 × 8 0.84, 1 × 8 × 2 vectors 0.71; AVX2: 2 × 4 1.17,
    1 × 7 0.84, 1 × 2 × 4 vectors 0.63. 3×3, wgrad, AVX-512: 7 columns 1.00, 14 columns 0.81. AVX-512 on two threads,
    over tuned kernels, fprop and dgrad: 7×7 of 96×56², 7 columns 0.93 and 0.81, 14 columns 0.70 and 0.60; 5×5 of
    672×14² 0.93 and 1.03, 0.93 and 0.97."""
    wanted: dict[str, Value] = dict(space.default.values)
    if workload.layout == "nchw":
        return space.default
    if workload.pass_ == "wgrad":
        wanted |= {"tile_w": min(_NARROW, space.default.tile_w)}
    elif workload.kernel[0] > 1 and (workload.pass_ == "fprop" or workload.stride == (1, 1)):
        has_many = vector_registers(target) >= 32
        if workload.kernel == (3, 3):
            columns = _NARROW if has_many else 4
            wanted |= {"tile_h": 2, "tile_w": columns, "vectors_c": 1, "order": "wch", "unroll": "taps"}
        elif has_many:
            wanted |= {"tile_w": _NARROW}
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


def _layers(dtype: DType, *, batch: int) -> Iterator[Workload]:
    for layout in LAYOUTS:
        for taps in TAPS:
            for stride in STRIDES:
                yield any_layer(
                    kernel=(taps, taps),
                    stride=(stride, stride),
                    padding=((taps // 2,) * 2,) * 2,
                    dtype=dtype,
                    batch=batch,
                    layout=layout,
                )
        for taps, beside in ROWS:
            padding = ((0, 0), beside)
            yield any_layer(kernel=(1, taps), stride=(1, 1), padding=padding, dtype=dtype, batch=batch, layout=layout)


def any_layer(
    *,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[Pair, Pair],
    dtype: DType = "float32",
    batch: int = _BATCH,
    layout: Layout = "nhwc",
) -> Workload:
    """An fprop of any size and any number of channels."""
    return Workload(
        pass_="fprop",
        batch=batch,
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
