"""Modes around calls: those that only give new tensors a device are let through, those that observe see each op."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import dwconv
from dwconv.call import functional
from dwconv.call.deferred import Deferred
from dwconv.errors import DwconvWarning
from tests.call.block_checks import plant_block
from tests.call.block_parts import (
    CHANNELS,
    SIZE,
    WHOLE,
    Parts,
    assert_same,
    blocks_in_evaluation,
    drawn,
    in_double,
    in_evaluation,
    python_runs_no_block,
    ran,
)
from tests.call.test_causal import TAPS, inputs_of, plant_all, problem_of
from tests.native_needed import both_ways
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")


@contextlib.contextmanager
def as_default(device: str):
    """As ``torch.set_default_device`` leaves it."""
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def both():
    with as_default("cpu"), dwconv.active(), torch.device("meta"):
        yield


TRANSPARENT = {
    "a default device": lambda: as_default("cpu"),
    "a device": lambda: torch.device("cpu"),
    "another device": lambda: torch.device("meta"),
    "active": dwconv.active,
    "all of them": both,
}


@pytest.fixture
def planted(logs):
    plant_block(logs, WHOLE)


@both_ways
@pytest.mark.parametrize("mode", TRANSPARENT)
def test_blocks_run_as_one_where_a_mode_is_let_through(planted, mode, way, monkeypatch):
    model, x = Parts(WHOLE), drawn()
    with TRANSPARENT[mode]():
        z = model(x)  # kernels are loaded here
        z.sum().backward()
        if way == "compiled":
            python_runs_no_block(monkeypatch)
        z = model(x)
        z.sum().backward()
    assert ran() == (2, 2) and ("CppNode" in z.grad_fn.name()) is (way == "compiled")
    monkeypatch.undo()
    assert_same(Parts(WHOLE), x)


@both_ways
@pytest.mark.parametrize("mode", TRANSPARENT)
def test_so_do_blocks_in_evaluation(logs, mode, way):
    plant_block(logs, WHOLE, passes=["inference"])
    model, x = in_evaluation(), drawn().detach()
    with TRANSPARENT[mode](), torch.no_grad():
        for _ in range(2):
            model(x)
    assert blocks_in_evaluation() == 2


@both_ways
@pytest.mark.parametrize("mode", TRANSPARENT)
def test_so_do_layers_past_the_modes(logs, mode, way, monkeypatch):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE)], baseline_us=1e6)
    monkeypatch.setattr(functional, "handle_torch_function", None)
    layer = dwconv.convert(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False))
    x = drawn()
    with TRANSPARENT[mode]():
        for _ in range(2):
            y = layer(x)
            dx, dw = torch.autograd.grad(y.sin().sum(), (x, layer.weight))
    expected = F.conv2d(x, layer.weight, padding=1, groups=CHANNELS)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    wanted = torch.autograd.grad(expected.sin().sum(), (x, layer.weight))
    torch.testing.assert_close((dx, dw), wanted, rtol=1e-4, atol=1e-4)
    assert "Dwconv" in y.grad_fn.name() and ("CppNode" in y.grad_fn.name()) is (way == "compiled")


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class Ops(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


class Flops(FlopCounterMode):
    def __init__(self) -> None:
        super().__init__(display=False)


def outermost(kind):
    """An observer around a mode that is let through."""

    @contextlib.contextmanager
    def entered():
        with kind() as mode, dwconv.active():
            yield mode

    return entered


OBSERVING = {
    "of functions": Functions,
    "of functions, outermost": outermost(Functions),
    "of ops": Ops,
    "of ops, outermost": outermost(Ops),
    "of FLOPs": Flops,
}


def messages(caught) -> list[str]:
    return [str(each.message) for each in caught if issubclass(each.category, DwconvWarning)]


@both_ways
@pytest.mark.parametrize("mode", OBSERVING)
def test_an_observer_sees_each_part_and_one_line_says_so(planted, mode, way):
    model, x = Parts(WHOLE), drawn()
    model(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with OBSERVING[mode]() as observer:
                model(x).sum().backward()
    (said,) = (each for each in messages(caught) if "one by one" in each)
    assert ("hooks of all modules" if mode == "of FLOPs" else type(observer).__qualname__) in said
    assert ran() == (1, 0)
    seen = " ".join(getattr(observer, "seen", [])) or str(dict(observer.get_flop_counts()))
    assert ("conv" in seen or "fprop" in seen) and (mode == "of FLOPs" or seen.count("batch_norm") >= 2)
    if mode == "of FLOPs":
        with Flops() as plain:
            in_double(model)(x.double()).sum().backward()
        assert observer.get_total_flops() == plain.get_total_flops() > 0
    model(x).sum().backward()
    assert ran() == (2, 1), "once it is over, they are one again"


@pytest.mark.parametrize("mode", [Functions, Flops])
def test_nothing_is_said_of_blocks_that_would_not_be_one(logs, mode):
    plant_block(logs, WHOLE, baseline_us=20.0)
    model = Parts(WHOLE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with mode():
            model(drawn())
    assert not [each for each in messages(caught) if "one by one" in each]


@both_ways
def test_a_mode_that_is_switched_off_observes_nothing(planted, way):
    model, x = Parts(WHOLE), drawn()
    with Functions() as observer, torch._C.DisableTorchFunction():
        for _ in range(2):
            model(x)
    assert ran()[0] == 2 and not observer.seen


@pytest.mark.parametrize(("mode", "waits"), [(lambda: torch.device("cpu"), True), (Functions, False), (Ops, False)])
def test_a_deferred_call_is_seen_as_well(logs, mode, waits):
    problem = problem_of(layout="nchw")
    plant_all(logs, problem)
    x, weight, bias = inputs_of(problem, torch.float32)
    given = (x, weight.detach().unsqueeze(1).requires_grad_(), bias)
    expected = F.conv1d(*given, padding=TAPS - 1, groups=weight.shape[0])
    with mode() as observer, dwconv.active():
        z = F.conv1d(*given, padding=TAPS - 1, groups=weight.shape[0])
    assert isinstance(z, Deferred) is waits
    assert waits or any("conv" in name or "fprop" in name for name in observer.seen)
    torch.testing.assert_close(z + 0, expected, rtol=1e-4, atol=1e-4)


class Seeing(torch.Tensor):
    seen: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


@both_ways
def test_a_subclass_sees_calls_within_modes_that_are_let_through(logs, way):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE)], baseline_us=1e6)
    layer = dwconv.convert(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False))
    x = drawn().detach()
    with torch.device("cpu"), torch.no_grad():
        expected = [layer(x) for _ in range(2)][-1]
        Seeing.seen.clear()
        y = layer(x.as_subclass(Seeing))
    assert type(y) is Seeing and any("conv" in name for name in Seeing.seen)
    torch.testing.assert_close(y.as_subclass(torch.Tensor), expected, rtol=1e-4, atol=1e-4)
