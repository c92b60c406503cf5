"""A race of ``bench cpu`` and ``bench cuda``: one pass of a layer, our kernel and all other providers, in turns.

    our kernel  ──► verified ──────────────┐
    each rival  ──► its result is judged ──┴─► rounds in turns ──► our kernel verified once more

    warm   the same tensors again and again: small ones stay in the cache
    cold   copies of the tensors in turn, together larger than the cache, each result in memory of its own

On a CPU all are held to the same answers, within the same bounds. Calls are prepared before they are timed, under the
settings of their provider. On a GPU the profiler counts what they launch: a provider races only with the kernels that
its name promises. A rival that cannot run the pass, or computes something else, does not race, and the reason is kept.
A control is the same kernel twice, in everything else the same way.

Then the rows of ``bench cpu``: ratios with their intervals, as a table, and as means. ``ratio`` is over PyTorch's op in
its better layout, ``over_best_other`` over the fastest of all; the verdict is on the latter.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import geometric_mean

import torch

from bench.evidence import Control, Ratio, Row, percent_of_limit, ratio_of
from bench.launched import kernels_of, why_void
from bench.providers import Inputs, Provider, is_eager, plain, providers, transposed_providers
from dwconv import settings
from dwconv.errors import BuildError, WorkerError, one_line
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import build_cached
from dwconv.kernels.entry import message
from dwconv.kernels.kernel import Kernel
from dwconv.measure.clock.device import Captured, clock_of, get_ready, synchronize
from dwconv.measure.clock.timing import (
    FINAL,
    Caches,
    Call,
    Effort,
    InTurn,
    Taken,
    inputs_in_turn,
    results_held,
    rounds_in_turns,
)
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.processes.worker import locate
from dwconv.measure.requests import MeasureSetup
from dwconv.measure.verify.bare_kernel import LoadedKernel
from dwconv.measure.verify.cases import CASES_OF_A_FINALIST, Case, cases_of_finalists, fresh_case, judge_all, make_case
from dwconv.measure.verify.verify import verify, verify_finalist
from dwconv.problems.target import CpuTarget, pack_target
from dwconv.problems.workload import LAYOUTS, Workload
from dwconv.records.record import Measurement
from dwconv.schedules.template import Candidate

for _kind in (Effort, Measurement, Taken):
    message(_kind)

OURS, AGAIN = "dwconv", "dwconv again"
WIDE_TYPE, ANY_SIZE, ANY_CHANNELS = BESIDE = ("dwconv float32", "dwconv any size", "dwconv any channels")
"""Other kernels of ours for the same pass."""
_MOST_OF_A_REASON = 200
_MOST_OF_A_NAME = 120
"""Characters of a kernel's name to keep: PyTorch's have all their template arguments in them."""


@message
@dataclass(frozen=True, kw_only=True)
class Race:
    """A request for the times of all providers of the workload of a candidate."""

    candidate: Candidate
    caches: tuple[Caches, ...] = ("warm",)
    control: bool = False
    """True if the candidate races itself alone."""
    alone: bool = False
    """True if no other provider races."""
    compiled: bool = False
    """True if torch.compile races, too."""
    transposed: bool = False
    """True if PyTorch's transposed convolution races, whose pass it is, and no other."""
    beside: dict[str, Candidate] = field(default_factory=dict)
    """Other kernels of ours, by names of ``BESIDE``."""
    effort: Effort = FINAL
    """For each of ``caches``."""
    making_s: float | None = None
    """A provider that is not ready after so many seconds does not race."""


@message
@dataclass(frozen=True, kw_only=True)
class Raced:
    """The times of each provider by caches, in the order of first rounds, the kernels that it launches, and the reasons
    why others did not race. Kernels are not known on a CPU."""

    times: dict[Caches, Taken]
    kernels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


Ready = dict[Caches, Call]


@dataclass(frozen=True, kw_only=True)
class _Tensors:
    """A case, the copies of its inputs by caches, and how many results to hold on to."""

    case: Case
    copies: dict[Caches, list[tuple[torch.Tensor, ...]]]
    held: dict[Caches, int]


