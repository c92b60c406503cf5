"""The geometry of one axis, against the definition: output o and tap k meet input o·stride + k·dilation − padding."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dwconv.errors import InvalidWorkload
from dwconv.problems.workload import Workload
from dwconv.schedules.taps import (
    Axis,
    Run,
    column_runs,
    full_source_loops,
    rolled_column_runs,
    source_loops,
    tap_groups,
)

SMALL = st.integers(1, 5)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    try:
        return Workload(
            pass_="fprop", batch=1, channels=1, input_size=(1, draw(st.integers(1, 24))),
            kernel=(1, draw(st.integers(1, 9))), stride=(1, draw(SMALL)), dilation=(1, draw(SMALL)),
            padding=((0, 0), (draw(st.integers(0, 6)), draw(st.integers(0, 6)))),
        )  # fmt: skip
    except InvalidWorkload:
        assume(False)
        raise


def meetings(workload: Workload) -> set[tuple[int, int, int]]:
    """(input, output, tap) of a convolution, padding left out."""
    stride, dilation, padding = workload.stride[1], workload.dilation[1], workload.padding[1][0]
    found = set()
    for out in range(workload.output_size[1]):
        for tap in range(workload.kernel[1]):
            at = out * stride + tap * dilation - padding
            if 0 <= at < workload.input_size[1]:
                found.add((at, out, tap))
    return found


def in_runs(axis: Axis, runs: list[Run]) -> list[tuple[int, int, int]]:
    """(source, result, tap) of all tiles of the runs, each as the kernel would emit it."""
    found = []
    for run in runs:
        for tile in range(run.tiles):
            start = run.start + tile * run.width
            reads = axis.reads_of(run) if run.tiles == 1 or run.interior else axis.live_reads(start, run.width).items()
            found += [(axis.origin(start) + at, start + out, tap) for at, pairs in reads for out, tap in pairs]
    return found


@given(workloads(), st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_tiles_meet_every_live_tap_once(workload: Workload, tiles: int) -> None:
    forward, backward = Axis.of_convolution(workload, 1), Axis.of_input_gradient(workload, 1)
    expected = meetings(workload)
    for cut in (column_runs, rolled_column_runs):
        read = in_runs(forward, cut(forward, tiles))
        assert len(read) == len(expected) and set(read) == expected
        turned = in_runs(backward, cut(backward, tiles * backward.down))
        assert len(turned) == len(expected)
        assert {(x, y, tap) for y, x, tap in turned} == expected


@given(workloads())
@settings(max_examples=100, deadline=None)
def test_tap_loops_are_the_live_taps_of_an_output(workload: Workload) -> None:
    for axis in (Axis.of_convolution(workload, 1), Axis.of_input_gradient(workload, 1)):
        for out in range(axis.down):
            live = {tap: axis.meets(out, tap) for tap in range(axis.taps) if axis.meets(out, tap) is not None}
            loop = axis.tap_loop(out)
            if loop is None:
                assert not live
            else:
                turns = range(loop.count)
                assert {loop.first + q * loop.period: loop.at + q * loop.delta for q in turns} == live


@given(workloads(), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_runs_cover_the_axis_once(workload: Workload, tiles: int) -> None:
    axis = Axis.of_convolution(workload, 1)
    for cut in (column_runs, rolled_column_runs):
        covered = [run.start + at for run in cut(axis, tiles) for at in range(run.tiles * run.width)]
        assert covered == list(range(axis.outputs))


@given(workloads(), st.integers(1, 8), st.integers(0, 4))
@settings(max_examples=150, deadline=None)
def test_groups_of_taps_are_the_reads_of_a_tile(workload: Workload, tiles: int, tile: int) -> None:
    for axis in (Axis.of_convolution(workload, 1), Axis.of_input_gradient(workload, 1)):
        width = tiles * axis.down
        for reads in (axis.reads(width), axis.live_reads(tile * width, width)):
            found = [
                (
                    group.at + q * group.at_step + i * axis.up,
                    group.out + i * group.out_step,
                    group.tap + q * group.tap_step,
                )
                for group in tap_groups(axis, reads)
                for q in range(group.taps)
                for i in range(group.outputs)
            ]
            expected = {(at, out, tap) for at, pairs in reads.items() for out, tap in pairs}
            assert len(found) == len(expected) and set(found) == expected


@given(workloads(), st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_source_loops_are_the_reads_of_a_tile(workload: Workload, tiles: int) -> None:
    for axis in (Axis.of_convolution(workload, 1), Axis.of_input_gradient(workload, 1)):
        width = tiles * axis.down
        expected = {(at, out, tap) for at, pairs in axis.reads(width).items() for out, tap in pairs}
        for together in (False, True) if abs(axis.step) == 1 else (False,):
            found = [
                (loop.at + q * loop.delta, out, first + q * period)
                for loop in source_loops(axis, width, together=together)
                for q in range(loop.count)
                for out, first, period in loop.meetings
                if 0 <= first + q * period < axis.taps
            ]
            assert len(found) == len(expected) and set(found) == expected


@given(workloads(), st.integers(1, 6))
@settings(max_examples=300)
def test_full_source_loops_meet_a_tap_in_every_turn(workload: Workload, tiles: int) -> None:
    for axis in (Axis.of_convolution(workload, 1), Axis.of_input_gradient(workload, 1)):
        width = tiles * axis.down
        found = [
            (loop.at + turn * loop.delta, out, first + turn * step)
            for loop in full_source_loops(axis, width)
            for turn in range(loop.count)
            for out, first, step in loop.meetings
        ]
        assert sorted(found) == sorted((at, out, tap) for at, met in axis.reads(width).items() for out, tap in met)


@given(workloads(), st.integers(1, 6))
@settings(max_examples=300)
def test_runs_are_those_that_a_walk_from_tile_to_tile_finds(workload: Workload, tiles: int) -> None:
    for axis in (Axis.of_convolution(workload, 1), Axis.of_input_gradient(workload, 1)):
        width, walked = tiles * axis.down, list[tuple[int, int, bool]]()
        for start in range(0, axis.outputs, width):
            met = [axis.origin(start) + at for at in axis.reads(width)]
            interior = start + width <= axis.outputs and all(0 <= at < axis.inputs for at in met)
            assert axis.is_interior(start, width) == interior
            walked.append((start, min(width, axis.outputs - start), interior))
        runs = column_runs(axis, width)
        assert [
            (run.start + tile * run.width, run.width, run.interior) for run in runs for tile in range(run.tiles)
        ] == walked
        assert sum(run.interior for run in runs) <= 1


def test_a_long_row_is_not_walked() -> None:
    row = Workload(pass_="fprop", batch=1, channels=1, input_size=(1, 1 << 40), kernel=(1, 4), padding=((0, 0), (3, 0)))
    for axis in (Axis.of_convolution(row, 1), Axis.of_input_gradient(row, 1)):
        for runs in (column_runs(axis, 4), rolled_column_runs(axis, 4)):
            assert sum(run.tiles * run.width for run in runs) == 1 << 40 and len(runs) <= 6
