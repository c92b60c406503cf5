"""bench parallel: the networks are those of the papers, ranks answer, and what is printed follows from it."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest
import torch

from bench import links, parallel_rank
from bench import parallel as bench
from bench.__main__ import main
from bench.models import resnet
from bench.parallel import ParallelCase
from dwconv.parallel import Communication, joining, ranks
from dwconv.parallel.planning.pipeline_plan import FREE_LINK
from tests.parallel.made_up_layers import layer


def row(name, *, median_ms, predicted_ms, steps=3, way="", rate="loopback", planned=False):
    ratio, error = 100 / median_ms, predicted_ms / median_ms - 1
    of_case = {
        "network": "ResNet-18",
        "images": "CIFAR-100",
        "world": 2,
        "spread_ms": 1.0,
        "steps": steps,
        "rate": rate,
        "planned": planned,
    }
    found = {"name": name, "median_ms": median_ms, "predicted_ms": predicted_ms, "error": error, "way": way}
    fast = {"times_as_fast_as_data_parallelism": ratio, "times_as_fast_as_conventional": 2 * ratio}
    return {**of_case, **found, **fast, "contention": 0.0}


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
    plain = row("data parallelism", median_ms=100, predicted_ms=90, way="buckets of 1, then 25 MiB")
    found = [plain, row("1f1b", median_ms=80, predicted_ms=88, planned=True)]
    monkeypatch.setattr(bench, "measured", lambda case, rate, *, seconds: found)
    assert main(["parallel", "--only", "ResNet-18 CIFAR-100 2", "--rates", "loopback", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "1.25" in out and "2.50" in out and "+10%" in out and "-10%" in out
    assert "the simulator on 2 ranks, loopback, pipelines: mean error 10%, at most 10%" in out
    assert "+10%    ← plan\n" in out and "buckets of 1, then 25 MiB\n" in out
    assert (
        "plan takes 1f1b, 2.50 × as fast as all-reduce after the backward pass (the method: 1.47), 1.25 × PyTorch's "
        "default"
    ) in out
    (written,) = tmp_path.iterdir()
    assert json.loads(written.read_text())["rows"] == found
    for options, said in (("--only", "VGG"), "is in no case"), (("--seconds", "1"), "too short"):
        assert main(["parallel", *options]) == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1


def over_links(seen, simulated=None):
    """Rows of a case by the bandwidth of links, in Gbit/s: how many times as fast as data parallelism a pipeline is."""
    rows = []
    for gbit_s, times in seen.items():
        predicted_ms = 100 / (simulated or seen)[gbit_s]
        of_data = row("data parallelism", median_ms=100, predicted_ms=100, way="any", rate=str(gbit_s))
        best = row("1f1b", median_ms=100 / times, predicted_ms=predicted_ms, rate=str(gbit_s))
        other = row("gpipe", median_ms=9000, predicted_ms=9000, rate=str(gbit_s))
        rows += [{**each, "link_gb_s": gbit_s / 8} for each in (of_data, other, best)]
    return rows


@pytest.mark.parametrize(
    ("times", "break_even"),
    [
        ({0.1: 10.0, 1: 10**0.5, 10: 10**-0.5}, "3.2"),  # half way, by logarithms
        ({10: 0.1, 1: 10.0}, "3.2"),
        ({0.1: 10.0, 1: 1.0, 10: 0.5}, "1"),
        ({0.1: 10.0, 1: 0.5, 2: 1.1, 10: 0.9}, "4.3"),  # the fastest link counts
        ({0.1: 10.0, 1: 2.0}, "> 1"),
        ({0.1: 0.9, 1: 0.5}, "< 0.1"),
    ],
)
def test_the_break_even_lies_between_links(times, break_even):
    (case,) = bench.cases_over_links(over_links(times, simulated=dict.fromkeys(times, 2.0)))
    assert case.break_even("median_ms") == break_even and case.break_even("predicted_ms") == f"> {max(times)}"
    assert case.times("1", "median_ms") == pytest.approx(times[1])


def test_when_a_pipeline_pays_is_said_of_cases_over_several_links(monkeypatch, tmp_path, capsys):
    by_rate = {gbit_s: over_links({gbit_s: times}, {gbit_s: 2.0}) for gbit_s, times in ((10, 0.1), (1, 10.0))}
    monkeypatch.setattr(bench, "measured", lambda case, rate, *, seconds: by_rate[int(rate)])
    run = ["parallel", "--only", "ResNet-18 CIFAR-100 2", "--out", str(tmp_path)]
    assert main([*run, "--rates", "10,1"]) == 0
    said = "ResNet-18, CIFAR-100, 2 ranks: a pipeline breaks even at 3.2 Gbit/s as measured, > 10 as simulated\n"
    assert said in capsys.readouterr().out
    assert main([*run, "--rates", "1"]) == 0
    assert "breaks even" not in capsys.readouterr().out


def test_cases_that_do_not_fit_are_named(monkeypatch, tmp_path, capsys):
    now = [0.0]
    monkeypatch.setattr(links.time, "monotonic", lambda: now[0])

    def measured(case, rate, *, seconds):
        now[0] += seconds
        return [row("data parallelism", median_ms=100, predicted_ms=90, steps=1)]

    monkeypatch.setattr(bench, "measured", measured)
    assert main(["parallel", "--seconds", "100", "--rates", "loopback", "--out", str(tmp_path)]) == 0
    assert now[0] <= 100
    out = capsys.readouterr().out
    assert "left out, since 100 s were over: ResNet-50 CIFAR-10 2 ranks loopback" in out and now[0] > 50


def test_a_case_needs_longer_on_a_slow_link():
    """ResNet-50 sends 94 MB of gradients, 7.5 s at 0.1 Gbit/s, in three forms and four rounds: under 4 minutes."""
    case = next(case for case in bench.CASES if case.name == "ResNet-50 CIFAR-10 2 ranks")
    slow, fast = bench._least_s((case, "0.1")), bench._least_s((case, "10"))
    assert 3 * 4 * 7.5 < slow < 240 and fast < 90


def test_a_link_that_cannot_be_made_is_a_row_with_the_reason(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "why_not", lambda: "links cannot be limited without tc")
    monkeypatch.setattr(bench, "run_ranks", lambda *arguments, **keywords: pytest.fail("no rank may start"))
    assert main(["parallel", "--only", "ResNet-18 CIFAR-100 2", "--rates", "1", "--out", str(tmp_path)]) == 0
    assert "2 1 Gbit/s    links cannot be limited without tc" in capsys.readouterr().out
    (written,) = tmp_path.iterdir()
    (found,) = json.loads(written.read_text())["rows"]
    assert found["failed"] == "links cannot be limited without tc" and found["rate"] == "1"


@pytest.mark.parametrize(
    ("limit_s", "step_s", "slower_s", "rounds"),
    [(1000, 1, 1, 11), (100, 3, 3, 9), (30, 3, 3, 1), (30, 40, 40, 0), (100, 3, 60, 0), (5, 3, 3, 0)],
)
def test_no_step_begins_once_the_time_is_up(monkeypatch, limit_s, step_s, slower_s, rounds):
    """``slower_s``: from the seventh step on, as other work may make them."""
    now, steps = [0.0], []

    def step(x, target):
        steps.append(now[0])
        now[0] += step_s if len(steps) < 7 else slower_s

    runners = [
        parallel_rank._Runner(plan=None, step=step, optimizer=SimpleNamespace(step=lambda: None)) for _ in range(3)
    ]
    with ranks(device="cpu"), monkeypatch.context() as patched:
        patched.setattr(joining, "time", SimpleNamespace(monotonic=lambda: now[0]))
        patched.setattr(parallel_rank, "time", SimpleNamespace(perf_counter=lambda: now[0]))
        limit = joining.TimeLimit(limit_s)
        parallel_rank._train_in_turns(runners, torch.zeros(1), torch.zeros(1), limit=limit)
    assert steps[-1] < limit_s and [len(each.rounds) for each in runners] == [rounds] * 3
    assert all(each.step_s in (step_s, slower_s) for runner in runners for each in runner.rounds)


def test_a_case_without_a_whole_round_says_so(monkeypatch):
    case = ParallelCase(network="ResNet-18", images="tiny", classes=10, size=8, world=1, batch=2, microbatches=2)
    monkeypatch.setattr(parallel_rank, "measured_link", lambda: FREE_LINK)
    monkeypatch.setattr(parallel_rank, "_costs", lambda *of, **how: (layer(),) * 3)
    monkeypatch.setattr(parallel_rank, "_plans", lambda *of: {})
    monkeypatch.setattr(parallel_rank, "_data_parallel", lambda *of, **how: parallel_rank._Runner(
        plan=of[1], step=lambda x, target: pytest.fail("no time"), optimizer=None, way=Communication()))  # fmt: skip
    with ranks(device="cpu"):
        (row,) = parallel_rank._measured(parallel_rank.ParallelJob(case=case, seconds=0.1, ends_at_s=0.0))
    assert row == {"failed": "no round of all forms was over in 0 s; give more --seconds"}
    about = {"network": "ResNet-18", "images": "tiny", "world": 1, "rate": "1"}
    assert bench._line({**about, **row}).endswith("no round of all forms was over in 0 s; give more --seconds")


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "world"), [("loopback", 2), ("loopback", 3), ("1", 2)])
def test_ranks_answer(monkeypatch, rate, world):
    """Shares of one second, and time for all rounds, on a busy machine, too."""
    monkeypatch.setattr(bench, "time", SimpleNamespace(time=lambda: time.time() + 3600))
    if rate != "loopback" and links.why_not():
        pytest.skip(links.why_not())
    case = ParallelCase(
        network="ResNet-18", images="tiny", classes=10, size=8, world=world, batch=2 * world, microbatches=world
    )
    rows = bench.measured(case, rate, seconds=1.0)
    of_data, of_pipelines = rows[:3], rows[3:]
    assert [each["name"] for each in of_data] == ["data parallelism", "all-reduce after backward", "the way chosen"]
    schedules = ["gpipe", "1f1b", "interleaved", "zero-bubble"]
    names = [each["name"] for each in of_pipelines]
    if world == 2:
        assert names == schedules
    else:  # of two stages, and what plan takes, if that is another pipeline
        assert names[0] in ("1f1b, 2 + 1", "1f1b, 1 + 2") and len(set(names)) <= 2
        assert all(each["planned"] for each in of_pipelines[1:])
    assert sum(each["planned"] for each in rows) == 1
    assert all(each["median_ms"] > 0 and each["predicted_ms"] > 0 for each in rows)
    if rate != "loopback":  # a step sends 45 MB, and nothing is faster than the link
        assert rows[0]["link_gb_s"] < 0.14 and rows[1]["median_ms"] > 300
