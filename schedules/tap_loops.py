"""What a tile multiplies, as loops: taps that meet the same outputs together, or inputs that meet outputs together."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from dwconv.schedules.taps import Axis, TapLoop


@dataclass(frozen=True, kw_only=True)
class TapGroup:
    """Taps ``tap + q·tap_step`` for q in 0 … ``taps`` − 1, each of which the outputs ``out + i·out_step`` for i in
    0 … ``outputs`` − 1 meet at the inputs ``at + q·at_step + i·up``: a tile's products as two loops."""

    tap: int
    taps: int
    tap_step: int
    out: int
    outputs: int
    out_step: int
    at: int
    at_step: int


def tap_groups(axis: Axis, reads: dict[int, list[tuple[int, int]]]) -> list[TapGroup]:
    """The products of ``reads`` as loops: taps that meet the same outputs, at inputs evenly apart, together."""
    met: dict[int, list[tuple[int, int]]] = {}
    for at, pairs in reads.items():
        for out, tap in pairs:
            met.setdefault(tap, []).append((out, at))
    groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for tap, places in sorted(met.items()):
        groups.setdefault(tuple(out for out, _ in sorted(places)), []).append((tap, min(places)[1]))
    return [_tap_group(axis, outs, taps) for outs, taps in groups.items()]


def _tap_group(axis: Axis, outs: tuple[int, ...], taps: list[tuple[int, int]]) -> TapGroup:
    (tap, at), (next_tap, next_at) = taps[0], taps[min(1, len(taps) - 1)]
    return TapGroup(
        tap=tap, taps=len(taps), tap_step=next_tap - tap,
        out=outs[0], outputs=len(outs), out_step=axis.down, at=at, at_step=next_at - at,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SourceLoop:
    """Inputs ``at + q·delta`` for q in 0 … ``count`` − 1. Each of ``meetings`` is an output, with the tap at which it
    meets the first of these inputs, and the taps from one to the next; where there is no such tap, they do not meet."""

    at: int
    delta: int
    count: int
    meetings: tuple[tuple[int, int, int], ...]


def source_loops(axis: Axis, width: int, *, together: bool) -> list[SourceLoop]:
    """The inputs that a tile of ``width`` outputs reads as loops: one for each output or, where taps are next to each
    other, one for all of them ``together``."""
    if not together:
        return [_source_loop(out, axis.tap_loop(out)) for out in range(width)]
    assert abs(axis.step) == 1
    reads = axis.reads(width)
    first, last = min(reads, default=0), max(reads, default=-1)
    meetings = tuple(
        (out, (first * axis.down - out * axis.up - axis.shift) * axis.step, axis.down * axis.step)
        for out in range(width)
    )
    return [SourceLoop(at=first, delta=1, count=last - first + 1, meetings=meetings)]


def _source_loop(out: int, taps: TapLoop | None) -> SourceLoop:
    if taps is None:
        return SourceLoop(at=0, delta=1, count=0, meetings=((out, 0, 1),))
    return SourceLoop(at=taps.at, delta=taps.delta, count=taps.count, meetings=((out, taps.first, taps.period),))


def full_source_loops(axis: Axis, width: int) -> list[SourceLoop]:
    """Loops over what a tile meets in which every output meets a tap in every turn: where taps are next to each other,
    a loop for each set of outputs that meet an input at the same time, in order; else a loop for each output."""
    if abs(axis.step) != 1:
        return [loop for loop in source_loops(axis, width, together=False) if loop.count]
    (together,) = source_loops(axis, width, together=True)
    loops: list[SourceLoop] = []
    for turn in range(together.count):
        met = tuple(
            (out, first + turn * step, step)
            for out, first, step in together.meetings
            if 0 <= first + turn * step < axis.taps
        )
        last = loops[-1] if loops else None
        if last and [out for out, _, _ in last.meetings] == [out for out, _, _ in met]:
            loops[-1] = dataclasses.replace(last, count=last.count + 1)
        elif met:
            loops.append(SourceLoop(at=together.at + turn, delta=1, count=1, meetings=met))
    return loops
