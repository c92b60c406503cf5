"""``python -m dwconv.parallel plan``: what it prints and writes, its answers to bad input; and plans in files."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
from codecs import BOM_UTF8

import pytest
import torch

from dwconv import settings
from dwconv.errors import NoPlan
from dwconv.parallel import __main__ as parallel
from dwconv.parallel import plan as plan_command
from dwconv.parallel.planning import break_even
from dwconv.parallel.planning.compare import propose
from dwconv.parallel.planning.pipeline_plan import SCHEDULES, Link, read_plan, write_plan
from dwconv.parallel.planning.shape import Shape
from dwconv.parallel.planning.simulated_step import simulate_step
from dwconv.parallel.planning.trace_events import trace
from tests.parallel.made_up_layers import layer, plan
from tests.parallel.ranks import Ranks, needs_gloo

MODEL = ("--model", "tests.parallel.small_models:SmallResNet", "--input", "16,3,12,12")  # on a GPU, where there is one
RANKS = ("--world", "4", "--link-gb-s", "1")


def _run(*options: object) -> int | str | None:
    try:
        return parallel.main(["plan", *map(str, options)])
    except SystemExit as exit:  # argparse ends this way
        return exit.code


@pytest.fixture
def timed(monkeypatch):
    """Nothing is timed: parameters are large, so that a pipeline is best. The shapes that were requested."""
    shapes = []

    def costs(cut, microbatch, *, seconds):
        shapes.append(tuple(microbatch.shape))
        return tuple(
            layer(name=name, parameter_bytes=10**7, forward_us=100.0 * len(microbatch)) for name in cut._modules
        )

    monkeypatch.setattr(plan_command, "layer_costs", costs)
    return shapes


def test_a_plan_against_data_parallelism(timed, capsys):
    assert _run(*MODEL, *RANKS, "--microbatches", 16, "--schedule", "1f1b") == 0
    printed = capsys.readouterr().out
    assert timed == [(1, 3, 12, 12), (4, 3, 12, 12)]  # a microbatch, and what a rank has of the batch
    assert "4 ranks, a link of 1 GB/s and 10 µs, 9 layers, 16 microbatches\n" in printed
    rows = {line.strip().partition("  ")[0]: line for line in printed.splitlines()}
    assert re.search(r"1\.00 +0% ", rows["data parallelism"])
    assert {"4 stages, 1f1b", "2 stages on 1 + 3 ranks, 1f1b"} <= set(rows)
    assert re.search(r"recommended: 4 stages, 1f1b, [\d.]+ times as fast as plain data parallelism", printed)
    assert re.search(r"^ +0 +0 .* conv1\b", printed, re.MULTILINE)  # a stage, its rank, its layers


def test_the_plan_and_its_timeline_are_written(timed, tmp_path, capsys):
    path = tmp_path / "plan.json"
    options = ("--microbatches", 8, "--stages", 2, "--schedule", "gpipe")
    assert _run(*MODEL, *RANKS, *options, "--json", path, "--timeline", tmp_path / "step") == 0
    plan = read_plan(path)
    assert (len(plan.stages), plan.world, plan.schedule, plan.microbatches) == (2, 4, "gpipe", 8)
    assert [each.name for each in plan.layers[:3]] == ["conv1", "bn1", "layer1_0"]
    printed = capsys.readouterr().out
    assert f"plan: 2 stages on 1 + 3 ranks, gpipe: {path}" in printed
    assert f"timeline: {tmp_path / 'step.json'}" in printed
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert {each["pid"] for each in events} == {0, 1, 2, 3}


def test_too_little_memory_for_data_parallelism_is_said(timed, capsys):
    assert _run(*MODEL, *RANKS, "--memory-gb", 0.1, "--schedule", "1f1b") == 0
    printed = capsys.readouterr().out
    assert "left out: data parallelism: needs 0.27 GB a rank, and 0.1 GB are there" in printed
    assert "recommended: 4 stages, 1f1b, plain data parallelism does not fit" in printed


@pytest.mark.filterwarnings("ignore:other work took")
def test_measured_for_real(capsys):
    options = ("--world", 2, "--link-gb-s", 5, "--seconds", 0.05, "--threads", 1, "--channels-last", "--device", "cpu")
    assert _run(*MODEL, *options) == 0
    out, err = capsys.readouterr()
    assert "note: timing 9 layers on 4×3×12×12, on cpu, for " in err
    assert "recommended: " in out and "2 stages" in out


@pytest.mark.parametrize(("version", "splits"), [("2.12.1", False), ("2.13.0", True)])
@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op")
def test_no_schedule_is_taken_that_this_pytorch_refuses(timed, monkeypatch, version, splits):
    """Of all schedules, where none is named."""
    proposals = []
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))
    monkeypatch.setattr(
        plan_command, "propose", lambda *of, **how: proposals.append(propose(*of, **how)) or proposals[0]
    )
    asked = ("--model", "tests.parallel.test_pipeline:converted_mobile_net", "--input", "16,3,12,12", "--stages", 2)
    assert _run(*asked, *RANKS) == 0
    assert ("zero-bubble" in {each.plan.schedule for each in proposals[0].candidates}) == splits


def test_the_schedule_is_that_of_the_shortest_step(timed, tmp_path):
    assert _run(*MODEL, *RANKS, "--stages", 4, "--json", tmp_path / "any.json") == 0
    plans = [read_plan(tmp_path / "any.json")]
    for schedule in SCHEDULES:
        assert _run(*MODEL, *RANKS, "--stages", 4, "--json", tmp_path / "plan.json", "--schedule", schedule) == 0
        plans.append(read_plan(tmp_path / "plan.json"))
    steps_us = {plan.schedule: simulate_step(plan).step_us for plan in plans[1:]}
    assert steps_us[plans[0].schedule] == min(steps_us.values()) < steps_us["1f1b"]
    assert set(steps_us) == {*SCHEDULES}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((*RANKS, "--schedule", "2f2b"), "schedule=2f2b is unknown; use one of gpipe, 1f1b, interleaved, zero-bubble"),
        ((*RANKS, "--microbatches", 5), "its batch of 16 is not divisible by microbatches=5"),
        ((*RANKS, "--input", "16,3,12", "--channels-last"), "has 3 sizes; --channels-last needs 4"),
        (
            ("--world", 20, "--link-gb-s", 1, "--stages", 10, "--microbatches", 16),
            "stages=10 are more than the 9 layers",
        ),
        ((*RANKS, "--memory-gb", 0.001), "no plan for world=4: data parallelism: needs"),
        (("--world", 4), "--link-gb-s is missing; give it, or --link measured on ranks that torchrun starts"),
        (("--link-gb-s", 4), "--world is missing"),
        (("--link", "measured"), "there is one rank, so there is no link; start more ranks, or state the link"),
        ((*RANKS, "--link", "measured"), "--link measured measures what --link-gb-s states; leave one of them out"),
        ((*RANKS, "--model", "tests.parallel.test_pieces:Branching"), "a branch needs the value"),
        ((*RANKS, "--input", "16,3,12"), "does not run on 2×3×12: RuntimeError: "),
        ((*RANKS, "--device", "cuda"), "device=cuda: PyTorch finds no GPU here"),
        ((*RANKS, "--json", "no/plan.json"), "--json: no/plan.json cannot be written: No such file or directory"),
        ((*RANKS, "--timeline", "no/step"), "--timeline: no/step.json cannot be written: No such file or directory"),
    ],
)
def test_bad_input_is_one_line(timed, capsys, monkeypatch, options, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert _run(*MODEL, *options) == 2
    err = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]
    assert len(err) == 1 and err[0].startswith("error: ") and message in err[0]
    assert not timed or "memory" in options[-2] or "stages" in message, "before layers are timed"


def test_commands_are_listed(capsys):
    assert parallel.main(["--help"]) == 0
    assert "  plan " in capsys.readouterr().out
    assert parallel.main(["plam"]) == parallel.main([]) == 2
    assert "command=plam is unknown; did you mean plan?; use one of plan" in capsys.readouterr().err


def on_a_rank() -> str:
    """The command with a measured link, in a job of ranks."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.MonkeyPatch.context() as patched:
        patched.setattr(settings, "is_first_rank", lambda: torch.distributed.get_rank() == 0)
        options = (*MODEL, "--link", "measured", "--seconds", 0.05, "--device", "cpu", "--break-even")
        assert parallel.main(["plan", *map(str, options)]) == 0
    return printed.getvalue()


