"""A template that is never built, and a runner that computes times from a synthetic landscape."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

from dwconv.problems.target import CpuTarget, Limits, Target
from dwconv.problems.workload import Pass, Workload
from dwconv.records.record import Measurement, Status, TuningRecord, Verdict
from dwconv.schedules.space import Config, ConfigSpace, Knob, Rule
from dwconv.schedules.template import Candidate, ScheduleTemplate
from dwconv.system import versions

WORKLOAD = Workload(
    pass_="fprop", batch=8, channels=96, input_size=(28, 28), kernel=(3, 3), padding=((1, 1), (1, 1)), layout="nhwc"
)
TARGET = CpuTarget(
    device="fake-cpu-2t",
    threads=2,
    vector_bytes=64,
    limits=Limits(memory_gb_per_s=100, cache_gb_per_s=200, cache_bytes=2**25, peak_gflop_per_s=500),
)
BASELINE_US = 200.0


def space(workload: Workload, target: Target) -> ConfigSpace:
    return ConfigSpace(
        f"fake.{workload.pass_}",
        Knob("block_h", [1, 2, 4, 7, 14, 28]),
        Knob("tile_h", [1, 2, 4, 7]),
        Knob("tile_w", [1, 2, 4, 7, 14]),
        Knob("vectors_c", [1, 2, 4, 8]),
        Knob("block_c", [16, 32, 48, 96]),
        Knob("order", ["channels_inner", "channels_outer"]),
        rules=[
            Rule("more than 24 accumulators", lambda c: c.tile_h * c.tile_w * c.vectors_c > 24),
            Rule("tile_h does not divide block_h", lambda c: c.block_h % c.tile_h != 0),
        ],
        preferred={"block_h": 4, "tile_h": 2, "tile_w": 2, "vectors_c": 2, "block_c": 96, "order": "channels_inner"},
    )


def small_space(workload: Workload, target: Target) -> ConfigSpace:
    return ConfigSpace(f"fake.{workload.pass_}", Knob("tile_w", [1, 2, 4]), Knob("order", ["a", "b"]))


def template(
    *, pass_: Pass = "fprop", space: Callable[[Workload, Target], ConfigSpace] = space, name: str | None = None
) -> ScheduleTemplate:
    def schedule(workload: Workload, config: Config, target: Target) -> None:
        raise AssertionError("a fake template is never built")

    return ScheduleTemplate(
        name=name or f"fake.{pass_}",
        device="cpu",
        pass_=pass_,
        layout="nhwc",
        misfit=lambda workload, target: None,
        space=space,
        schedule=schedule,
    )


def time_us(config: Config) -> float:
    """A valley at few values of all knobs, with knobs that matter only together, and ripples."""
    values = dict(config.values)
    off = 0.0
    for name, best, weight in (("block_h", 7, 0.5), ("tile_h", 7, 0.4), ("tile_w", 2, 0.5), ("block_c", 48, 0.3)):
        if name in values:
            off += weight * abs(math.log2(values[name] / best))
    if "vectors_c" in values:
        off += 0.3 * abs(math.log2(values["tile_w"] * values["vectors_c"] / 4))
    if values.get("order") == "channels_outer":
        off += 0.3 if values["block_c"] > 32 else -0.2
    ripple = 0.03 * math.sin(sum((i + 1) * hash_of(value) for i, value in enumerate(values.values())))
    return 100.0 * math.exp(off + ripple)


def hash_of(value: int | str) -> int:
    return value if isinstance(value, int) else len(value)


def record(workload: Workload, config: Config, *, median_us: float | None, status: Status = Status.OK) -> TuningRecord:
    return TuningRecord(
        workload=workload,
        config=config,
        device=TARGET.device,
        status=status if median_us is None else Status.OK,
        measurement=None if median_us is None else Measurement(median_us=median_us, spread_us=1.0, rounds=10),
        verdict=Verdict(right=status is Status.OK, max_error=1e-6, allowed_error=1e-5),
        providers={"onednn-nhwc": Measurement(median_us=BASELINE_US, spread_us=2.0, rounds=10)},
        detail="" if median_us is not None else f"{status.value}: line one",
        versions=versions.installed(),
        created="2026-01-01T00:00:00Z",
    )


class FakeRunner:
    """Implements Runner. ``fails`` gives a status for a configuration that does not work."""

    def __init__(
        self,
        *,
        fails: Callable[[Config], Status | None] = lambda config: None,
        confirmed: Callable[[Config], float | None] = time_us,
        interrupt_after: int | None = None,
    ) -> None:
        self.measured: list[Config] = []
        self.confirmed: list[Config] = []
        self.closed = False
        self._fails = fails
        self._confirmed = confirmed
        self._interrupt_after = interrupt_after

    def measure(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        for candidate in candidates:
            if len(self.measured) == self._interrupt_after:
                raise KeyboardInterrupt
            self.measured.append(candidate.config)
            status = self._fails(candidate.config)
            median_us = time_us(candidate.config) if status is None else None
            yield record(candidate.workload, candidate.config, median_us=median_us, status=status or Status.OK)

    def confirm(self, candidates: Sequence[Candidate]) -> Iterator[TuningRecord]:
        for candidate in candidates:
            self.confirmed.append(candidate.config)
            median_us = self._confirmed(candidate.config)
            taken = record(candidate.workload, candidate.config, median_us=median_us, status=Status.WRONG)
            yield dataclasses.replace(taken, confirmed=median_us is not None)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> FakeRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
