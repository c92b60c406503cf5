"""A convolution and its LayerNorm as one on the CPU, and what wrong ones would give."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dwconv.measure.verify.cases import make_case
from dwconv.measure.verify.verify import verify
from dwconv.problems.block import Block
from dwconv.problems.workload import BLOCK_PASSES, DTYPES, DType, Pass, Workload
from dwconv.schedules.space import Config
from tests.schedules.cpu_layers import (
    TARGET,
    assert_verified,
    built,
    config_in_turn,
    layer,
    run,
    some_configs,
    template_of,
)
from tests.schedules.test_cpu_block import LAYERS
from tests.turns import every

LAYER = layer(20, (9, 11), (3, 3), padding=((1, 1), (1, 1)), bias=True)
STRIDED = layer(24, (10, 11), (5, 3), padding=((2, 2), (1, 1)), stride=(2, 2), bias=True)


def block(workload: Workload, pass_: Pass, dtype: DType = "float32", text: str = "none,ln@1e-06") -> Workload:
    return dataclasses.replace(workload, pass_=pass_, block=Block.parse(text), dtype=dtype)


def cases() -> Iterator[Any]:
    """Every layer and pass, in turns in float32 and in 16 bits, with the default and with another configuration, with
    a bias and without one. A third is quick, and an eighth in both types."""
    for turn, (name, workload) in enumerate(LAYERS.items()):
        for number, pass_ in enumerate(BLOCK_PASSES):
            for at, (dtype, step) in enumerate((("float32", 3), (DTYPES[1 + turn % 2], 8))):
                case = dataclasses.replace(block(workload, pass_, dtype), bias=turn % 4 < 2)  # type: ignore[arg-type]
                marks = () if (turn + number) % step == 0 else pytest.mark.slow
                if not marks or (turn + number) % 2 == at:
                    yield pytest.param(case, turn // 2 + number, id=f"{name}-{pass_}-{dtype}", marks=marks)


@pytest.mark.parametrize(("workload", "turn"), list(cases()))
def test_right_on_odd_shapes(workload: Workload, turn: int) -> None:
    assert_verified(workload, config_in_turn(workload, turn))


CUTS = {
    "whole images": (10, 10),
    "in strips": (10, 4),
    "blocks of a strip": (4, 4),
    "blocks of strips": (6, 2),
}  # fmt: skip
"""Rows of a task and of a strip. A block reads rows of the gradient that another counts, before its own and after."""


@pytest.mark.parametrize("cut", every(4, list(CUTS)))
def test_every_row_counts_once_however_images_are_cut(cut: str) -> None:
    workload = block(STRIDED, "backward")
    space = template_of(workload).space(workload, TARGET)
    block_h, strip_h = CUTS[cut]
    default = {**dict(space.default.values), "tile_h": 2, "tile_w": 2, "unroll": "taps"}
    config = Config.of(space.template, **{**default, "block_h": block_h, "strip_h": strip_h})
    kernel = built(workload, Config.of(space.template, **dict(space.nearest(config).values)))
    assert (kernel.artifact.candidate.config.block_h, kernel.artifact.candidate.config.strip_h) == CUTS[cut]
    verdict = verify(kernel, make_case(workload, data="normal", seed=2))
    assert verdict.right, verdict.reason


@pytest.mark.slow
def test_rows_that_meet_padding_alone_count_too() -> None:
    """No row of dx reads their gradient, and what the norm and the bias learn knows of them all the same."""
    workload = block(layer(12, (7, 6), (3, 3), padding=((4, 5), (4, 6)), bias=True), "backward")
    case = make_case(workload, data="normal")
    for config in some_configs(workload, 2):
        verdict = verify(built(workload, config), case)
        assert verdict.right, f"{config}: {verdict.reason}"


@pytest.mark.parametrize("pass_", every(2, BLOCK_PASSES))
def test_eps_counts(pass_: Pass) -> None:
    """It shows where it is about as large as a variance."""
    workload = block(LAYER, pass_, text="none,ln@0.25")
    case = make_case(workload, data="normal")
    for config in some_configs(workload, 1):
        verdict = verify(built(workload, config), case)
        assert verdict.right, verdict.reason


@pytest.mark.parametrize("pass_", BLOCK_PASSES)
def test_a_mean_far_from_zero_costs_no_digits(pass_: Pass) -> None:
    """E[y²] − E[y]² of numbers near 1000 would leave none of a variance of 1."""
    workload = block(layer(40, (9, 8), (1, 1)), pass_)
    inputs = dict(zip(workload.inputs, make_case(workload, data="normal").inputs, strict=True))
    image = "x" if pass_ == "forward" else "y"
    inputs[image] = inputs[image] + 1000.0
    inputs["w"] = torch.ones_like(inputs["w"])
    found = run(built(workload, some_configs(workload, 0)[0]), workload, tuple(inputs.values()))
    y = inputs[image]
    exact = y.double().var(1, correction=0)
    naive = ((y * y).mean(1) - y.mean(1) ** 2).double()
    assert float((naive / exact - 1).abs().max()) > 0.01
    y, gamma = (each.double().requires_grad_() for each in (y, inputs["gamma2"]))
    z = F.layer_norm(y.movedim(1, -1), (40,), gamma, torch.zeros(40).double(), 1e-6).movedim(-1, 1)
    if pass_ == "forward":
        assert torch.allclose(found[0].double() - inputs["beta2"].view(-1, 1, 1), z, atol=1e-3)
        return
    g, dgamma = torch.autograd.grad(z, [y, gamma], inputs["dz"].double())
    assert torch.allclose(found[0].double(), g, atol=1e-3)
    assert torch.allclose(found[workload.results.index("dgamma2")].double(), dgamma, atol=1e-2)
