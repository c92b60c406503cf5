"""Blocks whose calls C++ follows: past Python where they are what was learnt, and right where anything is another."""

from __future__ import annotations

import contextlib
import copy
import gc
import threading
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
from dwconv.problems.workload import BLOCK_PASSES, EVAL_PASSES, Pass
from tests.call.block_parts import (
    MODES,
    SIZE,
    WHOLE,
    Parts,
    assert_infers_the_same,
    assert_same,
    blocks_in_evaluation,
    drawn,
    in_evaluation,
    learnt,
    passes_that_ran,
    step,
)
from tests.native_needed import needs_native
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")  # the convolution alone is not planted


CALLS = ["batch_norm", "hardtanh", "conv2d", "batch_norm", "hardswish"]


@pytest.fixture(autouse=True)
def planted(logs):
    needs_native()
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)], passes=[*BLOCK_PASSES, *EVAL_PASSES])
    with learnt(Parts(WHOLE), Parts(WHOLE, inplace=True), in_evaluation(), in_evaluation(inplace=True)):
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
    assert followed_by_python == CALLS


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inplace", [False, True], ids=["", "in place"])
def test_python_follows_nothing_in_evaluation(followed_by_python, inplace, mode):
    model = in_evaluation(inplace=inplace)
    for _ in range(2):
        assert_infers_the_same(model, MODES[mode])
    assert blocks_in_evaluation() == 2 and not followed_by_python
    native.forget()
    assert_infers_the_same(model, MODES[mode])
    assert followed_by_python == CALLS