class Racer:
    """Handler: Race in, Raced out."""

    def __init__(self, setup: MeasureSetup) -> None:
        if isinstance(setup.target, CpuTarget):
            torch.set_num_threads(setup.target.threads)
        self._target = setup.target
        self._clock = clock_of(setup.target)
        self._load: Callable[[Artifact], LoadedKernel] = locate(setup.load)
        get_ready(setup.target)

    def __call__(self, request: Race) -> Raced:
        """Raises BuildError if our kernel is wrong, or is not what was launched."""
        with torch.inference_mode():
            return self._race(request)

    def _race(self, request: Race) -> Raced:
        workload = request.candidate.workload
        kernel = self._right(request.candidate)
        tensors = self._tensors(workload, request.caches)
        ready = {OURS: self._ours(kernel, tensors)}
        refused: dict[str, str] = {}
        own = {OURS: kernel.artifact}
        if request.control:
            ready[AGAIN], own[AGAIN] = self._ours(kernel, tensors), kernel.artifact
        elif not request.alone:
            self._add_rivals(request, tensors, ready=ready, refused=refused)
        for name, candidate in request.beside.items():
            other = candidate.workload  # on the same tensors where it can be: its own would come from memory
            its_own = tensors if _shares_tensors(other, workload) else self._tensors(other, request.caches)
            beside = _at(self._right(candidate), workload)
            ready[name], own[name] = self._ours(beside, its_own), beside.artifact
        kernels = self._launched(ready, refused=refused, own=own)
        times = {}
        for caches in request.caches:
            calls = {name: made[caches] for name, made in ready.items() if caches in made}
            times[caches] = rounds_in_turns(calls, clock=self._clock, effort=request.effort)
        _check(verify(kernel, fresh_case(workload, device=self._target.kind)).reason)
        return Raced(times=times, kernels=kernels, refused=refused)

    def _add_rivals(
        self, request: Race, tensors: _Tensors, *, ready: dict[str, Ready], refused: dict[str, str]
    ) -> None:
        if request.compiled:  # or, after a few workloads, it would run all others as they are and say nothing
            with contextlib.suppress(ImportError):  # without a compiler its calls are refused, one by one
                torch._dynamo.reset()
        making_ends_s = math.inf if request.making_s is None else time.monotonic() + request.making_s
        if request.transposed:
            rivals = transposed_providers(tensors.case.workload)
        else:
            rivals = providers(tensors.case.workload, tensors.case.inputs, compiled=request.compiled)
        for provider in rivals:
            if time.monotonic() > making_ends_s and len(ready) > 1:
                refused[provider.name] = "no time"
                continue
            try:
                ready[provider.name] = self._ready(provider, tensors)
            except Exception as error:  # noqa: BLE001  whatever a library raises, it does not race
                refused[provider.name] = one_line(str(error) or type(error).__name__, most=_MOST_OF_A_REASON)
                synchronize(self._target)  # or the device is gone, and with it the race

    def _right(self, candidate: Candidate) -> LoadedKernel:
        """The kernel of a candidate, verified: on a CPU as a finalist, on a GPU, where that was tuning's part, once."""
        workload, target = candidate.workload, self._target
        if isinstance(target, CpuTarget) and workload.any_channels:  # as a pack has it
            target = pack_target(target) or target
        kernel = self._load(build_cached(candidate, target))
        if self._target.kind == "cpu":
            verdict = verify_finalist(kernel, cases_of_finalists(workload, device="cpu"))
        else:
            verdict = verify(kernel, make_case(workload, data="integers", device=self._target.kind))
        _check(verdict.reason)
        return kernel

    def _tensors(self, workload: Workload, states: Sequence[Caches]) -> _Tensors:
        case = make_case(workload, data="integers", device=self._target.kind)
        copies = {each: inputs_in_turn(workload, case.inputs, caches=each, target=self._target) for each in states}
        held = {each: results_held(workload, caches=each, target=self._target) for each in states}
        return _Tensors(case=case, copies=copies, held=held)

    def _ours(self, kernel: LoadedKernel, tensors: _Tensors) -> Ready:
        return self._made(lambda inputs: partial(kernel, *inputs), tensors)

    def _ready(self, provider: Provider, tensors: _Tensors) -> Ready:
        """The calls of a provider. Raises BuildError if its result is wrong, and what it raises."""
        case = tensors.case

        def make(inputs: Inputs) -> Call:
            call = provider.make(inputs)
            result = call()  # a library chooses, allocates and compiles in its first calls
            if (
                inputs is case.inputs and self._target.kind == "cpu"
            ):  # cuDNN may sum in fewer bits, and races all the same
                results = result if isinstance(result, tuple) else (result,)
                _check(judge_all([plain(each) for each in results], case).reason)
            return call

        with provider.settings():
            made = self._made(make, tensors, one_set=provider.slow)
        if not made:
            raise BuildError("it is compiled for one set of tensors, and not timed on several in turn")
        return made

    def _made(self, make: Callable[[Inputs], Call], tensors: _Tensors, *, one_set: bool = False) -> Ready:
        """Calls on all copies in turn, ready to be timed; with ``one_set`` only where there is one copy."""
        return {
            caches: self._clock.ready(InTurn([make(inputs) for inputs in copies], held=tensors.held[caches]))
            for caches, copies in tensors.copies.items()
            if len(copies) == 1 or not one_set
        }

    def _launched(
        self, ready: dict[str, Ready], *, refused: dict[str, str], own: Mapping[str, Artifact]
    ) -> dict[str, tuple[str, ...]]:
        """The kernels that each provider launches; refuses those whose time is not what their name says. ``own``: ours,
        by name."""
        kernels = {}
        for name, made in list(ready.items()):
            call = next(iter(made.values()))
            launched = kernels_of(call, device=self._target.kind)
            calls = call.count if isinstance(call, Captured) else 1
            artifact = own.get(name, own[OURS])
            if void := why_void(name, launched, ours=artifact, calls=calls, is_ours=name in own):
                if name == OURS:
                    raise BuildError(void)
                refused[name] = void
                del ready[name]
            elif launched is not None:
                kernels[name] = tuple(sorted(each[:_MOST_OF_A_NAME] for each in launched))
        return kernels


