"""Which planes of the source a plane of the result sums: a loop around what a thread does in 2-D."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dwconv.schedules.emit import Expr, planes_met, serial
from dwconv.schedules.taps import Axis


@dataclass(frozen=True, kw_only=True)
class SourcePlane:
    """One of them."""

    m: Expr
    """Which of the source channels of the result channel."""
    kd: Expr
    """The tap along the depth at which they meet; 0 in 2-D."""
    depth: Expr
    """Which plane of its channel; 0 in 2-D."""


def source_planes(channels: int, depths: Axis, depth: Expr) -> Iterator[SourcePlane]:
    """Those that plane ``depth`` of the result meets in each of ``channels``; no loop is left in 2-D."""
    for m in serial("m", channels):
        for kd, source_depth in planes_met(depths, depth):
            yield SourcePlane(m=m, kd=kd, depth=source_depth)
