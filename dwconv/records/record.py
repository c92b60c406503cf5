"""The record of a candidate: its Status, Verdict and Measurement, and the TuningRecord that holds them."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from dwconv.problems.workload import Sizes, Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import version_of


class Status(str, Enum):
    """How far a candidate got."""

    OK = "ok"
    WRONG = "wrong"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    CRASHED = "crashed"


CONTENDED = 0.05
"""A time is not trusted if other work on the machine took more than this share of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Right or wrong against the float64 reference, with the worst error and the error that was allowed there."""

    right: bool
    max_error: float
    allowed_error: float
    reason: str = ""
    """Begins with ``value``, ``guard band``, ``input changed`` or ``not written``; empty if right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """Timed runs, in microseconds per call; or, if ``computed``, what machine code should take, which was never run."""

    median_us: float
    spread_us: float
    """Interquartile range of the timed rounds; 0 if computed."""
    rounds: int
    computed: bool = False
    contention: float = 0.0
    """The share of the time of these rounds that other work on the machine took, 0 to 1."""

    @classmethod
    def of(cls, rounds_us: Sequence[float], *, contention: float = 0.0) -> Measurement:
        """Of two rounds or more."""
        quarter, median_us, three_quarters = statistics.quantiles(rounds_us, n=4, method="inclusive")
        spread_us = three_quarters - quarter
        return cls(median_us=median_us, spread_us=spread_us, rounds=len(rounds_us), contention=round(contention, 3))


@dataclass(frozen=True, kw_only=True, slots=True)
class AtSize:
    """What a kernel of any size took at one more size of its workload's ``also_at``, with the providers beside it."""

    input_size: Sizes
    measurement: Measurement
    providers: dict[str, Measurement] = field(default_factory=dict)


Rank = tuple[bool, bool, bool, tuple[bool, float]]


AROUND = "around"
"""What a block's norms and activations are called, one by one without the convolution, among the providers."""
TRANSPOSED = "transposed"
"""What PyTorch's transposed convolution is called there, in the workload's layout, beside its dgrad."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningRecord:
    """One line of a tuning log. A failed candidate has no measurement, but is recorded, too."""

    workload: Workload
    config: Config
    device: str
    status: Status
    measurement: Measurement | None = None
    confirmed: bool = False
    """True if it was also verified on other data and batch sizes, and timed longer, side by side with the other
    finalists, on a machine that did nothing else; or, if it is ``contended``, is clearly faster in the turns, and its
    times give the least factor."""
    raced: bool = False
    """True if a race confirmed it, among a few known configurations: a search may find a faster one."""
    settled: bool = False
    """True if a race is sure that PyTorch's op should stay, although other work disturbed the times: it is clearly the
    faster one in the turns; or, on a machine that was quiet when it was looked at, neither was in any comparison."""
    verdict: Verdict | None = None
    providers: dict[str, Measurement] = field(default_factory=dict)
    """Other providers, measured in the same run, interleaved: ``onednn-nhwc``, ``cudnn-nchw``, …; of a block also
    ``AROUND``, which does a part of it; of some dgrad ``TRANSPOSED``, another op of PyTorch's that does the same."""
    others: tuple[AtSize, ...] = ()
    """What it took at the sizes of ``also_at``, in their order."""
    resources: dict[str, int] = field(default_factory=dict)
    """Reported by the compiler: ``registers``, ``shared_bytes``, ``spill_bytes``, …; of older computed records
    ``counted_from_text`` if the machine code could not be followed through its loops."""
    detail: str = ""
    """The first line of the error."""
    versions: dict[str, str] = field(default_factory=dict)
    created: str = ""
    """The time, ISO 8601, UTC."""

    @property
    def measured(self) -> bool:
        """True if the candidate was run and timed on its device."""
        return self.measurement is not None and not self.measurement.computed

    @property
    def ends_search(self) -> bool:
        """True if it is the result of a search that ended."""
        return self.confirmed and not self.raced

    @property
    def fast_math(self) -> bool:
        return self.versions.get("math") == "fast"

    @property
    def contention(self) -> float:
        """The share of its time that other work took, or of a provider's time if that is larger."""
        taken = [self.measurement] if self.measurement else []
        taken += self.providers.values()
        for other in self.others:
            taken += other.measurement, *other.providers.values()
        return max((measured.contention for measured in taken), default=0.0)

    @property
    def at_each_size(self) -> tuple[TuningRecord, ...]:
        """A record for each size that it was measured at, its own first."""
        if not self.others:
            return (self,)
        alone = dataclasses.replace(self, others=())
        return alone, *(
            dataclasses.replace(
                alone,
                workload=dataclasses.replace(self.workload, input_size=other.input_size, also_at=()),
                measurement=other.measurement,
                providers=other.providers,
            )
            for other in self.others
        )

    @property
    def contended(self) -> bool:
        """True if other work took a share of its times that may have changed them."""
        return self.contention > CONTENDED

    @property
    def inconclusive(self) -> bool:
        """True if its times are contended, and nothing else shows what they say."""
        return self.contended and not (self.confirmed or self.settled)

    def replaces(self, earlier: TuningRecord) -> bool:
        """True if this record takes the place of an ``earlier`` one of the same candidate. The later one does, unless
        other work disturbed its time and not the earlier one's."""
        return not (self.inconclusive and earlier.status is Status.OK and not earlier.inconclusive)

    @property
    def rank(self) -> Rank:
        """Orders candidates of one workload, the best first: confirmed ones before others, which may have been lucky;
        then those that are not inconclusive; then, among those only computed, those whose time is not doubtful;
        then by ``slowness``."""
        return (not self.confirmed, self.inconclusive, not self.measured and self.doubtful, self.slowness)

    @property
    def slowness(self) -> tuple[bool, float]:
        """Orders candidates of one workload by time, the fastest first: by ``relative_time`` where a baseline was
        measured, and behind those by ``time_us``."""
        relative = self.relative_time
        return (True, self.time_us) if relative is None else (False, relative)

    @property
    def relative_time(self) -> float | None:
        """Time divided by the baseline's: they were measured in turns, so other work on the machine cancels out. None
        without a baseline, and if the candidate failed. At several sizes it is the geometric mean."""
        if self.status is not Status.OK or not self.speedup:
            return None
        speedups = [each.speedup for each in self.at_each_size if each.speedup]
        return 1 / math.prod(speedups) ** (1 / len(speedups))

    @property
    def time_us(self) -> float:
        """Microseconds; infinite if the candidate failed."""
        return self.measurement.median_us if self.status is Status.OK and self.measurement else math.inf

    @property
    def doubtful(self) -> bool:
        """True if a computed time may be far off: registers or arrays of a thread spill to local memory, or the trip
        counts of its loops are unknown."""
        return any(self.resources.get(name) for name in ("spill_bytes", "stack_bytes", "counted_from_text"))

    @property
    def around(self) -> Measurement | None:
        """PyTorch's ops of a block besides its convolution; None if they were not measured."""
        return self.providers.get(AROUND)

    @property
    def transposed(self) -> Measurement | None:
        """PyTorch's transposed convolution whose forward pass the dgrad is; None if it was not measured."""
        return self.providers.get(TRANSPOSED)

    @property
    def rivals(self) -> dict[str, Measurement]:
        """The providers that do all that the candidate does."""
        return {name: taken for name, taken in self.providers.items() if name not in (AROUND, TRANSPOSED)}

    @property
    def baseline(self) -> tuple[str, Measurement] | None:
        """The fastest other provider measured in the same run."""
        return min(self.rivals.items(), key=lambda item: item[1].median_us, default=None)

    @property
    def alternative(self) -> tuple[str, Measurement] | None:
        """PyTorch's op as it would run instead of the candidate: in the workload's own layout, if that was measured.

        The baseline is PyTorch's better layout; but a call has the layout it has, and changing it costs a copy."""
        own = {name: taken for name, taken in self.rivals.items() if name.endswith(f"-{self.workload.layout}")}
        return min(own.items(), key=lambda item: item[1].median_us, default=self.baseline)

    @property
    def interval(self) -> tuple[float, float] | None:
        """How many times as fast as PyTorch's op it was, from and to, by the spread of both times; None without a time
        of both."""
        if self.measurement is None or self.alternative is None:
            return None
        (ours_low, ours_high), (low, high) = (
            (max(taken.median_us - taken.spread_us / 2, taken.median_us / 10), taken.median_us + taken.spread_us / 2)
            for taken in (self.measurement, self.alternative[1])
        )
        return low / ours_high, high / ours_low

    @property
    def speedup(self) -> float | None:
        """The baseline's time divided by the candidate's; None if one of them is unknown."""
        if self.measurement is None or self.baseline is None:
            return None
        return self.baseline[1].median_us / self.measurement.median_us


