"""The CPU templates: right on odd shapes in every configuration, for any batch, with the same bits every time."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dwconv.errors import InvalidWorkload
from dwconv.kernels import build
from dwconv.measure.verify.cases import judge_all, make_case
from dwconv.problems import reference
from dwconv.problems.block import Block
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.workload import BLOCK_PASSES, LAYOUTS, PASSES, DType, Layout, Pass, Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, templates_for
from tests.schedules.cpu_layers import (
    SHAPES,
    TARGET,
    TARGETS,
    WAYS,
    WIDE,
    assert_right,
    built,
    layer,
    lying,
    run,
    some_configs,
    template_of,
)
from tests.schedules.volumes import VOLUMES
from tests.turns import every, in_turns, slow

ALL = SHAPES | {f"3-D, {name}": volume for name, volume in VOLUMES.items()}
TYPES: tuple[DType, ...] = ("float32", "bfloat16", "float32", "float16")


def cases() -> Iterator[Any]:
    """Every shape in every pass, every shape in every way, and every pass in every way, in types that take turns: the
    default, or another configuration with a bias where the pass knows one. One in eight is quick, and so are both of
    every template in every pass, on some shape."""
    for (turn, shape), (number, pass_), way in itertools.product(enumerate(ALL), enumerate(PASSES), WAYS):
        layout, template_layout = way
        at, dtype = turn + number + WAYS.index(way), TYPES[(turn + 2 * number + WAYS.index(way)) % len(TYPES)]
        is_quick, is_other = at % 8 in (0, 5), bool(at % 2)
        layer_ = dataclasses.replace(ALL[shape], bias=is_other, layout=layout, dtype=dtype)
        workload = layer_.for_pass(pass_)
        if template_layout not in [template.layout for template in templates_for(workload, TARGET)]:
            continue
        if is_quick or at % len(WAYS) == 0:
            label = f"{shape}-{pass_}-{layout} by {template_layout}-{dtype}-{'other' if is_other else 'default'}"
            marks = () if is_quick else pytest.mark.slow
            yield pytest.param(workload, template_layout, is_other, id=label, marks=marks)


@pytest.mark.parametrize(("workload", "template_layout", "is_other"), list(cases()))
def test_right_on_odd_shapes(workload: Workload, template_layout: Layout, is_other: bool) -> None:
    *_, config = some_configs(workload, int(is_other), layout=template_layout)
    assert_right(built(workload, config), workload)


@pytest.mark.parametrize(("pass_", "vector_bytes"), in_turns(PASSES, [16, 32]))
@pytest.mark.parametrize("layout", every(2, LAYOUTS))
def test_right_with_narrower_vectors(vector_bytes: int, pass_: Pass, layout: Layout) -> None:
    workload, target = lying(SHAPES["ragged channels"].for_pass(pass_), layout), TARGETS[vector_bytes]
    *_, config = some_configs(workload, int(vector_bytes == 32), target=target)
    assert_right(built(workload, config, target), workload)


@pytest.mark.parametrize(("layout", "number"), [("nhwc", 0), ("nchw", 1), slow("nhwc", 1)])
@pytest.mark.parametrize(
    ("shape", "pass_"), in_turns(["ragged channels", "asymmetric padding", "wide image", "large kernel"], PASSES)
)
def test_nan_and_infinity_propagate_to_the_results_they_contribute_to_alone(
    shape: str, pass_: Pass, layout: Layout, number: int
) -> None:
    """Not through padding, nor through lanes and rows beyond the end of a vector or a tile."""
    shapes = SHAPES | {"wide image": WIDE, "large kernel": layer(5, (9, 10), (7, 11), padding=((3, 3), (5, 5)))}
    workload = lying(shapes[shape].for_pass(pass_), layout)
    *_, config = some_configs(workload, number)
    kernel = built(workload, config)
    for seed, value in enumerate([math.inf, math.nan]):
        inputs = operands(workload, data="integers", seed=seed)
        for image, tensor in enumerate(inputs if pass_ == "wgrad" else inputs[:1]):
            *_, height, width = tensor.shape
            for channel, (row, column) in enumerate(itertools.product((0, height - 1), (0, width - 1))):
                tensor[image, channel % tensor.shape[1], row, column] = value
        (expected,) = reference.reference(workload, *inputs)
        (result,) = run(kernel, workload, inputs)
        assert torch.equal(result.isnan(), expected.isnan())
        assert torch.equal(result.nan_to_num(), expected.float().nan_to_num())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", ["fprop", "dgrad"])
def test_an_infinite_weight_meets_padding_only_beside_rows_of_nchw(pass_: Pass, layout: Layout) -> None:
    """Zeros lie there, and 0 · ∞ is NaN, as in PyTorch's own op without oneDNN; with it, as in NHWC."""
    workload = lying(SHAPES["ragged channels"].for_pass(pass_), layout)
    images, weights = operands(workload, data="integers", seed=1)
    images, channel = images + 4, 5  # no zeros: they would make NaNs of their own
    weights[channel, 0, 0, 0] = math.inf
    (expected,) = reference.reference(workload, images, weights)
    padded = torch.zeros_like(expected, dtype=torch.bool)
    if layout == "nchw":
        padded[:, channel, :, 0 if pass_ == "fprop" else -1] = True
    for config in some_configs(workload, 1):
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
def test_a_bias_gets_the_sums_of_its_own_planes(layout: Layout) -> None:
    workload = lying(dataclasses.replace(VOLUMES["3 by 3 by 3"], bias=True).for_pass("wgrad"), layout)
    kernel = built(workload, template_of(workload, layout).space(workload, TARGET).default)
    for batch in (1, 3):
        assert_right(kernel, workload.with_batch(batch))


