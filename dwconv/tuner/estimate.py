"""What a CUDA configuration might cost, guessed from its knobs alone: microseconds of work, where building a candidate
takes a second. It picks those that are worth building; what the compiler makes of them counts.

It knows templates only by the words of their knobs: ``tile_h``, ``tile_w``, ``vthread_w`` and ``vector_c`` are what a
thread computes, ``threads_…``, ``planes`` and ``block_…`` how many threads share a block, ``group_kh`` and
``threads_kh`` the cut of a weight gradient's kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwconv.schedules.space import Config
from dwconv.target import CudaTarget
from dwconv.tuner.cost_model import BYTES_IN_FLIGHT_PER_SM, DRAM_LATENCY_CYCLES, occupancy, outputs_of
from dwconv.tuner.transactions import LINE_BYTES
from dwconv.workload import ITEMSIZE, Workload

VECTOR_BYTES = 16
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
    staged: bool
    read_again: float
    """Words it reads over words that are its own."""


def estimated_us(workload: Workload, config: Config, target: CudaTarget) -> float:
    """Microseconds; only the order of several means something."""
    values = {name: value for name, value in config.values if isinstance(value, int)}
    words = {name: value for name, value in config.values if isinstance(value, str)}
    thread = _thread(workload, values, staged=words.get("stage") == "shared")
    threads = _threads(workload, values)
    # The space's own rules know better than to allow blocks that do not fit.
    slots = math.ceil(threads / (target.warp * target.issue_slots)) * target.warp * target.issue_slots
    registers = min(thread.registers, target.registers_per_sm // slots // 8 * 8)
    held = occupancy(threads=threads, registers=registers, shared_bytes=0, target=target)
    if not held.blocks_per_sm:
        return math.inf
    needed = outputs_of(workload) / thread.outputs * _padded(workload, values)
    blocks = max(1, math.ceil(needed / threads))
    instructions = thread.products + thread.loads + thread.stores + thread.conversions + 40
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


def _thread(workload: Workload, values: dict[str, int], *, staged: bool) -> _Thread:
    itemsize = ITEMSIZE[workload.dtype]
    kernel_h, kernel_w = workload.kernel
    group_kh = min(values.get("group_kh", kernel_h), kernel_h)
    rows, columns = values.get("tile_h", 1), values.get("tile_w", 1)
    apart = values.get("vthread_w", 1) * values.get("vthread_h", 1)
    channels = values.get("vector_c", 1)
    outputs = rows * columns * apart * channels
    read_h = _reads(workload, rows, axis=0, taps=group_kh)
    read_w = _reads(workload, columns, axis=1, taps=kernel_w)
    patch = read_h * read_w * apart * channels
    lanes = _lanes(workload, columns=columns, channels=channels)
    taps = group_kh * kernel_w
    if workload.pass_ == "dgrad":  # a tap in stride·stride reaches an output
        products = outputs * taps / (workload.stride[0] * workload.stride[1])
    else:
        products = outputs * float(taps)
    weights = taps * channels
    own = outputs
    if workload.pass_ == "wgrad":
        loads, stores = (patch + outputs) / lanes, weights / max(1, values.get("images", 8))
        sums = weights
        own *= 2
        patch += outputs
    else:
        loads, stores = patch / lanes + weights, outputs / lanes
        sums = outputs if staged else min(outputs, columns * apart * channels * max(1, group_kh))
        sums += weights
    row = read_w * channels
    ahead = values.get("rows_ahead", 1)
    conversions = (patch + outputs) * 0.75 if itemsize == 2 else 0.0
    if staged:  # through shared memory: written once, read for every row of taps
        loads += 2 * patch
    in_flight = min(patch, max(row * (1 + ahead), 8)) * itemsize
    return _Thread(
        outputs=outputs,
        products=products,
        loads=loads,
        stores=stores,
        conversions=conversions,
        registers=min(255, int(sums + row * (1 + ahead) * itemsize / 4 + 20)),
        bytes_in_flight=in_flight,
        staged=staged,
        read_again=1.0 if staged else max(1.0, patch / own) ** 0.5,
    )


def _lines_of_a_request(workload: Workload, values: dict[str, int], thread: _Thread, *, warp: int) -> float:
    """Lines of memory that a warp asks for at a time: its lanes lie side by side only along the innermost axis."""
    if thread.staged:
        return 2.0
    itemsize = ITEMSIZE[workload.dtype]
    if workload.layout == "nhwc":
        across, apart = values.get("threads_c", warp), values.get("vector_c", 1)
    else:
        stride = workload.stride[1] if workload.pass_ != "dgrad" else 1
        across, apart = values.get("threads_w", 1), values.get("tile_w", 1) * stride
    across = min(across, warp)
    return min(warp, warp / across * (across * apart * itemsize / LINE_BYTES + 0.5))


def _reads(workload: Workload, tile: int, *, axis: int, taps: int) -> int:
    """Inputs under ``tile`` neighbouring outputs along an axis."""
    stride, dilation = workload.stride[axis], workload.dilation[axis]
    if workload.pass_ == "dgrad":
        return -(-(tile + dilation * (taps - 1)) // stride)
    return (tile - 1) * stride + dilation * (taps - 1) + 1


def _lanes(workload: Workload, *, columns: int, channels: int) -> int:
    """Elements of a load: what divides the tile and the pitch."""
    most = VECTOR_BYTES // ITEMSIZE[workload.dtype]
    if workload.layout == "nhwc":
        return math.gcd(channels, workload.channels, most)
    return math.gcd(columns, workload.input_size[1], workload.output_size[1], most)


def _threads(workload: Workload, values: dict[str, int]) -> int:
    count = math.prod(value for name, value in values.items() if name.startswith("threads_"))
    count *= values.get("planes", 1)
    for axis in ("h", "w", "c"):
        if f"block_{axis}" in values and f"threads_{axis}" not in values:
            tile = values.get(f"tile_{axis}", 1) * values.get(f"vthread_{axis}", 1)
            count *= max(1, values[f"block_{axis}"] // tile)
    return max(1, count)


def _padded(workload: Workload, values: dict[str, int]) -> float:
    """Outputs computed over outputs wanted."""
    sizes = workload.input_size if workload.pass_ == "dgrad" else workload.output_size
    share = 1.0
    for axis, size in zip("hw", sizes, strict=True):
        part = values.get(f"tile_{axis}", 1) * values.get(f"vthread_{axis}", 1)
        part = max(values.get(f"block_{axis}", 1), part * values.get(f"threads_{axis}", 1))
        share *= -(-size // part) * part / size
    if workload.pass_ == "wgrad":
        share *= values.get("threads_kh", 1)
    return share
