"""Whatever changes after ``convert``, the numbers are right, and a block runs as one only where it still is one."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import re
import sys
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as of_all
from torch.nn.utils.parametrize import register_parametrization
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import dwconv
from dwconv.call.call_plan import plans
from dwconv.problems.workload import BLOCK_PASSES
from dwconv.tuner import model_race
from tests import forked
from tests.call.block_checks import plant_block
from tests.call.block_parts import CHANNELS, WHOLE, drawn, step
from tests.native_needed import both_ways

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op", "ignore::FutureWarning")
KINDS, WAYS = ("Sequential", "written"), ("compiled", "interpreted")


def everywhere(test):
    """Each kind of model, each way."""
    return both_ways(pytest.mark.parametrize("kind", KINDS)(test))


def taking_turns(cases):
    """Each case each way and with each kind of model that it is for: two of the four pairs, which take turns."""
    return pytest.mark.parametrize(
        ("case", "kind", "way"),
        [
            pytest.param(case, ONE_KIND.get(case) or KINDS[(number + turn) % 2], way)
            for number, case in enumerate(cases)
            for turn, way in enumerate(WAYS)
        ],
        indirect=["way"],
    )


def parts() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)
    found = {
        "first": nn.Sequential(OrderedDict(bn1=nn.BatchNorm2d(CHANNELS), act1=nn.ReLU6())),
        "second": nn.Sequential(OrderedDict(conv=conv, bn2=nn.BatchNorm2d(CHANNELS), act2=nn.Hardswish())),
        "narrow": nn.Conv2d(CHANNELS, 4, 1),
    }
    for norm in (found["first"].bn1, found["second"].bn2):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return found


class Written(nn.Module):
    """Its forward pass reads attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        for name, each in parts().items():
            self.add_module(name, each)
        self.more = nn.ModuleList([nn.Identity()])
        self.skips, self.scale, self.shifts, self.shift = False, 1.0, [0.5, [1.0]], F.relu
        self.add_module("last", None)
        self.register_parameter("gain", nn.Parameter(torch.full((), 1.5)))
        self.register_parameter("offset", None)
        self.register_buffer("level", None)

    def forward(self, x: Tensor) -> Tensor:
        z = self.second(self.first(x)) * self.scale + sum(self.shifts[1])
        z = self.shift(z + x if self.skips else z)
        z = z if self.gain is None else z * self.gain
        z = z if self.offset is None else z + self.offset
        z = z if self.level is None else z * self.level
        for each in self.more:
            z = each(z)
        return self.ended(self.narrow(z))

    def ended(self, z: Tensor) -> Tensor:
        return z if self.last is None else self.last(z)


def plain_of(kind: str) -> nn.Module:
    model = Written() if kind == "written" else nn.Sequential(OrderedDict(parts()))
    return model.to(memory_format=torch.channels_last)


@pytest.fixture(autouse=True)
def known(logs, monkeypatch):
    """What a race would have found, in each mode and in 16 bits."""
    monkeypatch.setattr(model_race, "race_for", lambda *args, **kwargs: [])
    for dtype in ("float32", "bfloat16"):
        plant_block(logs, WHOLE, dtype=dtype)
    plant_block(logs, WHOLE, passes=["inference"])


@pytest.fixture
def models(known, way, kind):
    """A converted model whose guard holds, and C++ knows it; and the plain one in double."""
    model = plain_of(kind)
    exact = copy.deepcopy(model).double()
    dwconv.convert(model, drawn().detach(), blocks=True)
    assert_same(model, exact)
    assert as_one() == {"forward": 2, "backward": 2, "inference": 2}, dwconv.summary(model)
    return model, exact


def as_one() -> dict[str, int]:
    counted = [plan.tally.counted_ops() for plan in plans() if plan.problem.block]
    return {pass_: sum(ops[pass_] for ops in counted) for pass_ in (*BLOCK_PASSES, "inference")}


def assert_close(found, expected, *, tolerance: float = 1e-3) -> None:
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.double(), wanted.double(), rtol=tolerance, atol=tolerance / 4)


def assert_same(model: nn.Module, exact: nn.Module, x: Tensor | None = None, *, tolerance: float = 1e-3) -> None:
    """Two training steps, and two passes in evaluation."""
    x = drawn() if x is None else x
    modes = [each.training for each in model.modules()]
    for _ in range(2):
        found, expected = step(model, x), step(exact, x.detach().double().requires_grad_())
        assert_close(found, expected, tolerance=tolerance)
    model.eval(), exact.eval()
    with torch.no_grad():
        for _ in range(2):
            assert_close([model(x)], [exact(x.double())], tolerance=tolerance)
    for each in (model, exact):
        for module, training in zip(each.modules(), modes, strict=True):
            module.training = training


