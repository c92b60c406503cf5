"""The geometry of one axis, against the definition: output o and tap k meet input o·stride + k·dilation − padding."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dwconv.errors import InvalidWorkload
from dwconv.problems.workload import Workload
from dwconv.schedules.tap_loops import full_source_loops, source_loops, tap_groups
from dwconv.schedules.taps import Axis, TileRun, column_runs, rolled_column_runs

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


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    """From y to x, or from dx to dy."""
    return draw(st.sampled_from([Axis.of_convolution, Axis.of_input_gradient]))(draw(workloads()), 1)


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


def in_runs(axis: Axis, runs: list[TileRun]) -> list[tuple[int, int, int]]:
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


@given(axes())
@settings(max_examples=200, deadline=None)
def test_tap_loops_are_the_live_taps_of_an_output(axis: Axis) -> None:
    for out in range(axis.down):
        live = {tap: axis.meets(out, tap) for tap in range(axis.taps) if axis.meets(out, tap) is not None}
        loop = axis.tap_loop(out)
        turns = range(loop.count) if loop else ()
        assert {loop.first + q * loop.period: loop.at + q * loop.delta for q in turns} == live


@given(axes(), st.integers(1, 8), st.integers(0, 4))
@settings(max_examples=200, deadline=None)
def test_loops_of_taps_and_of_sources_are_the_reads_of_a_tile(axis: Axis, tiles: int, tile: int) -> None:
    width = tiles * axis.down
    for reads in (axis.reads(width), axis.live_reads(tile * width, width)):
        found = [
            (group.at + q * group.at_step + i * axis.up, group.out + i * group.out_step, group.tap + q * group.tap_step)
            for group in tap_groups(axis, reads)
            for q in range(group.taps)
            for i in range(group.outputs)
        ]
        assert sorted(found) == sorted((at, out, tap) for at, pairs in reads.items() for out, tap in pairs)
    expected = sorted((at, out, tap) for at, pairs in axis.reads(width).items() for out, tap in pairs)
    ways = [source_loops(axis, width, together=together) for together in (False, True)[: 1 + (abs(axis.step) == 1)]]
    for is_full, loops in [*((False, way) for way in ways), (True, full_source_loops(axis, width))]:
        met = [
            (loop.at + q * loop.delta, out, first + q * period)
            for loop in loops
            for q in range(loop.count)
            for out, first, period in loop.meetings
        ]
        assert sorted(each for each in met if is_full or 0 <= each[2] < axis.taps) == expected


@given(axes(), st.integers(1, 6))
@settings(max_examples=300)
def test_runs_are_those_that_a_walk_from_tile_to_tile_finds(axis: Axis, tiles: int) -> None:
    width, walked = tiles * axis.down, list[tuple[int, int, bool]]()
    for start in range(0, axis.outputs, width):
        met = [axis.origin(start) + at for at in axis.reads(width)]
        interior = start + width <= axis.outputs and all(0 <= at < axis.inputs for at in met)
        assert axis.is_interior(start, width) == interior
        walked.append((start, min(width, axis.outputs - start), interior))
    runs = column_runs(axis, width)
    assert [(run.at(tile), run.width, run.interior) for run in runs for tile in range(run.tiles)] == walked
    assert sum(run.interior for run in runs) <= 1
    covered = [run.start + at for run in rolled_column_runs(axis, width) for at in range(run.tiles * run.width)]
    assert covered == list(range(axis.outputs))


def test_a_long_row_is_not_walked() -> None:
    row = Workload(pass_="fprop", batch=1, channels=1, input_size=(1, 1 << 40), kernel=(1, 4), padding=((0, 0), (3, 0)))
    for axis in (Axis.of_convolution(row, 1), Axis.of_input_gradient(row, 1)):
        for runs in (column_runs(axis, 4), rolled_column_runs(axis, 4)):
            assert sum(run.tiles * run.width for run in runs) == 1 << 40 and len(runs) <= 6
