"""What looks at calls from outside of torch.compile: tracers with symbolic sizes, fake tensors, counters of FLOPs."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import dwconv
from dwconv.call import through_dispatcher
from dwconv.call.watchers import is_watched
from dwconv.errors import DwconvWarning
from tests.model.test_subclasses import Conv2dSame
from tests.models import ConformerConvolution, TinyNet, VideoNet
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning")


class PaddedAsTensorFlow(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 1), Conv2dSame(8, 8, 3, stride=2, groups=8))


def gradients(x, w, bias):
    """y, dx, dw, dbias; PyTorch pads an even kernel on one side more."""
    y = dwconv.conv2d(x, w, bias, padding="same")
    return y, *torch.autograd.grad(y.square().sum(), (x, w, bias))


def leaves(*, batch=2, size=(9, 7)):
    tensors = torch.randn(batch, 8, *size), torch.randn(8, 1, 3, 4), torch.randn(8)
    return [tensor.requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_traces_forward_and_backward(logs, mode):
    expected = gradients(*(given := leaves()))
    traced = make_fx(gradients, tracing_mode=mode)(*given)
    torch.testing.assert_close(traced(*given), expected)
    if mode == "symbolic":  # what was traced once runs at other sizes, on what was decided for each
        assert "dwconv" in traced.code
        other = leaves(batch=3, size=(6, 11))
        torch.testing.assert_close(traced(*other), gradients(*other))


@pytest.mark.parametrize("tuned", [False, True], ids=["pytorch", "dwconv"])
@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (TinyNet(), torch.randn(4, 3, 12, 10)),
        (ConformerConvolution(), torch.randn(2, 20, 16)),
        (nn.Conv2d(8, 16, 4, padding="same", groups=8), torch.randn(2, 8, 9, 7)),
    ],
    ids=["2d", "1d", "even kernel"],
)
def test_as_many_flops_as_the_plain_model(logs, model, inputs, tuned):
    if tuned:
        plant(logs / "log.jsonl", [workload_of(shape=(4, 8, 12, 10))], baseline_us=1e6)
    converted = copy.deepcopy(model)
    dwconv.convert(converted)
    counted = []
    for each in (model, converted):
        with FlopCounterMode(display=False) as counter:
            x = inputs.to(memory_format=torch.channels_last) if tuned and inputs.dim() == 4 else inputs
            each(x.clone().requires_grad_()).sum().backward()
        counted.append(counter.get_total_flops())
    assert counted[0] == counted[1] > 0


def test_what_is_more_than_numbers_in_memory_is_seen(monkeypatch):
    x, w = torch.randn(2, 8, 9, 7), torch.randn(8, 1, 3, 3)
    assert not is_watched(x, nn.Parameter(w), None)
    assert is_watched(torch.complex(x, x).conj().imag, w, None)
    assert is_watched(x, w.as_subclass(type("Own", (torch.Tensor,), {})), None)
    with FakeTensorMode():
        assert is_watched(x, w, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert is_watched(x, w, None)
    assert not is_watched(x, w, None)
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    assert is_watched(x, w, None)


def by_fvcore(model, x):
    fvcore = pytest.importorskip("fvcore.nn")
    counted = fvcore.FlopCountAnalysis(model, x).unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    return counted.by_module(), fvcore.parameter_count(model)


def by_ptflops(model, x):
    ptflops = pytest.importorskip("ptflops")
    return ptflops.get_model_complexity_info(
        model, tuple(x.shape[1:]), as_strings=False, print_per_layer_stat=False, verbose=False, backend="pytorch"
    )


def by_thop(model, x):
    return pytest.importorskip("thop").profile(model, inputs=(x,), verbose=False)


def by_torchinfo(model, x):
    counted = pytest.importorskip("torchinfo").summary(model, input_data=x, verbose=0)
    layers = [(each.num_params, each.macs, each.output_size) for each in counted.summary_list]
    return counted.total_mult_adds, counted.total_params, layers


@pytest.mark.parametrize("tuned", [False, True], ids=["pytorch", "dwconv"])
@pytest.mark.parametrize("count", [by_fvcore, by_ptflops, by_thop, by_torchinfo])
def test_packages_count_a_converted_layer_as_the_plain_one(logs, count, tuned):
    if tuned:
        sizes = [workload_of(shape=(batch, 8, 12, 10), layout="nchw") for batch in (1, 2)]
        plant(logs / "log.jsonl", sizes, baseline_us=1e6)
    model, x = TinyNet(), torch.randn(2, 3, 12, 10)
    converted = dwconv.convert(copy.deepcopy(model))
    plain, ours = (count(copy.deepcopy(each), x) for each in (model, converted))
    assert plain == ours and plain[0]
    one = nn.Conv2d(8, 8, 3, padding=1, groups=8)
    assert count(copy.deepcopy(one), torch.randn(2, 8, 12, 10)) != count(nn.Identity(), torch.randn(2, 8, 12, 10))


@pytest.mark.parametrize("make", [TinyNet, ConformerConvolution, VideoNet, PaddedAsTensorFlow])
def test_counters_of_layers_and_of_functions_count_what_the_plain_model_has(logs, make):
    """Some look for the type of a module in a table, others put their own function in the place of PyTorch's."""
    model = make()
    converted = dwconv.convert(copy.deepcopy(model))
    x = torch.randn(2, *{ConformerConvolution: (20, 16), VideoNet: (3, 4, 9, 7)}.get(make, (3, 12, 10)))
    by_type, by_function = zip(*(count(each, x) for each in (model, converted)), strict=True)
    assert by_type[0] == by_type[1] and by_function[0] == by_function[1]
    assert len(by_type[0]) >= 3 and len(by_function[0]) >= 2


