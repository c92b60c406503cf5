"""What a CUDA configuration might cost, guessed from its knobs alone: microseconds of work, where building a candidate
takes a second. It picks those that are worth building; what the compiler makes of them counts.

It knows the NCHW templates of fprop and dgrad by the words of their knobs: ``tile_h``, ``tile_w``, ``vthread_w`` and
``thread_planes`` are what a thread computes, ``threads_…``, ``planes`` and ``block_h`` how many threads share a block,
``stage`` where they keep what they read, ``held`` that these are whole planes. The others have estimates of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwconv.schedules.space import Config
from dwconv.schedules.template import all_templates
from dwconv.target import CudaTarget
from dwconv.tuner.cost_model import BYTES_IN_FLIGHT_PER_SM, DRAM_LATENCY_CYCLES, occupancy, outputs_of
from dwconv.tuner.transactions import LINE_BYTES
from dwconv.workload import ITEMSIZE, Workload

VECTOR_BYTES = 16
SHARED_LANES = 4
"""Words of shared memory that a thread reads at a time, where it reads rows."""
FETCH_INSTRUCTIONS = 6
"""To find out where an element of a staged tile comes from, and whether it exists."""
_MOST_CODE = 3000
"""Instructions of a thread beyond which the code leaves the instruction cache."""


@dataclass(frozen=True, kw_only=True)
class _Thread:
    """What one thread does, in instructions and words."""

    outputs: int
    products: float
    loads: float
    stores: float
    conversions: float
    registers: int
    bytes_in_flight: float
    addressed: float
    """Instructions spent on where to load from."""
    staged: bool
    read_again: float
    """Words it reads over words that are its own."""


def estimated_us(workload: Workload, config: Config, target: CudaTarget) -> float:
    """Microseconds; only the order of several means something. A template may know better than its knobs tell."""
    known = all_templates().get(config.template)
    if known is not None and known.estimate is not None:
        return known.estimate(workload, config, target)
    values = {name: value for name, value in config.values if isinstance(value, int)}
    words = {name: value for name, value in config.values if isinstance(value, str)}
    if "held" in words:
        values = _whole_planes(workload, values)
    threads = _threads(workload, values)
    # Where a block has no tile of rows, it keeps whole rows in shared memory.
    rows_shared = "tile_h" not in values or "held" in words
    staged = words.get("stage") == "shared" or rows_shared
    thread = _thread(workload, values, words, threads=threads, staged=staged, rows_shared=rows_shared)
    # The space's own rules know better than to allow blocks that do not fit.
    slots = math.ceil(threads / (target.warp * target.issue_slots)) * target.warp * target.issue_slots
    registers = min(thread.registers, target.registers_per_sm // slots // 8 * 8)
    held = occupancy(threads=threads, registers=registers, shared_bytes=0, target=target)
    if not held.blocks_per_sm:
        return math.inf
    blocks = _blocks(workload, values, thread, threads=threads)
    instructions = thread.products + thread.loads + thread.stores + thread.conversions + thread.addressed + 40
    warps = math.ceil(threads / target.warp)
    issue = math.ceil(blocks / target.sms) * warps * instructions / target.issue_slots
    at_a_time = min(blocks, held.blocks_per_sm * target.sms)
    latency = math.ceil(blocks / at_a_time) * (DRAM_LATENCY_CYCLES + instructions)
    drawn = min(1.0, held.threads_per_sm * thread.bytes_in_flight / BYTES_IN_FLIGHT_PER_SM)
    drawn *= min(1.0, blocks / target.sms)
    memory = workload.bytes / (target.limits.memory_gb_per_s * drawn) / 1e3
    cache = workload.bytes * thread.read_again / (target.limits.cache_gb_per_s * drawn) / 1e3
    code = max(1.0, instructions / _MOST_CODE)
    lines = (thread.loads + thread.stores) * _lines_of_a_request(workload, values, thread, warp=target.warp)
    load_store = math.ceil(blocks / target.sms) * warps * lines
    cycles = max(issue * code, latency, load_store) / (target.clock_ghz * 1e3)
    # The slowest sets the time, yet nothing overlaps wholly.
    parts = (memory, cache, cycles)
    return max(parts) + 0.1 * sum(parts)


def _thread(
    workload: Workload,
    values: dict[str, int],
    words: dict[str, str],
    *,
    threads: int,
    staged: bool,
    rows_shared: bool,
) -> _Thread:
    itemsize = ITEMSIZE[workload.dtype]
    kernel_h, kernel_w = workload.kernel
    rows, columns = values.get("tile_h", 1), values.get("tile_w", 1)
    apart = values.get("vthread_w", 1) * values.get("thread_planes", 1)
    outputs = rows * columns * apart
    read_h = _reads(workload, rows, axis=0, taps=kernel_h)
    read_w = _reads(workload, columns, axis=1, taps=kernel_w)
    patch = read_h * read_w * apart
    lanes = VECTOR_BYTES // itemsize if "held" in words else _lanes(workload, columns=columns)
    taps = kernel_h * kernel_w
    if workload.pass_ == "dgrad":  # a tap in stride·stride reaches an output
        products = outputs * taps / (workload.stride[0] * workload.stride[1])
    else:
        products = outputs * float(taps)
    # Weights are loaded, too: a warp meets several planes where it meets several rows.
    loads, stores = patch / lanes + taps, outputs / lanes
    sums = outputs if staged else min(outputs, columns * apart * kernel_h)
    ahead = values.get("rows_ahead", 1)
    conversions = (patch + outputs) * 0.75 if itemsize == 2 else 0.0
    addressed = loads
    if staged:  # through shared memory: fetched by all threads of a block together, read for every row of taps
        fetched = values.get("planes", 1) * math.prod(_patch_of_a_block(workload, values)) / threads
        read = outputs * taps if words.get("unroll") == "row" else patch
        loads = 2 * fetched / (lanes if rows_shared else 1) + read / (SHARED_LANES if rows_shared else 1)
        addressed = FETCH_INSTRUCTIONS * fetched / (lanes if rows_shared else 1)
        conversions = (fetched + outputs) * 0.75 if itemsize == 2 else 0.0
    in_flight = min(patch, max(read_w * (1 + ahead), 8)) * itemsize
    if "held" in words:  # one piece of memory, asked for at once
        in_flight = patch * itemsize
    return _Thread(
        outputs=outputs,
        products=products,
        loads=loads,
        stores=stores,
        conversions=conversions,
        registers=min(255, int(sums + read_w * (1 + ahead) * itemsize / 4 + 20)),
        bytes_in_flight=in_flight,
        addressed=addressed,
        staged=staged,
        read_again=_read_again(workload, values),
    )


def _block(workload: Workload, values: dict[str, int]) -> tuple[int, int]:
    """Rows and columns of outputs of one plane or channel that a block computes."""
    rows = values.get("block_h", values.get("tile_h", 1) * values.get("threads_h", 1))
    columns = values.get("tile_w", 1) * values.get("vthread_w", 1) * values.get("threads_w", 1)
    sizes = workload.input_size if workload.pass_ == "dgrad" else workload.output_size
    return min(rows, sizes[0]), min(columns, sizes[1])


def _patch_of_a_block(workload: Workload, values: dict[str, int]) -> tuple[int, int]:
    rows, columns = _block(workload, values)
    kernel_h, kernel_w = workload.kernel
    return _reads(workload, rows, axis=0, taps=kernel_h), _reads(workload, columns, axis=1, taps=kernel_w)


def _read_again(workload: Workload, values: dict[str, int]) -> float:
    """Bytes that blocks ask the second-level cache for, over those of the tensors: the halo comes once more."""
    block, patch = _block(workload, values), _patch_of_a_block(workload, values)
    stride = (1, 1) if workload.pass_ == "dgrad" else workload.stride
    # Padding is not read: a block of all rows has no halo.
    sizes = workload.output_size if workload.pass_ == "dgrad" else workload.input_size
    read = math.prod(min(part, size) for part, size in zip(patch, sizes, strict=True))
    own = math.prod(part * step for part, step in zip(block, stride, strict=True))
    return (1 + max(1.0, read / own)) / 2


def _blocks(workload: Workload, values: dict[str, int], thread: _Thread, *, threads: int) -> int:
    return max(1, math.ceil(outputs_of(workload) / thread.outputs * _padded(workload, values) / threads))


def _lines_of_a_request(workload: Workload, values: dict[str, int], thread: _Thread, *, warp: int) -> float:
    """Lines of memory that a warp asks for at a time: its lanes lie side by side only along the innermost axis."""
    if thread.staged:
        return 1.5
    stride = workload.stride[1] if workload.pass_ != "dgrad" else 1
    across, apart = min(values.get("threads_w", 1), warp), values.get("tile_w", 1) * stride
    return min(warp, warp / across * (across * apart * ITEMSIZE[workload.dtype] / LINE_BYTES + 0.5))


def _reads(workload: Workload, tile: int, *, axis: int, taps: int) -> int:
    """Inputs under ``tile`` neighbouring outputs along an axis."""
    stride, dilation = workload.stride[axis], workload.dilation[axis]
    if workload.pass_ == "dgrad":
        return -(-(tile + dilation * (taps - 1)) // stride)
    return (tile - 1) * stride + dilation * (taps - 1) + 1


def _lanes(workload: Workload, *, columns: int) -> int:
    """Elements of a load: what divides the tile and the pitch."""
    most = VECTOR_BYTES // ITEMSIZE[workload.dtype]
    return math.gcd(columns, workload.input_size[1], workload.output_size[1], most)


def _threads(workload: Workload, values: dict[str, int]) -> int:
    count = math.prod(value for name, value in values.items() if name.startswith("threads_"))
    count *= values.get("planes", 1) // values.get("thread_planes", 1)
    if "block_h" in values:
        count *= max(1, values["block_h"] // values.get("tile_h", 1))
    return max(1, count)


def _whole_planes(workload: Workload, values: dict[str, int]) -> dict[str, int]:
    """With the threads that share a plane, which are as many as its tiles."""
    height, width = workload.input_size if workload.pass_ == "dgrad" else workload.output_size
    return {**values, "threads_h": -(-height // values["tile_h"]), "threads_w": -(-width // values["tile_w"])}


def _padded(workload: Workload, values: dict[str, int]) -> float:
    """Outputs computed over outputs wanted."""
    sizes = workload.input_size if workload.pass_ == "dgrad" else workload.output_size
    share = 1.0
    for axis, size in zip("hw", sizes, strict=True):
        part = values.get(f"tile_{axis}", 1) * values.get(f"vthread_{axis}", 1)
        part = max(values.get(f"block_{axis}", 1), part * values.get(f"threads_{axis}", 1))
        share *= -(-size // part) * part / size
    return share
