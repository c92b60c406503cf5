"""``convert(model, x, blocks=True)``: the model computes and learns what it did, blocks as one where that is faster."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dwconv
from dwconv.call import process_kernels
from dwconv.discovery import discover
from dwconv.dispatch.advantage import CALL_US
from dwconv.errors import InvalidChoice, InvalidWorkload
from dwconv.model.conversion import ConversionSummary, ConvertedLayer
from dwconv.tuner import model_race
from tests.call.block_parts import blocks_in_evaluation, ran
from tests.model.test_subclasses import Conv2dSame
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:.* on PyTorch's own op")
CHANNELS, SIZE, WHOLE = 8, (2, 8, 9, 7), "bn+relu6,bn+hardswish"


class Inverted(nn.Sequential):
    """As torchvision writes them: layers, norms and activations in sequences."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        depthwise = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)
        super().__init__(
            nn.Sequential(nn.Conv2d(4, CHANNELS, 1, bias=False), nn.BatchNorm2d(CHANNELS), nn.ReLU6(inplace=True)),
            nn.Sequential(depthwise, nn.BatchNorm2d(CHANNELS), nn.Hardswish(inplace=True)),
            nn.Conv2d(CHANNELS, 4, 1),
        )
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


def example(batch: int = 2) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(batch, 4, *SIZE[2:]).to(memory_format=torch.channels_last)


@pytest.fixture(autouse=True)
def known(logs, monkeypatch):
    """What a race would have found."""
    monkeypatch.setattr(model_race, "race_for", lambda *args, **kwargs: [])
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)])


def converted(model: nn.Module | None = None) -> nn.Module:
    return dwconv.convert(model or Inverted(), example(), blocks=True)


