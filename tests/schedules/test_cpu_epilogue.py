"""Epilogues on the CPU: SiLU and its gradient, to some units in the last place for every z, in every template."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dwconv.measure.verify.cases import Case, judge_all, make_case
from dwconv.measure.verify.verify import verify
from dwconv.problems import epilogue
from dwconv.problems.reference import reference
from dwconv.problems.workload import LAYOUTS, DType, Epilogue, Layout, Workload
from tests.schedules.cpu_layers import SHAPES, built, layer, lying, run, some_configs

EPILOGUES: tuple[Epilogue, ...] = ("silu", "silu_gradient")
UNITS = 6
"""In the last place of float32, of |dy| · σ(z) · (1 + |z| · (1 − σ(z))) or |y|."""


def cases() -> Iterator[Any]:
    """Every shape, in epilogues, layouts and types that take turns. One in three is quick."""
    types: tuple[DType, ...] = ("float32", "bfloat16", "float16")
    for turn, shape in enumerate(SHAPES):
        for number, epilogue_ in enumerate(EPILOGUES):
            layout, dtype = LAYOUTS[(turn + number) % 2], types[(turn + 2 * number) % 3]
            marks = () if (turn + number) % 3 == 0 else pytest.mark.slow
            yield pytest.param(shape, epilogue_, layout, dtype, turn % 2 == 0, id=f"{shape}-{epilogue_}", marks=marks)


@pytest.mark.parametrize(("shape", "epilogue_", "layout", "dtype", "bias"), list(cases()))
def test_right_on_odd_shapes(shape: str, epilogue_: Epilogue, layout: Layout, dtype: DType, bias: bool) -> None:
    workload = dataclasses.replace(lying(SHAPES[shape], layout), bias=bias, dtype=dtype, epilogue=epilogue_)
    *_, config = some_configs(workload, 1)
    verdict = verify(built(workload, config), make_case(workload, data="integers", seed=1))
    assert verdict.right, verdict.reason


def sums() -> torch.Tensor:
    """z from −∞ to ∞, close together where exp changes, every power of two, NaN."""
    powers = 2.0 ** torch.arange(-149, 128, dtype=torch.float64)
    near = torch.linspace(-110, 110, 15_000, dtype=torch.float64)
    special = torch.tensor([0.0, math.inf, -math.inf, math.nan, -87.3, -88.0, -88.8, -103.9, -104.1, 88.8])
    return torch.cat([powers, -powers, near, special]).float()


@pytest.mark.parametrize(("epilogue_", "layout"), list(itertools.product(EPILOGUES, LAYOUTS)))
def test_close_for_every_sum(epilogue_: Epilogue, layout: Layout) -> None:
    z = sums()
    workload = dataclasses.replace(lying(layer(1, (1, len(z)), (1, 1), batch=1), layout), epilogue=epilogue_)
    x, dy = (each.view(1, 1, 1, -1) for each in (z, torch.where(torch.arange(len(z)) % 2 == 0, 3.0, -0.7)))
    inputs = [x, torch.ones(1, 1, 1, 1)] + [dy] * (epilogue_ == "silu_gradient")
    (result,) = run(built(workload, some_configs(workload, 0)[0]), workload, tuple(inputs))
    exact, gradient = z.double(), dy.flatten().double() if epilogue_ == "silu_gradient" else None
    expected = epilogue.apply(workload, exact, gradient)
    known = expected.isfinite()
    assert torch.equal(result.flatten().isnan(), expected.isnan())
    assert torch.equal(result.flatten()[~known & ~expected.isnan()], expected[~known & ~expected.isnan()].float())
    allowed = epilogue.allowed_error(workload, exact, gradient, of_z=0.0, rounding=2.0**-24 * UNITS / 8) + 2.0**-149
    error = (result.flatten().double() - expected).abs()
    assert (error <= allowed)[known].all(), f"{(error / allowed)[known].max():.2f} of what is allowed"


def wrong_answers(workload: Workload, case: Case) -> dict[str, torch.Tensor]:
    """What kernels with a fault would give."""
    plain = workload.with_epilogue("none")
    x, w, bias, *others = case.inputs
    dy = others[0] if others else None

    def after(z: torch.Tensor, gradient: torch.Tensor | None = dy) -> torch.Tensor:
        return epilogue.apply(workload, z, gradient).to(x.dtype)

    (z,) = reference(plain, x, w, bias)
    (without_bias,) = reference(plain, x, w, torch.zeros_like(bias))
    (flipped,) = reference(plain, x, w.flip(-1), bias)
    (without_a_tap,) = reference(plain, x, w * (torch.arange(w.shape[-1]) > 0), bias)
    found = {
        "nothing": z.to(x.dtype),
        "flipped taps": after(flipped),
        "one tap less": after(without_a_tap),
        "no bias": after(without_bias),
        "a hard sigmoid": (z * (z / 6 + 0.5).clamp(0, 1)).to(x.dtype),
    }
    if dy is not None:
        sigmoid = z.sigmoid()
        found |= {
            "σ alone": (dy * sigmoid).to(x.dtype),
            "σ′ in place of 1 − σ": (dy * sigmoid * (1 + z * sigmoid * (1 - sigmoid))).to(x.dtype),
            "its neighbour's dy": after(z, dy.roll(1, -1)),
            "another image's dy": after(z, dy.roll(1, 0)),
        }
    else:
        found["bias after it"] = (after(without_bias).double() + bias.view(-1, 1, 1)).to(x.dtype)
    return found


@pytest.mark.parametrize("taps", [4, 31])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("epilogue_", EPILOGUES)
def test_wrong_answers_are_found_on_whole_numbers(epilogue_: Epilogue, dtype: DType, taps: int) -> None:
    """What every candidate is verified on. Large sums would hide them: for those SiLU is z, or 0."""
    workload = layer(5, (1, 50), (1, taps), padding=((0, 0), (taps - 1, 0)), dtype=dtype, bias=True)
    workload = workload.with_epilogue(epilogue_)
    case = make_case(workload, data="integers", seed=3)
    assert judge_all((case.answers[0].expected.to(case.inputs[0].dtype),), case).right
    for fault, result in wrong_answers(workload, case).items():
        assert not judge_all((result,), case).right, fault
