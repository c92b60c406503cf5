"""Blocks whose calls C++ follows: past Python where they are what was learnt, and right where anything is another."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dwconv import native
from dwconv.call.awaited_block import AwaitedBlock
from dwconv.call.call_plan import plans
from dwconv.errors import InvalidCall
from tests.call.block_parts import SIZE, WHOLE, Parts, assert_same, drawn, learnt, passes_that_ran, step
from tests.native_needed import needs_native
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")  # the convolution alone is not planted


@pytest.fixture(autouse=True)
def planted(logs):
    needs_native()
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)])
    with learnt(Parts(WHOLE), Parts(WHOLE, inplace=True)):
        yield


@pytest.fixture
def followed_by_python(monkeypatch):
    """The names of the functions that Python followed."""
    names, following = [], AwaitedBlock.following

    def noted(self, func, args, kwargs):
        names.append(func.__name__)
        return following(self, func, args, kwargs)

    monkeypatch.setattr(AwaitedBlock, "following", noted)
    return names


@pytest.mark.parametrize("inplace", [False, True], ids=["", "in place"])
def test_python_follows_nothing(followed_by_python, inplace):
    assert_same(Parts(WHOLE, inplace=inplace), drawn())
    assert passes_that_ran() == {"forward": 2, "backward": 2} and not followed_by_python
    native.forget()
    assert_same(Parts(WHOLE, inplace=inplace), drawn(), steps=1)
    assert followed_by_python == ["batch_norm", "hardtanh", "conv2d", "batch_norm", "hardswish"]


def test_each_layer_learns_at_its_own_pace(followed_by_python):
    models = [Parts(WHOLE) for _ in range(3)]
    for number, model in enumerate(models):
        model.bn1.momentum, model.bn2.momentum = 0.2 * (number + 1), 0.1 * number
    for _ in range(2):
        followed_by_python.clear()
        for model in models:
            assert_same(model, drawn(), steps=1)
    assert not followed_by_python and passes_that_ran()["forward"] == 6


def test_a_momentum_of_every_step(followed_by_python):
    model = Parts(WHOLE)
    model.bn2.momentum = None
    assert_same(model, drawn(), steps=25)
    assert passes_that_ran()["forward"] == 25


def test_nothing_of_a_block_stays():
    """Not even until somebody looks for garbage."""
    for inplace in (False, True):
        model, seen = Parts(WHOLE, inplace=inplace), []
        see = partial(_seen, seen)
        model.between = dict.fromkeys(("bn1", "act1", "conv", "bn2"), see)
        gc.collect()
        gc.disable()
        try:
            z = model(drawn())
            assert len(seen) == 4 and not any(each() is not None for each in seen)
            alive = weakref.ref(z)
            del z
            assert alive() is None
        finally:
            gc.enable()


def _seen(seen: list[weakref.ref[Tensor]], h: Tensor) -> Tensor:
    seen.append(weakref.ref(h))
    return h


def test_a_model_that_is_gone_leaves_no_weights():
    native.forget()
    model = Parts(WHOLE)
    step(model, drawn())
    weights = [weakref.ref(each) for each in (*model.parameters(), *model.buffers())]
    del model
    gc.collect()
    assert not any(each() is not None for each in weights)


# -- what is another than was learnt -----------------------------------------------------------------------------------


class _Noted(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def _tied(model: Parts) -> None:
    model.bn2.bias = model.bn2.weight


def _of_double(model: Parts) -> None:
    model.conv.weight = nn.Parameter(model.conv.weight.detach().double())


def _transposed(model: Parts) -> None:
    with torch.no_grad():
        model.conv.weight.set_(model.conv.weight.transpose(2, 3).contiguous().transpose(2, 3))


@pytest.mark.parametrize("is_first", [False, True], ids=["", "learnt so"])
def test_a_weight_that_is_a_bias_as_well(is_first):
    if is_first:
        native.forget()
    model = Parts(WHOLE)
    _tied(model)
    assert_same(model, drawn(), steps=3)
    assert_same(Parts(WHOLE), drawn())
    assert passes_that_ran()["forward"] == 5


def test_compiled_code_amidst():
    """Its compiler, which cannot look into C++, has nothing to say."""
    torch._dynamo.reset()
    model = Parts(WHOLE)
    model.between = {"bn1": torch.compile(lambda h: F.relu6(h) + 1, backend="eager")}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*Dynamo does not know how to trace the builtin")
        assert_same(model, drawn())
    assert passes_that_ran()["forward"] == 0


def test_a_weight_that_lies_otherwise():
    model = Parts(WHOLE)
    _transposed(model)
    assert_same(model, drawn())


def test_a_weight_of_another_type_is_pytorchs_error():
    model = Parts(WHOLE)
    _of_double(model)
    with pytest.raises(RuntimeError, match=r"float|Double|dtype|type"):
        Parts.forward(model, drawn())


def test_another_number_of_threads_has_a_plan_of_its_own():
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert_same(Parts(WHOLE), drawn())
    finally:
        torch.set_num_threads(threads)
    ran = {plan.target.threads: plan.tally.counted_ops()["forward"] for plan in plans() if plan.problem.block}
    assert ran == {threads: 2, threads + 1: 2}


AMIDST = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "a mode": _Noted,
    "a mode of functions": torch.overrides.BaseTorchFunctionMode,
    "saved tensors' hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: each),
}


@pytest.mark.parametrize("where", ["bn1", "act1", "conv", "bn2"])
@pytest.mark.parametrize("name", AMIDST)
def test_who_comes_in_amidst(name, where):
    """A mode that is entered inside a block and left behind it."""
    model, x = Parts(WHOLE), drawn()
    exact = copy.deepcopy(model)
    entered = []

    def enter(h: Tensor) -> Tensor:
        entered.append(AMIDST[name]())
        entered[-1].__enter__()
        return h

    model.between = {where: enter}
    z = model(x)
    entered[-1].__exit__(None, None, None)
    if isinstance(entered[-1], _Noted):
        assert torch.ops.dwconv.block_forward.default in entered[-1].seen
    h = F.relu6(exact.bn1(x))
    with torch.autocast("cpu", torch.bfloat16, enabled=name == "autocast" and where in ("bn1", "act1")):
        y = F.conv2d(h, exact.conv.weight, padding=1, groups=h.shape[1])
        expected = F.hardswish(exact.bn2(y))
    assert z.dtype is expected.dtype
    torch.testing.assert_close(z, expected, rtol=1e-3, atol=1e-2 if name == "autocast" else 1e-4)
    torch.testing.assert_close(model.bn1.running_mean, exact.bn1.running_mean)


PARTS = ["bn1", "act1", "conv", "bn2", "act2"]


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_is_not_recorded_ends_the_gradient(name):
    model, x = Parts(WHOLE), drawn()
    part = getattr(model, name)
    part.forward = torch.no_grad()(part.forward)
    z = model(x)
    recorded = [each for each in model.named_parameters() if each[0].split(".")[0] in PARTS[PARTS.index(name) + 1 :]]
    assert z.requires_grad is bool(recorded)
    if recorded:
        z.sum().backward()
    assert [each for each, parameter in model.named_parameters() if parameter.grad is not None] == [
        each for each, _ in recorded
    ]
    assert x.grad is None


@pytest.mark.parametrize("what", ["x", "bn1.weight", "conv.weight", "bn2.bias"])
def test_what_changes_in_place_inside_a_block_is_an_error(what):
    model, x = Parts(WHOLE), drawn().detach()
    changed = x if what == "x" else model.get_parameter(what)

    def change(h: Tensor) -> Tensor:
        with torch.no_grad():
            changed.add_(1)
        return h

    model.between = {"bn2": change}
    with pytest.raises(InvalidCall, match="changed in place"):
        model(x)


def test_the_running_statistics_learn_once_of_what_is_looked_at_later():
    model = Parts(WHOLE)
    kept = []
    model.between = {name: lambda h: (kept.append(h), h)[1] for name in ("bn1", "conv", "bn2")}
    z = model(drawn())
    before = [buffer.clone() for buffer in model.buffers()]
    (z.sum() + sum(h.sum() for h in kept)).backward()
    assert all(map(torch.equal, before, model.buffers())) and passes_that_ran() == {"forward": 1, "backward": 1}
