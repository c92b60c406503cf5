"""``python -m bench cuda prepare``: where there is no GPU, build what the stages of ``bench cuda`` will build on one.

    stages ──► candidates, those of the first stage first ──► builders, on all cores ──► parts of 32 in a folder

The folder travels, and ``--prepared`` takes it there. What is in it already is not built again; what was built and is
not in it yet is in the cache. A part that would make it too large is left out, and so are all that come after it.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bench.cases import gpu_workloads, odd_workloads
from bench.gpu import cuda
from bench.gpu.plan import GpuPlan, as_if_made_here
from bench.gpu.prepared import PreparedFolder
from bench.gpu.run import say
from dwconv import settings
from dwconv.commands.command_line import ArgumentParser, from_0, whole
from dwconv.commands.tune_arguments import cores
from dwconv.errors import DwconvError, InvalidChoice, WorkerError, one_line
from dwconv.kernels.cache import name_of
from dwconv.kernels.entry import encode
from dwconv.measure.build_worker import BUILD_FOR_RACE, BuildSetup, misfit
from dwconv.measure.processes.pool import Pool
from dwconv.problems.target import CudaTarget, Target, parse_target
from dwconv.records.database import Database
from dwconv.schedules.template import Candidate
from dwconv.tuner.step_time import with_both_gradients

_A_PART = 32
"""Kernels of a part: alike, they take less together."""
_MIB = 2**20


def command(argv: Sequence[str] | None) -> int:
    parser = ArgumentParser(prog="bench cuda prepare", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"{', '.join(cuda.STAGES)}; default: all")
    parser.add_argument("--target", required=True, metavar="cuda:sm_90", help="the architecture of the GPU")
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="the GPU's name, such as nvidia-h200: its records and results that ship say what is raced there",
    )
    parser.add_argument("--out", type=Path, default=Path("bench-cuda-prepared"), help="the folder to travel")
    parser.add_argument("--seconds", type=from_0, default=3600.0, help="no build begins later, default 3600")
    parser.add_argument("--mib", type=whole, default=60, help="size of the folder, at most, in MiB; default 60")
    parser.add_argument("--jobs", type=whole, default=cores(), help="builds at a time, default as many as cores")
    cuda.add_workload_arguments(parser)
    arguments = parser.parse_args(argv)
    stages = cuda.chosen_stages(parser, arguments.stages)
    target = _target(arguments.target, device=arguments.device)
    counts = with_both_gradients(dict.fromkeys(gpu_workloads(every=arguments.all), 1), target)
    plan = GpuPlan(
        target=target, known=known_of(target), workloads=list(counts)[: arguments.first], odd=odd_workloads()
    )
    folder = PreparedFolder(arguments.out, target)
    prepare(stages, plan, folder, seconds=arguments.seconds, most_bytes=arguments.mib * _MIB, jobs=arguments.jobs)
    return 0


def _target(text: str, *, device: str | None) -> CudaTarget:
    """Raises InvalidChoice for another target than an architecture of GPUs, and for a device of which nothing ships."""
    target = parse_target(text)
    if not isinstance(target, CudaTarget) or target.present:
        raise InvalidChoice(f"target={text} is no architecture of GPUs to compile for; use cuda:sm_90 or another")
    if device is None:
        return target
    target = dataclasses.replace(target, device=device)
    limits = cuda.shipped_results(target).get("limits")
    if limits is None:
        raise InvalidChoice(f"device={device} has no results of bench cuda that ship; leave it out")
    return dataclasses.replace(target, limits=dataclasses.replace(target.limits, cache_bytes=limits["cache_bytes"]))


def known_of(target: Target) -> Database:
    """The records that ship for a device, as they count where they were made."""
    shipped = Database.load([settings.shipped_log_folder() / f"{target.device}.jsonl"])
    torch = cuda.shipped_results(target).get("versions", {}).get("torch", "")
    return Database.of(as_if_made_here(shipped, torch=torch))


def prepare(
    stages: Sequence[str], plan: GpuPlan, folder: PreparedFolder, *, seconds: float, most_bytes: int, jobs: int
) -> None:
    """Build what ``stages`` will build, and add it to ``folder``. Prints how much of each stage is in it. Raises
    LogError if it cannot be written, WorkerCannotStart if no builder can start."""
    ends_s = time.monotonic() + seconds
    counts = _Counts(folder)
    wanted = _wanted(stages, plan, counts)
    begun: list[tuple[str, Candidate]] = []
    waiting: dict[str, tuple[str, bytes]] = {}

    def next_to_build() -> Candidate | None:
        if time.monotonic() >= ends_s or counts.is_full:
            return None
        if (found := next(wanted, None)) is None:
            counts.are_all = True
            return None
        begun.append(found)
        return found[1]

    def add() -> None:
        entries = {name: entry for name, (_, entry) in waiting.items()}
        fits = folder.add(entries, most_bytes=most_bytes)
        counts.ended(Counter(stage for stage, _ in waiting.values()), _READY if fits else _BEYOND)
        counts.is_full = counts.is_full or not fits
        waiting.clear()
        say("prepare", f"{len(folder.names)} kernels, {folder.size_bytes / _MIB:.1f} MiB")

    setup = BuildSetup(target=plan.target, build=BUILD_FOR_RACE)
    pool = Pool(
        "dwconv.measure.build_worker:BuildHandler", setup, size=jobs, misfit=partial(misfit, target=plan.target)
    )
    try:
        for ended in pool.stream(next_to_build, timeout_s=_BUILD_TIMEOUT_S):
            assert ended is not None, "there is nothing beside"
            (stage, candidate), built = begun[ended[0]], ended[1]
            if isinstance(built, WorkerError):
                counts.failed(stage, candidate, built)
                continue
            counts.build_s += built.build_s
            waiting[name_of(candidate, plan.target)] = stage, encode(built)
            if len(waiting) == _A_PART:
                add()
    finally:
        pool.kill()
        if waiting:
            add()
    while counts.is_full and not counts.are_all and time.monotonic() < ends_s:
        if (found := next(wanted, None)) is None:
            counts.are_all = True
        else:
            counts.of[found[0]][_BEYOND] += 1
    print(counts.told(), flush=True)


_BUILD_TIMEOUT_S = 4 * settings.BUILD_TIMEOUT_S
"""A machine that does nothing else than builds has the time."""


_ENDS = _READY, _UNBUILT, _BEYOND = ("ready", "cannot be built", "beyond the size")
"""What becomes of a kernel."""


class _Counts:
    """What became of the kernels of each stage."""

    def __init__(self, folder: PreparedFolder) -> None:
        self.folder = folder
        self.of: dict[str, Counter[str]] = {}
        self.build_s = 0.0
        self.is_full = False
        self.are_all = False
        """True once every stage has named all of its kernels."""

    def ended(self, by_stage: Counter[str], what: str) -> None:
        for stage, count in by_stage.items():
            self.of[stage][what] += count

    def failed(self, stage: str, candidate: Candidate, error: WorkerError) -> None:
        self.of[stage][_UNBUILT] += 1
        say("prepare", f"{candidate.config.template} {candidate.workload.key}: {one_line(str(error), most=200)}")

    def told(self) -> str:
        """A line for the folder, and one for each stage."""
        kernels, mib = len(self.folder.names), self.folder.size_bytes / _MIB
        each = f", {1024 * mib / kernels:.1f} KiB each" if kernels else ""
        built = f"builds took {self.build_s:.0f} s in all"
        lines = [f"{self.folder.folder}: {kernels} kernels, {mib:.1f} MiB{each}; {built}"]
        for stage, counts in self.of.items():
            found = ", ".join(f"{counts[end]} {end}" for end in _ENDS if counts[end])
            lines.append(f"  {stage:7} {found or 'nothing that no stage before it has'}")
        if not self.are_all:
            lines.append("time is up: run it again to go on")
        return "\n".join(lines)


def _wanted(stages: Sequence[str], plan: GpuPlan, counts: _Counts) -> Iterator[tuple[str, Candidate]]:
    """What is not in the folder, each with the first stage that builds it."""
    there, seen = counts.folder.names, set[str]()
    for stage in stages:
        counts.of[stage] = Counter()
        try:
            for candidate in cuda.STAGES[stage].candidates(plan):
                name = name_of(candidate, plan.target)
                if name in seen:
                    continue
                seen.add(name)
                if name in there:
                    counts.of[stage][_READY] += 1
                else:
                    yield stage, candidate
        except DwconvError as error:
            say("prepare", f"{stage}: {one_line(str(error))}")
