"""Converted models in real distributed jobs: two processes, which both tell what they saw."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from dwconv import native
from tests import forked
from tests.planted_records import plant, workload_of

if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("PyTorch was built without gloo", allow_module_level=True)

from tests.call.spread_calls import CALLS
from tests.call.two_ranks import BLOCK, BLOCK_WAYS, LAYERS, SIZES, STEPS, WAYS, images, small_net, train

ROOT = Path(__file__).resolve().parent.parent.parent
SUMS_DIFFER = {"rtol": 1e-4, "atol": 1e-5}
"""Ranks add up the gradients of their images in another order than one process does."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the ranks saved."""

    models: list[dict[str, dict[str, Any]]]
    """By the way in which they were spread, for each rank."""
    blocks: list[dict[str, dict[str, Any]]]
    """Likewise."""
    calls: list[dict[str, dict[str, Any]]]
    """By their name, for each rank."""


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Job:
    """One job for all tests: to start its processes takes longer than what they do."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "logs").mkdir()
    first = workload_of(shape=(2, *SIZES), bias=True)
    second = workload_of(shape=(2, *SIZES), stride=2, multiplier=2)
    without_bias = workload_of(shape=(2, *SIZES))
    plant(folder / "logs" / "log.jsonl", [first, without_bias, second], baseline_us=1e6, threads=1)
    plant(folder / "logs" / "log.jsonl", [workload_of(shape=(2, *SIZES), block=BLOCK)], baseline_us=1e8, threads=1)
    native.native()  # the ranks load what is compiled here
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
        ended = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], b"\n".join(stderr for _, stderr in ended).decode()
    kinds = "models", "blocks", "calls"
    return Job(**{kind: [torch.load(folder / f"{kind}-{rank}.pt") for rank in (0, 1)] for kind in kinds})


@pytest.mark.parametrize("way", BLOCK_WAYS)
def test_blocks_learn_what_plain_ranks_learn(job, way):
    """With a layer that no step uses."""
    for saved in job.blocks:
        torch.testing.assert_close(saved[way]["blocks"], saved[way]["plain"], **SUMS_DIFFER)
        assert saved[way]["forward"] == saved[way]["backward"] == STEPS


@pytest.mark.parametrize("way", WAYS)
def test_ranks_learn_what_one_process_learns_of_the_whole_batch(job, threads_as_asked, way):
    plain = small_net()
    train(plain, images())
    expected = [parameter.detach() for parameter in plain.parameters()]
    first, second = (saved[way]["parameters"] for saved in job.models)
    torch.testing.assert_close(first, expected, **SUMS_DIFFER)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("way", WAYS)
def test_every_step_runs_a_tuned_kernel(job, way):
    for saved in job.models:
        assert len(saved[way]["ran"]) == STEPS
        assert all("Dwconv" in name for name in saved[way]["ran"])


@pytest.mark.parametrize("way", WAYS)
def test_no_gradient_has_other_strides_than_its_bucket(job, way):
    for saved in job.models:
        assert not [each for each in saved[way]["warned"] if "strides" in each]


def test_each_rank_reports_its_own_calls(job):
    """Of the model and of what DDP makes of it."""
    calls = {name: [STEPS] * 3 for name in LAYERS}
    assert [saved["ddp"]["calls"] for saved in job.models] == [{"model": calls, "inside": calls}] * 2


@pytest.mark.parametrize("way", ["converted, then sharded", "sharded, then converted"])
def test_fully_sharded_layers_are_counted(job, way):
    """Their calls come with weights that are gathered, and not those of the layers."""
    calls = {name: [STEPS] * 3 for name in LAYERS}
    assert [saved[way]["calls"]["model"] for saved in job.models] == [calls] * 2


@pytest.mark.parametrize("name", CALLS)
def test_dtensors_give_the_numbers_of_whole_tensors(job, threads_as_asked, name):
    """Derivatives, too."""
    call = CALLS[name]
    for saved in job.calls:
        found, expected = saved[name]["whole"], call.plain()
        assert found.keys() == expected.keys()
        for each in expected:
            assert (found[each] - expected[each]).abs().max() <= 1e-5 * expected[each].abs().max(), each


@pytest.mark.parametrize("name", CALLS)
def test_ranks_run_their_own_parts(job, name):
    for saved in job.calls:
        assert saved[name]["ran"] == ([CALLS[name].ran] if CALLS[name].ran else [])


@pytest.mark.parametrize(
    ("name", "image", "gradient"),
    [("images", "S(0)", "P(sum)"), ("channels", "S(1)", "S(0)"), ("all", "R", "R")],
)
def test_results_stay_where_they_are(job, name, image, gradient):
    for saved in job.calls:
        placed = saved[name]["placements"]
        assert [placed[each] for each in ("y", "dx", "dw", "dbias")] == [image, image, gradient, gradient]


def test_parts_that_are_channels_last_give_such(job):
    y = CALLS["images, channels_last"].plain()["y"]
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert [saved["images, channels_last"]["strides"] for saved in job.calls] == [y.stride()] * 2
