"""Kernels for every layer: of any batch, any size and any number of channels.

A race times those of a model's layers first: of one kind of layer, one build serves all sizes and channels. In a pack
for every layer they are built ahead, on the CPU for the least one that has a vector set, with one configuration for all
sizes, or with two. A race on a CPU takes the configurations of the pack for its vectors, so that what is built here and
what the package brings are the same kernels. For a GPU of an architecture there are several of each, those of least
computed cost. They are unmeasured until a race has measured them on each machine.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from dwconv.problems.block import NOTHING, Block
from dwconv.problems.target import CpuTarget, Target, is_of_a_vector_set, pack_target
from dwconv.problems.workload import (
    BLOCK_PASSES,
    EVAL_PASSES,
    LAYOUTS,
    PASSES,
    DType,
    Layout,
    Pair,
    Pass,
    Sizes,
    Workload,
)
from dwconv.schedules import template as registry
from dwconv.schedules.cpu.shared.limits import vector_registers
from dwconv.schedules.space import Config, ConfigSpace, Value
from dwconv.schedules.template import Candidate, ScheduleTemplate, can_run, templates_for


class Kind(NamedTuple):
    """What layers of one kind have in common."""

    kernel: Sizes
    stride: Sizes
    padding: tuple[Pair, ...]
    dilation: Sizes
    is_row: bool = False


def _kinds() -> Iterator[Kind]:
    """With as many outputs as inputs of each channel."""
    for taps in range(3, 32, 2):
        for stride in (1, 2) if taps <= 11 else (1,):
            yield _square(taps, stride)
    for taps in (3, 5, 7):
        for dilation in (2, 3):
            yield _same((taps, taps), (dilation, dilation))
        for stride in (1, 2):
            yield Kind((taps,) * 2, (stride,) * 2, ((0, 0),) * 2, (1, 1))
    for dilation in (4, 5, 6, 12, 18):  # of branches, and of pyramids
        yield _same((3, 3), (dilation, dilation))
    for taps, dilation in ((5, 1), (7, 3)):  # the rows and columns of larger ones
        yield _same((1, taps), (1, dilation))
        yield _same((taps, 1), (dilation, 1))
    for taps in (2, 4):  # as padding="same" pads them
        yield Kind((taps,) * 2, (1, 1), ((taps // 2 - 1, taps // 2),) * 2, (1, 1))
    yield from _halving((2, 2), (4, 4), (2, 2, 2))
    yield from _rows()
    for taps, strides in ((3, ((1, 1, 1), (1, 2, 2), (2, 2, 2))), (5, ((1, 1, 1),))):
        for each in strides:
            yield Kind((taps,) * 3, each, (_half(taps),) * 3, (1, 1, 1))


def _rows() -> Iterator[Kind]:
    for taps in range(3, 32, 2):
        yield Kind((1, taps), (1, 1), ((0, 0), _half(taps)), (1, 1), is_row=True)
    for causal in ((3, 3), (3, 0)):  # all outputs, of which some are cut off, or as many as inputs
        yield Kind((1, 4), (1, 1), ((0, 0), causal), (1, 1), is_row=True)
    for dilation in (2, 4, 8):
        yield _same((1, 3), (1, dilation))._replace(is_row=True)
    for taps, stride, side in ((4, 2, 1), (8, 4, 2), (16, 8, 4), (16, 8, 0), (10, 5, 0)):  # up, and banks of filters
        yield Kind((1, taps), (1, stride), ((0, 0), (side, side)), (1, 1), is_row=True)


def _halving(*kernels: Sizes) -> Iterator[Kind]:
    """To half of the size; the other way round they are what transposed layers double it by."""
    for kernel in kernels:
        yield Kind(kernel, (2,) * len(kernel), ((kernel[0] // 2 - 1,) * 2,) * len(kernel), (1,) * len(kernel))


def _same(kernel: Sizes, dilation: Sizes) -> Kind:
    reach = (step * (taps - 1) + 1 for step, taps in zip(dilation, kernel, strict=True))
    return Kind(kernel, (1, 1), tuple(map(_half, reach)), dilation)


def _half(taps: int) -> Pair:
    return taps // 2, taps // 2


def is_usual(workload: Workload) -> bool:
    """True of the layers that the package itself brings kernels for: the others are rare."""
    taps = max(workload.kernel)
    if max(workload.dilation) > _USUAL_DILATION:
        return False
    if workload.axes == 3:
        return taps <= 3
    return taps <= _USUAL_TAPS or (workload.kernel[0] == 1 and taps in _USUAL_ROWS)


_USUAL_TAPS, _USUAL_ROWS, _USUAL_DILATION = 11, (15, 31), 3


def _square(taps: int, stride: int) -> Kind:
    return Kind((taps,) * 2, (stride,) * 2, (_half(taps),) * 2, (1, 1))


_MULTIPLIED = (_square(3, 1), _square(3, 2), _square(5, 1), _square(7, 1))
"""On a CPU also with a multiplier of 2."""
_FEW = (_square(3, 1), _square(3, 2), _square(5, 1), _square(5, 2), _square(7, 1))
"""On a CPU, in NHWC, also for fewer channels than a vector has."""
_FEW_CHANNELS, _TIMES_OF_FEW = 4, 4
"""Layers of few channels have larger images."""
_BLOCKS = tuple(
    Block.parse(f"{norm}+{act},{norm}+{act}")
    for norm, acts in (("bn", ("relu", "relu6", "hardswish", "silu")), ("bn@0.001", ("relu", "hardswish", "silu")))
    for act in acts
)
_OF_BLOCKS = (_square(3, 1), _square(3, 2), _square(5, 1), _square(5, 2))
"""On a CPU, in NHWC, also with these norms and activations around them: those of MobileNets and EfficientNets."""
_BATCH, _GPU_BATCH, _CHANNELS, _DEPTH, _SIZE, _LENGTH = 8, 64, 192, 4, 28, 512
"""What configurations are chosen for."""


def candidates(target: Target, *, dtype: DType = "float32", taps: Collection[int] = ()) -> list[Candidate]:
    """Kernels of each pass, with and without a bias, of each layer and block that such a pack has; or of those with as
    many ``taps`` along their longest axis."""
    passes = itertools.chain(*map(passes_of, _layers(dtype, target)), _blocks(dtype, target))
    return [
        Candidate(each, config)
        for each in passes
        if not taps or max(each.kernel) in taps
        if can_run(each, target)
        for template in templates_for(each, target)
        for config in configs(template, each, target)
    ]


def for_layer(workload: Workload, target: Target) -> list[Candidate]:
    """The kernels that run ``workload`` and all that differ from it in size and channels alone, the most promising
    first; on a CPU those of the pack for its vectors, and of a block also one for as many threads as there are. None
    for an epilogue, and for blocks of volumes, whose tasks have few channels; on a GPU for any block, and for a
    multiplier."""
    packed = pack_target(target) if isinstance(target, CpuTarget) else None
    if workload.block or packed is None:
        return all_for_layer(workload, target)
    return _for_layer(workload, packed)


def all_for_layer(workload: Workload, target: Target) -> list[Candidate]:
    """Those of the pack, and those whose configurations are chosen for ``target`` itself, as its records may have
    them."""
    packed = pack_target(target) if isinstance(target, CpuTarget) else None
    found = _for_layer(workload, packed) if packed else []
    return [*dict.fromkeys((*found, *_for_layer(workload, target)))]


def _for_layer(workload: Workload, target: Target) -> list[Candidate]:
    is_for_cpu, few = isinstance(target, CpuTarget), has_few_channels(workload, target)
    if workload.epilogue != "none" or workload.x_pitch:
        return []
    if workload.block and (workload.block == NOTHING or workload.axes > 2):
        return []
    if (workload.multiplier > 1 and not is_for_cpu) or (few and workload.result_channels < _FEW_CHANNELS):
        return []
    layer = any_layer(
        kernel=workload.kernel, stride=workload.stride, padding=workload.padding, dilation=workload.dilation,
        dtype=workload.dtype, layout=workload.layout, batch=_BATCH if is_for_cpu else _GPU_BATCH,
        channels=_few(workload.pass_, workload.multiplier) if few else _CHANNELS, multiplier=workload.multiplier,
        is_row=workload.is_row,
    )  # fmt: skip
    if workload.block:
        layer = replace(layer, pass_=workload.pass_, block=workload.block)
    else:
        layer = replace(layer.for_pass(workload.pass_), bias=workload.bias)
    if layer.layer_kind != workload.layer_kind:
        return []
    return _all_of(layer, target, tuple(registry.all_templates().values()))


@lru_cache(maxsize=512)
def _all_of(layer: Workload, target: Target, templates: tuple[ScheduleTemplate[Any], ...]) -> list[Candidate]:
    if not can_run(layer, target):
        return []
    fits = [template for template in templates_for(layer, target) if template.layout == layer.layout]
    return [Candidate(layer, config) for template in fits for config in configs(template, layer, target)]


def general_of(candidate: Candidate, target: Target) -> Candidate | None:
    """The kernel for every layer that is ``candidate``, one of any size, at its number of channels; None if there is
    none."""
    if not candidate.workload.any_size or candidate.workload.any_channels:
        return None
    return next((each for each in all_for_layer(candidate.workload, target) if each.config == candidate.config), None)


def configs(template: ScheduleTemplate[Any], workload: Workload, target: Target) -> list[Config]:
    """Of a kernel in such a pack: on a CPU one or two, on a GPU several, the estimated best first."""
    if isinstance(target, CpuTarget):
        return _configs_for_a_cpu(workload, template.space(workload, target), target)
    space, drawn = template.space(workload, target), random.Random(workload.key)
    found = {space.default, *filter(None, (space.sample(drawn) for _ in range(_SAMPLES)))}
    assert template.estimate_us is not None, "templates of any number of channels have estimates"
    costs = {config: template.estimate_us(workload, config, target) for config in found}
    ranked = sorted(found, key=lambda config: (config != space.default, costs[config], str(config)))
    best = ranked[: _OF_A_LAYER if max(workload.kernel) <= _SMALL and workload.axes < 3 else _OF_A_RARE_ONE]
    is_wide = workload.layout == "nhwc" and all(config.vector_c > _NARROW_VECTOR for config in best)
    if is_wide and len(best) > 2:  # for numbers of channels that are few vectors
        best[1:] = [*best[1:-1], *[each for each in ranked if each.vector_c == _NARROW_VECTOR][:1]]
    return best


_SAMPLES, _OF_A_LAYER, _OF_A_RARE_ONE, _SMALL, _NARROW_VECTOR = 200, 5, 2, 7, 2
"""Configurations for a GPU: those that are drawn by chance, those that are taken of a layer, and of one in 3-D or with
more taps in a row than ``_SMALL``. One of five has a vector of so few channels."""


def _configs_for_a_cpu(workload: Workload, space: ConfigSpace, target: CpuTarget) -> list[Config]:
    """The default, with tiles that suit narrow images, too: wide ones are cut into halves and quarters there. In NHWC
    there is another one for what the first does worst: small kernels on large images, whose pixels are read one after
    the other as they lie; and weight gradients of small images with many channels, without partial sums.

    Measured on an AMD EPYC (family 25 model 17) with AVX-512, two threads, speed over tuned kernels, of the first and
    of the other configuration. 3×3: fprop of 96×112² stride 2 0.46 and 0.88, of 144×56² 0.62 and 0.95, of 960×7² 0.87
    and 0.62; dgrad of 144×56² 0.80 and 1.34; wgrad of 960×7² 0.51 and 0.76, of 144×56² 0.89 and 0.84. 5×5: wgrad of
    672×14² 0.87 and 1.00. 7×7: wgrad of 384×14² 0.65 and 0.91. Tiles of 7 columns against 14, 7×7 of 96×56², fprop and
    dgrad: 0.93 and 0.81 against 0.70 and 0.60."""
    default = dict[str, Value](space.default.values)
    if workload.block:
        tiles = {**default, "tile_w": _NARROW}
        if is_of_a_vector_set(target):  # rows at the edges of tasks are computed twice
            tiles["block_h"] = (workload.input_size if workload.pass_ == "backward" else workload.output_size)[-2]
        return [space.nearest(Config.of(space.template, **tiles))]
    is_usual = workload.multiplier == 1 and workload.channels >= _CHANNELS
    if workload.layout == "nchw" or workload.kernel[0] == 1 or not is_usual:
        return [space.default]
    taps, is_strided = workload.kernel[-1], workload.stride[-1] > 1
    first, other = dict[str, Value](), dict[str, Value]()
    if workload.pass_ == "wgrad":
        first = {"tile_w": min(_NARROW, space.default.tile_w)}
        rows = workload.output_size[-2]
        other = {**first, "parallel": "channels", "tasks": target.threads, "block_h": rows, "prefetch": 0}
    elif workload.pass_ == "dgrad" and is_strided:
        if taps <= 5:
            other = {"tile_h": 4, "tile_w": 2, "vectors_c": 1, "order": "hwc", "unroll": "taps"}
    else:
        has_many = vector_registers(target) >= 32
        if taps == 3:
            columns = _NARROW if has_many else 4
            first = {"tile_h": 2, "tile_w": columns, "vectors_c": 1, "order": "wch", "unroll": "taps"}
            other = {"tile_h": 4, "tile_w": 1, "vectors_c": 1, "order": "hwc", "unroll": "taps"}
        elif has_many:
            first = {"tile_w": _NARROW}
    wanted = [default | each for each in (first, other) if each or each is first]
    return [*dict.fromkeys(space.nearest(Config.of(space.template, **each)) for each in wanted)]


_NARROW = 7
"""Columns of a tile, of images of which many are a multiple as wide."""


def passes_of(layer: Workload) -> Iterator[Workload]:
    """The passes of an fprop, with a bias and without, at the sizes that their configurations are chosen for."""
    for pass_ in PASSES:
        of_pass = layer.for_pass(pass_)
        yield of_pass
        if pass_ != "dgrad":
            yield replace(of_pass, bias=True)


def _layers(dtype: DType, target: Target) -> Iterator[Workload]:
    is_for_cpu = isinstance(target, CpuTarget)
    batch = _BATCH if is_for_cpu else _GPU_BATCH
    for layout in LAYOUTS:
        for kind in _kinds():
            yield _of_kind(kind, dtype=dtype, batch=batch, layout=layout)
        for kind in _MULTIPLIED if is_for_cpu else ():
            yield _of_kind(kind, dtype=dtype, batch=batch, layout=layout, multiplier=2)
    for kind in _FEW if is_for_cpu else ():
        few = _of_kind(kind, dtype=dtype, batch=batch, layout="nhwc", channels=_FEW_CHANNELS)
        if has_few_channels(few, target):
            yield few


def _blocks(dtype: DType, target: Target) -> Iterator[Workload]:
    for block, kind in itertools.product(_BLOCKS, _OF_BLOCKS) if isinstance(target, CpuTarget) else ():
        layer = _of_kind(kind, dtype=dtype, batch=_BATCH, layout="nhwc")
        for pass_ in (*BLOCK_PASSES, *EVAL_PASSES):
            yield replace(layer, pass_=pass_, block=block)


def _of_kind(kind: Kind, **more: Any) -> Workload:
    return any_layer(**kind._asdict(), **more)


def has_few_channels(workload: Workload, target: Target) -> bool:
    """True if a layer has fewer channels than a vector, where vectors are of channels: other kernels run it."""
    if not isinstance(target, CpuTarget) or workload.layout != "nhwc":
        return False
    return workload.result_channels < target.lanes()


def _few(pass_: Pass, multiplier: int) -> int:
    """Channels of x where the result has a few."""
    return _FEW_CHANNELS if pass_ == "dgrad" else -(-_FEW_CHANNELS // multiplier)


def any_layer(
    *,
    kernel: Sizes,
    stride: Sizes,
    padding: tuple[Pair, ...],
    dilation: Sizes = (),
    dtype: DType = "float32",
    batch: int = _BATCH,
    layout: Layout = "nhwc",
    channels: int = _CHANNELS,
    multiplier: int = 1,
    is_row: bool = False,
) -> Workload:
    """An fprop of any size and any number of channels; with ``is_row`` of a sequence."""
    dilation = dilation or (1,) * len(kernel)
    times = 1 if channels >= _CHANNELS else _TIMES_OF_FEW
    sizes = (1, _LENGTH * times**2) if is_row else (_DEPTH, _SIZE * times, _SIZE * times)[-len(kernel) :]
    reach = [step * (taps - 1) + 1 for step, taps in zip(dilation, kernel, strict=True)]
    return Workload(
        pass_="fprop",
        batch=batch,
        channels=channels,
        multiplier=multiplier,
        input_size=tuple(max(size * step, least) for size, step, least in zip(sizes, stride, reach, strict=True)),
        kernel=kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        dtype=dtype,
        layout=layout,
        any_size=True,
        any_channels=True,
    )
