"""The race before a model's first step: on every kind of device that the model uses.

The ranks of a distributed job choose alike: two real processes, and a race whose outcome is planted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dwconv import settings
from dwconv.measure import runner
from dwconv.measure.processes import started_process
from dwconv.problems.target import CudaTarget, Target, parse_target
from dwconv.problems.workload import Workload
from dwconv.system import cpu_facts
from dwconv.tuner import model_race
from dwconv.tuner.model_race import race_for
from dwconv.tuner.race_result import RaceResult
from tests import forked
from tests.planted_records import workload_of

NAMES = ("slow-gpu", "fast-gpu", "slow-gpu")
"""Of the GPUs here, by number."""


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    given = parse_target("cuda:sm_90")
    assert isinstance(given, CudaTarget)

    def target_of(device: torch.device) -> Target:
        return dataclasses.replace(given, device=NAMES[device.index or 0], present=True)

    monkeypatch.setattr(model_race, "target_of", target_of)
    monkeypatch.setattr(model_race, "with_both_gradients", lambda counts, target: counts)


def test_each_name_is_raced_on_a_gpu_that_has_it(gpus: None, monkeypatch: pytest.MonkeyPatch, logs: Path) -> None:
    raced: dict[str, tuple[str, dict[Workload, int]]] = {}
    jobs: list[int] = []
    monkeypatch.setattr(cpu_facts, "cores", lambda: 12)

    def race_on(
        counts: dict[Workload, int], target: Target, *, workers: runner.WorkerProcesses, **_: object
    ) -> RaceResult:
        environment = settings.worker_environment(threads=1, gpu=workers.measurer._gpu)
        jobs.append(workers.jobs)
        raced[target.device] = environment.get("CUDA_VISIBLE_DEVICES", "all"), dict(counts)
        return RaceResult(won=tuple(counts))

    monkeypatch.setattr(model_race, "race", race_on)
    one, other = workload_of(), workload_of(shape=(2, 8, 5, 5))
    counts = {torch.device("cuda", number): {each: 1} for number, each in enumerate((one, other, one))}
    results = race_for(counts, seconds=1.0)
    assert raced == {"slow-gpu": ("all", {one: 2}), "fast-gpu": ("1", {other: 1})}
    assert [(result.won, result.problem) for result in results] == [((one,), ""), ((other,), "")]
    assert jobs == [11, 11], "one core is left for what measures"


@pytest.mark.usefixtures("started_anew")
def test_a_worker_has_the_gpu_that_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def start(command: list[str], *, env: dict[str, str], **_: object) -> None:
        seen.append(env.get("CUDA_VISIBLE_DEVICES"))
        raise OSError("not now")

    monkeypatch.setattr(subprocess, "Popen", start)
    for visible, gpu in ((None, 0), (None, 2), ("4,GPU-5, 6", 0), ("4,GPU-5, 6", 1), ("4,GPU-5, 6", 2)):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with pytest.raises(OSError, match="not now"):
            started_process.Running.start("a:role", threads=1, gpu=gpu)
    assert seen == [None, "2", "4,GPU-5, 6", "GPU-5", "6"]


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="PyTorch was built without gloo")
def test_one_rank_races_for_both_and_both_know_the_same(tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DWCONV_NATIVE": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
    }
    ranks = [
        forked.popen(
            [sys.executable, "-m", "tests.tuner.two_ranks", str(rank), str(tmp_path / "store")],
            env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        ended = [rank.communicate(timeout=1200) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], ended
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in ended)
    assert len(first["raced"]) == 18, "3 passes of 3 layers, at 2 batch sizes"
    assert second["raced"] == []
    assert first["won"] == second["won"] == 18
    assert sorted(first["lines"]) == sorted(second["lines"]) and len(first["lines"]) == 18
    assert first["providers"] == second["providers"] == ["dwconv"] * 3
