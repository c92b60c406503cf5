"""What one block of a kernel does, read off its CUDA source: every address it touches, and how often.

TVM prints kernels of loops, guards and assignments whose indices are arithmetic on thread, block and loop numbers. So
an address can be computed for all threads at once, and from the addresses follow the lines of memory that a warp asks
for, the bank conflicts in shared memory, and the data that a block needs: without a GPU, for any template.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dwconv.errors import BuildError

SECTOR_BYTES = 32
LINE_BYTES = 128
WARP = 32
BANKS = 32

Array = NDArray[Any]

# Blocks looked at, spread over the grid; loop iterations looked at together; accesses of a kind whose addresses are
# computed, the rest of them being alike.
_BLOCKS = 3
_ITERATIONS = 64
_ALIKE = 12


@dataclass(frozen=True, kw_only=True)
class BlockTrace:
    """Totals of one block, the mean of a few."""

    fmas: float
    instructions: float
    """Warp instructions, at least: arithmetic, memory accesses and guards."""
    global_lines: float
    """Lines of 128 bytes that warps ask for, one after the other."""
    shared_wavefronts: float
    """Turns that shared memory takes, conflicts included."""
    loads_per_thread: float
    """Loads from global memory."""
    read_bytes: dict[str, float]
    """Of each tensor, in whole sectors, each counted once."""
    written_bytes: float


def trace_block(source: str, kernel: str, *, grid: tuple[int, int, int], block: tuple[int, int, int]) -> BlockTrace:
    """Trace ``kernel`` of ``source``. Raises BuildError for what TVM would not print."""
    numbers = {f"threadIdx_{axis}": index for axis, index in zip("xyz", _indices(block), strict=True)}
    count = grid[0] * grid[1] * grid[2]
    chosen = np.unique(np.linspace(0, count - 1, num=min(_BLOCKS, count)).astype(np.int64))
    rest = chosen
    for axis, size in zip("xyz", grid, strict=True):
        numbers[f"blockIdx_{axis}"] = (rest % size).reshape(-1, 1, 1)
        rest = rest // size
    walk = _Walk(numbers, threads=block[0] * block[1] * block[2])
    walk.run(_parse(_body(source, kernel)), _Scope())
    return walk.summary(blocks=len(chosen))


def _indices(sizes: tuple[int, int, int]) -> Iterator[Array]:
    """threadIdx.x, .y, .z of all threads, in the order of warps."""
    threads = np.arange(sizes[0] * sizes[1] * sizes[2])
    for size in sizes:
        yield (threads % size).reshape(1, 1, -1)
        threads = threads // size


# -- the program ---------------------------------------------------------------------------------------------------


@dataclass
class _Node:
    """A statement; a ``loop`` or an ``if`` holds others."""

    kind: str
    text: str = ""
    extent: int = 1
    body: list[_Node] = field(default_factory=list)
    otherwise: list[_Node] = field(default_factory=list)


_LOOP = re.compile(r"for \(int (\w+) = 0; \1 < (\d+); \+\+\1\) \{")
_IF = re.compile(r"if \((.*)\) \{")


def _body(source: str, kernel: str) -> list[str]:
    found = re.search(rf"\b{re.escape(kernel)}\([^)]*\) \{{\n(.*?)^\}}", source, re.DOTALL | re.MULTILINE)
    if found is None:
        raise BuildError(f"no kernel {kernel} in the source")
    return [line.strip() for line in found[1].splitlines() if line.strip()]


def _parse(lines: list[str]) -> list[_Node]:
    root = _Node("root")
    open_lists = [root.body]
    for line in lines:
        if loop := _LOOP.fullmatch(line):
            node = _Node("loop", loop[1], int(loop[2]))
        elif guard := _IF.fullmatch(line):
            node = _Node("if", guard[1])
        elif line == "} else {":
            open_lists[-1] = open_lists[-2][-1].otherwise
            continue
        elif line == "}":
            open_lists.pop()
            continue
        elif line.endswith("{"):
            raise BuildError(f"unknown statement {line}")
        else:
            open_lists[-1].append(_Node("statement", line))
            continue
        open_lists[-1].append(node)
        open_lists.append(node.body)
    return root.body


# -- walking it ----------------------------------------------------------------------------------------------------


@dataclass
class _Scope:
    """Where a statement stands: the numbers of the loops around it, its guards, and how often it is run beyond them."""

    loops: dict[str, Array] = field(default_factory=dict)
    iterations: int = 1
    times: int = 1
    guards: tuple[tuple[str, bool], ...] = ()
    seen: set[str] = field(default_factory=set)
    """Loads already done here: the compiler keeps their values."""


@dataclass(frozen=True)
class _Access:
    buffer: str
    index: str
    words: int
    store: bool
    scope: _Scope
    guards: tuple[tuple[str, bool], ...]


_STORE = re.compile(r"(?:\*\((\w+?)\*\)\()?(\w+_ptr)(?:\[| \+ )")
_COMPARISON = re.compile(r"<=|>=|==|!=|<(?!<)|(?<!>)>")


class _Walk:
    def __init__(self, numbers: dict[str, Array], *, threads: int) -> None:
        self._numbers = numbers
        self._threads = threads
        self._accesses: list[_Access] = []
        self._fmas = 0.0  # per thread
        self._instructions = 0.0  # per thread

    def run(self, nodes: list[_Node], scope: _Scope) -> None:
        for node in nodes:
            if node.kind == "loop":
                self.run(node.body, self._into_loop(node, scope))
            elif node.kind == "if":
                self._instructions += len(_COMPARISON.findall(node.text)) * scope.iterations * scope.times
                for body, holds in ((node.body, True), (node.otherwise, False)):
                    guards = (*scope.guards, (node.text, holds))
                    inner = _Scope(scope.loops, scope.iterations, scope.times, guards, scope.seen)
                    self.run(body, inner)
            else:
                self._statement(node.text, scope)

    def _into_loop(self, node: _Node, scope: _Scope) -> _Scope:
        iterations = scope.iterations * node.extent
        if iterations <= _ITERATIONS and len(node.body) <= _ITERATIONS and not scope.guards:
            loops = {name: np.repeat(values, node.extent, axis=1) for name, values in scope.loops.items()}
            loops[node.text] = np.tile(np.arange(node.extent), scope.iterations).reshape(1, -1, 1)
            return _Scope(loops, iterations, scope.times)
        middle = np.full((1, scope.iterations, 1), node.extent // 2)
        loops = {**scope.loops, node.text: middle}
        return _Scope(loops, scope.iterations, scope.times * node.extent, scope.guards)

    def _statement(self, text: str, scope: _Scope) -> None:
        target, equals, value = text.partition(" = ")
        runs = scope.iterations * scope.times
        if not equals or text.startswith(("alignas", "__shared__", "extern")):
            return
        for store, side in ((False, value), (True, target)):
            for match in _STORE.finditer(side):
                buffer = match[2]
                index, _ = _bracketed(side, match.end())
                key = f"{buffer}[{index}]"
                if _is_local(buffer) or (not store and key in scope.seen):
                    continue
                scope.seen.add(key)
                words = int(match[1][-1]) if match[1] and match[1][-1].isdigit() else 1
                self._accesses.append(_Access(buffer, index, words, store, scope, scope.guards))
                self._instructions += runs
        products = _without_indices(value).count(" * ")
        self._fmas += products * runs
        self._instructions += products * runs

    # -- addresses ---------------------------------------------------------------------------------------------

    def summary(self, *, blocks: int) -> BlockTrace:
        warps = -(-self._threads // WARP)
        lines = wavefronts = loads = written = 0.0
        touched: dict[str, list[Array]] = defaultdict(list)
        groups: dict[tuple[bool, bool, int], list[_Access]] = defaultdict(list)
        for access in self._accesses:
            groups[_is_shared(access.buffer), access.store, id(access.scope.loops)].append(access)
        for (shared, store, _), group in groups.items():
            chosen = group[:: -(-len(group) // _ALIKE)] if shared else group
            weight = len(group) / len(chosen) / blocks
            for access in chosen:
                address, active = self._addresses(access)
                share = weight * access.scope.times
                if shared:
                    wavefronts += _wavefronts(address, active) * share
                    continue
                lines += _distinct(address // LINE_BYTES, active) * share
                sectors = np.where(active, address // SECTOR_BYTES, -1)
                if store:
                    written += active.sum() * 4 * access.words * share
                else:
                    touched[access.buffer.removesuffix("_ptr")].append(sectors.reshape(blocks, -1))
                    loads += access.scope.iterations * access.scope.times
        return BlockTrace(
            fmas=self._fmas * self._threads,
            instructions=self._instructions * warps,
            global_lines=lines,
            shared_wavefronts=wavefronts,
            loads_per_thread=loads,
            read_bytes={name: _union(sectors) * SECTOR_BYTES / blocks for name, sectors in touched.items()},
            written_bytes=written,
        )

    def _addresses(self, access: _Access) -> tuple[Array, Array]:
        """(byte addresses, whether the thread takes part), both (blocks, iterations, threads)."""
        numbers = {**self._numbers, **access.scope.loops}
        blocks = max(values.shape[0] for values in self._numbers.values())
        shape = (blocks, access.scope.iterations, self._threads)
        active: Array = np.ones(shape, bool)
        for guard, holds in access.guards:
            active = active & (np.asarray(evaluate(guard, numbers), bool) == holds)
        return np.broadcast_to(evaluate(access.index, numbers) * 4, shape), active


def _is_local(buffer: str) -> bool:
    return "_local" in buffer


def _is_shared(buffer: str) -> bool:
    return "_shared" in buffer or "shmem" in buffer


def _bracketed(text: str, start: int) -> tuple[str, int]:
    """The text from ``start`` to the bracket that closes the one before it."""
    depth = 1
    for end in range(start, len(text)):
        depth += (text[end] in "[(") - (text[end] in "])")
        if depth == 0:
            return text[start:end], end
    raise BuildError(f"brackets do not match in {text}")


def _without_indices(text: str) -> str:
    """``a[i * 2] * b[j]`` -> ``a * b``."""
    kept, depth = [], 0
    for character in text:
        depth += character == "["
        if depth == 0:
            kept.append(character)
        depth -= character == "]"
    return "".join(kept)


# -- what a warp asks for ------------------------------------------------------------------------------------------


def _warps(values: Array, active: Array) -> Array:
    """(requests, lanes), sorted along the lanes; lanes that take no part are −1."""
    masked = np.where(active, values, -1)
    idle = -masked.shape[-1] % WARP
    masked = np.pad(masked, ((0, 0), (0, 0), (0, idle)), constant_values=-1)
    return np.sort(masked.reshape(-1, WARP), axis=1)


def _first_of_equals(ordered: Array) -> Array:
    return np.concatenate([ordered[:, :1] >= 0, (np.diff(ordered, axis=1) != 0) & (ordered[:, 1:] >= 0)], axis=1)


def _distinct(values: Array, active: Array) -> float:
    """Different values a warp, summed over all warps."""
    return float(_first_of_equals(_warps(values, active)).sum())


def _wavefronts(address: Array, active: Array) -> float:
    """Turns that shared memory takes: words of one bank come one after the other, the same word at once."""
    words = _warps(address // 4, active)
    request, lane = np.nonzero(_first_of_equals(words))
    if request.size == 0:
        return 0.0
    bank = words[request, lane] % BANKS
    counts = np.bincount(request * BANKS + bank, minlength=len(words) * BANKS).reshape(-1, BANKS)
    return float(counts.max(axis=1).sum())


def _union(sectors: Iterable[Array]) -> float:
    """Different sectors of each block, summed over the blocks."""
    together = np.concatenate(list(sectors), axis=1)
    return float(sum((np.unique(row) >= 0).sum() for row in together))


# -- index arithmetic ----------------------------------------------------------------------------------------------


def evaluate(text: str, numbers: dict[str, Array]) -> Array:
    """A C expression of integers, for arrays of numbers. Raises BuildError for anything else."""
    try:
        return np.asarray(_value(_expression(text), numbers))
    except (SyntaxError, KeyError, AttributeError) as error:
        raise BuildError(f"cannot read the expression {text}: {error}") from error


@lru_cache(maxsize=4096)
def _expression(text: str) -> ast.expr:
    python = text.replace("(int)", "").replace("Idx.", "Idx_").replace("&&", " and ").replace("||", " or ")
    python = re.sub(r"!(?!=)", " not ", python)
    return ast.parse(python.strip(), mode="eval").body


_OPERATORS: dict[type[ast.AST], Any] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.floor_divide, ast.Mod: np.remainder,
    ast.LShift: np.left_shift, ast.RShift: np.right_shift, ast.BitAnd: np.bitwise_and, ast.BitOr: np.bitwise_or,
    ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater, ast.GtE: np.greater_equal,
    ast.Eq: np.equal, ast.NotEq: np.not_equal, ast.And: np.logical_and, ast.Or: np.logical_or,
}  # fmt: skip
_FUNCTIONS = {"min": np.minimum, "max": np.maximum}


def _value(node: ast.expr, numbers: dict[str, Array]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return numbers[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left, numbers), _value(node.right, numbers))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _OPERATORS[type(node.ops[0])](_value(node.left, numbers), _value(node.comparators[0], numbers))
    if isinstance(node, ast.BoolOp):
        value, *others = (_value(operand, numbers) for operand in node.values)
        for other in others:
            value = _OPERATORS[type(node.op)](value, other)
        return value
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand, numbers)
        return np.logical_not(value) if isinstance(node.op, ast.Not) else np.negative(value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*(_value(argument, numbers) for argument in node.args))
    raise BuildError(f"cannot evaluate {ast.unparse(node)}")
