"""bench concurrency: steps by every schedule in turns, what is printed of them, and the networks."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from bench.__main__ import main
from bench.concurrency import bench
from bench.concurrency.bench import accuracy, lines
from bench.concurrency.models import DCGAN, Classifier, InceptionBlock, InceptionV2, TrainedNetwork
from dwconv.concurrency import measured
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


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
def test_every_schedule_of_a_network_is_measured(monkeypatch, tmp_path, capsys):
    """Traces and measures for real: some seconds."""
    monkeypatch.setattr(bench, "NETWORKS", (TINY,))
    assert main(["concurrency", "--seconds", "1", "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("concurrency-*.json")
    (row,) = json.loads(path.read_text())["rows"]
    assert set(row["same_as"]) == {"plain", "S1", "S2", "S3", "S1+S3", "S2+S3", "regression", "backend", "eager"}
    assert set(row["same_as"].values()) == set(row["median_ms"]) == set(row["spread_ms"])
    assert all(ms > 0 for ms in row["median_ms"].values())
    assert set(row["accuracy"]) == {"hill climbing", "regression"}
    printed = capsys.readouterr().out
    assert "the backend runs" in printed and "mean error against a sweep of" in printed


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
    order = []
    monkeypatch.setattr(measured, "rest", lambda: order.append("rest"))

    def call(name, laps):
        def run():
            order.append(name)
            return laps[(order.count(name) - 1) // 3 % len(laps)]

        return run

    calls = {"a": call("a", [(1.0, 0.0)] * 2 + [(50.0, 0.9)]), "b": call("b", [(2.0, 0.0), (4.0, 0.0), (9.0, 0.0)])}
    found = bench.in_turns(calls, seconds=0)
    assert order[::4] == ["rest"] * 6
    assert order[1::4] == order[2::4] == order[3::4] == ["a", "b", "b", "a", "a", "b"]
    assert (found["a"].median_us, found["b"].median_us, found["b"].rounds) == (1e6, 3e6, 2)
    assert found["b"].spread_us == pytest.approx(1e6) and found["a"].contention == 0
    disturbed = bench.in_turns({"a": lambda: (1.0, 0.5)}, seconds=0)
    assert disturbed["a"].rounds == 3 and disturbed["a"].contention == 0.5  # all count, and say so


def test_accuracy_is_the_mean_error_and_what_the_choice_loses():
    found = accuracy({"a": curve(10, 6), "b": curve(10, 8)}, {"a": curve(10, 5), "b": curve(10, 20)})
    assert found.tasks == 2
    assert found.error == pytest.approx((0 + 0.2 + 0 + 0.6) / 4)
    assert found.slower_than_best == pytest.approx((5 + 20) / (5 + 10) - 1)


def test_schedules_are_held_against_plain_execution():
    median_ms = {"plain": 100.0, "S3": 50.0, "backend": 55.0, "eager": 110.0}
    row = {
        "network": "Planted",
        "median_ms": median_ms,
        "spread_ms": dict.fromkeys(median_ms, 1.5),
        "same_as": {**{name: name for name in median_ms}, "regression": "S3"},
        "accuracy": {"hill climbing": {"error": 0.05, "slower_than_best": 0.01, "tasks": 7, "timed": 14}},
        "backend": "S1+S3: 80% faster than plain",
        "learner": "xgboost",
        "estimated": 0,
        "contention": 0.0,
    }
    shown = lines(row)
    assert "regression             50.0     1.5     2.00  S3" in shown
    assert any(line.split() == ["eager", "110.0", "1.5", "0.91"] for line in shown)
    assert any("5.0% mean error against a sweep of 7 tasks, chosen counts 1.0% slower" in line for line in shown)
    assert not any("measure again" in line or "time was up" in line for line in shown)
    shown = lines({**row, "contention": 0.3, "estimated": 12})
    assert any("other work took 30%" in line for line in shown) and any("12 task times" in line for line in shown)


# -- the networks ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_images_become_logits_that_every_weight_has_a_part_in():
    model = Classifier(InceptionV2())
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
