"""Inside the process of ``bench cpu``: one pass of a layer, our kernel and all other providers, in turns.

    our kernel  ──► verified as a finalist ─┐
    each rival  ──► its result is judged ───┴─► rounds in turns ──► our kernel verified once more

All are held to the same answers, within the same bounds. A rival that cannot run the pass, or computes something
else, does not race, and the reason is kept. ``ControlRace``: the same kernel twice, in everything else the same way.

Then the rows: ratios with their intervals, as a table, and as means. ``ratio`` is over PyTorch's op in its better
layout, ``over_best_other`` over the fastest of all; the verdict is on the latter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import geometric_mean
from types import TracebackType
from typing import Any

import torch

from bench.evidence import Control, percent_of_limit, ratio_of
from bench.providers import Inputs, Provider, is_eager, plain, providers
from dwconv import settings
from dwconv.errors import BuildError, WorkerError, one_line
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import build_cached
from dwconv.kernels.entry import message
from dwconv.measure.clock.device import clock_of, get_ready
from dwconv.measure.clock.timing import FINAL, Caches, Call, InTurn, inputs_in_turn, results_held, rounds_in_turns
from dwconv.measure.measuring import LOAD, MeasureSetup
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.processes.worker import locate
from dwconv.measure.verify.bare_kernel import LoadedKernel
from dwconv.measure.verify.cases import CASES_OF_A_FINALIST, Case, cases_of_finalists, fresh_case, judge_all, make_case
from dwconv.measure.verify.verify import verify, verify_finalist
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import LAYOUTS, Workload
from dwconv.records.record import Measurement
from dwconv.schedules.template import Candidate

message(Measurement)

OURS, AGAIN = "dwconv", "dwconv again"
WIDE_TYPE, ANY_SIZE, ANY_CHANNELS = BESIDE = ("dwconv float32", "dwconv any size", "dwconv any channels")
"""Other kernels of ours for the same pass."""
_COMPILING_S = 120.0
"""torch.compile may take so much longer, in both layouts."""
_REASON = 200
"""Characters of the reason why a rival does not race."""


@message
@dataclass(frozen=True, kw_only=True)
class LayerRace:
    """Ask for the times of all providers of the workload of a candidate."""

    candidate: Candidate
    caches: Caches
    compiled: bool = False
    """True if torch.compile races, too."""
    beside: dict[str, Candidate] = field(default_factory=dict)
    """Other kernels of ours, by names of ``BESIDE``."""


@message
@dataclass(frozen=True, kw_only=True)
class ControlRace:
    """Ask for the times of a candidate and of itself."""

    candidate: Candidate
    caches: Caches


@message
@dataclass(frozen=True, kw_only=True)
class LayerTimes:
    """The times of each provider, in the order of first rounds, and why others did not race."""

    measurements: dict[str, Measurement]
    rounds_us: dict[str, tuple[float, ...]]
    refused: dict[str, str] = field(default_factory=dict)


class LayerRacer:
    """Handler: LayerRace or ControlRace in, LayerTimes out."""

    def __init__(self, setup: MeasureSetup) -> None:
        assert isinstance(setup.target, CpuTarget)
        torch.set_num_threads(setup.target.threads)
        self._target = setup.target
        self._clock = clock_of(setup.target)
        self._load = locate(setup.load)
        get_ready(setup.target, compiles_calls=True)

    def __call__(self, request: LayerRace | ControlRace) -> LayerTimes:
        """Raises BuildError if our kernel is wrong."""
        with torch.inference_mode():
            return self._race(request)

    def _race(self, request: LayerRace | ControlRace) -> LayerTimes:
        workload = request.candidate.workload
        kernel = self._right(request.candidate)
        case = make_case(workload, data="integers")
        copies = inputs_in_turn(workload, case.inputs, caches=request.caches, target=self._target)
        held = results_held(workload, caches=request.caches, target=self._target)

        def ours(kernel: LoadedKernel) -> Call:
            return InTurn([partial(kernel, *inputs) for inputs in copies], held=held)

        calls = {OURS: ours(kernel)}
        refused: dict[str, str] = {}
        if isinstance(request, ControlRace):
            calls[AGAIN] = ours(kernel)
        else:
            if request.compiled:  # or, after a few workloads, it would run all others as they are and say nothing
                torch._dynamo.reset()
            for provider in providers(workload, case.inputs, compiled=request.compiled):
                try:
                    calls[provider.name] = _rival(provider, case, copies, held=held)
                except Exception as error:  # noqa: BLE001  whatever a library raises, it does not race
                    refused[provider.name] = one_line(str(error) or type(error).__name__, most=_REASON)
            for name, candidate in request.beside.items():
                calls[name] = self._beside(candidate, caches=request.caches)
        taken = rounds_in_turns(calls, clock=self._clock, effort=FINAL)
        _check(verify(kernel, fresh_case(workload, device="cpu")).reason, workload)
        return LayerTimes(measurements=taken.measurements, rounds_us=taken.rounds_us, refused=refused)

    def _right(self, candidate: Candidate) -> LoadedKernel:
        """The kernel of a candidate, verified as a finalist."""
        artifact: Artifact = build_cached(candidate, self._target)
        kernel: LoadedKernel = self._load(artifact)
        cases = cases_of_finalists(candidate.workload, device="cpu")
        _check(verify_finalist(kernel, cases).reason, candidate.workload)
        return kernel

    def _beside(self, candidate: Candidate, *, caches: Caches) -> Call:
        kernel, workload = self._right(candidate), candidate.workload
        inputs = make_case(workload, data="integers").inputs
        copies = inputs_in_turn(workload, inputs, caches=caches, target=self._target)
        held = results_held(workload, caches=caches, target=self._target)
        return InTurn([partial(kernel, *each) for each in copies], held=held)


def _check(reason: str, workload: Workload) -> None:
    if reason:
        raise BuildError(f"wrong: {reason}")


def _rival(provider: Provider, case: Case, copies: Sequence[Inputs], *, held: int) -> Call:
    """The call of a provider on all copies in turn. Raises BuildError if its result is wrong, and what it raises."""
    if provider.slow and len(copies) > 1:
        raise BuildError("it is compiled for one set of tensors, and not timed on several in turn")
    with provider.settings():
        calls = [provider.make(inputs) for inputs in copies]
        result = calls[0]()
        results = [plain(each) for each in (result if isinstance(result, tuple) else (result,))]
        _check(judge_all(results, case).reason, case.workload)
        for call in calls[1:]:
            call()  # a library chooses and allocates in its first calls
    return InTurn(calls, held=held)


class LayerRaces:
    """Asks for races in a process of its own, which is replaced if it dies. A context manager. Raises WorkerError if a
    race failed, WorkerCannotStart if none can be run."""

    def __init__(self, target: CpuTarget, *, load: str = LOAD) -> None:
        setup = MeasureSetup(target=target, load=load)
        role = "bench.layer_race:LayerRacer"
        self._process = IsolatedProcess(role, setup, threads=target.threads, vector_set=target.vector_set)

    def __enter__(self) -> LayerRaces:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()

    def ask(self, request: LayerRace | ControlRace) -> LayerTimes:
        """The answer. One that was wrong must not make others wrong: its process is replaced."""
        compiling_s = _COMPILING_S if isinstance(request, LayerRace) and request.compiled else 0.0
        share = CASES_OF_A_FINALIST * (1 + len(request.beside) if isinstance(request, LayerRace) else 1)
        try:
            answer: LayerTimes = self._process.call(request, timeout_s=settings.RUN_TIMEOUT_S * share + compiling_s)
        except WorkerError:
            self._process.kill()
            raise
        return answer


Row = dict[str, Any]


def row_of(race: LayerRace, times: LayerTimes, target: CpuTarget, *, name: str, control: Control) -> Row:
    """Figures of a race; ``failed`` if PyTorch's op did not run. Raises BeyondLimit, which says ``name``, for a time
    that this device does not allow."""
    workload, ours = race.candidate.workload, times.measurements[OURS]
    others = {who: took for who, took in times.measurements.items() if who not in (OURS, *BESIDE)}
    eager = {who: took for who, took in others.items() if is_eager(who)}
    same_layout = [who for who in eager if who.endswith(workload.layout)]
    if not same_layout:
        return {"failed": "; ".join(f"{who}: {why}" for who, why in times.refused.items())}
    rounds = times.rounds_us
    ratio = ratio_of(*(rounds[who] for who in eager), over=rounds[OURS])
    over_best = ratio_of(*(rounds[who] for who in others), over=rounds[OURS])
    fastest = min(eager.values(), key=lambda took: took.median_us)
    off = math.hypot(fastest.spread_us / fastest.median_us, ours.spread_us / ours.median_us)
    row = {
        **({} if workload.epilogue == "none" else {"epilogue": workload.epilogue}),
        "dwconv_us": ours.median_us,
        "spread_us": ours.spread_us,
        "pytorch_us": {who: took.median_us for who, took in eager.items()},
        "pytorch_spread_us": {who: took.spread_us for who, took in eager.items()},
        "others_us": {who: took.median_us for who, took in others.items() if who not in eager},
        "refused": times.refused,
        **ratio.as_row("ratio"),
        "ratio_spread": ratio.value * off,
        **ratio_of(*(rounds[who] for who in same_layout), over=rounds[OURS]).as_row("ratio_same_layout"),
        "best_other": min(others, key=lambda who: others[who].median_us),
        **over_best.as_row("over_best_other"),
        "verdict": control.verdict(over_best.interval),
        "percent_of_limit": percent_of_limit(
            name, ours.median_us, bytes_moved=workload.bytes, flops=workload.flops, target=target, caches=race.caches
        ),
        "contention": max(took.contention for took in times.measurements.values()),
        "in_cache": workload.bytes <= target.cache_bytes,
        "config": race.candidate.config.to_dict(),
    }
    if WIDE_TYPE in rounds:
        row["float32_us"] = times.measurements[WIDE_TYPE].median_us
        row |= ratio_of(rounds[WIDE_TYPE], over=rounds[OURS]).as_row("ratio_float32")
    for name, key in _GENERIC.items():
        if name in rounds:
            row[f"{key}_us"] = times.measurements[name].median_us
            row |= ratio_of(rounds[OURS], over=rounds[name]).as_row(key)
            row |= ratio_of(*(rounds[who] for who in eager), over=rounds[name]).as_row(f"{key}_ratio")
    return row


_GENERIC = {ANY_SIZE: "any_size", ANY_CHANNELS: "any_channels"}
"""Kernels whose sizes are arguments: their rows hold how many times as fast as ours they are, and as PyTorch's op."""


