"""This machine's CPU, as the system describes it: its name, its vector sets, its caches, and how much of it is ours."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

KiB = 1024
MiB = 1024 * KiB

MOST_PER_CPU = 16 * MiB
"""What a CPU can have of a last-level cache, at most: hardly any has more for each of those that share it, but a
virtual machine may see the cache of a whole socket beside the few CPUs that it was given."""

_CPUS = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_UNKNOWN_INNER_BYTES = (32 * KiB, 512 * KiB)
_UNKNOWN_LAST_BYTES = 8 * MiB


@dataclass(frozen=True, kw_only=True)
class VectorSet:
    """Vector instructions that kernels can be compiled for."""

    name: str
    bytes: int
    """Size of a register."""
    flags: tuple[str, ...]
    """Words in ``/proc/cpuinfo`` of a CPU that has it."""


VECTOR_SETS = (
    VectorSet(name="avx512", bytes=64, flags=("avx512f",)),
    VectorSet(name="avx2", bytes=32, flags=("avx2", "fma")),
    VectorSet(name="avx", bytes=32, flags=("avx",)),
    VectorSet(name="neon", bytes=16, flags=("asimd",)),
)
"""The widest first."""


@dataclass(frozen=True, kw_only=True)
class CpuFacts:
    """A CPU by name, with its vector sets."""

    name: str
    vector_set: VectorSet
    """The widest."""
    others: tuple[str, ...]
    """Names of the others that it has."""

    def has(self, vector_set: str) -> bool:
        return vector_set in (self.vector_set.name, *self.others)


@cache
def cpu_facts() -> CpuFacts:
    """This machine's CPU."""
    return facts_in(_cpuinfo())


@cache
def instructions() -> frozenset[str]:
    """The words in ``/proc/cpuinfo`` for instructions that a compiler may use for this CPU, ``avx512vl`` or ``asimd``;
    empty where the system does not list them."""
    return instructions_in(_cpuinfo())


def instructions_in(cpuinfo: str) -> frozenset[str]:
    """Those that ``/proc/cpuinfo`` lists."""
    return frozenset(word for word in _flags_in(cpuinfo) if _INSTRUCTIONS.match(word))


_INSTRUCTIONS = re.compile(
    r"(s?sse|avx|fma|f16c|bmi|abm|popcnt|movbe|adx|aes|vaes|pclmul|vpclmul|gfni|amx|sha|asimd|sve|fp|crc32|atomics)"
)
"""Also those that kernels seldom have: a compiler may use what its CPU has."""


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""


def _flags_in(cpuinfo: str) -> set[str]:
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return set(flags[1].split()) if flags else set()


def facts_in(cpuinfo: str) -> CpuFacts:
    """The CPU that ``/proc/cpuinfo`` describes."""
    words = _flags_in(cpuinfo)
    if not words and platform.machine() in ("aarch64", "arm64"):  # every one of them has it
        words = {"asimd"}
    found = [each for each in VECTOR_SETS if words.issuperset(each.flags)]
    widest = found[0] if found else VectorSet(name=platform.machine(), bytes=16, flags=())
    return CpuFacts(name=name_in(cpuinfo), vector_set=widest, others=tuple(each.name for each in found[1:]))


def name_in(cpuinfo: str) -> str:
    """The name of this CPU, by which records of others do not count here. A name without a number, as virtual machines
    have it (``AMD EPYC``), stands for many CPUs: the family and model are added."""
    facts: dict[str, str] = dict(re.findall(r"^([^:\n]+?)\s*:[ \t]*(\S.*)$", cpuinfo, re.MULTILINE))
    name = facts.get("model name", "")
    if re.search(r"\d", name.partition("@")[0]):  # what follows @ is a clock
        return name
    numbers = [f"{word} {facts[fact]}" for fact, word in _NUMBERS.items() if fact in facts]
    return " ".join([name, *numbers]).strip() or platform.processor() or platform.machine() or os.name


_NUMBERS = {"cpu family": "family", "model": "model", "CPU implementer": "implementer", "CPU part": "part"}


# -- caches ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cache:
    """A cache for data."""

    level: int
    bytes: int
    cpus: frozenset[int]
    """That share it; all, where the system does not list them."""


@dataclass(frozen=True, kw_only=True)
class LastLevel:
    """What the threads of this process have of the last level of the caches."""

    ours_bytes: int
    """What they can count on: the share of the CPUs that this process may use, ``MOST_PER_CPU`` for each at most."""
    others_bytes: int
    """The rest, which other work may use: our data may be found there, or not."""