@needs_gloo
def test_the_link_between_ranks_is_measured(two_ranks: Ranks):
    """The first rank plans for all that run."""
    first, other = two_ranks.run(on_a_rank)
    number = r"([\d.e+-]+)"
    found = re.search(
        rf"^2 ranks, a link of {number} GB/s one way, {number} each way at once, and {number} µs"
        r"( \(a MB of a sum: \d+ µs more, \d+ µs of computing\))?, 9 layers",
        first,
    )
    assert found and float(found[1]) >= float(found[2]) > 0 and float(found[3]) > 0 and other == ""


# -- when a pipeline pays ----------------------------------------------------------------------------------------------


def test_below_the_break_even_a_pipeline_pays(timed, capsys):
    """Parameters are large, and little crosses the cuts: over a fast link data parallelism is better."""
    layers = [layer(forward_us=5000.0, dgrad_us=5000.0, wgrad_us=5000.0, parameter_bytes=10**7)] * 4
    shape = Shape(world=2, link=Link(gb_s=1.0, latency_us=10.0), microbatches=8)
    found = break_even.break_even(layers, shape)
    assert found.gbit_s is not None and len(found.rows) == len(break_even.BANDWIDTHS_GBIT_S)
    assert all((row.times > 1) == (row.gbit_s < found.gbit_s) for row in found.rows)
    for gbit_s, pays in ((found.gbit_s / 1.1, True), (found.gbit_s * 1.1, False)):
        link = Link(gb_s=gbit_s / 8, latency_us=10.0)
        assert propose(layers, dataclasses.replace(shape, link=link)).candidates[0].is_data_parallel != pays
    last = break_even.report(found).splitlines()[-1]
    assert last == f"break-even: {found.gbit_s:.2g} Gbit/s; a pipeline pays over slower links"
    assert _run(*MODEL, "--world", 2, "--link-gb-s", 1, "--stages", 2, "--break-even") == 0
    assert re.search(
        r"^ +Gbit/s +data parallelism ms +pipeline ms +×  the best pipeline$", capsys.readouterr().out, re.M
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parameter_bytes": 0, "output_bytes": 10**6}, "no break-even: a pipeline pays at none of these bandwidths"),
        ({"parameter_bytes": 10**9, "output_bytes": 10}, "no break-even: a pipeline pays at each of these bandwidths"),
    ],
)
def test_there_may_be_no_break_even(change, said):
    layers = [layer(**change)] * 2
    shape = Shape(world=2, link=Link(gb_s=1.0, latency_us=1.0), microbatches=4)
    assert break_even.report(break_even.break_even(layers, shape)).splitlines()[-1] == said


