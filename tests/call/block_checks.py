"""What blocks of every kind are checked for, in training: their records, and tests that lack the model alone."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import dwconv
from dwconv.discovery import discover
from dwconv.problems.workload import Pass
from tests.call.block_parts import SIZE, Parts, assert_same, drawn, in_double, python_runs_no_block, ran, step, written
from tests.planted_records import plant, workload_of

alone_is_not_planted = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")
"""Of a convolution that is in no block there are no records, and a warning says so."""


def plant_block(
    logs: Path,
    *blocks: str,
    shape: tuple[int, ...] = SIZE,
    passes: list[Pass] | None = None,
    baseline_us: float = 1000.0,
    **options: object,
) -> None:
    """Records of blocks that are faster as one, for images of that shape; all of their passes in training, or
    ``passes``."""
    given = {"shape": shape, "kernel": (3,) * len(shape[2:]), **options}
    workloads = [workload_of(block=block, **given) for block in blocks]
    plant(logs / "cpu.jsonl", workloads, passes=passes, baseline_us=baseline_us)


def each_way(blocks: Sequence[str], *, kinds: Sequence[str]) -> pytest.MarkDecorator:
    """Each block in each of ``kinds``, compiled and interpreted. A third is quick: each block, and each kind and way
    with some block."""
    ways = list(itertools.product(kinds, ("compiled", "interpreted")))
    return pytest.mark.parametrize(
        ("block", "kind", "way"),
        [
            pytest.param(block, *of, marks=() if (number - turn) % 3 == 0 else pytest.mark.slow)
            for turn, block in enumerate(blocks)
            for number, of in enumerate(ways)
        ],
        indirect=["way"],
    )


def assert_runs_as_one(block: str, kind: str, x: Tensor | None = None) -> None:
    """``kind``: of modules, of activations ``in place``, or ``written`` as dwconv's own block."""
    x = drawn() if x is None else x
    model = Parts(block, inplace=kind == "in place", axes=x.dim() - 2)
    assert_same(written(model) if kind == "written" else model, x)
    assert ran() == (2, 2)


def assert_cpp_runs_it_alone(
    model: nn.Module, x: Tensor, way: str, monkeypatch: pytest.MonkeyPatch, *, learns: bool
) -> None:
    """With the bits of the first step; not those of running statistics if it ``learns`` any."""
    expected = step(model, x)
    if way == "compiled":
        python_runs_no_block(monkeypatch)
    found, count = step(model, x), len(expected) - learns * len([*model.buffers()])
    for got, wanted in zip(found[:count], expected[:count], strict=True):
        assert torch.equal(got, wanted)
    assert ran() == (2, 2)


IN_16_BITS = {"bfloat16": 3e-2, "float16": 5e-3}
"""How far off the norm of a gradient may be, relative to that of the exact one."""


def assert_right_in_16_bits(
    model: nn.Module,
    x: Tensor,
    name: str,
    *,
    is_autocast: bool = True,
    allowed: float | None = None,
    least: float = 1.0,
) -> None:
    """``allowed``: instead of what others of the type may be off. ``least`` is added to the norm that it is a share
    of."""
    dtype, allowed = getattr(torch, name), IN_16_BITS[name] if allowed is None else allowed
    x, exact = x.detach().to(dtype).requires_grad_(), in_double(model)
    for _ in range(2):
        with torch.autocast("cpu", dtype, enabled=is_autocast):
            found = step(model, x)
        assert found[0].dtype is dtype
        for got, wanted in zip(found, step(exact, x.detach().double().requires_grad_()), strict=True):
            size = float(wanted.double().norm())
            assert float((got.double() - wanted.double()).norm()) <= allowed * (size + least)
    assert ran() == (2, 2)


def images_kept(model: nn.Module, x: Tensor) -> tuple[dict[int, Tensor], Tensor]:
    """What a forward pass keeps for the backward pass of the size of its input, by address; and its result."""
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.numel() == x.numel():
            kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        z = model(x)
    return kept, z


def assert_differentiable_again(model: nn.Module, x: Tensor, *, power: int = 2) -> None:
    """The gradients of a sum of powers, and the gradients of these."""
    exact, given = in_double(model), x.detach().double().requires_grad_()
    found = []
    for each, leaf in ((model, x), (exact, given)):
        for _ in range(2):
            gradients = torch.autograd.grad(each(leaf).pow(power).sum(), [leaf, *each.parameters()], create_graph=True)
            again = torch.autograd.grad(sum(each.square().sum() for each in gradients), [leaf, *each.parameters()])
        found.append([*gradients, *again])
    for got, wanted in zip(*found, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-3, atol=1e-3 * float(wanted.detach().abs().max()))
    assert ran()[0] == 2


def assert_compiled_is_one_op(model: nn.Module, x: Tensor) -> None:
    exact = copy.deepcopy(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for got, right in zip(step(compiled, x), step(exact, x), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4)
    assert ran() == (2, 2)


def assert_shows_it_and_converts(model: nn.Module, x: Tensor, block: str, *, starts: str) -> None:
    """A model with one block, which begins at the module ``starts``."""
    (found,) = discover(model, x).blocks
    assert str(found.problem and found.problem.block) == block
    dwconv.convert(model, x, blocks=True, seconds=0)
    assert f"block {block} from {starts} runs as one" in str(dwconv.summary(model))
    assert_same(model, x)
    assert ran() == (2, 2)
