"""Stage ``host``: what depthwise layers and fused blocks take of the host, plain and converted, where a GPU computes.

Where the host is the bottleneck of a step, these microseconds decide, not the kernels. Each precision on each road, the
one through C++ and the one through Python, has a process of its own: ``host_turns``. Before that it races the few
likely configurations of what is untuned.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from typing import Any

from bench.gpu.host_turns import CONVERTED, PLAIN, PRECISIONS, measured
from bench.gpu.plan import GpuPlan
from bench.gpu.run import Ended, Run, has_failed
from bench.gpu.tune import race_untuned
from bench.process import in_a_process
from dwconv.errors import WorkerDied, WorkerTimeout
from dwconv.problems.block import Block
from dwconv.problems.target import Target
from dwconv.problems.workload import BLOCK_PASSES, PASSES, Workload
from dwconv.schedules.template import Candidate
from dwconv.tuner.step_time import with_both_gradients

FIRST_S = 15.0
"""Expected seconds of a precision on a road, until one has been measured."""
_MOST_S = 60.0
_START_S = 30.0
"""Of these, what a process may take until it measures, and after that."""
_TUNING_SHARE = 0.5
"""Of the time, for what is untuned."""
ROADS = {"C++": {}, "Python": {"DWCONV_NATIVE": "0"}}
"""Roads of a call, and what is set for each."""
CHANNELS = 192
_BLOCK = Block.parse("bn+relu6,bn+relu6")


def host_stage(given: Run, *, batch: int = 64, size: int = 28, turns: int = 40) -> Ended:
    """The run fails if nothing could be measured."""
    items = {f"{precision}, {road}": (precision, road) for road in ROADS for precision in PRECISIONS}
    left = [items[name] for name in given.state.left("host", items)]
    wanted = _passes([precision for precision, _ in left], given.target, batch=batch, size=size)
    race_untuned(wanted, given, stage="host", seconds=_TUNING_SHARE * given.pace.left_s)
    sizes = {"batch": batch, "channels": CHANNELS, "size": size, "turns": turns}

    def answer(name: str) -> dict[str, Any]:
        precision, road = items[name]
        environment = {**os.environ, "DWCONV_TUNING_LOGS": str(given.log.path), **ROADS[road]}
        limit_s = min(_MOST_S, max(1.0, given.pace.left_s))
        how = {"device": given.target.kind, "precision": precision, "seconds": max(0.0, limit_s - _START_S), **sizes}
        try:
            found: dict[str, Any] = in_a_process(measured, how, environment=environment, timeout_s=limit_s)
        except (WorkerDied, WorkerTimeout) as error:
            return {"failed": str(error)}
        return found

    answers = given.answers("host", items, answer, in_words=_in_words)
    text = "; ".join(f"{name}: {_in_words(answer)}" for name, answer in answers.items())
    return Ended.of(answers, text or "nothing was measured", count=len(items))


def host_candidates(plan: GpuPlan, *, batch: int = 64, size: int = 28) -> Iterator[Candidate]:
    """Of its layers and blocks."""
    return plan.raced(_passes(PRECISIONS, plan.target, batch=batch, size=size))


def _passes(precisions: Iterable[str], target: Target, *, batch: int, size: int) -> dict[Workload, int]:
    """Those of a layer and of a block in each precision."""
    found: list[Workload] = []
    for dtype in dict.fromkeys(PRECISIONS[precision].dtype for precision in precisions):
        first = Workload(
            pass_="fprop", batch=batch, channels=CHANNELS, input_size=(size, size), kernel=(3, 3),
            padding=((1, 1), (1, 1)), dtype=dtype, layout="nhwc",
        )  # fmt: skip
        forward, *others = BLOCK_PASSES
        block = dataclasses.replace(first, pass_=forward, block=_BLOCK)
        found += [*map(first.for_pass, PASSES), block, *map(block.for_pass, others)]
    return with_both_gradients(dict.fromkeys(found, 1), target)


def _in_words(answer: dict[str, Any]) -> str:
    if has_failed(answer):
        return f"failed: {answer['failed']}"
    text = [f"road {answer['road']}"]
    for name, chain in answer["chains"].items():
        ratios = (
            f"{way} {found['ratio']:.2f} ({found['ratio_low']:.2f} to {found['ratio_high']:.2f}), "
            f"{found[CONVERTED]:.1f} µs, PyTorch's {found[PLAIN]:.1f}"
            for way, found in chain["us"].items()
        )
        text.append(f"{name}: {'; '.join(ratios)}")
    return " | ".join(text)