def test_where_data_parallelism_does_not_fit_there_is_nothing_to_compare():
    layers = [layer(saved_bytes=10_000, parameter_bytes=0)] * 4
    shape = Shape(world=4, link=Link(gb_s=1.0, latency_us=1.0), microbatches=8, memory_bytes=35_000)
    with pytest.raises(NoPlan, match="no break-even: data parallelism does not fit"):
        break_even.break_even(layers, shape)


# -- plans in files ----------------------------------------------------------------------------------------------------


MADE = plan([layer(name="first"), layer(), layer()], replicas=2, link=Link(gb_s=12.5, latency_us=3.0))


def test_what_was_written_is_read(tmp_path):
    write_plan(MADE, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == MADE
    marked = BOM_UTF8 + (tmp_path / "plan.json").read_bytes()
    (tmp_path / "plan.json").write_bytes(marked)
    assert read_plan(tmp_path / "plan.json") == MADE
    with pytest.raises(NoPlan, match=r"none\.json cannot be read: No such file"):
        read_plan(tmp_path / "none.json")
    with pytest.raises(NoPlan, match=r"plan\.json cannot be written"):
        write_plan(MADE, tmp_path / "no folder" / "plan.json")


def _stages(*stages: tuple[int, int, int]) -> dict[str, object]:
    return {"stages": [dict(zip(("first", "last", "replicas"), stage, strict=True)) for stage in stages]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "is not a plan"),
        ({"schedule": "2f2b"}, "schedule=2f2b is unknown"),
        ({"microbatches": 0}, "$.microbatches"),
        (_stages(), "do not hold each of its 3 layers once"),
        (_stages((0, 2, 1)), "do not hold each of its 3 layers once"),
        (_stages((0, 2, 1), (2, 2, 1), (2, 3, 1)), "do not hold each of its 3 layers once"),
        (_stages((0, 2, 1), (1, 3, 1)), "do not hold each of its 3 layers once"),
        (_stages((0, 3, 0)), "replicas"),
        ({**_stages((0, 1, 1), (1, 3, 2)), "stages_per_rank": 2}, "different numbers of replicas"),
        ({**_stages((0, 1, 1), (1, 3, 9)), "microbatches": 8}, "8 microbatches are fewer than the 9 replicas"),
        ({"link": {"gb_s": 0.0, "latency_us": 0.0}}, "$.link.gb_s"),
        ({"link": {"gb_s": 1.0, "latency_us": -1.0}}, "$.link.latency_us"),
        ({"stages_per_rank": 2}, "3 stages are not 2 for each rank"),
        ({"stages_per_rank": 0}, "$.stages_per_rank"),
    ],
)
def test_one_line_says_what_is_wrong_with_a_file(tmp_path, change, message):
    path = tmp_path / "plan.json"
    path.write_text("[1, 2]" if change is None else json.dumps({**dataclasses.asdict(MADE), **change}))
    with pytest.raises(NoPlan) as raised:
        read_plan(path)
    assert str(path) in str(raised.value) and message in str(raised.value) and "\n" not in str(raised.value)