def _at(kernel: LoadedKernel, workload: Workload) -> LoadedKernel:
    """A kernel of any number of channels at the size of a workload."""
    if not (isinstance(kernel, Kernel) and kernel.any_size and kernel.workload.any_channels):
        return kernel
    return kernel.any_size.at(replace(kernel.workload, channels=workload.channels, input_size=workload.input_size))


def _shares_tensors(one: Workload, other: Workload) -> bool:
    """True if the kernels of both run on the same tensors."""
    facts = ("dtype", "kernel") if one.any_size else ("dtype", "batch", "channels", "input_size", "kernel")
    return all(getattr(one, fact) == getattr(other, fact) for fact in facts)


def _check(reason: str) -> None:
    if reason:
        raise BuildError(f"wrong: {reason}")


class Races(contextlib.AbstractContextManager["Races"]):
    """Runs races in a process of its own, which is replaced if it dies. Raises WorkerError if a race failed,
    WorkerCannotStart if none can be run."""

    def __init__(self, target: CpuTarget) -> None:
        setup = MeasureSetup(target=target)
        role = "bench.race:Racer"
        self._process = IsolatedProcess(role, setup, threads=target.threads, vector_set=target.vector_set)

    def __exit__(self, *error: object) -> None:
        self._process.kill()

    def ask(self, request: Race) -> Raced:
        """The answer. One that was wrong must not make others wrong: its process is replaced."""
        timeout_s = settings.RUN_TIMEOUT_S * CASES_OF_A_FINALIST * (1 + len(request.beside))
        try:
            answer: Raced = self._process.call(request, timeout_s=timeout_s)
        except WorkerError:
            self._process.kill()
            raise
        return answer