def learn(model: nn.Module, *, steps: int = 3) -> list[Tensor]:
    """What the model knows after a few steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    dtype = next(model.parameters()).dtype
    for _ in range(steps):
        optimizer.zero_grad()
        model(example().to(dtype)).square().mean().backward()
        optimizer.step()
    return list(model.state_dict().values())


def assert_learns_the_same(model: nn.Module, *, steps: int = 3) -> None:
    exact = dwconv.revert(copy.deepcopy(model)).double()
    for got, wanted in zip(learn(model, steps=steps), learn(exact, steps=steps), strict=True):
        torch.testing.assert_close(got.double(), wanted.double(), rtol=1e-3, atol=1e-4)


def test_it_learns_the_same_as_one():
    assert_learns_the_same(converted())
    assert ran() == (3, 3)


def test_nothing_else_of_the_model_changes():
    plain = Inverted()
    model = converted(copy.deepcopy(plain))
    assert list(model.state_dict()) == list(plain.state_dict()) and repr(model.state_dict()) == repr(plain.state_dict())
    assert [name for name, _ in model.named_modules()] == [name for name, _ in plain.named_modules()]
    for ours, theirs in zip(model.modules(), plain.modules(), strict=True):
        assert isinstance(ours, type(theirs))
        assert set(vars(ours)) == set(vars(theirs))
    assert type(model[0][1]).__name__ == "BatchNorm2d"
    model.load_state_dict(plain.state_dict())


def test_the_summary_names_blocks_and_what_keeps_others():
    model = nn.ModuleDict({"one": Inverted(), "other": Inverted(), "hooked": Inverted(), "slow": Inverted()})
    model["other"][1][0].register_forward_hook(lambda *_: None)
    model["hooked"][1][1].register_forward_hook(lambda *_: None)
    model["slow"][1][2] = nn.ReLU()
    model.forward = lambda x: sum(each(x) for each in model.values())
    dwconv.convert(model, example(), blocks=True)
    rows = {row.name: row.text for row in dwconv.summary(model).blocks}
    assert rows["one.1.0"].startswith(f"block {WHOLE} from one.0.1 runs as one: forward 20.00× as fast as")
    assert rows["other.1.0"] == "no block: other.1.0 has a hook"
    assert "bn+relu6,none" in rows["hooked.1.0"] and "left out: hooked.1.1 has a hook" in rows["hooked.1.0"]
    assert rows["slow.1.0"].startswith(
        "block bn+relu6,bn+relu from slow.0.1 runs one after the other: forward: untuned"
    )
    lines = str(dwconv.summary(model)).splitlines()
    assert f"  one.1.0     {rows['one.1.0']}" in lines and "  other.1.0   no block: other.1.0 has a hook" in lines
    assert not dwconv.summary(converted(nn.Sequential(nn.Conv2d(4, 4, 1)))).blocks


@pytest.mark.parametrize("is_faster", [True, False])
def test_by_default_those_are_one_that_are_faster(logs, is_faster):
    """Nothing of the others changes; the summary names them. Without an example, and with ``blocks=False``, none is."""
    for model in (dwconv.convert(Inverted(), example(), blocks=False), dwconv.convert(Inverted())):
        assert type(model) is Inverted and dwconv.summary(model).blocks == ()
    if not is_faster:
        (logs / "cpu.jsonl").unlink()
        plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)], baseline_us=1.0)
    model = dwconv.convert(Inverted(), example())
    assert (type(model) is Inverted) != is_faster
    assert_learns_the_same(model)
    assert ran() == ((3, 3) if is_faster else (0, 0))
    (row,) = dwconv.summary(model).blocks
    assert ("runs as one" in row.text) == is_faster and WHOLE in row.text


def test_revert_and_convert_again():
    plain = [id(type(module)) for module in Inverted().modules()]
    model = converted()
    classes = [id(type(module)) for module in model.modules()]
    assert [id(type(module)) for module in converted(model).modules()] == classes
    assert [id(type(module)) for module in dwconv.revert(model).modules()] == plain
    learn(model)
    assert ran() == (0, 0)
    assert [id(type(module)) for module in converted(model).modules()] == classes


def test_a_block_that_is_another_now_is_seen_anew(logs):
    model = converted()
    model[1][2] = nn.ReLU()
    assert_learns_the_same(model, steps=1)
    assert ran() == (0, 0)
    converted(model)
    assert "bn+relu6,bn+relu from" in str(dwconv.summary(model))
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block="bn+relu6,bn+relu")])
    dwconv.reset()
    assert_learns_the_same(model, steps=1)
    assert ran() == (1, 1)


def test_it_infers_as_one_what_it_learnt(logs):
    """Converted as it trains, or as it is evaluated; the mode may change at any time. Reports list it."""
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)], passes=["inference"])
    for prepare in (nn.Module.train, nn.Module.eval):
        dwconv.reset()
        model = converted(prepare(Inverted()))
        told = str(dwconv.summary(model))
        assert "runs as one: inference 20.00×" in told
        assert ("runs as one: forward" in told) == (prepare is nn.Module.train)
        assert_learns_the_same(model.train())
        exact = dwconv.revert(copy.deepcopy(model)).double().eval()
        before = [buffer.clone() for buffer in model.eval().buffers()]
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                torch.testing.assert_close(model(example()).double(), exact(example().double()), rtol=1e-4, atol=1e-4)
        assert blocks_in_evaluation() == 2
        with torch.no_grad():
            (row,) = dwconv.report(model, example()).rows
        assert row.names == ("1.0",) and f"{WHOLE} eval" in row.workload
        assert [(each.pass_, each.calls, each.times) for each in row.passes] == [("inference", 2, 20)]
        assert all(torch.equal(one, other) for one, other in zip(before, model.buffers(), strict=True))


def test_a_layer_that_pads_by_size_runs_as_one_at_every_size(logs):
    """As timm's, of whose padding more is below and to the right at even sizes."""

    def net() -> nn.Sequential:
        torch.manual_seed(0)
        same = Conv2dSame(4, 4, 3, stride=2, groups=4, bias=False)
        return nn.Sequential(nn.Conv2d(4, 4, 1), same, nn.BatchNorm2d(4), nn.ReLU()).to(
            memory_format=torch.channels_last
        )

    model = dwconv.convert(net(), example(), blocks=True)
    (block,) = dwconv.summary(model).discovery.blocks
    assert block.problem.padding == (1, 1, 1, 1)
    even = block.problem.workload("forward")
    even = dataclasses.replace(even, input_size=(8, 6), padding=((0, 1), (0, 1)))
    plant(logs / "cpu.jsonl", [block.problem.workload("forward"), even])
    dwconv.reset()
    for size in ((9, 7), (8, 6)):
        x = torch.randn(2, 4, *size).to(memory_format=torch.channels_last)
        torch.testing.assert_close(model(x), net()(x), rtol=1e-4, atol=1e-4)
    assert ran() == (2, 0)