def assert_runs(counted: dict[str, int], runs: str) -> None:
    """As one, twice each: in ``training``, in ``evaluation``."""
    found = {pass_: count - counted[pass_] for pass_, count in as_one().items()}
    trains, infers = 2 * ("training" in runs), 2 * ("evaluation" in runs)
    assert found == {"forward": trains, "backward": trains, "inference": infers}


# -- changes -----------------------------------------------------------------------------------------------------------

NOWHERE, BOTH = "", "training, evaluation"


def twice(*given):
    """A hook: what a module gives, or is given, is twice that."""
    last = given[-1]
    return tuple(each * 2 for each in last) if isinstance(last, tuple) else last * 2


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def put(path: str, **values):
    def change(model: nn.Module) -> None:
        for name, value in values.items():
            setattr(model.get_submodule(path), name, value)

    return change


def like(name: str, make):
    """Sets what ``make`` gives, as exact as the model is."""

    def change(model: nn.Module) -> None:
        made = make()
        made.data = made.data.to(model.narrow.weight.dtype)
        setattr(model, name, made)

    return change


def call(path: str, name: str, *given):
    return lambda model: getattr(model.get_submodule(path), name)(*given)


def replaced(path: str, make):
    """By a module with the weights of a seed, as exact as the model is."""

    def change(model: nn.Module) -> None:
        torch.manual_seed(5)
        outer, _, name = path.rpartition(".")
        like = model.narrow.weight
        setattr(model.get_submodule(outer), name, make().to(dtype=like.dtype, memory_format=torch.channels_last))

    return change


def patched(path: str, forward):
    def change(model: nn.Module) -> None:
        module = model.get_submodule(path)
        module.forward = lambda x, before=module.forward: forward(before(x))

    return change


def of_another_class(path: str, **members):
    """As libraries swap classes of instances."""

    def change(model: nn.Module) -> None:
        module = model.get_submodule(path)
        module.__class__ = type(f"FSDP{type(module).__name__}", (type(module),), members)

    return change


def doubled(self: nn.Module, x: Tensor) -> Tensor:
    """A forward of a class made on the fly."""
    return super(type(self), self).forward(x) * 2


def conv(**options) -> nn.Conv2d:
    return nn.Conv2d(CHANNELS, CHANNELS, 3, **{"padding": 1, "bias": False, **options}, groups=CHANNELS)


def without_statistics(**values):
    return put("first.bn1", running_mean=None, running_var=None, **values)


