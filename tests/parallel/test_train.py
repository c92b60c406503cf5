"""``dwconv.parallel train``: it trains, bad input is one line of the first rank, and a lost rank ends all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from dwconv.parallel import joining, train
from dwconv.parallel.planning import for_ranks
from dwconv.parallel.planning.pipeline_plan import write_plan
from tests.parallel.made_up_layers import plan_of
from tests.parallel.ranks import ROOT, Ended, needs_gloo, ran

pytestmark = needs_gloo
MODEL = ("--model", "tests.parallel.small_models:SmallResNet", "--input", "8,3,8,8")
LAYERS = 9


class Raises(nn.Module):
    """On rank 1, once it has trained for a while."""

    left = 12

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if not self.left and os.environ["RANK"] == "1":
            raise ValueError("no room for this image\nand none for the next")
        return x


def raising() -> nn.Module:
    """Its first stage has no parameters."""
    return nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Linear(192, 4), Raises())


def failing() -> nn.Module:
    raise KeyError("no weights here")


@pytest.fixture(autouse=True)
def timed_in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(for_ranks, "COSTS_S", 0.05)


def train_on(world: int, *options: object, folder: Path) -> list[Ended]:
    """The ranks of the command, each after its end."""
    return ran("-m", "dwconv.parallel", "train", *options, world=world, folder=folder)


def run(*options: object) -> int | str | None:
    """The exit code of the only rank."""
    try:
        return train.main([*map(str, options)])
    except SystemExit as exit:  # argparse ends this way
        return exit.code


@pytest.mark.filterwarnings("ignore:other work took")
@pytest.mark.usefixtures("one_rank")
def test_alone_it_trains_with_one_stage(capsys):
    assert run(*MODEL, "--steps", 3, "--microbatches", 2) == 0
    out = capsys.readouterr().out
    assert "stage 0 on rank 0" in out
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", out)]
    assert len(losses) == 3 and all(0.5 < loss < 5 for loss in losses)
    assert "median of 2 steps" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--stages", 2), "world=1 is smaller than the 2 stages; every stage needs a rank of its own"),
        (("--stages", 2, "--replicas", 1), "2 stages, 1 a rank, with 1 replicas do not fit world=1; start 2 ranks"),
        (("--schedule", "fifo"), "schedule=fifo is unknown; use one of gpipe, 1f1b"),
        (("--microbatches", 3), "a batch of 8 is not divisible by microbatches=3"),
        (("--input", "8,3,8"), "input=8,3,8 is not four sizes"),
        (
            ("--model", f"{__name__}:failing"),
            f"model={__name__}:failing could not be made: KeyError: 'no weights here'",
        ),
        (("--input", "8,4,8,8"), "SmallResNet, at conv1, does not run on 4×4×8×8: RuntimeError: "),
        (("--plan", "nosuch.json"), "plan=nosuch.json cannot be read"),
        (("--timeout", "-1"), "-1 is not a number above 0"),
    ],
)
def test_bad_input_is_one_line(capsys, options, said):
    assert run(*MODEL, *options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1
    assert said in err


def test_a_plan_of_another_model_is_one_line(capsys, tmp_path):
    write_plan(plan_of([3]), tmp_path / "plan.json")
    assert run(*MODEL, "--plan", tmp_path / "plan.json") == 2
    assert "the plan is for 3 layers, and the model has 9" in capsys.readouterr().err


def test_ranks_but_the_first_say_nothing(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(joining, "_TO_PRINT_S", 0.0)
    assert run(*MODEL, "--frobnicate") == 2
    assert capsys.readouterr() == ("", "")


def test_a_rank_says_itself_that_it_has_no_gpu(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert run(*MODEL) == 2
    assert capsys.readouterr().err.startswith("error: rank 1 of this machine needs GPU 1, of 1")


def test_a_layer_that_raises_in_a_step_ends_all_with_one_line(tmp_path):
    write_plan(plan_of([2, 4], schedule="zero-bubble"), tmp_path / "plan.json")
    options = (
        "--model",
        f"{__name__}:raising",
        "--input",
        "8,3,8,8",
        "--steps",
        1000,
        "--plan",
        tmp_path / "plan.json",
    )
    left, raised = train_on(2, *options, "--timeout", 600, folder=tmp_path)
    assert (left.code, raised.code) == (2, 2)
    assert "step   1" in left.out
    (line,) = raised.err.splitlines()
    assert re.fullmatch(
        r"error: forward of microbatch \d in stage 1 of 2: ValueError: no room for this image and none for the next",
        line,
    )
    (line,) = left.err.splitlines()
    assert line.startswith("error: rank 0 of 2 lost the connection to the others")


@pytest.mark.slow
def test_torchrun_starts_it():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "dwconv.parallel", "train", *map(str, MODEL), "--steps", "2", "--replicas", "2"]
    command += ["--measure", "0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "1 × 2 ranks" in ended.stdout and "gradients are sent in buckets" in ended.stdout
