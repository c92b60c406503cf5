"""Reads from a cubin the parameters of its kernels, and the resources that a block of them needs."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

_PARAMETER, _MAX_THREADS = 0x17, 0x05
"""Kinds of entries in the sections .nv.info.<kernel>."""
_HAS_BYTES = 4
"""The format of entries that state their length in bytes; others have two bytes."""


@dataclass(kw_only=True)
class Entry:
    """A kernel's parameters and resources."""

    parameter_bytes: list[int] = field(default_factory=list)
    """The size of each parameter, in order."""
    shared_bytes: int = 0
    """Static shared memory of a block."""
    registers: int = 0
    most_threads: int = 1024
    """The most threads that a block may have."""


def entries(cubin: bytes) -> dict[str, Entry]:
    """The kernels, by name."""
    found: dict[str, Entry] = {}
    parameters: dict[str, dict[int, int]] = {}
    for name, info, content, size in _sections(cubin):
        section, _, kernel = name.rpartition(".")
        if not kernel or section not in (".text", ".nv.info", ".nv.shared"):
            continue
        entry = found.setdefault(kernel, Entry())
        if section == ".text":
            entry.registers = info >> 24
        elif section == ".nv.shared":
            entry.shared_bytes = size
        else:
            for attribute, value in _attributes(content):
                if attribute == _PARAMETER:
                    _, ordinal, _, flags = struct.unpack("<IHHI", value)
                    parameters.setdefault(kernel, {})[ordinal] = flags >> 18
                elif attribute == _MAX_THREADS:
                    entry.most_threads = math.prod(struct.unpack("<III", value))
    for kernel, sizes in parameters.items():
        found[kernel].parameter_bytes = [sizes[ordinal] for ordinal in sorted(sizes)]
    return found


def _sections(cubin: bytes) -> Iterator[tuple[str, int, bytes, int]]:
    """Name, info, content and size of each section of the ELF file."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    size, count, of_names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * size) for i in range(count)]
    names_at = headers[of_names][4]
    for name_at, _, _, _, start, length, _, info, _, _ in headers:
        name = cubin[names_at + name_at : cubin.index(b"\0", names_at + name_at)].decode()
        yield name, info, cubin[start : start + length], length


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(content):
        form, attribute, count = struct.unpack_from("<BBH", content, at)
        end = at + 4 + (count if form == _HAS_BYTES else 0)
        yield attribute, content[at + 4 : end]
        at = end
