"""Kernels of any size: right at every size, and the bits of a kernel that is built for one."""

from __future__ import annotations

import dataclasses
import random
import re
from typing import Any

import pytest
import torch

from dwconv.errors import InvalidWorkload
from dwconv.kernels import build
from dwconv.kernels.kernel import Kernel
from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.first_use import fault_at_first_use
from dwconv.measure.verify.verify import verify_runs
from dwconv.problems.block import Block
from dwconv.problems.kernel_inputs import Data, operands
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import BLOCK_PASSES, LAYOUTS, PASSES, DType, Layout, Pass, Sizes, Workload
from dwconv.schedules.any_size import any_axes
from dwconv.schedules.cpu.shared.row_blocks import column_blocks
from dwconv.schedules.emit import kernel
from dwconv.schedules.space import Config, Value
from dwconv.schedules.template import Candidate, fitting, templates_for
from tests.schedules.cpu_layers import TARGET, built, layer, lying
from tests.turns import in_turns, slow

MOST = 40
"""The largest size along an axis; of a single row the next."""
LONGEST = 300
SAME = ((1, 1), (1, 1))
K3, S2 = layer(20, (14, 14), (3, 3), padding=SAME), layer(17, (9, 14), (3, 5), padding=((1, 1), (2, 1)), stride=(2, 2))
VOLUME = layer(5, (5, 9, 8), (3, 3, 2), padding=(*SAME, (1, 0)), stride=(2, 1, 2))
CASES: dict[str, tuple[Workload, dict[str, Value]]] = {
    "tiles of a whole row": (K3, {"tile_w": 14, "unroll": "kw"}),
    "tiles of several rows": (K3, {"tile_w": 3, "tile_h": 3, "unroll": "taps"}),
    "tiles of one column": (K3, {"tile_w": 1, "tile_h": 2, "unroll": "taps"}),
    "stride 2": (S2, {"tile_w": 4, "unroll": "kw"}),
    "stride beyond the kernel": (layer(4, (20, 21), (3, 3), padding=((1, 1), (0, 1)), stride=(4, 5)), {"unroll": "kw"}),
    "dilation": (layer(16, (12, 12), (3, 3), padding=((2, 2), (2, 2)), dilation=(2, 2)), {"tile_w": 6, "unroll": "kw"}),
    "wide, in loops": (layer(16, (9, 20), (3, 13), padding=((1, 1), (6, 6))), {"unroll": "none"}),
    "a row": (layer(32, (1, 200), (1, 9), padding=((0, 0), (4, 4))), {"block_w": 64}),
    "a row in groups": (layer(16, (1, 70), (1, 31), padding=((0, 0), (15, 15))), {"unroll": "group"}),
    "causal": (layer(16, (1, 40), (1, 4), padding=((0, 0), (3, 0))), {}),
    "multiplier": (layer(6, (8, 9), (3, 3), padding=SAME, multiplier=2), {}),
    "planes": (lying(K3, "nchw"), {"tile_h": 3, "vectors_w": 1}),
    "planes, stride 2": (lying(S2, "nchw"), {"unroll": "kw", "parallel": "planes"}),
    "planes in scratch memory": (lying(S2, "nchw"), {"stage": "scratch", "block_h": 4, "vectors_w": 1}),
    "planes, edges of several vectors": (
        layer(4, (9, 38), (2, 5), padding=((2, 1), (4, 1)), bias=True, layout="nchw"), {"vectors_w": 2}
    ),
    "planes, a row": (
        layer(4, (1, 150), (1, 9), padding=((0, 0), (4, 4)), layout="nchw"), {"block_w": 75, "parallel": "planes"}
    ),
    "planes, a row in groups": (
        layer(4, (1, 150), (1, 31), padding=((0, 0), (15, 15)), layout="nchw"),
        {"stage": "scratch", "unroll": "none", "block_w": 75},
    ),
    "planes, a whole row in groups": (
        layer(4, (1, 100), (1, 31), padding=((0, 0), (15, 15)), layout="nchw"), {"stage": "scratch", "unroll": "none"}
    ),
    "planes, a row, stride 8": (
        layer(4, (1, 200), (1, 16), padding=((0, 0), (4, 4)), stride=(1, 8), layout="nchw"), {}
    ),
    "a row of taps on images": (layer(16, (9, 20), (1, 7), padding=((0, 0), (9, 9)), dilation=(1, 3)), {}),
    "a column of taps, planes": (
        layer(4, (20, 19), (7, 1), padding=((9, 9), (0, 0)), dilation=(3, 1), layout="nchw"), {}
    ),
    "planes, causal": (layer(4, (1, 40), (1, 4), padding=((0, 0), (3, 0)), layout="nchw"), {"stage": "scratch"}),
}  # fmt: skip