CHANGES = {
    "forward hook": (call("first.bn1", "register_forward_hook", twice), NOWHERE),
    "pre-hook": (call("second.act2", "register_forward_pre_hook", twice), NOWHERE),
    "backward hook": (call("second.bn2", "register_full_backward_hook", lambda _, dx, dy: twice(dx)), NOWHERE),
    "backward pre-hook": (call("first.act1", "register_full_backward_pre_hook", twice), NOWHERE),
    "hook on a container": (call("first", "register_forward_hook", twice), NOWHERE),
    "hook around it": (call("", "register_forward_hook", twice), BOTH),
    "another norm": (replaced("first.bn1", lambda: nn.BatchNorm2d(CHANNELS)), BOTH),
    "a norm without weights": (replaced("first.bn1", lambda: nn.BatchNorm2d(CHANNELS, affine=False)), NOWHERE),
    "another kind of norm": (replaced("first.bn1", lambda: nn.GroupNorm(2, CHANNELS)), NOWHERE),
    "another convolution": (replaced("second.conv", conv), BOTH),
    "another stride": (replaced("second.conv", lambda: conv(stride=2)), NOWHERE),
    "a bias": (replaced("second.conv", lambda: conv(bias=True)), BOTH),
    "an activation in its place": (put("first.act1", inplace=True), NOWHERE),
    "a module more": (call("", "add_module", "end", Twice()), None),
    "a module less": (lambda model: model._modules.__delitem__("narrow"), None),
    "a module more in a container": (call("first", "add_module", "end", Twice()), NOWHERE),
    "another module after it": (replaced("narrow", lambda: nn.Conv2d(8, 2, 1)), BOTH),
    "forward of an instance": (patched("first.act1", twice), NOWHERE),
    "forward of the model": (patched("", twice), NOWHERE),
    "a norm in evaluation": (call("first.bn1", "eval"), "evaluation"),
    "frozen norm": (call("first.bn1", "requires_grad_", False), BOTH),
    "momentum": (put("first.bn1", momentum=0.3), BOTH),
    "no momentum": (put("second.bn2", momentum=None), BOTH),
    "eps": (put("second.bn2", eps=1e-2), NOWHERE),
    "parametrised weight": (lambda model: register_parametrization(model.second.conv, "weight", Twice()), NOWHERE),
    "padding mode": (put("second.conv", padding_mode="circular"), NOWHERE),
    "statistics of the batch": (without_statistics(track_running_stats=False), NOWHERE),
    "no buffers": (without_statistics(), "training"),
    "class of a library": (of_another_class(""), BOTH),
    "class of a norm": (of_another_class("first.bn1", forward=doubled), NOWHERE),
    "class of a container": (of_another_class("second", forward=doubled), NOWHERE),
}  # fmt: skip
OF_WRITTEN = {
    "flag": (put("", skips=True), NOWHERE),
    "scale": (put("", scale=2.0), NOWHERE),
    "a list grows": (lambda model: model.shifts.append(1.0), NOWHERE),
    "a list in a list": (lambda model: model.shifts[1].append(1.0), NOWHERE),
    "another list": (put("", shifts=[0.5, [3.0]]), NOWHERE),
    "a function": (put("", shift=F.silu), NOWHERE),
    "a method": (put("", ended=twice), NOWHERE),
    "a module where none was": (put("", last=Twice()), NOWHERE),
    "no parameter": (put("", gain=None), NOWHERE),
    "another parameter": (like("gain", lambda: nn.Parameter(torch.full((), 3.0))), BOTH),
    "a parameter where none was": (like("offset", lambda: nn.Parameter(torch.full((), 2.0))), NOWHERE),
    "a buffer where none was": (like("level", lambda: torch.full((), 2.0)), NOWHERE),
    "a module more in a list": (lambda model: model.more.append(Twice()), NOWHERE),
    "another module in a list": (lambda model: model.more.__setitem__(0, Twice()), None),
}


ONE_KIND = {"a module less": "Sequential", **dict.fromkeys(OF_WRITTEN, "written")}
"""Nothing that the other kind reads."""


@taking_turns([*CHANGES, *OF_WRITTEN])
def test_what_changes_later_is_right(models, case):
    change, runs = {**CHANGES, **OF_WRITTEN}[case]
    counted = as_one()
    for each in models:
        change(each)
    assert_same(*models)
    if runs is not None:
        assert_runs(counted, runs)


# -- what is active meanwhile ------------------------------------------------------------------------------------------


