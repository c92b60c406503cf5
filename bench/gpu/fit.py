"""Stage ``rank``: does the computed cost order candidates as the device does? Spearman's ρ for each workload.

Stage ``fit``: the constants of the cost model, fitted to the candidates that stage rank ranks.

Candidates are measured with warm caches, and computed so here. The error of one is the logarithm of computed over
measured time. Levenberg-Marquardt makes the errors small by the logarithms of the constants; candidates that are far
off count less. What no candidate depends on stays.
Those fitted to one half of the workloads must predict the other half better than the old ones, or the old ones stay.

They are written beside the run's tuning log. Where that log is read, as with DWCONV_TUNING_LOGS, or ships, they count.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.gpu.run import Ended, Run, has_failed, of_all, say
from dwconv.errors import BrokenInstallation, BuildError, CannotFit, DwconvError
from dwconv.kernels.cache import build_cached
from dwconv.problems.cost_constants import MOST_NOT_HIDDEN, NAMES, CostConstants, constants_file, write_constants
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord
from dwconv.schedules.cuda.gpu.cost import BlockWork, constants_of, total_us
from dwconv.schedules.template import Candidate
from dwconv.tuner.gpu_cost.cost_model import Cost, computed_cost
from dwconv.tuner.search.analytic import rank_correlation


def order_of(
    records: Sequence[TuningRecord], target: CudaTarget, *, enough: Callable[[], bool] = lambda: False
) -> dict[str, float | int]:
    """Spearman's ρ of computed cost, with warm caches, and measured median: 1 is the same order, 0 no relation. Only
    candidates whose cost was computed before ``enough`` count."""
    computed, measured = [], []
    for cost, median_us in costs_of(records, target, enough=enough):
        computed.append(total_us([kernel.work for kernel in cost.kernels], target, warm=True))
        measured.append(median_us)
    if len(measured) < 2:
        return {"candidates": len(measured), "spearman": 0.0}
    return {"candidates": len(measured), "spearman": round(rank_correlation(computed, measured), 3)}


def costs_of(
    records: Sequence[TuningRecord], target: CudaTarget, *, enough: Callable[[], bool] = lambda: False
) -> Iterator[tuple[Cost, float]]:
    """The computed cost of each candidate that can be built, and its measured median in µs, until ``enough``."""
    for record in records:
        if enough():
            return
        assert record.measurement is not None
        try:
            artifact = build_cached(Candidate(record.workload, record.config), target)
            yield computed_cost(artifact, record.workload, target), record.measurement.median_us
        except BuildError:
            continue


FIRST_S = 10.0
"""Expected seconds of a workload, until one has run."""
LEAST = 8
"""Candidates of a workload; with fewer, chance decides."""
MOST = 16


def rank_stage(run: Run) -> Ended:
    """Raises BrokenInstallation where a package for CUDA is missing."""
    assert isinstance(run.target, CudaTarget)
    measured = measured_candidates(run)
    for key in run.state.left("rank", measured):
        if not run.pace.fits:
            break
        answer: dict[str, Any]
        with run.pace.item():
            try:
                found = order_of(measured[key][:MOST], run.target, enough=lambda: run.pace.left_s <= 0)
            except BrokenInstallation:  # the same number for every workload
                raise
            except DwconvError as error:
                answer = {"failed": str(error)}
            else:
                answer = dict(found)
        if run.pace.left_s <= 0 and answer.get("candidates", 0) < LEAST:  # chance would decide
            break
        run.state.put("rank", key, answer)
        say("rank", f"{key}: {answer}")
    answers = [run.state.of("rank")[key] for key in measured if key in run.state.of("rank")]
    orders = [answer["spearman"] for answer in answers if not has_failed(answer)]
    text = f"Spearman's ρ {median(orders):.2f}, least {min(orders):.2f}, " if orders else ""
    return Ended(line=f"{text}{len(orders)} of {len(measured)} workloads ranked{of_all(len(answers), len(measured))}")


def measured_candidates(run: Run) -> dict[str, list[TuningRecord]]:
    """Measured candidates of each workload that has enough, by its key."""
    records = run.log.load().records
    of_each = {workload.key: _of(workload, records) for workload in run.workloads}
    return {key: found for key, found in of_each.items() if len(found) >= LEAST}


def _of(workload: Workload, records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """The last measurement of each configuration."""
    latest = {record.config: record for record in records if record.workload == workload and record.measured}
    return list(latest.values())


LEAST_WORKLOADS = 4
LEAST_CANDIDATES = 24
_FAR_OFF = 0.2
"""Errors beyond this count in proportion, not squared."""
_TIED = 0.001
"""What draws a constant to where it began, far weaker than any candidate that depends on it."""
_MOST_TIMES = 8.0
"""No constant moves further than this from where it began."""
_STEPS = 40
_NUDGE = 1e-3
Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class MeasuredWork:
    """A candidate: the work of each of its kernels, and its measured time."""

    workload: str
    works: tuple[BlockWork, ...]
    median_us: float


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The constants, and what they change. Errors are medians: 0.1 is 10 % off; ρ is Spearman's, of the median
    workload."""

    constants: CostConstants
    undetermined: tuple[str, ...]
    """Constants on which no candidate depends: they are as before."""
    error_before: float
    error: float
    rho_before: float
    rho: float
    candidates: int
    workloads: int


