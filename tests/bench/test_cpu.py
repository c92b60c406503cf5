"""bench cpu: its table and its means."""

from __future__ import annotations

import json
import sys

import pytest

from bench import cpu
from bench.__main__ import main
from bench.cases import CPU_LAYERS
from bench.results import write_results
from dwconv.problems.target import cpu_target
from dwconv.records.log import TuningLog
from tests.planted_records import record_of


def row_of(**changes: object) -> dict[str, object]:
    fields = {
        "layer": str(CPU_LAYERS[0]), "pass": "wgrad", "kernel": 3, "dwconv_us": 10.0, "spread_us": 1.0,
        "pytorch_us": {"onednn-nchw": 80.0, "onednn-nhwc": 20.0}, "ratio": 2.0, "ratio_spread": 0.2,
        "ratio_same_layout": 2.0, "percent_of_limit": 50.0,
    }  # fmt: skip
    return {**fields, **changes}


def test_means_are_geometric_and_small_kernels_stand_apart():
    text = cpu._means(
        [row_of(), row_of(ratio=8.0, kernel=5), row_of(**{"pass": "fprop"}, ratio=0.5), {"pass": "fprop"}]
    )
    lines = {line.split("  ")[0]: line.split()[-4:] for line in text.splitlines() if line}
    assert lines["wgrad"] == ["4.00", "2.00", "2.00", "2"]
    assert lines["wgrad, k ≥ 5"] == ["8.00", "2.00", "8.00", "1"]
    assert lines["fprop"] == ["0.50", "2.00", "0.50", "1"]


def test_a_line_names_both_layouts_of_pytorch():
    assert cpu._line(row_of()).split()[-8:] == ["wgrad", "80.0", "20.0", "10.0", "1.0", "2.00", "0.20", "50"]
    assert "boom" in cpu._line({"layer": "x", "pass": "fprop", "failed": "boom"})


@pytest.mark.slow
@pytest.mark.usefixtures("short_ranking")
def test_it_tunes_what_is_untuned_and_writes_what_it_measured(tmp_path, capsys, monkeypatch):
    layer = cpu.Layer(network="Tiny", batch=1, channels=16, size=8, kernel=3)
    monkeypatch.setattr(cpu, "CPU_LAYERS", (layer,))
    first, *_ = layer.workloads(dtype="float32", layout="nchw")
    monkeypatch.setattr(cpu.Layer, "workloads", lambda *_, **__: iter([first]))
    arguments = ["--layout", "nchw", "--seconds", "0.5", "--log", str(tmp_path / "log.jsonl"), "--out", str(tmp_path)]
    assert main(["cpu", *arguments]) == 0
    out = capsys.readouterr().out
    (written,) = tmp_path.glob("cpu-nchw-*.json")
    rows = json.loads(written.read_text())["rows"]
    assert [row["pass"] for row in rows] == ["fprop"]
    measured = [row for row in rows if "failed" not in row]  # on a busy machine a candidate may run out of time
    assert measured
    for row in measured:
        assert row["dwconv_us"] > 0 and len(row["pytorch_us"]) == 2
    assert out.count("Tiny 16×8² k3") == 1


def test_the_dry_run_counts_what_is_untuned(tmp_path, capsys):
    log = TuningLog(tmp_path / "log.jsonl")
    first, *_ = CPU_LAYERS[0].workloads(dtype="float32", layout="nhwc")
    log.append(record_of(first))
    assert main(["cpu", "--dry-run", "--seconds", "57", "--first", "2", "--log", str(log.path)]) == 0
    assert "5 of 6 passes are untuned" in (out := capsys.readouterr().out) and "about 5.2 minutes" in out
    assert main(["cpu", "--dry-run", "--seconds", "0", "--first", "2", "--log", str(log.path)]) == 0
    assert "about 0.2 minutes" in capsys.readouterr().out


def test_layers_of_one_dimension_are_those_of_networks_that_it_lists(tmp_path, capsys):
    log = TuningLog(tmp_path / "log.jsonl")
    arguments = ["--dims", "1", "--layout", "nhwc", "--seconds", "0", "--log", str(log.path)]
    assert main(["cpu", "--dry-run", *arguments]) == 0
    layers = cpu._layers("1")
    passes = [workload for layer in layers for workload in layer.workloads(dtype="float32", layout="nhwc")]
    assert f"{len(passes)} of {len(passes)} passes are untuned" in capsys.readouterr().out
    assert {workload.epilogue for workload in passes} == {"none", "silu", "silu_gradient"}
    assert {max(layer.kernel for layer in layers), min(layer.kernel for layer in layers)} == {128, 4}
    assert all(workload.is_row for layer in layers for workload in layer.workloads(dtype="float32", layout="nchw"))


def test_without_seconds_what_is_untuned_stays_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cpu, "with_limits", lambda target: target)
    options = ["--seconds", "0", "--first", "1", "--log", str(tmp_path / "log.jsonl"), "--out", str(tmp_path)]
    assert main(["cpu", *options]) == 0
    assert capsys.readouterr().out.count("failed: untuned") == 3


def test_what_is_written_says_what_it_belongs_to(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bench", "cpu", "--log", "my log"])
    target = cpu_target()
    path = write_results("cpu-nhwc", target=target, rows=[{"us": 1}], folder=tmp_path / "new", goal=2)
    assert path == tmp_path / "new" / f"cpu-nhwc-{target.device}.json"
    written = json.loads(path.read_text())
    assert written["command"] == "python -m bench cpu --log 'my log'"
    assert written["rows"] == [{"us": 1}] and written["goal"] == 2
    assert (written["device"], written["threads"]) == (target.device, target.threads)
    assert {"dwconv", "torch", "tvm", "python"} <= written["versions"].keys() and written["created"]
