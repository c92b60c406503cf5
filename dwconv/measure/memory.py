"""How much memory there is: the machine's, or less if the control group of this process has a lower limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

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


def available_bytes() -> int:
    """Memory that this process and its children can still take."""
    machine: int = psutil.virtual_memory().available
    return max(0, min([machine, *(limit - used for limit, used in _groups())]))


def total_bytes() -> int:
    """Memory that this process and its children could take if nothing else ran."""
    machine: int = psutil.virtual_memory().total
    return min([machine, *(limit for limit, _ in _groups())])


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
    """Limit and use from the group at ``path`` up to the root. A container sees its own group as the root, whatever
    ``path`` says."""
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
