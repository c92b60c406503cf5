"""How much memory there is: a GPU's; the machine's, or less if a control group of this process has a lower limit."""

from __future__ import annotations

import contextlib
import os
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


class _Files(NamedTuple):
    """Of one version of control groups: the folder of its groups, and the names of their files."""

    folder: str
    limit: str
    used: str
    dropped: str
    """In memory.stat: cached files, which are dropped when memory is needed."""


_V1 = _Files("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Files("", "memory.max", "memory.current", "inactive_file")


def _groups() -> Iterator[tuple[int, int]]:
    """Limit and use, in bytes, of each control group around this process that has a limit. A system may have groups of
    both versions."""
    try:
        lines = os.fsdecode(_MEMBERSHIP.read_bytes()).splitlines()
    except OSError:  # Linux only
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _upwards(path, names=_V2)
        elif "memory" in controllers.split(","):
            yield from _upwards(path, names=_V1)


def _upwards(path: str, *, names: _Files) -> Iterator[tuple[int, int]]:
    """From the group at ``path`` to the root. In a container its own group is the root, whatever path the system has
    for it."""
    mount = _MOUNT / names.folder
    group = mount / path.strip("/")
    for folder in (group, *group.parents):
        with contextlib.suppress(OSError, ValueError):  # no such group here, or "max"
            limit, used = (int((folder / name).read_text(encoding="utf-8")) for name in (names.limit, names.used))
            lines = (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
            yield limit, used - int(dict(line.split() for line in lines).get(names.dropped, 0))
        if folder == mount:
            return
