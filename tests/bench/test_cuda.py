"""bench cuda from the command line: its stages, what they end with, and its exit status. Stages are made up here."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest
import torch

from bench.__main__ import main
from bench.cases import GPU_LAYERS, OWN, gpu_workloads, odd_workloads
from bench.gpu import cuda
from bench.gpu.run import FILE, Ended
from dwconv.errors import BuildError
from dwconv.problems.target import parse_target
from dwconv.problems.workload import BLOCK_PASSES, DTYPES, LAYOUTS, PASSES

TARGET = dataclasses.replace(parse_target("cuda:sm_90"), device="nvidia-made-up", present=True)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that is never asked for anything; stages that run nothing. Gives what each is to do, by name."""
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


@pytest.mark.slow
def test_the_plan_has_predicted_costs(capsys):
    assert main(["cuda", "--dry-run", "--first", "2"]) == 0
    out = capsys.readouterr().out
    assert all(stage in out for stage in cuda.STAGES)
    for workload in gpu_workloads()[:2]:
        assert workload.key in out


def test_the_plan_is_of_the_stages_that_are_named(capsys, monkeypatch):
    monkeypatch.setattr(cuda, "gpu_workloads", lambda **every: [])
    assert main(["cuda", "race", "smoke", "--dry-run", "--seconds", "0"]) == 0
    planned = [line.split()[0] for line in capsys.readouterr().out.partition("\n\n")[0].splitlines()]
    assert planned == ["smoke", "race"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["speed"], "stage speed is unknown; use smoke, verify, host, tune, race, blocks, train"),
        (["--seconds", "-1"], "-1 is not a number of 0 or more"),
        (["--seconds", "nan"], "nan is not a number of 0 or more"),
        (["--seconds", "soon"], "soon is not a number of 0 or more"),
        (["--first", "0"], "0 is not a whole number of at least 1"),
        (["--first", "few"], "few is not a whole number"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path, capsys, options, named):
    with pytest.raises(SystemExit) as exit_:
        bench(tmp_path, *options)
    out, err = capsys.readouterr()
    assert exit_.value.code == 2 and out == "" and err.count("\n") == 1 and named in err


@pytest.mark.parametrize(
    "options", [["--continue-from", "nowhere.json"], ["--continue-from", "torn.json"], ["--out", "torn.json"]]
)
def test_bad_files_are_one_line(gpu, tmp_path, capsys, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torn.json").write_text("{torn")
    assert main(["cuda", *options]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith(f"error: {options[0].strip('-')}={options[1]}")


def test_all_stages_run_in_their_order_and_end_with_a_line_and_a_summary(gpu, tmp_path, capsys):
    assert bench(tmp_path) == 0
    run, _, summary = capsys.readouterr().out.partition("\nsummary, ")
    assert [line.split()[0] for line in run.splitlines() if line.endswith("fine")] == [
        "[smoke]", "[verify]", "[host]", "[tune]", "[race]", "[blocks]", "[train]",
    ]  # fmt: skip
    assert [line.split() for line in summary.splitlines()[1:]] == [[name, "fine"] for name in cuda.STAGES]
    assert json.loads((tmp_path / FILE).read_text())["device"] == TARGET.device


def test_stages_can_run_alone(gpu, tmp_path, capsys):
    seen = {}
    for name in ("verify", "race"):
        gpu(name, lambda run, name=name: seen.setdefault(name, run) and Ended(line="fine"))
    assert bench(tmp_path, "race", "verify", "--first", "2", "--one-process", "--seconds", "50") == 0
    assert list(seen) == ["verify", "race"]
    run = seen["verify"]
    assert run.workloads == gpu_workloads()[:2] and run.odd == odd_workloads(), "--first does not cut what is verified"
    assert run.one_process and run.target is TARGET and run.state.path.parent == tmp_path
    assert 0 < seen["verify"].pace.left_s < seen["race"].pace.left_s <= 50


@pytest.mark.parametrize("failed", [True, False])
def test_a_stage_that_failed_makes_the_exit_status(gpu, tmp_path, capsys, failed):
    gpu("verify", lambda run: Ended(line="1 wrong", failed=failed))
    assert bench(tmp_path) == int(failed)
    assert ("FAILED: 1 wrong" in capsys.readouterr().out) == failed


@pytest.mark.parametrize("error", [BuildError("no way"), RuntimeError("no way\nsecond line")])
def test_a_stage_that_cannot_run_is_reported_and_the_others_run(gpu, tmp_path, capsys, error):
    gpu("smoke", raising(error))
    assert bench(tmp_path) == 1
    out = capsys.readouterr().out
    assert "[smoke] could not run: " in out and "no way" in out
    assert "[train] fine" in out and "summary, " in out


def test_a_stage_that_does_not_end_is_interrupted(gpu, tmp_path, capsys, monkeypatch):
    gpu("smoke", lambda run: [time.sleep(0.01) for _ in iter(int, 1)])
    assert bench(tmp_path, "smoke", "race", "--seconds", "0.2") == 0
    out = capsys.readouterr().out
    assert "[smoke] time was up in the middle" in out and "[race] time was up before it started" in out


def test_without_seconds_every_stage_ends_with_its_line(gpu, tmp_path, capsys):
    assert bench(tmp_path, "--seconds", "0") == 0
    assert capsys.readouterr().out.count("time was up before it started") == 2 * len(cuda.STAGES)


def test_ctrl_c_ends_with_what_is_known(gpu, tmp_path, capsys):
    gpu("tune", raising(KeyboardInterrupt()))
    assert bench(tmp_path) == 130
    out, err = capsys.readouterr()
    assert "verify  fine" in out.partition("summary, ")[2] and "race" not in out
    assert err == "interrupted\n"


def test_unknown_benchmarks_are_refused(capsys):
    assert main(["speed"]) == 2
    assert "cuda" in capsys.readouterr().err


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