def count(model, x):
    """What thop and ptflops look up, and what the profiler of DeepSpeed and calflops count."""
    table = {nn.Conv1d: "1-D", nn.Conv2d: "2-D", nn.Conv3d: "3-D", PaddedAsTensorFlow: "its model"}
    types = [table[type(module)] for module in model.modules() if type(module) in table]
    types += [name for module in model.modules() for each, name in table.items() if type(module) == each]  # noqa: E721
    called = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("conv1d", "conv2d", "conv3d"):
            patch.setattr(F, name, counted(getattr(F, name), called))
        model(x).sum().backward()
    return types, called


def counted(function, called):
    def run(input, weight, *rest, **options):
        called.append((tuple(input.shape), tuple(weight.shape)))
        return function(input, weight, *rest, **options)

    return run


def test_while_calls_of_a_function_are_counted_kernels_run(logs, monkeypatch):
    plant(logs / "log.jsonl", [workload_of(layout="nchw")], baseline_us=1e6, template_layout="nchw")
    layer, x = dwconv.convert(nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)), torch.randn(2, 8, 9, 7)
    expected, called = layer(x), []
    monkeypatch.setattr(F, "conv2d", counted(F.conv2d, called))
    y = layer(x)
    assert torch.equal(y, expected) and "Dwconv" in y.grad_fn.name() and len(called) == 1
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)


# -- torch.compile -----------------------------------------------------------------------------------------------------


X = torch.randn(2, 8, 9, 7)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, groups=8)

    def forward(self, x):
        return F.conv1d(x.flatten(2), self.conv.weight, groups=8)


def layer():
    return dwconv.convert(nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.ReLU()))


def functional():
    return dwconv.convert(Functional(), functional=True)


def within_active():
    model = Functional()

    def step(x):
        with dwconv.active():
            return model(x)

    return step


def called():
    weight = nn.Parameter(torch.randn(8, 1, 3, 3))
    return lambda x: dwconv.conv2d(x, weight)


@pytest.fixture(autouse=True)
def anew(logs):
    torch._dynamo.reset()
    dwconv.reset()


def convolutions(seen):
    """A backend that notes which convolutions forward and backward graphs hold."""

    def note(graph, example):
        names = (str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        seen.extend(name.removesuffix(".default") for name in names if "conv" in name)
        return graph

    return aot_autograd(fw_compiler=note)


@pytest.mark.filterwarnings("ignore:.* run on PyTorch's own op. .*tune them")
@pytest.mark.parametrize("make", [layer, functional, within_active, called])
def test_a_compiled_graph_holds_dwconvs_ops(make, recwarn):
    seen: list[str] = []
    torch.compile(make(), backend=convolutions(seen), fullgraph=True)(X).sum().backward()
    assert seen == ["dwconv.fprop", "dwconv.wgrad"] or seen == ["dwconv.fprop", "dwconv.wgrad_bias"]
    assert not [each for each in recwarn if "treats it as an export" in str(each.message)]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("make", [layer, functional])
def test_what_is_exported_holds_pytorchs(make, strict, recwarn):
    graph = torch.export.export(make(), (X,), strict=strict).graph
    names = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    assert [name for name in names if "conv" in name] in (["aten.conv2d.default"], ["aten.conv1d.default"])
    assert not [each for each in recwarn if issubclass(each.category, DwconvWarning)]


def test_a_compiler_that_exports_everything_is_named_once(monkeypatch):
    monkeypatch.setattr(through_dispatcher, "is_recorded_for_elsewhere", lambda: True)
    seen: list[str] = []
    with pytest.warns(DwconvWarning, match="treats it as an export") as warned:
        for make in (layer, called):
            torch.compile(make(), backend=convolutions(seen), fullgraph=True)(X)
    assert len(warned) == 1 and "dwconv.fprop" not in seen
