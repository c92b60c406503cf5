"""A convolution and its LayerNorm as one on the CPU, and what wrong ones would give."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dwconv.errors import NoTemplate
from dwconv.measure.verify.cases import Case, judge_all, make_case
from dwconv.measure.verify.verify import verify
from dwconv.problems import block_reference
from dwconv.problems.block import Block
from dwconv.problems.reference import reference
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import BLOCK_PASSES, DTYPES, DType, Pass, Workload
from dwconv.schedules.cpu.layer_norm_nhwc.space import MOST_GRADIENT_BYTES
from dwconv.schedules.space import Config
from dwconv.schedules.template import templates_for
from tests.schedules.cpu_layers import TARGET, built, config_in_turn, layer, run, some_configs, template_of
from tests.schedules.test_cpu_block import LAYERS

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
    config = config_in_turn(workload, turn)
    kernel = built(workload, config)
    for data in ("normal", "extreme"):
        verdict = verify(kernel, make_case(workload, data=data, seed=1))  # type: ignore[arg-type]
        assert verdict.right, f"{config}: {verdict.reason}"


CUTS = {
    "whole images": (10, 10),
    "in strips": (10, 4),
    "blocks of a strip": (4, 4),
    "blocks of strips": (6, 2),
}  # fmt: skip
"""Rows of a task and of a strip. A block reads rows of the gradient that another counts, before its own and after."""


@pytest.mark.parametrize("rows", CUTS.values(), ids=CUTS)
def test_every_row_counts_once_however_images_are_cut(rows: tuple[int, int]) -> None:
    workload = block(STRIDED, "backward")
    space = template_of(workload).space(workload, TARGET)
    block_h, strip_h = rows
    default = {**dict(space.default.values), "tile_h": 2, "tile_w": 2, "unroll": "taps"}
    config = Config.of(space.template, **{**default, "block_h": block_h, "strip_h": strip_h})
    kernel = built(workload, Config.of(space.template, **dict(space.nearest(config).values)))
    assert (kernel.artifact.candidate.config.block_h, kernel.artifact.candidate.config.strip_h) == rows
    verdict = verify(kernel, make_case(workload, data="normal", seed=2))
    assert verdict.right, verdict.reason


def test_rows_that_meet_padding_alone_count_too() -> None:
    """No row of dx reads their gradient, and what the norm and the bias learn knows of them all the same."""
    workload = block(layer(12, (7, 6), (3, 3), padding=((4, 5), (4, 6)), bias=True), "backward")
    case = make_case(workload, data="normal")
    for config in some_configs(workload, 2):
        verdict = verify(built(workload, config), case)
        assert verdict.right, f"{config}: {verdict.reason}"


@pytest.mark.parametrize("pass_", BLOCK_PASSES)
def test_eps_counts(pass_: Pass) -> None:
    """It shows where it is about as large as a variance."""
    workload = block(LAYER, pass_, text="none,ln@0.25")
    case = make_case(workload, data="normal")
    for config in some_configs(workload, 1):
        verdict = verify(built(workload, config), case)
        assert verdict.right, verdict.reason


@pytest.mark.parametrize("pass_", BLOCK_PASSES)
def test_the_same_bits_on_any_number_of_threads(pass_: Pass) -> None:
    workload = block(dataclasses.replace(LAYER, batch=5), pass_)
    case, (config, *_) = make_case(workload, data="normal"), some_configs(workload, 0)
    kernel = built(workload, config)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(run(kernel, workload, case.inputs))
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(first, second) for first, second in zip(found[0], others, strict=True))


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


def stored(workload: Workload, name: str, value: torch.Tensor) -> torch.Tensor:
    return value.to(getattr(torch, workload.dtype_of(name)))


def of(
    workload: Workload, case: Case, *, changed: Workload | None = None, **others: torch.Tensor
) -> list[torch.Tensor]:
    """What a kernel gives that is given other tensors, or does another problem."""
    named = {**dict(zip(workload.inputs, case.inputs, strict=True)), **others}
    found = block_reference.results(changed or workload, *named.values(), convolve=lambda *given: reference(*given)[0])
    return [stored(workload, name, found[name].value) for name in workload.results]


def normalised(workload: Workload, case: Case, y: torch.Tensor, statistics_of: torch.Tensor) -> torch.Tensor:
    """z of y, with the statistics of the pixels of another image."""
    named = dict(zip(workload.inputs, case.inputs, strict=True))
    mean, variance = statistics_of.mean(1, keepdim=True), statistics_of.var(1, correction=0, keepdim=True)
    gamma, beta = (named[name].double().view(-1, 1, 1) for name in ("gamma2", "beta2"))
    return stored(workload, "z", gamma * (y - mean) / (variance + 1e-6).sqrt() + beta)


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_forward_passes_are_found(dtype: DType) -> None:
    workload = block(LAYER, "forward", dtype)
    case = make_case(workload, data="integers", seed=3)
    named = dict(zip(workload.inputs, case.inputs, strict=True))
    z, y = (
        stored(workload, name, answer.expected) for name, answer in zip(workload.results, case.answers, strict=True)
    )
    assert judge_all([z, y], case).right
    exact = y.double()
    lanes = torch.arange(LAYER.channels) < 16
    of_whole_vectors = exact[:, lanes]
    mean = exact.mean(1, keepdim=True)
    unbiased = mean + (exact - mean) * (LAYER.channels / (LAYER.channels - 1)) ** 0.5
    faults = {
        "another eps": of(workload, case, changed=dataclasses.replace(workload, block=Block.parse("none,ln@1.0"))),
        "statistics of the neighbouring pixel": [normalised(workload, case, exact, exact.roll(1, -1)), y],
        "statistics of the last vector left out": [normalised(workload, case, exact, of_whole_vectors), y],
        "channels of the last vector counted twice": [
            normalised(workload, case, exact, torch.cat([of_whole_vectors, exact[:, -16:]], 1)), y,
        ],
        "the unbiased variance": [normalised(workload, case, exact, unbiased), y],
        "a row of halo missing": of(workload, case, x=_without_its_last_row(named["x"])),
        "flipped taps": of(workload, case, w=named["w"].flip(-1)),
        "no bias": of(workload, case, bias=named["bias"] * 0),
        "γ of a neighbour": of(workload, case, gamma2=named["gamma2"].roll(1)),
        "no β": of(workload, case, beta2=named["beta2"] * 0),
        "y of another image": [z, y.roll(1, 0)],
    }  # fmt: skip
    for fault, results in faults.items():
        assert not judge_all(results, case).right, fault


def _without_its_last_row(x: torch.Tensor) -> torch.Tensor:
    changed = x.clone()
    changed[:, :, -1] = 0
    return changed


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_backward_passes_are_found(dtype: DType) -> None:
    workload = block(LAYER, "backward", dtype)
    case = make_case(workload, data="integers", seed=3)
    named = dict(zip(workload.inputs, case.inputs, strict=True))
    pairs = zip(workload.results, case.answers, strict=True)
    found = {name: stored(workload, name, answer.expected) for name, answer in pairs}
    assert judge_all(list(found.values()), case).right
    row = {name: named[name].clone() for name in ("dz", "x")}
    for image in row.values():
        image[:, :, -1] = 0
    last = torch.arange(LAYER.channels) < 16
    faults = {
        "a row of halo missing": [of(workload, case, dz=row["dz"])[0], *list(found.values())[1:]],
        "a row of x missing": of(workload, case, x=row["x"]),
        "statistics as constants": [found["dx"] + 0.03, *list(found.values())[1:]],
        "statistics of the neighbouring pixel": of(workload, case, y=named["y"].roll(1, -1)),
        "another image's dz": of(workload, case, dz=named["dz"].roll(1, 0)),
        "another eps": of(workload, case, changed=dataclasses.replace(workload, block=Block.parse("none,ln@1.0"))),
        "the last vector of γ left out": of(workload, case, gamma2=named["gamma2"] * last),
        **{
            f"{name} with a row counted twice": [
                given * 1.05 if name == other else given for other, given in found.items()
            ]
            for name in ("dw", "dbias", "dgamma2", "dbeta2")
        },
        "dγ and dβ exchanged": [*list(found.values())[:3], found["dbeta2"], found["dgamma2"]],
        "dγ of 16 bits": [*list(found.values())[:3], found["dgamma2"].bfloat16().float(), found["dbeta2"]],
    }
    for fault, results in faults.items():
        assert not judge_all(results, case).right, fault


def test_what_no_template_runs_says_why() -> None:
    workload = block(LAYER, "backward")
    with pytest.raises(NoTemplate, match="blocks have no channel multiplier"):
        templates_for(dataclasses.replace(workload, multiplier=2), TARGET)
    large = dataclasses.replace(workload, input_size=(1024, 1024))
    with pytest.raises(NoTemplate, match=f"more than the {MOST_GRADIENT_BYTES} of a thread"):
        templates_for(large, TARGET)
    assert [each.name for each in templates_for(workload, TARGET)] == ["cpu.layer_norm_backward_nhwc"]
    others = dataclasses.replace(workload, block=Block.parse("bn,bn"), bias=False)
    assert [each.name for each in templates_for(others, TARGET)] == ["cpu.block_backward_nhwc"]


@pytest.mark.parametrize("pass_", BLOCK_PASSES)
def test_the_estimate_knows_what_is_little_work(pass_: Pass) -> None:
    target = CpuTarget(device="test", threads=2, vector_bytes=32)
    small = block(layer(96, (14, 14), (7, 7), padding=((3, 3), (3, 3)), batch=8), pass_)
    large = dataclasses.replace(small, input_size=(56, 56))
    estimates = [
        template.estimate_us(workload, template.space(workload, target).default, target)  # type: ignore[misc]
        for workload in (small, large)
        for template in templates_for(workload, target)
    ]
    assert 8 * estimates[0] < estimates[1] < 64 * estimates[0]
