"""Blocks around a 3-D convolution: norms that learn, are frozen, or are of each image, in training and evaluation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dwconv
from dwconv.discovery import discover
from tests.call.block_parts import (
    CHANNELS,
    SIZE_3D,
    Parts,
    assert_infers_the_same,
    assert_same,
    blocks_in_evaluation,
    drawn,
    in_double,
    in_evaluation,
    python_runs_no_block,
    ran,
    step,
    trace,
    written,
)
from tests.native_needed import both_ways
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")  # the convolution alone is not planted

KERNEL = (3, 3, 3)
BLOCK = "bn+relu6,bn+hardswish"


def planted(logs, block=BLOCK, passes=None, **options) -> None:
    workload = workload_of(**{"shape": SIZE_3D, "kernel": KERNEL, "block": block, **options})
    plant(logs / "cpu.jsonl", [workload], passes=passes)


@both_ways
@pytest.mark.parametrize("kind", ["", "written"])
@pytest.mark.parametrize(
    "block", [BLOCK, "in+relu,in+silu", "frozen+relu6,frozen+relu6", "none,bn+relu", "bn+silu,none", "none,in+relu"]
)
def test_it_runs_as_one(logs, block, kind, way):
    planted(logs, block)
    model = Parts(block, axes=3)
    assert_same(written(model) if kind else model, drawn(SIZE_3D))
    assert ran() == (2, 2)


@both_ways
def test_with_a_stride(logs, way):
    """Running variances are of as many values as their image has."""
    planted(logs, stride=2)
    model = Parts(BLOCK, stride=2, axes=3)
    model.bn1.momentum = model.bn2.momentum = 1.0
    assert_same(model, drawn(SIZE_3D))
    assert ran() == (2, 2)


@both_ways
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_images_of_16_bits(logs, name, way):
    block = "bn+silu,bn+silu"
    planted(logs, block, dtype=name)
    dtype, allowed = {"bfloat16": (torch.bfloat16, 3e-2), "float16": (torch.float16, 5e-3)}[name]
    model, x = Parts(block, axes=3), drawn(SIZE_3D).detach().to(dtype).requires_grad_()
    exact = in_double(model)
    for _ in range(2):
        with torch.autocast("cpu", dtype):
            found = step(model, x)
        for got, wanted in zip(found, step(exact, x.detach().double().requires_grad_()), strict=True):
            assert float((got.double() - wanted.double()).norm()) <= allowed * float(wanted.double().norm()) + allowed
    assert ran() == (2, 2)


@both_ways
def test_in_evaluation_it_is_one(logs, way):
    planted(logs, passes=["inference"])
    assert_infers_the_same(in_evaluation(BLOCK, axes=3), x=drawn(SIZE_3D).detach())
    assert blocks_in_evaluation() == 2


@both_ways
def test_cpp_runs_it_alone(logs, way, monkeypatch):
    planted(logs)
    model, x = Parts(BLOCK, axes=3), drawn(SIZE_3D)
    expected = step(model, x)
    if way == "compiled":
        python_runs_no_block(monkeypatch)
    for got, wanted in zip(step(model, x)[:-6], expected[:-6], strict=True):  # without running statistics
        assert torch.equal(got, wanted)
    assert ran() == (2, 2)


@both_ways
def test_it_is_one_only_where_it_can_be(logs, way):
    planted(logs)
    model = Parts(BLOCK, axes=3)
    for _ in range(2):
        model(drawn((3, *SIZE_3D[1:])))
    assert ran()[0] == 2
    model(drawn(SIZE_3D).detach().contiguous())
    model(drawn((2, CHANNELS, 5, 6, 9)))
    assert ran()[0] == 2


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, nn.InstanceNorm2d])
def test_a_norm_of_other_images_is_none(logs, kind):
    planted(logs)
    model = Parts(BLOCK, axes=3)
    model.bn1 = kind(CHANNELS)
    trace(model)
    with pytest.raises(ValueError, match=r"expected .*4D"):
        model(drawn(SIZE_3D))


def test_compiled_it_is_one_op_of_the_graph(logs):
    planted(logs)
    model, x = Parts(BLOCK, axes=3), drawn(SIZE_3D)
    exact = copy.deepcopy(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for got, right in zip(step(compiled, x), step(exact, x), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4)
    assert ran() == (2, 2)


class Net(nn.Module):
    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.expand = nn.Conv3d(CHANNELS, CHANNELS, 1, bias=False)
        self.norm1, self.norm2 = norm(CHANNELS), norm(CHANNELS)
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.hardswish(self.norm2(self.conv(F.relu6(self.norm1(self.expand(x))))))


@pytest.mark.parametrize(("norm", "block"), [(nn.BatchNorm3d, BLOCK), (nn.InstanceNorm3d, "in+relu6,in+hardswish")])
def test_a_model_shows_it_and_converts(logs, norm, block):
    planted(logs, block)
    model, x = Net(norm).to(memory_format=torch.channels_last_3d), drawn(SIZE_3D)
    (found,) = discover(model, x).blocks
    assert str(found.problem.block) == block
    dwconv.convert(model, x, blocks=True, seconds=0)
    assert f"block {block} from norm1 runs as one" in str(dwconv.summary(model))
    assert_same(model, x)
    assert ran() == (2, 2)
