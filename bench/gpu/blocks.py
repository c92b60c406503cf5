"""Stage ``blocks``: the blocks of the networks that the stage ``train`` trains, as one and one by one, in turns, each a
CUDA graph.

Before that it races the few likely configurations of each untuned pass, and those of the convolution's own passes,
which run where the block is not fused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from bench.blocks import BlockCase, control_of, line_of, row_of
from bench.cases import BenchLayer
from bench.evidence import Control
from bench.gpu.plan import GpuPlan, found_in
from bench.gpu.run import Ended, Run, has_failed
from bench.gpu.train import TRAINED
from bench.gpu.tune import race_untuned
from bench.gpu.worker import GpuFailure, GpuWorker, Handler
from bench.models import Network
from bench.networks import workloads_of
from bench.results import read_alone
from dwconv.kernels.entry import message
from dwconv.measure.requests import MeasureSetup
from dwconv.problems.layer_files import Layer
from dwconv.problems.workload import BLOCK_PASSES, PASSES, DType, Workload
from dwconv.schedules.template import Candidate, can_run

FIRST_S = 8.0
"""Expected seconds of a block, until one has run."""
_MOST_S = 60.0
_TUNING_SHARE = 0.6
"""Of the time, for what is untuned."""
_DTYPE: DType = "float16"
_NETWORKS = tuple(dataclasses.replace(network, batch=64) for network in TRAINED)


def blocks_stage(run: Run, *, networks: Sequence[Network] = _NETWORKS) -> Ended:
    """The run fails if no block that was started could be raced."""
    blocks = _blocks_of(networks, device=run.target.kind)
    left = [blocks[key].workload for key in run.state.left("blocks", blocks)]
    race_untuned(_passes(left), run, stage="blocks", seconds=_TUNING_SHARE * run.pace.left_s)
    read_alone(run.log.path)
    with GpuWorker("bench.gpu.blocks:BlockRacer", MeasureSetup(target=run.target)) as racer:

        def answer(key: str) -> dict[str, Any] | None:
            try:
                row: dict[str, Any] = racer.ask(blocks[key], timeout_s=_MOST_S, within_s=run.pace.left_s)
            except GpuFailure as failure:
                return {"failed": str(failure)} if run.pace.left_s > 0 else None
            return row

        answers = run.answers("blocks", blocks, answer, in_words=_in_words)
    return _ended(answers, len(blocks))


def block_candidates(plan: GpuPlan, *, networks: Sequence[Network] = _NETWORKS) -> Iterator[Candidate]:
    """Of the passes that are raced before."""
    blocks = [
        block.workload
        for found in found_in(networks, lambda network: _blocks_of([network], device="cpu"), stage="blocks")
        for block in found.values()
        if can_run(block.workload, plan.target)
    ]
    return plan.raced(_passes(blocks))


def _passes(blocks: Iterable[Workload]) -> list[Workload]:
    """Of the blocks, given by their forward pass, and of the convolutions in them."""
    return [each for block in blocks for each in (*map(block.for_pass, BLOCK_PASSES), *map(block.convolution, PASSES))]


def _in_words(row: dict[str, Any]) -> str:
    return str(row["failed"]) if has_failed(row) else line_of(row)


@message
@dataclass(frozen=True, kw_only=True)
class BlockRace:
    """A block of a network, by its forward pass."""

    network: str
    workload: Workload

    @property
    def layer(self) -> BenchLayer:
        return BenchLayer(network=self.network, layer=Layer.of(self.workload, count=1, passes=BLOCK_PASSES))


class BlockRacer(Handler):
    """BlockRace in, its row out. The first one is the control, too."""

    def __init__(self, setup: MeasureSetup) -> None:
        super().__init__(setup)
        self._control: Control | None = None

    def answer(self, request: Any) -> Any:
        block: BlockRace = request
        case = BlockCase(batch=1, dtype=_DTYPE, device=self.target.kind)
        if self._control is None:
            self._control = Control.over([control_of(block.layer, case)])
        return row_of(block.layer, case, self.target, control=self._control)


def _blocks_of(networks: Sequence[Network], *, device: str) -> dict[str, BlockRace]:
    """By key; those of the first network first, in each the largest first."""
    found: dict[str, BlockRace] = {}
    for network in networks:
        workloads = workloads_of(network, autocast=_DTYPE, blocks=True, device=device)
        blocks = [each for each in workloads if each.pass_ == BLOCK_PASSES[0]]
        for workload in sorted(blocks, key=lambda each: -each.bytes):
            found.setdefault(workload.key, BlockRace(network=network.name, workload=workload))
    return found


def _ended(answers: dict[str, dict[str, Any]], count: int) -> Ended:
    raced = [answer for answer in answers.values() if not has_failed(answer)]
    as_one = [answer["over_best_other"] for answer in raced if answer["runs_as_one"]]
    parts = [f"{len(raced)} of {count} blocks raced, {len(as_one)} ran as one"]
    if as_one:
        parts.append(f"{geometric_mean(as_one):.2f}× the best other, least {min(as_one):.2f}")
    return Ended.of(answers, "; ".join(parts), count=count)
