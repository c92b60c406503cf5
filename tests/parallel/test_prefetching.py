"""Batches come as the loader gives them, ahead of the step; whatever happens, the thread ends."""

from __future__ import annotations

import gc
import random
import threading
import time
import traceback

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from dwconv.errors import InvalidChoice, NoDevice
from dwconv.parallel import prefetch
from tests.waiting import eventually

DEPTHS = [0, 2]


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "dwconv-prefetch"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not threads()


class Counting:
    """An iterable of numbers that knows how many were taken, and by whom."""

    def __init__(self, count, *, fails_at=None):
        self.count, self.fails_at = count, fails_at
        self.taken = 0
        self.thread = None
        self.ended = 0

    def __iter__(self):
        try:
            for number in range(self.count):
                if number == self.fails_at:
                    raise KeyError(f"no batch {number}")
                self.taken += 1
                self.thread = threading.current_thread()
                yield number
        finally:
            self.ended += 1


# -- what comes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", DEPTHS)
def test_every_batch_comes_once_and_in_order_in_every_epoch(depth):
    data = TensorDataset(torch.arange(10.0), torch.arange(10))
    batches = prefetch(DataLoader(data, batch_size=3), "cpu", depth=depth)
    assert len(batches) == 4
    for _ in range(3):
        found = list(batches)
        assert [len(x) for x, _ in found] == [3, 3, 3, 1]
        assert torch.equal(torch.cat([y for _, y in found]), torch.arange(10))
    assert list(prefetch([], depth=depth)) == []
    with pytest.raises(TypeError, match="generator, has no len"):
        len(prefetch((number for number in range(3)), depth=depth))


def test_batches_are_loaded_while_the_step_computes():
    """No more than ``depth`` of them: what is loaded ahead lies in memory."""
    loader = Counting(10)
    epoch = iter(prefetch(loader, depth=3))
    next(epoch)
    assert eventually(lambda: loader.taken == 4)
    assert loader.thread is not threading.current_thread()
    next(epoch)
    assert eventually(lambda: loader.taken == 5)
    epoch.close()
    assert loader.taken == 5


def test_shuffling_draws_what_it_draws_without_prefetch():
    """Whatever the step draws meanwhile: the seed of an epoch comes first."""

    def order(wrap):
        torch.manual_seed(5)
        return [(batch.tolist(), torch.rand(1).item()) for batch in wrap(DataLoader(range(20), 4, shuffle=True))]

    plain = order(iter)
    assert order(prefetch) == plain


def test_an_epoch_draws_its_seed_where_it_begins_as_without_prefetch():
    def drawn(wrap):
        torch.manual_seed(5)
        epoch = iter(wrap(DataLoader(range(20), 4, shuffle=True)))
        between = torch.rand(1).item()
        return between, [batch.tolist() for batch in epoch], torch.rand(1).item()

    assert drawn(prefetch) == drawn(lambda loader: loader)


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_data_set_draws_what_it_draws_without_prefetch(depth):
    """Where the step draws nothing: all threads have one generator."""

    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return index + torch.rand(2) + random.random()

    def drawn(wrap):
        torch.manual_seed(5)
        random.seed(5)
        loader = wrap(DataLoader(Noisy(), 2, shuffle=True))
        return [batch.tolist() for _ in range(2) for batch in loader], torch.rand(1).item(), random.random()

    assert drawn(lambda loader: prefetch(loader, depth=depth)) == drawn(lambda loader: loader)


def test_worker_processes_load_and_end():
    batches = prefetch(DataLoader(torch.arange(8), batch_size=2, num_workers=1))
    assert torch.cat(list(batches)).tolist() == list(range(8))
    for batch in batches:
        assert batch.tolist() == [0, 1]
        break


# -- how it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("fails_at", [0, 3])
def test_an_error_comes_in_the_place_of_its_batch_with_its_traceback(depth, fails_at):
    loader = Counting(5, fails_at=fails_at)
    seen = []
    with pytest.raises(KeyError, match=f"no batch {fails_at}") as raised:
        for number in prefetch(loader, depth=depth):
            seen.append(number)
    assert seen == list(range(fails_at))
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (last.filename, last.name) == (__file__, "__iter__"), "the line of the loader"


@pytest.mark.parametrize("depth", DEPTHS)
def test_break_ends_the_thread_and_the_loader(depth):
    """The loader is free for the next epoch when the loop is left."""
    loader = Counting(100)
    for number in prefetch(loader, depth=depth):
        if number == 2:
            break
    gc.collect()
    assert not threads()
    assert loader.ended == 1 and loader.taken <= 3 + depth


def test_a_loop_that_is_left_waits_for_the_batch_that_is_being_loaded():
    """Or two epochs would take from one loader."""
    loader = Slow()
    for _ in prefetch(loader):
        threading.Timer(0.05, loader.gate.set).start()
        break
    assert loader.gate.is_set() and not threads()


