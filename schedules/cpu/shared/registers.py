"""Vector registers of a CPU: how many lanes one has, and how many of them may hold sums. No TVM here."""

from __future__ import annotations

from dwconv.problems.target import CpuTarget

CACHE_LINE_BYTES = 64


def channel_lanes(channels: int, target: CpuTarget) -> int:
    """Channels in a vector: as many as a register holds, or the power of two below the number of channels. If that is a
    symbol, it is no less than a register holds."""
    if not isinstance(channels, int):
        return target.lanes()
    return min(target.lanes(), 1 << (channels.bit_length() - 1))


def column_lanes(columns: int, target: CpuTarget) -> int:
    """Columns in a vector: as many as a register holds, or the power of two that holds them all, at least four."""
    return min(target.lanes(), max(4, 1 << (columns - 1).bit_length()))


def vector_count(elements: int, lanes: int) -> int:
    """Vectors that hold ``elements``; the last may overlap the one before."""
    return (elements + lanes - 1) // lanes


def vector_registers(target: CpuTarget) -> int:
    """Vector registers: AVX has 16, AVX-512 and Arm 32."""
    return 16 if target.vector_bytes == 32 else 32


def sum_registers(target: CpuTarget) -> int:
    """Vector registers that sums may take; the others hold what is multiplied."""
    return 3 * vector_registers(target) // 4


def sums_in_flight(target: CpuTarget) -> int:
    """Sums that multiply-adds in flight need, with some to spare: half of the registers."""
    return vector_registers(target) // 2


def sums_beside(weights: int, target: CpuTarget) -> int:
    """Sums that leave room for so many vectors of weights, and one of what they multiply, if there is room for the sums
    in flight."""
    left = vector_registers(target) - 1 - weights
    return min(sum_registers(target), max(sums_in_flight(target), left))


def fills_cache_lines(target: CpuTarget) -> bool:
    """Whether a vector is a whole cache line. Where it is less, a loop over pixels inside one over channels loads every
    line several times, unless a tile takes neighbouring vectors together."""
    return target.vector_bytes >= CACHE_LINE_BYTES