def fit(measured: Sequence[MeasuredWork], target: CudaTarget) -> Fitted:
    """Raises CannotFit where the measurements determine nothing, or nothing better than what ``target`` has."""
    kept = [each for each in measured if math.isfinite(total_us(each.works, target))]
    _check(kept)
    before = constants_of(target)
    one, other = _halves(kept)
    held_out = ((one, _fitted(other, target, before)[0]), (other, _fitted(one, target, before)[0]))
    old = mean(_off(part, before, target) for part, _ in held_out)
    new = mean(_off(part, fitted, target) for part, fitted in held_out)
    if new >= old:
        raise CannotFit(
            f"constants fitted to half of the {len(_keys(kept))} workloads are {new:.0%} off on the others, the old "
            f"ones {old:.0%}; tune more workloads"
        )
    constants, undetermined = _fitted(kept, target, before)
    return Fitted(
        constants=constants,
        undetermined=undetermined,
        error_before=_off(kept, before, target),
        error=_off(kept, constants, target),
        rho_before=_rho(kept, before, target),
        rho=_rho(kept, constants, target),
        candidates=len(kept),
        workloads=len(_keys(kept)),
    )


def _check(measured: Sequence[MeasuredWork]) -> None:
    for each in measured:
        if not 0 < each.median_us < math.inf:
            raise CannotFit(f"median_us={each.median_us} of {each.workload} is no time; remove that record")
    workloads = len(_keys(measured))
    if workloads < LEAST_WORKLOADS or len(measured) < LEAST_CANDIDATES:
        raise CannotFit(
            f"{len(measured)} measured candidates of {workloads} workloads determine no constants; tune until there "
            f"are {LEAST_CANDIDATES} of {LEAST_WORKLOADS}"
        )


def _keys(measured: Sequence[MeasuredWork]) -> list[str]:
    return list(dict.fromkeys(each.workload for each in measured))


def _halves(measured: Sequence[MeasuredWork]) -> tuple[list[MeasuredWork], list[MeasuredWork]]:
    """Every second workload, and the others."""
    second = set(_keys(measured)[1::2])
    return [each for each in measured if each.workload not in second], [
        each for each in measured if each.workload in second
    ]


# -- what constants are worth ------------------------------------------------------------------------------------------


def _computed_us(measured: Sequence[MeasuredWork], constants: CostConstants, target: CudaTarget) -> list[float]:
    there = dataclasses.replace(target, fitted=constants)
    return [total_us(each.works, there, warm=True) for each in measured]


def _errors(measured: Sequence[MeasuredWork], constants: CostConstants, target: CudaTarget) -> Vector:
    computed = _computed_us(measured, constants, target)
    errors: Vector = np.log(computed) - np.log([each.median_us for each in measured])
    return errors


def _off(measured: Sequence[MeasuredWork], constants: CostConstants, target: CudaTarget) -> float:
    return float(np.expm1(np.median(np.abs(_errors(measured, constants, target)))))


def _rho(measured: Sequence[MeasuredWork], constants: CostConstants, target: CudaTarget) -> float:
    of_each: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each, us in zip(measured, _computed_us(measured, constants, target), strict=True):
        of_each[each.workload].append((us, each.median_us))
    return median(rank_correlation(*zip(*pairs, strict=True)) for pairs in of_each.values())


# -- Levenberg-Marquardt -----------------------------------------------------------------------------------------------


