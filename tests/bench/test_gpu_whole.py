"""All stages of bench cuda one after the other, with real processes and kernels, on the CPU."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest
from models import TinyNet

from bench import cuda
from bench.cases import Layer
from bench.gpu_budget import Budget
from bench.gpu_limits import Sizes
from bench.gpu_race import race_stage
from bench.gpu_run import Ended
from bench.gpu_smoke import smoke_stage
from bench.gpu_state import FILE, State
from bench.gpu_train import train_stage
from bench.models import Network
from dwconv.target import cpu_target

TINY = Layer(network="Tiny", batch=1, channels=16, size=8, kernel=3)
WORKLOADS = list(TINY.workloads(dtype="float32", layout="nhwc"))[:1]
ODD = list(dataclasses.replace(TINY, channels=20, size=9).workloads(dtype="float32", layout="nhwc"))[:1]
NETWORK = Network(name="models:TinyNet", make=TinyNet, batch=2, image=12)


@pytest.fixture
def small(monkeypatch):
    sizes = Sizes(memory_bytes=1 << 20, small_bytes=1 << 14, product=64)
    stages = {
        **cuda.STAGES,
        "smoke": dataclasses.replace(cuda.STAGES["smoke"], run=partial(smoke_stage, timed=WORKLOADS[0])),
        "race": dataclasses.replace(
            cuda.STAGES["race"], run=partial(race_stage, sizes=sizes, cache_bytes=1 << 14), first_s=0.0
        ),
        "train": dataclasses.replace(
            cuda.STAGES["train"],
            run=partial(train_stage, networks=[NETWORK], autocast="bfloat16", steps=2),
            first_s=0.0,
        ),
        "rank": dataclasses.replace(cuda.STAGES["rank"], run=lambda run: Ended(line="costs are of GPUs")),
    }
    monkeypatch.setattr(cuda, "STAGES", stages)
    monkeypatch.setenv("DWCONV_NATIVE", "0")  # nobody waits until the C++ is compiled
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setattr("bench.gpu_tune.LEAST_S", 0.5)
    monkeypatch.setattr("bench.gpu_tune.MOST_S", 0.5)


def run(folder, stages):
    target = cpu_target(threads=1)
    state = State.open(folder, device=target.device)
    return cuda.run_stages(stages, target, state, budget=Budget(600), workloads=WORKLOADS, odd=ODD)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_every_stage_shows_something_and_the_second_run_has_nothing_to_do(tmp_path, capsys):
    assert run(tmp_path, list(cuda.STAGES)) == 0
    first = capsys.readouterr().out
    summary = first.partition("\nsummary, ")[2]
    for told in ("6 of 6 templates and types right", "3 right, of 3 candidates", "1 of 1 workloads tuned"):
        assert told in summary, first
    assert "1 of 1 tuned workloads raced; warm" in summary and "models:TinyNet bfloat16" in summary, first
    answers = json.loads((tmp_path / FILE).read_text())["answers"]
    assert set(answers) == {"smoke", "verify", "tune", "limits", "race", "train"}
    assert run(tmp_path, list(cuda.STAGES)[1:]) == 0
    again = capsys.readouterr().out
    assert "3 candidates, 0 to verify" in again
    assert again.partition("\nsummary, ")[2].splitlines()[1:] == summary.splitlines()[2:]
