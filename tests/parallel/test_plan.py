"""``python -m dwconv.parallel plan``: what it prints and writes, its answers to bad input; and plans in files."""

from __future__ import annotations

import builtins
import dataclasses
import json
import re
from codecs import BOM_UTF8
from pathlib import Path

import numpy
import pytest
import torch
from matplotlib.image import imread

from dwconv.errors import BrokenInstallation, NoPlan
from dwconv.parallel import __main__ as parallel
from dwconv.parallel import plan as plan_command
from dwconv.parallel.planning.plan import Link, Stage, check_plan, read_plan, write_plan
from dwconv.parallel.planning.simulation import simulate
from dwconv.parallel.planning.timeline import Event, chrome_trace, draw_timeline, write_chrome_trace
from tests.parallel.made_up_layers import layer, plan

MODEL = ("--model", "tests.parallel.small_models:SmallResNet", "--input", "16,3,12,12")  # on a GPU, where there is one
RANKS = ("--world", "4", "--link-gb-s", "1")


def _run(*options: object) -> int | str | None:
    try:
        return parallel.main(["plan", *map(str, options)])
    except SystemExit as exit:  # argparse ends this way
        return exit.code


@pytest.fixture
def timed(monkeypatch):
    """Nothing is timed: parameters are large, so that a pipeline is best. The shapes that were asked for."""
    shapes = []

    def costs(cut, microbatch, *, seconds):
        shapes.append(tuple(microbatch.shape))
        return tuple(
            layer(name=name, parameter_bytes=10**7, forward_us=100.0 * len(microbatch)) for name in cut._modules
        )

    monkeypatch.setattr(plan_command, "layer_costs", costs)
    return shapes


def test_a_plan_against_data_parallelism(timed, capsys):
    assert _run(*MODEL, *RANKS, "--microbatches", 16) == 0
    printed = capsys.readouterr().out
    assert timed == [(1, 3, 12, 12), (4, 3, 12, 12)]  # a microbatch, and what a rank has of the batch
    assert "4 ranks, a link of 1 GB/s and 10 µs, 9 layers, 16 microbatches, 1f1b" in printed
    rows = {line.strip().partition("  ")[0]: line for line in printed.splitlines()}
    assert re.search(r"1\.00 +0% .* yes", rows["data parallelism"])
    assert {"4 stages", "2 stages × 2 replicas"} <= set(rows)
    assert re.search(r"recommended: 4 stages, [\d.]+ times as fast as plain data parallelism", printed)
    assert re.search(r"^ +0 +0 +conv1\b", printed, re.MULTILINE)  # a stage, its rank, its layers


def test_the_plan_that_is_written_is_read_again(timed, tmp_path, capsys):
    path = tmp_path / "plan.json"
    assert _run(*MODEL, *RANKS, "--microbatches", 8, "--stages", 2, "--schedule", "gpipe", "--json", path) == 0
    plan = read_plan(path)
    assert (len(plan.stages), plan.world, plan.schedule, plan.microbatches) == (2, 4, "gpipe", 4)
    assert plan.is_even
    assert [each.name for each in plan.layers[:3]] == ["conv1", "bn1", "layer1_0"]
    assert f"plan: 2 stages × 2 replicas: {path}" in capsys.readouterr().out


def test_the_timeline_of_what_is_recommended(timed, tmp_path, capsys):
    assert _run(*MODEL, *RANKS, "--schedule", "zero-bubble", "--timeline", tmp_path / "step") == 0
    printed = capsys.readouterr().out
    trace = json.loads((tmp_path / "step.json").read_text())
    assert {each["pid"] for each in trace["traceEvents"]} == {0, 1, 2, 3}
    assert (tmp_path / "step.png").stat().st_size > 10_000
    assert str(tmp_path / "step.png") in printed


def test_too_little_memory_for_data_parallelism_is_said(timed, capsys):
    assert _run(*MODEL, *RANKS, "--memory-gb", 0.1) == 0
    printed = capsys.readouterr().out
    assert "left out: data parallelism: needs 0.27 GB a rank, and 0.1 GB are there" in printed
    assert "recommended: 4 stages, plain data parallelism does not fit" in printed


