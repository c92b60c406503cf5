"""Stored: what a graph holds in memory while it runs, and for how long: as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.fx import Node

from dwconv.concurrency.graph.operators import tensors_of

_HELD_BY_OTHERS = "primals"
"""AOTAutograd's name for what the user passes: parameters and inputs, which stay whatever the graph does."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Memory that several views may share."""

    bytes: int
    made_by: int | None
    """The task; None for what was kept for the backward pass and is there from the start."""
    read_by: tuple[int, ...]
    """Tasks. After the last one it is free."""
    returned: bool
    """True if it stays: the graph returns it, for the caller or the backward pass."""


def stored(
    inputs: Sequence[Node], grouped: Sequence[Sequence[Node]], owner: Mapping[Node, int], returned: set[Node]
) -> tuple[Stored, ...]:
    """What the graph is given and hands on between its tasks. ``owner``: by operator, its task."""
    made: dict[int, int | None] = {}
    size: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    stays: set[int] = set()
    for node in [*inputs, *(node for group in grouped for node in group)]:
        if node not in owner and node.name.startswith(_HELD_BY_OTHERS):
            for tensor in tensors_of([node]):
                made[_storage(tensor)] = -1
            continue
        for tensor in tensors_of([node]):
            storage = _storage(tensor)
            made.setdefault(storage, owner.get(node))
            size[storage] = tensor.untyped_storage().nbytes()
            others = {owner[user] for user in node.users if user in owner} - {made[storage]}
            readers.setdefault(storage, set()).update(others)
            if node in returned:
                stays.add(storage)
    return tuple(
        Stored(bytes=size[each], made_by=by, read_by=tuple(sorted(readers[each])), returned=each in stays)
        for each, by in made.items()
        if by != -1 and (readers[each] or each in stays)
    )


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
