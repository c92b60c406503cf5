"""How much memory there is: a GPU's; the machine's, or less if a control group of this process has a lower limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

LITTLE_BYTES = 1 << 30
"""With less than this available, a process that runs out of memory is not to blame."""

_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, kw_only=True)
class _Files:
    """The names of the files in one version of control groups."""

    limit: str
    used: str
    reclaimable: str
    """In memory.stat: cached files, which the system drops when memory is needed."""


_V1 = _Files(limit="memory.limit_in_bytes", used="memory.usage_in_bytes", reclaimable="total_inactive_file")
_V2 = _Files(limit="memory.max", used="memory.current", reclaimable="inactive_file")


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
        sizes = dict(line.split()[:2] for line in Path("/proc/meminfo").read_text().splitlines())
        return _Machine(*(int(sizes[name]) << 10 for name in ("MemAvailable:", "MemTotal:")))
    memory = psutil.virtual_memory()
    return _Machine(memory.available, memory.total)


def _groups() -> Iterator[tuple[int, int]]:
    """Limit and use, in bytes, of each control group around this process that has a limit."""
    try:
        lines = _MEMBERSHIP.read_text().splitlines()
    except OSError:  # Linux only
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _upwards(_MOUNT, path, names=_V2)
        elif "memory" in controllers.split(","):
            yield from _upwards(_MOUNT / "memory", path, names=_V1)


def _upwards(mount: Path, path: str, *, names: _Files) -> Iterator[tuple[int, int]]:
    """Limit and use from the group at ``path`` up to the root. In a container its own group is the root, whatever
    ``path`` is."""
    group = mount / path.strip("/")
    for folder in (group, *group.parents):
        try:
            limit = int((folder / names.limit).read_text())
            statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            yield limit, int((folder / names.used).read_text()) - int(statistics.get(names.reclaimable, 0))
        except (OSError, ValueError):  # no such group here, or "max"
            pass
        if folder == mount:
            return
