"""In compiled code a block is one op each way where it is measured to be faster, all there, and nobody looks inside."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional as F

import dwconv
from dwconv.call import compiled_block
from dwconv.call.compiled_block import make_blocks_one
from dwconv.errors import DwconvWarning
from dwconv.system import versions
from tests.call.block_parts import CHANNELS, SIZE, WHOLE, Parts, drawn, passes_that_ran, step
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")  # the convolution alone is not planted
ONE = ["block_forward", "block_backward"]


@pytest.fixture(autouse=True)
def afresh():
    torch._dynamo.reset()
    with config.patch(pre_grad_custom_pass=None):
        yield


@pytest.fixture
def planted(logs):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)])


def compiled(model: nn.Module, seen: list[str], **options: bool) -> nn.Module:
    """With the graph as Inductor would go on with it, and none of its code. Notes dwconv's ops."""

    def note(graph, example):
        names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        seen.extend(name.split(".")[1] for name in names if name.startswith("dwconv."))
        return make_boxed_func(graph)

    def backend(graph, example):
        make_blocks_one(graph.graph)
        graph.graph.lint()
        graph.recompile()
        return aot_autograd(fw_compiler=note)(graph, example)

    return torch.compile(model, backend=backend, **options)


def assert_same(made: nn.Module, exact: nn.Module, x: Tensor, *, steps: int = 2) -> None:
    """Results, gradients and running statistics of ``made`` are those of ``exact``, in double."""
    for _ in range(steps):
        found, expected = step(made, x), step(exact, x.detach().double().requires_grad_())
        for got, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(got.double(), wanted.double(), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("inplace", [False, True], ids=["", "in place"])
@pytest.mark.parametrize("block", [WHOLE, "none,bn+relu", "bn+silu,none", "bn@0.001,bn"])
def test_a_block_is_one_op_each_way(logs, block, inplace):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=block)])
    model, seen = Parts(block, inplace=inplace), []
    for norm, eps in ((model.bn1, 1e-3), (model.bn2, 1e-5)):
        norm.eps = eps if block.startswith("bn@") else 1e-5
    exact = copy.deepcopy(model).double()
    assert_same(compiled(model, seen, fullgraph=True), exact, drawn())
    assert seen == ONE and passes_that_ran() == {"forward": 2, "backward": 2}


@pytest.mark.parametrize("block", [WHOLE, "bn+silu,none"])
def test_a_second_norm_takes_a_bias_away_again(logs, block):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=block)])
    model, seen = Parts(block, bias=True), []
    exact = copy.deepcopy(model).double()
    assert_same(compiled(model, seen, fullgraph=True), exact, drawn())
    assert (seen == ONE) == (block == WHOLE)


@pytest.mark.parametrize("is_autocast", [True, False], ids=["autocast", "as they are"])
def test_images_of_16_bits(logs, is_autocast):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE, dtype="bfloat16")])
    model, seen, x = Parts(WHOLE), [], drawn().detach().bfloat16().requires_grad_()
    if not is_autocast:
        model.conv.bfloat16()
    exact = copy.deepcopy(model).double()
    with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
        found = step(compiled(model, seen, fullgraph=True), x)
    expected = step(exact, x.detach().double().requires_grad_())
    assert seen == ONE and found[0].dtype is torch.bfloat16
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.double(), wanted.double(), rtol=2e-2, atol=2e-2 * float(wanted.abs().max()))


def test_other_batches_are_one_op_too(planted):
    model, seen = Parts(WHOLE), []
    exact = copy.deepcopy(model).double()
    made = compiled(model, seen, dynamic=True)
    for batch in (2, 3, 5):
        assert_same(made, exact, drawn((batch, *SIZE[1:])), steps=1)
    assert seen == ONE


def test_inductor_and_whoever_looks_at_its_graphs(planted):
    model, looked = Parts(WHOLE), []
    exact = copy.deepcopy(model).double()
    config.pre_grad_custom_pass = looked.append
    assert_same(torch.compile(model), exact, drawn())
    assert passes_that_ran() == {"forward": 2, "backward": 2} and len(looked) == 1
    shown = config.pre_grad_custom_pass
    compiled_block.show_graphs()
    assert config.pre_grad_custom_pass is shown
    dwconv.reset()
    torch._dynamo.reset()
    assert_same(torch.compile(Parts(WHOLE)), Parts(WHOLE).double(), drawn(), steps=1)
    assert len(looked) == 2, "it is asked once for each graph, however often it was compiled"


