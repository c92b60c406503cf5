"""Where a search of NHWC strips starts: the configuration of least estimated time that suits. No TVM here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.cuda.channels_last.cut import AxisCut, Cut
from dwconv.schedules.cuda.channels_last.estimate import conflicts, work_of
from dwconv.schedules.cuda.channels_last.thread_work import code_size, registers_of
from dwconv.schedules.cuda.gpu.cost import price
from dwconv.schedules.cuda.gpu.hardware import LINE_BYTES
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace

FEW_ROWS = 5
START_CODE = 3200
START_REGISTERS, LOOP_REGISTERS = 168, 220
"""Registers of a thread to start from: threads that wait for memory need more threads beside them than those that
multiply."""
BLOCK_THREADS = 128
"""Threads of the block to start from: small blocks fill an SM better where threads need many registers."""
BLOCK_SIZES = range(48, 513)
STRIPS_TRIED = 4
"""With all blocks; others with one that suits."""
MOST_RESULTS = 256
"""Results of a strip."""
LEAN = 0.1
"""Added for each microsecond that the issue slots are busy, even if nothing waits for them."""
DOUBTED = 1.05
"""Times longer for bank conflicts, or few loads on their way, even if no resource shows them."""
MOST_CONFLICTS, ENOUGH_IN_FLIGHT = 1.05, 60_000
"""Bytes an SM: some more than are needed, since the compiler may load fewer ahead."""


class Starts:
    """Looks for the configuration of least estimated time: strips first, each with a block that suits it, then for the
    best of them all blocks."""

    def __init__(self, space: ConfigSpace, workload: Workload, target: CudaTarget) -> None:
        self._space, self._workload, self._target = space, workload, target
        self._gather = Gather.of(workload)
        self._values: dict[str, tuple[Any, ...]] = {knob.name: knob.values for knob in space.knobs}

    def best(self) -> Config | None:
        """None if nothing suits."""
        strips = self._ranked(self._with_block(strip) for strip in self._strips())
        few = [next((c for c in strips if c.stage == stage), None) for stage in self._values["stage"]]
        for config in dict.fromkeys([*strips[:STRIPS_TRIED], *(c for c in few if c)]):
            strips += self._ranked(self._with_any_block(config))
        return next(iter(self._ranked(strips)), None)

    def _ranked(self, configs: Iterable[Config]) -> list[Config]:
        """Those that are legal and suit, the quickest first."""
        found = []
        for config in dict.fromkeys(configs):
            cut = Cut.of(self._workload, config)
            if _suits(cut) and self._space.why_illegal(config) is None:
                found.append((self._price(cut), config))
        return [config for _, config in sorted(found, key=lambda each: each[0])]

    def _price(self, cut: Cut) -> float:
        """The estimated time; less for the lean one of several that take equally long, more for few loads on their way
        and for bank conflicts."""
        found = price(work_of(cut, self._workload, self._target), self._target)
        microseconds = found.microseconds + LEAN * found.busy_us["issue"]
        microseconds *= 1.0 if conflicts(cut) <= MOST_CONFLICTS else DOUBTED
        return microseconds * (1.0 if found.bytes_in_flight_per_sm >= ENOUGH_IN_FLIGHT else DOUBTED)

    def _strips(self) -> Iterator[dict[str, Any]]:
        names = ("vector_c", "tile_h", "tile_w", "stage", "weights", "unroll")
        lanes = self._values["vector_c"]
        for chosen in itertools.product(lanes[1:] or lanes, *(self._values[name] for name in names[1:])):
            if math.prod(chosen[:3]) <= MOST_RESULTS:
                yield {**dict(zip(names, chosen, strict=True)), "vthread_w": 1}

    def _with_block(self, strip: dict[str, Any]) -> Config:
        """First threads along channels, where neighbours read neighbours: a line of memory; then columns, rows."""
        lanes, itemsize = strip["vector_c"], ITEMSIZE[self._workload.dtype]
        gather = self._gather
        most = min(LINE_BYTES // itemsize, self._channels_whose_weights_fit) // lanes
        c = self._threads("threads_c", size=gather.channels, tile=lanes, most=most)
        w = self._threads("threads_w", size=gather.columns.outputs, tile=strip["tile_w"], most=BLOCK_THREADS // c)
        h = self._threads("threads_h", size=gather.rows.outputs, tile=strip["tile_h"], most=BLOCK_THREADS // (c * w))
        return self._config({**strip, "threads_c": c, "threads_w": w, "threads_h": h})

    @property
    def _channels_whose_weights_fit(self) -> int:
        """In half of the shared memory of a block: large kernels alone are so many taps."""
        taps = math.prod(self._gather.axes.taps) * self._gather.fan_in
        return self._target.shared_bytes_per_block // 2 // (taps * ITEMSIZE["float32"])

    def _threads(self, name: str, *, size: int, tile: int, most: int) -> int:
        """As many as there may be, unless too many were idle."""
        counts = [count for count in self._values[name] if count <= max(most, 1)]
        return min(counts, key=lambda n: AxisCut(size=size, tile=tile, threads=n).computed * (1 + 4 / n))

    def _with_any_block(self, config: Config) -> Iterator[Config]:
        names = ("threads_c", "threads_w", "threads_h", "vthread_w")
        for chosen in itertools.product(*(self._values[name] for name in names)):
            if math.prod(chosen[:3]) in BLOCK_SIZES and (config.stage == "shared" or chosen[3] == 1):
                yield self._config({**dict(config.values), **dict(zip(names, chosen, strict=True))})

    def _config(self, values: dict[str, Any]) -> Config:
        return Config(self._space.template, tuple((name, values[name]) for name in self._values))


def _suits(cut: Cut) -> bool:
    """For small kernels, straight code from memory, with enough threads on an SM; for others loops and staging, too."""
    if cut.rows.axis.taps <= FEW_ROWS and (cut.unroll == "kw" or cut.stage == "shared"):
        return False
    most = LOOP_REGISTERS if cut.unroll == "kw" else START_REGISTERS
    return registers_of(cut) <= most and code_size(cut) <= START_CODE
