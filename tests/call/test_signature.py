"""A trace stands for calls of its signature, without a tool that it checks for: others run the forward pass itself."""

from __future__ import annotations

import copy
import dataclasses
import enum
import pickle

import pytest
import torch
import torch.compiler as compiler
from torch import Tensor, nn
from torch.compiler import is_compiling as compiles
from torch.jit import is_tracing

import dwconv
from dwconv.call.call_plan import plans
from dwconv.discovery import discover
from dwconv.tuner import model_race
from tests.call.block_checks import plant_block
from tests.call.block_parts import drawn
from tests.discovery.test_python_decisions import Net, net
from tests.native_needed import both_ways

pytestmark = pytest.mark.filterwarnings(
    "ignore:.* on PyTorch's own op", "ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning"
)
BLOCK = "bn+relu6,bn"
SIZE = (2, 8, 9, 7)
MASK = torch.linspace(0, 1, 7)


class Mode(enum.Enum):
    PLAIN = 1
    TWICE = 2


@dataclasses.dataclass
class Options:
    scale: float = 2.0


OPTIONS = Options()


def call(*args, **kwargs):
    return args, kwargs


def helped(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x * mask


class Masks(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None, *, twice: bool = False) -> Tensor:
        return helped(x * 2 if twice else x, mask)


def masked(self: Net, x: Tensor, mask: Tensor | None = None) -> Tensor:
    return self.block(x) if mask is None else self.block(x) * mask


class Masked(Net):
    forward = masked


def by_a_local(self: Net, x: Tensor, mask: Tensor | None = None) -> Tensor:
    has_mask = mask is not None
    z = self.block(x)
    if has_mask:
        z = z * mask
    return z


def by_an_if_else(self: Net, x: Tensor, temb: Tensor | None = None, scale: float = 1.0) -> Tensor:
    return self.block(x) * scale + (temb if temb is not None else 0.0)


def by_or(self: Net, x: Tensor, name: str = "", times: int = 0) -> Tensor:
    return self.block(x) * (times or 3) * (2 if (name and name != "plain") or times > 2 else 1)


def by_match(self: Net, x: Tensor, mode: str = "plain") -> Tensor:
    match mode:
        case "twice":
            return self.block(x) * 2
        case None:
            return self.block(x) * 3
    return self.block(x)


def by_arguments(self: Net, x: Tensor, *args: Tensor) -> Tensor:
    return self.block(x) * args[0] if len(args) else self.block(x)


def by_keywords(self: Net, x: Tensor, **kwargs: Tensor) -> Tensor:
    z = self.block(x)
    for each in kwargs.values():
        z = z * 2 + each
    return z - 1 if "mask" in kwargs else z


def by_a_number(self: Net, x: Tensor, scale: float = 1.0) -> Tensor:
    return self.block(x) * (2 if scale > 0.5 else 3) * str(scale).count("-")


def by_a_list(self: Net, x: Tensor, skips: list[Tensor], scales: dict[str, float] | None = None) -> Tensor:
    z = self.block(x)
    for each in skips:
        z = z + each
    return z * scales.get("scale", 2.0) if scales else z


def sized(self: Net, x: Tensor, H: int, W: int) -> Tensor:
    return self.block(x.flatten(2).view(x.shape[0], 8, H, W).to(memory_format=torch.channels_last))


def flagged(self: Net, x: Tensor, /, flag: bool = False, *, mode: Mode = Mode.PLAIN) -> Tensor:
    x = self.block(x) if not flag else x
    return x * 2 if mode is Mode.TWICE else x


X, TWICE = drawn(SIZE).detach(), torch.tensor(2.0)
CASES = {
    "a mask": (masked, call(X), [call(X, None), call(x=X)], [call(X, MASK), call(X, mask=MASK), call(x=X, mask=MASK)]),
    "a mask in the example": (masked, call(X, MASK), [call(X, mask=MASK)], [call(X), call(X, None)]),
    "a local": (by_a_local, call(X), [call(X, None)], [call(X, MASK)]),
    "an expression": (
        by_an_if_else,
        call(X, MASK),
        [call(X, temb=MASK)],
        [call(X), call(X, MASK, 0.5), call(X, scale=2.0)],
    ),
    "or": (by_or, call(X), [call(X, "")], [call(X, "twice"), call(X, "plain"), call(X, times=5), call(X, None, 1)]),
    "match": (by_match, call(X), [call(X, mode="plain")], [call(X, "twice"), call(X, None), call(X, 3)]),
    "positional ones": (by_arguments, call(X), [], [call(X, MASK), call(X, MASK, MASK)]),
    "two positional ones": (
        by_arguments,
        call(X, MASK),
        [call(X, TWICE)],
        [call(X), call(X, MASK, MASK), call(X, None)],
    ),
    "keywords": (by_keywords, call(X), [call(x=X)], [call(X, mask=MASK), call(X, other=TWICE)]),
    "two keywords": (
        by_keywords,
        call(x=X, a=MASK, b=TWICE),
        [call(X, a=MASK, b=TWICE)],
        [call(X, b=TWICE, a=MASK), call(X, a=MASK), call(X, a=MASK, b=None), call(X, a=MASK, b=TWICE, mask=MASK)],
    ),
    "a list": (
        by_a_list,
        call(X, [X]),
        [call(X, [X * 2], None)],
        [call(X, []), call(X, [X, X]), call(X, (X,)), call(X, [X], {"scale": 3.0}), call(X, [X], {}), call(X, X[:1])],
    ),
    "a dictionary": (
        by_a_list,
        call(X, [], {"scale": 1.5}),
        [call(X, [], {"scale": -0.0})],
        [call(X, [], {"other": 1.5}), call(X, []), call(X, [], {"scale": 1})],
    ),
    "a number": (
        by_a_number,
        call(X, 2.0),
        [call(X, scale=2.0)],
        [call(X), call(X, 2), call(X, 0.25), call(X, MASK[3])],
    ),
    "zero": (by_a_number, call(X, 0.0), [], [call(X, -0.0), call(X, 0), call(X, False), call(X, None)]),
    "sizes": (sized, call(X.flatten(2), 9, 7), [call(X.flatten(2), W=7, H=9)], [call(X.flatten(2), True, 63)]),
    "a flag": (
        flagged,
        call(X),
        [call(X, False), call(X, mode=Mode.PLAIN)],
        [call(X, True), call(X, 0), call(X, mode=Mode.TWICE)],
    ),
    "an enum": (flagged, call(X, flag=False, mode=Mode.TWICE), [], [call(X), call(X, flag=True), call(X, mode=None)]),
    "a helper": (
        lambda self, x, mask=None: helped(self.block(x), mask),
        call(X),
        [call(X, None)],
        [call(X, MASK), call(X, mask=MASK)],
    ),
    "a module inside": (
        lambda self, x, mask=None, twice=False: self.masks(self.block(x), mask, twice=twice),
        call(X, MASK),
        [],
        [call(X), call(X, MASK, True), call(X, twice=True)],
    ),
}
WRONG = [call(), call(X, X, X, X), call(X, nothing=1), call(None), call(X, **{"self": 1})]
"""No call of any of them."""


@pytest.fixture(autouse=True)
def known(logs, monkeypatch):
    monkeypatch.setattr(model_race, "race_for", lambda *args, **kwargs: [])
    plant_block(logs, BLOCK)
    plant_block(logs, BLOCK, passes=["inference"])
    torch._dynamo.reset()


class Caller(nn.Module):
    """A model that calls a module of its own in one way."""

    def __init__(self, inner: nn.Module, given) -> None:
        super().__init__()
        self.inner, self.given = inner, given

    def forward(self, x: Tensor) -> Tensor:
        args, kwargs = self.given
        return self.inner(*args, **kwargs)


def converted(forward, given, **members) -> tuple[nn.Module, nn.Module]:
    """A module with its block as one, as a model called it, and the plain one."""
    model = forward() if isinstance(forward, type) else net(forward, **members)
    plain = copy.deepcopy(model)
    dwconv.convert(Caller(model, given), X, blocks=True)
    return model, plain


def ran(pass_: str = "forward") -> int:
    return sum(plan.tally.counted_ops()[pass_] for plan in plans() if plan.problem.block)


def result(model: nn.Module, given) -> list[Tensor] | Exception:
    args, kwargs = copy.deepcopy(given)
    try:
        z = model(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  whatever the plain model raises
        return error
    return [z, *(each.clone() for each in model.buffers())]


def assert_same(model: nn.Module, plain: nn.Module, given) -> None:
    found, wanted = result(model, given), result(plain, given)
    if isinstance(wanted, Exception):
        assert type(found) is type(wanted) and str(found) == str(wanted), found
        return
    assert not isinstance(found, Exception), found
    for got, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_a_call_of_another_signature_runs_the_forward_pass(case):
    forward, example, alike, others = CASES[case]
    model, plain = converted(forward, example, masks=Masks())
    for given in (example, *alike, *others, example, *WRONG, example):
        before = ran()
        assert_same(model, plain, given)
        expected = any(given is each for each in (example, *alike))
        assert ran() - before == expected, f"{given[0][1:]}, {given[1]}"


def test_any_number_that_decides_nothing():
    model, plain = converted(sized, call(X.flatten(2), 9, 7))
    x = torch.randn(2, 8, 7 * 9)
    for given in (call(x, 7, 9), call(x, 3, 21), call(x, 9, 7)):
        assert_same(model, plain, given)
    assert ran() == 1, "only one of these sizes has a kernel"
    traces = [each for each in type(model).traces if each.training]  # of norms that learn, and of frozen ones
    assert traces
    for trace in traces:
        assert trace.signature.inputs((x, 3), {"W": 21}) == [x, 3, 21]


def changes(self: Net, x: Tensor, skips: list[Tensor]) -> Tensor:
    skips.append(x)
    return self.block(x)


LEFT = {
    "an object": (
        lambda self, x, options: self.block(x) * options.scale,
        call(X, Options()),
        "its argument options is a",
    ),
    "a default object": (
        lambda self, x, options=OPTIONS: self.block(x) * options.scale,
        call(X),
        "its argument options is a Options by default",
    ),
    "a default list": (
        lambda self, x, seen=[]: self.block(x) + len(seen),
        call(X),
        "its argument seen is a list by default",
    ),
    "a function": (lambda self, x, do: do(self.block(x)), call(X, torch.relu), "its argument do is a"),
    "a list that it changes": (changes, call(X, [X]), "changes its arguments"),
    "is": (
        lambda self, x, y: self.block(x) * (2 if x is y else 3),
        call(X, X),
        "decides by whether two objects are one",
    ),
    "a size": (lambda self, x, n=7: self.block(x) if x.shape[-1] >= n else x, call(X), "cannot be traced"),
    "a layout": (lambda self, x: x if x.is_contiguous() else self.block(x), call(X), "cannot be traced"),
    "a device": (lambda self, x: self.block(x) if x.device.type == "cpu" else x, call(X), "cannot be traced"),
    "a module that gives None": (
        lambda self, x: self.block(x) * (2 if self.none(x) is None else 3),
        call(X),
        "tests for None what another module",
    ),
}


class NoResult(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> None:
        return None


@pytest.mark.parametrize("case", LEFT)
def test_what_no_signature_has_stays(case):
    forward, given, why = LEFT[case]
    model, plain = converted(forward, given, none=NoResult())
    (block,) = discover(Caller(plain, given), X).blocks
    assert block.problem is None and why in block.why_not
    for _ in range(2):
        assert_same(model, plain, given)
    assert ran() == 0


@both_ways
def test_each_mode_and_each_copy_has_it(way):
    model, plain = converted(Masked, call(X, MASK))
    for each in (model, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        exact = copy.deepcopy(plain)
        for pass_ in ("forward", "inference"):
            each.train(pass_ == "forward"), exact.train(pass_ == "forward")
            with torch.set_grad_enabled(pass_ == "forward"):
                for given, runs in ((call(X, MASK), 1), (call(X), 0), (call(X, mask=MASK), 1)):
                    before = ran(pass_)
                    assert_same(each, exact, given)
                    assert ran(pass_) - before == runs


@pytest.mark.parametrize("example", [call(X), call(X, MASK)], ids=["without", "with"])
def test_compiled_calls_of_each_signature(example):
    model, plain = converted(masked, example)
    assert not nn.modules.module._has_any_global_hook(), "of a step on an example"
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for given in (call(X), call(X, MASK), call(x=X, mask=MASK), call(X, None)):
        assert_same(compiled, plain, given)


# -- tools -------------------------------------------------------------------------------------------------------------

TOOLS = {
    "is_compiling": lambda: torch.compiler.is_compiling(),
    "a function by another name": lambda: compiles(),
    "a module by another name": lambda: compiler.is_compiling(),
    "is_dynamo_compiling": lambda: torch.compiler.is_dynamo_compiling(),
    "is_exporting": lambda: torch.compiler.is_exporting(),
    "torch._dynamo": lambda: torch._dynamo.is_compiling(),
    "is_tracing": lambda: is_tracing(),
    "is_scripting": lambda: torch.jit.is_scripting(),
    "is_in_onnx_export": lambda: torch.onnx.is_in_onnx_export(),
    "a tracing state": lambda: torch._C._get_tracing_state() is not None,
}


def asking(self: Net, x: Tensor) -> Tensor:
    return x * 3 if self.ask() else self.block(x)


def compiled_graph(model: nn.Module) -> nn.Module:
    return torch.compile(copy.deepcopy(model), backend="eager")


def traced_script(model: nn.Module) -> nn.Module:
    return torch.jit.trace(copy.deepcopy(model).eval(), (X,), check_trace=False)


def exported(model: nn.Module) -> nn.Module:
    return torch.export.export(copy.deepcopy(model).eval(), (X,)).module()


@pytest.mark.parametrize("tool", [compiled_graph, traced_script, exported])
@pytest.mark.parametrize("case", TOOLS)
def test_a_tool_is_seen_as_by_the_plain_model(case, tool):
    model, plain = converted(asking, call(X), ask=TOOLS[case])
    assert_same(model, plain, call(X))
    assert ran() == 1
    torch.testing.assert_close(tool(model)(X), tool(plain)(X), rtol=1e-4, atol=1e-4)


def test_an_exporter_is_seen_where_nothing_is_traced(monkeypatch):
    model, plain = converted(asking, call(X), ask=TOOLS["is_in_onnx_export"])
    with monkeypatch.context() as patched:
        patched.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
        assert_same(model, plain, call(X))
    assert_same(model, plain, call(X))
    assert ran() == 1