@cache
def last_level(*, threads: int, root: Path = _CPUS) -> LastLevel:
    """What ``threads`` threads have of the last level: they spread over as many caches as there are threads, if this
    process may use CPUs of so many."""
    allowed = _allowed_cpus(threads=threads)
    usable = min(1.0, cpu_quota() / len(allowed))
    ours: list[tuple[int, int]] = []
    for last in _last_caches(allowed, root=root):
        share = usable * len(last.cpus & allowed) / len(last.cpus)
        most = MOST_PER_CPU * len(last.cpus & allowed)
        ours.append((min(int(last.bytes * share), most), last.bytes))
    used = sorted(ours, reverse=True)[:threads] or [(_UNKNOWN_LAST_BYTES, _UNKNOWN_LAST_BYTES)]
    ours_bytes = max(1, sum(mine for mine, _ in used))
    return LastLevel(ours_bytes=ours_bytes, others_bytes=max(0, sum(whole for _, whole in used) - ours_bytes))


@cache
def inner_cache_bytes(*, root: Path = _CPUS) -> tuple[int, ...]:
    """What a core has of each level of the caches before the last, the nearest first: of a level that several cores
    share, an equal part."""
    inner = _caches_of(min(_allowed_cpus(threads=1)), root=root)[:-1]
    if not inner:
        return _UNKNOWN_INNER_BYTES
    siblings = len(inner[0].cpus)  # hardware threads of a core share the nearest
    return tuple(each.bytes // max(1, len(each.cpus) // siblings) for each in inner)


def _last_caches(allowed: frozenset[int], *, root: Path) -> list[Cache]:
    """The caches of the last level that ``allowed`` CPUs have, each once."""
    found: list[Cache] = []
    for cpu in sorted(allowed):
        if not any(cpu in known.cpus for known in found) and (levels := _caches_of(cpu, root=root)):
            found.append(levels[-1])
    return found


def _caches_of(cpu: int, *, root: Path) -> list[Cache]:
    """The caches for data of one CPU, as Linux lists them, the nearest first; none where it does not."""
    found: dict[int, Cache] = {}
    for index in (root / f"cpu{cpu}" / "cache").glob("index*"):
        with contextlib.suppress(OSError, ValueError):
            size = re.fullmatch(r"([1-9]\d*)([KMG]?)", (index / "size").read_text(encoding="utf-8").strip())
            if size and (index / "type").read_text(encoding="utf-8").strip() != "Instruction":
                level = int((index / "level").read_text(encoding="utf-8"))
                bytes_ = int(size[1]) * {"": 1, "K": KiB, "M": MiB, "G": 1024 * MiB}[size[2]]
                found[level] = Cache(level=level, bytes=bytes_, cpus=_sharing(index) | {cpu})
    return [found[level] for level in sorted(found)]


def _sharing(index: Path) -> frozenset[int]:
    try:
        return cpus_in((index / "shared_cpu_list").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return frozenset(range(os.cpu_count() or 1))


def cpus_in(text: str) -> frozenset[int]:
    """The CPUs of a list as Linux writes them: ``0-3,8,10-11``. Raises ValueError for anything else."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


# -- what is ours ----------------------------------------------------------------------------------------------------


def allowed_cores() -> set[int] | None:
    """The cores that this process may use; None if it may use all."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def cores() -> int:
    """How many cores this process can have at once: those it may use, or fewer if a container limits its time."""
    allowed = allowed_cores()
    count = len(allowed) if allowed else os.cpu_count() or 1
    quota = cpu_quota()
    return max(1, min(count, math.ceil(quota) if math.isfinite(quota) else count))


def _allowed_cpus(*, threads: int) -> frozenset[int]:
    """The CPUs that this process may use. If these are fewer than it has threads, all: OpenMP may have bound the thread
    that reads it to a CPU of its own."""
    everywhere = frozenset(range(os.cpu_count() or 1))
    allowed = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else everywhere
    return allowed if len(allowed) >= threads else everywhere | allowed


def cores_of_this_process(*, root: Path = _CPUS) -> list[int]:
    """A CPU of each core that this process may use; where Linux does not list them, all its CPUs."""
    found: list[int] = []
    seen: set[int] = set()
    for cpu in sorted(_allowed_cpus(threads=1)):
        if cpu not in seen:
            found.append(cpu)
            nearest = _caches_of(cpu, root=root)[:1]  # hardware threads of a core share it
            seen |= nearest[0].cpus if nearest else {cpu}
    return found


def domains_of(cpu: int, *, root: Path = _CPUS) -> tuple[int, ...]:
    """What a CPU shares with others, the largest first: the number of its NUMA node, and for each level of the caches,
    the last one first, the first CPU that has the same. CPUs of one core have the same. Empty where Linux does not list
    them."""
    nodes = [int(path.name[4:]) for path in (root / f"cpu{cpu}").glob("node[0-9]*") if path.name[4:].isdecimal()]
    levels = _caches_of(cpu, root=root)
    return (*nodes[:1], *(min(level.cpus) for level in reversed(levels))) if levels else ()


def cpu_quota() -> float:
    """How many CPUs a container lets this process have at once; infinity if it sets no limit."""
    try:
        quota, period = map(float, _QUOTA.read_text(encoding="utf-8").split())
    except (OSError, ValueError):  # no such limit, or "max"
        return math.inf
    return quota / period