def row_of(race: Race, raced: Raced, target: CpuTarget, *, name: str, control: Control) -> Row:
    """Figures of a race with warm caches; ``failed`` if PyTorch's op did not run. Raises BeyondLimit, which says
    ``name``, for a time that this device does not allow."""
    times = raced.times["warm"]
    workload, ours = race.candidate.workload, times.measurements[OURS]
    others = {other: took for other, took in times.measurements.items() if other not in (OURS, *BESIDE)}
    eager = {other: took for other, took in others.items() if is_eager(other)}
    same_layout = [other for other in eager if other.endswith(workload.layout)]
    if not same_layout:
        return {"failed": "; ".join(f"{other}: {why}" for other, why in raced.refused.items())}
    rounds = times.rounds_us
    ratio = ratio_of(*(rounds[other] for other in eager), over=rounds[OURS])
    over_best = ratio_of(*(rounds[other] for other in others), over=rounds[OURS])
    fastest = min(eager.values(), key=lambda took: took.median_us)
    off = math.hypot(fastest.spread_us / fastest.median_us, ours.spread_us / ours.median_us)
    row = {
        **({} if workload.epilogue == "none" else {"epilogue": workload.epilogue}),
        "dwconv_us": ours.median_us,
        "spread_us": ours.spread_us,
        "pytorch_us": {other: took.median_us for other, took in eager.items()},
        "pytorch_spread_us": {other: took.spread_us for other, took in eager.items()},
        "others_us": {other: took.median_us for other, took in others.items() if other not in eager},
        "refused": raced.refused,
        **ratio.as_row("ratio"),
        "ratio_spread": ratio.value * off,
        **ratio_of(*(rounds[other] for other in same_layout), over=rounds[OURS]).as_row("ratio_same_layout"),
        "best_other": min(others, key=lambda other: others[other].median_us),
        **over_best.as_row("over_best_other"),
        "verdict": control.verdict(over_best.interval),
        "percent_of_limit": percent_of_limit(
            name, ours.median_us, bytes_moved=workload.bytes, flops=workload.flops, target=target
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
            row |= ratio_of(*(rounds[other] for other in eager), over=rounds[name]).as_row(f"{key}_ratio")
    return row


_GENERIC = {ANY_SIZE: "any_size", ANY_CHANNELS: "any_channels"}
"""Kernels whose sizes are arguments: their rows hold how many times as fast as ours they are, and as PyTorch's op."""


HEAD = (
    f"{'layer':40} {'pass':6} {'PyTorch nchw':>13} {'nhwc':>9} {'dwconv':>9} {'±':>6}  {'×':22} {'% limit':>8}  "
    "over the best other"
)
_OF_OURS = ("ratio_float32", *(f"{key}{over}" for key in _GENERIC.values() for over in ("", "_ratio")))
"""Ratios of other kernels of ours, which not every row has."""


def line_of(row: Row) -> str:
    """A row of the table, or why there is none."""
    about = f"{row['layer']:40} {row['pass']:6}"
    if "failed" in row:
        return f"{about} failed: {row['failed']}"
    nchw, nhwc = (
        min((us for name, us in row["pytorch_us"].items() if name.endswith(layout)), default=math.nan)
        for layout in LAYOUTS
    )
    ratio = str(Ratio(value=row["ratio"], interval=row["ratio_interval"]))
    return (
        f"{about} {nchw:13.1f} {nhwc:9.1f} {row['dwconv_us']:9.1f} {row['spread_us']:6.1f}  {ratio:22} "
        f"{row['percent_of_limit']:8.0f}  {row['verdict']}, {row['over_best_other']:.2f} × {row['best_other']}"
        + "".join(f"; {key} {row[key]:.2f}" for key in _OF_OURS if key in row)
    )


def means_of(rows: Sequence[Row]) -> str:
    """Geometric means of the ratios by pass; for wgrad also of small and large kernels separately. Then which
    providers did not race, and why."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if "ratio" in row:
            groups[str(row.get("epilogue", row["pass"]))].append(row)
            if row["pass"] == "wgrad":
                size = "≤ 3" if row["kernel"] <= 3 else "= 4" if row["kernel"] == 4 else "≥ 5"
                groups[f"wgrad, k {size}"].append(row)
    lines = ["", "geometric means, and the least:"]
    for name, members in groups.items():
        parts = []
        for key in ("over_best_other", "ratio", "ratio_same_layout", *_OF_OURS):
            if found := [row[key] for row in members if key in row]:
                parts.append(f"{key} {geometric_mean(found):.2f}, {min(found):.2f}")
        lines.append(f"  {name:12} {'; '.join(parts)}; {len(members)} layers")
    refused = Counter(f"{other}: {why}" for row in rows for other, why in row.get("refused", {}).items())
    lines += [f"did not race in {count} of {len(rows)} rows: {reason}" for reason, count in refused.items()]
    return "\n".join(lines)