def any_size(workload: Workload, wanted: dict[str, Value], *, target: CpuTarget = TARGET) -> Kernel:
    """A kernel with a configuration near to what is wanted, of knobs that the template has."""
    (template,) = templates_for(workload.with_any_size(), target)
    space = template.space(workload, target)
    known = {knob.name for knob in space.knobs if knob.values}
    given = {name: value for name, value in wanted.items() if name in known}
    config = space.nearest(Config.of(template.name, **{**dict(space.default.values), **given}))
    return Kernel.load(build(Candidate(workload.with_any_size(), config), target))


def some_sizes(workload: Workload, count: int) -> list[Sizes]:
    """By chance, the same every time; the smallest and the workload's own are among them."""
    drawn = random.Random(workload.key)
    most = [1, LONGEST] if workload.is_row else [MOST] * workload.axes
    sizes = {workload.input_size, tuple(1 for _ in most)}
    while len(sizes) < count:
        sizes.add(tuple(drawn.randint(1, size) for size in most))
    return sorted(sizes)


def assert_right_at(kernel: Kernel, size: Sizes, *, data: Data = "integers") -> None:
    try:
        workload = kernel.workload.with_input_size(size)
    except InvalidWorkload:  # the kernel is larger than the padded image
        return
    assert_right(kernel, workload, data=data)


def assert_right(kernel: Kernel, workload: Workload, *, data: Data = "integers") -> None:
    assert kernel.any_size is not None
    case = make_case(workload, data=data)
    verdict = verify_runs(kernel.any_size.at(workload), case, threads=[torch.get_num_threads()])
    assert verdict.right, f"{workload.key}: {verdict.reason}"


@pytest.mark.parametrize(("case", "pass_"), in_turns(list(CASES), PASSES))
def test_right_at_every_size(case: str, pass_: Pass) -> None:
    """Within guard bands, also where the kernel is larger than the image, and where an axis has few tiles."""
    workload, wanted = CASES[case]
    kernel = any_size(workload.for_pass(pass_), wanted)
    for size in some_sizes(kernel.workload, 16):
        assert_right_at(kernel, size)


