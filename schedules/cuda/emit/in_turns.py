"""Work shared out over the threads of a block in turns, with several loads of a thread under way at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dwconv.schedules.emit import Expr, serial, when

Held = TypeVar("Held")
"""Registers of a thread."""


def in_turns(
    items: int,
    *,
    thread: Expr,
    threads: int,
    most: int,
    value: Callable[[], Held],
    fetch: Callable[[Held, Expr], Expr],
    keep: Callable[[Held, Expr], None],
) -> None:
    """``fetch`` fills a ``value`` from an item and says where it goes, ``keep`` puts it there. A thread fetches
    up to ``most`` items before it keeps the first; neighbouring threads take neighbouring items."""
    turns = -(-items // threads)
    rounds = -(-turns // most)
    together = -(-turns // rounds)
    for round_ in serial("round", rounds):
        fetched = []
        for turn in range(together):
            item = (round_ * together + turn) * threads + thread
            there = ((rounds - 1) * together + turn + 1) * threads <= items or item < items
            held = value()
            with when(there):
                fetched.append((there, held, fetch(held, item)))
        for there, held, at in fetched:
            with when(there):
                keep(held, at)
