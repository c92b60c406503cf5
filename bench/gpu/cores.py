"""Stage ``cores``: the benchmarks of the CPU, on the cores of the machine that has the GPU, which are often more than
those of other machines: each a command of its own with a time limit.

    concurrency    each network alone: every strategy, settings by hand and the backend, over the recommended setting
    parallel       pipelines on 2 to 4 processes, against data parallelism
    communication  ways to send gradients
    cpu            tuned kernels against all other providers, on 1, 4 and 16 threads

Their results are written to the folder of this run. A command that failed is kept with its last line of error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from bench.concurrency.models import NETWORKS
from bench.concurrency.shown import best_manual, faster
from bench.concurrency.steps import BACKEND
from bench.gpu.run import Ended, Run, has_failed
from bench.process import said_by
from bench.results import UnreadableResults, read_results
from dwconv.errors import WorkerDied, WorkerTimeout
from dwconv.problems.target import cpu_target

THREADS = (16, 4, 1)
"""Of ``bench cpu``; more than the machine has are left out."""
_KEPT = 12
"""Lines that a command printed last."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command of ``python -m bench``, to which ``--out`` is added."""

    command: tuple[str, ...]
    seconds: float
    """It takes about as long on 16 cores; with less time left it is not started."""
    most_s: float
    """After so long it counts as one that hangs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    module: str = "bench"


def jobs(*, cores: int | None = None) -> dict[str, Job]:
    """By name, with the CPU, in their order. The networks of ``bench concurrency`` come first, since most depends on
    the number of cores there. ``cores``: of the machine, by default this one's."""
    found = {
        f"concurrency {network.name}": Job(
            command=("concurrency", "--model", network.name, "--no-compile", "--seconds", "30", "--resume"),
            seconds=40, most_s=120,
        )
        for network in NETWORKS
    }  # fmt: skip
    found["communication"] = Job(command=("communication", "--seconds", "50"), seconds=60, most_s=150)
    found["parallel"] = Job(command=("parallel", "--seconds", "60"), seconds=75, most_s=180)
    for threads in (each for each in THREADS if each <= (cores or os.cpu_count() or 1)):
        found[f"cpu {threads} threads"] = Job(
            command=("cpu", "--seconds", "1", "--first", "3"), seconds=45, most_s=150,
            environment={"OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip
    device = cpu_target(threads=os.cpu_count() or 1).device
    return {f"{name}, {device}": job for name, job in found.items()}


def cores_stage(run: Run, *, wanted: Mapping[str, Job] | None = None) -> Ended:
    """``wanted``: other jobs than ``jobs()``. The run fails if all that were started failed."""
    every = jobs() if wanted is None else wanted
    folder = run.state.path.parent

    def that_fit() -> Iterator[str]:
        for name in run.state.left("cores", every):
            if run.pace.left_s >= every[name].seconds:
                yield name

    answers = run.answers(
        "cores",
        every,
        lambda name: _ran(every[name], folder, within_s=run.pace.left_s),
        in_words=_in_words,
        left=that_fit(),
    )
    return Ended.of(answers, _summary(answers), count=len(every))


def _ran(job: Job, folder: Path, *, within_s: float) -> dict[str, Any]:
    """What a command printed last, its seconds, and the results that it wrote; or why there are none. It sees no GPU:
    what it measures is of the CPU."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **job.environment}
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    began_s = time.monotonic()
    try:
        said = said_by(
            ["-m", job.module, *job.command, "--out", str(folder)],
            environment=environment,
            timeout_s=min(job.most_s, max(1.0, within_s)),
        )
    except (WorkerDied, WorkerTimeout) as error:
        return {"failed": str(error)}
    changed = [path for path in folder.glob("*.json") if before.get(path) != path.stat().st_mtime_ns]
    written = sorted(path for path in changed if path.name.startswith(job.command[0]))
    return {
        "seconds": time.monotonic() - began_s,
        "written": [path.name for path in written],
        "figures": _figures(job.command, written),
        "said": said[-_KEPT:],
    }


def _figures(command: Sequence[str], written: Sequence[Path]) -> dict[str, float]:
    """How many times as fast as something else, in words, from the results of a command."""
    found: dict[str, float] = {}
    for path in written:
        try:
            rows = read_results(path, dict[str, Any])["rows"]
            found |= _FIGURES.get(command[0], _no_figures)([row for row in rows if "failed" not in row])
        except (UnreadableResults, KeyError, TypeError, ValueError):
            continue  # the file itself came back
    return found


def _no_figures(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    return {}


def _of_concurrency(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    found = {}
    for row in (row for row in rows if not row["void"]):
        found[f"{row['network']} by the backend over recommended"] = faster(row, BACKEND)
        found[f"{row['network']} by the best strategy over recommended"] = max(
            faster(row, name) for name in row["same_as"] if name.startswith(("S", "hill", "regression"))
        )
        found[f"{row['network']} by hand over recommended"] = faster(row, best_manual(row))
    return found


def _of_communication(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    return {
        f"{row['name']}: steps over those of one all-reduce after the backward pass": (
            (row["local_ms"] + row["control_exposed_ms"]) / (row["local_ms"] + row["chosen_exposed_ms"])
        )
        for row in rows
        if row["control_exposed_ms"] is not None
    }


def _of_parallel(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    return {
        f"{row['network']}, {row['images']}, {row['world']} ranks, {row['rate']}: what plan takes over data "
        "parallelism": row["times_as_fast_as_data_parallelism"]
        for row in rows
        if row["planned"]
    }


def _of_cpu(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    found = [row["over_best_other"] for row in rows]
    if not found:
        return {}
    return {"layers over the best other, mean": geometric_mean(found), "layers over the best other, least": min(found)}


_FIGURES = {
    "concurrency": _of_concurrency,
    "communication": _of_communication,
    "parallel": _of_parallel,
    "cpu": _of_cpu,
}


def _in_words(answer: Mapping[str, Any]) -> str:
    if has_failed(answer):
        return f"failed: {answer['failed']}"
    figures = sorted(answer["figures"].items(), key=lambda each: each[1])
    told = ", ".join(f"{what} {ratio:.2f}" for what, ratio in figures)
    return f"{answer['seconds']:.0f} s, {told or (answer['said'] or ['nothing was printed'])[-1]}"


def _summary(answers: Mapping[str, Mapping[str, Any]]) -> str:
    """Losses first, the worst first."""
    failed = [f"{name} failed: {answer['failed']}" for name, answer in answers.items() if has_failed(answer)]
    figures = {
        f"{what} ({name})": ratio
        for name, answer in answers.items()
        if not has_failed(answer)
        for what, ratio in answer["figures"].items()
    }
    told = [f"{what} {ratio:.2f}" for what, ratio in sorted(figures.items(), key=lambda each: each[1])]
    return "; ".join([*failed, *told]) or "nothing was run"
