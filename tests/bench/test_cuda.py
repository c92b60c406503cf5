"""bench cuda from the command line: its stages, what they end with, and its exit status. Stages are made up here."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import time

import pytest
import torch

from bench.__main__ import main
from bench.cases import GPU_LAYERS, OWN, gpu_workloads, odd_workloads
from bench.gpu import cuda
from bench.gpu.run import FILE, Ended, Pace
from bench.gpu.train import ROWS
from dwconv.errors import BuildError
from dwconv.problems.target import parse_target
from dwconv.problems.workload import BLOCK_PASSES, DTYPES, LAYOUTS, PASSES

TARGET = dataclasses.replace(parse_target("cuda:sm_90"), device="nvidia-made-up", present=True)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that is never used; stages that run nothing. Gives what each is to do, by name."""
    monkeypatch.setattr(cuda, "parse_target", lambda text: TARGET)
    stages = {
        name: dataclasses.replace(stage, run=lambda run: Ended(line="fine")) for name, stage in cuda.STAGES.items()
    }
    monkeypatch.setattr(cuda, "STAGES", stages)

    def plan(name, run):
        stages[name] = dataclasses.replace(stages[name], run=run)

    return plan


def bench(tmp_path, *options):
    return main(["cuda", *options, "--out", str(tmp_path)])


