"""All batches of an epoch are made in the state of the caller, as without prefetch."""

from __future__ import annotations

import contextvars
import threading
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset

from dwconv.parallel import prefetch
from dwconv.parallel.data.callers_state import CallersState

AROUND = contextvars.ContextVar("around", default="nothing")


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result + 1 if function is torch.ones else result


class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {})) + 1 if "ones" in str(function) else function(*args, **(kwargs or {}))


def made():
    """What shows the state: a tensor that is made, one that is computed, and what PyTorch says."""
    weight = nn.Parameter(torch.ones(2, 2))
    result = weight @ weight
    return (
        weight.device.type, result.dtype, result.requires_grad, result.is_inference(), torch.get_default_device().type,
        torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu"),
        None if result.is_meta else result.sum().item(), AROUND.get(),
    )  # fmt: skip


def generated():
    for _ in range(4):
        yield made()


class Made(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return made()


STATES = {
    "nothing": nullcontext,
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast in another type": lambda: torch.autocast("cpu", torch.float16),
    "device": lambda: torch.device("cpu"),
    "functions": Functions,
    "operators": Operators,
}


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "loader", [generated, lambda: DataLoader(Made(), batch_size=None)], ids=["generator", "loader"]
)
def test_batches_are_made_as_without_prefetch(state, loader, depth):
    with STATES[state]():
        plain = list(loader())
        assert list(prefetch(loader(), depth=depth)) == plain
    assert list(prefetch(loader(), depth=depth)) == list(loader()), "the caller's state is as before"


def test_states_within_each_other():
    """A DataLoader would draw its seed on the default device, and meta has no numbers."""
    with torch.device("meta"), torch.no_grad(), torch.autocast("cpu"), Functions():
        assert list(prefetch(generated())) == list(generated())


def test_a_default_device_that_was_set(monkeypatch):
    torch.set_default_device("meta")
    try:
        assert {each[0] for each in prefetch(generated())} == {"meta"}
    finally:
        torch.set_default_device(None)


def test_a_default_type_is_that_of_the_process():
    torch.set_default_dtype(torch.float64)
    try:
        assert {each[1] for each in prefetch(generated())} == {torch.float64}
    finally:
        torch.set_default_dtype(torch.float32)


def test_context_variables_are_a_copy():
    def named():
        for number in range(3):
            AROUND.set(f"{AROUND.get()}, {number}")
            yield AROUND.get()

    token = AROUND.set("a run")
    try:
        assert list(prefetch(named())) == ["a run, 0", "a run, 0, 1", "a run, 0, 1, 2"]
        assert AROUND.get() == "a run"
    finally:
        AROUND.reset(token)


def test_the_state_is_that_of_the_first_request():
    """Whatever the caller does afterwards, and wherever the epoch was begun."""
    epoch = iter(prefetch(generated()))
    with torch.no_grad():
        found = [next(epoch)]
    found += epoch
    assert [each[2] for each in found] == [False] * 4


def test_a_loader_that_changes_its_own_state_leaves_the_callers():
    def frozen():
        with torch.no_grad(), torch.device("meta"):
            for _ in range(3):
                yield torch.is_grad_enabled()

    for is_enabled in prefetch(frozen()):
        assert not is_enabled and torch.is_grad_enabled() and not torch.ones(1).is_meta
    assert torch.is_grad_enabled()


def test_all_of_a_loader_runs_in_one_thread_its_end_too():
    """Some of what it holds, such as a connection to sqlite, may be used there alone."""
    seen = []

    class Noting:
        def __iter__(self):
            try:
                for number in range(9):
                    seen.append((threading.get_ident(), torch.is_grad_enabled()))
                    yield number
            finally:
                seen.append((threading.get_ident(), torch.is_grad_enabled()))

    with torch.no_grad():
        for _ in prefetch(Noting()):
            break
    assert len(seen) >= 2 and len(set(seen)) == 1
    assert seen[0] != (threading.get_ident(), False)


def test_a_step_finds_no_cast_of_the_loaders():
    """A cast is kept for as long as the outermost autocast of any thread lasts: it would be that of older weights."""
    weight = nn.Parameter(torch.ones(2, 2))

    def computed():
        for _ in range(2):
            yield (weight @ torch.ones(2, 2)).detach()

    with torch.autocast("cpu"):
        assert len(list(prefetch(computed()))) == 2
        with torch.no_grad():
            weight.fill_(2)
        assert (weight @ torch.ones(2, 2)).sum() == 16


def test_a_state_that_cannot_be_taken_over_is_an_error_not_a_hang(monkeypatch):
    monkeypatch.setattr(CallersState, "_run", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(iter(prefetch([1, 2])))


def test_the_thread_works_on_the_callers_gpu(monkeypatch):
    """Its current device is kept by thread, and so is its stream. No GPU is there: the calls are noted."""
    notes = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "a stream of GPU 1")
    monkeypatch.setattr(
        torch.cuda, "set_stream", lambda stream: notes.append((stream, threading.current_thread().name))
    )
    assert list(prefetch([1, 2])) == [1, 2]
    assert notes == [("a stream of GPU 1", "dwconv-prefetch")]
