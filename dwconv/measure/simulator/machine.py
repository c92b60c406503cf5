"""Machine: an artifact's kernels, run on the CPU thread by thread, with every memory access watched."""

from __future__ import annotations

import _ctypes
import ctypes
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from dwconv.errors import BuildError
from dwconv.kernels.artifact import Argument, Artifact, Extent, Launch, Scalar
from dwconv.measure.simulator.compile import compile_kernels, source_lines
from dwconv.measure.simulator.report import Counts, Fault, Kind, NativeFound, Report
from dwconv.problems.workload import ITEMSIZE

COUNTED_BLOCKS = 8
"""Blocks of a launch whose requests are counted, spread over the grid, its first and last among them."""

_INPUT, _RESULT = 0, 1


class Machine:
    """Called like a kernel of dwconv.kernels.launch, with the batch size and the addresses of ``artifact.arguments`` in
    this process's own memory; writes what the kernels write.

    The first call is watched: ``report`` says what it found. Later calls are not, and give the same numbers faster. A
    call stops at an access out of bounds and at a barrier that not all threads reach; the result is then unfinished.
    Nothing ends a kernel that hangs: give it a process of its own. A context manager; ``close`` frees its memory.

    Raises what ``compile_kernels`` raises. ``folder`` keeps what was compiled."""

    def __init__(self, artifact: Artifact, *, folder: Path) -> None:
        self._artifact = artifact
        self._path = compile_kernels(artifact.source, artifact.launches, folder=folder)
        self._library = _load(self._path)
        self._closed = False
        self.report: Report | None = None

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

    def sample(self, *, batch: int, most_blocks: int = COUNTED_BLOCKS) -> Report:
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

    def __enter__(self) -> Machine:
        return self

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
                    values[position] = argument.value.at(batch)
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

    def _read_report(self) -> Report:
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
                kind=list(Kind)[fault.kind],
                where=fault.region.decode(),
                detail=fault.detail.decode(),
                offset=fault.offset,
                thread=fault.thread,
                block=fault.block,
                line=line,
                text=source[line - 1].strip() if 0 < line <= len(source) else "",
                count=fault.count,
            )
            for fault, line in zip(native, lines, strict=True)
        ]
        counts = Counts(**{name: getattr(found.counts, name) for name in Counts.__dataclass_fields__})
        return Report(faults=tuple(sorted(faults, key=lambda fault: list(Kind).index(fault.kind))), counts=counts)


_STOPPING = (Kind.OUT_OF_BOUNDS, Kind.MISALIGNED, Kind.DIVERGENCE)


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
    return [size.at(batch) if isinstance(size, Extent) else size for size in launch.grid]


def _load(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"the simulator cannot load what g++ made: {error}") from None
    library.sim_tensor.restype = library.sim_found.restype = library.sim_base.restype = ctypes.c_void_p
    return library