HEAD = (
    f"{'layer':40} {'pass':6} {'caches':8} {'PyTorch nchw':>13} {'nhwc':>9} {'dwconv':>9} {'±':>6} {'×':>6} "
    f"{'95 % of ×':>14} {'% limit':>8}  over the best other"
)


def line_of(row: Row) -> str:
    """A row of the table, or why there is none."""
    about = f"{row['layer']:40} {row['pass']:6} {row['caches']:8}"
    if "failed" in row:
        return f"{about} failed: {row['failed']}"
    nchw, nhwc = (
        min((us for name, us in row["pytorch_us"].items() if name.endswith(layout)), default=math.nan)
        for layout in LAYOUTS
    )
    low, high = row["ratio_interval"]
    return (
        f"{about} {nchw:13.1f} {nhwc:9.1f} {row['dwconv_us']:9.1f} {row['spread_us']:6.1f} {row['ratio']:6.2f} "
        f"{low:6.2f} to {high:<5.2f} {row['percent_of_limit']:7.0f}  {row['verdict']}, {row['over_best_other']:.2f} × "
        f"{row['best_other']}"
        + (f"; {row['ratio_float32']:.2f} × our float32" if "ratio_float32" in row else "")
        + "".join(f"; {name.removeprefix('dwconv ')} {row[key]:.2f}" for name, key in _GENERIC.items() if key in row)
    )


