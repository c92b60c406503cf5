"""StreamEngine on streams that only record calls: which waits for which, and whose memory is used where. It
has not run on a GPU."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import torch

from dwconv.concurrency.lanes import one_at_a_time
from dwconv.concurrency.program import StreamEngine
from dwconv.concurrency.tasks import cut
from tests.traced_graphs import branches, branches_inputs, chain, dealt, noting_what_is_held, traced

INPUTS = branches_inputs()


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


@pytest.fixture
def used(monkeypatch):
    """By address of a tensor's memory, the names of the streams that use it."""
    found = {}

    def record_stream(tensor, stream):
        found.setdefault(tensor.untyped_storage().data_ptr(), set()).add(stream.name)

    monkeypatch.setattr(torch.Tensor, "record_stream", record_stream)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_every_task_waits_for_what_it_needs_and_says_what_it_reads(used, seed):
    graph = cut(traced(branches, INPUTS))
    device = Device()

    def checking(index, function):
        def run(values):
            stream = device.current
            assert set(graph.graph.tasks[index].needs) <= stream.sees
            if seed:
                for place in graph.reads[index]:
                    assert stream.name in used[values[place].untyped_storage().data_ptr()]
            function(values)
            stream.sees.add(index)

        return run

    functions = tuple(checking(index, function) for index, function in enumerate(graph.functions))
    watched = dataclasses.replace(graph, functions=functions)
    schedule = dealt(graph, workers=1 + seed, seed=seed)
    engine = StreamEngine(watched, schedule, device_api=device)
    others = {each.worker for each in schedule.placements} - {0}
    before = torch.get_num_threads()
    for _ in range(2):
        device.current.sees.clear()
        found = engine.run([*INPUTS])
        assert device.current.name == "caller"
        assert device.current.sees == set(range(len(functions)))  # what comes next waits for all of them
        torch.testing.assert_close(found, branches(*INPUTS))
    assert len(device.made) == len(others) and torch.get_num_threads() == before


def test_values_are_let_go_as_soon_as_they_are_read():
    x = torch.randn(512, 512)
    watched, held = noting_what_is_held(cut(traced(chain, [x])))
    StreamEngine(watched, one_at_a_time(watched, threads=1), device_api=Device()).run([x])
    assert len(held) >= 12 and max(held) <= 6