class Noted(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def hooked(register, hook):
    """A hook of all modules."""
    handle = register(lambda module, *given: hook(*given) if type(module) is nn.BatchNorm2d else None)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def class_patched(kind, name, value):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(kind, name, value)
        yield


ACTIVE = {
    "a mode of functions": Noted,
    "a mode of operators": Dispatched,
    "a hook of all": lambda: hooked(of_all.register_module_forward_hook, twice),
    "a pre-hook of all": lambda: hooked(of_all.register_module_forward_pre_hook, twice),
    "a backward hook of all": lambda: hooked(of_all.register_module_full_backward_hook, lambda dx, dy: twice(dx)),
    "forward of a class": lambda: class_patched(nn.ReLU6, "forward", lambda self, x: x.sigmoid()),
    "forward of norms": lambda: class_patched(
        nn.BatchNorm2d, "forward", lambda self, x: x * 2 + 0 * (self.weight.sum() + self.bias.sum())
    ),
}


@pytest.mark.filterwarnings("ignore:.* one by one while")
@taking_turns(ACTIVE)
def test_what_is_active_sees_pytorchs_modules(models, case):
    counted = as_one()
    with ACTIVE[case]():
        assert_same(*models)
    assert_runs(counted, NOWHERE)
    assert_same(*models)


@everywhere
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_norms_that_learn_without_gradients(models, mode):
    counted = as_one()
    with mode():
        results = [model(drawn().detach().to(next(model.parameters()).dtype)) for model in models]
    assert_close(*([each, *model.buffers()] for each, model in zip(results, models, strict=True)))
    assert_runs(counted, NOWHERE)


@everywhere
def test_autocast(models, kind):
    model, _ = models
    exact = plain_of(kind)
    exact.load_state_dict(model.state_dict())
    counted = as_one()
    with torch.autocast("cpu", torch.bfloat16):
        for x in (drawn(), drawn().detach().bfloat16().requires_grad_()):
            found, expected = step(model, x), step(exact, x)
            for got, wanted in zip(found, expected, strict=True):
                assert got.dtype is wanted.dtype
                allowed = 3e-2 * max(1.0, float(wanted.abs().max()))
                torch.testing.assert_close(got.double(), wanted.double(), rtol=3e-2, atol=allowed)
    assert as_one()["forward"] == counted["forward"] + 1, "where x has its type already"


@everywhere
def test_other_parameters_for_one_call(models):
    x, results, counted = drawn(), [], as_one()
    for model in models:
        given = {name: (each.detach() * 1.5).requires_grad_() for name, each in model.named_parameters()}
        like = x.detach().to(next(model.parameters()).dtype).requires_grad_()
        z = torch.func.functional_call(model, given, (like,))
        weights = torch.linspace(-1, 1, z.numel()).view(z.shape)
        results.append([z, *torch.autograd.grad((z * weights).sum(), [like, *given.values()]), *model.buffers()])
    assert_close(*results)
    assert as_one()["forward"] == counted["forward"] + 1
    assert_same(*models)


@everywhere
def test_transforms_of_functions(models):
    x, results, counted = drawn().detach(), [], as_one()
    for model in models:
        model.eval()
        given = {name: each.detach() for name, each in model.named_parameters()}
        like = x.to(next(model.parameters()).dtype)
        loss = torch.func.grad(lambda given, x, model=model: torch.func.functional_call(model, given, (x,)).sum())
        results.append([*loss(given, like).values(), torch.vmap(model)(like[None])])
    assert_close(*results)
    assert_runs(counted, NOWHERE)


def sliced(x: Tensor) -> Tensor:
    wide = torch.cat([x, x], 3).to(memory_format=torch.channels_last)
    return wide[..., : x.shape[3]]


@everywhere
@pytest.mark.parametrize(
    ("made", "runs"),
    [(Tensor.contiguous, NOWHERE), (sliced, "training"), (Tensor.clone, BOTH)],
    ids=["contiguous", "a slice", "a copy"],
)
def test_images_that_lie_otherwise(models, made, runs):
    """A step multiplies a slice, which makes it dense."""
    counted = as_one()
    assert_same(*models, made(drawn().detach()).requires_grad_())
    assert_runs(counted, runs)


@everywhere
@pytest.mark.parametrize("made", [Tensor.double, lambda x: x[0], lambda x: x[:, :4]])
def test_images_that_pytorch_refuses(models, kind, made):
    """With PyTorch's own error."""
    model, plain = models[0], plain_of(kind)
    with pytest.raises((RuntimeError, ValueError)) as expected:
        plain(made(drawn().detach()))
    with pytest.raises(expected.type, match=f"^{re.escape(str(expected.value))}$"):
        model(made(drawn().detach()))


@everywhere
def test_weights_of_16_bits(models, kind):
    model, plain = models[0].bfloat16(), plain_of(kind).bfloat16()
    plain.load_state_dict(model.state_dict())
    x, counted = drawn().detach().bfloat16().requires_grad_(), as_one()
    for got, wanted in zip(step(model, x), step(plain, x), strict=True):
        torch.testing.assert_close(got, wanted, rtol=5e-2, atol=5e-2 * max(1.0, float(wanted.abs().max())))
    assert_runs(counted, NOWHERE)


# -- copies ------------------------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_copies_have_guards_of_their_own(models, copied):
    model, exact = models
    twin, twin_exact = copied(model), copy.deepcopy(exact)
    for each in (twin, twin_exact):
        each.first.bn1.register_forward_pre_hook(twice)
    counted = as_one()
    assert_same(twin, twin_exact)
    assert_runs(counted, NOWHERE)
    assert_same(model, exact)
    assert_runs(counted, BOTH)


@pytest.mark.parametrize(("way", "kind"), [("interpreted", "written")], indirect=["way"])
def test_a_new_process_has_guards(models, way, tmp_path):
    torch.save(models, tmp_path / "models")
    code = (
        "import sys, torch, tests.call.test_traced_guards as here;"
        "models = torch.load(sys.argv[1], weights_only=False); here.assert_same(*models);"
        "here.assert_runs(dict.fromkeys(here.as_one(), 0), here.BOTH); counted = here.as_one();"
        "[each.first.bn1.register_forward_hook(here.twice) for each in models]; here.assert_same(*models);"
        "here.assert_runs(counted, here.NOWHERE)"
    )
    given = {**os.environ, "DWCONV_NATIVE": "0"}
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "models")]
    done = forked.run(command, env=given, text=True)
    assert done.returncode == 0, done.stderr
