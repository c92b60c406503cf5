"""bench train: what is compared, and how a step is taken apart."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import importlib.util
import json
import subprocess
import sys
from collections import Counter

import pytest
import torch
from torch import nn

import dwconv
from bench import networks, paired_steps, train
from bench.__main__ import main
from bench.gpu import train as gpu_train
from bench.gpu.run import Pace
from bench.launched import passes_of, why_misnamed
from bench.networks import network_from, where_layers_run
from bench.step_rows import profiles, summary, table, table_of
from dwconv.errors import InvalidWorkload, WorkerDied, WorkerTimeout
from dwconv.measure.clock.timing import Lap
from dwconv.measure.step_share import ratio_at_most
from tests.bench.gpu_runs import run_of
from tests.bench.small_networks import TINY
from tests.models import TinyNet
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]


def laps(lost=(0.0, 0.0, 0.0), **seconds):
    """The last of ``seconds`` lose most."""
    return {name: [Lap(seconds=s, lost=share) for s, share in zip(taken, lost, strict=True)]
            for name, taken in seconds.items()}  # fmt: skip


def test_ratios_are_of_steps_taken_in_turn():
    found = summary(laps(plain=[2.0, 4.0, 60.0], converted=[1.0, 2.0, 10.0]))
    assert found["ratio"]["median"] == 2.0 and found["ratio"]["quartiles"] == [2.0, 4.0]
    assert found["median_ms"] == {"plain": 4000.0, "converted": 2000.0}
    assert found["contention"] == 0


def test_steps_that_other_work_disturbed_do_not_count_unless_most_are():
    times = {"plain": [2.0, 4.0, 60.0], "converted": [1.0, 2.0, 10.0]}
    one_disturbed, most_disturbed = (summary(laps(lost, **times)) for lost in ((0, 0, 0.5), (0, 0.4, 0.5)))
    assert one_disturbed["median_ms"]["plain"] == 3000.0 and one_disturbed["contention"] == 0
    assert most_disturbed["median_ms"]["plain"] == 4000.0 and most_disturbed["contention"] == 0.3


def test_kernels_that_a_step_runs_are_seen_called_and_compiled(logs):
    x = torch.randn(2, 8, 9, 9)
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(), nn.Conv2d(8, 8, 1))
    plant(logs / "log.jsonl", [workload_of(shape=(2, 8, 9, 9), layout="nchw", bias=True)], template_layout="nchw")
    converted = dwconv.convert(copy.deepcopy(model))
    layers = where_layers_run(converted, x)
    assert layers == {"fprop dwconv": 1, "wgrad dwconv": 1}
    compiled = torch.compile(converted, backend="aot_eager")
    compiled(x).sum().backward()
    for ours in (converted, compiled):
        assert why_misnamed(lambda ours=ours: ours(x).sum().backward(), layers, on_gpu=False) == ""
    theirs = why_misnamed(lambda: model(x).sum().backward(), layers, on_gpu=False)
    assert theirs == "dwconv's kernels ran fprop 0 of 1 times, wgrad 0 of 1 times"


def test_pytorchs_own_convolution_inside_an_op_of_dwconvs_is_no_kernel_of_ours(logs):
    """Compiled code has the op whoever runs it, and here nothing is tuned."""
    x = torch.randn(2, 8, 9, 9)
    compiled = torch.compile(dwconv.convert(nn.Sequential(nn.Conv2d(8, 8, 3, groups=8))), backend="aot_eager")

    def step():
        compiled(x).sum().backward()

    step()
    assert passes_of(step, on_gpu=False) == Counter()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_training_on_it_is_refused_in_one_line(capsys, tmp_path):
    assert main(["train", "--device", "cuda"]) == 2
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
        argparse.Namespace(
            contiguous=True, profile=False, compile=True, blocks=False, graphs=True, autocast="bfloat16", device="cuda"
        )
    )
    assert options == ["--contiguous", "--compile", "--autocast", "bfloat16", "--graphs", "--device", "cuda"]
    assert train.allocators("cuda") == (train.GPU_ALLOCATOR,) and train._environment(train.GPU_ALLOCATOR, None)


def test_ratios_under_torch_compile_are_over_plain_and_over_inductor():
    taken = {"plain": [12.0] * 3, "converted": [6.0] * 3, "plain + inductor": [4.0] * 3,
             "converted + inductor": [1.0, 2.0, 4.0]}  # fmt: skip
    found = summary(laps(**taken))
    assert found["ratio"]["median"] == 2
    assert {name: each["median"] for name, each in found["compiled"].items()} == {
        "plain + inductor": 3.0,
        "converted + inductor": 6.0,
    }
    over = found["inductor"]
    assert (over["median"], over["quartiles"]) == (2.0, [1.5, 3.0]) and over["interval"] == [1.0, 4.0]
    assert not {"compiled", "inductor"} & summary(laps(plain=[2.0] * 3, converted=[1.0] * 3)).keys()


def test_steps_as_graphs_are_compared_with_each_other_and_with_the_best_other():
    taken = {"plain": 12.0, "converted": 10.0, "plain + graphs": 6.0, "converted + graphs": 4.0, "blocks + graphs": 3.0}
    found = summary(laps(**{name: [seconds] * 3 for name, seconds in taken.items()}))
    assert found["graphs"]["median"] == 1.5 and found["graphed"]["converted + graphs"]["median"] == 3
    assert found["graphed_blocks"]["plain + graphs"]["median"] == 2
    assert (found["best_ours"], found["best_other"]) == ("blocks + graphs", "plain + graphs")
    kinds = {kind: (each["best_ours"], each["over_best_other"]) for kind, each in found["kinds"].items()}
    assert kinds == {"eager": ("converted", 1.2), "graphed": ("blocks + graphs", 2.0)}, "none was compiled"


def test_blocks_are_compared_with_all_others_eager_and_compiled():
    taken = {"plain": 12.0, "blocks": 6.0, "plain + inductor": 8.0, "blocks + inductor": 4.0, "converted": 10.0}
    taken["converted + inductor"] = 6.0
    found = summary(laps(**{name: [seconds] * 3 for name, seconds in taken.items()}))
    assert found["blocks"]["plain"]["median"] == 2 and found["compiled_blocks"]["plain + inductor"]["median"] == 2
    assert found["compiled_blocks"]["blocks"]["median"] == 1.5 and "blocks + inductor" in found["compiled"]
    assert found["best_ours"] == "blocks + inductor" and found["best_other"] == "plain + inductor"
    assert found["over_best_other"] == 2 and found["over_best_other_interval"] == [2.0, 2.0]
    assert "verdict" not in found, "there is no control"


def test_a_race_against_itself_is_the_control_of_its_row():
    taken = {"plain": [10.0] * 3, "plain again": [12.0] * 3, "converted": [9.0] * 3, "plain, other layout": [8.0] * 3}
    found = summary(laps(**taken))
    assert found["control"]["ratio"] == pytest.approx(10 / 12) and found["ratio_interval"] == [10 / 9, 10 / 9]
    assert found["best_other"] == "plain, other layout" and found["over_best_other"] == pytest.approx(8 / 9)
    assert found["verdict"] == "tie", "8/9 is nearer to 1 than 10/12"
    assert found["layouts"]["plain, other layout"]["median"] == 10 / 8
    assert summary(laps(**taken | {"plain again": [10.0] * 3}))["verdict"] == "slower"


def test_the_table_of_a_network_has_every_model_and_what_it_keeps():
    taken = {"plain": 12.0, "plain again": 12.0, "converted": 6.0, "plain + inductor": 8.0, "blocks": 4.0}
    found = summary(laps(**{name: [seconds] * 3 for name, seconds in taken.items()}))
    found["ratio"]["at_most"] = 7.25
    row = {
        "network": "Net",
        "goal": 1.5,
        "allocator": "memory kept",
        **found,
        "kept_bytes": {"plain": 4 << 20, "blocks": 2 << 20},
    }
    row["refused"] = {"blocks + inductor": "no compiler"}
    of_gpu = {"host_ms": 9.0, "step_ms": 10.0, "kernels_ms": 4.0, "launches": 40, "busy": 0.4, "roads": {"C++": 17}}
    row |= {"on_gpu": {"converted": of_gpu}, "native": "C++"}
    first, control, head, *lines = table_of(row).splitlines()
    assert first == "Net, memory kept: at most 7.25, goal 1.50, 3 steps"
    assert control == "  control: plain against itself 1.000 (1.000 to 1.000)" and head.split()[0] == "ms"
    assert [" ".join(line.split()) for line in lines] == [
        "plain 12000.0 4.0",
        "converted 6000.0 2.00 2.00 to 2.00 2.00 to 2.00",
        "plain + inductor 8000.0 1.50 1.50 to 1.50 1.50 to 1.50",
        "blocks 4000.0 3.00 3.00 to 3.00 3.00 to 3.00 2.0",
        "blocks + inductor did not race: no compiler",
        "blocks over plain + inductor: 2.00 (2.00 to 2.00), faster",
        "blocks over plain: 3.00 (3.00 to 3.00), faster",
        "forward + backward host ms kernels ms launches busy calls of layers",
        "converted 9.00 4.00 40 40% 17 C++",
        "calls that C++ can run go through C++",
    ]


@pytest.mark.skipif(importlib.util.find_spec("timm") is not None, reason="timm is installed")
def test_without_timm_it_says_what_to_install(capsys):
    assert main(["train", "--model", "timm:mobilenetv3_small_100", "--dry-run"]) == 2
    assert capsys.readouterr().err == "error: timm is not installed; pip install timm\n"


def test_models_of_timm_are_trained_at_their_own_size(monkeypatch):
    made = nn.Conv2d(3, 2, 1)
    made.default_cfg = {"input_size": (3, 240, 240)}
    monkeypatch.setattr(networks, "load_model", lambda name: made)
    found = network_from(argparse.Namespace(model="timm:net", batch=2, image=None))
    assert (found.name, found.sample, found.batch, found.make()) == ("timm:net", (3, 240, 240), 2, made)
    assert network_from(argparse.Namespace(model="timm:net", batch=2, image=64)).sample == (3, 64, 64)
    del made.default_cfg
    assert network_from(argparse.Namespace(model="torchvision:net", batch=2, image=None)).sample == (3, 224, 224)


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def trained_here(monkeypatch, tmp_path, capsys):
    """What the command writes and prints if races take what is planted."""

    def train_with(*answers, options=()):
        asked, plan = [], list(answers)

        def raced(network, options, *, steps, environment):
            asked.append(options)
            answer = plan.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return {**answer, "layers": {}, "loss_difference": {"converted": 0.0, "rounded": 0.0}}

        monkeypatch.setattr(train, "raced", raced)
        arguments = ["--model", "MobileNetV2", "--seconds", "0", "--no-profile", "--out", str(tmp_path), *options]
        code = main(["train", *arguments])
        written = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
        return code, written, capsys.readouterr(), asked

    return train_with


def figures_of(converted, again=10.0):
    taken = {"plain": 10.0, "plain again": again, "converted": converted}
    found = summary(laps(**{name: [seconds] * 3 for name, seconds in taken.items()}))
    found["ratio"]["at_most"] = 2.0
    return found


def test_it_writes_what_races_showed_and_the_widest_of_their_controls(trained_here):
    code, (written,), (out, _), asked = trained_here(figures_of(8.0, again=10.5), figures_of(10.4, again=9.0))
    assert code == 0 and written["benchmark"] == "train-mobilenetv2-compile-blocks-nhwc"
    assert [row["verdict"] for row in written["rows"]] == ["faster", "tie"], "each by its own control"
    assert written["control"]["interval"] == pytest.approx([10 / 10.5, 10 / 9])
    assert written["machine"]["threads"] >= 1
    assert out.index("control: plain against itself 0.952") < out.index(
        "slower than the best other: 0 of 2 rows; ties 1"
    )
    for options in asked:
        assert {"--compile", "--blocks", "--both-layouts", "--control"} <= set(options) and "--profile" not in options


def test_a_race_that_dies_costs_its_own_row(trained_here):
    code, (written,), (out, _), _ = trained_here(figures_of(8.0), WorkerDied("it ended with code 1"))
    assert code == 0 and written["rows"][1]["failed"] == "it ended with code 1" and "failed 1" in out
    assert trained_here(WorkerDied("boom"), WorkerDied("boom"))[0] != 0


def test_a_race_without_the_kernels_that_it_names_is_void(trained_here):
    misnamed = {"converted": "dwconv's kernels ran fprop 0 of 3 times"}
    code, (written,), (out, _), _ = trained_here({**figures_of(8.0), "misnamed": misnamed}, figures_of(8.0))
    assert code == 0 and "failed 1" in out
    assert written["rows"][0]["failed"] == "converted: dwconv's kernels ran fprop 0 of 3 times"


def test_parts_may_be_left_out(trained_here):
    *_, asked = trained_here(figures_of(8.0), figures_of(8.0), options=["--no-compile", "--no-blocks"])
    assert not {"--compile", "--blocks"} & set(asked[0])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "train-nhwc"),
        ({"contiguous": True}, "train-nchw"),
        ({"dims": "3", "autocast": "bfloat16"}, "train-3d-bfloat16-nhwc"),
        ({"dims": "1", "compile": True}, "train-1d-compile-nhwc"),
        ({"model": "Mamba-like"}, "train-mamba-like-nhwc"),
        ({"model": "my.models:Net"}, "train-my-models-net-nhwc"),
        ({"device": "cuda"}, "train-graphs-nhwc"),
    ],
)
def test_results_of_other_kinds_have_other_names(options, name):
    defaults = {"model": None, "dims": "2", "autocast": None, "compile": False, "blocks": False, "contiguous": False,
                "graphs": True, "device": "cpu"}  # fmt: skip
    assert train.results_name(argparse.Namespace(**(defaults | options))) == name


def test_networks_are_named_or_taken_by_their_dimensions():
    assert [network.name for network in train.of_dims(1)] == ["Mamba-like"]
    assert [network.name for network in train.of_dims(3)] == ["X3D-S-like", "MedNeXt-S-like"]
    asked = argparse.Namespace(model="X3D-S-like", batch=1, image=64)
    assert (network_from(asked).batch, network_from(asked).sample) == (1, (3, 13, 64, 64))


def test_sequences_have_no_height(capsys, tmp_path):
    with pytest.raises(InvalidWorkload, match="--image 64: Mamba-like takes sequences, which have no height"):
        network_from(argparse.Namespace(model="Mamba-like", batch=None, image=64))
    assert main(["train", "--model", "Mamba-like", "--image", "64"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


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
        compared = lambda workloads, run, stage, only_unknown: tuned.append((workloads, run))  # noqa: E731
        monkeypatch.setattr(gpu_train, "compare_starts", compared)
        run = run_of(tmp_path, pace=pace)
        networks = [dataclasses.replace(TINY, name=name) for name in "AB"]
        ended = gpu_train.train_stage(run, networks=networks, types=("float16",))
        run.state.flush()
        return ended, asked, tuned, run

    return train_networks


def test_two_networks_are_trained_in_mixed_precision_each_bounded(trained):
    ended, asked, ((workloads, tuning_run), *_), run = trained(FIGURES, FIGURES, FIGURES)
    assert [name for name, *_ in asked] == ["A", "B", "A"] and not ended.failed
    for (_, options, logs, timeout_s), last in zip(asked, ("--graphs", "--graphs", "--compile"), strict=True):
        assert options[:4] == ["--device", "cpu", "--autocast", "float16"] and logs == str(run.log.path)
        assert options[-1] == last and 0 < timeout_s <= 300
    assert "A float16 20.0 ms, 1.10 times as fast (1.05 to 1.15, at most 1.30), 2 of 3 passes by dwconv" in ended.line
    assert {workload.dtype for workload in workloads} == {"float16"} and len(workloads) > 9
    sizes = [workload.bytes for workload in workloads]
    assert sizes == sorted(sizes, reverse=True) and tuning_run.pace.left_s <= 300 <= run.pace.left_s
    ended, asked, *_ = trained()
    assert asked == [] and ended.line.startswith("A float16 20.0 ms"), "it goes on where it stopped"


def test_a_network_that_fails_is_reported_and_the_next_is_trained(trained):
    died = WorkerDied("training A: it ended with code 1")
    ended, asked, *_ = trained(died, died, FIGURES, died)
    assert len(asked) == 4 and "A float16 failed: training A: it ended with code 1; B" in ended.line
    assert not ended.failed
    assert ("--graphs" in asked[0][1], "--graphs" in asked[1][1]) == (True, False), "a capture may break a process"


def test_a_network_without_the_kernels_that_its_row_names_fails(trained):
    misnamed = {"converted": "dwconv's kernels ran fprop 0 of 2 times"}
    ended, *_ = trained(*[{**FIGURES, "misnamed": misnamed}] * 3)
    assert ended.failed and "A float16 failed: converted: dwconv's kernels ran fprop 0 of 2 times; B" in ended.line


def test_if_no_network_can_be_trained_the_run_fails(trained):
    assert trained(*[WorkerDied("boom"), WorkerTimeout("no end")] * 3)[0].failed


def test_training_that_does_not_fit_is_not_begun(trained):
    ended, asked, *_ = trained(pace=Pace(10, first_s=20))
    assert asked == [] and ended.line == "no network was trained; time is up, 3 of 3 left" and not ended.failed


def test_the_allocators_differ_in_nothing_else(logs, monkeypatch):
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    kept, usual = (train._environment(allocator, logs / "log.jsonl") for allocator in train.ALLOCATORS)
    assert {name for name in kept.keys() | usual.keys() if kept.get(name) != usual.get(name)} == set(
        train.settings.ALLOCATOR_ENVIRONMENT
    )
    assert usual["DWCONV_TUNING_LOGS"] == str(logs / "log.jsonl") and "MALLOC_TOP_PAD_" not in usual
    assert train._environment("memory kept", None)["DWCONV_TUNING_LOGS"] == str(logs), "as this process reads them"


def test_depthwise_layers_are_distinguished_from_the_others():
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
    ended = subprocess.run([sys.executable, "-c", program], env=train._environment(train.APART, None),
                           capture_output=True, text=True, check=True)  # fmt: skip
    assert (ended.stdout, ended.stderr) == ("", "")


def test_finding_where_layers_run_does_not_change_the_model(logs):
    model = TinyNet()
    dwconv.convert(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert where_layers_run(model, torch.randn(2, 3, 12, 12)) == {
        f"{pass_} pytorch": 3 for pass_ in ("fprop", "dgrad", "wgrad")
    }
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