def test_a_pytorch_that_shows_its_graphs_to_nobody_is_named(planted, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._inductor.custom_graph_pass", None)
    compiled_block._pass_class.cache_clear()
    with pytest.warns(DwconvWarning, match="compiled code has no blocks as one"):
        z = torch.compile(Parts(WHOLE), backend="aot_eager")(drawn())
    torch.testing.assert_close(z.double(), Parts(WHOLE).double()(drawn().double()), rtol=1e-4, atol=1e-4)


# -- what stays one by one ---------------------------------------------------------------------------------------------

BETWEEN = {
    "a function": ("act1", lambda h: h + 1),
    "twice": ("act1", lambda h: h + F.relu(h)),
    "in place": ("conv", lambda y: y.mul_(2)),
    "a method": ("bn1", Tensor.sigmoid),
    "written over by its activation": ("bn2", lambda y: (F.hardswish(y, inplace=True), y)[1]),
    "as a result": ("bn1", lambda h: h.sum() * 0 + h),
}


@pytest.mark.parametrize("case", BETWEEN)
def test_what_somebody_looks_at_stays(planted, case):
    model, seen = Parts(WHOLE), []
    part, between = BETWEEN[case]
    model.between = {part: between}
    exact = copy.deepcopy(model).double()
    assert_same(compiled(model, seen), exact, drawn())
    assert "block_forward" not in seen and "fprop" in seen


def twice(model: Parts) -> None:
    """The second norm is the first one, whose statistics have learnt in between."""
    model.bn2 = model.bn1


def of_a_weight_that_is_computed(model: Parts) -> None:
    torch.nn.utils.parametrizations.weight_norm(model.conv)


OTHERS = {
    "a norm that does not train": lambda model: model.bn2.eval(),
    "a norm without weights": lambda model: setattr(model, "bn1", nn.BatchNorm2d(CHANNELS, affine=False)),
    "another eps": lambda model: setattr(model.bn1, "eps", 1e-2),
    "another norm": lambda model: setattr(model, "bn1", nn.GroupNorm(2, CHANNELS)),
    "another activation": lambda model: setattr(model, "act1", nn.ReLU()),
    "another stride": lambda model: setattr(model.conv, "stride", (2, 2)),
    "a norm twice": twice,
    "a weight that is computed": of_a_weight_that_is_computed,
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_not_the_block_stays(planted, case):
    model, seen = Parts(WHOLE), []
    OTHERS[case](model)
    exact = copy.deepcopy(model).double()
    assert_same(compiled(model, seen), exact, drawn())
    assert "block_forward" not in seen


def test_what_is_slower_stays(logs):
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)], baseline_us=20.0)
    model, seen = Parts(WHOLE), []
    assert_same(compiled(model, seen), copy.deepcopy(model).double(), drawn(), steps=1)
    assert "block_forward" not in seen


def test_contiguous_images_stay(planted):
    model, seen = Parts(WHOLE), []
    x = drawn().detach().contiguous().requires_grad_()
    assert_same(compiled(model, seen), copy.deepcopy(model).double(), x, steps=1)
    assert "block_forward" not in seen


def test_what_does_not_train_stays(planted):
    model, seen = Parts(WHOLE), []
    made = compiled(model, seen)
    with torch.no_grad():
        made(drawn())
    made.eval()(drawn()).sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        assert made.train()(drawn()).dtype is torch.bfloat16
    assert seen and "block_forward" not in seen


def test_transforms_of_functions_see_nothing_of_it(planted):
    model, seen = Parts(WHOLE), []
    for name in ("bn1", "bn2"):  # no statistics, which a transform may not change
        setattr(model, name, nn.BatchNorm2d(CHANNELS, track_running_stats=False))

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (x,)).square().sum()

    class Transformed(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            weights = {name: weight.detach() for name, weight in model.named_parameters()}
            return torch.func.grad(loss)(weights, x)["conv.weight"], torch.vmap(model)(x[None])

    x = drawn().detach()
    for found, expected in zip(compiled(Transformed(), seen)(x), Transformed()(x), strict=True):
        torch.testing.assert_close(found, expected)
    assert "block_forward" not in seen


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_exported_knows_nothing_of_it(planted, strict):
    exported = torch.export.export(Parts(WHOLE), (drawn().detach(),), strict=strict)
    assert not [node for node in exported.graph.nodes if "dwconv" in str(node.target)]


def test_graphs_are_kept_under_what_decided(planted, logs, monkeypatch):
    installed = versions.installed()

    def kept_under():
        dwconv.reset()
        return compiled_block._pass_class()([]).uuid()

    before = kept_under()
    assert before and before == kept_under()
    plant(logs / "more.jsonl", [workload_of(shape=(5, *SIZE[1:]), block=WHOLE)])
    with_more = kept_under()
    assert before != with_more
    monkeypatch.setattr(versions, "installed", lambda: {**installed, "dwconv": "0.0.1"})
    assert kept_under() not in (before, with_more)
    assert compiled_block._pass_class()([print]).uuid() is None


def test_a_size_that_is_known_only_when_the_graph_runs_is_no_block():
    shapes = ShapeEnv()
    with FakeTensorMode(shape_env=shapes):
        image = torch.empty(shapes.create_unbacked_symint(), *SIZE[1:])
    node = torch.fx.Graph().placeholder("x")
    node.meta["example_value"] = image
    assert compiled_block._value(node) is None


def test_a_block_that_is_written_is_one_op(planted):
    torch.manual_seed(0)
    conv = dwconv.nn.DepthwiseConv2d(CHANNELS, 3, padding=1, bias=False)
    parts = {
        "bn1": nn.BatchNorm2d(CHANNELS),
        "act1": nn.ReLU6(),
        "bn2": nn.BatchNorm2d(CHANNELS),
        "act2": nn.Hardswish(),
    }
    model, seen = dwconv.nn.DepthwiseBlock(conv=conv, **parts), []
    exact = copy.deepcopy(model).double()
    assert_same(compiled(model, seen, fullgraph=True), exact, drawn())
    assert seen == ONE
