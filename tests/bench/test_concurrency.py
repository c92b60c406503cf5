"""bench concurrency: steps by every schedule in turns, what is printed of them, and the networks."""

from __future__ import annotations

import itertools
import json
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from bench.__main__ import main
from bench.concurrency import bench
from bench.concurrency.models import (
    DCGAN,
    NETWORKS,
    Classifier,
    InceptionBlock,
    InceptionNeXt,
    InceptionV2,
    MetaNeXtBlock,
    TrainedNetwork,
)
from bench.concurrency.shown import lines, summary
from bench.concurrency.steps import ScheduledStep, SgdSteps, loss_differences, tried_by_hand
from bench.concurrency.times import accuracy, measured_models
from dwconv.concurrency import timed_schedules
from dwconv.measure.clock.timing import Lap
from tests.made_up_graphs import curve


class TwoBranches(nn.Module):
    """A small network with convolutions that can run side by side."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        return self.head((self.norm(self.left(x)).relu() + self.right(x).tanh()).mean((2, 3)))


TINY = TrainedNetwork(
    name="Tiny",
    make=lambda: Classifier(TwoBranches()),
    data=lambda: (torch.randn(2, 3, 12, 12), torch.randint(0, 10, (2,))),
)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


COMBINED = [
    "S1", "S2", "S3", "S4", "S1+S2", "S1+S3", "S1+S4", "S2+S3", "S2+S4", "S3+S4", "S1+S2+S3", "S1+S2+S4", "S1+S3+S4",
    "S2+S3+S4", "S1+S2+S3+S4",
]  # fmt: skip


@pytest.fixture
def quick(monkeypatch, two_threads):
    """A tiny network, few turns, and a backend in inductor's place that needs no compiler."""
    monkeypatch.setattr(bench, "NETWORKS", (TINY,))
    monkeypatch.setattr(bench, "_LEAST_TURNS", 2)
    monkeypatch.setattr(bench, "_MOST_TURNS", 2)
    monkeypatch.setattr(bench, "_INDUCTOR", "aot_eager")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_every_way_to_run_a_step_is_measured_and_a_second_run_continues(tmp_path, capsys):
    """Traces and measures for real: some seconds."""
    command = ["concurrency", "--seconds", "3", "--out", str(tmp_path)]
    assert main(command) == 0
    (path,) = tmp_path.glob("concurrency-*.json")
    (row,) = json.loads(path.read_text())["rows"]
    by_hand = ["manual 1 × 1", "manual 1 × 2", "manual 2 × 1", "manual 2 × 2"]
    others = ["recommended", "again", "hill climbing", "regression", "backend", "eager", "inductor"]
    assert sorted(row["same_as"]) == sorted([*by_hand, *others, *COMBINED])
    measured_ones = set(row["same_as"].values())
    for figures in ("median_ms", "spread_ms", "faster", "faster_interval", "loss_difference"):
        assert set(row[figures]) == measured_ones
    assert all(ms > 0 for ms in row["median_ms"].values()) and row["rounds"] >= 2
    assert all(low <= row["faster"][name] <= high for name, (low, high) in row["faster_interval"].items())
    assert row["void"] == [] and max(row["loss_difference"].values()) <= row["permitted"]
    assert set(row["simulated"]) == measured_ones - {
        "recommended", "again", "backend", "eager", "inductor",
        "manual 2 × 2",  # more threads than cores: it takes longer than is expected
    }  # fmt: skip
    assert {"hill climbing", "regression"} <= set(row["accuracy"])
    printed = capsys.readouterr().out
    for said in ("the backend runs", "mean error against a sweep of", "all losses are the eager ones", "best manual"):
        assert said in printed
    assert main([*command, "--no-compile"]) == 0
    (other,) = json.loads(path.read_text())["rows"]
    assert set(row["same_as"]) - set(other["same_as"]) == {"inductor"} and other["refused"] == {}
    capsys.readouterr()
    assert main([*command, "--resume"]) == 0
    assert "Tiny is in the results already" in capsys.readouterr().out
    path.write_text("nonsense")
    assert main([*command, "--resume"]) == 2
    assert "is not JSON" in (said := capsys.readouterr().err) and "remove it, or leave out --resume" in said


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_the_models_of_times_are_held_against_a_sweep_with_and_without_counters(tmp_path, capsys):
    assert main(["concurrency", "--models", "--seconds", "60", "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("concurrency-models-*.json")
    results = json.loads(path.read_text())
    (row,) = results["rows"]
    counted = {"regression, no counters"} if results["counters"]["events"] else set()
    assert set(row["accuracy"]) == {"hill climbing", "regression"} | counted
    for name, found in row["accuracy"].items():
        assert found["tasks"] > 0 and found["timed"] > 0 and found["error"] >= 0 <= found["slower_than_best"]
        assert bool(found["uses"]) == name.startswith("regression")
    assert "ms a step" not in capsys.readouterr().out


@pytest.mark.usefixtures("quick")
def test_tasks_that_there_was_no_time_for_are_held_against_nothing():
    programs = ScheduledStep(TINY, seed=0).programs
    found = measured_models(programs, cores=2, seconds=0)
    tasks = {task.signature for program in programs for task in program.cut.graph.tasks}
    assert found.accuracies == {} and found.estimated > 0 and set(found.climbed) == set(found.regressed) == tasks


def test_what_inductor_cannot_compile_is_named_and_the_others_are_measured(monkeypatch):
    monkeypatch.setattr(bench, "_INDUCTOR", lambda module, inputs: 1 / 0)
    calls = {}
    torch._dynamo.reset()
    assert "division by zero" in bench._add_inductor(calls, TINY, seed=0)["inductor"] and calls == {}
    torch._dynamo.reset()


class Wrong(SgdSteps):
    """Trains with gradients of another sign."""

    def __call__(self):
        loss = super().__call__()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(parameter.grad, alpha=0.02)
        return loss


def test_a_setting_that_trains_in_another_way_is_found_by_its_second_loss():
    eager = SgdSteps(TINY, seed=0)
    found, permitted = loss_differences({"same": SgdSteps(TINY, seed=0), "wrong": Wrong(TINY, seed=0)}, eager)
    assert found["same"] <= permitted < found["wrong"]
    assert found["same"] == 0.0 and permitted < 1e-3


def event(name, lane, start_us, us, *, process=1, graph="forward"):
    return {
        "name": name, "cat": graph, "ph": "X", "ts": start_us, "dur": us, "pid": process, "tid": lane,
        "args": {"threads": 1},
    }  # fmt: skip


def test_a_trace_is_drawn_with_a_bar_for_each_task(tmp_path, capsys):
    trace = tmp_path / "step.json"
    names = [
        {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": f"<{process}>, as it ran"}}
        for process in (1, 2)
    ]
    events = [*names, event("convolution_1", 0, 0, 750), event("add & <b>", 1, 500, 500, graph="backward")]
    trace.write_text(json.dumps({"traceEvents": events}))
    assert main(["concurrency", "--draw", str(trace)]) == 0
    assert f"drawn to {tmp_path / 'step.svg'}" in capsys.readouterr().out
    drawn = ElementTree.parse(tmp_path / "step.svg").getroot()
    bars = [each for each in drawn.iter("{http://www.w3.org/2000/svg}rect") if "bar" in each.get("class", "")]
    whole = 760 - 64 - 12
    assert [(float(bar.get("x")), float(bar.get("width"))) for bar in bars] == [
        (64, 0.75 * whole), (64 + 0.5 * whole, 0.5 * whole),
    ]  # fmt: skip
    assert [bar.get("class") for bar in bars] == ["fprop bar", "dgrad bar"]
    words = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"<1>, as it ran", "lane 0", "lane 1", "convolution_1", "1 ms"} <= set(words) and "<2>" not in str(words)
    for given, said in (("", "cannot be read"), ("nonsense", "is no trace"), ('{"traceEvents": []}', "is no trace")):
        trace.unlink() if not given else trace.write_text(given)
        assert main(["concurrency", "--draw", str(trace)]) == 2
        assert said in capsys.readouterr().err


def test_every_number_up_to_four_is_tried_by_hand_then_powers_of_two():
    assert tried_by_hand(2) == [1, 2] and tried_by_hand(6) == [1, 2, 3, 4, 6]
    assert tried_by_hand(24) == [1, 2, 3, 4, 8, 16, 24]


def test_bad_input_is_one_line(capsys):
    assert main(["concurrency", "--model", "AlexNet"]) == 2
    assert main(["concurrency", "--seconds", "0"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 2
    assert "--model AlexNet is unknown; use one of ResNet-34, DCGAN" in err and "--seconds 0 leaves no time" in err


class PlannedClock:
    """Laps as planned; each call says its own seconds and what other work takes. All calls come three times, and the
    last one is timed."""

    def __init__(self, *, oversubscribed):
        assert oversubscribed, "lanes have threads of their own, and wait for each other"
        self._lost = 0.0

    def lap(self, call, *, times):
        seconds, lost = call()
        self._lost = max(self._lost, lost)
        return Lap(seconds=seconds)

    def overall(self):
        self._lost = 0.0
        return lambda: self._lost


def test_steps_are_taken_in_turns_and_disturbed_turns_are_left_out(monkeypatch):
    monkeypatch.setattr(bench, "CpuClock", PlannedClock)
    monkeypatch.setattr(bench, "_LEAST_TURNS", 2)
    monkeypatch.setattr(bench, "_MOST_TURNS", 3)
    order = []
    monkeypatch.setattr(timed_schedules, "rest", lambda: order.append("rest"))

    def call(name, laps):
        def run():
            order.append(name)
            return laps[(order.count(name) - 1) // 3 % len(laps)]

        return run

    calls = {"a": call("a", [(1.0, 0.0)] * 2 + [(50.0, 0.9)]), "b": call("b", [(2.0, 0.0), (4.0, 0.0), (9.0, 0.0)])}
    laps, lost = bench.in_turns(calls, seconds=60)
    assert order[::4] == ["rest"] * 6
    assert order[1::4] == order[2::4] == order[3::4]
    turns = [order[1::4][at : at + 2] for at in (0, 2, 4)]
    assert all(sorted(turn) == ["a", "b"] for turn in turns)
    assert [[lap.seconds for lap in laps[name]] for name in calls] == [[1.0, 1.0], [2.0, 4.0]] and lost == 0
    laps, lost = bench.in_turns({"a": lambda: (1.0, 0.5)}, seconds=0)
    assert len(laps["a"]) == 2 and lost == 0.5  # all count, and say so


def test_no_step_has_always_the_same_neighbours_in_a_turn(monkeypatch):
    monkeypatch.setattr(bench, "CpuClock", PlannedClock)
    monkeypatch.setattr(bench, "_MOST_TURNS", 12)
    order = []
    bench.in_turns({name: lambda name=name: order.append(name) or (1.0, 0.0) for name in "abcde"}, seconds=60)
    once = order[::3]
    assert len(once) == 12 * 5 and all(sorted(once[at : at + 5]) == [*"abcde"] for at in range(0, 60, 5))
    before = {(one, other) for one, other in itertools.pairwise(once) if one != other}
    assert len(before) == 5 * 4


def test_accuracy_is_the_mean_error_and_what_the_choice_loses():
    found = accuracy({"a": curve(10, 6), "b": curve(10, 8)}, {"a": curve(10, 5), "b": curve(10, 20)})
    assert found.tasks == 2
    assert found.error == pytest.approx((0 + 0.2 + 0 + 0.6) / 4)
    assert found.slower_than_best == pytest.approx((5 + 20) / (5 + 10) - 1)


def row(**change):
    median_ms = {
        "recommended": 100.0,
        "again": 101.0,
        "manual 2 × 1": 80.0,
        "S3": 50.0,
        "backend": 55.0,
        "eager": 110.0,
    }
    ratios = {name: 100.0 / ms for name, ms in median_ms.items()}
    climbing = {"error": 0.05, "slower_than_best": 0.01, "tasks": 7, "timed": 14, "uses": ""}
    return {
        "network": "Planted",
        "median_ms": median_ms,
        "spread_ms": dict.fromkeys(median_ms, 1.5),
        "faster": ratios,
        "faster_interval": {name: [0.9 * ratio, 1.1 * ratio] for name, ratio in ratios.items()},
        "same_as": {**{name: name for name in median_ms}, "regression": "S3", "hill climbing": "S3"},
        "accuracy": {"hill climbing": climbing, "regression": {**climbing, "uses": "times predicted by xgboost"}},
        "backend": "S1+S3: 80% faster than plain",
        "refused": {"inductor": "no compiler"},
        "loss_difference": {"S3": 1e-7},
        "permitted": 1e-5,
        "void": [],
        "simulated": {"S3": {"expected_ms": 45.0, "seen_ms": 50.0}},
        "estimated": 0,
        "contention": 0.0,
        **change,
    }


def test_every_way_is_held_against_the_recommended_one():
    shown = lines(row())
    assert "regression             50.0     1.5           2.00   1.80 to 2.20  S3" in shown
    assert any(line.split()[:4] == ["eager", "110.0", "1.5", "0.91"] for line in shown)
    for said in ("5.0% mean error against a sweep of 7 tasks, chosen counts 1.0% slower", "by xgboost",
                 "best manual setting: manual 2 × 1, 1.25 times", "inductor does not run: no compiler",
                 "off by 1.0e-07 at most, 1.0e-05 permitted", "10% off on average"):  # fmt: skip
        assert any(said in line for line in shown), said
    assert not any("measure again" in line or "time was up" in line or "VOID" in line for line in shown)
    shown = lines(row(contention=0.3, estimated=12, void=["S3"], accuracy={}))
    for said in ("no time to sweep any task", "other work took 30%", "12 task times", "VOID: the losses of S3 differ"):
        assert any(said in line for line in shown)


def test_a_void_row_counts_nothing_in_the_means():
    shown = summary([row(), row(network="Other"), row(network="Broken", void=["S3"])])
    assert [line.split() for line in shown[-3:]] == [
        ["Other", "1.25", "2.00", "2.00", "1.82", "0.91", "–"],
        ["Broken", "void"],
        ["geometric", "mean", "1.25", "2.00", "2.00", "1.82", "0.91", "–"],
    ]
    assert len(summary([row(void=["S3"]), row(void=["S3"])])) == 3


# -- the networks ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("network", [InceptionV2, InceptionNeXt])
def test_images_become_logits_that_every_weight_has_a_part_in(network):
    model = Classifier(network())
    model(torch.randn(2, 3, 32, 32), torch.tensor([1, 2])).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_inception_s_blocks_follow_each_other():
    """Channels of the paper's table: 256, 320, 576, 576, 576, 576, 576, 1024, 1024, 1024."""
    with torch.device("meta"):
        blocks = [block for block in InceptionV2().blocks if isinstance(block, InceptionBlock)]
        x, channels = torch.empty(1, 192, 28, 28), []
        for block in blocks:
            x = block(x)
            channels.append(x.shape[1])
    assert channels == [256, 320, 576, 576, 576, 576, 576, 1024, 1024, 1024] and x.shape[2:] == (7, 7)


def test_the_six_networks_are_there():
    names = ["ResNet-34", "DCGAN", "Inception-v2", "LSTM", "MobileNetV3", "InceptionNeXt"]
    assert [network.name for network in NETWORKS] == names


def test_a_block_of_inceptionnext_changes_three_eighths_of_its_channels_by_depthwise_branches():
    torch.manual_seed(0)
    block, x = MetaNeXtBlock(16), torch.randn(2, 16, 13, 12)
    mixed = block.mixer[0](x)
    assert torch.equal(mixed[:, :10], x[:, :10]) and block(x).shape == x.shape
    kernels = [(3, 3), (1, 11), (11, 1)]
    for place, (branch, kernel) in enumerate(zip(block.mixer[0].branches, kernels, strict=True)):
        assert branch.kernel_size == kernel and branch.groups == 2
        part = slice(10 + 2 * place, 12 + 2 * place)
        torch.testing.assert_close(mixed[:, part], branch(x[:, part]))


def test_no_player_of_dcgan_trains_the_other():
    torch.manual_seed(0)
    model, images, noise = DCGAN(), torch.randn(2, 3, 64, 64), torch.randn(2, 64, 1, 1)
    made_up = model.generator(noise)
    fooled = nn.functional.softplus(-model.discriminator(made_up, frozen=True)).mean()
    fooled.backward()
    assert all(parameter.grad is None for parameter in model.discriminator.parameters())
    assert all(parameter.grad is not None for parameter in model.generator.parameters())
    wanted = [parameter.grad.clone() for parameter in model.generator.parameters()]
    model.zero_grad()
    model(images, noise).backward()
    for parameter, grad in zip(model.generator.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-3, atol=1e-5)
    assert all(parameter.grad is not None for parameter in model.discriminator.parameters())
