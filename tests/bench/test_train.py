"""bench train: what is compared, and how a step is taken apart."""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys

import pytest
import torch
from torch import nn

import dwconv
from bench import paired_steps, train
from bench.gpu import train as gpu_train
from bench.gpu.budget import Pace
from bench.models import Network
from bench.networks import where_layers_run, workloads_of
from bench.step_profile import profiles, table
from dwconv.errors import WorkerDied, WorkerTimeout
from dwconv.measure.clock.timing import Lap
from dwconv.measure.step_share import ratio_at_most
from tests.bench.gpu_runs import run_of
from tests.models import TinyNet

TINY = Network(name="Tiny", make=TinyNet, batch=3, sample=(3, 12, 12))

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]


def laps(lost=(0.0, 0.0, 0.0), **seconds):
    """The last of ``seconds`` lose most."""
    return {name: [Lap(seconds=s, lost=share) for s, share in zip(taken, lost, strict=True)]
            for name, taken in seconds.items()}  # fmt: skip


def test_ratios_are_of_steps_taken_in_turn():
    found = paired_steps.summary(laps(plain=[2.0, 4.0, 60.0], converted=[1.0, 2.0, 10.0]))
    assert found["ratio"]["median"] == 2.0 and found["ratio"]["quartiles"] == [2.0, 4.0]
    assert found["median_ms"] == {"plain": 4000.0, "converted": 2000.0}
    assert found["contention"] == 0


def test_steps_that_other_work_disturbed_do_not_count_unless_most_are():
    times = {"plain": [2.0, 4.0, 60.0], "converted": [1.0, 2.0, 10.0]}
    one_disturbed, most_disturbed = (paired_steps.summary(laps(lost, **times)) for lost in ((0, 0, 0.5), (0, 0.4, 0.5)))
    assert one_disturbed["median_ms"]["plain"] == 3000.0 and one_disturbed["contention"] == 0
    assert most_disturbed["median_ms"]["plain"] == 4000.0 and most_disturbed["contention"] == 0.3


