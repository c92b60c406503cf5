"""``python -m bench cuda``: on a machine with a GPU, verify every template, tune, and measure against everybody else.

    limits ──► verify ──► tune ──► measure ──► rank
    what the   every      a set    dwconv and  does the computed
    device     template,  of       everybody,  cost order the
    can do     every type layers   in turns    candidates?

Each part writes DIR/cuda.json as it goes, and tuning its log beside it; run again, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.cases import gpu_workloads, odd_workloads
from dwconv.arguments import ArgumentParser, run
from dwconv.errors import DwconvError, LogError, NoTemplate
from dwconv.target import CudaTarget, parse_target
from dwconv.workload import Workload

SHARES = {"limits": 0.03, "verify": 0.22, "tune": 0.45, "measure": 0.28, "rank": 0.02}
"""Of the seconds that are given, what each part may have used up when it ends, on top of those before it."""


def main(argv: Sequence[str]) -> int:
    return run(_cuda, list(argv))


def _cuda(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench cuda", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=480, help="for everything, default 480")
    parser.add_argument("--out", type=Path, default=Path("bench-cuda"), help="folder for the results")
    parser.add_argument("--dry-run", action="store_true", help="print the plan with predicted costs; needs no GPU")
    parser.add_argument("--first", type=int, metavar="N", help="only the first N workloads of each part")
    arguments = parser.parse_args(argv)
    if arguments.dry_run:
        return _dry_run(arguments)
    target = parse_target("cuda")
    assert isinstance(target, CudaTarget)
    state = State(arguments.out / "cuda.json")
    started = time.monotonic()
    ends = 0.0
    for name, share in SHARES.items():
        ends += share * arguments.seconds
        print(f"[{name}] until {ends:.0f} s", flush=True)
        part = Part(name, state, ends_at=started + ends, most=arguments.first)
        _PARTS[name](part, target, arguments.out)
    print(_summary(state))
    return 0


class State:
    """What is known so far, on disk after every answer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, dict[str, Any]] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                self.known = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise LogError(f"out={path} cannot be read or written: {error}; name another folder with --out") from error

    def save(self, part: str, key: str, answer: Any) -> None:
        self.known.setdefault(part, {})[key] = answer
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.known, indent=1))
        new.replace(self.path)


class Part:
    """One part's time and its answers."""

    def __init__(self, name: str, state: State, *, ends_at: float, most: int | None = None) -> None:
        self.name = name
        self._state = state
        self._ends_at = ends_at
        self._most = most

    @property
    def seconds_left(self) -> float:
        return self._ends_at - time.monotonic()

    @property
    def answers(self) -> dict[str, Any]:
        return self.answers_of(self.name)

    def answers_of(self, part: str) -> dict[str, Any]:
        return self._state.known.get(part, {})

    def todo(self, workloads: Sequence[Workload]) -> Iterator[tuple[Workload, float]]:
        """Workloads without an answer, each with its share of the seconds left; ends with the time."""
        left = [workload for workload in workloads[: self._most] if workload.key not in self.answers]
        for position, workload in enumerate(left):
            if self.seconds_left <= 0:
                print(f"[{self.name}] time is up: {len(left) - position} of {len(left)} left", flush=True)
                return
            yield workload, self.seconds_left / (len(left) - position)

    def answer(self, key: str, answer: Any) -> None:
        self._state.save(self.name, key, answer)
        print(f"[{self.name}] {key}: {json.dumps(answer)[:300]}", flush=True)


# -- the parts -------------------------------------------------------------------------------------------------------


