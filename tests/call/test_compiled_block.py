"""In compiled code a block is one op each way where it is measured to be faster, and where it still is that block."""

from __future__ import annotations

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor import config as inductor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import dwconv
from dwconv.call import block_call, block_ops
from dwconv.system import versions
from tests.call.block_checks import alone_is_not_planted, plant_block
from tests.call.block_parts import SIZE, WHOLE, Parts, assert_same, drawn, in_double, ran, step, written
from tests.planted_records import plant, workload_of

pytestmark = alone_is_not_planted
ONE = ["block_forward", "block_backward"]


@pytest.fixture(autouse=True)
def afresh():
    torch._dynamo.reset()


@pytest.fixture
def planted(logs):
    plant_block(logs, WHOLE)


def compiled(model: nn.Module, seen: list[str], **options: bool) -> nn.Module:
    """With the graphs of autograd run as they are. Notes dwconv's ops."""

    def note(graph, example):
        names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        seen.extend(name.split(".")[1] for name in names if name.startswith("dwconv."))
        return make_boxed_func(graph)

    return torch.compile(model, backend=aot_autograd(fw_compiler=note), **options)


@pytest.mark.parametrize(
    ("block", "inplace", "bias"),
    [(WHOLE, False, True), ("none,bn+relu", True, False), ("bn+silu,none", True, False), ("bn@0.001,bn", False, False)],
)
def test_a_block_is_one_op_each_way(logs, block, inplace, bias):
    """A second norm takes a bias away again."""
    plant_block(logs, block)
    model, seen = Parts(block, inplace=inplace, bias=bias), []
    exact = in_double(model)
    assert_same(compiled(model, seen, fullgraph=True), drawn(), exact=exact)
    assert seen == ONE and ran() == (2, 2)


def test_images_of_16_bits_under_autocast(logs):
    plant_block(logs, WHOLE, dtype="bfloat16")
    model, seen, x = Parts(WHOLE), [], drawn().detach().bfloat16().requires_grad_()
    exact = in_double(model)
    with torch.autocast("cpu", torch.bfloat16):
        found = step(compiled(model, seen, fullgraph=True), x)
    expected = step(exact, x.detach().double().requires_grad_())
    assert seen == ONE and found[0].dtype is torch.bfloat16
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.double(), wanted.double(), rtol=2e-2, atol=2e-2 * float(wanted.abs().max()))


def test_other_batches_are_one_op_too(planted):
    model, seen = Parts(WHOLE), []
    exact = in_double(model)
    made = compiled(model, seen, dynamic=True)
    for batch in (2, 3, 5):
        assert_same(made, drawn((batch, *SIZE[1:])), exact=exact, steps=1)
    assert seen == ONE


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_every_backend_runs_it_as_one(planted, backend):
    model = Parts(WHOLE)
    exact = in_double(model)
    with inductor.patch({"cpp.vec_isa_ok": True}):  # it would compile C++ to see
        assert_same(torch.compile(model, backend=backend, fullgraph=True), drawn(), exact=exact)
    assert ran() == (2, 2)


# -- what stays one by one ---------------------------------------------------------------------------------------------


OTHERS = {
    "a norm that does not train": lambda model: model.bn2.eval(),
    "another eps": lambda model: setattr(model.bn1, "eps", 1e-2),
    "another stride": lambda model: setattr(model.conv, "stride", (2, 2)),
    "a hook": lambda model: model.act1.register_forward_hook(lambda _, given, h: h * 2),
    "no momentum": lambda model: setattr(model.bn1, "momentum", None),
    "a module more": lambda model: model.add_module("end", nn.Identity()),
    "a forward of its own": lambda model: setattr(model.act1, "forward", torch.sigmoid),
    "a method": lambda model: vars(model.bn1).update(_check_input_dim=lambda x: None),
    "a constant of its class": lambda model: setattr(model.bn1, "_version", 3),
    "a method of another": lambda model: setattr(model.act1, "forward", nn.Tanh().forward),
    "a call of its own": lambda model: setattr(model.act1, "_call_impl", torch.sigmoid),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_another_block_now_stays(planted, case):
    model, seen = Parts(WHOLE), []
    exact = in_double(model)
    for each in (model, exact):
        OTHERS[case](each)
    assert_same(compiled(model, seen), drawn(), exact=exact)
    assert "block_forward" not in seen


def test_what_is_slower_stays(logs):
    plant_block(logs, WHOLE, baseline_us=20.0)
    model, seen = Parts(WHOLE), []
    exact = in_double(model)
    assert_same(compiled(model, seen, fullgraph=True), drawn(), exact=exact)
    assert "fprop" in seen and "block_forward" not in seen


def test_what_does_not_train_stays(planted):
    seen = []
    made = compiled(Parts(WHOLE), seen)
    with torch.no_grad():
        made(drawn())
    made.eval()(drawn()).sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        assert made.train()(drawn()).dtype is torch.bfloat16
    assert "block_forward" not in seen


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_exported_knows_nothing_of_it(planted, strict):
    exported = torch.export.export(Parts(WHOLE), (drawn().detach(),), strict=strict)
    assert not [node for node in exported.graph.nodes if "dwconv" in str(node.target)]


def test_graphs_are_kept_under_what_decided(planted, logs, monkeypatch):
    """One process gives two graphs for two decisions."""
    slower = logs.parent / "slower"
    slower.mkdir()
    plant(slower / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)], baseline_us=20.0)
    seen, kept = {}, {}
    for folder in (logs, slower, logs):
        monkeypatch.setenv("DWCONV_TUNING_LOGS", str(folder))
        dwconv.reset()
        torch._dynamo.reset()
        made = compiled(Parts(WHOLE), seen.setdefault(folder, []))
        step(made, drawn())
        assert kept.setdefault(folder, block_ops.decided_by) == block_ops.decided_by
    assert seen[logs] == ONE * 2 and "block_forward" not in seen[slower] and kept[logs] != kept[slower]
    installed = {**versions.installed(), "dwconv": "0.0.1"}
    monkeypatch.setattr(versions, "installed", lambda: installed)
    block_ops.note_decisions()
    assert block_ops.decided_by not in kept.values()


def test_a_size_that_is_known_only_when_the_graph_runs_is_no_block(planted):
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        assert block_call.size_of(mode.shape_env.create_unbacked_symint()) is None


def test_a_block_that_is_written_is_one_op(planted):
    model, seen = written(Parts(WHOLE)), []
    assert_same(compiled(model, seen, fullgraph=True), drawn(), exact=in_double(model))
    assert seen == ONE