def _fitted(
    measured: Sequence[MeasuredWork], target: CudaTarget, before: CostConstants
) -> tuple[CostConstants, tuple[str, ...]]:
    """The constants of least loss, and the names of those that are not determined."""
    problem = _Problem(measured, target, before)
    moved = problem.descend(np.zeros(len(NAMES)))
    slopes = problem.slopes(moved)[0]
    idle = np.abs(slopes).max(axis=0) < _NUDGE
    return problem.constants(np.where(idle, 0.0, moved)), tuple(np.array(NAMES)[idle])


class _Problem:
    """Points are logarithms of the constants over those before."""

    def __init__(self, measured: Sequence[MeasuredWork], target: CudaTarget, before: CostConstants) -> None:
        self._measured, self._target = measured, target
        self._before = np.array([getattr(before, name) for name in NAMES])
        self._most = np.full(len(NAMES), math.log(_MOST_TIMES))
        self._most[NAMES.index("not_hidden")] = math.log(MOST_NOT_HIDDEN / before.not_hidden)

    def constants(self, point: Vector) -> CostConstants:
        values: dict[str, Any] = dict(zip(NAMES, (self._before * np.exp(point)).tolist(), strict=True))
        return CostConstants(**values)

    def errors(self, point: Vector) -> Vector:
        return _errors(self._measured, self.constants(point), self._target)

    def loss(self, point: Vector) -> float:
        errors = np.abs(self.errors(point))
        far = 2 * _FAR_OFF * errors - _FAR_OFF**2
        return float(np.where(errors <= _FAR_OFF, errors**2, far).sum() + (_TIED * point**2).sum())

    def slopes(self, point: Vector) -> tuple[Vector, Vector]:
        """How each error changes with each constant, and the errors."""
        errors = self.errors(point)
        nudged = [self.errors(point + _NUDGE * axis) for axis in np.eye(len(NAMES))]
        return (np.array(nudged).T - errors[:, None]) / _NUDGE, errors

    def descend(self, point: Vector) -> Vector:
        damping, loss = 1e-3, self.loss(point)
        for _ in range(_STEPS):
            slopes, errors = self.slopes(point)
            weights = np.minimum(1.0, _FAR_OFF / np.maximum(np.abs(errors), 1e-12))
            curvature = slopes.T @ (weights[:, None] * slopes) + _TIED * np.eye(len(NAMES))
            slope = slopes.T @ (weights * errors) + _TIED * point
            while damping < 1e6:
                step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), slope)
                tried = np.clip(point - step, -math.log(_MOST_TIMES), self._most)
                if (found := self.loss(tried)) < loss:
                    break
                damping *= 4
            else:
                return point
            gain, point, loss, damping = loss - found, tried, found, damping / 4
            if gain < 1e-9 * max(loss, 1e-9):
                return point
        return point


def fit_stage(run: Run) -> Ended:
    """The run does not fail where too little is measured: the constants stay. Raises BrokenInstallation where machine
    code cannot be read."""
    assert isinstance(run.target, CudaTarget)
    known = measured_candidates(run)
    measured: list[MeasuredWork] = []
    for key, records in known.items():
        if not run.pace.fits:
            break
        with run.pace.item():
            for cost, median_us in costs_of(records[:MOST], run.target, enough=lambda: run.pace.left_s <= 0):
                works = tuple(kernel.work for kernel in cost.kernels)
                measured.append(MeasuredWork(workload=key, works=works, median_us=median_us))
    try:
        fitted = fit(measured, run.target)
    except CannotFit as error:
        return Ended(line=f"the constants stay: {error}")
    path = run.out / constants_file(run.target.device)
    write_constants(
        path, fitted.constants, device=run.target.device, candidates=fitted.candidates, workloads=fitted.workloads
    )
    run.state.put("fit", "device", _answer(fitted))
    before = dataclasses.asdict(constants_of(run.target))
    for name, value in dataclasses.asdict(fitted.constants).items():
        same = ", on which nothing depends" if name in fitted.undetermined else f", was {before[name]:.4g}"
        say("fit", f"{name} {value:.4g}{same}")
    say("fit", f"to use them: cp {path} tuning_logs/, or DWCONV_TUNING_LOGS={run.out}")
    return Ended(
        line=f"{fitted.candidates} candidates of {fitted.workloads} workloads: computed times are {fitted.error:.0%} "
        f"off, were {fitted.error_before:.0%}; ρ {fitted.rho:.2f}, was {fitted.rho_before:.2f}; written to {path}"
    )


def _answer(fitted: Fitted) -> dict[str, Any]:
    return {**dataclasses.asdict(fitted), "undetermined": list(fitted.undetermined)}
