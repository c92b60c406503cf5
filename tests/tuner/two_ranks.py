"""A rank of two: ``python -m tests.tuner.two_ranks RANK STORE``. It converts a model, with a race whose outcome is
planted, and prints what it saw as JSON. The two have logs of their own."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import dwconv
from dwconv.problems.target import Target
from dwconv.records.log import TuningLog, log_path
from dwconv.schedules.template import templates_for
from dwconv.tuner import model_race
from dwconv.tuner.model_race import Counts
from dwconv.tuner.race_result import RaceResult
from tests.models import TinyNet
from tests.planted_records import record_of

raced: list[str] = []


def race_one(target: Target, counts: Counts, *, gpu: int, seconds: float, state: object) -> RaceResult:
    """Every kernel wins."""
    log = TuningLog(log_path(target))
    for workload in counts:
        raced.append(workload.key)
        config = templates_for(workload, target)[0].space(workload, target).default
        log.append(dataclasses.replace(record_of(workload, config=config, baseline_us=1e6), confirmed=True))
    return RaceResult(won=tuple(counts), elapsed_s=1.0)


def main(rank: int, store: str) -> None:
    logs = Path(f"{store}-logs-{rank}")
    os.environ["DWCONV_TUNING_LOGS"] = str(logs)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    model_race._race_one = race_one
    model = TinyNet()
    x = torch.randn(2 + 2 * rank, 3, 12, 10)
    summary = dwconv.summary(dwconv.convert(model, x))
    said = dwconv.explain(torch.randn(2 + 2 * rank, 8, 12, 10), model.body[1].weight, padding=1)
    seen = {
        "raced": raced,
        "won": len(summary.races[0].won),
        "providers": [said[pass_].provider for pass_ in ("fprop", "dgrad", "wgrad")],
        "lines": [line for path in logs.glob("*.jsonl") for line in path.read_text().splitlines()],
    }
    print(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