def raising(error):
    def run(run):
        raise error

    return run


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_refuses_in_one_line(capsys, tmp_path):
    assert bench(tmp_path) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "no GPU" in err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["speed"], "stage speed is unknown; use smoke, host, train, depthwise, sizes, first_run, tune, race, "),
        (["--seconds", "nan"], "nan is not a number of 0 or more"),
        (["--first", "0"], "0 is not a whole number of at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path, capsys, options, named):
    with pytest.raises(SystemExit) as exit_:
        bench(tmp_path, *options)
    out, err = capsys.readouterr()
    assert exit_.value.code == 2 and out == "" and err.count("\n") == 1 and named in err


def test_all_stages_run_in_their_order_and_end_with_a_line_and_a_summary(gpu, tmp_path, capsys):
    assert bench(tmp_path) == 0
    run, _, summary = capsys.readouterr().out.partition("\nsummary, ")
    assert [line.split()[0] for line in run.splitlines() if line.endswith("fine")] == [
        "[smoke]", "[host]", "[train]", "[depthwise]", "[sizes]", "[first_run]", "[tune]", "[race]", "[blocks]",
        "[sequences]", "[partition]", "[verify]", "[cores]", "[streams]",
    ]  # fmt: skip
    assert [line.split() for line in summary.splitlines()[1:]] == [[name, "fine"] for name in cuda.STAGES]
    assert json.loads((tmp_path / FILE).read_text())["device"] == TARGET.device


def test_stages_can_run_alone_and_one_that_failed_makes_the_exit_status(gpu, tmp_path, capsys):
    seen = {}
    for name in ("verify", "race"):
        ended = Ended(line="1 wrong", failed=name == "verify")
        gpu(name, lambda run, name=name, ended=ended: seen.setdefault(name, run) and ended)
    assert bench(tmp_path, "race", "verify", "--first", "2", "--one-process", "--seconds", "60") == 1
    assert "FAILED: 1 wrong" in capsys.readouterr().out
    assert list(seen) == ["race", "verify"], "in the order of all stages"
    run = seen["verify"]
    assert run.workloads == gpu_workloads()[:2] and run.odd == odd_workloads(), "--first does not cut what is verified"
    assert run.one_process and run.target is TARGET and run.state.path.parent == tmp_path
    assert seen["race"].pace.left_s <= 60 * 1.5 / 3.5 < seen["verify"].pace.left_s <= 60, "what race leaves is verify's"


def test_without_names_each_stage_gets_its_minutes_before_the_next_begins(gpu, tmp_path):
    lent = {}
    for name in cuda.STAGES:
        gpu(name, lambda run, name=name: lent.setdefault(name, run.pace.left_s) and Ended(line="fine"))
    assert bench(tmp_path, "--seconds", "200") == 0
    assert lent["train"] == pytest.approx(200, abs=5), "its minutes are more"
    assert 60 * cuda.STAGES["host"].minutes - 5 < lent["host"] <= 60 * cuda.STAGES["host"].minutes
    lent.clear()
    assert bench(tmp_path, "--seconds", "36000") == 0
    assert lent["host"] > 10 * 60 * cuda.STAGES["host"].minutes, "its share is more"


def test_only_verify_leaves_out_what_ships_as_right_and_only_on_request(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(cuda, "shipped_results", lambda target: {"programs": ["ab", "cd"]})
    seen = {}
    for name in ("smoke", "verify"):
        gpu(name, lambda run, name=name: seen.update({name: run.known_programs}) or Ended(line="fine"))
    assert bench(tmp_path, "smoke", "verify", "--newer") == 0
    assert seen == {"smoke": frozenset(), "verify": frozenset({"ab", "cd"})}
    assert bench(tmp_path, "verify") == 0 and seen["verify"] == frozenset()


def test_it_starts_from_what_ships_for_the_device(gpu, tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / f"{TARGET.device}.jsonl").write_text("records")
    monkeypatch.setattr(cuda, "shipped_log_folder", lambda: tmp_path / "logs")
    of_kept = {stage: {"C++": 1} for stage in cuda.KEPT}
    shipped = {**of_kept, "rows": [{"workload": "w", "config": 2}], "blocks": [{"workload": "b"}], "steps": {}}
    monkeypatch.setattr(cuda, "shipped_results", lambda target: shipped)
    seen = {}
    gpu("verify", lambda run: seen.update(run=run) or Ended(line="fine"))
    own = tmp_path / "out"
    monkeypatch.setattr(cuda, "_write_results", lambda *of: None)
    assert bench(own, "verify") == 0
    of = seen["run"].state.of
    assert (of("host"), list(of("race")), list(of("blocks"))) == ({"C++": 1}, ["w"], ["b"])
    assert {stage: of(stage) for stage in cuda.KEPT} == {stage: {"C++": 1} for stage in cuda.KEPT}
    assert (own / f"{TARGET.device}.jsonl").read_text() == "records"
    (own / f"{TARGET.device}.jsonl").write_text("more")
    assert bench(own, "verify") == 0 and (own / f"{TARGET.device}.jsonl").read_text() == "more"


def test_the_cpp_of_calls_is_compiled_beside_the_first_stages_and_awaited_before_calls_are_measured(
    gpu, tmp_path, capsys, monkeypatch
):
    seen = []
    monkeypatch.setattr(cuda.native, "soon", lambda: seen.append("begun"))
    monkeypatch.setattr(cuda.native, "native", lambda *, limit_s: seen.append("awaited") or time.sleep(1.01))
    for name in ("smoke", "host", "train"):
        gpu(name, lambda run, name=name: seen.append(name) or Ended(line="fine"))
    assert bench(tmp_path, "smoke", "host") == 0
    assert seen == ["begun", "smoke", "awaited", "host"]
    assert "[host] waited 1 s for the C++ of calls" in capsys.readouterr().out
    seen.clear()
    monkeypatch.setattr(cuda.native, "native", lambda *, limit_s: seen.append(limit_s <= 60))
    assert bench(tmp_path, "smoke") == 0 and seen == ["smoke"], "where nothing measures calls, nothing is compiled"
    assert bench(tmp_path, "train", "--seconds", "60") == 0 and seen == ["smoke", "begun", True, "train"]


def test_stages_take_kernels_of_a_folder_and_say_how_many(gpu, tmp_path, capsys):
    taken = []
    gpu("verify", lambda run: taken.append(run.prepared) or Ended(line="fine"))
    assert bench(tmp_path, "verify") == 0 and taken.pop() is None
    assert "kernels came from" not in capsys.readouterr().out
    assert bench(tmp_path, "verify", "--prepared", str(tmp_path / "none")) == 0, "it runs without"
    out = capsys.readouterr().out
    assert f"[prepared] {tmp_path / 'none' / 'prepared.json'} cannot be read: No such file" in out
    assert f"[verify] 0 kernels came from {tmp_path / 'none'}, 0 were compiled" in out and not taken[0].names


def row(name, **more):
    return {name: {"median_ms": {"plain": 2.0}, "passes": {"of": 3, "left": []}, **more}}


FIRST, SECOND, *_ = ROWS["train"]
(HEAVY, *_) = ROWS["depthwise"]
LACKS = {"passes": {"of": 3, "left": ["wgrad"]}}


def test_steps_that_ship_are_not_measured_again_unless_they_lack_passes_or_it_is_asked_for(gpu, tmp_path, monkeypatch):
    shipped = {"steps": {"MobileNetV2 float16": {}, **row(FIRST), **row(SECOND, **LACKS), **row(HEAVY)}}
    monkeypatch.setattr(cuda, "shipped_results", lambda target: copy.deepcopy(shipped))
    seen = {}
    for name in ROWS:
        gpu(name, lambda run, name=name: seen.update({name: run.state}) or Ended(line="fine"))
    assert bench(tmp_path / "a", *ROWS) == 0
    assert (list(seen["train"].of("train")), list(seen["train"].of("depthwise"))) == ([FIRST, SECOND], [HEAVY])
    assert FIRST not in seen["train"].left("train", ROWS["train"])
    assert bench(tmp_path / "b", *ROWS, "--again") == 0
    assert FIRST in seen["train"].left("train", ROWS["train"]) and HEAVY in seen["train"].left("depthwise", [HEAVY])
    seen["train"].put("train", FIRST, row(FIRST, again=True)[FIRST])
    seen["train"].flush()
    assert bench(tmp_path / "b", *ROWS, "--again") == 0
    assert FIRST not in seen["train"].left("train", ROWS["train"]), "measured again before"


def test_results_keep_the_rows_that_count(gpu, tmp_path, monkeypatch):
    shipped = {"steps": {"MobileNetV2 float16": {"ratio": 1}, **row(FIRST, shipped=True), **row(SECOND, **LACKS)}}
    shipped |= {"verified": {"right": 7}, "measured": {"launch_us": 2.0}}
    monkeypatch.setattr(cuda, "shipped_results", lambda target: copy.deepcopy(shipped))

    def measured(run):
        run.state.put("train", FIRST, {"failed": "it hangs"})
        run.state.put("train", SECOND, row(SECOND, new=True)[SECOND])
        return Ended(line="fine")

    gpu("train", measured)
    gpu("depthwise", lambda run: run.state.put("depthwise", HEAVY, row(HEAVY, **LACKS)[HEAVY]) or Ended(line="fine"))
    assert bench(tmp_path, *ROWS) == 0
    (written,) = (json.loads(path.read_text()) for path in tmp_path.glob("cuda-*.json"))
    steps = written["steps"]
    assert steps.keys() == {"MobileNetV2 float16", FIRST, SECOND, HEAVY}
    assert steps[FIRST]["shipped"] and steps[SECOND]["new"] and steps[HEAVY]["passes"]["left"] == ["wgrad"]
    assert written["verified"] == {"right": 7} and written["measured"] == {"launch_us": 2.0}, "of the run that shipped"


@pytest.mark.parametrize("error", [BuildError("no way"), RuntimeError("no way\nsecond line")])
def test_a_stage_that_cannot_run_is_reported_and_the_others_run(gpu, tmp_path, capsys, error):
    gpu("smoke", raising(error))
    assert bench(tmp_path) == 1
    out = capsys.readouterr().out
    assert "[smoke] could not run: " in out and "no way" in out
    assert "[streams] fine" in out and "summary, " in out


def test_a_stage_that_does_not_end_is_interrupted(gpu, tmp_path, capsys, monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(cuda, "Pace", functools.partial(Pace, now=lambda: now_s[0]))

    def hangs(run):
        now_s[0] = 1.0
        while True:
            time.sleep(0.01)

    gpu("smoke", hangs)
    assert bench(tmp_path, "smoke", "race", "--seconds", "0.2") == 0
    out = capsys.readouterr().out
    assert "[smoke] time was up in the middle" in out and "[race] time was up before it started" in out


def test_ctrl_c_ends_with_what_is_known(gpu, tmp_path, capsys):
    gpu("tune", raising(KeyboardInterrupt()))
    assert bench(tmp_path) == 130
    out, err = capsys.readouterr()
    assert "train     fine" in out.partition("summary, ")[2] and "race" not in out
    assert err == "interrupted\n"


@pytest.mark.parametrize(
    "workloads, passes", [(gpu_workloads(every=True), PASSES), (odd_workloads(), (*PASSES, *BLOCK_PASSES))]
)
def test_the_workloads_stand_for_all(workloads, passes):
    assert len({workload.key for workload in workloads}) == len(workloads)
    assert {workload.pass_ for workload in workloads} == set(passes)
    assert {workload.layout for workload in workloads} == set(LAYOUTS)
    assert {workload.dtype for workload in workloads} == set(DTYPES)
    assert {1, 2} == {workload.stride[0] for workload in workloads}


def test_what_networks_are_trained_in_comes_first():
    usual, every = gpu_workloads(), gpu_workloads(every=True)
    assert every[: len(usual)] == usual and len(every) > len(usual)
    assert list(dict.fromkeys((workload.dtype, workload.layout) for workload in usual)) == list(OWN)
    assert len(usual) == len(OWN) * len(GPU_LAYERS) * len(PASSES)