def test_measured_for_real(capsys):
    options = ("--world", 2, "--link-gb-s", 5, "--seconds", 0.05, "--threads", 1, "--channels-last", "--device", "cpu")
    assert _run(*MODEL, *options) == 0
    out, err = capsys.readouterr()
    assert "note: timing 9 layers on 4×3×12×12, on cpu, for " in err
    assert "recommended: " in out and "2 stages" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((*RANKS, "--schedule", "2f2b"), "schedule=2f2b is unknown; use one of gpipe, 1f1b, interleaved, zero-bubble"),
        (("--world", 2, "--link-gb-s", 1, "--stages", 3), "world=2 is smaller than the 3 stages"),
        ((*RANKS, "--microbatches", 5), "its batch of 16 is not divisible by microbatches=5"),
        (
            ("--world", 20, "--link-gb-s", 1, "--stages", 10, "--microbatches", 16),
            "stages=10 are more than the 9 layers",
        ),
        ((*RANKS, "--memory-gb", 0.001), "no plan for world=4: data parallelism: needs"),
        (("--world", 0, "--link-gb-s", 1), "0 is not a whole number of at least 1"),
        (("--world", 4), "--link-gb-s"),
        ((*RANKS, "--model", "tests.parallel.test_pieces:AroundNothing"), "has no AroundNothing"),
        (
            (*RANKS, "--model", "tests.parallel.test_pieces:Branching"),
            "Branching cannot be traced: a branch needs the value",
        ),
        ((*RANKS, "--input", "16,3,12"), "does not run on 2×3×12: RuntimeError: "),
        ((*RANKS, "--model", "tests.parallel.test_train:failing"), "could not be made: KeyError: 'no weights here'"),
        ((*RANKS, "--device", "cuda"), "device=cuda: PyTorch finds no GPU here"),
    ],
)
def test_bad_input_is_one_line(timed, capsys, monkeypatch, options, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _run(*MODEL, *options) == 2
    err = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]
    assert len(err) == 1 and err[0].startswith("error: ") and message in err[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--json", "no/folder/plan.json"), "--json: no/folder/plan.json cannot be written: No such file or directory"),
        (("--json", "."), "--json: . cannot be written: Is a directory; name another file"),
        (("--timeline", "no/folder/step"), "timeline=no/folder/step.json cannot be written: No such file or directory"),
        (("--timeline", "."), "timeline=. is a folder; name a prefix in it, such as step"),
        (("--timeline", "/"), "timeline=/ is a folder; name a prefix in it, such as /step"),
    ],
)
def test_a_file_that_cannot_be_written_is_an_error_before_layers_are_timed(timed, capsys, options, message):
    assert _run(*MODEL, *RANKS, *options) == 2
    out, err = capsys.readouterr()
    assert (out, timed, err.count("\n")) == ("", [], 1)
    assert err.startswith("error: ") and message in err


def test_commands_are_listed(capsys):
    assert parallel.main(["--help"]) == 0
    assert "  plan " in capsys.readouterr().out
    assert parallel.main(["plam"]) == 2
    assert "command=plam is unknown; use one of plan" in capsys.readouterr().err
    assert parallel.main([]) == 2


# -- plans in files ----------------------------------------------------------------------------------------------------


MADE = plan([layer(name="first"), layer(), layer()], replicas=[2, 2, 2], link=Link(gb_s=12.5, latency_us=3.0))


def _changed(data: dict[str, object]) -> str:
    return json.dumps({**json.loads(json.dumps(dataclasses.asdict(MADE))), **data})


def test_what_was_written_is_read(tmp_path):
    write_plan(MADE, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == MADE
    marked = BOM_UTF8 + (tmp_path / "plan.json").read_bytes()
    (tmp_path / "plan.json").write_bytes(marked)
    assert read_plan(tmp_path / "plan.json") == MADE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a plan"),
        ("[1, 2]", "is not a plan"),
        (_changed({"schedule": "2f2b"}), "schedule=2f2b is unknown"),
        (_changed({"microbatches": 0}), "replicas and microbatches are at least 1"),
        (_changed({"microbatches": "four"}), "microbatches"),
        (_changed({"stages": []}), "do not hold each of its 3 layers once"),
        (_changed({"stages": [{"first": 0, "last": 2, "replicas": 1}]}), "do not hold each of its 3 layers once"),
        (_changed({"link": {"gb_s": 0.0, "latency_us": 0.0}}), "carries nothing"),
        (_changed({"stages_per_rank": 2}), "3 stages are not 2 for each rank"),
        (_changed({"stages_per_rank": 0}), "3 stages are not 0 for each rank"),
        (_changed({"stages": [{"first": 0, "last": 3, "replicas": 0}]}), "replicas and microbatches are at least 1"),
        (
            _changed(
                {"stages_per_rank": 3, "stages": [{"first": n, "last": n + 1, "replicas": 1 + n} for n in range(3)]}
            ),
            "with several stages a rank, all have as many replicas",
        ),
    ],
)
def test_one_line_says_what_is_wrong_with_a_file(tmp_path, text, message):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(NoPlan) as raised:
        read_plan(path)
    assert str(path) in str(raised.value) and message in str(raised.value) and "\n" not in str(raised.value)
    assert "plan --json FILE" in str(raised.value)


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path):
    with pytest.raises(NoPlan, match=r"none\.json cannot be read: No such file"):
        read_plan(tmp_path / "none.json")
    with pytest.raises(NoPlan, match=r"plan\.json cannot be written"):
        write_plan(MADE, tmp_path / "no folder" / "plan.json")


def test_stages_follow_each_other():
    stages = (Stage(first=0, last=2, replicas=1), Stage(first=1, last=3, replicas=1))
    check_plan(dataclasses.replace(MADE, stages_per_rank=3))
    check_plan(dataclasses.replace(MADE, link=Link(gb_s=1.0, latency_us=0.0)))
    for link in (Link(gb_s=1.0, latency_us=-1.0), Link(gb_s=1.0, latency_us=float("inf"))):
        with pytest.raises(NoPlan, match="carries nothing"):
            check_plan(dataclasses.replace(MADE, link=link))
    with pytest.raises(NoPlan, match="do not hold each"):
        check_plan(dataclasses.replace(MADE, stages=(*MADE.stages[:2], MADE.stages[1], MADE.stages[2])))
    with pytest.raises(NoPlan, match="does not begin where the one before ends"):
        check_plan(dataclasses.replace(MADE, stages=stages))


# -- a step's timeline as a trace and as a picture ---------------------------------------------------------------------


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
