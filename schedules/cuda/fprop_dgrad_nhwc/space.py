"""The configuration space of fprop and dgrad, NHWC, CUDA: knobs, what is illegal, and where to start. No TVM here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import Any

from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import ITEMSIZE, DType, Workload
from dwconv.schedules.cuda.fprop_dgrad_nhwc.cut import MOST_FAN_IN, AxisCut, ChannelsLastCut
from dwconv.schedules.cuda.fprop_dgrad_nhwc.estimate import code_size, conflicts, registers_of, work_of
from dwconv.schedules.cuda.gpu import hardware
from dwconv.schedules.cuda.gpu.cost import price
from dwconv.schedules.gather import Gather
from dwconv.schedules.space import Config, ConfigSpace, Knob, Limit, Rule, Value, divisors, rules_of
from dwconv.schedules.taps import Axis

MOST_STRIDE = 128
"""A thread of dgrad owns as many columns as the stride, or more."""
TILES = (1, 2, 4, 7, 8, 14, 28)
WIDEST = 32
"""Up to so many rows or columns of an image may be one strip, whatever their number."""


def strip_misfit(workload: Workload, target: CudaTarget) -> str | None:
    gather = Gather.of(workload)
    stride = max(gather.rows.down, gather.columns.down)
    if reason := hardware.grid_misfit(workload, gather):
        return reason
    return f"the stride {stride} is more than {MOST_STRIDE}" if stride > MOST_STRIDE else None


@lru_cache(maxsize=64)
def strip_space(name: str, workload: Workload, target: CudaTarget) -> ConfigSpace:
    gather, dtype = Gather.of(workload), workload.dtype
    has_one_plane = gather.depths.one_to_one and not (workload.any_size and workload.axes == 3)
    knobs = [
        Knob("vector_c", _vector_lanes(gather, dtype)),
        Knob("threads_c", _channel_threads(gather, dtype)),
        Knob("threads_w", [count for count in (1, 2, 4, 7, 8, 14) if count <= gather.columns.outputs]),
        Knob("threads_h", [count for count in (1, 2, 4, 7, 14, 28) if count <= gather.rows.outputs]),
        Knob("tile_h", _tiles(gather.rows)),
        Knob("tile_w", _tiles(gather.columns)),
        Knob("vthread_w", [1, 2, 4]),
        # Of several planes, each would have to wait for the one before to leave its room.
        Knob("stage", ["none", "shared"] if has_one_plane else ["none"]),
        Knob("weights", _weights(gather, target)),
        Knob("unroll", ["taps", "kw"] if gather.rows.taps > 1 else ["taps"]),
    ]
    rules = _rules(workload, target)

    def preferred() -> dict[str, Value]:
        space = ConfigSpace(name, *knobs, rules=rules)
        return dict((StartSearch(space, workload, target).best() or space.default).values)

    return ConfigSpace(name, *knobs, rules=rules, preferred=preferred)


# -- knobs ---------------------------------------------------------------------------------------------------------


def _vector_lanes(gather: Gather, dtype: DType) -> list[int]:
    """Channels of a vector, at most 16 bytes: all of one source channel, or all there are of several."""
    lanes = [1, 2, 4, 8][: (hardware.VECTOR_BYTES // ITEMSIZE[dtype]).bit_length()]
    whole = [count for count in lanes if gather.channels % count == 0]
    return [count for count in whole if gather.fan_out % count == 0 or count % gather.fan_out == 0]


def _channel_threads(gather: Gather, dtype: DType) -> list[int]:
    """Vectors of channels in a block: powers of two, and the largest ways to share them out evenly."""
    even = {
        part for lanes in _vector_lanes(gather, dtype)
        for part in divisors(gather.channels // lanes, most=min(48, gather.channels // lanes))[-2:]
    }  # fmt: skip
    powers = {count for count in (1, 2, 4, 8, 16, 32) if count <= gather.channels}
    return sorted(even | powers)


def _tiles(axis: Axis) -> list[int]:
    """Rows or columns of a strip, multiples of ``axis.down``; all of them where they are few."""
    phases = -(-axis.outputs // axis.down)
    sizes = {size for size in TILES if size % axis.down == 0} | {axis.down, 2 * axis.down, 4 * axis.down}
    whole = {phases * axis.down} if axis.outputs <= WIDEST else set()
    return sorted({size for size in sizes if size <= phases * axis.down} | whole)


def _weights(gather: Gather, target: CudaTarget) -> list[str]:
    """Where the weights are. Left in global memory only if shared memory cannot hold those of a single channel."""
    taps = math.prod(gather.axes.taps)
    fits = 4 * taps * (gather.fan_in + 8) <= target.shared_bytes_per_block
    kept = ["registers"] if gather.fan_in <= MOST_FAN_IN else []
    return [*kept, "shared" if fits else "global"]


# -- rules ---------------------------------------------------------------------------------------------------------


def _rules(workload: Workload, target: CudaTarget) -> list[Rule]:
    gather = Gather.of(workload)
    rows, columns = (-(-axis.outputs // axis.down) for axis in (gather.rows, gather.columns))
    wanted = rows * gather.rows.down * columns * gather.columns.down * gather.channels
    limits: list[Limit] = [
        (
            "a block's channels cannot be copied in vectors",
            lambda cut: cut.stage == "shared" and not _can_be_staged(cut),
        ),
        (
            "registers cannot be indexed by a loop over kernel rows",
            lambda cut: cut.weights == "registers" and cut.unroll == "kw",
        ),
        (
            "kernel rows in loops share nothing between the rows of a strip",
            lambda cut: cut.unroll == "kw" and cut.rows.tile > gather.rows.down and not cut.rows_together,
        ),
        *hardware.usual_limits(
            target,
            threads=lambda cut: cut.threads,
            least_threads=min(hardware.LEAST_THREADS, -(-rows * columns * gather.channels // 64)),
            computed=lambda cut: math.prod(axis.computed for axis in cut.axes),
            wanted=wanted,
            code=code_size,
            most_code=hardware.CHANNELS_LAST_CODE,
            registers=registers_of,
        ),
        hardware.limit_of_shared(target),
    ]
    return rules_of(partial(ChannelsLastCut.of, workload), limits)


def _can_be_staged(cut: ChannelsLastCut) -> bool:
    """Whether the source channels of a block are a whole number of vectors, one for each thread at most, and read."""
    whole = cut.channels.threads * cut.channels.tile * cut.gather.fan_in % cut.gather.fan_out == 0
    lanes = cut.copied_lanes
    fits = lanes * cut.itemsize >= hardware.LEAST_COPY_BYTES and cut.block_channels // lanes <= cut.threads
    return whole and fits and bool(cut.rows.reads) and bool(cut.columns.reads)


# -- where a search starts -----------------------------------------------------------------------------------------

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


class StartSearch:
    """Looks for the configuration of least estimated time: strips first, each with a block that suits it, then for the
    best of them all blocks."""

    def __init__(self, space: ConfigSpace, workload: Workload, target: CudaTarget) -> None:
        self._space, self._workload, self._target = space, workload, target
        self._gather = Gather.of(workload)
        self._values: dict[str, tuple[Any, ...]] = {knob.name: knob.values for knob in space.knobs}

    def best(self) -> Config | None:
        strips = self._ranked(self._with_block(strip) for strip in self._strips())
        few = [next((c for c in strips if c.stage == stage), None) for stage in self._values["stage"]]
        for config in dict.fromkeys([*strips[:STRIPS_TRIED], *(c for c in few if c)]):
            strips += self._ranked(self._with_any_block(config))
        return next(iter(self._ranked(strips)), None)

    def _ranked(self, configs: Iterable[Config]) -> list[Config]:
        found = []
        for config in dict.fromkeys(configs):
            cut = ChannelsLastCut.of(self._workload, config)
            if _suits(cut) and self._space.why_illegal(config) is None:
                found.append((self._price(cut), config))
        return [config for _, config in sorted(found, key=lambda each: each[0])]

    def _price(self, cut: ChannelsLastCut) -> float:
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
        most = min(hardware.LINE_BYTES // itemsize, self._channels_whose_weights_fit) // lanes
        c = self._threads("threads_c", size=gather.channels, tile=lanes, most=most)
        w = self._threads("threads_w", size=gather.columns.outputs, tile=strip["tile_w"], most=BLOCK_THREADS // c)
        h = self._threads("threads_h", size=gather.rows.outputs, tile=strip["tile_h"], most=BLOCK_THREADS // (c * w))
        return self._config({**strip, "threads_c": c, "threads_w": w, "threads_h": h})

    @property
    def _channels_whose_weights_fit(self) -> int:
        taps = math.prod(self._gather.axes.taps) * self._gather.fan_in
        return self._target.shared_bytes_per_block // 2 // (taps * ITEMSIZE["float32"])

    def _threads(self, name: str, *, size: int, tile: int, most: int) -> int:
        counts = [count for count in self._values[name] if count <= max(most, 1)]
        return min(counts, key=lambda n: AxisCut(size=size, tile=tile, threads=n).computed * (1 + 4 / n))

    def _with_any_block(self, config: Config) -> Iterator[Config]:
        names = ("threads_c", "threads_w", "threads_h", "vthread_w")
        for chosen in itertools.product(*(self._values[name] for name in names)):
            if math.prod(chosen[:3]) in BLOCK_SIZES and (config.stage == "shared" or chosen[3] == 1):
                yield self._config({**dict(config.values), **dict(zip(names, chosen, strict=True))})

    def _config(self, values: dict[str, Any]) -> Config:
        return Config(self._space.template, tuple((name, values[name]) for name in self._values))


def _suits(cut: ChannelsLastCut) -> bool:
    """For small kernels, straight code from memory, with enough threads on an SM; for others loops and staging, too."""
    if cut.rows.axis.taps <= FEW_ROWS and (cut.unroll == "kw" or cut.stage == "shared"):
        return False
    most = LOOP_REGISTERS if cut.unroll == "kw" else START_REGISTERS
    return registers_of(cut) <= most and code_size(cut) <= START_CODE
