"""The CPU templates: right on odd shapes in every configuration, for any batch, with the same bits every time."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dwconv import reference
from dwconv.build import build
from dwconv.build.kernel import Kernel
from dwconv.errors import InvalidWorkload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, templates_for
from dwconv.target import CpuTarget
from dwconv.workload import IMAGES, LAYOUTS, PASSES, Layout, Padding, Pass, Workload
from tests.conftest import Golden

TARGETS = {
    vector_bytes: CpuTarget(device="test", threads=2, vector_bytes=vector_bytes) for vector_bytes in (16, 32, 64)
}
TARGET = TARGETS[64]


def layer(channels: int, size: tuple[int, int], kernel: tuple[int, int], **other: object) -> Workload:
    fields = {
        "pass_": "fprop",
        "batch": 2,
        "channels": channels,
        "input_size": size,
        "kernel": kernel,
        "layout": "nhwc",
    }
    return Workload(**{**fields, **other})  # type: ignore[arg-type]


def lying(workload: Workload, layout: Layout) -> Workload:
    """The same workload in that layout. In NCHW it has the NCHW template, where that can run it, as its first."""
    return dataclasses.replace(workload, layout=layout)


SHAPES = {
    "ragged channels": layer(58, (9, 11), (3, 3), padding=((1, 1), (1, 1))),
    "three channels": layer(3, (8, 9), (2, 3), padding=((1, 0), (1, 1)), stride=(1, 2)),
    "one channel": layer(1, (7, 7), (3, 3), padding=((1, 1), (1, 1))),
    "asymmetric padding": layer(24, (10, 13), (3, 5), padding=((0, 2), (3, 1)), stride=(2, 2)),
    "dilation and stride": layer(20, (15, 14), (5, 3), padding=((3, 3), (2, 2)), dilation=(2, 3), stride=(3, 2)),
    "dilation is the stride": layer(16, (14, 15), (3, 3), padding=((2, 2), (2, 2)), dilation=(2, 2), stride=(2, 2)),
    "multiplier": layer(6, (9, 8), (3, 3), padding=((1, 1), (1, 1)), stride=(2, 1), multiplier=3),
    "1-D, causal": layer(32, (1, 40), (1, 7), padding=((0, 0), (6, 0)), dilation=(1, 2)),
    "1-D, wide": layer(5, (1, 90), (1, 65), padding=((0, 0), (32, 32)), multiplier=2),
    "kernel beyond the image": layer(16, (1, 9), (3, 5), padding=((1, 1), (4, 4))),
    "31 by 31": layer(16, (20, 17), (31, 31), padding=((15, 15), (15, 15))),
    "large kernel and stride": layer(20, (23, 40), (17, 35), padding=((8, 8), (17, 17)), stride=(2, 2)),
    "stride beyond the kernel": layer(4, (40, 41), (3, 3), padding=((1, 1), (1, 1)), stride=(17, 26)),
    "1 by 1": layer(17, (12, 12), (1, 1), stride=(2, 3)),
}  # fmt: skip


def built(workload: Workload, config: Config, target: CpuTarget = TARGET) -> Kernel:
    return Kernel.load(build(Candidate(workload, config), target))


def run(kernel: Kernel, workload: Workload, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """The kernel's results in PyTorch's shapes; what it starts from, and what it does not write, is NaN."""
    built = kernel.artifact
    to_kernel, to_pytorch = ((0, 2, 3, 1), (0, 3, 1, 2))
    if built.candidate.template.layout == "nchw":
        to_kernel = to_pytorch = (0, 1, 2, 3)
    given = [
        misaligned(tensor.permute(to_kernel) if argument.name in IMAGES else tensor.view(argument.shape_at(1)))
        for argument, tensor in zip(built.inputs, inputs, strict=True)
    ]
    results, workspaces = (
        [torch.full(argument.shape_at(workload.batch), float("nan")) for argument in arguments]
        for arguments in (built.results, built.workspaces)
    )
    kernel.run_into(given, results, workspaces)
    return [
        result.permute(to_pytorch) if name in IMAGES else result.view(workload.shape_of(name))
        for result, name in zip(results, workload.results, strict=True)
    ]


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """A dense copy at an address that is a multiple of 4 bytes, and of no more."""
    return torch.empty(tensor.numel() + 1)[1:].view(tensor.shape).copy_(tensor)


def assert_right(kernel: Kernel, workload: Workload) -> None:
    """Exactly, on whole numbers; all sums of them fit into float32."""
    inputs = reference.operands(workload, data="integers", seed=1)
    answers = reference.right_answers(workload, *inputs)
    for result, answer in zip(run(kernel, workload, inputs), answers, strict=True):
        assert answer.allowed is None
        assert torch.equal(result, answer.expected)


def some_configs(workload: Workload, count: int, *, target: CpuTarget = TARGET) -> list[Config]:
    """The default and ``count`` other legal configurations, the same in every run."""
    space = templates_for(workload, target)[0].space(workload, target)
    rng = random.Random(workload.key)
    others = [space.sample(rng) for _ in range(count)]
    return list(dict.fromkeys([space.default, *(config for config in others if config is not None)]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_right_on_odd_shapes(shape: str, pass_: Pass, layout: Layout) -> None:
    """One configuration as it is, another with a bias, where the pass knows one."""
    plain = lying(SHAPES[shape].for_pass(pass_), layout)
    for number, config in enumerate(some_configs(plain, 1)):
        workload = dataclasses.replace(SHAPES[shape], bias=number > 0, layout=layout).for_pass(pass_)
        assert_right(built(workload, config), workload)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_right_with_narrower_vectors(vector_bytes: int, pass_: Pass, layout: Layout) -> None:
    workload, target = lying(SHAPES["ragged channels"].for_pass(pass_), layout), TARGETS[vector_bytes]
    for config in some_configs(workload, 1, target=target):
        assert_right(built(workload, config, target), workload)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("shape", ["ragged channels", "asymmetric padding", "wide image", "large kernel"])
def test_what_is_not_finite_reaches_the_results_it_meets_alone(shape: str, pass_: Pass, layout: Layout) -> None:
    """Not by way of padding, nor of lanes and rows that a vector or a tile has too many of."""
    shapes = SHAPES | {"wide image": WIDE, "large kernel": layer(5, (9, 10), (7, 11), padding=((3, 3), (5, 5)))}
    workload = lying(shapes[shape].for_pass(pass_), layout)
    for config in some_configs(workload, 3):
        kernel = built(workload, config)
        for seed, value in enumerate([math.inf, math.nan]):
            inputs = reference.operands(workload, data="integers", seed=seed)
            for number, tensor in enumerate(inputs if pass_ == "wgrad" else inputs[:1]):
                *_, height, width = tensor.shape
                for channel, (row, column) in enumerate(itertools.product((0, height - 1), (0, width - 1))):
                    tensor[number, channel % tensor.shape[1], row, column] = value
            (expected,) = reference.reference(workload, *inputs)
            (result,) = run(kernel, workload, inputs)
            assert torch.equal(result.isnan(), expected.isnan())
            assert torch.equal(result.nan_to_num(), expected.float().nan_to_num())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", ["fprop", "dgrad"])
def test_a_weight_that_is_not_finite_meets_padding_beside_rows_of_nchw_alone(pass_: Pass, layout: Layout) -> None:
    """Zeros lie there, and 0 · ∞ is NaN, as in PyTorch's own op without oneDNN; with it, as in NHWC."""
    workload = lying(SHAPES["ragged channels"].for_pass(pass_), layout)
    images, weights = reference.operands(workload, data="integers", seed=1)
    images, channel = images + 4, 5  # no zeros: they would make NaNs of their own
    weights[channel, 0, 0, 0] = math.inf
    (expected,) = reference.reference(workload, images, weights)
    padded = torch.zeros_like(expected, dtype=torch.bool)
    if layout == "nchw":
        padded[:, channel, :, 0 if pass_ == "fprop" else -1] = True
    for config in some_configs(workload, 3):
        (result,) = run(built(workload, config), workload, (images, weights))
        assert torch.equal(result[~padded], expected[~padded].float())
        assert torch.all(result[padded].isnan() | (result[padded] == expected[padded]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_any_batch(pass_: Pass, layout: Layout) -> None:
    workload = lying(SHAPES["asymmetric padding"].for_pass(pass_), layout)
    kernel = built(workload, some_configs(workload, 0)[0])
    for batch in (1, 3, 17):
        assert_right(kernel, workload.with_batch(batch))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_the_same_bits_whatever_the_number_of_threads(pass_: Pass, layout: Layout) -> None:
    workload = lying(dataclasses.replace(SHAPES["ragged channels"], bias=True).for_pass(pass_), layout)
    kernel = built(workload, some_configs(workload, 0)[0])
    inputs = reference.operands(workload, data="normal", seed=2)
    answers = reference.right_answers(workload, *inputs)
    threads, runs = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            runs += [run(kernel, workload, inputs) for _ in range(2)]
    finally:
        torch.set_num_threads(threads)
    for answer, *results in zip(answers, *runs, strict=True):
        assert answer.allowed is not None
        assert bool(((results[0].double() - answer.expected).abs() <= answer.allowed).all())
        assert all(torch.equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_sums_are_registers_not_memory_from_the_heap(pass_: Pass, layout: Layout) -> None:
    workload = lying(layer(32, (14, 14), (3, 3), padding=((1, 1), (1, 1)), bias=True).for_pass(pass_), layout)
    artifact = build(Candidate(workload, some_configs(workload, 0)[0]), TARGET)
    assert "load ptr, ptr @__TVMBackendAllocWorkspace" not in artifact.source


@pytest.mark.parametrize("parallel", ["images", "channels"])
@pytest.mark.parametrize("unroll", ["kw", "none"])
@pytest.mark.parametrize("bias", [False, True])
def test_every_way_to_share_out_wgrad(parallel: str, unroll: str, bias: bool) -> None:
    workload = dataclasses.replace(SHAPES["multiplier"], bias=bias).for_pass("wgrad")
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    config = next(config for config in space if (config.parallel, config.unroll) == (parallel, unroll))
    kernel = built(workload, config)
    assert_right(kernel, workload)
    assert len(kernel.artifact.workspaces) == (1 if parallel == "images" else 0)


@pytest.mark.parametrize("ahead", [3, 6])
@pytest.mark.parametrize("stride, multiplier", [(1, 1), (2, 1), (1, 2)])
def test_wgrad_asks_for_lines_ahead_and_for_no_others(ahead: int, stride: int, multiplier: int) -> None:
    """On what stays in the cache there is nothing to gain: the knob is there in large workloads alone."""
    small = layer(34, (17, 14), (3, 3), padding=((1, 1), (1, 1)), stride=(stride, stride), multiplier=multiplier)
    small = small.for_pass("wgrad")
    large = dataclasses.replace(small, batch=2000)
    without, space = (templates_for(each, TARGET)[0].space(each, TARGET) for each in (small, large))
    assert "prefetch" not in without.default.to_dict()
    rows = {"block_h": 4, "tile_h": 2 if multiplier == 1 else 1}
    wanted = {**rows, "tile_w": 3, "vectors_c": 1, "unroll": "kw", "prefetch": ahead}
    ahead_kernel = built(large, space.check({**space.default.to_dict(), **wanted}))
    assert "llvm.prefetch" in ahead_kernel.artifact.source
    assert_right(ahead_kernel, small)
    before = {name: value for name, value in space.default.values if name != "prefetch"}
    assert "llvm.prefetch" not in built(large, Config.of(space.template, **before)).artifact.source


@pytest.mark.parametrize("pass_", PASSES)
def test_tiles_in_every_order(pass_: Pass) -> None:
    """Several tiles along every axis, and several blocks of rows."""
    workload = layer(58, (11, 13), (3, 3), padding=((1, 0), (2, 1)), bias=pass_ != "dgrad").for_pass(pass_)
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    orders = next(knob.values for knob in space.knobs if knob.name == "order")
    assert len(orders) == (2 if pass_ == "wgrad" else 5)
    for order in orders:
        small = {"order": order, "block_h": 4, "tile_w": 4, "vectors_c": 1, "unroll": "kw"}
        kernel = built(workload, space.check(space.default.to_dict() | small | ROWS_APART[pass_]))
        assert_right(kernel, workload)


@pytest.mark.parametrize("pass_", ["fprop", "dgrad"])
def test_blocks_of_channels_that_fill_no_whole_vectors(pass_: Pass) -> None:
    """The last block overlaps the one before."""
    workload = layer(58, (5, 6), (3, 3), padding=((1, 1), (1, 1)), bias=pass_ == "fprop").for_pass(pass_)
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    blocks = next(knob.values for knob in space.knobs if knob.name == "block_c")
    assert blocks == (16, 32, 58)
    for block_c in blocks:
        fields = {"block_c": block_c, "vectors_c": 1}
        assert_right(built(workload, space.check(space.default.to_dict() | fields)), workload)


@pytest.mark.parametrize("group_kh", [1, 2, 3])
@pytest.mark.parametrize("parallel", ["images", "channels"])
def test_tiles_of_several_rows_of_dy_and_rows_that_are_left(parallel: str, group_kh: int) -> None:
    workload = layer(24, (9, 10), (4, 3), padding=((2, 1), (1, 1)), stride=(1, 2), bias=True).for_pass("wgrad")
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    rows, tasks = (9, 2) if parallel == "channels" else (4, 8)
    fields = {"parallel": parallel, "tasks": tasks, "block_h": rows, "vectors_c": 1, "tile_w": 2, "group_kh": group_kh}
    for tile_h in (2, 4):
        assert_right(built(workload, space.check(space.default.to_dict() | fields | {"tile_h": tile_h})), workload)


def test_wgrad_tiles_of_a_record_that_says_nothing_of_rows_have_one() -> None:
    """It was written before there was a choice."""
    workload = layer(58, (8, 8), (3, 3), padding=((1, 1), (1, 1))).for_pass("wgrad")
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    one_row = space.check(space.default.to_dict() | {"tile_h": 1})
    silent = Config(one_row.template, tuple(item for item in one_row.values if item[0] != "tile_h"))
    assert space.check(silent.to_dict()) == one_row
    assert_right(built(workload, silent), workload)


ROWS_APART: dict[Pass, dict[str, object]] = {"fprop": {"tile_h": 1}, "dgrad": {"tile_h": 1}, "wgrad": {"group_kh": 2}}


@pytest.mark.parametrize("group_kh", [1, 2])
@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((4, 3), (5, 0))])
def test_a_gradient_of_the_bias_sums_outputs_that_meet_padding_alone_too(group_kh: int, padding: Padding) -> None:
    workload = layer(20, (9, 8), (3, 2), padding=padding, bias=True).for_pass("wgrad")
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    for parallel in ("images", "channels"):
        config = next(config for config in space if (config.parallel, config.group_kh) == (parallel, group_kh))
        assert_right(built(workload, config), workload)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    def pair(most: int) -> st.SearchStrategy[tuple[int, int]]:
        return st.tuples(st.integers(1, most), st.integers(1, most))

    pads = st.tuples(st.integers(0, 3), st.integers(0, 3))
    try:
        return layer(
            draw(st.integers(1, 40)), draw(pair(12)), draw(pair(5)),
            multiplier=draw(st.sampled_from([1, 1, 1, 2])), bias=draw(st.booleans()),
            stride=draw(pair(3)), dilation=draw(pair(2)), padding=draw(st.tuples(pads, pads)),
            layout=draw(st.sampled_from(LAYOUTS)),
        ).for_pass(draw(st.sampled_from(PASSES)))  # fmt: skip
    except InvalidWorkload:
        assume(False)
        raise


@given(workloads(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_whatever_the_space_holds_builds_and_is_right(workload: Workload, rng: random.Random) -> None:
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    config = space.sample(rng)
    assert config is not None
    assert_right(built(workload, config), workload)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_space_has_a_default_and_something_to_search(shape: str, pass_: Pass, layout: Layout) -> None:
    workload = lying(SHAPES[shape].for_pass(pass_), layout)
    for target in TARGETS.values():
        space = templates_for(workload, target)[0].space(workload, target)
        assert space.check(space.default.to_dict()) == space.default
        assert len({space.sample(random.Random(seed)) for seed in range(30)}) > 3


ON_SIZE = ("threads", "store", "prefetch")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("pass_", PASSES)
def test_only_threads_stores_and_prefetches_depend_on_the_batch(pass_: Pass, batch: int, layout: Layout) -> None:
    workload = lying(layer(96, (28, 28), (5, 5), padding=((2, 2), (2, 2))).for_pass(pass_), layout)
    space, other = (
        templates_for(workload, TARGET)[0].space(dataclasses.replace(workload, batch=size), TARGET)
        for size in (2, batch)
    )
    knobs, others = ([knob for knob in each.knobs if knob.name not in ON_SIZE] for each in (space, other))
    assert knobs == others
    assert all(other.why_illegal(config) is None for config in some_configs(workload, 20))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_a_small_workload_chooses_its_threads(pass_: Pass, layout: Layout) -> None:
    small = lying(layer(96, (7, 7), (3, 3), padding=((1, 1), (1, 1)), batch=1).for_pass(pass_), layout)
    large = dataclasses.replace(small, channels=960, batch=8)
    target = dataclasses.replace(TARGET, threads=6)
    spaces = [templates_for(each, target)[0].space(each, target) for each in (small, large)]
    choices = [{knob.name: knob.values for knob in space.knobs}.get("threads") for space in spaces]
    assert choices == [(1, 2, 4, 6), None]
    assert spaces[0].default.threads == 6
    alone = dataclasses.replace(TARGET, threads=1)
    assert "threads" not in templates_for(small, alone)[0].space(small, alone).default.to_dict()


def test_the_default_leaves_work_for_every_thread() -> None:
    workload = layer(96, (7, 7), (3, 3), padding=((1, 1), (1, 1)), batch=1)
    config = some_configs(workload, 0)[0]
    assert -(-7 // config.block_h) >= 2 * TARGET.threads


def test_a_long_row_alone_is_shared_out_by_channels() -> None:
    workload = layer(256, (1, 500), (1, 31), padding=((0, 0), (15, 15)), batch=1)
    config = some_configs(workload, 0)[0]
    assert workload.channels // config.block_c >= 2 * TARGET.threads


def test_code_too_long_to_compile_is_not_in_the_space() -> None:
    workload = layer(64, (28, 28), (31, 31), padding=((15, 15), (15, 15)))
    for pass_ in PASSES:
        space = templates_for(workload.for_pass(pass_), TARGET)[0].space(workload.for_pass(pass_), TARGET)
        widest = {knob.name: knob.values[-1] for knob in space.knobs} | {"unroll": "kw", "tile_w": 1}
        tall = Config.of(space.template, **widest)
        assert space.why_illegal(tall) is not None


@pytest.mark.parametrize(
    ("pass_", "wanted"),
    [
        ("fprop", {"stage": "none", "unroll": "taps"}),
        ("fprop", {"stage": "scratch", "unroll": "taps", "planes": 4}),
        ("fprop", {"stage": "none", "unroll": "kw", "planes": 1}),
        ("dgrad", {"stage": "scratch", "unroll": "kw", "planes": 4}),
        ("wgrad", {"parallel": "planes", "stage": "scratch", "tile_h": 3}),
        ("wgrad", {"parallel": "channels", "stage": "none", "group_kh": 2, "group_kw": 1}),
    ],
)
@pytest.mark.parametrize("shape", ["wide image", "multiplier"])
def test_every_way_through_a_plane(shape: str, pass_: Pass, wanted: dict[str, object]) -> None:
    """Rows of several vectors, with edges of their own; in place and in scratch memory; taps unrolled or in a loop."""
    workload = lying((SHAPES | {"wide image": WIDE})[shape].for_pass(pass_), "nchw")
    space = templates_for(workload, TARGET)[0].space(workload, TARGET)
    fits = [config for config in space if wanted.items() <= config.to_dict().items()]
    for config in random.Random(0).sample(fits, k=3):
        assert_right(built(workload, config), workload)


WIDE = layer(3, (7, 75), (3, 3), padding=((1, 1), (1, 2)))


@pytest.mark.parametrize(
    ("pass_", "wanted"),
    [
        ("fprop", {"unroll": "taps"}),
        ("fprop", {"unroll": "kw"}),
        ("wgrad", {"parallel": "channels"}),
        ("wgrad", {"parallel": "planes"}),
    ],
)
def test_a_bias_in_nchw(pass_: Pass, wanted: dict[str, object]) -> None:
    for shape in (WIDE, SHAPES["multiplier"]):
        workload = lying(dataclasses.replace(shape, pass_=pass_, bias=True), "nchw")
        space = templates_for(workload, TARGET)[0].space(workload, TARGET)
        config = next(config for config in space if wanted.items() <= config.to_dict().items())
        assert_right(built(workload, config), workload)


def test_what_the_nchw_templates_leave_to_the_others() -> None:
    for other in ({"stride": (1, 5)}, {"kernel": (1, 200)}):
        workload = lying(dataclasses.replace(layer(4, (9, 300), (3, 3)), **other), "nchw")  # type: ignore[arg-type]
        assert [template.layout for template in templates_for(workload, TARGET)] == ["nhwc"]


GOLDEN: dict[tuple[Pass, Layout], dict[str, int | str]] = {
    ("fprop", "nhwc"): {
        "block_h": 4, "tile_h": 1, "tile_w": 2, "vectors_c": 1, "order": "chw", "block_c": 32, "unroll": "taps",
    },
    ("dgrad", "nhwc"): {
        "block_h": 4, "tile_h": 2, "tile_w": 2, "vectors_c": 2, "order": "hwc", "block_c": 32, "unroll": "taps",
    },
    ("wgrad", "nhwc"): {
        "parallel": "images", "tasks": 4, "block_h": 4, "group_kh": 3, "tile_w": 2, "vectors_c": 1, "order": "hw",
        "unroll": "kw",
    },
    ("fprop", "nchw"): {
        "stage": "scratch", "planes": 2, "block_h": 4, "tile_h": 2, "vectors_w": 1, "unroll": "kw",
    },
    ("dgrad", "nchw"): {
        "stage": "none", "planes": 1, "block_h": 8, "tile_h": 2, "vectors_w": 1, "unroll": "taps",
    },
    ("wgrad", "nchw"): {
        "parallel": "channels", "stage": "none", "block_h": 8, "group_kh": 2, "group_kw": 3, "tile_h": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize(("pass_", "layout"), GOLDEN)
def test_golden(pass_: Pass, layout: Layout, golden: Golden) -> None:
    """The generated program of one configuration, as TVMScript. ``pytest --update-golden`` rewrites the files."""
    stride = (2, 2) if pass_ == "dgrad" else (1, 1)
    workload = lying(layer(32, (8, 8), (3, 3), padding=((1, 1), (1, 1)), stride=stride).for_pass(pass_), layout)
    found = templates_for(workload, TARGET)[0]
    space = found.space(workload, TARGET)
    threads = {"threads": 2} if any(knob.name == "threads" for knob in space.knobs) else {}
    config = space.check(GOLDEN[pass_, layout] | threads)
    script = Candidate(workload, config).schedule(TARGET).mod["main"].script()
    golden(Path(__file__).parent / "golden" / f"cpu_{pass_}_{layout}.py.txt", script + "\n")
