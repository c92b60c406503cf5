"""Ranks meet and end together: by themselves, and when one is lost. ``test_train`` starts them with torchrun, too."""

from __future__ import annotations

import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from dwconv.errors import DwconvError, InvalidChoice, InvalidSetting, NoDevice, RankLost
from dwconv.parallel import ranks, run
from dwconv.parallel.joining import lost_ranks_told
from tests.parallel.ranks import ended, needs_gloo, ran, started
from tests.waiting import eventually

pytestmark = needs_gloo


def under_way(processes, folder):
    """True as soon as every rank has taken a step."""
    paths = [folder / f"under-way-{rank}" for rank in range(len(processes))]
    return eventually(lambda: all(path.exists() for path in paths) or any(each.poll() for each in processes))


def lost_one(how, *, world, folder):
    """The ranks that are left once one was killed or stopped."""
    with started("-m", "tests.parallel.jobs", folder, world=world, folder=folder) as processes:
        assert under_way(processes, folder)
        processes[1].send_signal(how)
        return [ended(process) for number, process in enumerate(processes) if number != 1]


def check_one_line(rank, number, *, world):
    assert rank.code == 2, rank.err
    lines = [line for line in rank.err.splitlines() if line.strip()]
    assert len(lines) == 1, rank.err
    assert lines[0].startswith(f"error: rank {number} of {world} lost the connection to the others (")
    assert lines[0].endswith("look at what that one printed, then start all ranks again")


# -- a rank that is lost ---------------------------------------------------------------------------------------------


def test_a_killed_rank_ends_all_with_a_line(tmp_path):
    """Long before the timeout: their connections to it are gone."""
    (tmp_path / "timeout").write_text("3000")
    started_s = time.monotonic()
    left = lost_one(signal.SIGKILL, world=2, folder=tmp_path)
    assert time.monotonic() - started_s < 3000
    check_one_line(left[0], 0, world=2)
    assert "Connection" in left[0].err


def test_a_rank_with_fewer_batches_ends_the_others_with_a_line(tmp_path):
    """As soon as it has left."""
    (tmp_path / "timeout").write_text("3000")
    (tmp_path / "batches-1").write_text("3")
    left, through = ran("-m", "tests.parallel.jobs", tmp_path, world=2, folder=tmp_path)
    assert (through.code, through.err) == (0, "")
    check_one_line(left, 0, world=2)


@pytest.mark.slow  # it waits for a timeout
def test_a_rank_that_hangs_ends_the_others_after_the_timeout(tmp_path):
    (tmp_path / "timeout").write_text("5")
    left = lost_one(signal.SIGSTOP, world=3, folder=tmp_path)
    for number, rank in zip([0, 2], left, strict=True):
        check_one_line(rank, number, world=3)
    assert any("Timed out" in rank.err or "timeout" in rank.err for rank in left)


@pytest.mark.parametrize(
    "said",
    [
        "[/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1234",
        "[/pytorch/gloo/tcp/pair.cc:547] Connection reset by peer. This is typically caused by a remote worker hanging",
        "Application timeout caused pair closure",
        "[/pytorch/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 5000ms for recv operation to complete",
    ],
)
def test_what_gloo_says_becomes_one_line(said):
    reason = said.rpartition("] ")[2]
    with (
        pytest.raises(RankLost, match=r"^rank 0 lost the connection to the others \(") as raised,
        lost_ranks_told(lambda: "rank 0"),
    ):
        raise RuntimeError(f"Unable to cast {said} to Tensor")
    told = str(raised.value)
    assert reason.partition(" [")[0].partition(". ")[0] in told and "Unable" not in told and "\n" not in told
    assert "typically" not in told
    assert isinstance(raised.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    "error", [RuntimeError("DataLoader timed out after 5 seconds"), ValueError("Connection reset")]
)
def test_errors_of_the_training_stay_what_they_are(error):
    with pytest.raises(type(error)) as raised, ranks(device="cpu"):
        raise error
    assert raised.value is error
    assert not dist.is_initialized()


# -- by themselves --------------------------------------------------------------------------------------------------


def test_a_process_alone_is_the_only_rank():
    with ranks(timeout_s=30, device="cpu") as rank:
        assert (rank.number, rank.world, rank.device, rank.is_first) == (0, 1, torch.device("cpu"), True)
        number = torch.tensor(3.0)
        dist.all_reduce(number)
        assert number == 3
    assert not dist.is_initialized()


def test_a_job_that_is_there_is_used_and_goes_on():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=30))
    try:
        with ranks(device="cpu") as rank:
            assert rank.world == 1
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()


def test_run_gives_the_exit_code(capsys):
    assert run(lambda rank: None, device="cpu") == 0

    def fails(rank):
        raise InvalidChoice("batch=7 does not suit")

    assert run(fails, device="cpu") == DwconvError.exit_code
    assert capsys.readouterr().err == "error: batch=7 does not suit\n"


# -- bad input -------------------------------------------------------------------------------------------------------


def test_bad_input_is_one_line(monkeypatch):
    with pytest.raises(InvalidChoice, match="timeout_s=0 leaves no time to wait"), ranks(timeout_s=0):
        pass
    with pytest.raises(NoDevice, match="needs GPU 99, of"), ranks(device="cuda:99"):
        pass
    with pytest.raises(InvalidChoice, match="device=gpu is unknown; use cpu, cuda or cuda:N"), ranks(device="gpu"):
        pass
    monkeypatch.setenv("LOCAL_RANK", "first")
    with pytest.raises(InvalidSetting, match="LOCAL_RANK=first is not a number"), ranks():
        pass
