"""Training on data: by any form the same, also where it was cut off and went on; bad data is one line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import TensorDataset, get_worker_info

from dwconv.errors import BrokenInstallation, DataFailed, DwconvError, InvalidChoice, InvalidWorkload
from dwconv.parallel import train
from dwconv.parallel.planning import for_ranks
from dwconv.parallel.planning.pipeline_plan import write_plan
from dwconv.parallel.training import datasets, progress
from dwconv.parallel.training.batches import Batches
from dwconv.parallel.training.checkpoints import Checkpoints
from dwconv.parallel.training.datasets import FolderOfImages, load_data
from tests.parallel.made_up_layers import plan_of, uneven
from tests.parallel.ranks import ROOT, Ranks, needs_gloo

pytestmark = [pytest.mark.usefixtures("threads_as_asked"), needs_gloo]
BATCH = 8
LEARNS = ("--model", f"{__name__}:network", "--data", f"{__name__}:stripes", "--batch", BATCH, "--rate", 0.05)


def stripes() -> tuple[TensorDataset, TensorDataset]:
    """Images with a bright row or a bright column, to train on and held out: easy to classify."""
    numbers = torch.Generator().manual_seed(0)
    images = 0.3 * torch.randn(72, 3, 8, 8, generator=numbers)
    classes = torch.arange(72) % 2
    images[classes == 0, :, 3] += 2
    images[classes == 1, :, :, 3] += 2
    return TensorDataset(images[:48], classes[:48]), TensorDataset(images[48:], classes[48:])


def network() -> nn.Module:
    """No layer mixes images, so that every form of training computes the same."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, (1, 8)), nn.ReLU(),
        nn.Dropout(0.0), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip


def trained(*options: object) -> str:
    """What the command prints on this rank, without threads of its own."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(printed):
        patched.setattr(for_ranks, "COSTS_S", 0.05)
        assert train._train([*map(str, options)]) == 0
    return printed.getvalue()


def figures(printed: str) -> list[tuple[float, float, float]]:
    """Loss, accuracy and accuracy on what is held out, epoch by epoch."""
    found = re.findall(r"loss ([\d.]+) +accuracy +([\d.]+)% +held out +([\d.]+)%", printed)
    return [(float(loss), float(accuracy), float(held_out)) for loss, accuracy, held_out in found]


FORMS = {
    "data parallelism": (2, None),
    "2 stages": (2, plan_of([4, 8], schedule="1f1b", microbatches=4)),
    "2 + 1": (3, uneven([4, 8], [2, 1], microbatches=2)),
    "3 stages": (3, plan_of([2, 4, 8], schedule="gpipe", microbatches=4)),
}


@pytest.fixture(scope="module")
def alone() -> list[tuple[float, float, float]]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    printed = trained(*LEARNS, "--epochs", 3)
    torch.set_num_threads(before)
    return figures(printed)


@pytest.mark.filterwarnings("ignore:other work took")
@pytest.mark.parametrize("form", FORMS)
def test_every_form_learns_what_one_process_learns(alone, form, two_ranks: Ranks, three_ranks: Ranks, tmp_path):
    """From the same batches, in the same order."""
    world, plan = FORMS[form]
    options: tuple[object, ...] = ("--stages", 1, "--measure", 0)
    if plan is not None:
        write_plan(plan, tmp_path / "plan.json")
        options = ("--plan", tmp_path / "plan.json")
    first, *others = (two_ranks if world == 2 else three_ranks).run(trained, *LEARNS, "--epochs", 3, *options)
    assert not any(others), "the first rank alone prints"
    assert len(alone) == 3 and alone[-1][0] < 0.5 * alone[0][0] and alone[-1][2] > 90
    for found, expected in zip(figures(first), alone, strict=True):
        assert found[0] == pytest.approx(expected[0], abs=2e-3)
        assert found[1:] == pytest.approx(expected[1:], abs=5)
    assert "median of 17 steps" in first and ("gradients are sent" in first) == (plan is None)


@pytest.mark.parametrize("form", ["data parallelism", "2 stages"])
def test_a_run_that_was_cut_off_ends_as_one_that_was_not(form, two_ranks: Ranks, tmp_path):
    """In the middle of the second epoch; with masks of dropout, statistics and momentum."""
    _, plan = FORMS[form]
    model = ("--model", f"{__name__}:forgetful", *LEARNS[2:])
    options: tuple[object, ...] = ("--stages", 1, "--measure", 0)
    if plan is not None:
        write_plan(plan_of([4, 8], schedule="1f1b", microbatches=4), tmp_path / "plan.json")
        options = ("--plan", tmp_path / "plan.json")
    whole = two_ranks.run(trained, *model, *options, "--steps", 14, "--checkpoint", tmp_path / "whole")[0]
    cut = ("--checkpoint", tmp_path / "cut")
    two_ranks.run(trained, *model, *options, "--steps", 9, *cut, "--checkpoint-steps", 4)
    for file in (tmp_path / "cut").glob("step-9.rank-1-*"):  # a rank was killed before it wrote its own
        file.unlink()
    again = two_ranks.run(trained, *model, *options, "--steps", 14, *cut)[0]
    assert "goes on after step 8" in again
    assert figures(again)[-2:] == figures(whole)[-2:]
    one, other = (torch.load(tmp_path / name / "model.pt", weights_only=True) for name in ("cut", "whole"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert len([*(tmp_path / "whole").glob("step-*")]) == 4  # the last two of each rank


def forgetful() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3), nn.Conv2d(8, 8, (1, 8)),
        nn.ReLU(), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip


def test_a_step_is_drawn_as_measured_and_as_simulated(two_ranks: Ranks, tmp_path):
    write_plan(plan_of([4, 8], schedule="1f1b", microbatches=4), tmp_path / "plan.json")
    options = (*LEARNS, "--plan", tmp_path / "plan.json", "--checkpoint", tmp_path / "kept")
    for steps in (4, 8):  # a run that goes on draws one of its own steps
        printed = two_ranks.run(trained, *options, "--steps", steps, "--timeline", tmp_path / f"step-{steps}")[0]
        assert ("goes on after step 4" in printed) == (steps == 8)
        assert f"timeline: {tmp_path / f'step-{steps}.json'}" in printed
    drawn = json.loads((tmp_path / "step-8.json").read_text())["traceEvents"]
    names = {each["args"]["name"] for each in drawn if each["name"] == "process_name"}
    assert names == {f"rank {rank} · stage {rank} · {step}" for rank in (0, 1) for step in ("measured", "simulated")}


class Unused(nn.Sequential):
    """With a parameter that gets no gradient."""

    def __init__(self) -> None:
        super().__init__(*network())
        self.shift = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.shift.detach()


def test_a_parameter_without_a_gradient_is_left_alone(two_ranks: Ranks, tmp_path):
    """By any form of training, and where the way of gradients is measured."""
    options = ("--model", f"{__name__}:Unused", *LEARNS[2:], "--steps", 3)
    write_plan(plan_of([9], replicas=2, microbatches=2), tmp_path / "plan.json")
    for form in (("--stages", 1, "--measure", 0.2), ("--plan", tmp_path / "plan.json", "--measure", 0.2)):
        folder = tmp_path / str(form[0])
        assert "median of 2 steps" in two_ranks.run(trained, *options, *form, "--checkpoint", folder)[0]
        state = torch.load(folder / "model.pt", weights_only=True)
        assert torch.equal(state["shift"], torch.ones(2)) and len(state) == 9


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_run_is_one_line(one_rank, tmp_path):
    Checkpoints(tmp_path, about={"--batch": "8"}).save(3, {"model": {}})
    with pytest.raises(InvalidChoice, match=r"was written with --batch 8, and this run has 9; name another folder"):
        Checkpoints(tmp_path, about={"--batch": "9"}).newest()
    state = Checkpoints(tmp_path, about={"--batch": "8"}).newest()
    assert state is not None and state["step"] == 3
    (tmp_path / "step-3.rank-0-of-1.pt").write_bytes(b"torn")
    with pytest.raises(DataFailed, match=r"step-3\.rank-0-of-1\.pt cannot be read; remove it"):
        Checkpoints(tmp_path, about={}).newest()
    (tmp_path / "step-3.rank-0-of-1.pt").rename(tmp_path / "step-3.rank-0-of-4.pt")
    with pytest.raises(InvalidChoice, match="is of 4 ranks, and 1 run; start as many"):
        Checkpoints(tmp_path, about={}).newest()
    (tmp_path / "file").touch()
    with pytest.raises(DataFailed, match=r"--checkpoint: .* cannot be made: "):
        Checkpoints(tmp_path / "file" / "folder", about={})


def test_what_one_rank_alone_has_does_not_take_the_place_of_what_all_have(one_rank, tmp_path, monkeypatch):
    """The other rank was killed before it wrote step 9; then one of both before it writes step 12."""
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    others = {4, 8}

    def with_the_other(everyones: list[Any], mine: Any) -> None:
        everyones[:] = [mine, (others, set())]

    monkeypatch.setattr(dist, "all_gather_object", with_the_other)
    kept = Checkpoints(tmp_path, about={})
    for step in (4, 8, 9):
        kept.save(step, {})
    for _ in range(2):
        state = kept.newest()
        assert state is not None and state["step"] == 8
        kept.save(12, {})


# -- progress ----------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stderr", [Terminal, io.StringIO])
@pytest.mark.parametrize("shows", [True, False])
def test_the_first_rank_shows_how_far_it_is(monkeypatch, stderr, shows):
    """By a bar on a terminal, else by lines."""
    monkeypatch.setattr(sys, "stderr", stderr())
    monkeypatch.setattr(progress, "_SILENT_S", 0.0)
    with progress.StepsDone(30, shows=shows) as done:
        done(7, 0.25)
        done(8, 0.125)
    printed = sys.stderr.getvalue()
    assert bool(printed) == shows
    assert ("8/30" in printed and "loss 0.1250" in printed) == (shows and stderr is Terminal)
    assert ("note: step 8 of 30, loss 0.1250\n" in printed) == (shows and stderr is io.StringIO)


# -- data --------------------------------------------------------------------------------------------------------------


def test_digits_come_with_scikit_learn():
    pytest.importorskip("sklearn")
    data = load_data("digits", size=None)
    assert (len(data.train), len(data.held_out)) == (1617, 180)
    image, label = data.train[0]
    assert image.shape == (3, 32, 32) and float(image.min()) >= -1 and float(image.max()) <= 1 and label in range(10)


@pytest.mark.parametrize(("name", "package"), [("digits", "scikit-learn"), (".", "Pillow")])
def test_a_package_that_is_missing_is_one_line(monkeypatch, name, package):
    def missing(module: str) -> Any:
        raise ModuleNotFoundError(name=module.partition(".")[0])

    monkeypatch.setattr(datasets.importlib, "import_module", missing)
    with pytest.raises(
        BrokenInstallation, match=rf"{package} is not installed, which .* pip install 'dwconv\[train\]'"
    ):
        load_data(name, size=None)


def make_images(folder: Path, *, classes: tuple[str, ...], count: int) -> None:
    from PIL import Image

    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for each in range(count):
            Image.fromarray(np.full((20, 30, 3), 255 * number, np.uint8)).save(folder / name / f"{each}.png")


def test_a_folder_of_images(tmp_path):
    pytest.importorskip("PIL")
    make_images(tmp_path / "all", classes=("black", "white"), count=10)
    (tmp_path / "all" / "black" / "notes.txt").write_text("no image")
    data = load_data(str(tmp_path / "all"), size=6)
    assert (len(data.train), len(data.held_out)) == (18, 2)
    found = {(float(image.mean()), label) for image, label in map(data.train.__getitem__, range(18))}
    assert found == {(-1.0, 0), (1.0, 1)} and data.train[0][0].shape == (3, 6, 6)
    make_images(tmp_path / "split" / "train", classes=("black", "white"), count=2)
    make_images(tmp_path / "split" / "val", classes=("white",), count=3)
    split = load_data(str(tmp_path / "split"), size=6)
    assert (len(split.train), len(split.held_out)) == (4, 3)
    with pytest.raises(InvalidWorkload, match="the class white is not among those to train on"):
        FolderOfImages(tmp_path / "split" / "val", size=6, classes=["black"])
    with pytest.raises(InvalidWorkload, match="has no images in folders named for their classes"):
        load_data(str(tmp_path / "all" / "white"), size=6)
    (tmp_path / "all" / "white" / "1.png").write_bytes(b"\x89PNG torn")
    with pytest.raises(DataFailed, match=r"image .*1\.png cannot be read"):
        [data.train[number] for number in range(18)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "nosuch",
            "data=nosuch is unknown, and no folder; write digits, a folder of images, or package",
        ),
        ("no.such:thing", "data=no.such:thing: there is no module no; write digits"),
        (f"{__name__}:nothing", "has no nothing; name a class or function of it"),
        (f"{__name__}:endless", "made a generator, which has no length or no items"),
    ],
)
def test_data_that_cannot_be_is_one_line(name, said):
    with pytest.raises(InvalidWorkload, match=re.escape(said)):
        load_data(name, size=None)


def endless() -> Any:
    yield 1


@pytest.mark.filterwarnings("ignore:other work took")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--batch", 100), "data has 48 images, fewer than the batch of 100"),
        (("--data", f"{__name__}:odd_classes"), "the data has a class 7, and the model gives 2 classes, from 0 on"),
        (("--data", f"{__name__}:no_classes"), "the class of an image is no whole number"),
        (("--data", f"{__name__}:images_alone"), "an item of the data is no pair of an image"),
        (("--data", f"{__name__}:broken"), "of the data cannot be loaded: ValueError: no such pixel"),
        (
            ("--data", f"{__name__}:broken_in_workers", "--workers", 1),
            "of the data cannot be loaded: ValueError: no such pixel",
        ),
        (("--input", "8,3,8,8"), "--input makes images up, of its sizes; leave out --data, or --input"),
        (("--timeline", "step"), "--timeline shows a step of a pipeline"),
    ],
)
def test_bad_data_is_one_line(one_rank, monkeypatch, capsys, tmp_path, options, said):
    monkeypatch.setattr(for_ranks, "COSTS_S", 0.02)
    monkeypatch.chdir(tmp_path)
    assert train.main([*map(str, (*LEARNS, *options))]) == 2
    err = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(err) == 1 and said in err[0] and "Traceback" not in err[0]


def odd_classes() -> TensorDataset:
    return TensorDataset(stripes()[0].tensors[0], torch.full((48,), 7))


def no_classes() -> TensorDataset:
    return TensorDataset(stripes()[0].tensors[0], torch.rand(48))


class Broken(TensorDataset):
    def __getitem__(self, number: int) -> tuple[Tensor, ...]:
        if number == 7 and (get_worker_info() is not None or not self.in_workers):
            raise ValueError("no such pixel")
        return super().__getitem__(number)


def broken(*, in_workers: bool = False) -> TensorDataset:
    found = Broken(*stripes()[0].tensors)
    found.in_workers = in_workers
    return found


def broken_in_workers() -> TensorDataset:
    return broken(in_workers=True)


def images_alone() -> Tensor:
    return stripes()[0].tensors[0]


# -- data that differs from rank to rank -------------------------------------------------------------------------------


def refused(*options: object) -> str:
    """What the command says on this rank of bad input."""
    try:
        return trained(*options)
    except DwconvError as error:
        return str(error)


def fewer_on_one() -> TensorDataset:
    return TensorDataset(*(each[: 48 - 8 * dist.get_rank()] for each in stripes()[0].tensors))


def missing_on_one() -> TensorDataset:
    if dist.get_rank() == 1:
        raise FileNotFoundError("no photos here")
    return stripes()[0]


def test_data_that_differs_from_rank_to_rank_is_one_line(two_ranks: Ranks):
    said = two_ranks.run(refused, *LEARNS, "--data", f"{__name__}:fewer_on_one")
    line = "rank 1 has 40 images to train on where rank 0 has 48 images to train on; give every rank the same data"
    assert said == [line, line]
    first, second = two_ranks.run(refused, *LEARNS, "--data", f"{__name__}:missing_on_one")
    assert first == second and first.startswith(f"on rank 1: data={__name__}:missing_on_one could not be made")
    first, second = two_ranks.run(refused, *LEARNS, "--model", "nosuch")
    assert first.startswith("model=nosuch") and second == "see the first rank"


def test_ranks_load_their_shares_of_one_order():
    """Another in each epoch; the rest of it, from a batch on."""
    images = TensorDataset(torch.arange(10.0), torch.arange(10))

    def epoch(number: int, rank: int, first: int = 0) -> list[list[int]]:
        made = Batches(images, size=4, share=lambda batch: batch.chunk(2)[rank], device=torch.device("cpu"), seed=1)
        return [target.tolist() for _, target in made.of_epoch(number, first=first)]

    halves = [epoch(0, 0), epoch(0, 1)]
    assert [len(each) for each in halves] == [2, 2]
    drawn = [number for each in zip(*halves, strict=True) for half in each for number in half]
    assert len({*drawn}) == 8 and epoch(1, 0) != halves[0] == epoch(0, 0)
    assert epoch(0, 1, first=1) == halves[1][1:]


# -- a rank that is killed ---------------------------------------------------------------------------------------------


class Killing(TensorDataset):
    """Kills the second rank, once, in the middle of an epoch."""

    left = 48

    def __getitem__(self, number: int) -> tuple[Tensor, ...]:
        self.left -= 1
        killed = Path(os.environ["KILLED"])
        if not self.left and os.environ["RANK"] == "1" and not killed.exists():
            killed.touch()
            os._exit(9)
        return super().__getitem__(number)


def killing() -> TensorDataset:
    return Killing(*stripes()[0].tensors)


@pytest.mark.slow
def test_torchrun_restarts_ranks_which_go_on(tmp_path):
    """Nothing is lost but the step."""
    options = (*LEARNS, "--data", f"{__name__}:killing", "--epochs", 3, "--stages", 2, "--microbatches", 4)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", "-m", "dwconv.parallel", "train", *map(str, options)]
    command += ["--checkpoint", str(tmp_path / "kept")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "KILLED": str(tmp_path / "killed"), "DWCONV_NATIVE": "0"}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "killed").exists()
    (resumed,) = re.findall(r"goes on after step (\d+)", ended.stdout)
    assert 1 <= int(resumed) <= 5
    epochs = re.findall(r"epoch +(\d) of 3", ended.stdout)
    assert epochs == ["1", "2", "3"]