def test_an_epoch_that_is_forgotten_ends_even_in_a_cycle():
    """The garbage collector may run in the very thread that it ends."""
    holder = {"epoch": iter(prefetch(Counting(100)))}
    holder["self"] = holder
    next(holder["epoch"])
    assert len(threads()) == 1
    del holder
    gc.collect()
    assert eventually(lambda: not threads())


def test_a_second_epoch_begins_while_the_first_is_open():
    batches = prefetch([1, 2, 3])
    first = iter(batches)
    assert next(first) == 1
    assert list(batches) == [1, 2, 3]
    assert list(first) == [2, 3]


def test_batches_that_are_done_with_are_not_kept():
    """An epoch holds no batch that the step has let go of."""
    import weakref

    class Batch:
        pass

    batches = iter(prefetch((Batch() for _ in range(3)), depth=1))
    gone = weakref.ref(next(batches))
    assert gone() is None
    batches.close()


# -- the report ------------------------------------------------------------------------------------------------------


class Slow:
    """A loader whose second batch comes when the step has waited for it."""

    def __init__(self):
        self.gate = threading.Event()

    def __iter__(self):
        yield 0
        self.gate.wait()
        yield 1


class Heavy:
    """A loader of four batches that takes some time for each."""

    def __init__(self, *, seconds=0.02):
        self.taken, self.has_ended = 0, False
        self._seconds = seconds

    def __iter__(self):
        for number in range(4):
            time.sleep(self._seconds)
            self.taken += 1
            yield number
        self.has_ended = True


def test_a_batch_that_is_loaded_in_time_is_not_waited_for():
    """Here the step goes on until the others are there. The first one has to be waited for."""
    loader = Heavy(seconds=0.1)
    batches = prefetch(loader, depth=4)
    assert str(batches.report()) == "no batch was loaded yet"
    for _ in batches:
        assert eventually(lambda: loader.has_ended)
    report = batches.report()
    assert min(report.loading_us) >= 100_000
    assert len(report.first_us) == 1 and report.first_us[0] >= 100_000
    assert report.hidden > 0.5 and report.batches == 4
    assert "4 loaded ahead" in str(report) and "without prefetch" in str(report)


def test_nothing_is_hidden_at_depth_0():
    loader = Heavy()
    batches = prefetch(loader, depth=0)
    for number, _ in enumerate(batches):
        assert loader.taken == number + 1 and not threads()
    report = batches.report()
    assert min(report.waited_us) >= 20_000 and report.hidden < 0.01
    assert "nothing loaded ahead" in str(report)


# -- bad input -------------------------------------------------------------------------------------------------------


def test_bad_input_is_one_line():
    with pytest.raises(InvalidChoice, match="depth=-1 is negative; use 0"):
        prefetch([], depth=-1)
    if not torch.cuda.is_available():
        with pytest.raises(NoDevice, match="device=cuda: PyTorch finds no GPU here"):
            prefetch([], "cuda")


# -- loaders of all kinds ----------------------------------------------------------------------------------------------


class Endless(torch.utils.data.IterableDataset):
    """Shared out to the worker processes, with a last batch that is smaller."""

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, 11, step):
            yield {"number": torch.tensor(number), "name": str(number)}


LOADERS = {
    "iterable": lambda: DataLoader(Endless(), batch_size=3),
    "iterable, workers": lambda: DataLoader(Endless(), batch_size=3, num_workers=1),
    "persistent workers": lambda: DataLoader(
        TensorDataset(torch.arange(7.0)), batch_size=2, num_workers=1, persistent_workers=True, prefetch_factor=3
    ),
    "the last is dropped": lambda: DataLoader(torch.arange(7), batch_size=2, drop_last=True),
    "without batches": lambda: DataLoader(torch.arange(3), batch_size=None),
    "a generator function": lambda: (torch.tensor([number]) for number in range(3)),
}


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_of_all_kinds_give_what_they_give_alone(name):
    def found(loader):
        return [(type(batch), str(batch)) for batch in loader]

    plain, ahead = LOADERS[name](), prefetch(LOADERS[name]())
    for _ in range(2):  # epochs; what can be gone through once gives nothing in the second
        assert found(ahead) == found(plain)


def test_ctrl_c_while_a_step_waits_ends_the_thread(monkeypatch):
    """The batch that is being loaded comes first."""
    loader = Slow()
    epoch = iter(prefetch(loader))
    next(epoch)

    def interrupted(ahead):
        threading.Timer(0.05, loader.gate.set).start()
        raise KeyboardInterrupt

    monkeypatch.setattr("dwconv.parallel.data.prefetching._Ahead.next", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(epoch)
    assert loader.gate.is_set() and not threads()
