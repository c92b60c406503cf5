"""bfloat16 and float16 on the CPU: every number is read exactly, sums are those of float32, and results are rounded
once, to the nearest, ties to even."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from dwconv.kernels import build
from dwconv.kernels.cpu_build import assembly
from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.verify import verify
from dwconv.problems.right_answers import right_answers
from dwconv.problems.target import ForcedVectorSet
from dwconv.problems.workload import LAYOUTS, PASSES, DType, Layout, Pass, Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from tests.schedules.cpu_layers import SHAPES, TARGET, built, layer, lying, run, some_configs, template_of
from tests.schedules.test_vector_sets import OTHERS, elsewhere
from tests.turns import alternating, every, slow

TYPES: tuple[DType, ...] = ("bfloat16", "float16")


def of_type(dtype: DType, workload: Workload) -> Workload:
    return dataclasses.replace(workload, dtype=dtype)


def all_numbers(dtype: DType) -> torch.Tensor:
    """All 65,536: subnormal, infinite and NaN, too."""
    return torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(getattr(torch, dtype))


def assert_same_numbers(result: torch.Tensor, expected: torch.Tensor) -> None:
    """NaN may be any, and zero of either sign: sums begin with zero."""
    known = ~expected.isnan()
    assert torch.equal(result.isnan(), ~known)
    assert torch.equal(result[known], expected[known])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("pass_", "layout"), alternating(["fprop", "dgrad"], LAYOUTS))
def test_every_product_is_rounded_once_to_the_nearest(pass_: Pass, layout: Layout, dtype: DType) -> None:
    """A product of two such numbers is exact in float32: 8 + 8 or 11 + 11 bits."""
    numbers = all_numbers(dtype)
    factors = torch.tensor([1.0, -1.0, 0.37, 3.0, 1.0 / 3, 2.0**-7, 2.0**9, 257 / 256], dtype=numbers.dtype)
    workload = of_type(dtype, lying(layer(len(factors), (256, 256), (1, 1), batch=1).for_pass(pass_), layout))
    images = numbers.view(1, 1, 256, 256).expand(1, len(factors), 256, 256)
    if layout == "nhwc":
        images = images.contiguous(memory_format=torch.channels_last)
    expected = (images.float() * factors.float().view(1, -1, 1, 1)).to(numbers.dtype)
    for config in some_configs(workload, 1):
        (result,) = run(built(workload, config), workload, (images.contiguous(), factors.view(-1, 1, 1, 1)))
        assert_same_numbers(result, expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_gradient_of_a_weight_is_rounded_once_to_the_nearest(layout: Layout, dtype: DType) -> None:
    """One product a channel, all numbers in x times one that is not a power of two."""
    numbers = all_numbers(dtype)
    workload = lying(layer(len(numbers), (1, 1), (1, 1), batch=1), layout)
    workload = of_type(dtype, dataclasses.replace(workload, bias=True).for_pass("wgrad"))
    x, dy = numbers.view(1, -1, 1, 1), torch.full((1, len(numbers), 1, 1), 1 / 3, dtype=numbers.dtype)
    dw, dbias = run(built(workload, some_configs(workload, 0)[0]), workload, (x, dy))
    assert_same_numbers(dw.flatten(), (x.float() * dy.float()).to(numbers.dtype).flatten())
    assert torch.equal(dbias, dy.flatten())


@pytest.mark.parametrize("dtype", every(2, TYPES))
@pytest.mark.parametrize(("pass_", "layout"), alternating(PASSES, LAYOUTS))
def test_rounding_is_that_of_the_sum_and_not_of_its_terms(pass_: Pass, layout: Layout, dtype: DType) -> None:
    """Beyond 2,048 each of many small numbers is lost, or rounded, beside what they come to. A weight's gradient has
    them even if the kernel, and the program, is small."""
    kernel = (2, 3) if pass_ == "wgrad" else (17, 18)
    workload = of_type(dtype, lying(layer(5, (40, 40), kernel, batch=3).for_pass(pass_), layout))
    inputs = [torch.full(workload.shape_of(name), 3, dtype=getattr(torch, dtype)) for name in workload.inputs]
    (answer,) = right_answers(workload, *inputs)
    assert float(answer.expected.double().max()) > 2048
    for config in some_configs(workload, 1):
        (result,) = run(built(workload, config), workload, tuple(inputs))
        assert torch.equal(result, answer.expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("layout", "parallel"), [("nchw", "planes"), ("nchw", "channels"), ("nhwc", "images")])
def test_what_images_give_is_rounded_once_for_all_of_them(layout: Layout, parallel: str, dtype: DType) -> None:
    """Beside what the first image gives, what each of the others adds would be lost."""
    workload = of_type(dtype, lying(layer(4, (64, 64), (1, 1), batch=41, bias=True).for_pass("wgrad"), layout))
    x, dy = (torch.zeros(workload.shape_of(name), dtype=getattr(torch, dtype)) for name in workload.inputs)
    x[:], dy[0], dy[1:, :, 0, 0] = 1, 1, 1
    space = template_of(workload).space(workload, TARGET)
    config = space.nearest(Config.of(template_of(workload).name, **{**space.default.to_dict(), "parallel": parallel}))
    assert config.parallel == parallel
    for result in run(built(workload, config), workload, (x, dy)):
        assert torch.equal(result.flatten(), torch.full((4,), 4096 + 40, dtype=x.dtype))


@pytest.mark.parametrize(
    ("width", "dtype"),
    [
        (width, TYPES[width % 2]) if width in (5, 14, 17, 31) else slow(width, TYPES[width % 2])
        for width in (*range(1, 18), *range(19, 32, 2), 32, 33)
    ],
)
def test_a_row_of_any_width_touches_nothing_behind_it(width: int, dtype: DType) -> None:
    """Rows of NCHW end within a vector, in every number of lanes that there is, whether they have a stride or not.
    Guard bands lie around every tensor."""
    for pass_, stage in (("fprop", "none"), ("dgrad", "scratch")):
        workload = layer(3, (4, width), (1, 3), padding=((0, 0), (1, 1)), stride=(1, 1 + width % 2))
        workload = of_type(dtype, lying(workload.for_pass(pass_), "nchw"))
        space = template_of(workload, "nchw").space(workload, TARGET)
        config = space.nearest(Config.of(space.template, **{**dict(space.default.values), "stage": stage}))
        kernel = built(workload, config)
        assert (verdict := verify(kernel, make_case(workload, data="normal"))).right, verdict.reason


@pytest.mark.parametrize("dtype", every(2, TYPES[::-1]))
@pytest.mark.parametrize(("pass_", "layout"), alternating(PASSES, LAYOUTS))
def test_extreme_numbers(pass_: Pass, layout: Layout, dtype: DType) -> None:
    """Overflow to infinity, subnormal results, and NaN and infinity in the inputs."""
    workload = of_type(dtype, lying(SHAPES["ragged channels"].for_pass(pass_), layout))
    case = make_case(workload, data="extreme", seed=3)
    for config in some_configs(workload, 1):
        assert (verdict := verify(built(workload, config), case)).right, verdict.reason


WIDENED: dict[tuple[ForcedVectorSet, DType], str] = {
    ("avx512", "bfloat16"): r"vpmovzxwd\s.*zmm",
    ("avx512", "float16"): r"vcvtph2ps\s.*zmm",
    ("avx2", "bfloat16"): r"vpmovzxwd\s.*ymm",
    ("avx2", "float16"): r"vcvtph2ps\s.*ymm",
    ("neon", "bfloat16"): r"u?shll2?\s+v\d+\.4s",
    ("neon", "float16"): r"fcvtl2?\s+v\d+\.4s",
}
"""Instructions that read a whole vector of numbers."""


@pytest.mark.parametrize(
    ("vector_set", "dtype", "pass_", "layout"),
    [
        (*of, *lies) if (number + turn) % 3 == 0 else slow(*of, *lies)
        for number, of in enumerate(WIDENED)
        for turn, lies in enumerate([("fprop", "nhwc"), ("dgrad", "nchw"), ("wgrad", "nhwc")])
    ],
)
def test_every_vector_set_widens_whole_vectors(
    pass_: Pass, layout: Layout, vector_set: ForcedVectorSet, dtype: DType
) -> None:
    target = elsewhere(vector_set)
    workload = of_type(dtype, lying(layer(64, (12, 16), (3, 3), padding=((1, 1), (1, 1))).for_pass(pass_), layout))
    code = assembly(build(Candidate(workload, some_configs(workload, 0, target=target)[0]), target))
    assert re.search(WIDENED[vector_set, dtype], code) and not re.search(OTHERS[vector_set], code)
    assert not re.search(r"(?:call|bl)q?\s+_*(?:extend|trunc)", code), "numbers are converted by a function"
