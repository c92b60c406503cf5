"""bench convergence: its plans fit the network, and what is printed and drawn follows from what was trained."""

from __future__ import annotations

import json
import re

import pytest
import torch

from bench import convergence as bench
from bench.__main__ import main
from dwconv.parallel.planning.pieces import pieces
from dwconv.parallel.planning.pipeline_plan import check_plan


def test_plans_are_of_the_network():
    with torch.no_grad():
        layers = len(pieces(bench.network(), torch.randn(2, 3, 8, 8)))
    for form, counts in bench.FORMS.items():
        plan = bench.plan(counts)
        check_plan(plan)
        assert (len(plan.layers), plan.counts) == (layers, counts), form
        assert bench._BATCH % plan.parts == 0 and bench._BATCH % plan.world == 0


def test_accuracies_are_held_against_those_of_one_process(monkeypatch, tmp_path, capsys):
    def trained(form, *, seed, epochs):
        last = {"one process": 0.9, "2 stages": 0.92}.get(form, 0.87) + seed / 100
        return [
            {"number": number + 1, "loss": 1 / (number + 1), "held_out": last - 0.1 * (epochs - 1 - number)}
            for number in range(epochs)
        ]

    monkeypatch.setattr(bench, "trained", trained)
    options = ("--epochs", "3", "--seeds", "2", "--draw", tmp_path / "curves.svg", "--out", tmp_path)
    assert main(["convergence", *map(str, options)]) == 0
    printed = capsys.readouterr().out
    assert "one process: held out 90.5%, 90.0% to 91.0% by seed" in printed
    assert "2 stages: held out 92.5%, +2.0 points" in printed and "2 + 1 ranks: held out 87.5%, -3.0 points" in printed
    (written,) = tmp_path.glob("convergence-*.json")
    assert len(json.loads(written.read_text())["rows"]) == 8
    picture = (tmp_path / "curves.svg").read_text()
    lines = re.findall(r'<polyline points="([^"]+)"', picture)
    assert len(lines) == 8 and all(len(line.split()) == 3 for line in lines)
    heights = [float(point.split(",")[1]) for point in lines[0].split()]
    assert heights == sorted(heights, reverse=True), "it learns: the line goes up"
    assert picture.count("hybrid, 2 + 1 ranks") == 1


def test_bad_input_is_one_line(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["convergence", "--epochs", "0"])
    assert ended.value.code == 2 or ended.value.code is None
    assert capsys.readouterr().err.count("\n") == 1
