"""Stage ``verify``: several configurations of every template, on sizes that no tile divides, in every type; and the
kernel of running statistics, which is of no template.

candidates ──► builders, all at once ──► one process with the GPU ──► right or wrong

With ``--newer`` a candidate whose program was right in the run whose results ship is built, and not run again.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from bench.gpu.plan import GpuPlan
from bench.gpu.run import Ended, Interrupted, Run, interrupted_after, of_all, say
from bench.gpu.running_statistics import StatisticsCheck, checks, verdict_of
from bench.gpu.worker import GpuFailure, GpuWorker, Handler
from dwconv import settings
from dwconv.errors import NoTemplate, WorkerError
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.entry import message
from dwconv.measure.processes.worker import locate
from dwconv.measure.requests import LOAD, MeasureSetup
from dwconv.measure.runner import WorkerProcesses
from dwconv.measure.verify.bare_kernel import LoadedKernel
from dwconv.measure.verify.cases import Case, make_case
from dwconv.measure.verify.verify import verify
from dwconv.problems.target import Target
from dwconv.problems.workload import Workload
from dwconv.records.record import Verdict
from dwconv.schedules.template import Candidate, templates_for

message(Verdict)

DRAWN = 2
"""Configurations to draw for each template and workload, besides the default."""
RIGHT, KNOWN = "right", "known"
PROGRAMS = "programs"
"""In the state: the digest of the program of each candidate that was verified."""
_DIGITS = 12
"""Of a digest: a thousand programs have the same in a millionth of a millionth of cases."""
_TOLD = 5
"""Faults that are printed in full."""


class Verifier(Handler):
    """An Artifact or a StatisticsCheck in, its Verdict out."""

    def __init__(self, setup: MeasureSetup) -> None:
        super().__init__(setup)
        self._load: Callable[[Artifact], LoadedKernel] = locate(setup.load)
        self._cases: dict[Workload, Case] = {}

    def answer(self, request: Any) -> Any:
        if isinstance(request, StatisticsCheck):
            return verdict_of(request, device=torch.device(self.target.kind))
        artifact: Artifact = request
        workload = artifact.candidate.workload
        with torch.inference_mode():
            if workload not in self._cases:
                self._cases[workload] = make_case(workload, data="integers", device=self.target.kind)
            return verify(self._load(artifact), self._cases[workload])


def verify_stage(run: Run, *, load: str = LOAD) -> Ended:
    """The run fails if a candidate is wrong or breaks down, and if none is right."""
    candidates = {name_of(candidate): candidate for candidate in candidates_on(run.odd, run.target)}
    of_statistics = {str(check): check for check in (checks() if run.target.kind == "cuda" else ())}
    left = run.state.left("verify", candidates)
    say("verify", f"{len(candidates)} candidates, {len(left)} to verify")
    with (
        run.prepared_first(WorkerProcesses(run.target, jobs=run.jobs)) as workers,
        GpuWorker("bench.gpu.verify:Verifier", MeasureSetup(target=run.target, load=load), here=run.one_process) as gpu,
    ):
        gpu.start()
        for name in run.state.left("verify", of_statistics):
            if run.pace.left_s > 0 and (answer := _asked(of_statistics[name], run, gpu)):
                run.state.put("verify", name, answer)
        verify_all([candidates[name] for name in left], run, stage="verify", workers=workers, gpu=gpu)
    return _ended([*of_statistics, *candidates], run)


def verify_candidates(plan: GpuPlan) -> list[Candidate]:
    """What is verified."""
    return candidates_on(plan.odd, plan.target)


def candidates_on(workloads: Sequence[Workload], target: Target) -> list[Candidate]:
    """Candidates of every template that fits: the defaults on all workloads first, then configurations drawn from its
    space."""
    in_rounds = [each for workload in workloads for each in _chosen(workload, target)]
    return [candidate for _, candidate in sorted(in_rounds, key=lambda item: item[0])]


def _chosen(workload: Workload, target: Target) -> list[tuple[int, Candidate]]:
    """Each with the round it belongs to."""
    try:
        templates = templates_for(workload, target)
    except NoTemplate:
        return []
    rng, chosen = random.Random(0), []
    for template in templates:
        space = template.space(workload, target)
        configs = [space.default, *(space.sample(rng) for _ in range(DRAWN))]
        chosen += [
            (number, Candidate(workload, config))
            for number, config in enumerate(configs)
            if config is not None and config not in configs[:number]
        ]
    return chosen


def verify_all(
    candidates: Sequence[Candidate],
    run: Run,
    *,
    stage: str,
    workers: WorkerProcesses,
    gpu: GpuWorker,
    told: int = _TOLD,
) -> None:
    """Keep the answers of candidates, until the time is up; print the first ``told`` faults."""
    with contextlib.suppress(Interrupted), interrupted_after(run.pace.left_s):  # a build must not hold up the stage
        for position, built in workers.builders.map(candidates, timeout_s=settings.BUILD_TIMEOUT_S):
            if run.pace.left_s <= 0:
                return
            name, answer = name_of(candidates[position]), _answer(built, run, gpu)
            if answer is None:
                return
            run.state.put(stage, name, answer)
            if not isinstance(built, WorkerError):
                run.state.put(PROGRAMS, name, program_of(built))
            if "failed" in answer and told:
                told -= 1
                say(stage, f"{name}: {in_words(answer)}")


def _answer(built: Artifact | WorkerError, run: Run, gpu: GpuWorker) -> dict[str, str] | None:
    """None if the time is up."""
    if isinstance(built, WorkerError):
        return {"failed": f"unbuilt: {built}"}
    return {"verdict": KNOWN} if program_of(built) in run.known_programs else _asked(built, run, gpu)


def _asked(request: Artifact | StatisticsCheck, run: Run, gpu: GpuWorker) -> dict[str, str] | None:
    """None if the time is up."""
    try:
        verdict: Verdict = gpu.ask(request, timeout_s=settings.RUN_TIMEOUT_S, within_s=run.pace.left_s)
    except GpuFailure as failure:
        return {"failed": f"broken: {failure}"} if run.pace.left_s > 0 else None  # it may have had too little time
    return {"verdict": RIGHT} if verdict.right else {"failed": f"wrong: {verdict.reason}"}


def program_of(artifact: Artifact) -> str:
    """A digest of what a GPU runs: of the source; of a kernel from a pack, which has none, of the machine code."""
    return hashlib.sha256(artifact.source.encode() or artifact.cubin).hexdigest()[:_DIGITS]


def right_programs(answers: Mapping[str, Mapping[str, Any]], programs: Mapping[str, str]) -> list[str]:
    """The digests of the candidates whose answers are ``right`` or ``known``."""
    right = {programs[name] for name, answer in answers.items() if "verdict" in answer and name in programs}
    return sorted(right)


def name_of(candidate: Candidate) -> str:
    """A name that identifies the candidate in every run."""
    return f"{candidate.config.template} {candidate.workload.key} {candidate.config}"


def in_words(answer: dict[str, str]) -> str:
    """``right``, ``known``, ``wrong: …``, ``broken: …`` or ``unbuilt: …``."""
    return answer.get("verdict") or answer["failed"]


def _ended(candidates: Iterable[str], run: Run) -> Ended:
    names = list(candidates)
    answers = [run.state.of("verify")[name] for name in names if name in run.state.of("verify")]
    counts = Counter(in_words(answer).partition(":")[0] for answer in answers)
    kinds = ("wrong", "broken", "unbuilt", RIGHT, KNOWN)
    found = ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind])
    return Ended(
        line=f"{found or 'none verified'}, of {len(names)} candidates{of_all(len(answers), len(names))}",
        failed=bool(counts["wrong"] or counts["broken"] or not (counts[RIGHT] or counts[KNOWN])),
    )
