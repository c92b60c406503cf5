"""RaceState: which workloads of a race are still to come, which run, and how the others ended.

what is not known yet, most to win first ──► kernels for every layer ─► comparisons: won, lost, failed, inconclusive
gradients that blocks may run, after these ─►                           not needed, where the block is one in any case
                                             kernels for one size, where they save more than their builds take
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dwconv.dispatch import loaded_packs
from dwconv.dispatch.advantage import beats_pytorch, is_one_in_any_case
from dwconv.dispatch.at_any_size import of_any_size
from dwconv.dispatch.kernel_state import KernelState
from dwconv.dispatch.knowledge import is_known, measured_here, serves
from dwconv.errors import NoTemplate
from dwconv.kernels.load_cpu import can_load_libraries
from dwconv.problems.block import NOTHING
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.record import Status, TuningRecord
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.system.versions import can_build
from dwconv.tuner.expected_gain import expected_gains_us, shares
from dwconv.tuner.race_result import RaceResult
from dwconv.untuned import every_layer
from dwconv.untuned.starts import starts


def _gradients(backward: Workload) -> list[Workload]:
    """Of the convolution in a block, without a bias and with one: a BatchNorm takes it in."""
    dgrad, wgrad = backward.convolution("dgrad"), backward.convolution("wgrad")
    return [dgrad, wgrad, replace(wgrad, bias=True)]


def _is_as_fast(workload: Workload) -> bool:
    """True if a kernel of any size is about as fast as one that is built for the size, so that one is enough where
    there is little to win."""
    return workload.layout == "nhwc" and (workload.pass_ != "wgrad" or math.prod(workload.kernel) <= _FEW_TAPS)


def _build_of_every_layer_s(workload: Workload) -> float:
    """Weight gradients have the largest code."""
    return _BUILD_OF_WGRAD_S if workload.pass_ == "wgrad" else _BUILD_OF_GATHER_S


_BUILD_OF_GATHER_S, _BUILD_OF_WGRAD_S = 0.6, 2.0
"""What it takes to build a kernel for every layer, about."""
_OTHERS_SAVE = 0.15
"""Of what is expected of the first one, in a layer of some kind: what the second one saves besides. The better of two
was 1.4 times as fast as the first, in layers of all sizes (``every_layer.configs``)."""


def _of_one_size(workload: Workload) -> float:
    if workload.layout == "nchw":
        return _OF_ONE_SIZE_NCHW
    if workload.pass_ == "wgrad" and math.prod(workload.kernel) > _FEW_TAPS:
        return _OF_ONE_SIZE_LARGE_WGRAD
    return _OF_ONE_SIZE[workload.pass_]


_FEW_TAPS = 9
_BUILD_S, _BUILD_OF_BLOCK_S, _STEPS = 0.5, 1.5, 1000
"""What it takes to build, verify and time a kernel, about, and one of a block; and the steps in which it must save as
much."""
_OF_ONE_SIZE = {"fprop": 0.92, "dgrad": 0.98, "wgrad": 0.92, "forward": 0.91, "backward": 0.93, "inference": 0.91}
_OF_ONE_SIZE_LARGE_WGRAD, _OF_ONE_SIZE_NCHW = 0.98, 0.6
"""The time of a kernel for one size over that of one for every layer: geometric means of twelve layers
(docs/predictions.md), in NCHW of small planes. Of a block: one for its channels alone, of any size, took 0.94 of the
time in nine passes of MobileNetV2's blocks, on one thread of a busy AMD EPYC (family 26); the rest is that of
convolutions."""
_TRIES = 2
"""Comparisons of a workload that other work disturbs; on a machine that is quiet now one more is the last."""
_MOST_INCONCLUSIVE = 8
"""After so many inconclusive comparisons in a row the machine is too busy to continue."""


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """Candidates of one workload that are timed side by side."""

    workload: Workload
    candidates: Sequence[Candidate]
    tries: int = 1
    """Other work disturbed those before this one."""
    saves_s: float = math.inf
    """What they are expected to save in ``_STEPS`` steps over what was raced before."""

    @property
    def is_of_one_size(self) -> bool:
        """True of kernels for the size, after those of any size."""
        return not math.isinf(self.saves_s)


TellProgress = Callable[[RaceResult], None]


class RaceState:
    """``counts``: how often a step runs each workload. ``state``: what calls of this process know of kernels. No
    comparison begins after ``seconds``."""

    def __init__(
        self,
        counts: Mapping[Workload, int],
        target: Target,
        *,
        known: Database,
        seconds: float,
        state: KernelState | None = None,
        progress: TellProgress | None = None,
        is_quiet: Callable[[], bool] = lambda: False,
    ) -> None:
        self._target = target
        self._progress = progress
        self._is_quiet = is_quiet
        self._database = known
        self._counts = counts
        self._started_s = time.monotonic()
        self._ends_s = self._started_s + seconds
        self.problem = ""
        """Why the race ended before its time."""
        broken = state.broken if state else {}
        self._known = tuple(each for each in counts if is_known(each, target, known, broken=broken))
        self.waiting = [each for each, count in counts.items() if count and each not in self._known]
        """Workloads to race now, those with most to win first once they are ``ordered``."""
        self._shares: Mapping[Workload, int] = {}
        self._expected_gains: dict[Workload, float] = {}
        self._records: list[TuningRecord] = []
        self._not_needed: tuple[Workload, ...] = ()
        self._generals: list[Candidate] | None = None
        """Kernels for every layer that are still to be built; None before the first look."""
        self._later = self._gradients_in_blocks()
        """Workloads that wait for what is raced now to show whether they are needed."""
        self.waiting = [each for each in self.waiting if each not in self._later]
        if not self.waiting:
            self._take_up_later()
        self._running: list[_Comparison] = []
        self._again: list[_Comparison] = []
        self._of_one_size: list[_Comparison] = []
        self._ends: dict[Workload, str] = {}
        """The field of RaceResult that each is in."""
        self._inconclusive_in_a_row = 0

    def tell(self) -> None:
        """Call ``progress`` with the result so far."""
        if self._progress:
            self._progress(self.report())

    def is_worth(self, record: TuningRecord) -> bool:
        """True if the fastest kernel of a comparison beats PyTorch's op: then it is verified further."""
        return beats_pytorch(record, self._target)

    def order(self) -> None:
        """Put those with most to win first. What there is to win takes a while to predict."""
        counts = {each: self._counts[each] for each in self.waiting}
        self._expected_gains |= expected_gains_us(counts, self._target, self._database)
        self._shares = shares(self._expected_gains)
        self.waiting.sort(key=lambda each: self._expected_gains[each], reverse=True)

    def goes_on(self) -> bool:
        """Whether there is more to race once a round has ended: what it has shown to be needed."""
        if not self._later or self.problem or time.monotonic() >= self._ends_s:
            return False
        self._take_up_later()
        self.order()
        return True

    def _take_up_later(self) -> None:
        needed = [each for each in self._later if not self._is_never_called(each)]
        self._not_needed = tuple(each for each in self._later if each not in needed)
        self.waiting, self._later, self._generals = needed, [], None

    def _gradients_in_blocks(self) -> list[Workload]:
        """Of those that wait, the gradients of convolutions that every step runs in a block alone."""
        if not isinstance(self._target, CpuTarget):
            return []
        in_blocks = Counter[Workload]()
        for each, count in self._counts.items():
            if each.pass_ == "backward" and each.block != NOTHING:
                for gradient in _gradients(each):
                    in_blocks[gradient] += count
        return [each for each in self.waiting if in_blocks[each] >= self._counts[each]]

    def _is_never_called(self, gradient: Workload) -> bool:
        """Whether each block around the convolution was measured to run as one whatever its gradients take."""
        for each in self._counts:
            if each.pass_ == "backward" and each.block != NOTHING and gradient in _gradients(each):
                forward, backward = self._best_of(each.for_pass("forward")), self._best_of(each)
                if not (forward and backward and is_one_in_any_case([forward, backward], self._target)):
                    return False
        return True

    def _best_of(self, workload: Workload) -> TuningRecord | None:
        """The record of the fastest confirmed kernel, measured in this race or before; None if there is none."""
        before = measured_here(workload, self._target, current=True, known=self._database)
        found = [each for each in (*before, *self._records) if each.confirmed and serves(each, workload)]
        return min(found, key=lambda each: each.slowness, default=None)

    def next_for_every_layer(self) -> Candidate | None:
        """The next kernel for every layer to build; None if there is none, or the time is up."""
        if time.monotonic() >= self._ends_s:  # without time no gain is known either
            return None
        if self._generals is None:
            builds = (
                bool(self._expected_gains)
                and can_build()
                and isinstance(self._target, CpuTarget)
                and can_load_libraries()
            )
            self._generals = self._generals_to_build() if builds else []
        return self._generals.pop(0) if self._generals else None

    def _generals_to_build(self) -> list[Candidate]:
        """The most promising for each kind of layer; and the others where they may save more than their builds take."""
        firsts, gains_us = set[Candidate](), defaultdict[Candidate, float](float)
        for layer in self.waiting:
            found = every_layer.for_layer(layer, self._target)
            firsts.update(found[:1])
            for each in found:
                gains_us[each] += self._expected_gains[layer]
        return [
            each
            for each, gain_us in gains_us.items()
            if (each in firsts or 1e-6 * gain_us * _STEPS * _OTHERS_SAVE >= _build_of_every_layer_s(each.workload))
            and not loaded_packs.has(each.workload, each.config, self._target)
        ]

    def next_comparison(self) -> list[Candidate] | None:
        """The candidates of the next workload: of those that were not raced yet; once none is left for later, of those
        that another build is worth, then those that remained inconclusive, again. None if there is nothing to race
        now, or the time is up."""
        while not self.problem and time.monotonic() < self._ends_s:
            if self.waiting:
                comparison = self._comparison_of(self.waiting.pop(0))
            elif self._later:
                return None
            elif self._of_one_size:
                self._of_one_size.sort(key=lambda each: each.saves_s)
                comparison = self._of_one_size.pop()
            elif self._again:
                comparison = self._again.pop(0)
            else:
                return None
            if comparison.candidates:
                self._running.append(comparison)
                self.tell()
                return list(comparison.candidates)
            self._ends[comparison.workload] = "without_kernels"
        return None

    def _comparison_of(self, workload: Workload) -> _Comparison:
        """Kernels for every layer, which are built; without such, known configurations, of a block at any size."""
        configs, share = loaded_packs.configs_for(workload, self._target), self._shares[workload]
        if not can_build() or not isinstance(self._target, CpuTarget):
            configs = configs if not can_build() else self._starts(workload, most=share)
            return _Comparison(workload=workload, candidates=[Candidate(workload, each) for each in configs[:share]])
        if configs:
            candidates = [Candidate(workload.with_any_size(), config) for config in configs]
            return _Comparison(workload=workload, candidates=candidates)
        configs = self._starts(workload, most=share)
        general = of_any_size(workload, configs[0], self._target) if configs else None
        alone = bool(general) and (workload.block is not None or (share == 1 and _is_as_fast(workload)))
        candidates = [] if alone else [Candidate(workload, each) for each in configs]
        return _Comparison(workload=workload, candidates=[*candidates, *([general] if general else [])])

    def _starts(self, workload: Workload, *, most: int) -> list[Config]:
        try:
            records = self._database.bests_of_kind(workload)
            return [start.config for start in starts(workload, self._target, records, most=most)]
        except NoTemplate:
            return []

    def _then_of_one_size(self, workload: Workload, worked: Sequence[TuningRecord]) -> None:
        """Race kernels for the size, too, if that is expected to save more than their builds take."""
        best = min((each for each in worked if each.measurement), key=lambda each: each.slowness, default=None)
        if best is None or best.measurement is None or best.alternative is None or not can_build():
            return
        own_us = best.measurement.median_us * _of_one_size(workload)
        saves_us = min(best.measurement.median_us, best.alternative[1].median_us) - own_us
        saves_s = 1e-6 * saves_us * self._counts[workload] * _STEPS
        build_s = _BUILD_OF_BLOCK_S if workload.block else _BUILD_S
        if (most := min(self._shares[workload], int(saves_s / build_s))) < 1:
            return
        candidates = [Candidate(workload, config) for config in self._starts(workload, most=most)]
        if candidates:
            self._of_one_size.append(_Comparison(workload=workload, candidates=candidates, saves_s=saves_s))

    def judged(self, records: Sequence[TuningRecord]) -> list[TuningRecord]:
        """The records of the comparison that began first of those that run, as they count: where nothing will show
        whether a kernel is faster, PyTorch's op stays, and the next race has nothing to do."""
        if self._running[0].tries <= _TRIES or self._running[0].is_of_one_size:
            return [*records]
        if self._end_of(records) != "inconclusive":
            return [*records]
        return [replace(each, settled=True) if each.status is Status.OK else each for each in records]

    def _end_of(self, records: Sequence[TuningRecord]) -> str:
        """The field of RaceResult that the workload of a comparison is in."""
        worked = _worked(records)
        settled = [record for record in worked if not record.inconclusive or record.raced]
        if any(record.confirmed for record in worked):
            return "won"
        if not worked:
            return "failed"
        return "lost" if settled and not any(self.is_worth(record) for record in settled) else "inconclusive"

    def add(self, records: Sequence[TuningRecord]) -> None:
        """The records of the comparison that began first of those that run."""
        comparison = self._running.pop(0)
        self._records += records
        worked, end = _worked(records), self._end_of(records)
        if comparison.is_of_one_size:  # what was raced before stands
            if end == "won":
                self._ends[comparison.workload] = end
            return
        if end in ("won", "lost") and all(record.workload.any_size for record in worked):
            self._then_of_one_size(comparison.workload, worked)
        # What was found to be wrong is out, and the next best gets its turn; other work may be gone next time.
        if end == "inconclusive" and (len(worked) < len(comparison.candidates) or self._may_try_again(comparison)):
            candidates = [Candidate(record.workload, record.config) for record in worked]
            self._again.append(
                _Comparison(workload=comparison.workload, candidates=candidates, tries=comparison.tries + 1)
            )
        self._ends[comparison.workload] = end
        self._inconclusive_in_a_row = self._inconclusive_in_a_row + 1 if end == "inconclusive" else 0
        if self._inconclusive_in_a_row == _MOST_INCONCLUSIVE:
            self.problem = "other work keeps the machine busy; convert again, with the example, when it is quiet"

    def _may_try_again(self, comparison: _Comparison) -> bool:
        return comparison.tries < _TRIES or (comparison.tries == _TRIES and self._is_quiet())

    def report(self) -> RaceResult:
        """The result so far."""
        ended = defaultdict[str, tuple[Workload, ...]](tuple)
        for workload, end in self._ends.items():
            ended[end] += (workload,)
        running = [comparison.workload for comparison in self._running if comparison.workload not in self._ends]
        left = (*running, *self.waiting, *self._later)
        return RaceResult(
            **ended,
            known=self._known,
            not_needed=self._not_needed,
            left=left,
            left_us=sum(self._expected_gains.get(each, 0.0) for each in left),
            running=tuple(running),
            ends_in_s=max(0.0, self._ends_s - time.monotonic()),
            problem=self.problem,
            records=tuple(self._records),
            elapsed_s=time.monotonic() - self._started_s,
        )


def _worked(records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """The last word on each candidate, of those that worked."""
    latest = {Candidate(record.workload, record.config): record for record in records}
    return [record for record in latest.values() if record.status is Status.OK]
