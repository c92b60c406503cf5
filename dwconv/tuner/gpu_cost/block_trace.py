"""The work of one block of a kernel, read off its machine code: every instruction it issues, every address it touches.

The control flow and the addresses of these kernels follow from thread and block numbers and from the batch, never from
data. So a few blocks, spread over the grid, are walked through their machine code on the CPU: all their threads side by
side, those that lag behind first, as threads of a warp meet again on a GPU. Trip counts, guards, bank conflicts and the
sectors of memory that warps access come out exactly, for any source.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwconv.errors import BuildError
from dwconv.kernels.artifact import Argument, Extent, Launch, at_batch
from dwconv.kernels.sass import CLASSES, Code, Instruction, matrices_loaded, products_of, width_bytes
from dwconv.kernels.sass_integers import Action, action
from dwconv.kernels.sass_registers import LONG, Number, Operand, Registers, Truth, operand
from dwconv.schedules.cuda.gpu.hardware import SECTOR_BYTES, WARP
from dwconv.tuner.gpu_cost.transactions import sectors_of, shared_turns

Array = NDArray[Any]

_LANES = 1536
"""Threads walked side by side: enough blocks to see the edges of the grid, few enough to be quick."""
_BLOCKS = (2, 6)
_MOST_STEPS = 400_000
"""Instructions walked, before the kernel is given up as too long."""
_WATCHED = 24
"""Times that one instruction's addresses are looked at; of its later executions every 16th."""
_BASE_SHIFT = 40
"""Tensors are put this far apart: an address shows its tensor."""


class Untraceable(BuildError):
    """Machine code that cannot be followed without its data; the message says where."""


@dataclass(frozen=True, kw_only=True)
class BlockTrace:
    """Totals of one block, the mean of a few."""

    issued: dict[str, float]
    """Warp instructions, by class."""
    global_lines: float
    """Lines of 128 bytes that warps access, one after the other."""
    sectors: float
    """Sectors of 32 bytes that warps access."""
    ideal_sectors: float
    """The same, if the threads' words lay side by side."""
    wavefronts: float
    """Turns that shared memory takes, conflicts included."""
    ideal_wavefronts: float
    tensor_products: float
    """Multiply-adds of tensor cores."""
    local_lines: float
    """Lines of 128 bytes, that registers which were spilt, and arrays that found no place in registers, go out and in
    by."""
    read_bytes: dict[str, float]
    """Bytes of each tensor, in whole sectors, each counted once."""
    written_bytes: dict[str, float]
    loads_ahead: bool = False
    """Whether warps multiplied while copies to shared memory were on their way."""

    @property
    def instructions(self) -> float:
        return sum(self.issued.values())

    @property
    def conflicts(self) -> float:
        """Turns of shared memory over turns without a bank conflict; 1 is none."""
        return self.wavefronts / self.ideal_wavefronts if self.ideal_wavefronts else 1.0

    @property
    def sectors_over_ideal(self) -> float:
        return self.sectors / self.ideal_sectors if self.ideal_sectors else 1.0


def trace_block(code: Code, launch: Launch, *, batch: int, arch: str) -> BlockTrace:
    """Walk a few blocks of ``launch`` at a batch size. Raises Untraceable where data decide what happens."""
    grid = tuple(size.at(batch) if isinstance(size, Extent) else size for size in launch.grid)
    walk = _Walk(code, launch, blocks=_sample(grid, threads=_threads(launch)), batch=batch, arch=arch)
    walk.run()
    return walk.summary()


def _threads(launch: Launch) -> int:
    return launch.block[0] * launch.block[1] * launch.block[2]


