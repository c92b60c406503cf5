"""SimulatedGpu: an artifact's kernels, run on the CPU thread by thread, with every memory access watched.

Its report has the findings: faults, and the cost of memory accesses.
"""

from __future__ import annotations

import _ctypes
import ctypes
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import torch

from dwconv.errors import BuildError
from dwconv.kernels.artifact import Argument, Artifact, Launch, Scalar, at_batch
from dwconv.measure.simulator.host_compile import compile_kernels, source_lines
from dwconv.problems.workload import ITEMSIZE


class FaultKind(str, Enum):
    """Kinds of faults, in the order of state.h: the one that explains most comes first."""

    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    DIVERGENCE = "divergence"
    RACE = "race"
    IN_FLIGHT = "in flight"
    UNINITIALISED = "uninitialised"
    INPUT_CHANGED = "input changed"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that a kernel must not do, with the first place and thread that did it."""

    kind: FaultKind
    where: str
    """A tensor, an array in shared memory, ``barrier`` or ``warp``."""
    detail: str
    offset: int
    """Bytes from the start of ``where``."""
    thread: int
    block: int
    line: int
    """Line of the CUDA source; 0 if unknown."""
    text: str
    """The text of that line."""

    def __str__(self) -> str:
        line = f", line {self.line}: {self.text[:120]}" if self.line else ""
        at = f" at byte {self.offset}" if self.where not in ("barrier", "warp") else ""
        return f"{self.kind.value}: {self.where}{at} {self.detail} (block {self.block}, thread {self.thread}{line})"


@dataclass(frozen=True, kw_only=True)
class RequestCounts:
    """Requests to shared memory in the blocks that were counted; a request is one instruction of one warp."""

    requests: int = 0
    wavefronts: int = 0
    """Turns that shared memory took."""
    ideal: int = 0
    """Turns that the same requests would take without bank conflicts."""
    blocks: int = 0
    """Blocks that were counted."""

    @property
    def wavefronts_per_ideal(self) -> float:
        """1.0 means no bank conflict."""
        return self.wavefronts / self.ideal if self.ideal else 1.0


@dataclass(frozen=True, kw_only=True)
class SimulatorReport:
    faults: tuple[Fault, ...]
    """Those that explain most first."""
    counts: RequestCounts

    @property
    def clean(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults)) or "clean"


# -- as the runtime has them (state.h) -------------------------------------------------------------------------------


class NativeFault(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "thread")),
        *((name, ctypes.c_int64) for name in ("block", "offset", "line")),
        ("place", ctypes.c_uint64),
        ("region", ctypes.c_char * 40),
        ("detail", ctypes.c_char * 88),
    )


class NativeCounts(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in RequestCounts.__dataclass_fields__)


_MOST_PLACES = 3
"""Of a kind of faults."""


class NativeFound(ctypes.Structure):
    _fields_ = (
        ("counts", NativeCounts),
        ("faults", ctypes.c_int64),
        ("fault", NativeFault * (_MOST_PLACES * len(FaultKind))),
    )


COUNTED_BLOCKS = 8
"""Blocks of a launch whose requests are counted, spread over the grid, its first and last among them."""

_INPUT, _RESULT = 0, 1


class SimulatedGpu(AbstractContextManager["SimulatedGpu"]):
    """Called like a kernel of dwconv.kernels.launch, with the batch size and the addresses of ``artifact.arguments`` in
    this process's own memory; writes what the kernels write.

    The first call is watched: ``report`` says what it found. Later calls are not, and give the same numbers faster. A
    call stops at an access out of bounds and at a barrier that not all threads reach; the result is then unfinished.
    Nothing ends a kernel that hangs: give it a process of its own. ``close`` frees its memory.

    Raises what ``compile_kernels`` raises. ``folder`` keeps what was compiled."""

    def __init__(self, artifact: Artifact, *, folder: Path) -> None:
        self._artifact = artifact
        self._path = compile_kernels(artifact.source, artifact.launches, folder=folder)
        self._library = _load(self._path)
        self._closed = False
        self.report: SimulatorReport | None = None

    def __call__(self, batch: int, *addresses: int) -> None:
        if self.report is not None and any(fault.kind in _STOPPING for fault in self.report.faults):
            return
        if batch == 0:
            return
        with _Memory(self._library) as memory:
            pairs = list(zip(addresses, self._allocate(memory, batch=batch), strict=True))
            for address, own in pairs:
                ctypes.memmove(own.data_ptr(), address, own.nbytes)
            self._launch(memory, batch=batch, watched=self.report is None, most_blocks=0)
            for address, own in pairs[len(self._artifact.inputs) :]:
                ctypes.memmove(address, own.data_ptr(), own.nbytes)
            if self.report is None:
                self.report = self._read_report()

    def sample(self, *, batch: int, most_blocks: int = COUNTED_BLOCKS) -> SimulatorReport:
        """Run only some blocks of each launch, spread over the grid, on zeros. Reports the cost of their accesses, and
        faults seen in them. Memory that no block touches is never allocated, so tensors may be of any size."""
        with _Memory(self._library) as memory:
            self._allocate(memory, batch=batch)
            self._launch(memory, batch=batch, watched=True, most_blocks=most_blocks)
            return self._read_report()

    def close(self) -> None:
        """Unload the kernels; they cannot be run any more."""
        if not self._closed:
            _ctypes.dlclose(self._library._handle)
        self._closed = True

    def __exit__(self, *_: object) -> None:
        self.close()

    def _allocate(self, memory: _Memory, *, batch: int) -> list[torch.Tensor]:
        """All tensors, filled with zeros. Writing to an input is a fault."""
        inputs, others = self._artifact.inputs, (*self._artifact.results, *self._artifact.workspaces)
        return [
            *(memory.tensor(argument, batch=batch, role=_INPUT) for argument in inputs),
            *(memory.tensor(argument, batch=batch, role=_RESULT) for argument in others),
        ]

    def _launch(self, memory: _Memory, *, batch: int, watched: bool, most_blocks: int) -> None:
        for launch in self._artifact.launches:
            values = (ctypes.c_uint64 * len(launch.arguments))()
            for position, argument in enumerate(launch.arguments):
                if isinstance(argument, Scalar):
                    values[position] = at_batch(argument.value, batch)
                else:
                    values[position] = memory.address[argument.name]
            sizes = (ctypes.c_int * 6)(*_grid(launch, batch), *launch.block)
            stopped = self._library.sim_launch(
                self._library[f"sim_call_{launch.kernel}"],
                values,
                sizes,
                ctypes.c_ulong(launch.shared_bytes),
                ctypes.c_long(most_blocks),
                ctypes.c_long(COUNTED_BLOCKS),
                int(watched),
            )
            if stopped:
                return

    def _read_report(self) -> SimulatorReport:
        found = NativeFound.from_address(self._library.sim_found())
        native = found.fault[: found.faults]
        base = self._library.sim_base()
        lines = [fault.line for fault in native]
        unknown = [i for i, fault in enumerate(native) if not fault.line and fault.place]
        for i, line in zip(unknown, source_lines(self._path, [native[i].place - base for i in unknown]), strict=True):
            lines[i] = line
        source = self._artifact.source.splitlines()
        faults = [
            Fault(
                kind=list(FaultKind)[fault.kind],
                where=fault.region.decode(),
                detail=fault.detail.decode(),
                offset=fault.offset,
                thread=fault.thread,
                block=fault.block,
                line=line,
                text=source[line - 1].strip() if 0 < line <= len(source) else "",
            )
            for fault, line in zip(native, lines, strict=True)
        ]
        counts = RequestCounts(**{name: getattr(found.counts, name) for name in RequestCounts.__dataclass_fields__})
        return SimulatorReport(
            faults=tuple(sorted(faults, key=lambda fault: list(FaultKind).index(fault.kind))), counts=counts
        )


_STOPPING = (FaultKind.OUT_OF_BOUNDS, FaultKind.MISALIGNED, FaultKind.DIVERGENCE)


class _Memory:
    """The tensors of one call, far apart from each other, with the access history of each element."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.address: dict[str, int] = {}

    def __enter__(self) -> _Memory:
        if self._library.sim_open():
            raise MemoryError("the simulator cannot reserve address space; raise the limit (ulimit -v)")
        return self

    def __exit__(self, *_: object) -> None:
        self._library.sim_close()

    def tensor(self, argument: Argument, *, batch: int, role: int) -> torch.Tensor:
        """A tensor of zeros, in memory that the kernels can reach. Not to be used after ``__exit__``."""
        shape, itemsize = argument.shape_at(batch), ITEMSIZE[argument.dtype]
        size = math.prod(shape) * itemsize
        address = self._library.sim_tensor(argument.name.encode(), ctypes.c_ulong(size), itemsize, role)
        if not address:
            raise MemoryError(f"the simulator has no room for {argument.name} of {size} bytes")
        self.address[argument.name] = address
        dtype: torch.dtype = getattr(torch, argument.dtype)
        if not size:
            return torch.empty(shape, dtype=dtype)
        raw = (ctypes.c_char * size).from_address(address)
        return torch.frombuffer(raw, dtype=dtype).view(shape)


def _grid(launch: Launch, batch: int) -> Sequence[int]:
    return [at_batch(size, batch) for size in launch.grid]


def _load(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"the simulator cannot load what g++ made: {error}") from None
    library.sim_tensor.restype = library.sim_found.restype = library.sim_base.restype = ctypes.c_void_p
    return library