BLOCKS: dict[str, tuple[Workload, str]] = {
    "forward": (K3, "bn+relu6,bn+relu"),
    "backward": (S2, "bn+silu,bn+hardswish"),
    "inference": (dataclasses.replace(CASES["dilation"][0], dtype="bfloat16"), "bn+relu,bn"),
    "frozen, forward": (S2, "frozen+relu6,frozen+silu"),
    "frozen, backward": (S2, "frozen+relu6,frozen+relu6"),
    "frozen, y kept, backward": (CASES["dilation"][0], "bn+relu,frozen+hardswish"),
    "of images, forward": (K3, "in+relu6,in+silu"),
    "of images, backward": (S2, "in+silu,in+relu"),
    "3-D, forward": (VOLUME, "bn+relu6,bn+relu"),
    "3-D, backward": (VOLUME, "in+relu6,in+silu"),
    "layer norm, forward": (K3, "none,ln"),
    "layer norm, backward": (dataclasses.replace(S2, bias=True), "none,ln"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", BLOCKS)
def test_right_in_blocks(case: str) -> None:
    """On several numbers of threads, too, which have no part in statistics."""
    workload, block = BLOCKS[case]
    pass_: Any = case.rpartition(" ")[2]
    workload = dataclasses.replace(workload, pass_=pass_, block=Block.parse(block))
    kernel = any_size(workload, {"tile_w": 4, "block_h": 4, "block_c": 16, "strip_h": 2})
    for size in some_sizes(kernel.workload, 16):
        assert_right_at(kernel, size, data="normal")
    assert not fault_at_first_use(kernel, torch.device("cpu"), threads=(3, 1), fast_math=False)


@pytest.mark.parametrize("pass_", PASSES)
def test_right_at_every_width(pass_: Pass) -> None:
    """Tiles of 6 columns: every number of them comes up, with every rest."""
    kernel = any_size(layer(16, (5, 15), (1, 7), padding=((0, 0), (3, 3))).for_pass(pass_), {"tile_w": 6})
    for width in range(1, MOST + 1):
        assert_right_at(kernel, (2, width))


@pytest.mark.parametrize(("dtype", "pass_"), in_turns(["bfloat16", "float16"], PASSES))
def test_right_in_16_bits(pass_: Pass, dtype: DType) -> None:
    """Also of NaN and infinity, which padding and missing outputs must not spread."""
    for layout in LAYOUTS:
        workload = dataclasses.replace(K3, dtype=dtype, bias=True, layout=layout).for_pass(pass_)
        kernel = any_size(workload, {"tile_w": 4})
        for size in some_sizes(workload, 8):
            assert_right_at(kernel, size, data="extreme")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pass_", "wanted"),
    [
        ("fprop", {"tile_w": 4, "vectors_c": 3}),
        ("dgrad", {"unroll": "taps", "order": "hwc"}),
        ("wgrad", {"tile_w": 4, "vectors_c": 2}),
        ("wgrad", {"parallel": "channels", "vectors_c": 2, "block_h": 7, "tasks": TARGET.threads}),
    ],
    ids=str,
)
def test_right_with_every_number_of_channels(pass_: Pass, wanted: dict[str, Value]) -> None:
    """Whole vectors, vectors that overlap the one before, and groups of vectors that are not full."""
    layer_of_all = dataclasses.replace(layer(64, (14, 14), (3, 3), padding=SAME, stride=(2, 2)), any_size=True)
    kernel = any_size(dataclasses.replace(layer_of_all, any_channels=True).for_pass(pass_), wanted)
    assert wanted.items() <= kernel.artifact.candidate.config.to_dict().items()
    least = kernel.any_size.artifact.least_channels
    assert least == TARGET.lanes()
    for channels in (least, least + 1, 2 * least - 1, 2 * least, 3 * least + 5, 4 * least, 5 * least + 1):
        at = dataclasses.replace(kernel.workload, channels=channels, input_size=(5, channels % 11 + 1))
        assert_right(kernel, at)


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("multiplier", [1, slow(2)])
def test_right_with_few_channels_and_multipliers(pass_: Pass, multiplier: int) -> None:
    """Vectors as long as the few channels that the configuration is chosen for fill."""
    chosen = 4 if pass_ == "dgrad" else 4 // multiplier
    layer_of_all = layer(chosen, (14, 14), (3, 3), padding=SAME, multiplier=multiplier, bias=pass_ != "dgrad")
    layer_of_all = dataclasses.replace(layer_of_all, any_size=True, any_channels=True)
    kernel = any_size(layer_of_all.for_pass(pass_), {"parallel": "images"})
    assert kernel.any_size.artifact.least_channels == 4
    for channels in (4, 5, 7, 9, 15):
        at = dataclasses.replace(kernel.workload, channels=channels, input_size=(5, channels + 1))
        assert_right(kernel, at)


FLAT_BLOCKS = [case for case in BLOCKS if not case.startswith(("3-D", "layer norm"))]


@pytest.mark.parametrize("case", [case if case in ("forward", "backward") else slow(case) for case in FLAT_BLOCKS])
def test_right_in_blocks_with_every_number_of_channels(case: str) -> None:
    workload, block = BLOCKS[case]
    pass_: Any = case.rpartition(" ")[2]
    shared = {"pass_": pass_, "block": Block.parse(block), "any_size": True, "any_channels": True}
    for chosen, numbers in ((64, (0, 1, 15, 16, 37, 49)), (4, (0, 1, 3, 11))):
        kernel = any_size(dataclasses.replace(workload, channels=chosen, **shared), {"tile_w": 6})
        least = kernel.any_size.artifact.least_channels
        assert least == min(chosen, TARGET.lanes())
        for more in numbers:
            at = dataclasses.replace(kernel.workload, channels=least + more, input_size=(more % 9 + 6, more % 11 + 7))
            assert_right(kernel, at, data="normal")
        assert not fault_at_first_use(kernel, torch.device("cpu"), threads=(3, 1), fast_math=False)


@pytest.mark.parametrize(
    ("pass_", "wanted", "multiplier"),
    [
        ("fprop", {"tile_h": 2}, 2),
        ("dgrad", {}, 2),
        ("wgrad", {"parallel": "channels"}, 1),
        ("wgrad", {"parallel": "planes"}, 3),
    ],
    ids=str,
)
def test_right_with_every_number_of_planes(pass_: Pass, wanted: dict[str, Value], multiplier: int) -> None:
    layer_of_all = layer(
        64, (14, 14), (3, 3), padding=SAME, stride=(2, 2), bias=pass_ != "dgrad", layout="nchw", multiplier=multiplier
    )
    layer_of_all = dataclasses.replace(layer_of_all, any_size=True, any_channels=True)
    kernel = any_size(layer_of_all.for_pass(pass_), wanted)
    assert wanted.items() <= kernel.artifact.candidate.config.to_dict().items()
    for channels in (1, 2, 7, 65):
        at = dataclasses.replace(kernel.workload, channels=channels, input_size=(5, channels % 11 + 3))
        assert_right(kernel, at)


@pytest.mark.parametrize(("layout", "pass_"), in_turns(LAYOUTS, PASSES))
def test_right_on_volumes(layout: Layout, pass_: Pass) -> None:
    volume = layer(16, (4, 6, 9), (3, 3, 3), padding=(*SAME, (1, 1)), stride=(2, 1, 2), layout=layout).for_pass(pass_)
    kernel = any_size(volume, {})
    for size in ((1, 1, 1), (2, 7, 3), (5, 4, 12), (3, 1, 20)):
        assert_right_at(kernel, size)
    if layout == "nhwc":
        kernel = any_size(dataclasses.replace(volume, any_size=True, any_channels=True), {})
        at = dataclasses.replace(kernel.workload, channels=19, input_size=(3, 5, 6))
        assert_right(kernel, at)


def test_no_condition_sees_a_division_by_a_symbol() -> None:
    """TVM's simplifier would take it apart at every one, half a minute long for 5×5."""
    layer_of_all = layer(64, (14, 14), (3, 3), padding=SAME, layout="nchw")
    layer_of_all = dataclasses.replace(layer_of_all, any_size=True, any_channels=True)
    (template,) = templates_for(layer_of_all, TARGET)
    default = template.space(layer_of_all, TARGET).default
    program = Candidate(layer_of_all, default).schedule(TARGET).mod.script()
    for name in ("top", "image", "group"):
        assert re.search(rf"{name}_1: T.let.* = {name}\[0\]", program), f"{name} is not read from memory"


@pytest.mark.parametrize(
    ("what", "data"), [({"epilogue": "silu_gradient", "bias": True}, "normal"), ({"x_pitch": 52}, "integers")], ids=str
)
def test_right_with_an_epilogue_and_on_slices(what: dict[str, Any], data: Data) -> None:
    for own, sizes in ((K3, ((14, 14), (3, 5), (9, 23))), (CASES["planes, causal"][0], ((1, 40), (1, 5), (1, 90)))):
        kernel = any_size(dataclasses.replace(own, **what), {"tile_w": 4})
        for size in sizes:
            assert_right_at(kernel, size, data=data)


def test_results_are_streamed_by_their_size_alone() -> None:
    """A result of one size stays in the caches, a larger one of the same kernel goes past them."""
    target = dataclasses.replace(TARGET, cache_bytes=1 << 16)
    workload = layer(16, (200, 300), (3, 3), padding=SAME, batch=1)
    kernel = any_size(workload, {"store": "streamed"}, target=target)
    assert kernel.artifact.candidate.config.store == "streamed"
    for size in ((4, 9), (120, 200)):
        assert_right_at(kernel, size)


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "pass_"), [*in_turns(LAYOUTS, PASSES), *(("nhwc", each) for each in BLOCK_PASSES)])
def test_the_same_bits_as_a_kernel_of_one_size(layout: Layout, pass_: Pass) -> None:
    """At the size that the configuration was chosen for, where the order of sums is the same; a gather has it at
    every size."""
    block = Block.parse("bn+relu6,bn+silu") if pass_ in BLOCK_PASSES else None
    own = dataclasses.replace(lying(K3, layout), block=block, pass_="forward" if block else "fprop").for_pass(pass_)
    kernel = any_size(own, {"tile_w": 6 if block else 4})  # of 14 columns two are left over
    assert kernel.any_size is not None
    for size in (own.input_size, (11, 27)) if pass_ in ("fprop", "dgrad") else (own.input_size,):
        workload = own.with_input_size(size)
        inputs = operands(workload, data="normal", seed=2)
        config = fitting(kernel.artifact.candidate.config.template, workload, TARGET).space(workload, TARGET)
        one = built(workload, config.nearest(kernel.artifact.candidate.config))
        found = [each(*inputs) for each in (one, kernel.any_size.at(kernel.workload.with_input_size(size)))]
        assert all(map(torch.equal, *(each if block else [each] for each in found)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_batch_leaves_nothing_to_do(layout: Layout) -> None:
    kernel = any_size(lying(K3, layout), {})
    w = torch.ones(K3.shape_of("w"))
    assert kernel(torch.empty(0, 20, 14, 14), w).shape == (0, 20, 14, 14)


@pytest.mark.parametrize("width", [1, 3])
def test_tiles_in_the_interior_test_nothing(width: int) -> None:
    columns = any_axes(K3.with_any_size()).columns
    with kernel():
        runs, *_ = columns.cuts(width, overlap=False)
    interior = [run for run in runs if run.interior]
    assert interior and interior[0].width == width
    assert not any(columns.is_tested(run, at) for run in interior for at, _ in columns.reads_of(run))


def test_a_row_that_is_half_as_long_again_stays_whole():
    """Where rows are whole at the size that the configuration was chosen for; else blocks keep their width."""
    axes = any_axes(layer(16, (1, 400), (1, 31), padding=((0, 0), (15, 15))).with_any_size())

    def blocks(width: int, *, columns: int) -> int:
        long = dataclasses.replace(axes, columns=dataclasses.replace(axes.columns, outputs=columns))
        return column_blocks(Config.of("cpu.fprop_nchw", block_w=width), long)

    counted = [(blocks(400, columns=columns), blocks(200, columns=columns)) for columns in (200, 401, 800, 801)]
    assert counted == [(1, 1), (1, 3), (1, 4), (2, 5)]


def test_any_number_of_channels_is_of_any_size() -> None:
    with pytest.raises(InvalidWorkload, match="any_channels=True needs any_size=True"):
        dataclasses.replace(K3, any_channels=True)
