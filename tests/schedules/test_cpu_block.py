"""Blocks on the CPU: norm, activation, convolution, norm, activation as one, and what wrong ones would give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from dwconv.errors import NoTemplate
from dwconv.measure.verify.cases import Case, judge_all, make_case
from dwconv.measure.verify.verify import verify
from dwconv.problems import block_reference
from dwconv.problems.block import ACTIVATIONS, Activation, Block, Norm
from dwconv.problems.reference import reference
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import BLOCK_PASSES, DTYPES, EVAL_PASSES, DType, Pass, Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import templates_for
from tests.schedules.cpu_layers import TARGET, TARGETS, built, config_in_turn, layer, run, some_configs, template_of

LAYERS = {
    "ragged channels": layer(20, (9, 11), (3, 3), padding=((1, 1), (1, 1))),
    "one channel": layer(1, (7, 7), (3, 3), padding=((1, 1), (1, 1)), batch=3),
    "stride": layer(24, (10, 11), (3, 3), padding=((1, 1), (1, 1)), stride=(2, 2)),
    "asymmetric padding": layer(16, (10, 13), (3, 5), padding=((0, 2), (3, 1)), stride=(2, 1)),
    "dilation": layer(17, (11, 9), (5, 3), padding=((4, 4), (2, 2)), dilation=(2, 2)),
    "7 by 7": layer(18, (8, 7), (7, 7), padding=((3, 3), (3, 3)), batch=1),
    "stride beyond the kernel": layer(8, (13, 14), (1, 2), stride=(4, 3)),
    "1-D": layer(12, (1, 30), (1, 5), padding=((0, 0), (4, 0))),
}
BLOCKS = (
    "bn+relu6,bn+relu6", "bn@0.001+hardswish,bn@0.01+silu", "bn+silu,bn", "none,bn+relu", "bn+gelu,none",
    "bn,bn+gelu", "relu,bn+hardswish", "bn+relu,bn+relu",
)  # fmt: skip

EVERY_PASS = (*BLOCK_PASSES, *EVAL_PASSES)


def block(workload: Workload, pass_: Pass, text: str, dtype: DType = "float32") -> Workload:
    return dataclasses.replace(workload, pass_=pass_, block=Block.parse(text), dtype=dtype)


def cases() -> Iterator[Any]:
    """Every layer and pass, in turns in float32 and in one of the types of 16 bits, with blocks and configurations that
    take turns, too. A third is quick, and a sixth of them in both types."""
    for turn, (name, workload) in enumerate(LAYERS.items()):
        for number, pass_ in enumerate(EVERY_PASS):
            narrow = DTYPES[1 + (turn + number) // 3 % 2]
            for at, (dtype, step) in enumerate((("float32", 3), (narrow, 6))):
                text = BLOCKS[(turn + 2 * number + at) % len(BLOCKS)]
                marks = () if (turn + number) % step == 0 else pytest.mark.slow
                if not marks or (turn + number) % 2 == at:
                    case = block(workload, pass_, text, dtype)  # type: ignore[arg-type]
                    yield pytest.param(case, turn // 2 + number, id=f"{name}-{pass_}-{text}-{dtype}", marks=marks)


@pytest.mark.parametrize(("workload", "turn"), list(cases()))
def test_right_on_odd_shapes(workload: Workload, turn: int) -> None:
    config = config_in_turn(workload, turn)
    kernel = built(workload, config)
    for data in ("normal", "extreme"):
        verdict = verify(kernel, make_case(workload, data=data, seed=1))  # type: ignore[arg-type]
        assert verdict.right, f"{config}: {verdict.reason}"


@pytest.mark.parametrize("pass_", EVERY_PASS)
def test_the_same_bits_whatever_the_blocks_of_channels(pass_: Pass) -> None:
    """Sums are taken in the same order. Blocks of rows are parts of sums, and change it."""
    workload = block(LAYERS["stride"], pass_, "bn+relu6,bn+relu6")
    target = TARGETS[32]
    space = template_of(workload, target=target).space(workload, target)
    default = dict(space.default.values)
    case = make_case(workload, data="normal")
    found = []
    for block_c in (8, 24):
        config = Config.of(space.template, **{**default, "block_c": block_c, "tile_w": 2})
        assert space.why_illegal(config) is None
        found.append(run(built(workload, config, target), workload, case.inputs))
    assert all(torch.equal(first, second) for first, second in zip(*found, strict=True))


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    """E[x²] − E[x]² of numbers near 1000 would leave none of a variance of 1."""
    workload = block(layer(8, (40, 41), (3, 3), padding=((1, 1), (1, 1))), "forward", "bn+relu,bn")
    x, *others = make_case(workload, data="normal").inputs
    x = x + 1000.0
    named = dict(
        zip(workload.results, run(built(workload, some_configs(workload, 0)[0]), workload, (x, *others)), strict=True)
    )
    variance = x.double().var((0, 2, 3), correction=0)
    assert torch.allclose(named["var1"].double(), variance, rtol=2e-5)
    naive = (x * x).mean((0, 2, 3)) - x.mean((0, 2, 3)) ** 2
    assert not torch.allclose(naive.double(), variance, rtol=2e-5)


def values() -> torch.Tensor:
    powers = 2.0 ** torch.arange(-60, 60, dtype=torch.float64)
    return torch.cat([powers, -powers, torch.linspace(-12, 12, 8001, dtype=torch.float64), torch.zeros(1)]).float()


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_activations_are_right_for_every_value(act: Activation) -> None:
    """y = act(x) by a kernel of one tap without norms, and dx = act′(x)."""
    z = values()
    workload = layer(1, (1, len(z)), (1, 1), batch=1)
    one, inputs = torch.ones(1, 1, 1, 1), z.view(1, 1, 1, -1)
    kind, exact = block_reference.KINDS[act], z.double()
    forward = block(workload, "forward", f"{act},none" if act != "identity" else "none,none")
    (y,) = run(built(forward, some_configs(forward, 0)[0]), forward, (inputs, one))
    assert (
        (y.flatten() - kind.apply(exact)).abs()
        <= 5e-7 * (kind.apply(exact).abs() + exact.abs() * (act == "gelu")) + 1e-37
    ).all()
    backward = dataclasses.replace(forward, pass_="backward")
    dx, _ = run(built(backward, some_configs(backward, 0)[0]), backward, (torch.ones_like(inputs), inputs, one))
    assert ((dx.flatten() - kind.derivative(exact)).abs() <= 1e-6).all()
    mine = exact.clone().requires_grad_()
    kind.apply(mine).sum().backward()
    smooth = torch.stack([exact != at for at, _ in kind.kinks] or [exact == exact]).all(0)
    difference = (kind.derivative(exact) - mine.grad)[smooth]
    assert (difference.abs() <= 1e-12).all(), "the reference is PyTorch's; at kinks that differs between versions"


def stored(workload: Workload, name: str, value: torch.Tensor) -> torch.Tensor:
    return value.to(getattr(torch, workload.dtype_of(name)))


def wrong_forward(workload: Workload, case: Case) -> dict[str, Callable[[], list[torch.Tensor]]]:
    """The results of kernels with a fault."""
    x, w, *norms = case.inputs

    def of(
        x: torch.Tensor = x, w: torch.Tensor = w, norms: list[torch.Tensor] = norms, **other: object
    ) -> list[torch.Tensor]:
        changed = dataclasses.replace(workload, **other)  # type: ignore[arg-type]
        found = block_reference.results(changed, x, w, *norms, convolve=lambda *given: reference(*given)[0])
        return [stored(workload, name, found[name].value) for name in workload.results]

    assert workload.block is not None
    padded_before = dataclasses.replace(workload.block, norm1=Norm(eps=1.0))
    results = of()
    variance = results[workload.results.index("var2")]
    count = results[1].numel() // len(variance)
    return {
        "another eps": lambda: of(block=padded_before),
        "one image's statistics": lambda: [*of(x[:1].expand_as(x))[:2], *results[2:]],
        "the unbiased variance": lambda: [*results[:-1], variance * count / (count - 1)],
        "flipped taps": lambda: of(w=w.flip(-1)),
        "a tap less": lambda: of(w=w * (torch.arange(w.shape[-1]) > 0)),
        "γ of a neighbour": lambda: of(norms=[norms[0].roll(1), *norms[1:]]),
        "no β": lambda: of(norms=[norms[0], norms[1] * 0, *norms[2:]]),
        "no second activation": lambda: of(block=dataclasses.replace(workload.block, act2="identity")),
        "a row of halo missing": lambda: [_without_a_row(results[0]), *results[1:]],
        "statistics of 16 bits": lambda: [*results[:-1], variance.bfloat16().float()],
    }


def _without_a_row(z: torch.Tensor) -> torch.Tensor:
    changed = z.clone()
    changed[:, :, -1] = changed[:, :, -2]
    return changed


def right(workload: Workload, case: Case) -> list[torch.Tensor]:
    pairs = zip(workload.results, case.answers, strict=True)
    return [stored(workload, name, answer.expected) for name, answer in pairs]


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_forward_passes_are_found(dtype: DType) -> None:
    workload = block(LAYERS["ragged channels"], "forward", "bn+relu6,bn+hardswish", dtype)
    case = make_case(workload, data="integers", seed=3)
    assert judge_all(right(workload, case), case).right
    for fault, results in wrong_forward(workload, case).items():
        assert not judge_all(results(), case).right, fault


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_backward_passes_are_found(dtype: DType) -> None:
    workload = block(LAYERS["ragged channels"], "backward", "bn+relu6,bn+hardswish", dtype)
    case = make_case(workload, data="integers", seed=3)
    found = right(workload, case)
    assert judge_all(found, case).right
    named = dict(zip(workload.inputs, case.inputs, strict=True))

    def of(**changed: Any) -> list[torch.Tensor]:
        inputs = [changed.get(name, tensor) for name, tensor in named.items()]
        changed_workload = dataclasses.replace(workload, block=changed.get("block", workload.block))
        found = block_reference.results(changed_workload, *inputs, convolve=lambda *given: reference(*given)[0])
        return [stored(workload, name, found[name].value) for name in workload.results]

    faults = {
        "statistics as constants": [
            stored(workload, "dx", found[0] + 0.03 * named["gamma1"].view(-1, 1, 1)), *found[1:],
        ],
        "another image's dz": of(dz=named["dz"].roll(1, 0)),
        "mean of the other norm": of(mean2=named["mean1"]),
        "the derivative of another activation": of(block=dataclasses.replace(workload.block, act1="silu")),  # type: ignore[type-var]
        "dw of x, not of its activation": of(x=named["x"] * 1.01),
        "dγ and dβ exchanged": [*found[:2], found[3], found[2], *found[4:]],
        "β left out": of(beta1=named["beta1"] * 0),
        "dγ of 16 bits": [*found[:2], found[2].bfloat16().float(), *found[3:]],
    }  # fmt: skip
    for fault, results in faults.items():
        assert not judge_all(results, case).right, fault


@pytest.mark.parametrize("dtype", DTYPES)
def test_wrong_inference_is_found(dtype: DType) -> None:
    workload = block(LAYERS["ragged channels"], "inference", "bn@0.1+relu6,bn@0.2+hardswish", dtype)
    case = make_case(workload, data="integers", seed=3)
    assert judge_all(right(workload, case), case).right
    named, whole = dict(zip(workload.inputs, case.inputs, strict=True)), workload.block
    assert whole is not None

    def of(whole: Block = whole, **changed: torch.Tensor) -> list[torch.Tensor]:
        inputs = [changed.get(name, tensor) for name, tensor in named.items()]
        changed_workload = dataclasses.replace(workload, block=whole)
        found = block_reference.results(changed_workload, *inputs, convolve=lambda *given: reference(*given)[0])
        return [stored(workload, "z", found["z"].value)]

    x = named["x"].double()
    mean, variance = x.mean((0, 2, 3)).float(), x.var((0, 2, 3), correction=0).float()
    faults = {
        "no eps": of(dataclasses.replace(whole, norm1=Norm(eps=1e-9))),
        "no second eps": of(dataclasses.replace(whole, norm2=Norm(eps=1e-9))),
        "mean of a neighbour": of(mean2=named["mean2"].roll(1)),
        "variance of a neighbour": of(var2=named["var2"].roll(1)),
        "the statistics of the batch": of(mean1=mean, var1=variance),
        "γ of the other norm": of(gamma1=named["gamma2"], gamma2=named["gamma1"]),
        "no β": of(beta2=named["beta2"] * 0),
        "no first activation": of(dataclasses.replace(whole, act1="identity")),
        "no second activation": of(dataclasses.replace(whole, act2="identity")),
        "a row of halo missing": [_without_a_row(right(workload, case)[0])],
        "padding that is normalised": [_normalised_padding(workload, named)],
    }
    for fault, results in faults.items():
        assert not judge_all(results, case).right, fault


def _normalised_padding(workload: Workload, named: dict[str, torch.Tensor]) -> torch.Tensor:
    """z where zeros are put around x, before the norm, as a kernel that pads too early has it."""
    wider = dataclasses.replace(
        workload, input_size=tuple(size + 2 for size in workload.input_size), padding=((0, 0), (0, 0))
    )
    inputs = [torch.nn.functional.pad(each, (1,) * 4) if name == "x" else each for name, each in named.items()]
    found = block_reference.results(wider, *inputs, convolve=lambda *given: reference(*given)[0])
    return stored(workload, "z", found["z"].value)


def test_nan_in_x_goes_no_further_than_the_taps() -> None:
    """Statistics are given, so that no other pixel has a part in it: what is around stays right."""
    workload = block(LAYERS["ragged channels"], "inference", "bn+relu6,bn+hardswish")
    case = make_case(workload, data="extreme", seed=1)
    found = right(workload, case)
    assert found[0].isnan().any() and judge_all(found, case).right
    spread = found[0].clone()
    spread[found[0].isnan().any((0, 2, 3)).view(1, -1, 1, 1).expand_as(spread)] = float("nan")
    assert not judge_all([spread], case).right


def test_what_no_template_runs_says_why() -> None:
    workload = block(LAYERS["stride"], "forward", "bn+relu,bn+relu")
    with pytest.raises(NoTemplate, match="blocks have no channel multiplier"):
        templates_for(dataclasses.replace(workload, multiplier=2), TARGET)
    with pytest.raises(NoTemplate, match="it is for 2-D"):
        volume = layer(4, (3, 4, 5), (3, 3, 3))
        templates_for(dataclasses.replace(volume, pass_="forward", block=workload.block), TARGET)


@pytest.mark.parametrize("pass_", EVERY_PASS)
def test_the_estimate_knows_what_is_little_work(pass_: Pass) -> None:
    target = CpuTarget(device="test", threads=2, vector_bytes=32)
    small = block(layer(96, (14, 14), (3, 3), padding=((1, 1), (1, 1)), batch=8), pass_, "bn+relu,bn+relu")
    large = dataclasses.replace(small, input_size=(56, 56))
    estimates = [
        template.estimate_us(workload, template.space(workload, target).default, target)  # type: ignore[misc]
        for workload in (small, large)
        for template in templates_for(workload, target)
    ]
    assert 8 * estimates[0] < estimates[1] < 64 * estimates[0]