def in_us(time_us: float) -> str:
    """A time as people read it: ``7.3 µs``, ``1240 µs``."""
    return f"{time_us:.0f} µs" if time_us >= 100 else f"{time_us:.1f} µs"


_UNKNOWN = "an unknown version"


def is_current(record: TuningRecord, installed: Mapping[str, str]) -> bool:
    """True if the record was made with the versions of PyTorch (``torch``) and TVM (``tvm``) that are ``installed``,
    and by the version that its template has here.

    A patch release may change a kernel, so it counts as another version. What stands behind a ``+`` names the build:
    on a CPU all builds of a release have the same ops, on a GPU they come with libraries of different ages. PyTorch's
    version counts only for what was timed beside its ops, and TVM's only where it is installed: without it nothing can
    run but what was built elsewhere. A record that names no template version is of the first."""
    return not made_with(record, installed)


def made_with(record: TuningRecord, installed: Mapping[str, str]) -> str:
    """The versions in which the record differs from what is installed, in words: ``PyTorch 2.12.0``; empty if it is
    current."""
    differences = []
    if record.measured and _torch(record, record.versions) != _torch(record, installed):
        differences.append(f"PyTorch {record.versions.get('torch', _UNKNOWN)}")
    if "tvm" in installed and record.versions.get("tvm") != installed["tvm"]:
        differences.append(f"TVM {record.versions.get('tvm', _UNKNOWN)}")
    name = record.config.template
    if template_version(record) != str(version_of(name)):
        differences.append(f"version {template_version(record)} of {name}")
    return ", ".join(differences)


def template_version(record: TuningRecord) -> str:
    """The version of the template that made the record's kernel."""
    return record.versions.get("template", "1")


def _torch(record: TuningRecord, versions: Mapping[str, str]) -> str | None:
    """PyTorch's version, as far as its ops for the record's device depend on it."""
    version = versions.get("torch")
    is_on_gpu = record.config.template.startswith("cuda.")
    return version if version is None or is_on_gpu else version.partition("+")[0]
