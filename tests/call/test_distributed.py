"""Tensors that are spread over ranks: a converted model takes and gives what the plain one does."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

import dwconv
from tests.models import TinyNet
from tests.planted_records import plant, workload_of

if not dist.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]


@pytest.fixture
def mesh():
    """Two ranks, of which the other one never says anything: what needs no word of it is right here."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def leaves():
    return [torch.randn(2, 8, 9, 7), torch.randn(8, 1, 3, 3), torch.randn(8)]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("placement", [Shard(0), Replicate()], ids=["sharded", "replicated"])
def test_a_dtensor_is_spread_as_pytorch_spreads_it(logs, mesh, placement, compiled):
    """A tuned kernel for the sizes of all ranks together does not stand in the way."""
    sizes = [workload_of(shape=(batch, 8, 9, 7), layout="nchw", bias=True) for batch in (2, 4)]
    plant(logs / "log.jsonl", sizes, template_layout="nchw", baseline_us=1e6)
    local = leaves()

    def run(convolve):
        spread = [
            DTensor.from_local(tensor, mesh, [where], run_check=False).requires_grad_()
            for tensor, where in zip(local, (placement, Replicate(), Replicate()), strict=True)
        ]
        y = convolve(*spread)
        return y, *torch.autograd.grad(y, spread, torch.ones_like(y))

    def ours(x, w, bias):
        return dwconv.conv2d(x, w, bias, padding=1)

    found = run(torch.compile(ours, backend="aot_eager", fullgraph=True) if compiled else ours)
    expected = run(lambda x, w, bias: F.conv2d(x, w, bias, padding=1, groups=8))
    placements = [each.placements for each in found]
    if placements != [(placement,)] * 2 + [(Replicate(),)] * 2:  # PyTorch 2.11 takes dw for a part where all is whole
        assert placements == [each.placements for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one.to_local(), other.to_local())


def test_images_and_channels_are_spread_over_a_mesh_of_two_axes(logs):
    """This rank has two of four images, and four of eight channels of each."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        grid = init_device_mesh("cpu", (2, 2))
        whole = [torch.randn(2, 4, 9, 7), torch.randn(4, 1, 3, 3), torch.randn(4)]
        places = [(Shard(0), Shard(1)), (Replicate(), Shard(0)), (Replicate(), Shard(0))]
        spread = [DTensor.from_local(part, grid, place) for part, place in zip(whole, places, strict=True)]
        y = dwconv.conv2d(*(each.requires_grad_() for each in spread), padding=1)
        found = torch.autograd.grad(y, spread, torch.ones_like(y))
    finally:
        dist.destroy_process_group()
    assert y.shape == (4, 8, 9, 7)
    assert [each.placements for each in (y, *found)] == [places[0], places[0], *[(Partial(), Shard(0))] * 2]
    expected = F.conv2d(*(each.requires_grad_() for each in whole), padding=1, groups=4)
    torch.testing.assert_close(y.to_local(), expected)
    torch.testing.assert_close(
        [each.to_local() for each in found], list(torch.autograd.grad(expected.sum(), whole)), rtol=1e-4, atol=1e-4
    )


def test_under_autocast_pytorch_spreads_the_call(logs, mesh):
    x, w, bias = (DTensor.from_local(leaf, mesh, [Replicate()]).requires_grad_() for leaf in leaves())
    with torch.autocast("cpu"):
        y = dwconv.conv2d(x, w, bias, padding=1)
    y.backward(torch.ones_like(y))
    assert y.dtype is torch.bfloat16 and x.grad.dtype is torch.float32


def test_fully_sharded_layers_run_tuned_kernels(logs, tmp_path):
    """They gather their parameters, as plain tensors, before the call."""
    if not dist.is_gloo_available():
        pytest.skip("this PyTorch has no gloo")
    plant(logs / "log.jsonl", [workload_of(shape=(4, 8, 12, 10), layout="nchw")], baseline_us=1e6)
    torch.manual_seed(0)
    model, x = TinyNet(), torch.randn(4, 3, 12, 10)
    converted = copy.deepcopy(model)
    dwconv.convert(converted)
    ran = []
    converted.body[1].register_forward_hook(lambda layer, inputs, y: ran.append(y.grad_fn.name()))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        for layer in (converted.body[1], converted.body[4], converted):
            fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
        y = converted(x)
        y.square().mean().backward()
        found = [parameter.grad.full_tensor() for parameter in converted.parameters()]
    finally:
        dist.destroy_process_group()
    assert "Dwconv" in ran[0]
    model(x).square().mean().backward()
    expected = [parameter.grad for parameter in model.parameters()]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
