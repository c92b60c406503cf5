"""bench parallel: the networks are those of the papers, ranks answer, and what is printed follows from it."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from bench import parallel as bench
from bench.__main__ import main
from bench.models import resnet
from bench.parallel import Case, Finding, Variant


def variant(name: str, *, median_ms: float, predicted_ms: float) -> Variant:
    return Variant(
        name=name, median_ms=median_ms, spread_ms=1.0, steps=3, predicted_ms=predicted_ms, bubble=0.2, exposed_ms=0.0
    )


PLAIN = variant("data parallelism", median_ms=100.0, predicted_ms=90.0)
FINDING = Finding(
    variants=(PLAIN, variant("1f1b", median_ms=80.0, predicted_ms=88.0)), link_gb_s=2.0, latency_us=50.0, contention=0.0
)


@pytest.mark.parametrize(
    ("name", "parameters"), [("ResNet-18", 11_173_962), ("ResNet-34", 21_282_122), ("ResNet-50", 23_520_842)]
)
def test_the_networks_have_their_parameters(name, parameters):
    with torch.device("meta"):
        model = resnet(name, classes=10, small_images=True)
        assert sum(parameter.numel() for parameter in model.parameters()) == parameters
        assert model(torch.empty(2, 3, 32, 32)).shape == (2, 10)
        assert resnet(name, classes=101, small_images=False)(torch.empty(2, 3, 96, 96)).shape == (2, 101)


def test_figures_follow_from_what_the_ranks_found(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "measured", lambda case, *, seconds: FINDING)
    assert main(["parallel", "--only", "ResNet-18 CIFAR-100 2", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "1.25" in out and "+10%" in out and "-10%" in out
    assert "pipelines: mean error 10%, at most 10%" in out
    (written,) = tmp_path.iterdir()
    rows = json.loads(written.read_text())["rows"]
    assert [row["name"] for row in rows] == ["data parallelism", "1f1b"]
    assert rows[1]["times_as_fast_as_data_parallelism"] == pytest.approx(1.25)
    for options, said in (("--only", "VGG"), "is in no case"), (("--seconds", "1"), "too short"):
        assert main(["parallel", *options]) == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1


def test_cases_that_do_not_fit_are_named(monkeypatch, tmp_path, capsys):
    now = [0.0]
    monkeypatch.setattr(bench.time, "monotonic", lambda: now[0])

    def measured(case: Case, *, seconds: float) -> Finding:
        now[0] += max(seconds, 30.0)
        return dataclasses.replace(FINDING, variants=(dataclasses.replace(PLAIN, steps=1),))

    monkeypatch.setattr(bench, "measured", measured)
    assert main(["parallel", "--seconds", "100", "--out", str(tmp_path)]) == 0
    assert now[0] <= 100
    assert "left out, since 100 s were over: ResNet-18 Caltech-101 2 ranks" in capsys.readouterr().out


@pytest.mark.slow
def test_two_ranks_answer():
    case = Case(network="ResNet-18", images="tiny", classes=10, size=8, world=2, batch=4, microbatches=2)
    finding = bench.measured(case, seconds=1.0)
    names = ["data parallelism", "gpipe", "1f1b", "interleaved", "zero-bubble"]
    assert [each.name for each in finding.variants] == names
    assert all(each.median_ms > 0 and each.predicted_ms > 0 for each in finding.variants)
