"""``python -m tests.standin.small_bench DIR STAGE…``: stages of bench cuda, each on little work."""

from __future__ import annotations

import dataclasses
import os
import sys
from functools import partial
from pathlib import Path

from bench.cases import Layer
from bench.gpu import cuda, race, smoke, tune
from bench.gpu.budget import Budget
from bench.gpu.limits import Sizes
from bench.gpu.race import race_stage
from bench.gpu.smoke import smoke_stage
from bench.gpu.state import State
from bench.gpu.train import train_stage
from bench.models import Network
from dwconv.problems.target import parse_target
from tests.models import TinyNet

TINY = Layer(network="Tiny", batch=1, channels=16, size=8, kernel=3)
WORKLOADS = list(TINY.workloads(dtype="float32", layout="nhwc"))[:1]
ODD = list(dataclasses.replace(TINY, channels=20, size=9).workloads(dtype="float16", layout="nchw"))[:1]

NETWORK = Network(name="tests.models:TinyNet", make=TinyNet, batch=2, sample=(3, 12, 12))


def stages() -> dict[str, cuda.Stage]:
    """Stages with so little time that only the first item of each runs."""
    sizes = Sizes(memory_bytes=1 << 20, small_bytes=1 << 14, product=64)
    small = {
        "smoke": partial(smoke_stage, timed=WORKLOADS[0], sizes=sizes),
        "race": partial(race_stage, sizes=sizes),
        "train": partial(train_stage, networks=[NETWORK], steps=2),
    }
    return {
        name: dataclasses.replace(stage, run=small.get(name, stage.run), first_s=0.0, most_s=600.0)
        for name, stage in cuda.STAGES.items()
    }


def main(folder: Path, names: list[str]) -> int:
    os.environ["DWCONV_NATIVE"] = "0"  # nobody waits until the C++ is compiled
    smoke._TYPES = ("float32",)
    tune.LEAST_S = tune.MOST_S = 0.5
    tune._PATIENCE = race._START_S = 600.0  # a process that starts on a busy machine takes minutes
    cuda.STAGES = stages()
    target = parse_target("cuda")
    state = State.open(folder, device=target.device)
    return cuda.run_stages(names, target, state, budget=Budget(3000), workloads=WORKLOADS, odd=ODD)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
