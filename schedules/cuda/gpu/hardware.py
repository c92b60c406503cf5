"""The hardware that NVIDIA GPUs since sm_80 have in common. ``dwconv.problems.target`` has the differences between
them.

Source: CUDA C++ Programming Guide, 'Compute Capabilities' and 'Shared Memory'."""

from __future__ import annotations

WARP = 32
"""Threads that issue together."""
MOST_THREADS_Z = 64
"""Threads that a block may have on z; x and y are bounded by all of them together."""

# -- memory --------------------------------------------------------------------------------------------------------

VECTOR_BYTES = 16
"""The widest load, store or asynchronous copy of a thread."""
LEAST_COPY_BYTES = 4
"""The least that cp.async copies."""
LINE_BYTES, SECTOR_BYTES = 128, 32
"""A line of a cache, and the parts of it that memory delivers."""

# -- shared memory -------------------------------------------------------------------------------------------------

BANKS, BANK_BYTES = 32, 4
SHARED_LANES = VECTOR_BYTES // BANK_BYTES
"""Words in the widest access of shared memory."""
STATIC_SHARED_BYTES = 48 * 1024
"""A kernel may have more shared memory only if it is dynamic."""
SYSTEM_SHARED_BYTES = 1024
"""The system's part of every block's shared memory."""
SHARED_BYTES_PER_UNIT = 128
"""Shared memory is handed out to blocks in such pieces."""

# -- registers -----------------------------------------------------------------------------------------------------

REGISTERS_PER_UNIT = 8
"""Registers of a thread are handed out in such pieces, to whole warps."""
