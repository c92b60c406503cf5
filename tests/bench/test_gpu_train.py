"""The stages train and depthwise of bench cuda: which rows there are, in what order, and which of them count."""

from __future__ import annotations

import dataclasses

import pytest

from bench import paired_steps
from bench.gpu import train as gpu_train
from bench.gpu.run import Pace
from bench.gpu.train import DEPTHWISE, ROWS, TRAINED, rows_of
from bench.results import counts
from dwconv.errors import WorkerDied, WorkerTimeout
from dwconv.tuner.race_result import RaceResult
from tests.bench.gpu_runs import run_of
from tests.bench.small_networks import SPACIOUS, TINY

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]

FIGURES = {
    "median_ms": {"plain": 22.0, "converted": 20.0},
    "samples_per_s": {"plain": 136.4, "converted": 150.0},
    "peak_bytes": {"plain": 3 << 29, "converted": 1 << 30},
    "ratio": {"median": 1.1, "quartiles": [1.05, 1.15], "at_most": 1.3},
    "layers": {"fprop dwconv": 2, "wgrad pytorch": 1},
    "loss_difference": {"converted": 1e-3, "rounded": 2e-3},
}
TOO_LARGE = {"out_of_memory": "OutOfMemoryError: CUDA out of memory"}
A, B = (f"{name} float16 batch 3" for name in "AB")


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """What a stage ends with if races of steps give ``answers``, and races of passes leave as many as ``left`` says,
    else none."""

    def train_networks(*answers, left=(), pace=None, types=("float16",), compiled=True):
        asked, tuned, plan, leaves = [], [], list(answers), list(left)

        def raced(network, how, *, environment, timeout_s):
            asked.append((f"{network.name} {how['autocast']}", network.batch, how, environment, timeout_s))
            found = plan.pop(0)
            if isinstance(found, Exception):
                raise found
            return dict(found)

        def raced_first(workloads, run, *, stage, seconds):
            tuned.append((list(workloads), seconds))
            return RaceResult(left=tuple(workloads[: leaves.pop(0) if leaves else 0]))

        monkeypatch.setattr(gpu_train, "raced", raced)
        monkeypatch.setattr(gpu_train, "race_untuned", raced_first)
        run = run_of(tmp_path, pace=pace)
        two = [dataclasses.replace(TINY, name=name) for name in "AB"]
        ended = gpu_train.train_stage(run, rows=rows_of(two, types, compiled=compiled))
        run.state.flush()
        assert not plan, "every answer was asked for"
        return ended, asked, tuned, run

    return train_networks


def test_all_networks_come_in_the_first_type_before_the_next_and_compiled_at_last():
    of = {
        name: [(row.network.name, row.dtype, row.is_compiled) for row in rows.values()] for name, rows in ROWS.items()
    }
    usual = [network.name for network in TRAINED]
    assert len(usual) == 4 and {network.batch for network in TRAINED} == {256}
    assert of["train"] == [
        (name, dtype, compiled) for compiled in (False, True) for dtype in ("bfloat16", "float16") for name in usual
    ]
    heavy = [network.name for network in DEPTHWISE]
    assert of["depthwise"] == [(name, "bfloat16", compiled) for compiled in (False, True) for name in heavy]
    assert {network.dims for network in DEPTHWISE} == {1, 2, 3} and "timm:inception_next_tiny" in heavy
    assert next(iter(ROWS["train"])) == "MobileNetV2 bfloat16 batch 256"


def test_networks_are_trained_in_mixed_precision_each_bounded_once_their_passes_were_raced(trained):
    ended, asked, tuned, run = trained(*[FIGURES] * 4)
    assert [name for name, *_ in asked] == ["A float16", "B float16"] * 2 and not ended.failed
    for (_, batch, how, environment, timeout_s), compiled in zip(asked, (False, False, True, True), strict=True):
        assert (batch, how["device"], how["blocks"]) == (3, "cpu", True) and 0 < how["seconds"] < 60
        assert environment["DWCONV_TUNING_LOGS"] == str(run.log.path) and 0 < timeout_s <= 180 + 180 * compiled
        assert (how["compile"], how["graphs"]) == (compiled, not compiled)
    (workloads, seconds), *_ = tuned
    assert len(tuned) == 4 and {workload.dtype for workload in workloads} == {"float16"} and len(workloads) > 9
    assert {workload.batch for workload in workloads} == {3} and 0 < seconds <= 300 <= run.pace.left_s
    row = run.state.of("train")[A]
    assert (row["network"], row["dtype"], row["batch"], row["compiled"]) == ("A", "float16", 3, False)
    assert row["passes"] == {"of": len(workloads), "left": []} and counts(row)
    of_all = f"batch 3, {len(workloads)} of {len(workloads)} passes raced"
    for told in (
        f"{A} 20.0 ms, 1.10 times as fast (1.05 to 1.15, at most 1.30)", f"{A} compiled 20.0", of_all,
        "a second: plain 136, converted 150, GiB at most: plain 1.50, converted 1.00", "2 of 3 passes by dwconv",
    ):  # fmt: skip
        assert told in ended.line
    ended, asked, tuned, _ = trained()
    assert asked == tuned == [] and ended.line.startswith(f"{A} 20.0 ms"), "what counts is not measured again"