def _limits(part: Part, target: CudaTarget, out: Path) -> None:
    """Copy bandwidth and multiply-add rate, measured: the denominators of everything after."""
    if part.answers:
        return
    from bench.gpu_limits import copy_gb_per_s, fma_gflop_per_s

    part.answer("memory_gb_per_s", round(copy_gb_per_s(1 << 30), 1))
    part.answer("cache_gb_per_s", round(copy_gb_per_s(target.limits.cache_bytes // 4), 1))
    part.answer("peak_gflop_per_s", round(fma_gflop_per_s(), 1))


def _verify(part: Part, target: CudaTarget, out: Path) -> None:
    """The default and a few other configurations of every template that fits, on sizes that no tile divides."""
    import random

    from dwconv.measure.runner import LocalRunner, Workers
    from dwconv.schedules.template import Candidate, templates_for

    with Workers(target, jobs=_jobs()) as workers:
        for workload, _ in part.todo(odd_workloads()):
            try:
                templates = templates_for(workload, target)
            except NoTemplate as error:
                part.answer(workload.key, {"none": str(error)})
                continue
            rng = random.Random(0)
            configs = []
            for template in templates:
                space = template.space(workload, target)
                drawn = (space.default, space.sample(rng), space.sample(rng))
                configs += list(dict.fromkeys(config for config in drawn if config))
            with LocalRunner(workload, target, workers=workers) as runner:
                records = list(runner.measure([Candidate(workload, config) for config in configs]))
            part.answer(
                workload.key,
                {
                    f"{record.config.template} {record.config}": f"{record.status.value} {record.detail}".strip()
                    for record in records
                },
            )


def _tune(part: Part, target: CudaTarget, out: Path) -> None:
    from dwconv.measure.runner import Workers
    from dwconv.records.log import TuningLog
    from dwconv.tuner.loop import tune_workload

    log = TuningLog(out / f"{target.device}.jsonl")
    with Workers(target, jobs=_jobs()) as workers:
        for workload, seconds in part.todo(gpu_workloads()):
            try:
                # The rest of its share goes into confirming the best.
                budget_s = max(1.0, 0.7 * seconds)
                result = tune_workload(
                    workload, target, log=log, trials=None, seconds=budget_s, jobs=_jobs(), workers=workers
                )
            except NoTemplate as error:
                part.answer(workload.key, {"none": str(error)})
                continue
            best = result.best
            part.answer(
                workload.key,
                {
                    "trials": result.trials,
                    "failures": result.failures,
                    "config": best.config.to_dict() if best else None,
                    "median_us": result.median_us,
                    "speedup": best.speedup if best else None,
                },
            )


def _measure(part: Part, target: CudaTarget, out: Path) -> None:
    """The best configuration against everybody, in turns: caches warm, caches cold, and in a CUDA graph."""
    from bench.gpu_race import race
    from dwconv.records.database import Database

    database = Database.load([out])
    for workload, seconds in part.todo(gpu_workloads()):
        record = database.best(workload, target.device)
        if record is None:
            continue
        try:
            answer = race(record, target, limits=part.answers_of("limits"), compiled=seconds > 30, seconds=seconds)
        except (DwconvError, RuntimeError) as error:
            answer = {"error": str(error).partition("\n")[0]}
        part.answer(workload.key, answer)


def _rank(part: Part, target: CudaTarget, out: Path) -> None:
    """Spearman's correlation of computed cost and measured time over the candidates of each workload."""
    from bench.ranking import rank_correlation
    from dwconv.records.log import TuningLog

    records = TuningLog(out / f"{target.device}.jsonl").load().records
    for workload, _ in part.todo(gpu_workloads()):
        tried = [record for record in records if record.workload == workload and record.measured]
        if len(tried) >= 8:
            part.answer(workload.key, rank_correlation(tried[:16], target))


_PARTS: dict[str, Callable[[Part, CudaTarget, Path], None]] = {
    "limits": _limits, "verify": _verify, "tune": _tune, "measure": _measure, "rank": _rank,
}  # fmt: skip


def _jobs() -> int:
    return max(1, min(12, (os.cpu_count() or 2) - 2))


# -- what it says ----------------------------------------------------------------------------------------------------


def _summary(state: State) -> str:
    verified = [status for answers in state.known.get("verify", {}).values() for status in answers.values()]
    lines = [
        f"verified: {sum(status == 'ok' for status in verified)} of {len(verified)} candidates right",
        f"tuned: {len(state.known.get('tune', {}))} workloads",
    ]
    for key, answer in state.known.get("measure", {}).items():
        if "error" in answer:
            lines.append(f"  {key}: {answer['error']}")
            continue
        lines.append(
            f"  {key}: {answer['dwconv_us']:.1f} µs, {answer['ratio']:.2f}× {answer['best_other']}, "
            f"{answer['percent_of_limit']:.0f} % of limit"
        )
    return "\n".join(lines)


def _dry_run(arguments: argparse.Namespace) -> int:
    """The plan, and what each workload is computed to cost on an sm_90 with the default configuration that is estimated
    to cost least."""
    from dwconv.build import build
    from dwconv.schedules.template import Candidate, templates_for
    from dwconv.tuner.cost_model import computed_cost
    from dwconv.tuner.estimate import estimated_us

    target = parse_target("cuda:sm_90")
    assert isinstance(target, CudaTarget)
    for name, share in SHARES.items():
        print(f"{name:8} {share * arguments.seconds:5.0f} s")
    workloads = gpu_workloads()
    print(f"\n{len(odd_workloads())} workloads to verify every template on; {len(workloads)} to tune and measure:")
    for workload in workloads[: arguments.first]:
        limit_us = target.limits.limit_us(bytes_moved=workload.bytes, flops=workload.flops)
        try:
            defaults = [template.space(workload, target).default for template in templates_for(workload, target)]
            config = min(defaults, key=lambda config: estimated_us(workload, config, target))
            cost = computed_cost(build(Candidate(workload, config), target), workload, target)
            computed = f"{config.template} computed {cost.microseconds:8.1f} µs"
        except DwconvError as error:
            computed = str(error)[:100]
        print(f"  {workload.key:75} limit {limit_us:8.1f} µs  {computed}", flush=True)
    return 0
