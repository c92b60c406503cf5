"""The compiled way of calls comes to be there in the middle of training: from then on it takes the calls, which give
the same bits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import dwconv
from dwconv import native
from dwconv.native.compile import LoadedModule
from dwconv.problems.workload import PASSES
from tests.native_needed import as_in_a_new_process, needs_native
from tests.planted_records import plant, workload_of
from tests.waiting import eventually

WORKLOAD = workload_of()


@pytest.fixture
def arrive(logs, monkeypatch) -> Callable[[], None]:
    """Until it is called, a compiler runs."""
    needs_native()
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    compiled = native.module
    compiled.forget()
    as_in_a_new_process(monkeypatch)
    native._lock.acquire()

    def now() -> None:
        native._take(LoadedModule(module=compiled))
        native._lock.release()

    return now


def leaves():
    torch.manual_seed(0)
    x = torch.randn(WORKLOAD.input_shape).to(memory_format=torch.channels_last)
    return x.requires_grad_(), torch.randn(8, 1, 3, 3, requires_grad=True)


def convolve(x, w):
    return dwconv.conv2d(x, w, padding=1)


def is_compiled(y):
    return "CppNode" in y.grad_fn.name()


def gradients(y, *of):
    return torch.autograd.grad(y.sin().sum(), of)


def test_calls_that_came_before_are_taught_and_give_the_same_bits(arrive):
    x, w = leaves()
    for _ in range(2):
        before = convolve(x, w)
        assert not is_compiled(before)
    others = gradients(before, x, w)
    late = convolve(x, w)
    arrive()
    of_late = gradients(late, x, w)  # forward through Python, backward not
    teaches = convolve(x, w)
    assert is_compiled(teaches), "it is the first that C++ runs"
    after = convolve(x, w)
    assert is_compiled(after)
    for found in (late, teaches, after):
        assert torch.equal(found, before)
    for found in (of_late, gradients(teaches, x, w), gradients(after, x, w)):
        assert all(map(torch.equal, found, others))
    with torch.no_grad():
        assert torch.equal(convolve(x, w), before)


@pytest.fixture
def runs(monkeypatch):
    """Counts what kernels run in C++ for the ops; empty it after it has arrived."""

    def watch() -> list[int]:
        counted, run = [], native.run

        def counting(*given):
            counted.append(1)
            return run(*given)

        monkeypatch.setattr(native, "run", counting)
        return counted

    return watch


class Looking(TorchDispatchMode):
    """As autocast and others do, it makes calls go through the dispatcher."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_kernels_take_it_up_behind_the_dispatcher(arrive, runs):
    x, w = leaves()

    def step():
        with Looking():
            y = convolve(x, w)
        return y, *gradients(y, x, w)

    before = step()
    arrive()
    counted = runs()
    assert all(map(torch.equal, step(), before)) and len(counted) == 3
    convolve(x, w)
    assert is_compiled(convolve(x, w))  # nothing of the call was known but under a mode


@pytest.mark.parametrize(
    ("shape", "convolution", "of_pytorch"),
    [((2, 12, 9, 7), dwconv.conv2d, ["wgrad"]), ((2, 12, 9, 7, 5), dwconv.conv3d, ["dgrad", "wgrad"])],
    ids=["images", "volumes"],
)
@pytest.mark.parametrize("weight_lies_last", [False, True])
def test_backward_passes_of_pytorch_are_taught_too(arrive, logs, of_pytorch, weight_lies_last, shape, convolution):
    """They give the same bits and the same strides, for weights that lie otherwise, too."""
    workload = workload_of(shape=shape, kernel=(3,) * (len(shape) - 2), stride=2, bias=True)
    for pass_ in PASSES:
        slow = pass_ in of_pytorch
        plant(logs / "log.jsonl", [workload], passes=[pass_], baseline_us=1e-3 if slow else 1e6)
    lies = {4: torch.channels_last, 5: torch.channels_last_3d}[len(shape)]
    torch.manual_seed(0)
    x = torch.randn(shape).to(memory_format=lies).requires_grad_()
    w = torch.randn(12, 1, *workload.kernel)
    w = (w.to(memory_format=lies) if weight_lies_last else w).requires_grad_()
    bias = torch.randn(12, requires_grad=True)

    def step():
        y = convolution(x, w, bias, stride=2, padding=1)
        some = ((w,), (x,), (bias,), (x, w, bias))
        return y, *(each for of in some for each in torch.autograd.grad(y.sin().sum(), of, retain_graph=True))

    def whole():
        y = convolution(x, w, bias, stride=2, padding=1)
        first = torch.autograd.grad(y.sin().sum(), (x, w), create_graph=True)
        return y, *torch.autograd.grad(sum(each.square().sum() for each in first), (x, w))

    before, twice = step(), whole()
    arrive()
    teaches, after = step(), step()
    assert [is_compiled(y) for y, *_ in (before, teaches, after)] == [False, True, True]
    for found, wanted in ((teaches, before), (after, before), (whole(), twice)):
        assert all(map(torch.equal, found, wanted))
        assert [each.stride() for each in found] == [each.stride() for each in wanted]


def test_threads_that_train_meanwhile_see_no_difference(arrive):
    x, w = leaves()
    before = (y := convolve(x, w), *gradients(y, x, w))
    ends, ways = threading.Event(), [set() for _ in range(4)]

    def train(seen):
        while not ends.is_set():
            y = convolve(x, w)
            seen.add(is_compiled(y))
            assert all(map(torch.equal, (y, *gradients(y, x, w)), before))

    with ThreadPoolExecutor(len(ways)) as threads:
        training = [threads.submit(train, seen) for seen in ways]
        assert eventually(lambda: all(ways) or any(each.done() for each in training))
        arrive()
        taken = eventually(lambda: all(True in seen for seen in ways) or any(each.done() for each in training))
        ends.set()
        assert [each.result() for each in training] == [None] * 4 and taken
    assert ways == [{False, True}] * 4
