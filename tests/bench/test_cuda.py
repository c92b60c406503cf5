"""bench cuda: what of it needs no GPU — the plan, the time that parts get, and going on where it stopped."""

from __future__ import annotations

import json
import time

import pytest
import torch

from bench import cuda
from bench.__main__ import main
from bench.cases import gpu_workloads, odd_workloads
from dwconv.workload import DTYPES, LAYOUTS, PASSES


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_refuses_in_one_line(capsys, tmp_path):
    assert main(["cuda", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "no GPU" in err


@pytest.mark.slow
def test_the_plan_has_predicted_costs(capsys):
    assert main(["cuda", "--dry-run", "--first", "2"]) == 0
    out = capsys.readouterr().out
    assert all(part in out for part in cuda.SHARES)
    for workload in gpu_workloads()[:2]:
        assert workload.key in out


def test_unknown_benchmarks_are_refused(capsys):
    assert main(["speed"]) == 2
    assert "cuda" in capsys.readouterr().err


@pytest.mark.parametrize("workloads", [gpu_workloads(), odd_workloads()])
def test_the_workloads_stand_for_all(workloads):
    assert len({workload.key for workload in workloads}) == len(workloads)
    assert {workload.pass_ for workload in workloads} == set(PASSES)
    assert {workload.layout for workload in workloads} == set(LAYOUTS)
    assert {workload.dtype for workload in workloads} == set(DTYPES)
    assert {1, 2} == {workload.stride[0] for workload in workloads}


def part(state: cuda.State, *, seconds: float = 60.0, name: str = "tune") -> cuda.Part:
    return cuda.Part(name, state, ends_at=time.monotonic() + seconds)


def test_it_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "deep" / "cuda.json"
    first, second, third = gpu_workloads()[:3]
    part(cuda.State(path)).answer(first.key, {"trials": 3})
    again = part(cuda.State(path))
    assert [workload for workload, _ in again.todo([first, second, third])] == [second, third]
    assert json.loads(path.read_text())["tune"][first.key] == {"trials": 3}
    assert not list(part(cuda.State(path), name="measure").answers)


def test_seconds_are_shared_by_what_is_left_and_end(tmp_path):
    workloads = gpu_workloads()[:4]
    shares = [seconds for _, seconds in part(cuda.State(tmp_path / "a.json"), seconds=40).todo(workloads)]
    assert shares == pytest.approx([10, 13.3, 20, 40], rel=0.05)
    assert not list(part(cuda.State(tmp_path / "b.json"), seconds=0).todo(workloads))


def test_a_damaged_state_is_one_line(tmp_path, capsys, monkeypatch):
    (tmp_path / "cuda.json").write_text("{torn")
    monkeypatch.setattr(cuda, "parse_target", lambda text: cuda.CudaTarget.__new__(cuda.CudaTarget))
    assert main(["cuda", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: out=")


def test_the_summary_tells_who_won(tmp_path):
    state = cuda.State(tmp_path / "cuda.json")
    state.save("verify", "w", {"a": "ok", "b": "wrong value"})
    answer = {"dwconv_us": 10.0, "best_other": "cudnn-nhwc", "ratio": 2.5, "percent_of_limit": 81.0}
    state.save("measure", "k", answer)
    state.save("measure", "l", {"error": "wrong: value"})
    summary = cuda._summary(state)
    assert "1 of 2 candidates right" in summary
    assert "k: 10.0 µs, 2.50× cudnn-nhwc, 81 % of limit" in summary
    assert "l: wrong: value" in summary