def _sample(grid: tuple[int, ...], *, threads: int) -> list[tuple[int, int, int]]:
    """Blocks at golden-section steps: whatever the grid's period, edges come in their share."""
    count = grid[0] * grid[1] * grid[2]
    fewest, most = _BLOCKS
    wanted = min(count, max(fewest, min(most, _LANES // threads)))
    numbers = (
        range(count) if count <= wanted else sorted({int(count * (i * 0.6180339887 % 1)) for i in range(1, wanted + 1)})
    )
    return [(n % grid[0], n // grid[0] % grid[1], n // grid[0] // grid[1]) for n in numbers]


# -- the launch as the code sees it ----------------------------------------------------------------------------------

_FIRST_ARGUMENT = {7: 0x160, 8: 0x160, 9: 0x210, 10: 0x380, 11: 0x380, 12: 0x380}
"""Where arguments lie in constant memory, by the architecture's generation."""


def _arguments(launch: Launch, *, batch: int, arch: str) -> tuple[dict[int, int], list[str]]:
    """Words of constant memory by their offset, and the names of the tensors in the order of their addresses."""
    generation = int(re.sub(r"\D", "", arch)) // 10
    if generation not in _FIRST_ARGUMENT:
        raise Untraceable(f"where {arch} passes arguments is not known")
    offset = _FIRST_ARGUMENT[generation]
    words: dict[int, int] = {}
    names: list[str] = []
    for argument in launch.arguments:
        if isinstance(argument, Argument):
            offset = -(-offset // 8) * 8
            names.append(argument.name)
            address = len(names) << _BASE_SHIFT
            words[offset], words[offset + 4] = address & 0xFFFFFFFF, address >> 32
            offset += 8
        else:
            words[offset] = at_batch(argument.value, batch)
            offset += 4
    return words, names


def _thread_numbers(launch: Launch, blocks: list[tuple[int, int, int]], lanes: int) -> dict[str, Array]:
    """Special registers of all threads walked; ``lanes`` a block, whole warps."""
    own = np.arange(lanes, dtype=np.uint64)
    x, y, _ = (np.uint64(size) for size in launch.block)
    found = {"SR_TID.X": own % x, "SR_TID.Y": own // x % y, "SR_TID.Z": own // (x * y), "SR_LANEID": own % WARP}
    found = {name: np.tile(values, len(blocks)) for name, values in found.items()}
    for axis, name in enumerate("XYZ"):
        found[f"SR_CTAID.{name}"] = np.repeat(np.array([block[axis] for block in blocks], np.uint64), lanes)
    return found


# -- walking it ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Step:
    """An instruction, read once for all its executions."""

    instruction: Instruction
    kind: str
    guard: Operand | None
    accesses: bool
    local_lines: int
    """Of a warp; so are the next."""
    tensor_products: int
    does: Action | None
    """None for a jump."""


@dataclass
class _Seen:
    """All that was seen of one memory instruction."""

    executions: int = 0
    watched: int = 0
    lines: float = 0.0
    sectors: float = 0.0
    ideal_sectors: float = 0.0
    wavefronts: float = 0.0
    ideal_wavefronts: float = 0.0
    written: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    read: dict[str, list[Array]] = field(default_factory=lambda: defaultdict(list))
    """Sectors, each with its block's number in the upper bits."""


class _Walk:
    def __init__(
        self, code: Code, launch: Launch, *, blocks: list[tuple[int, int, int]], batch: int, arch: str
    ) -> None:
        self._code = code
        self._blocks = len(blocks)
        self._lanes = -(-_threads(launch) // WARP) * WARP
        words, self._tensors = _arguments(launch, batch=batch, arch=arch)
        numbers = _thread_numbers(launch, blocks, self._lanes)
        self._block_of = np.repeat(np.arange(self._blocks, dtype=np.int64), self._lanes)
        self._registers = Registers(
            constants=lambda offset: words.get(offset, 0), special=lambda name: numbers.get(name, 0)
        )
        self._at = np.zeros(self._blocks * self._lanes, dtype=np.int64)
        self._alive: Array = np.tile(np.arange(self._lanes) < _threads(launch), self._blocks)
        self._issued: dict[str, int] = dict.fromkeys(CLASSES, 0)
        self._seen: dict[int, _Seen] = defaultdict(_Seen)
        self._plan: dict[int, _Step] = {}
        self._steps = 0
        self._local_lines = 0
        self._tensor_products = 0
        self._copies_under_way = self._loads_ahead = False

    def run(self) -> None:
        starts = self._code.leaders
        ends = dict(zip(starts, [*starts[1:], len(self._code.instructions)], strict=True))
        while self._alive.any():
            start = int(self._at[self._alive].min())
            if start not in ends:
                raise Untraceable(f"{self._code.kernel} jumps into the middle of a basic block")
            here = self._alive & (self._at == start)
            self._at[here] = ends[start]
            self._block(start, ends[start], here)

    def _block(self, start: int, end: int, here: Array) -> None:
        warps = int(here.reshape(-1, WARP).any(axis=1).sum())
        everywhere: Truth = True if here.all() else here
        self._steps += end - start
        if self._steps > _MOST_STEPS:
            raise Untraceable(f"{self._code.kernel} runs more than {_MOST_STEPS} instructions")
        for position in range(start, end):
            step = self._plan.get(position) or self._planned(position)
            instruction = step.instruction
            self._issued[step.kind] += warps
            self._local_lines += warps * step.local_lines
            self._tensor_products += warps * step.tensor_products
            active = everywhere
            if step.guard:
                active = _both(everywhere, self._registers.truth(step.guard))
            self._registers.reading = True if active is None else active
            if step.accesses:
                self._access(position, instruction, _lanes_of(active, here, instruction))
            if instruction.base == "LDGSTS":
                self._copies_under_way |= bool(_lanes_of(active, here, instruction).any())
            elif instruction.base == "DEPBAR":
                self._copies_under_way &= int(instruction.operands[-1], 0) > 0  # the latest may still be
            elif step.kind in ("fma", "tensor"):
                self._loads_ahead |= self._copies_under_way
            if step.does is None:
                self._jump(instruction, _lanes_of(active, here, instruction))
            else:
                step.does(self._registers, active)

    def _planned(self, position: int) -> _Step:
        instruction = self._code.instructions[position]
        step = self._plan[position] = _Step(
            instruction=instruction,
            kind=instruction.kind,
            guard=operand(instruction.guard) if instruction.guard else None,
            accesses=instruction.kind in ("global", "shared"),
            local_lines=local_lines(instruction),
            tensor_products=products_of(instruction),
            does=None if instruction.base in _JUMPS else action(instruction),
        )
        return step

    def _jump(self, instruction: Instruction, taken: Array) -> None:
        if instruction.base == "EXIT":
            self._alive &= ~taken
        elif instruction.base == "RET":
            address = self._registers.word(operand(instruction.operands[0]))
            if not isinstance(address, int):
                raise Untraceable(f"{instruction}: where to is not known")
            self._at[taken] = next(i for i, each in enumerate(self._code.instructions) if each.address == address)
        elif "DIV" in instruction.modifiers:  # threads that have parted; they never have where shuffles are
            return
        elif instruction.target is None:
            raise Untraceable(f"{instruction}: where to is not known")
        else:
            conditions = [operand(text) for text in instruction.operands if re.fullmatch(r"!?U?P\w+", text)]
            for condition in conditions:
                taken = _lanes_of(_both(True, self._registers.truth(condition)), taken, instruction)
            self._at[taken] = instruction.target

    # -- memory ------------------------------------------------------------------------------------------------

    def _access(self, position: int, instruction: Instruction, active: Array) -> None:
        seen = self._seen[position]
        seen.executions += 1
        if instruction.base == "SHFL" or (seen.executions > _WATCHED and seen.executions % 16):
            return
        seen.watched += 1
        addressed = [text for text in instruction.operands if "[" in text]
        for text in addressed:
            shared = instruction.kind == "shared" or (instruction.base == "LDGSTS" and text is addressed[0])
            address = _address(text, self._registers)
            if address is None:
                raise Untraceable(f"{instruction}: the address is not known")
            lanes = np.broadcast_to(np.asarray(np.uint64(0) + address), active.shape).view(np.int64)
            if instruction.base == "LDSM":  # of each matrix 8 lanes name a row, the others' addresses are not used
                active = active & (np.arange(len(active)) % WARP < 8 * matrices_loaded(instruction))
            if shared:
                least = int(active.sum()) // 8 if instruction.base == "LDSM" else 0  # a turn for each matrix
                self._shared(seen, lanes, active, width=width_bytes(instruction), least=least)
            else:
                self._global(seen, lanes, active, width=width_bytes(instruction), store=instruction.base in _STORES)

    def _shared(self, seen: _Seen, address: Array, active: Array, *, width: int, least: int) -> None:
        turns, ideal = shared_turns(address, active, width=width)
        seen.wavefronts += max(turns, least)
        seen.ideal_wavefronts += max(ideal, least)

    def _global(self, seen: _Seen, address: Array, active: Array, *, width: int, store: bool) -> None:
        if not active.any():
            return
        tensor = (address + (1 << _BASE_SHIFT - 1)) >> _BASE_SHIFT
        number = int(tensor[active][0])
        if not (tensor[active] == number).all() or not 1 <= number <= len(self._tensors):
            raise Untraceable(f"{self._code.kernel}: an address lies in none of its tensors")
        name = self._tensors[number - 1]
        requests = sectors_of(address, active, width=width)
        seen.sectors += requests.sectors
        seen.lines += requests.lines
        seen.ideal_sectors += requests.ideal
        if store:
            seen.written[name] += float(active.sum() * width)
        else:
            seen.read[name].append(np.unique((address // SECTOR_BYTES + (self._block_of << 48))[active]))

    # -- what it comes to --------------------------------------------------------------------------------------

    def summary(self) -> BlockTrace:
        totals: dict[str, float] = defaultdict(float)
        written: dict[str, float] = defaultdict(float)
        fetched: dict[str, list[Array]] = defaultdict(list)
        unvisited: dict[str, float] = defaultdict(float)
        for seen in self._seen.values():
            share = seen.executions / seen.watched / self._blocks if seen.watched else 0.0
            for name in ("lines", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts"):
                totals[name] += getattr(seen, name) * share
            for name, size in seen.written.items():
                written[name] += size * share
            for name, sectors in seen.read.items():
                fetched[name].append(np.unique(np.concatenate(sectors)))
                if seen.executions > seen.watched:
                    # What was not looked at is as new as what was, from one time to the next.
                    some, more = (
                        len(np.unique(np.concatenate(sectors[:count]))) for count in (_WATCHED // 2, _WATCHED)
                    )
                    unvisited[name] += (more - some) / (_WATCHED // 2) * (seen.executions - seen.watched)
        return BlockTrace(
            issued={kind: count / self._blocks for kind, count in self._issued.items()},
            global_lines=totals["lines"],
            sectors=totals["sectors"],
            ideal_sectors=totals["ideal_sectors"],
            wavefronts=totals["wavefronts"],
            ideal_wavefronts=totals["ideal_wavefronts"],
            tensor_products=self._tensor_products / self._blocks,
            local_lines=self._local_lines / self._blocks,
            read_bytes={
                name: (len(np.unique(np.concatenate(sectors))) + unvisited[name]) * SECTOR_BYTES / self._blocks
                for name, sectors in fetched.items()
            },
            written_bytes=dict(written),
            loads_ahead=self._loads_ahead,
        )


_JUMPS = frozenset({"BRA", "EXIT", "CALL", "RET", "BRX", "JMP", "JMX", "KILL"})
_STORES = frozenset({"STG", "ST", "RED", "STS"})


def local_lines(instruction: Instruction) -> int:
    """Lines of local memory that a warp moves: the same word of 32 threads lies side by side."""
    return width_bytes(instruction) // 4 or 1 if instruction.base in ("LDL", "STL") else 0


def _both(here: Truth, guard: Truth) -> Truth:
    if guard is None or here is None:
        return None
    return here & guard


def _lanes_of(active: Truth, here: Array, instruction: Instruction) -> Array:
    if active is None:
        raise Untraceable(f"{instruction}: whether it runs depends on data")
    return here & active


def _address(text: str, registers: Registers) -> Number:
    """The address in ``desc[UR4][R2.64+0x10]`` or ``[R24.X4+UR4+0x12c0]``: the sum of what stands in the last
    brackets."""
    total: Any = 0
    for term in text[text.rindex("[") + 1 : text.rindex("]")].replace("-", "+-").split("+"):
        if not term:
            continue
        each = operand(term)
        if each.file == "number":
            value: Any = int(term, 0) & LONG
        elif each.is_register:
            value = registers.long(each) if "64" in each.name else registers.word(each)
            if value is not None and (scale := re.search(r"X(\d+)", each.name)):
                value = value * int(scale[1])
        else:
            value = None
        if value is None or total is None:
            return None
        total = (total + value) & LONG
    return total