def test_a_row_whose_passes_were_not_all_raced_does_not_count_and_the_next_run_goes_on_with_it(trained):
    """Each once more in the same run, as there is time; then in the next run, and not after that."""
    ended, asked, tuned, run = trained(*[FIGURES] * 3, left=[0, 5, 2], compiled=False)
    assert [name for name, *_ in asked] == ["A float16", "B float16", "B float16"] and len(tuned) > 3
    of = len(tuned[0][0])
    row = run.state.of("train")[B]
    assert not counts(row) and row["passes"] == {"of": of, "left": [each.key for each in tuned[0][0][:2]]}
    assert f"; {B} does not count yet: {of - 2} of {of} passes raced; time is up, 1 of 2 left" in ended.line
    assert ended.line.count("20.0 ms") == 1 and not ended.failed
    ended, asked, *_ = trained({**FIGURES, "median_ms": {"plain": 9.0, "converted": 8.0}}, compiled=False)
    assert [name for name, *_ in asked] == ["B float16"] and f"{B} 8.0 ms" in ended.line and "left" not in ended.line
    assert trained(compiled=False)[1] == []


def test_training_that_does_not_fit_is_not_begun_but_passes_are_raced_in_the_time(trained):
    ended, asked, tuned, _ = trained(pace=Pace(10, first_s=20, now=lambda: 0.0))
    assert asked == [] and ended.line == "no network was trained; time is up, 4 of 4 left" and not ended.failed
    assert [seconds for _, seconds in tuned] == [5.0] * 4
    assert trained(pace=Pace(1, first_s=20, now=lambda: 0.0))[2] == [], "nothing begins in a second"


def test_time_that_is_up_after_the_race_leaves_no_row(trained):
    at = iter(range(0, 10**6, 30))
    ended, asked, tuned, run = trained(pace=Pace(100, first_s=20, now=lambda: next(at)))
    assert asked == [] and len(tuned) == 1 and not run.state.of("train") and "4 of 4 left" in ended.line


def test_steps_that_are_ended_since_the_time_is_up_leave_no_row(trained):
    """Of ``died`` alone the row would say that it failed."""
    at = iter(range(0, 10**6, 30))
    died = WorkerTimeout("training A: no end after 20 s")
    ended, asked, _, run = trained(died, pace=Pace(200, first_s=20, now=lambda: next(at)))
    assert len(asked) == 1 and not run.state.of("train") and "4 of 4 left" in ended.line and not ended.failed


def test_a_network_that_fails_is_reported_and_the_next_is_trained(trained, monkeypatch):
    died = WorkerDied("training A: it ended with code 1")
    ended, asked, *_ = trained(died, died, FIGURES, compiled=False)
    assert len(asked) == 3 and f"{A} failed: training A: it ended with code 1; B" in ended.line and not ended.failed
    assert (asked[0][2]["graphs"], "graphs" in asked[1][2]) == (True, False), "a capture may break a process"
    usual = gpu_train.workloads_of

    def broken(network, **how):
        if network.name == "A":
            raise RuntimeError("boom\nat line 3")
        return usual(network, **how)

    monkeypatch.setattr(gpu_train, "workloads_of", broken)
    ended, asked, *_ = trained(compiled=False)
    assert asked == [] and f"{A} failed: RuntimeError: boom at line 3; B" in ended.line


def test_the_run_fails_if_no_network_ran_the_kernels_that_its_row_names(trained):
    misnamed = {"converted": "dwconv's kernels ran fprop 0 of 2 times"}
    ended, *_ = trained(*[{**FIGURES, "misnamed": misnamed}] * 2, compiled=False)
    assert ended.failed and f"{A} failed: converted: dwconv's kernels ran fprop 0 of 2 times; B" in ended.line


# -- memory ----------------------------------------------------------------------------------------------------------


def test_a_batch_that_does_not_fit_into_memory_is_halved_and_its_passes_are_raced(trained):
    ended, asked, tuned, run = trained(TOO_LARGE, FIGURES, FIGURES, compiled=False)
    assert [(name, batch) for name, batch, *_ in asked] == [("A float16", 3), ("A float16", 1), ("B float16", 3)]
    assert [{each.batch for each in workloads} for workloads, _ in tuned] == [{3}, {1}, {3}]
    row = run.state.of("train")[A]
    assert (row["batch"], row["batches_too_large"]) == (1, [3]) and counts(row)
    assert "batch 1, since 3 does not fit into memory, " in ended.line


def test_a_network_of_which_no_batch_fits_fails_and_the_next_run_begins_with_the_batch_that_it_came_to(trained):
    ended, asked, _, run = trained(TOO_LARGE, TOO_LARGE, FIGURES, compiled=False)
    assert f"{A} failed: OutOfMemoryError: CUDA out of memory; B" in ended.line and not ended.failed
    assert run.state.of("train")[A]["batches_too_large"] == [3]
    _, asked, *_ = trained(FIGURES, compiled=False)
    assert [(name, batch) for name, batch, *_ in asked] == [("A float16", 1)]


def test_steps_of_a_model_that_runs_out_of_memory_are_those_of_half_the_batch(tmp_path, logs, monkeypatch):
    """Whole: no answer is planted, only the memory of the device, and that no pass is raced."""

    def here(network, how, *, environment, timeout_s):
        sizes = {"batch": network.batch, "image": network.sample[-1]}
        return paired_steps.race(model="tests.bench.small_networks:SPACIOUS", **sizes, **{**how, "profile": False})

    monkeypatch.setattr(gpu_train, "raced", here)
    monkeypatch.setattr(gpu_train, "race_untuned", lambda workloads, run, **how: RaceResult())
    run = run_of(tmp_path)
    ended = gpu_train.train_stage(run, rows=rows_of([SPACIOUS], ["bfloat16"], compiled=False), steps=2)
    (row,) = run.state.of("train").values()
    assert (row["batch"], row["batches_too_large"]) == (2, [8, 4]), row
    assert "batch 2, since 4 does not fit into memory" in ended.line and not ended.failed
    ms = row["median_ms"]
    assert row["samples_per_s"] == {name: pytest.approx(2e3 / ms[name]) for name in ms}
    assert {"plain", "converted"} <= ms.keys() and "converted + graphs" in row["refused"], "there is no GPU"