def means_of(rows: Sequence[Row]) -> str:
    """Geometric means of the ratios by pass; for wgrad also of small and large kernels separately. Then who did not
    race, and why."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if "ratio" in row:
            name = row.get("epilogue", row["pass"])
            states = "" if row["caches"] == "warm" else f", {row['caches']}"
            groups[f"{name}{states}"].append(row)
            if row["pass"] == "wgrad":
                size = "≤ 3" if row["kernel"] <= 3 else "= 4" if row["kernel"] == 4 else "≥ 5"
                groups[f"wgrad, k {size}{states}"].append(row)
    head = f"{'geometric mean':22} {'× best other':>13} {'× better layout':>16} {'× same layout':>14}"
    lines = ["", f"{head} {'least':>6} {'layers':>7}"]
    for name, members in groups.items():
        names = ("over_best_other", "ratio", "ratio_same_layout")
        best, better, same = (geometric_mean([row[key] for row in members]) for key in names)
        least = min(row["over_best_other"] for row in members)
        lines.append(f"{name:22} {best:13.2f} {better:16.2f} {same:14.2f} {least:6.2f} {len(members):7}")
        wide = [row["ratio_float32"] for row in members if "ratio_float32" in row]
        if wide:
            lines[-1] += f"   {geometric_mean(wide):5.2f} × our float32, least {min(wide):.2f}"
        for name, key in _GENERIC.items():
            if generic := [row for row in members if key in row]:
                of_ours, of_pytorch = ([row[each] for row in generic] for each in (key, f"{key}_ratio"))
                lines[-1] += (
                    f"   {name.removeprefix('dwconv ')} {geometric_mean(of_ours):.2f} × ours, least "
                    f"{min(of_ours):.2f}, {geometric_mean(of_pytorch):.2f} × better layout"
                )
    return "\n".join([*lines, *_refused(rows)])


def _refused(rows: Sequence[Row]) -> list[str]:
    reasons: dict[str, int] = defaultdict(int)
    for row in rows:
        for who, why in row.get("refused", {}).items():
            reasons[f"{who}: {why}"] += 1
    return [f"did not race in {count} of {len(rows)} rows: {reason}" for reason, count in reasons.items()]
