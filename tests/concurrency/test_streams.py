"""StreamEngine on streams that only record calls: which waits for which, and whose memory is used where; and the choice
of schedules for it. It has not run on a GPU."""

from __future__ import annotations

import contextlib
import dataclasses
from functools import partial

import pytest
import torch

from dwconv.concurrency import choose_schedule, program, task_timer, timed_schedules
from dwconv.concurrency.lanes import one_at_a_time
from dwconv.concurrency.options import Options
from dwconv.concurrency.program import Program, StreamEngine
from dwconv.concurrency.schedules_to_try import forced_schedule
from dwconv.concurrency.tasks import cut
from dwconv.records.record import Measurement
from tests.traced_graphs import branches, branches_inputs, chain, dealt, noting_what_is_held, traced

INPUTS = branches_inputs()
BEFORE = -1
"""Stands for all that the caller's stream does before the graph."""


class Stream:
    """Knows by task what has certainly ended when work that is issued now begins."""

    def __init__(self, name):
        self.name, self.sees = name, set()

    def wait_stream(self, other):
        self.sees |= other.sees

    def record_event(self):
        return frozenset(self.sees)

    def wait_event(self, event):
        self.sees |= event


class Device:
    """Behaves as ``torch.cuda``, as far as the engine asks."""

    device = "some-gpu"

    def __init__(self):
        self.current, self.made = Stream("caller"), []

    def current_stream(self):
        return self.current

    def Stream(self):
        self.made.append(Stream(f"other {len(self.made)}"))
        return self.made[-1]

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before


def address(tensor):
    return tensor.untyped_storage().data_ptr()


@pytest.fixture
def used(monkeypatch):
    """By address of a tensor's memory, the names of the streams that use it."""
    found = {}
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)

    def record_stream(tensor, stream):
        found.setdefault(address(tensor), set()).add(stream.name)

    monkeypatch.setattr(torch.Tensor, "record_stream", record_stream)
    return found


@pytest.mark.parametrize("seed", range(1, 5))
def test_every_task_waits_for_what_it_needs_and_says_what_it_reads(used, seed):
    graph = cut(traced(branches, INPUTS))
    device = Device()

    def checking(index, function):
        def run(values):
            stream = device.current
            assert {BEFORE, *graph.graph.tasks[index].needs} <= stream.sees
            for place in graph.reads[index]:
                assert stream.name in used[address(values[place])]
            function(values)
            stream.sees.add(index)

        return run

    functions = tuple(checking(index, function) for index, function in enumerate(graph.functions))
    watched = dataclasses.replace(graph, functions=functions)
    schedule = dealt(graph, workers=1 + seed, seed=seed)
    engine = StreamEngine(watched, schedule, device_api=device)
    others = {each.worker for each in schedule.placements} - {0}
    for _ in range(2):
        used.clear()
        device.current.sees = {BEFORE}
        found = engine.run([*INPUTS])
        assert device.current.name == "caller"
        assert device.current.sees == {BEFORE, *range(len(functions))}  # what comes next waits for all of them
        assert all("caller" in used[address(each)] for each in found)
        torch.testing.assert_close(found, branches(*INPUTS))
    assert len(device.made) == len(others)


def test_values_are_let_go_as_soon_as_they_are_read():
    x = torch.randn(512, 512)
    watched, held = noting_what_is_held(cut(traced(chain, [x])))
    StreamEngine(watched, one_at_a_time(watched, threads=1), device_api=Device()).run([x])
    assert len(held) >= 12 and max(held) <= 6


def test_streams_are_chosen_by_steps_that_wait_for_the_gpu(used, monkeypatch):
    """On one thread of the CPU no two tasks would run side by side."""
    graph, device, waited = Program(traced(branches, INPUTS)), Device(), []
    graph.on_gpu = True
    monkeypatch.setattr(program, "StreamEngine", partial(StreamEngine, device_api=device))
    monkeypatch.setattr(choose_schedule, "cuda_target", lambda: device)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(1))

    def once(calls, **_):
        waited.clear()
        calls["task"]()
        assert len(waited) == 1
        return {"task": Measurement(median_us=10.0, spread_us=0.0, rounds=1)}

    monkeypatch.setattr(task_timer, "time_in_turns", once)
    monkeypatch.setattr(timed_schedules, "_MOST_TURNS", 3)
    step = choose_schedule.Trial(INPUTS, written=()).step(lambda *args: graph.boxed()([*args]))
    found = choose_schedule.choose([graph], options=Options(strategies=("S3",)), cores=1, step=step, graph="")
    assert found.device == "some-gpu" and "S3" in found.steps and len(device.made) == 1
    waited.clear()
    step()
    assert len(waited) == 1
    forced = forced_schedule(graph.cut, part=0, options=Options(schedule="S3"), cores=1, on_gpu=True)
    assert forced.cores == 2 and {each.worker for each in forced.placements} == {0, 1}
