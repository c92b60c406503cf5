"""How much memory there is: a GPU's; the machine's, or less if a control group of this process has a lower limit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LITTLE_BYTES = 1 << 30
"""With less than this available, a process that runs out of memory is not to blame."""

_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def free_bytes(kind: str) -> int:
    """Memory that tensors can still take: a GPU's own for ``cuda``, else the machine's."""
    if kind != "cuda":
        return available_bytes()
    import torch  # late: build workers do without it

    free: int = torch.cuda.mem_get_info()[0]
    return free


def whole_bytes(kind: str) -> int:
    """Memory that tensors could take if nothing else ran: a GPU's own for ``cuda``, else the machine's."""
    if kind != "cuda":
        return total_bytes()
    import torch

    whole: int = torch.cuda.mem_get_info()[1]
    return whole


def available_bytes() -> int:
    """Memory that this process and its children can still take."""
    machine = _machine().available
    return max(0, min([machine, *(limit - used for limit, used in _groups())]))


def total_bytes() -> int:
    """Memory that this process and its children could take if nothing else ran."""
    machine = _machine().total
    return min([machine, *(limit for limit, _ in _groups())])


class _Machine(NamedTuple):
    available: int
    total: int


def _machine() -> _Machine:
    try:
        import psutil
    except ImportError:  # where kernels come from packs it may be missing
        sizes = dict(line.split()[:2] for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
        return _Machine(*(int(sizes[name]) << 10 for name in ("MemAvailable:", "MemTotal:")))
    memory = psutil.virtual_memory()
    return _Machine(memory.available, memory.total)


def _groups() -> Iterator[tuple[int, int]]:
    """Limit and use, in bytes, of each control group (version 2) around this process that has a limit. In a container
    its own group is the root, whatever path the system has for it."""
    try:
        lines = _MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:  # Linux only
        return
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    group = _MOUNT / path.strip("/")
    for folder in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError):  # no such group here, or "max"
            limit = int((folder / "memory.max").read_text(encoding="utf-8"))
            statistics = dict(
                line.split() for line in (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
            )
            # Cached files are dropped when memory is needed.
            yield (
                limit,
                int((folder / "memory.current").read_text(encoding="utf-8")) - int(statistics.get("inactive_file", 0)),
            )
        if folder == _MOUNT:
            return