def test_a_race_says_where_layers_ran_and_how_far_the_losses_are_apart(logs, tmp_path, capsys):
    out = tmp_path / "figures.json"
    options = ["--model", "tests.models:TinyNet", "--batch", "2", "--image", "12", "--steps", "3", "--warmup", "2"]
    assert paired_steps.main([*options, "--profile", "--out", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert figures["layers"] == {f"{pass_} pytorch": 3 for pass_ in ("fprop", "dgrad", "wgrad")}
    assert figures["loss_difference"]["converted"] == 0.0  # nothing is tuned: both run the same ops
    assert figures["steps"] == 3
    assert figures["ratio"]["at_most"] == ratio_at_most(figures["profile_ms"]["plain"]) > 1
    row = {"network": "TinyNet", "goal": 1.0, "allocator": "memory kept", **figures}
    assert "TinyNet" in train._line(row)
    assert "3 wgrad pytorch" in train._where([row, row])


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_a_race_in_mixed_precision_runs_in_it(logs, tmp_path, precision):
    out = tmp_path / "figures.json"
    options = ["--model", "tests.models:TinyNet", "--batch", "2", "--image", "12", "--steps", "2", "--warmup", "1"]
    assert paired_steps.main([*options, "--device", "cpu", "--autocast", precision, "--out", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert figures["layers"] == {f"{pass_} pytorch": 3 for pass_ in ("fprop", "dgrad", "wgrad")}
    assert figures["loss_difference"]["converted"] == 0.0 < figures["loss_difference"]["rounded"]
    (first, *_) = workloads_of(TINY, autocast=precision)
    assert (first.dtype, first.layout, first.batch) == (precision, "nhwc", TINY.batch)
    assert workloads_of(TINY, contiguous=True)[0].dtype == "float32"


def test_small_gradients_survive_float16():
    """Where the loss is not scaled they are zero."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(), nn.Linear(4 * 16, 2))
    with torch.no_grad():
        model[2].weight.mul_(1e-5)
    step = paired_steps.step_of(model, autocast="float16")
    seen = []
    model[0].register_forward_hook(lambda layer, inputs, result: seen.append(result.dtype))
    step(torch.randn(64, 3, 4, 4), torch.zeros(64, dtype=torch.long))
    assert set(seen) == {torch.float16}
    assert model[0].weight.grad.abs().max() > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_training_on_it_is_refused_in_one_line(capsys, tmp_path):
    assert train.main(["--device", "cuda"]) == 2
    assert (
        paired_steps.main(["--model", "tests.models:TinyNet", "--device", "cuda", "--out", str(tmp_path / "out")]) == 2
    )
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 2 and err.count("no GPU") == 2


def test_a_race_is_started_as_the_command_was_and_bounded(monkeypatch, tmp_path):
    seen = {}

    def started(command, *, env, check, timeout):
        seen.update(command=command, timeout=timeout)
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", started)
    with pytest.raises(WorkerTimeout, match="training Tiny: no end after 7 s"):
        train.raced(TINY, ["--autocast", "float16"], steps=3, environment={}, timeout_s=7.0)
    assert seen["timeout"] == 7.0 and seen["command"][-2:] == ["--autocast", "float16"]
    options = train.options_of(
        argparse.Namespace(contiguous=True, profile=False, compile=True, autocast="bfloat16", device="cuda")
    )
    assert options == ["--contiguous", "--compile", "--autocast", "bfloat16", "--device", "cuda"]
    assert train.allocators("cuda") == (train.GPU_ALLOCATOR,) and train._environment(train.GPU_ALLOCATOR, None)


# -- the stage train of bench cuda -----------------------------------------------------------------------------------

FIGURES = {
    "median_ms": {"plain": 22.0, "converted": 20.0},
    "ratio": {"median": 1.1, "quartiles": [1.05, 1.15], "at_most": 1.3},
    "layers": {"fprop dwconv": 2, "wgrad pytorch": 1},
    "loss_difference": {"converted": 1e-3, "rounded": 2e-3},
}


@pytest.fixture
def trained(tmp_path, monkeypatch):
    def train_networks(*answers, pace=None):
        asked, tuned, plan = [], [], list(answers)

        def raced(network, options, *, steps, environment, timeout_s):
            asked.append((network.name, options, environment["DWCONV_TUNING_LOGS"], timeout_s))
            answer = plan.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(gpu_train, "raced", raced)
        monkeypatch.setattr(gpu_train, "tune_all", lambda workloads, run, stage: tuned.append((workloads, run)))
        run = run_of(tmp_path, pace=pace)
        networks = [dataclasses.replace(TINY, name=name) for name in "AB"]
        ended = gpu_train.train_stage(run, networks=networks)
        run.state.flush()
        return ended, asked, tuned, run

    return train_networks


def test_two_networks_are_trained_in_mixed_precision_each_bounded(trained):
    ended, asked, ((workloads, tuning_run),), run = trained(FIGURES, FIGURES)
    assert [name for name, *_ in asked] == ["A", "B"] and not ended.failed
    for _, options, logs, timeout_s in asked:
        assert options == ["--device", "cpu", "--autocast", "float16"] and logs == str(run.log.path)
        assert 0 < timeout_s <= 120
    assert "A float16 20.0 ms, 1.10 times as fast (1.05 to 1.15, at most 1.30), 2 of 3 passes by dwconv" in ended.line
    assert {workload.dtype for workload in workloads} == {"float16"} and len(workloads) == 9
    sizes = [workload.bytes for workload in workloads]
    assert sizes == sorted(sizes, reverse=True) and tuning_run.pace.left_s <= 300 <= run.pace.left_s
    ended, asked, *_ = trained()
    assert asked == [] and ended.line.startswith("A float16 20.0 ms"), "it goes on where it stopped"


def test_a_network_that_fails_is_told_and_the_next_is_trained(trained):
    ended, asked, *_ = trained(WorkerDied("training A: it ended with code 1"), FIGURES)
    assert len(asked) == 2 and "A float16 failed: training A: it ended with code 1; B" in ended.line
    assert not ended.failed


def test_if_no_network_can_be_trained_the_run_fails(trained):
    assert trained(WorkerDied("boom"), WorkerTimeout("no end"))[0].failed


def test_training_that_does_not_fit_is_not_begun(trained):
    ended, asked, *_ = trained(pace=Pace(10, first_s=20))
    assert asked == [] and ended.line == "no network was trained; time is up, 2 of 2 left" and not ended.failed


def test_the_allocators_differ_in_nothing_else(logs, monkeypatch):
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    kept, usual = (train._environment(allocator, logs / "log.jsonl") for allocator in train.ALLOCATORS)
    assert {name for name in kept.keys() | usual.keys() if kept.get(name) != usual.get(name)} == set(
        train.settings.ALLOCATOR_ENVIRONMENT
    )
    assert usual["DWCONV_TUNING_LOGS"] == str(logs / "log.jsonl") and "MALLOC_TOP_PAD_" not in usual
    assert train._environment("memory kept", None)["DWCONV_TUNING_LOGS"] == str(logs), "as this process reads them"


def test_depthwise_layers_are_told_from_the_others():
    """One depthwise and one pointwise layer: each is found, and all of a step is accounted for."""
    model = nn.Sequential(nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 5, padding=2, groups=16), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(image, labels):
        loss = model(image).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    found = profiles({"plain": step}, torch.randn(2, 3, 24, 24), torch.zeros(2), count=2)["plain"]
    for kind in ("depthwise fprop", "depthwise backward", "pointwise, dense", "activation", "optimizer"):
        assert found[kind] > 0, found
    assert sum(taken for kind, taken in found.items() if kind != "step") == pytest.approx(found["step"])
    assert table({"plain": found, "converted": found}).splitlines()[-1].startswith("  step ")


def test_what_can_be_won_at_most_is_what_the_depthwise_layers_take():
    profile = {"depthwise fprop": 10.0, "depthwise backward": 15.0, "pointwise, dense": 70.0, "step": 100.0}
    assert ratio_at_most(profile) == 100 / 75
    assert ratio_at_most({"pointwise, dense": 100.0, "step": 100.0}) == 1


@pytest.mark.slow
def test_the_profiler_writes_nothing_between_the_figures():
    program = (
        "import torch\n"
        "with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]): torch.ones(3) + 1\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], env=train._environment("glibc as it is", None),
                           capture_output=True, text=True, check=True)  # fmt: skip
    assert (ended.stdout, ended.stderr) == ("", "")


def test_where_layers_run_is_told_without_changing_the_model(logs):
    model = TinyNet()
    dwconv.convert(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert where_layers_run(model, torch.randn(2, 3, 12, 12)) == {
        f"{pass_} pytorch": 3 for pass_ in ("fprop", "dgrad", "wgrad")
    }
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
