"""Transposed convolutions and kernels per sample on a GPU: the kernels of convolutions, the right numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import dwconv
from dwconv.problems.problem import memory_format
from dwconv.problems.workload import LAYOUTS, Layout
from tests.planted_records import workload_of
from tests.standin.on_gpu.kernels import Launches, plant


def passes_of(launches: Launches) -> list[str] | None:
    """Of the kernels that were launched, each once."""
    seen = launches.seen
    return seen and sorted({each["workload"].partition("-")[0] for each in seen})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_transposed_convolution_runs_the_kernels(logs: Path, layout: Layout, dtype: torch.dtype) -> None:
    of = workload_of(shape=(2, 8, 10, 12), stride=2, layout=layout, dtype=str(dtype).removeprefix("torch."))  # type: ignore[arg-type]
    plant(logs / "log.jsonl", [of])
    dwconv.reset()
    x, w, bias = torch.randint(-2, 3, (2, 8, 5, 6)), torch.randint(-2, 3, (8, 1, 3, 3)), torch.arange(8)
    x = x.to(memory_format=memory_format(layout, axes=2))
    launches = Launches()
    found = []
    for device, function, more in (("cpu", F.conv_transpose2d, {"groups": 8}), ("cuda", dwconv.conv_transpose2d, {})):
        kind = torch.float32 if device == "cpu" else dtype
        leaves = [each.to(device, kind).requires_grad_() for each in (x, w, bias)]
        y = function(*leaves, stride=2, padding=1, output_padding=1, **more)
        y.sum().backward()
        found.append([each.detach().cpu().float() for each in (y, *(leaf.grad for leaf in leaves))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2 if dtype is torch.float16 else 1e-5, atol=0)
    assert passes_of(launches) in (None, ["dgrad", "fprop", "wgrad"])


@pytest.mark.parametrize("channels", [8, 6])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_kernels_per_sample_run_the_kernels(logs: Path, layout: Layout, channels: int) -> None:
    """Also where an image of the batch does not begin where vectors can be loaded, of 6 channels."""
    plant(logs / "log.jsonl", [workload_of(shape=(1, 3 * channels, 9, 7), layout="nchw")])
    dwconv.reset()
    x, kernels = torch.randint(-2, 3, (3, channels, 9, 7)).float(), torch.randint(-2, 3, (3, channels, 3, 3)).float()
    x = x.to(memory_format=memory_format(layout, axes=2))
    launches = Launches()
    leaves = [each.to("cuda").requires_grad_() for each in (x, kernels)]
    y = dwconv.cross_correlation(*leaves, padding=1)
    assert y.is_contiguous(memory_format=memory_format(layout, axes=2))
    y.square().sum().backward()
    own = [each.clone().requires_grad_() for each in (x, kernels)]
    images, weights = own[0].reshape(1, 3 * channels, 9, 7), own[1].reshape(-1, 1, 3, 3)
    expected = F.conv2d(images, weights, padding=1, groups=3 * channels).reshape(y.shape)
    expected.square().sum().backward()
    for one, other in zip((y, *(leaf.grad for leaf in leaves)), (expected, *(leaf.grad for leaf in own)), strict=True):
        torch.testing.assert_close(one.detach().cpu(), other.detach(), rtol=0, atol=0)
    assert passes_of(launches) in (None, ["dgrad", "fprop", "wgrad"])
