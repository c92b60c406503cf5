"""``python -m tests.standin.small_bench DIR STAGE…``: stages of bench cuda, each on little work."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.cases import square
from bench.gpu import cuda, first_run, host, race, sequences, sizes, smoke, streams, tune, verify
from bench.gpu.blocks import block_candidates, blocks_stage
from bench.gpu.cores import Job, cores_stage
from bench.gpu.first_run import first_run_stage
from bench.gpu.host import host_candidates, host_stage
from bench.gpu.limits import MeasureLimits
from bench.gpu.partition import partition_candidates, partition_stage
from bench.gpu.plan import GpuPlan
from bench.gpu.prepare import prepare
from bench.gpu.prepared import PreparedFolder, PreparedKernels
from bench.gpu.race import race_stage
from bench.gpu.run import Pace, State
from bench.gpu.sequences import SequenceLayer, sequence_candidates, sequences_stage
from bench.gpu.sizes import size_candidates, sizes_stage
from bench.gpu.smoke import smoke_stage
from bench.gpu.streams import streams_stage
from bench.gpu.train import rows_of, train_candidates, train_stage
from bench.models import Network
from dwconv.problems.target import CudaTarget, parse_target
from dwconv.records.database import Database
from tests.models import OneBlock, OneLayer

TINY = square("Tiny", batch=1, channels=16, size=8, kernel=3)
FPROP, *_ = TINY.workloads(dtype="float32", layout="nhwc")
*_, WGRAD = TINY.workloads(dtype="float32", layout="nchw")
WORKLOADS = [FPROP, WGRAD]
ODD = list(square("Odd", batch=1, channels=20, size=9, kernel=3).workloads(dtype="float16", layout="nchw"))[:1]

NETWORK = Network(name="tests.models:OneLayer", make=OneLayer, batch=2, sample=(3, 12, 12))
SEQUENCE = SequenceLayer(network="Tiny", batch=2, channels=64, length=128, taps=4, silu=True)
"""Large enough for few copies to fill the cache."""
JOBS = {
    how: Job(command=(how,), module="tests.bench.planted_bench", seconds=1, most_s=600)
    for how in ("cpu", "concurrency")
}
BRANCHES = "tests.bench.small_networks:BRANCHES"
WITH_BLOCK = Network(name="tests.models:OneBlock", make=OneBlock, batch=2, sample=(3, 12, 12))


def stages(*, turns: int = 2) -> dict[str, cuda.GpuStage]:
    """Stages with so little time that only the first item of each runs. ``turns``: of the stage host."""
    limits = MeasureLimits(memory_bytes=1 << 20, small_bytes=1 << 14, product=64)
    rows = rows_of([NETWORK], ["float16"], compiled=False)
    of_block = rows_of([WITH_BLOCK], ["bfloat16"], compiled=False)
    small = {
        "smoke": partial(smoke_stage, sizes=limits),
        "race": partial(race_stage, sizes=limits),
        "host": partial(host_stage, batch=1, size=8, turns=turns),
        "blocks": partial(blocks_stage, networks=[WITH_BLOCK]),
        "sizes": partial(
            sizes_stage,
            wanted=[FPROP],
            network=NETWORK,
            sizes=(12, 16),
            turns=2,
            calling={"batch": 1, "channels": 8, "example": 8, "count": 1},
        ),
        "first_run": partial(first_run_stage, network=NETWORK, packed=False, turns=2),
        "sequences": partial(sequences_stage, layers=[SEQUENCE], sizes=limits),
        "partition": partial(partition_stage, wanted=[WGRAD]),
        "cores": partial(cores_stage, wanted=JOBS),
        "streams": partial(
            streams_stage,
            names=(BRANCHES,),
            stepping={"turns": 2, "seconds": 0.0},
            loading={"network": NETWORK.name, "batch": 2, "image": 12, "steps": 3, "turns": 1, "workers": 0},
        ),
        "train": partial(train_stage, rows=rows, steps=2),
        "depthwise": partial(train_stage, stage="depthwise", rows=of_block, steps=2),
    }
    candidates = {
        "host": partial(host_candidates, batch=1, size=8),
        "blocks": partial(block_candidates, networks=[WITH_BLOCK]),
        "sizes": partial(size_candidates, wanted=[FPROP], network=NETWORK),
        "sequences": partial(sequence_candidates, layers=[SEQUENCE]),
        "partition": partial(partition_candidates, wanted=[WGRAD]),
        "train": partial(train_candidates, rows=rows),
        "depthwise": partial(train_candidates, stage="depthwise", rows=of_block),
    }
    return {
        name: dataclasses.replace(
            stage, run=small.get(name, stage.run), candidates=candidates.get(name, stage.candidates), first_s=0.0,
            most_s=600.0,
        )
        for name, stage in cuda.STAGES.items()
    }  # fmt: skip


def prepare_for_a_gpu(wanted: Sequence[str], folder: Path) -> None:
    """What bench cuda prepare does for these stages; no GPU is needed."""
    gpu = parse_target("cuda:sm_90")
    assert isinstance(gpu, CudaTarget)
    limits = dataclasses.replace(gpu.limits, cache_bytes=1 << 20)  # the stand-in's: it says what is likely to be fast
    gpu = dataclasses.replace(gpu, limits=limits)
    plan = GpuPlan(target=gpu, known=Database.of([]), workloads=WORKLOADS, odd=ODD)
    prepare(wanted, plan, PreparedFolder(folder, gpu), seconds=3000, most_bytes=60 << 20, jobs=2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.standin.small_bench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="for the results")
    parser.add_argument("stages", nargs="+", choices=list(cuda.STAGES))
    parser.add_argument("--prepared", type=Path, metavar="FOLDER", help="takes kernels from it")
    parser.add_argument("--host-turns", type=int, metavar="N", help="stage host: N turns, on the road through C++ too")
    given = parser.parse_args()
    if not given.host_turns:
        os.environ["DWCONV_NATIVE"] = "0"  # no time to compile the C++
        host.ROADS, host.PRECISIONS = {"Python": {}}, dict(list(host.PRECISIONS.items())[:1])
    smoke._TYPES, verify.DRAWN = ("float32",), 0
    tune.LEAST_S = tune.MOST_S = 1.5
    race._START_S = host._MOST_S = 600.0  # a process that starts on a busy machine takes minutes
    for module in (sizes, first_run, sequences, streams):
        module._MOST_S = 600.0  # type: ignore[attr-defined]
    cuda.STAGES = stages(turns=given.host_turns or 2)
    target = parse_target("cuda")
    prepared = PreparedKernels.taken(given.prepared, target) if given.prepared else None
    state = State.open(given.folder, device=target.device)
    return cuda.run_stages(
        given.stages, target, state, budget=Pace(3000), workloads=WORKLOADS, odd=ODD, prepared=prepared
    )


if __name__ == "__main__":
    sys.exit(main())