def test_a_trace_has_every_event_on_its_rank():
    """Two steps stand beside each other, rank by rank."""
    link = Link(gb_s=1.0, latency_us=10.0)
    one = simulate_step(plan([layer(output_bytes=50_000)] * 2, replicas=2, link=link))
    other = simulate_step(plan([layer(output_bytes=50_000)] * 2, replicas=[2, 1], link=link))
    events = json.loads(json.dumps(trace({"one": one.events, "other": other.events})))["traceEvents"]
    drawn = [each for each in events if each["ph"] == "X"]
    does = {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}
    kind = {"send": "sends", "receive": "receives", "reduce": "reduces"}
    both = [*((0, event) for event in one.events), *((1, event) for event in other.events)]
    for each, (step, event) in zip(drawn, both, strict=True):
        assert (each["pid"], each["ts"], each["cat"]) == (2 * event.rank + step, event.start_us, event.what)
        assert each["ts"] + each["dur"] == pytest.approx(event.end_us)
        assert does[each["pid"], each["tid"]] == kind.get(event.what, "computes")
    names = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    expected = {2 * rank: f"rank {rank} · stage {rank // 2} · one" for rank in range(4)}
    assert names == expected | {2 * rank + 1: f"rank {rank} · stage {rank // 2} · other" for rank in range(3)}
    named = {each["name"] for each in drawn}
    assert {"forward 0", "dgrad 7", "activations to rank 2", "gradients from rank 3", "sum of gradients"} <= named
    assert "wait 0" in named
