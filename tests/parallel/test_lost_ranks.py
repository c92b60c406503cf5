"""A rank that is lost at any moment ends the others: soon, each with one line and exit code 2."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest
import torch.distributed as dist

from dwconv.errors import RankLost
from dwconv.parallel import lost_ranks, ranks
from dwconv.parallel.lost_ranks import lost_ranks_told, made_in_time
from tests import forked
from tests.parallel.lost_jobs import AT_ONCE, LIKEWISE
from tests.parallel.ranks import ended, environment, needs_gloo, new_store, ran, started
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


def check_one_line(rank, *, names):
    assert rank.code == 2, rank.err
    lines = [line for line in rank.err.splitlines() if line.strip() and not line.startswith("[")]  # PyTorch's, gloo's
    assert len(lines) == 1, rank.err
    assert lines[0].startswith(f"error: {names} lost the connection to the others (")
    assert lines[0].endswith("look at what that one printed, then start all ranks again")


def test_a_killed_rank_ends_all_with_a_line(tmp_path):
    """Long before the timeout: their connections to it are gone."""
    (tmp_path / "timeout").write_text("3000")
    started_s = time.monotonic()
    left = lost_one(signal.SIGKILL, world=2, folder=tmp_path)
    assert time.monotonic() - started_s < 3000
    check_one_line(left[0], names="rank 0 of 2")
    assert "Connection" in left[0].err


@pytest.mark.parametrize(
    "phase",
    [
        *(phase.__name__ for phase in AT_ONCE),
        *(pytest.param(phase.__name__, marks=pytest.mark.slow) for phase in LIKEWISE),
    ],
)
def test_a_rank_killed_in_any_phase_ends_the_other_with_a_line(tmp_path, phase):
    left, killed = ran("-m", "tests.parallel.lost_jobs", phase, 3000, world=2, folder=tmp_path)
    assert killed.code == -signal.SIGKILL
    check_one_line(left, names="rank 0 of 2")


@pytest.mark.slow  # it waits for a timeout
@pytest.mark.parametrize(("phase", "names"), [("before_it_joins", "this rank"), ("making_a_group", "rank 0 of 2")])
def test_a_rank_killed_before_the_others_reach_it_ends_them_after_the_timeout(tmp_path, phase, names):
    left, killed = ran("-m", "tests.parallel.lost_jobs", phase, 5, world=2, folder=tmp_path)
    assert killed.code == -signal.SIGKILL
    check_one_line(left, names=names)


@pytest.mark.slow  # it waits for a timeout
def test_a_rank_killed_while_it_connects_ends_the_others_after_the_timeout(tmp_path):
    """It has said where it is, and the other waits for its connection: gloo would, without end."""
    store = new_store()

    def start(rank, timeout_s):
        command = [sys.executable, "-m", "tests.parallel.lost_jobs", "in_the_optimizer", str(timeout_s)]
        return forked.popen(
            command, env=environment(store, rank=rank, world=2), cwd=tmp_path, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    keys = store.num_keys()
    with start(1, 3000) as killed:
        assert eventually(lambda: store.num_keys() > keys or killed.poll())
        killed.kill()
    assert killed.returncode == -signal.SIGKILL
    check_one_line(ended(start(0, 2)), names="this rank")


def test_a_rank_killed_while_it_leaves_is_missed_by_none(tmp_path):
    left, killed = ran("-m", "tests.parallel.lost_jobs", "while_it_leaves", 3000, world=2, folder=tmp_path)
    assert killed.code == -signal.SIGKILL
    assert (left.code, left.err) == (0, "")


def test_ranks_leave_with_a_model_that_outlives_the_job(tmp_path):
    for rank in ran("-m", "tests.parallel.lost_jobs", "with_its_model_left", 3000, world=2, folder=tmp_path):
        assert (rank.code, rank.err) == (0, "")


@pytest.mark.slow
def test_an_error_of_a_rank_that_communicates_ends_all(tmp_path):
    """That rank shuts Python down while gradients are on their way."""
    left, failed = ran("-m", "tests.parallel.lost_jobs", "its_own_error", 3000, world=2, folder=tmp_path, anew=True)
    assert failed.code and "ValueError: no more of these gradients" in failed.err
    check_one_line(left, names="rank 0 of 2")


def test_a_rank_with_fewer_batches_ends_the_others_with_a_line(tmp_path):
    """As soon as it has left."""
    (tmp_path / "timeout").write_text("3000")
    (tmp_path / "batches-1").write_text("3")
    left, through = ran("-m", "tests.parallel.jobs", tmp_path, world=2, folder=tmp_path)
    assert (through.code, through.err) == (0, "")
    check_one_line(left, names="rank 0 of 2")


@pytest.mark.slow  # it waits for a timeout
def test_a_rank_that_hangs_ends_the_others_after_the_timeout(tmp_path):
    (tmp_path / "timeout").write_text("15")
    left = lost_one(signal.SIGSTOP, world=3, folder=tmp_path)
    for number, rank in zip([0, 2], left, strict=True):
        check_one_line(rank, names=f"rank {number} of 3")
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


def test_groups_of_several_ranks_are_kept_once_one_is_lost(monkeypatch):
    """Those of one rank end as always."""
    monkeypatch.setattr(lost_ranks, "_kept", [])
    with pytest.raises(RankLost), ranks(timeout_s=30, device="cpu"):
        raise RuntimeError("Connection closed by peer")
    assert not lost_ranks._kept and not dist.is_initialized()


def test_groups_are_made_in_time(monkeypatch):
    monkeypatch.setattr(lost_ranks, "_SLOWER_BY_S", 0.0)
    assert made_in_time(lambda: 3, timeout_s=600) == 3
    with pytest.raises(ValueError, match="no such group"):
        made_in_time(lambda: (_ for _ in ()).throw(ValueError("no such group")), timeout_s=600)
    connected = threading.Event()
    line = (
        r"^rank 0 lost the connection to the others \(Timed out waiting 0\.1 s for another rank to connect\): another"
    )
    with pytest.raises(RankLost, match=line), lost_ranks_told(lambda: "rank 0"):
        made_in_time(connected.wait, timeout_s=0.1)
    connected.set()
