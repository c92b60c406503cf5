"""The findings of a simulated run: faults, and the cost of its memory accesses."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
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

    kind: Kind
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
    count: int
    """How often it occurred at this line."""

    def __str__(self) -> str:
        line = f", line {self.line}: {self.text[:120]}" if self.line else ""
        at = f" at byte {self.offset}" if self.where not in ("barrier", "warp", "shuffle") else ""
        return f"{self.kind.value}: {self.where}{at} {self.detail} (block {self.block}, thread {self.thread}{line})"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Memory requests in the blocks that were counted; a request is one instruction of one warp."""

    shared_requests: int = 0
    shared_wavefronts: int = 0
    """Wavefronts that shared memory took."""
    shared_ideal: int = 0
    """Wavefronts that the same requests would take without bank conflicts."""
    load_requests: int = 0
    """Loads from global memory."""
    load_sectors: int = 0
    """Sectors of 32 bytes that the loads touched."""
    load_ideal: int = 0
    """Sectors that the bytes asked for would fill, were they side by side and aligned."""
    store_requests: int = 0
    store_sectors: int = 0
    store_ideal: int = 0
    blocks: int = 0
    """Blocks that were counted."""
    threads: int = 0
    """Threads that ran, in all blocks."""
    barriers: int = 0
    accesses: int = 0
    in_step: int = 0
    """Accesses that are ordered only because the lanes of a warp run in step, which CUDA does not promise: a
    __syncwarp() is missing."""

    @property
    def wavefronts_per_ideal(self) -> float:
        """Wavefronts over the ideal; 1.0 means no bank conflict."""
        return self.shared_wavefronts / self.shared_ideal if self.shared_ideal else 1.0

    @property
    def load_sectors_per_ideal(self) -> float:
        return self.load_sectors / self.load_ideal if self.load_ideal else 1.0

    @property
    def store_sectors_per_ideal(self) -> float:
        return self.store_sectors / self.store_ideal if self.store_ideal else 1.0

    @property
    def load_sectors_per_request(self) -> float:
        return self.load_sectors / self.load_requests if self.load_requests else 0.0

    @property
    def store_sectors_per_request(self) -> float:
        return self.store_sectors / self.store_requests if self.store_requests else 0.0

    def resources(self) -> dict[str, int]:
        """Numbers for a record, in whole percent of the ideal; 100 is perfect."""
        return {
            "shared_wavefronts_percent": round(100 * self.wavefronts_per_ideal),
            "load_sectors_percent": round(100 * self.load_sectors_per_ideal),
            "store_sectors_percent": round(100 * self.store_sectors_per_ideal),
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    faults: tuple[Fault, ...]
    """Those that explain most first."""
    counts: Counts

    @property
    def clean(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults)) or "clean"


# -- as the runtime has them (state.h) -------------------------------------------------------------------------------


class NativeFault(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "thread", "line", "unused")),
        *((name, ctypes.c_int64) for name in ("block", "offset", "count")),
        ("place", ctypes.c_uint64),
        ("region", ctypes.c_char * 40),
        ("detail", ctypes.c_char * 88),
    )


class NativeCounts(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in Counts.__dataclass_fields__)


class NativeFound(ctypes.Structure):
    _fields_ = (
        ("counts", NativeCounts),
        ("faults", ctypes.c_int32),
        ("stopped", ctypes.c_int32),
        ("fault", NativeFault * 24),
    )
