"""Tensors that are spread over ranks: a converted model takes and gives what the plain one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

import dwconv
from tests import forked
from tests.native_needed import compiled_way
from tests.planted_records import plant, workload_of

if not dist.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.call.two_ranks import BLOCK, BLOCK_WAYS, CALLS, LAYERS, SIZES, STEPS, WAYS, images, small_net, train

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


@pytest.mark.parametrize("placement", [Shard(0), Replicate()], ids=["sharded", "replicated"])
def test_compiled_code_spreads_a_dtensor_as_pytorch_spreads_it(logs, mesh, placement):
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

    found = run(torch.compile(ours, backend="aot_eager", fullgraph=True))
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


# -- converted models in real jobs: two processes ----------------------------------------------------------------------


ROOT = Path(__file__).resolve().parent.parent.parent
SUMS_DIFFER = {"rtol": 1e-4, "atol": 1e-5}
"""Ranks add up the gradients of their images in another order than one process does."""


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> dict[str, list[dict[str, Any]]]:
    """What the ranks saved, each of models, blocks and calls, by their names. One job for all tests: to start its
    processes takes longer than what they do."""
    if not dist.is_gloo_available():
        pytest.skip("this PyTorch has no gloo")
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "logs").mkdir()
    first = workload_of(shape=(2, *SIZES), bias=True)
    second = workload_of(shape=(2, *SIZES), stride=2, multiplier=2)
    without_bias = workload_of(shape=(2, *SIZES))
    plant(folder / "logs" / "log.jsonl", [first, without_bias, second], baseline_us=1e6, threads=1)
    plant(folder / "logs" / "log.jsonl", [workload_of(shape=(2, *SIZES), block=BLOCK)], baseline_us=1e8, threads=1)
    compiled_way()  # the ranks load what is compiled here
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DWCONV_TUNING_LOGS": str(folder / "logs"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    command = [sys.executable, "-m", "tests.call.two_ranks"]
    ranks = [
        forked.popen([*command, str(rank), str(folder)], env=environment, cwd=folder, stderr=subprocess.PIPE)
        for rank in (0, 1)
    ]
    try:
        ended = [rank.communicate(timeout=1200) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], b"\n".join(stderr for _, stderr in ended).decode()
    kinds = "models", "blocks", "calls"
    return {kind: [torch.load(folder / f"{kind}-{rank}.pt") for rank in (0, 1)] for kind in kinds}


@pytest.mark.parametrize("way", BLOCK_WAYS)
def test_blocks_learn_what_plain_ranks_learn(job, way):
    """With a layer that no step uses."""
    for saved in job["blocks"]:
        torch.testing.assert_close(saved[way]["blocks"], saved[way]["plain"], **SUMS_DIFFER)
        assert saved[way]["forward"] == saved[way]["backward"] == STEPS


@pytest.mark.parametrize("way", WAYS)
def test_ranks_learn_what_one_process_learns_of_the_whole_batch(job, threads_as_asked, way):
    plain = small_net()
    train(plain, images())
    expected = [parameter.detach() for parameter in plain.parameters()]
    first, second = (saved[way]["parameters"] for saved in job["models"])
    torch.testing.assert_close(first, expected, **SUMS_DIFFER)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    for saved in job["models"]:
        assert len(saved[way]["ran"]) == STEPS and all("Dwconv" in name for name in saved[way]["ran"])
        assert not [each for each in saved[way]["warned"] if "strides" in each], "gradients enter buckets as they are"


def test_each_rank_reports_its_own_calls(job):
    """Of the model and of what DDP makes of it."""
    calls = {name: [STEPS] * 3 for name in LAYERS}
    assert [saved["ddp"]["calls"] for saved in job["models"]] == [{"model": calls, "inside": calls}] * 2


@pytest.mark.parametrize("way", ["converted, then sharded", "sharded, then converted"])
def test_fully_sharded_layers_are_counted(job, way):
    """Their calls come with weights that are gathered, and not those of the layers."""
    calls = {name: [STEPS] * 3 for name in LAYERS}
    assert [saved[way]["calls"]["model"] for saved in job["models"]] == [calls] * 2


@pytest.mark.parametrize("name", CALLS)
def test_dtensors_give_the_numbers_of_whole_tensors(job, threads_as_asked, name):
    """Derivatives, too."""
    call = CALLS[name]
    for saved in job["calls"]:
        found, expected = saved[name]["whole"], call.plain()
        assert found.keys() == expected.keys()
        for each in expected:
            assert (found[each] - expected[each]).abs().max() <= 1e-5 * expected[each].abs().max(), each
        assert saved[name]["ran"] == ([call.ran] if call.ran else [])


@pytest.mark.parametrize(
    ("name", "image", "gradient"),
    [("images", "S(0)", "P(sum)"), ("channels", "S(1)", "S(0)"), ("all", "R", "R")],
)
def test_results_stay_where_they_are(job, name, image, gradient):
    for saved in job["calls"]:
        placed = saved[name]["placements"]
        assert [placed[each] for each in ("y", "dx", "dw", "dbias")] == [image, image, gradient, gradient]


def test_parts_that_are_channels_last_give_such(job):
    y = CALLS["images, channels_last"].plain()["y"]
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert [saved["images, channels_last"]["strides"] for saved in job["calls"]] == [y.stride()] * 2