def of_threads() -> Iterator[Workload]:
    images = dataclasses.replace(SHAPES["ragged channels"], bias=True)
    long = layer(5, (1, 1000), (1, 4), padding=((0, 0), (3, 0)), batch=1, bias=True)
    for shape, pass_, layout in itertools.product((images, long), PASSES, LAYOUTS):
        yield lying(shape.for_pass(pass_), layout)
    for pass_ in BLOCK_PASSES:
        yield dataclasses.replace(images, batch=5, pass_=pass_, block=Block.parse("none,ln"))


@pytest.mark.parametrize("workload", list(of_threads()), ids=lambda workload: workload.key)
def test_the_same_bits_whatever_the_number_of_threads(workload: Workload) -> None:
    """Of a long row in blocks of columns, which are parts of its sums."""
    space = template_of(workload, workload.layout).space(workload, TARGET)
    cut = {"block_w": 64, "parallel": "planes" if workload.layout == "nchw" else "images"} if workload.is_row else {}
    config = space.nearest(Config.of(space.template, **{**dict(space.default.values), **cut}))
    kernel, case = built(workload, config), make_case(workload, data="normal", seed=2)
    threads, runs = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3, 3):
            torch.set_num_threads(count)
            runs.append(run(kernel, workload, case.inputs))
    finally:
        torch.set_num_threads(threads)
    assert judge_all(tuple(runs[0]), case).right
    for first, *others in zip(*runs, strict=True):
        assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_sums_are_registers_not_memory_from_the_heap(pass_: Pass, layout: Layout) -> None:
    workload = lying(layer(32, (14, 14), (3, 3), padding=((1, 1), (1, 1)), bias=True).for_pass(pass_), layout)
    artifact = build(Candidate(workload, some_configs(workload, 0)[0]), TARGET)
    assert "load ptr, ptr @__TVMBackendAllocWorkspace" not in artifact.source


@pytest.mark.parametrize("pass_", ["fprop", slow("dgrad"), slow("wgrad")])
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


ROWS_APART: dict[Pass, dict[str, object]] = {"fprop": {"tile_h": 1}, "dgrad": {"tile_h": 1}, "wgrad": {"group_kh": 2}}


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
@settings(max_examples=20, deadline=None)
def test_whatever_the_space_holds_builds_and_is_right(workload: Workload, rng: random.Random) -> None:
    space = rng.choice(templates_for(workload, TARGET)).space(workload, TARGET)
    config = space.sample(rng)
    assert config is not None
    assert_right(built(workload, config), workload)
