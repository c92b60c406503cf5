"""What kernels of blocks with a fault would give is found, on the data that every candidate is verified on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

from dwconv.measure.verify.cases import Case, judge_all, make_case
from dwconv.problems import block_reference
from dwconv.problems.block import Block
from dwconv.problems.reference import reference
from dwconv.problems.workload import DTYPES, DType, Pass, Workload
from tests.schedules.cpu_layers import layer

FROZEN = "frozen+relu6,frozen+relu6"
OF_IMAGES = "in+relu6,in+hardswish"
LAYER = layer(20, (9, 11), (3, 3), padding=((1, 1), (1, 1)))
Named = dict[str, torch.Tensor]
Change = Callable[[Named, Named], Any]
"""From the inputs and the right results to a tensor in the place of one of either; or to a block."""


def stored(workload: Workload, name: str, value: torch.Tensor) -> torch.Tensor:
    return value.to(getattr(torch, workload.dtype_of(name)))


def results_of(workload: Workload, named: Named) -> Named:
    """What a right kernel gives."""
    found = block_reference.results(workload, *named.values(), convolve=lambda *given: reference(*given)[0])
    return {name: stored(workload, name, found[name].value) for name in workload.results}


def faulty(workload: Workload, case: Case, right: Named, fault: dict[str, Change]) -> list[torch.Tensor]:
    named = dict(zip(workload.inputs, case.inputs, strict=True))
    changed = {name: change(named, right) for name, change in fault.items()}
    problem = dataclasses.replace(workload, **{name: changed[name] for name in ("block",) if name in changed})
    inputs = {name: changed.get(name, tensor) for name, tensor in named.items()}
    found = right if changed.keys() <= right.keys() else results_of(problem, inputs)
    return [changed.get(name, tensor) for name, tensor in found.items()]


def given(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Change]:
    """An input that is another."""
    return {name: lambda named, _: change(named[name])}


def result(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Change]:
    """A result that is another, the others being right."""
    return {name: lambda _, right: change(right[name])}


def exchanged(one: str, other: str) -> dict[str, Change]:
    return {one: lambda _, right: right[other], other: lambda _, right: right[one]}


def block(text: str) -> dict[str, Change]:
    return {"block": lambda *_: Block.parse(text)}


def without_last_row(image: torch.Tensor) -> torch.Tensor:
    changed = image.clone()
    changed[:, :, -1] = 0
    return changed


def of_16_bits(value: torch.Tensor) -> torch.Tensor:
    return value.bfloat16().float()


def unbiased(variance: torch.Tensor) -> torch.Tensor:
    count = 2 * 9 * 11
    return variance * count / (count - 1)


def normalised(statistics_of: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Change]:
    """z with the statistics of other channels, or of another pixel."""

    def z(named: Named, right: Named) -> torch.Tensor:
        y, seen = right["y"].double(), statistics_of(right["y"].double())
        mean, deviation = seen.mean(1, keepdim=True), (seen.var(1, correction=0, keepdim=True) + 1e-6).sqrt()
        gamma, beta = (named[name].double().view(-1, 1, 1) for name in ("gamma2", "beta2"))
        return (gamma * (y - mean) / deviation + beta).to(right["z"].dtype)

    return {"z": z}


def normalised_padding(named: Named, right: Named) -> torch.Tensor:
    """z where zeros are put around x, before the norm, as a kernel that pads too early has it."""
    wider = layer(20, (11, 13), (3, 3), pass_="inference", block=Block.parse(INFERENCE))
    wide = {name: pad(each, (1,) * 4) if name == "x" else each for name, each in named.items()}
    return results_of(dataclasses.replace(wider, dtype=str(named["x"].dtype).partition(".")[2]), wide)["z"]


def normalised_over_the_batch(named: Named, right: Named) -> torch.Tensor:
    """z of BatchNorms."""
    dtype: Any = str(named["x"].dtype).partition(".")[2]
    return results_of(dataclasses.replace(LAYER, pass_="forward", block=Block.parse(FORWARD), dtype=dtype), named)["z"]


FORWARD, INFERENCE = "bn+relu6,bn+hardswish", "bn@0.1+relu6,bn@0.2+hardswish"
CONVOLUTION = {
    "flipped taps": given("w", lambda w: w.flip(-1)),
    "a tap less": given("w", lambda w: w * (torch.arange(w.shape[-1]) > 0)),
}
FAULTS: dict[tuple[Pass, str], dict[str, dict[str, Change]]] = {
    ("forward", FORWARD): {
        **CONVOLUTION,
        "another eps": block("bn@1.0+relu6,bn+hardswish"),
        "the unbiased variance": result("var2", unbiased),
        "γ of a neighbour": given("gamma1", lambda gamma: gamma.roll(1)),
        "no β": given("beta1", torch.zeros_like),
        "no second activation": block("bn+relu6,bn"),
        "a row of halo missing": result("z", without_last_row),
        "statistics of 16 bits": result("var2", of_16_bits),
    },
    ("backward", FORWARD): {
        "statistics as constants": result("dx", lambda dx: dx + 0.03),
        "another image's dz": given("dz", lambda dz: dz.roll(1, 0)),
        "mean of the other norm": {"mean2": lambda named, _: named["mean1"]},
        "the derivative of another activation": block("bn+silu,bn+hardswish"),
        "dw of x, not of its activation": given("x", lambda x: x * 1.01),
        "dγ and dβ exchanged": exchanged("dgamma1", "dbeta1"),
        "β left out": given("beta1", torch.zeros_like),
        "dγ of 16 bits": result("dgamma1", of_16_bits),
    },
    ("inference", INFERENCE): {
        **CONVOLUTION,
        "no eps": block("bn@1e-09+relu6,bn@0.2+hardswish"),
        "no second eps": block("bn@0.1+relu6,bn@1e-09+hardswish"),
        "mean of a neighbour": given("mean2", lambda mean: mean.roll(1)),
        "variance of a neighbour": given("var2", lambda variance: variance.roll(1)),
        "the mean of the batch": {"mean1": lambda named, _: named["x"].double().mean((0, 2, 3)).float()},
        "γ of the other norm": {"gamma1": lambda named, _: named["gamma2"]},
        "no β": given("beta2", torch.zeros_like),
        "no first activation": block("bn@0.1,bn@0.2+hardswish"),
        "no second activation": block("bn@0.1+relu6,bn@0.2"),
        "a row of halo missing": result("z", without_last_row),
        "padding that is normalised": {"z": normalised_padding},
    },
    ("forward", FROZEN): {
        **CONVOLUTION,
        "the mean of the batch": {"mean1": lambda named, _: named["x"].double().mean((0, 2, 3)).float()},
        "mean of a neighbour": given("mean2", lambda mean: mean.roll(1)),
        "γ of the other norm": {"gamma1": lambda named, _: named["gamma2"]},
        "no second activation": block("frozen+relu6,frozen"),
        "a row of halo missing": result("z", without_last_row),
    },
    ("backward", FROZEN): {
        "the scale of the other norm": {"gamma2": lambda named, _: named["gamma1"]},
        "no scale": result("dw", lambda dw: dw * 1.2),
        "no mean in dγ": given("mean2", torch.zeros_like),
        "another image's dz": given("dz", lambda dz: dz.roll(1, 0)),
        "another image's z": given("z", lambda z: z.roll(1, 0)),
        "a row of halo missing": given("dz", without_last_row),
        "the derivative of another activation": block("frozen+silu,frozen+relu6"),
        "rows of the halo counted twice": result("dbeta2", lambda value: value * 1.05),
        "dγ and dβ exchanged": exchanged("dgamma2", "dbeta2"),
        "those of the first exchanged": exchanged("dgamma1", "dbeta1"),
    },
    ("forward", OF_IMAGES): {
        **CONVOLUTION,
        "the statistics of the batch": {"z": normalised_over_the_batch},
        "another eps": block("in@1.0+relu6,in+hardswish"),
        "γ of a neighbour": given("gamma1", lambda gamma: gamma.roll(1)),
        "no second activation": block("in+relu6,in"),
        "a row of halo missing": result("z", without_last_row),
        "y of another image": result("y", lambda y: y.roll(1, 0)),
    },
    ("backward", OF_IMAGES): {
        "statistics as constants": result("dx", lambda dx: dx + 0.03),
        "another image's dz": given("dz", lambda dz: dz.roll(1, 0)),
        "another image's y": given("y", lambda y: y.roll(1, 0)),
        "the derivative of another activation": block("in+silu,in+hardswish"),
        "β left out": given("beta1", torch.zeros_like),
        **{
            f"{name} of an image alone": result(name, lambda value: value / 2)
            for name in ("dw", "dgamma1", "dbeta1", "dgamma2", "dbeta2")
        },
        "dγ and dβ exchanged": exchanged("dgamma1", "dbeta1"),
        "dγ of 16 bits": result("dgamma1", of_16_bits),
    },
    ("forward", "none,ln@1e-06"): {
        **CONVOLUTION,
        "another eps": block("none,ln@1.0"),
        "statistics of the neighbouring pixel": normalised(lambda y: y.roll(1, -1)),
        "statistics of the last vector left out": normalised(lambda y: y[:, :16]),
        "channels of the last vector counted twice": normalised(lambda y: torch.cat([y[:, :16], y[:, -16:]], 1)),
        "a row of halo missing": given("x", without_last_row),
        "no bias": given("bias", torch.zeros_like),
        "γ of a neighbour": given("gamma2", lambda gamma: gamma.roll(1)),
        "no β": given("beta2", torch.zeros_like),
        "y of another image": result("y", lambda y: y.roll(1, 0)),
    },
    ("backward", "none,ln@1e-06"): {
        "a row of halo missing": given("dz", without_last_row),
        "a row of x missing": given("x", without_last_row),
        "statistics as constants": result("dx", lambda dx: dx + 0.03),
        "statistics of the neighbouring pixel": given("y", lambda y: y.roll(1, -1)),
        "another image's dz": given("dz", lambda dz: dz.roll(1, 0)),
        "another eps": block("none,ln@1.0"),
        "the last vector of γ left out": given("gamma2", lambda gamma: gamma * (torch.arange(20) < 16)),
        **{
            f"{name} with a row counted twice": result(name, lambda value: value * 1.05)
            for name in ("dw", "dbias", "dgamma2", "dbeta2")
        },
        "dγ and dβ exchanged": exchanged("dgamma2", "dbeta2"),
        "dγ of 16 bits": result("dgamma2", of_16_bits),
    },
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("pass_", "text"), FAULTS, ids=str)
def test_wrong_results_are_found(pass_: Pass, text: str, dtype: DType) -> None:
    known = Block.parse(text)
    workload = dataclasses.replace(LAYER, pass_=pass_, block=known, dtype=dtype, bias=known.layer_norm is not None)
    case = make_case(workload, data="integers", seed=3)
    pairs = zip(workload.results, case.answers, strict=True)
    right = {name: stored(workload, name, answer.expected) for name, answer in pairs}
    assert judge_all(list(right.values()), case).right
    for name, fault in FAULTS[pass_, text].items():
        assert not judge_all(faulty(workload, case, right, fault), case).right, name


def test_nan_in_x_goes_no_further_than_the_taps() -> None:
    """Statistics are given, so that no other pixel has a part in it: what is around stays right."""
    workload = dataclasses.replace(LAYER, pass_="inference", block=Block.parse(FORWARD))
    case = make_case(workload, data="extreme", seed=1)
    (z,) = (stored(workload, "z", answer.expected) for answer in case.answers)
    assert z.isnan().any() and judge_all([z], case).right
    spread = z.clone()
    spread[z.isnan().any((0, 2, 3)).view(1, -1, 1, 1).expand_as(spread)] = float("nan")
    assert not judge_all([spread], case).right
