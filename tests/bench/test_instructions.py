"""The goals of CUDA templates, on costs that are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench.instructions import Regime, regimes
from tests.planted_records import workload_of

WORKLOAD = workload_of(shape=(64, 96, 56, 56), kernel=(7, 7), padding=3, layout="nchw", dtype="float16")


def cost(*, tensor: float) -> Any:
    """10 µs, with nothing to complain of."""
    return SimpleNamespace(
        microseconds=10.0,
        issued_per_output={"fma": 1.0, "tensor": tensor},
        slowest=SimpleNamespace(bytes_in_flight_per_sm=100_000),
        kernels=(),
    )


@pytest.mark.parametrize(
    ("tensor", "others_us", "missed"), [(2.0, 29.0, ["gain <3.0 (2.9)"]), (2.0, 30.0, []), (0.0, 29.0, [])]
)
def test_tensor_cores_have_to_gain_over_the_others(tensor: float, others_us: float, missed: list[str]) -> None:
    assert Regime(workload=WORKLOAD, least_gain=3.0).missed(cost(tensor=tensor), others_us=others_us) == missed


def test_wide_kernels_of_every_pass_have_a_gain_to_reach() -> None:
    wanted = {(each.workload.pass_, each.workload.kernel[0]): each.least_gain for each in regimes() if each.least_gain}
    assert wanted == {
        **{(pass_, kernel): gain for pass_ in ("fprop", "dgrad") for kernel, gain in ((7, 1.5), (13, 4.0), (31, 6.0))},
        **{("wgrad", kernel): 3.0 for kernel in (13, 31)},
    }
