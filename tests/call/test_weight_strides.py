"""Gradients of weights lie as the weights do: whoever flattens gradients into buckets, as DDP does, need not copy."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dwconv
from dwconv.call import torch_ops
from dwconv.problems.workload import PASSES
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")
FORMATS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
GEOMETRY = ((1, 1), (1, 1, 1, 1), (1, 1))


def images():
    return torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last)


def weight_gradient(x, w):
    """As it comes, before it is accumulated, which may copy it."""
    seen = []
    hook = w.register_hook(lambda gradient: seen.append(gradient.stride()))
    dwconv.conv2d(x, w, padding=1).square().sum().backward()
    hook.remove()
    return seen[0]


@pytest.mark.parametrize("way", ["through_python", "calls_as_they_stay"])
@pytest.mark.parametrize("passes", [PASSES, ("fprop",)], ids=["all tuned", "fprop tuned"])
@pytest.mark.parametrize("lies", FORMATS)
def test_a_gradient_has_the_strides_of_its_weight(logs, request, way, passes, lies):
    """Where PyTorch's op runs wgrad beside a tuned fprop, too, whatever it makes of the layouts."""
    request.getfixturevalue(way)
    plant(logs / "log.jsonl", [workload_of()], passes=passes, baseline_us=1e6)
    x, w = images(), torch.randn(8, 1, 3, 3).to(memory_format=FORMATS[lies]).requires_grad_()
    assert [weight_gradient(x, w) for _ in range(3)] == [w.stride()] * 3


@pytest.mark.parametrize("tuned", [False, True], ids=["pytorch", "dwconv"])
def test_the_ops_lie_as_their_fake_implementations_say(logs, tuned):
    """Compiled code is made for the strides of the fakes, along axes of length 1, too."""
    if tuned:
        plant(logs / "log.jsonl", [workload_of()], baseline_us=1e6)
    x, dy = images(), images()
    for op in (torch_ops.wgrad, torch_ops.wgrad_bias):
        real = op(x, dy, [3, 3], *GEOMETRY, "nhwc")
        fake = op(x.to("meta"), dy.to("meta"), [3, 3], *GEOMETRY, "nhwc")
        pairs = [(real, fake)] if isinstance(real, torch.Tensor) else list(zip(real, fake, strict=True))
        assert all(one.stride() == other.stride() for one, other in pairs)


@pytest.fixture
def group(tmp_path):
    if not dist.is_gloo_available():
        pytest.skip("this PyTorch has no gloo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_buckets_of_ddp_take_the_gradients_as_they_are(logs, group, compiled):
    plant(logs / "log.jsonl", [workload_of(), workload_of(bias=True)], baseline_us=1e6)
    model = nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
    ).to(memory_format=torch.channels_last)
    dwconv.convert(model)
    parallel = DistributedDataParallel(torch.compile(model, backend="aot_eager") if compiled else model)
    torch.set_warn_always(True)  # PyTorch would say it once in a process
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            for _ in range(3):
                parallel(images()).square().mean().backward()
    finally:
        torch.set_warn_always(False)
    assert not [each for each in heard if "strides" in str(each.message)]
