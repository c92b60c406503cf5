"""Cutting: which operators of a graph make up one task.

    conv ─► bn ─► relu ─┬─► conv ─►          one task each: conv, bn       (large)
                        └─► pool ─► conv ─►  relu joins bn, pool its conv  (small)

A Python scheduler that hands over every operator costs more than it wins, so operators are joined. What is joined must
not make anything wait for longer than a small operator takes:

- an operator joins the task of one of its inputs if it needs nothing else but what that task needs too, and is small,
  or the only reader, the two not both large;
- a small task joins its only reader.

Sizes are estimates. They say where to cut, and nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch.fx import Node

from dwconv.concurrency.graph.operators import flops, is_free, keeps_order, moved_bytes

LARGE_US = 50.0
"""From this estimate on, two operators that follow each other stay apart: each may have its own threads."""
SMALL_US = 20.0
"""What others may wait for in vain: about what a hand-over costs, and some calls of operators."""
_CALL_US = 1.5
_FLOPS_PER_US = 40e3
_BYTES_PER_US = 8e3


@dataclass(kw_only=True)
class Group:
    """Operators that run one after the other, and the groups that they wait for and that wait for them."""

    nodes: list[Node]
    us: float
    """Estimated time."""
    delay_us: float = 0.0
    """Of that, the time by which its readers wait for what they do not need."""
    needs: set[int] = field(default_factory=set)
    readers: set[int] = field(default_factory=set)


def estimate_us(node: Node) -> float:
    """Roughly what the operator takes, on a core or a few."""
    return 0.0 if is_free(node) else work_us(flops=flops(node), bytes=moved_bytes(node))


def work_us(*, flops: float, bytes: int, threads: int = 1) -> float:
    """Roughly what so much work takes."""
    return _CALL_US + max(flops / _FLOPS_PER_US, bytes / _BYTES_PER_US) / threads


def groups(nodes: Sequence[Node]) -> list[list[Node]]:
    """``nodes``, in the order of the graph, as groups in an order in which they can run. Within a group the order is
    the graph's."""
    position = {node: place for place, node in enumerate(nodes)}
    found = _single(nodes, position)
    for place in range(len(nodes)):
        _join_an_input(found, place)
    for place in reversed(range(len(nodes))):
        _join_the_reader(found, place)
    return [sorted(group.nodes, key=position.__getitem__) for group in _in_order(found, position)]


def _single(nodes: Sequence[Node], position: dict[Node, int]) -> dict[int, Group]:
    """A group for each operator, by its place in the graph."""
    found: dict[int, Group] = {}
    last_in_order: int | None = None
    for place, node in enumerate(nodes):
        group = found[place] = Group(nodes=[node], us=estimate_us(node))
        group.needs = {position[each] for each in node.all_input_nodes if each in position}
        if keeps_order(node):
            group.needs |= set() if last_in_order is None else {last_in_order}
            last_in_order = place
        for needed in group.needs:
            found[needed].readers.add(place)
    return found


def _join_an_input(found: dict[int, Group], place: int) -> None:
    """Let the group join one that it needs, where nothing has to wait for long."""
    group = found[place]
    for needed in sorted(group.needs, key=lambda each: -found[each].us):
        other = found[needed]
        if not group.needs <= {needed} | other.needs:
            continue
        if other.readers == {place}:
            if group.us >= LARGE_US and other.us >= LARGE_US:
                continue
        else:
            if group.us + other.delay_us > SMALL_US:
                continue
            other.delay_us += group.us
        _merge(found, place, into=needed)
        return


def _join_the_reader(found: dict[int, Group], place: int) -> None:
    """Let a small group join its only reader."""
    group = found.get(place)
    if group is not None and group.us <= SMALL_US and len(group.readers) == 1:
        _merge(found, place, into=next(iter(group.readers)))


def _merge(found: dict[int, Group], place: int, *, into: int) -> None:
    gone, kept = found.pop(place), found[into]
    kept.nodes += gone.nodes
    kept.us += gone.us
    for needed in gone.needs:
        found_needed = kept if needed == into else found[needed]
        found_needed.readers.discard(place)
        if needed != into:
            found_needed.readers.add(into)
            kept.needs.add(needed)
    for reader in gone.readers:
        found_reader = kept if reader == into else found[reader]
        found_reader.needs.discard(place)
        if reader != into:
            found_reader.needs.add(into)
            kept.readers.add(reader)


def _in_order(found: dict[int, Group], position: dict[Node, int]) -> list[Group]:
    """An order in which the groups can run: as near to the graph's as it can be."""
    last = {place: max(position[node] for node in group.nodes) for place, group in found.items()}
    waiting = {place: len(group.needs) for place, group in found.items()}
    ready = [(last[place], place) for place, count in waiting.items() if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, place = heapq.heappop(ready)
        ordered.append(found[place])
        for reader in found[place].readers:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (last[reader], reader))
    assert len(ordered) == len(found), "groups wait for each other in a circle"
    return ordered
