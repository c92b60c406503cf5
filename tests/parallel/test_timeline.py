"""A step's timeline as a trace and as a picture."""

from __future__ import annotations

import builtins
import json
from pathlib import Path

import numpy
import pytest
from matplotlib.image import imread

from dwconv.errors import BrokenInstallation, NoPlan
from dwconv.parallel.planning.plan import Link
from dwconv.parallel.planning.simulation import simulate
from dwconv.parallel.planning.timeline import Event, chrome_trace, draw_timeline, write_chrome_trace
from tests.parallel.made_up_layers import layer, plan

STEP = simulate(
    plan([layer(output_bytes=50_000)] * 2, replicas=[2, 2], microbatches=4, link=Link(gb_s=1.0, latency_us=10.0))
)


def _colours(path: Path) -> set[str]:
    """The colours of a picture below its title and legend, as hexadecimal numbers."""
    image = imread(path)
    pixels = (image[len(image) // 5 :, :, :3] * 255).round().astype("uint8").reshape(-1, 3)
    return {bytes(pixel).hex().upper() for pixel in numpy.unique(pixels, axis=0)}


def test_a_trace_has_every_event_on_its_rank():
    trace = json.loads(json.dumps(chrome_trace(STEP.events)))["traceEvents"]
    drawn = [each for each in trace if each["ph"] == "X"]
    assert len(drawn) == len(STEP.events)
    for each, event in zip(drawn, STEP.events, strict=True):
        assert (each["pid"], each["ts"], each["cat"]) == (event.rank, event.start_us, event.what)
        assert each["ts"] + each["dur"] == pytest.approx(event.end_us)
        assert each["tid"] == (1 if event.what == "communication" else 0)
    names = {each["pid"]: each["args"]["name"] for each in trace if each["name"] == "process_name"}
    assert names == {number: f"rank {number} · stage {number // 2}" for number in range(4)}
    assert {"forward 0", "dgrad 7", "activations to rank 2", "sum of gradients over 2 ranks"} <= {
        each["name"] for each in drawn
    }


def test_a_trace_is_written_as_json(tmp_path):
    write_chrome_trace(STEP.events, tmp_path / "step.json")
    assert json.loads((tmp_path / "step.json").read_text()) == chrome_trace(STEP.events)
    with pytest.raises(NoPlan, match=r"none/step\.json cannot be written: No such file"):
        write_chrome_trace(STEP.events, tmp_path / "none" / "step.json")


def test_a_picture_shows_each_kind_in_its_colour(tmp_path):
    draw_timeline(STEP.events, tmp_path / "step.png", title="One step")
    blue, orange, green, violet, idle = "56B4E9", "E69F00", "009E73", "8C5A8F", "EEEEF0"
    assert {blue, orange, green, violet, idle} <= _colours(tmp_path / "step.png")


def test_what_was_measured_in_one_is_drawn_too(tmp_path):
    measured = [
        Event(rank=0, stage=0, microbatch=0, what="forward", start_us=0.0, end_us=400.0),
        Event(rank=0, stage=0, microbatch=0, what="backward", start_us=600.0, end_us=1000.0),
    ]
    draw_timeline(measured, tmp_path / "step.png", title="One step")
    colours = _colours(tmp_path / "step.png")
    assert "D55E00" in colours
    assert "E69F00" not in colours


def test_without_matplotlib_one_line_says_how_to_get_it(tmp_path, monkeypatch):
    usual = builtins.__import__

    def refuse(name, *arguments, **keywords):
        if name.startswith("matplotlib"):
            raise ImportError("no such package")
        return usual(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(BrokenInstallation, match=r"pip install 'dwconv\[plot\]'"):
        draw_timeline(STEP.events, tmp_path / "step.png", title="One step")
