"""Topology: which cores are near each other, and the groupings of cores that the threads of a task may have.

    two last-level caches of four cores each      a task of four threads
    ┌─────────┐ ┌─────────┐
    │ 0 1 2 3 │ │ 4 5 6 7 │                       compact  0 1 2 3      what threads share stays near
    └─────────┘ └─────────┘                       spread   0 4 1 5      twice the caches, and the bandwidth of both
                                                  paired   0 0'1 1'     both hardware threads of two cores

Where all cores are alike there is one grouping, so nothing is timed for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest

from dwconv import settings
from dwconv.concurrency import second_threads
from dwconv.concurrency.task_graph import Grouping
from dwconv.system.cpu_facts import cores_of_this_process, domains_of
from dwconv.system.threads import kept_on

SPREAD: Grouping = "spread"
COMPACT: Grouping = "compact"
PAIRED: Grouping = "paired"


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The cores of this process, each by one of its processors."""

    domains: Mapping[int, tuple[int, ...]]
    """By core, what it shares with others, the largest first: a NUMA node, caches. All have as many."""
    seconds: Mapping[int, int]
    """By core, its second hardware thread, where that is idle."""

    def groupings(self, threads: int) -> tuple[Grouping, ...]:
        """Those that differ for so many threads; none if all cores are alike to them."""
        found: dict[object, Grouping] = {}
        for grouping in (SPREAD, COMPACT, PAIRED) if 1 < threads <= len(self.domains) else ():
            found.setdefault(self._shared(self.processors(threads, grouping)), grouping)
        return tuple(found.values()) if len(found) > 1 else ()

    def processors(self, threads: int, grouping: Grouping, *, free: Collection[int] | None = None) -> list[int]:
        """So many processors in a grouping, of the cores that are ``free``; all are, by default. Without so many pairs
        the threads are compact."""
        cores = sorted(self.domains if free is None else free, key=lambda core: (self.domains[core], core))
        pairs = [core for core in cores if core in self.seconds][: (threads + 1) // 2]
        if grouping == PAIRED and 2 * len(pairs) >= threads:
            return [each for core in pairs for each in (core, self.seconds[core])][:threads]
        return self._in_turns(cores, level=0)[:threads] if grouping == SPREAD else self._together(cores, threads)

    def _together(self, cores: Sequence[int], threads: int) -> list[int]:
        """Cores of the smallest domain that has enough of them; of several, the one with the fewest."""
        for level in reversed(range(self._levels)):
            enough = [group for group in self._groups(cores, level) if len(group) >= threads]
            if enough:
                return min(enough, key=len)[:threads]
        return list(cores[:threads])

    def _in_turns(self, cores: Sequence[int], *, level: int) -> list[int]:
        """One core of each domain in turns, and so within a domain."""
        if level == self._levels:
            return list(cores)
        groups = [self._in_turns(group, level=level + 1) for group in self._groups(cores, level)]
        return [core for turn in zip_longest(*groups) for core in turn if core is not None]

    def _groups(self, cores: Sequence[int], level: int) -> list[list[int]]:
        """By domain of one level."""
        found: dict[object, list[int]] = {}
        for core in cores:
            found.setdefault(self.domains[core][: level + 1], []).append(core)
        return list(found.values())

    def _shared(self, processors: Sequence[int]) -> object:
        """Equal where as many threads share each domain, and each core."""
        core_of = {second: core for core, second in self.seconds.items()}
        cores = [core_of.get(each, each) for each in processors]
        levels = [tuple(sorted(map(len, self._groups(cores, level)))) for level in range(self._levels)]
        return (*levels, tuple(sorted(map(cores.count, cores))))

    @property
    def _levels(self) -> int:
        return min(map(len, self.domains.values()), default=0)

    @contextmanager
    def kept(self, threads: int, grouping: Grouping) -> Iterator[None]:
        """All threads of this process run on processors of the grouping. Raises OSError where the system does not
        permit it."""
        with kept_on(self.processors(threads, grouping)):
            yield


ALIKE = Topology(domains={}, seconds={})
"""Cores among which the system chooses."""


def topology(cores: int) -> Topology:
    """Of this machine, for a process with so many threads. ``ALIKE`` if OpenMP binds threads itself, or if the process
    does not use all its cores: other processes may be meant to have the rest."""
    mine = cores_of_this_process(root=second_threads.TOPOLOGY)
    domains = {core: domains_of(core, root=second_threads.TOPOLOGY) for core in mine}
    if settings.openmp_binds_threads() or cores < len(mine) or len({len(each) for each in domains.values()}) != 1:
        return ALIKE
    pairs = second_threads.idle_pairs(cores)
    return Topology(domains=domains, seconds={core: second for core, second in pairs if core in domains})