def test_kernels_of_any_size_run_every_other_size(logs, monkeypatch):
    """Once they are there, the first call of a size builds nothing."""
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE).with_any_size()])
    model = converted()
    for number, size in enumerate([(2, 4, 5, 5), (3, 4, 2, 12), (1, 4, 20, 9)]):
        x = torch.randn(size).to(memory_format=torch.channels_last)
        parts, one = dwconv.revert(copy.deepcopy(model))(x), model(x)
        torch.testing.assert_close(one, parts, rtol=1e-4, atol=1e-4)
        one.sum().backward()
        assert ran()[1] == number + 1
        monkeypatch.setattr(process_kernels, "load", None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_other_tools_see_pytorchs_modules():
    model, x = converted(), example()
    torch._dynamo.reset()
    exact = dwconv.revert(copy.deepcopy(model)).double()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x).double(), exact(x.double()), rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(x).dtype is torch.float32
    traced = torch.jit.trace(model, x, check_trace=False)
    assert "dwconv::" not in str(traced.inlined_graph)
    assert any(node.target == "0.1" for node in torch.fx.symbolic_trace(nn.Sequential(*model)).graph.nodes)
    assert ran() == (1, 0)


class Called(nn.Module):
    """Its code names what is imported here."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 1, 3, 3))

    def forward(self, x):
        return F.conv2d(F.relu(x), self.weight, padding=1, groups=8)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("functional", [None, True, False])
@pytest.mark.parametrize("blocks", [True, False])
def test_what_is_scripted_is_the_code_of_the_model(functional, blocks):
    norm = nn.BatchNorm2d(8)
    model = nn.Sequential(norm, nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), Called()).eval()
    x = torch.randn(2, 8, 6, 6)
    plain = copy.deepcopy(model)
    dwconv.convert(model, x, seconds=0, functional=functional, blocks=blocks)
    scripted = torch.jit.script(model)
    torch.testing.assert_close(scripted(x), plain(x), rtol=1e-4, atol=1e-5)
    assert "dwconv" not in scripted.code and model[0] is norm, "the model stays as it is"


def test_layers_without_a_block_for_one_reason_share_a_line():
    told = ConversionSummary(
        converted=(ConvertedLayer("a", "8 channels"),),
        skipped=(),
        blocks=(*(ConvertedLayer(name, "no block: why") for name in ("a", "b.c", "")), ConvertedLayer("d", "as one")),
    )
    assert str(told).splitlines()[1:] == [
        "  a  8 channels",
        "  d  as one",
        "  no block: why: a, b.c, (the model itself)",
    ]


def test_other_kinds_of_modules_have_reasons():
    model = Inverted()
    model[0][1].forward = lambda x: nn.BatchNorm2d.forward(model[0][1], x)
    assert "the forward of 0.1 is set on the instance" in str(dwconv.summary(converted(model)))
    model = Inverted()
    nn.utils.parametrize.register_parametrization(model[0][1], "weight", nn.Identity())
    assert_learns_the_same(converted(model))


@pytest.mark.parametrize("is_parametrised", [False, True])
def test_what_cannot_be_swapped_is_not_raced(monkeypatch, is_parametrised):
    """Its convolution runs alone, and so do its gradients."""

    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = Inverted()

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.second(self.first(x)))

    model, raced = Written(), []
    if is_parametrised:
        model.scale = nn.Parameter(torch.ones(()))
        nn.utils.parametrize.register_parametrization(model, "scale", nn.Identity())
    monkeypatch.setattr(model_race, "race_for", lambda counts, **given: raced.extend(*counts.values()) or [])
    summary = str(dwconv.summary(converted(model)))
    assert ("(the model itself) is parametrised" in summary) == is_parametrised
    assert {each.pass_ for each in raced if each.block} == (set() if is_parametrised else {"forward", "backward"})
    assert {each.pass_ for each in raced if not each.block} == {"fprop", "dgrad", "wgrad"}


def test_reports_and_tuning_know_blocks():
    model = converted()
    learn(model)
    for report in (dwconv.report(model), dwconv.report(model, example())):
        (row,) = report.rows
        assert row.names == ("1.0",) and f"k3 s1 {WHOLE} f32 nhwc" in row.workload
        assert [(each.pass_, each.calls, each.per_step, each.times) for each in row.passes] == [
            ("forward", 3, 1, 20), ("backward", 3, 1, 20),
        ]  # fmt: skip
        assert f"--block {WHOLE} --passes forward,backward" in row.command
    counts = discover(model, example()).with_blocks().counts()
    assert {workload.pass_ for workload in counts if workload.block} == {"forward", "backward"}
    weight = model[1][0].weight
    told = dwconv.explain(torch.randn(SIZE).to(memory_format=torch.channels_last), weight, padding=1, block=WHOLE)
    assert told["forward"].provider == "dwconv" and "20.00×" in str(told)
    with pytest.raises(InvalidWorkload, match=r"bn\+hardswish has none; leave it out"):
        dwconv.explain(torch.randn(SIZE), weight, torch.zeros(CHANNELS), padding=1, block=WHOLE)


# -- as a layer ------------------------------------------------------------------------------------------------------


def layers(**changed) -> dwconv.nn.DepthwiseBlock:
    torch.manual_seed(0)
    parts = {
        "bn1": nn.BatchNorm2d(CHANNELS), "act1": nn.ReLU6(inplace=True), "bn2": nn.BatchNorm2d(CHANNELS),
        "conv": dwconv.nn.DepthwiseConv2d(CHANNELS, 3, padding=1, bias=False), "act2": nn.Hardswish(),
    }  # fmt: skip
    return dwconv.nn.DepthwiseBlock(**{**parts, **changed})


WRITTEN = {
    "whole": ({}, True),
    "PyTorch's layer": ({"conv": nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)}, True),
    "other norms": ({"bn1": nn.GroupNorm(2, CHANNELS), "bn2": nn.InstanceNorm2d(CHANNELS)}, False),
    "nothing around": ({"bn1": None, "act1": None, "bn2": None, "act2": None}, False),
    "a bias, and no norm after it": (
        {"conv": dwconv.nn.DepthwiseConv2d(CHANNELS, 3, padding=1), "bn2": None, "act2": None}, False,
    ),
    "padded by a name": ({"conv": dwconv.nn.DepthwiseConv2d(CHANNELS, 3, padding="same", bias=False)}, True),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_a_layer_of_ones_own(name):
    """Whatever order its parts were set in."""
    changed, runs = copy.deepcopy(WRITTEN[name])
    block = layers(**changed)
    if name == "padded by a name":
        block = layers(bn1=None, act1=None, bn2=None, act2=None)
        block.conv = changed.get("conv", block.conv)
        for part in ("act2", "act1", "bn2", "bn1"):
            setattr(block, part, getattr(layers(**changed), part))
    exact = copy.deepcopy(block).double()
    x = torch.randn(SIZE).to(memory_format=torch.channels_last).requires_grad_()
    x_exact = x.detach().double().requires_grad_()
    z, expected = block(x), exact(x_exact)
    weights = torch.linspace(-1, 1, z.numel(), dtype=torch.float64).view(SIZE)
    (z * weights).sum().backward()
    (expected * weights).sum().backward()
    assert ran() == ((1, 1) if runs else (0, 0))
    pairs = [(z, expected), (x.grad, x_exact.grad), *zip(block.buffers(), exact.buffers(), strict=True)]
    pairs += [(p.grad, q.grad) for p, q in zip(block.parameters(), exact.parameters(), strict=True) if p.dim() > 1]
    for got, wanted in pairs:
        torch.testing.assert_close(got.double(), wanted.double(), rtol=1e-3, atol=2e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_converting_leaves_it_as_it_was_written():
    model = nn.Sequential(nn.Conv2d(4, CHANNELS, 1), layers()).to(memory_format=torch.channels_last)
    converted(model)
    assert f"block {WHOLE} from 1.bn1 runs as one" in str(dwconv.summary(model))
    assert type(model[1].bn1) is nn.BatchNorm2d
    learn(model)
    assert ran() == (3, 3)
    x = torch.randn(SIZE)
    block = layers().eval()
    torch.testing.assert_close(torch.jit.script(block)(x), block(x), rtol=1e-4, atol=1e-5)


def test_a_block_around_no_depthwise_convolution():
    with pytest.raises(InvalidWorkload, match="is not depthwise"):
        layers(conv=nn.Conv2d(CHANNELS, CHANNELS, 3))


# -- memory ------------------------------------------------------------------------------------------------------------


def plant_parts(logs, *, longer: float) -> None:
    """Kernels of the block that take so many times as long as its parts: 5000 µs a pass."""
    (logs / "cpu.jsonl").unlink()
    ours_us, convolution_us, around_us = 5000.0 * longer, 1000.0, 5000.0 - 3 * (1000.0 + CALL_US) / 2
    plant(
        logs / "cpu.jsonl", [workload_of(shape=SIZE, block=WHOLE)], median_us=ours_us, baseline_us=50_000.0,
        around_us=around_us,
    )  # fmt: skip
    plant(logs / "cpu.jsonl", [workload_of(shape=SIZE)], median_us=convolution_us, baseline_us=10_000.0)
    dwconv.reset()


@pytest.mark.parametrize(("longer", "as_one"), [(1.02, True), (1.05, False)])
def test_a_block_as_fast_as_its_parts_runs_as_one_for_its_memory(logs, longer, as_one):
    plant_parts(logs, longer=longer)
    model = dwconv.convert(Inverted(), example())
    assert_learns_the_same(model, steps=1)
    assert ran() == (0, 0) and dwconv.summary(model).kept is None
    model = dwconv.convert(model, example(), memory="less")
    kept = dwconv.summary(model).kept
    assert_learns_the_same(model, steps=1)
    assert ran()[0] == (2 if as_one else 0)  # one of them shows what is kept
    image = 4 * 2 * CHANNELS * 9 * 7
    assert (
        kept.one_by_one_bytes - kept.as_one_bytes >= 2 * image if as_one else kept.as_one_bytes == kept.one_by_one_bytes
    )
    assert str(kept) in str(dwconv.summary(model)) and str(kept) in str(dwconv.report(model, example()))
    dwconv.convert(model, example())
    assert_learns_the_same(model, steps=1)
    assert dwconv.summary(model).kept is None and ran() == (0, 0)


BAD_MEMORY = {
    "unknown": ({"memory": "more"}, 'memory=.more. is unknown; give "less"'),
    "no word": ({"memory": 3}, 'memory=3 is unknown; give "less"'),
    "no blocks": ({"memory": "less", "blocks": False}, "blocks=False fuses none"),
}


@pytest.mark.parametrize("what", BAD_MEMORY)
def test_another_wish_for_memory_says_why(what):
    options, words = BAD_MEMORY[what]
    with pytest.raises(InvalidChoice, match=words):
        dwconv.convert(Inverted(), example(), **options)


def test_memory_needs_an_example():
    with pytest.raises(InvalidChoice, match="needs example_inputs"):
        dwconv.convert(Inverted(), memory="less")
