"""Ranks meet and end together. ``test_train`` starts them with torchrun, too."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from dwconv.errors import DwconvError, InvalidChoice, InvalidSetting, NoDevice
from dwconv.parallel import ranks, run
from tests.parallel.ranks import needs_gloo

pytestmark = needs_gloo


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
