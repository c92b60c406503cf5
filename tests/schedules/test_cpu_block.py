"""Blocks on the CPU: norm, activation, convolution, norm, activation as one, and what wrong ones would give."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import tvm_ffi
from tvm import ir, tirx

from dwconv.errors import NoTemplate
from dwconv.measure.verify.cases import make_case
from dwconv.problems import rounding
from dwconv.problems.block import ACTIVATIONS, Activation, Block
from dwconv.problems.workload import BLOCK_PASSES, DTYPES, EVAL_PASSES, IMAGES, DType, Pass, Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from tests.schedules.cpu_layers import (
    TARGET,
    TARGETS,
    assert_verified,
    built,
    config_in_turn,
    layer,
    run,
    some_configs,
    template_of,
)
from tests.turns import every

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
LAYERS_3D = {
    "3-D": layer(20, (5, 6, 7), (3, 3, 3), padding=((1, 1),) * 3),
    "3-D, stride": layer(12, (6, 7, 8), (3, 3, 3), padding=((1, 1),) * 3, stride=(2, 2, 2)),
    "3-D, asymmetric": layer(17, (7, 5, 6), (2, 3, 1), padding=((0, 1), (2, 1), (0, 0)), stride=(1, 2, 1)),
    "3-D, dilation": layer(8, (7, 8, 5), (3, 2, 3), padding=((2, 2), (0, 1), (1, 1)), dilation=(2, 1, 1)),
}
BLOCKS = (
    "bn+relu6,bn+relu6", "bn@0.001+hardswish,bn@0.01+silu", "bn+silu,bn", "none,bn+relu", "bn+gelu,none",
    "bn,bn+gelu", "relu,bn+hardswish", "bn+relu,bn+relu",
)  # fmt: skip
FROZEN = (
    "frozen+relu6,frozen+relu6", "frozen@0.001+hardswish,frozen@0.01+silu", "frozen+silu,frozen", "none,frozen+relu",
    "frozen+gelu,none", "bn+relu,frozen+relu", "frozen+relu6,bn+relu6", "frozen,frozen+hardswish",
)  # fmt: skip
"""Norms that keep their statistics in training."""
OF_IMAGES = ("in+relu6,in+relu6", "in@0.001+hardswish,in@0.01+silu", "none,in+relu", "in+gelu,none", "in,in")
"""Those with the statistics of each image."""

EVERY_PASS = (*BLOCK_PASSES, *EVAL_PASSES)


def block(workload: Workload, pass_: Pass, text: str, dtype: DType = "float32") -> Workload:
    return dataclasses.replace(workload, pass_=pass_, block=Block.parse(text), dtype=dtype)


def param(
    name: str, workload: Workload, turn: int, pass_: Pass, text: str, dtype: DType, *others: str, quick: bool
) -> Any:
    """Parameters of a test: a block around a layer, which of its configurations has its turn, and ``others``."""
    marks = () if quick else pytest.mark.slow
    name = "-".join((name, pass_, text, dtype, *others))
    return pytest.param(block(workload, pass_, text, dtype), turn, *others, id=name, marks=marks)


def cases() -> Iterator[Any]:
    """Every layer and pass, in turns in float32 and in one of the types of 16 bits, with blocks and configurations that
    take turns, too. A third is quick, and a sixth of them in both types."""
    for turn, (name, workload) in enumerate(LAYERS.items()):
        for number, pass_ in enumerate(EVERY_PASS):
            narrow = DTYPES[1 + (turn + number) // 3 % 2]
            for at, (dtype, step) in enumerate((("float32", 3), (narrow, 6))):
                text = BLOCKS[(turn + 2 * number + at) % len(BLOCKS)]
                quick = (turn + number) % step == 0
                if quick or (turn + number) % 2 == at:
                    yield param(name, workload, turn // 2 + number, pass_, text, dtype, quick=quick)


def frozen_cases() -> Iterator[Any]:
    """Every layer, in both passes and with blocks that take turns; of these a quarter is quick."""
    for turn, (name, workload) in enumerate(LAYERS.items()):
        for at in range(4):
            pass_, text = BLOCK_PASSES[(turn + at) % 2], FROZEN[(3 * turn + at + at // 2) % len(FROZEN)]
            dtype = DTYPES[turn % 3] if at == 3 else "float32"
            yield param(name, workload, turn + at, pass_, text, dtype, quick=(turn + at) % 4 == 0)


def cases_in_3d() -> Iterator[Any]:
    """Every pass with norms of each kind, in turns in all types; a quarter is quick."""
    blocks = ("bn+relu6,bn+relu6", "in+relu,in+silu", "frozen+relu6,frozen+relu6", "none,bn+relu", "bn+hardswish,none")
    for turn, (name, workload) in enumerate(LAYERS_3D.items()):
        for number, text in enumerate(blocks):
            for at, pass_ in enumerate(BLOCK_PASSES if text.startswith("in") else EVERY_PASS):
                dtype = DTYPES[(turn + number + at) % 3] if at == 1 else "float32"
                quick = (turn + number + at) % 4 == 0
                yield param(name, workload, turn + number + at, pass_, text, dtype, quick=quick)


@pytest.mark.parametrize(("workload", "turn"), [*cases(), *frozen_cases(), *cases_in_3d()])
def test_right_on_odd_shapes(workload: Workload, turn: int) -> None:
    assert_verified(workload, config_in_turn(workload, turn))


def cases_of_images() -> Iterator[Any]:
    """Every layer, in both passes, by tasks of all threads and by threads that take images; a quarter is quick."""
    for turn, (name, workload) in enumerate(LAYERS.items()):
        for at in range(4):
            pass_, parallel = BLOCK_PASSES[(turn + at) % 2], ("images", "tasks")[at // 2]
            text, dtype = OF_IMAGES[(3 * turn + at) % len(OF_IMAGES)], DTYPES[turn % 3] if at == 3 else "float32"
            several, quick = dataclasses.replace(workload, batch=3), (turn + at) % 4 == 0
            yield param(name, several, turn + at, pass_, text, dtype, parallel, quick=quick)


@pytest.mark.parametrize(("workload", "turn", "parallel"), list(cases_of_images()))
def test_statistics_of_images_are_right_on_odd_shapes(workload: Workload, turn: int, parallel: str) -> None:
    config = config_in_turn(workload, turn)
    assert_verified(workload, Config.of(config.template, **{**dict(config.values), "parallel": parallel}))


@pytest.mark.parametrize("pass_", BLOCK_PASSES)
def test_an_image_has_no_part_in_anothers_results(pass_: Pass) -> None:
    """Each image of a batch gives the bits that it gives alone, whoever takes the images."""
    workload = block(LAYERS["stride"], pass_, "in+relu6,in+silu")
    space = template_of(workload).space(workload, TARGET)
    case, default = make_case(workload, data="normal"), dict(space.default.values)
    found = []
    for parallel in ("images", "tasks"):
        kernel = built(workload, Config.of(space.template, **{**default, "parallel": parallel}))
        whole = dict(zip(workload.results, run(kernel, workload, case.inputs), strict=True))
        one = workload.with_batch(1)
        names = set(IMAGES)
        for image in range(workload.batch):
            pairs = zip(workload.inputs, case.inputs, strict=True)
            given = tuple(each[image : image + 1] if name in names else each for name, each in pairs)
            alone = dict(zip(workload.results, run(kernel, one, given), strict=True))
            for name in names & {*workload.results}:
                assert torch.equal(whole[name][image], alone[name][0]), name
        found.append(whole)
    assert all(torch.equal(found[0][name], found[1][name]) for name in workload.results)


def test_in_evaluation_there_is_none_with_statistics_of_images() -> None:
    with pytest.raises(NoTemplate, match="the statistics of images are not given"):
        template_of(block(LAYERS["stride"], "inference", "in+relu,in+relu"))


def test_rows_over_padding_alone_have_no_kernel_of_a_frozen_norm() -> None:
    """No task of dx reads them, and they count in dβ."""
    workload = block(layer(8, (5, 5), (3, 3), padding=((3, 1), (1, 1))), "backward", "frozen,frozen")
    with pytest.raises(NoTemplate, match="rows of y over padding alone"):
        template_of(workload)
    template_of(block(layer(8, (5, 5), (3, 3), padding=((2, 2), (3, 3))), "backward", "frozen,frozen"))
    template_of(block(workload, "backward", "frozen,bn"))


@pytest.mark.parametrize("pass_", every(3, EVERY_PASS))
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


def test_a_variance_that_rounding_would_make_negative_is_none() -> None:
    """One value differs from the pivot's neighbours in a task of many pixels: what is left of it is rounding."""
    workload = block(layer(8, (512, 512), (3, 3), padding=((1, 1), (1, 1)), batch=1), "forward", "bn+relu,bn")
    first = some_configs(workload, 0)[0].to_dict()
    config = Config.of(str(first.pop("template")), **{**first, "block_h": 512})
    x, *others = make_case(workload, data="normal").inputs
    x = torch.linspace(0.7, 3000.3, 8)[None, :, None, None].expand(x.shape).clone()
    x[:, :, 0, 0] = 0.0
    results = run(built(workload, config), workload, (x, *others))
    named = dict(zip(workload.results, results, strict=True))
    assert (named["var1"] >= 0).all() and named["z"].isfinite().all()


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_no_value_is_bound_to_a_hundred_others(act: Activation) -> None:
    """To simplify an expression TVM replaces what is bound by what it is made of: builds would take seconds."""
    workload = block(LAYERS["stride"], "backward", f"bn+{act},none" if act != "identity" else "bn,none")
    program = Candidate(workload, some_configs(workload, 0)[0]).schedule(TARGET).mod["main"]
    read: dict[Any, int] = {}

    def bound(found: Any) -> None:
        loads, variables = [], []
        tvm_ffi.structural_walk(found.value, [(ir.TensorLoad, loads.append), (tirx.Var, variables.append)])
        read[found.var] = 1 if loads else sum(read.get(each, 1) for each in variables)

    tvm_ffi.structural_walk(program.body, [(tirx.Bind, bound)], order="pre")
    assert len(read) > 10 and max(read.values()) < 100


def values() -> torch.Tensor:
    powers = 2.0 ** torch.arange(-60, 60, dtype=torch.float64)
    return torch.cat([powers, -powers, torch.linspace(-12, 12, 8001, dtype=torch.float64), torch.zeros(1)]).float()


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_activations_are_right_for_every_value(act: Activation) -> None:
    """y = act(x) by a kernel of one tap without norms, and dx = act′(x)."""
    z = values()
    workload = layer(1, (1, len(z)), (1, 1), batch=1)
    one, inputs = torch.ones(1, 1, 1, 1), z.view(1, 1, 1, -1)
    kind, exact = rounding.KINDS[act], z.double()
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