def test_epochs_of_training_and_evaluation(followed_by_python):
    """What was learnt of one mode is not followed in another, and what has learnt meanwhile is read anew."""
    model = Parts(WHOLE)
    for _ in range(2):
        assert_same(model.train(), drawn(), steps=1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
        for mode in MODES.values():
            assert_infers_the_same(model.eval(), mode)
        assert_same(model, drawn(), steps=1)  # with gradients nothing is one
    assert passes_that_ran() == {"forward": 2, "backward": 2} and blocks_in_evaluation() == 4
    assert not followed_by_python


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


@pytest.mark.parametrize("mode", [contextlib.nullcontext, *MODES.values()])
def test_nothing_of_a_block_stays(mode):
    """Not even until somebody looks for garbage."""
    for inplace in (False, True):
        model, seen = Parts(WHOLE, inplace=inplace), []
        model.train(mode is contextlib.nullcontext)
        see = partial(_seen, seen)
        model.between = dict.fromkeys(("bn1", "act1", "conv", "bn2"), see)
        gc.collect()
        gc.disable()
        try:
            with mode():
                z = model(drawn().detach())
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
    with torch.no_grad():
        model.eval()(drawn())
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
    assert _ran("forward") == {threads: 2, threads + 1: 2}


def _ran(pass_: Pass) -> dict[int, int]:
    """How often a pass of blocks ran, by threads."""
    of_blocks = [plan for plan in plans() if plan.problem.block and pass_ in plan.problem.passes]
    return {plan.target.threads: plan.tally.counted_ops()[pass_] for plan in of_blocks}


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


def test_what_came_in_amidst_is_not_learnt():
    """Under autocast that begins within a block, its last call is followed; a block that begins there is none."""
    for model, mode in ((Parts(WHOLE), contextlib.nullcontext), (in_evaluation(), torch.no_grad)):
        autocast = torch.autocast("cpu", torch.bfloat16)
        model.between = {"bn2": lambda h, autocast=autocast: (autocast.__enter__(), h)[1]}
        with mode():
            model(drawn())
            autocast.__exit__(None, None, None)
            model.between = {}
            with torch.autocast("cpu", torch.bfloat16):
                assert model(drawn()).dtype is torch.bfloat16


# -- the same in evaluation --------------------------------------------------------------------------------------------


AMIDST_IN_EVALUATION = {
    **{name: AMIDST[name] for name in ("autocast", "a mode", "a mode of functions")},
    "inference_mode": torch.inference_mode,
    "gradients": torch.enable_grad,
    "norms that train": lambda: None,
}


@pytest.mark.parametrize("where", ["bn1", "act1", "conv", "bn2"])
@pytest.mark.parametrize("name", AMIDST_IN_EVALUATION)
def test_who_comes_in_amidst_in_evaluation(name, where):
    """What is done after it is as in PyTorch: its type, whether it is recorded, and what is learnt."""
    model = in_evaluation()
    plain = copy.deepcopy(model)
    plain.place = None
    found = [_entered_amidst(each, name, where) for each in (model, plain)]
    for *_, z in found:
        if z.requires_grad:
            z.sum().backward()
    allowed = 2e-2 if name == "autocast" else 1e-4
    for got, wanted in zip(*found, strict=True):
        assert got.is_inference() == wanted.is_inference() and got.requires_grad == wanted.requires_grad
        torch.testing.assert_close(got * 1, wanted * 1, rtol=allowed, atol=allowed)
    for got, wanted in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(got, wanted)
    for got, wanted in zip(model.parameters(), plain.parameters(), strict=True):
        assert (got.grad is None) == (wanted.grad is None)


def _entered_amidst(model: Parts, name: str, where: str) -> list[Tensor]:
    """What the part gave after which something begins, what those after it gave, and the result."""
    kept, entered = [], contextlib.ExitStack()

    def enter(h: Tensor) -> Tensor:
        kept.append(h)
        if name == "norms that train":
            model.train()
        else:
            entered.enter_context(AMIDST_IN_EVALUATION[name]())
        return h

    model.between = {each: lambda h: (kept.append(h), h)[1] for each in PARTS[PARTS.index(where) :]}
    model.between[where] = enter
    with torch.no_grad():
        x = drawn().detach()
        with entered:
            _ = model(x) if model.place else _plain(model, x)
    return kept


def _plain(model: Parts, x: Tensor) -> Tensor:
    """Nothing waits, and the convolution is PyTorch's."""
    for name in PARTS:
        conv = partial(F.conv2d, weight=model.conv.weight, padding=1, groups=x.shape[1])
        x = conv(x) if name == "conv" else getattr(model, name)(x)
        x = model.between[name](x) if name in model.between else x
    return x


@pytest.mark.parametrize("what", ["x", "bn1.weight", "bn1.running_mean", "conv.weight", "bn2.bias", "bn2.running_var"])
def test_what_changes_in_place_inside_a_block_is_an_error_in_evaluation(what):
    model, x = in_evaluation(), drawn().detach()
    changed = {"x": x, **dict(model.named_parameters()), **dict(model.named_buffers())}[what]
    model.between = {"bn2": lambda h: (changed.add_(1), h)[1]}
    with torch.no_grad(), pytest.raises(InvalidCall, match="changed in place"):
        model(x)


REPLACED = {
    "a weight": lambda model: setattr(model.conv, "weight", nn.Parameter(model.conv.weight.detach() * 2)),
    "a norm's weight": lambda model: setattr(model.bn1, "weight", nn.Parameter(model.bn1.weight.detach() + 1)),
    "a statistic": lambda model: setattr(model.bn2, "running_mean", model.bn2.running_mean + 1),
    "a statistic, in place": lambda model: model.bn2.running_var.mul_(2),
    "all, loaded": lambda model: model.load_state_dict({k: v * 1.5 for k, v in model.state_dict().items()}),
    "all, made in inference_mode": lambda model: _made_in_inference_mode(model),
    "a weight that is a bias as well": _tied,
    "a mean that is a bias as well": lambda model: setattr(model.bn1, "running_mean", model.bn1.bias.detach()),
}


def _made_in_inference_mode(model: Parts) -> None:
    with torch.inference_mode():
        for module in model.modules():
            for name, each in module._parameters.items():
                setattr(module, name, None if each is None else nn.Parameter(each * 2, requires_grad=False))
            for name, each in module._buffers.items():
                setattr(module, name, each * 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", REPLACED)
def test_what_is_replaced_between_calls_is_read_anew(followed_by_python, what, mode):
    model = in_evaluation()
    assert_infers_the_same(model, MODES[mode])
    REPLACED[what](model)
    assert_infers_the_same(model, MODES[mode])
    assert blocks_in_evaluation() == 2 and not followed_by_python


def test_a_block_may_end_twice(followed_by_python):
    model = in_evaluation()
    model.between = {"bn2": lambda y: (F.hardswish(y), y)[1]}
    assert_infers_the_same(model)
    assert blocks_in_evaluation() == 2 and not followed_by_python


def test_what_waited_is_as_it_began():
    """Looked at for the first time in inference_mode, what came of no_grad can be trained on still."""
    model, kept = in_evaluation(), []
    model.between = {"act1": lambda h: (kept.append(h), h)[1]}
    with torch.no_grad():
        model(drawn())
    with torch.inference_mode():
        assert kept[0].sum().isfinite()
    w = torch.ones((), requires_grad=True)
    (kept[0] * w).sum().backward()
    assert w.grad is not None


def test_images_of_inference_mode_are_not_trained_on():
    """As in PyTorch, whatever was learnt of them."""
    model = Parts(WHOLE)
    with torch.inference_mode():
        x = drawn().detach() * 1
    with torch.no_grad():
        model.eval()(x)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        model.train()(x)
    assert passes_that_ran()["forward"] == 0 and blocks_in_evaluation() == 1


def test_in_evaluation_another_number_of_threads_has_a_plan_of_its_own():
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert_infers_the_same(in_evaluation())
    finally:
        torch.set_num_threads(threads)
    assert_infers_the_same(in_evaluation())
    assert _ran("inference") == {threads: 4 + 1, threads + 1: 1}, "four were to learn"


def test_threads_evaluate_side_by_side(followed_by_python):
    """Whether one of them is in no_grad is its own affair."""
    model, x, found = in_evaluation(), drawn().detach(), []
    with torch.no_grad():
        expected = model(x)

    def evaluate() -> None:
        with torch.no_grad():
            found.extend(model(x) for _ in range(20))

    threads = [threading.Thread(target=evaluate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80 and all(torch.equal(z, expected) for z in found) and not followed_by_python
