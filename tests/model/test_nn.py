"""Layers, and convert: a converted model is the same model, on other kernels."""

from __future__ import annotations

import copy
import io
import pickle
import signal
import sys

import pytest
import torch
from torch import nn

import dwconv
from dwconv import settings
from dwconv.call.call_plan import plans
from dwconv.discovery import discover
from dwconv.errors import InvalidChoice, InvalidWorkload
from dwconv.measure.processes.started_process import Running
from dwconv.nn import DepthwiseConv1d, DepthwiseConv2d, DepthWiseConv2dImplicitGEMM, DepthwiseConv3d
from dwconv.problems.workload import PASSES
from dwconv.records import record as record_module
from dwconv.records.log import TuningLog
from dwconv.tuner import model_race
from dwconv.tuner.race_result import RaceResult
from tests import forked
from tests.models import TinyNet, VideoNet, train
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]


IMAGES = torch.randn(4, 3, 12, 10)


def names(layers):
    return [layer.name for layer in layers]


def plant_tiny_net(logs, *, layout="nhwc"):
    """Kernels for all depthwise layers of TinyNet, for inputs of 12×10."""
    plant(
        logs / "log.jsonl",
        [
            workload_of(shape=(4, 8, 12, 10), layout=layout),
            workload_of(shape=(4, 8, 12, 10), kernel=(5, 5), stride=2, padding=2, multiplier=2, layout=layout),
        ],
        baseline_us=1e6,
    )


# -- layers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect", "circular", "replicate"])
@pytest.mark.parametrize(
    ("ours", "pytorchs", "axes"),
    [(DepthwiseConv1d, nn.Conv1d, 1), (DepthwiseConv2d, nn.Conv2d, 2), (DepthwiseConv3d, nn.Conv3d, 3)],
)
def test_a_layer_is_pytorchs_with_groups(logs, ours, pytorchs, axes, padding_mode):
    options = {"stride": 2, "padding": 2, "dilation": 2, "padding_mode": padding_mode}
    torch.manual_seed(0)
    layer = ours(6, 3, multiplier=2, **options)
    torch.manual_seed(0)
    other = pytorchs(6, 12, 3, groups=6, **options)
    x = torch.randn(2, 6, *[11] * axes)
    assert torch.equal(layer(x), other(x))
    assert isinstance(layer, pytorchs)
    assert layer.state_dict().keys() == other.state_dict().keys()


# -- convert ---------------------------------------------------------------------------------------------------------


def test_convert_names_what_it_did_and_what_it_left(logs):
    class Blurred(nn.Conv2d):
        def forward(self, x):
            return super().forward(nn.functional.avg_pool2d(x, 2))

    model = nn.ModuleDict({
        "plain": nn.Conv2d(8, 8, 3),
        "depthwise": nn.Conv2d(8, 16, (3, 5), stride=2, groups=8),
        "line": nn.Conv1d(8, 8, 9, groups=8),
        "grouped": nn.Conv2d(8, 8, 3, groups=4),
        "volume": nn.Conv3d(8, 8, 3, groups=8),
        "own": Blurred(8, 8, 3, groups=8),
        "one": nn.Conv2d(1, 8, 3),
    })  # fmt: skip
    summary = dwconv.summary(dwconv.convert(model))
    assert names(summary.converted) == ["depthwise", "line", "volume"]
    assert names(summary.skipped) == ["grouped", "own"]
    assert str(summary) == (
        "3 depthwise layers converted, 2 left as they are\n"
        "  depthwise  8 channels, kernel 3×5, stride 2×2, multiplier 2\n"
        "  line       8 channels, kernel 9\n"
        "  volume     8 channels, kernel 3×3×3\n"
        "  grouped    stays Conv2d: groups=4 of 8 channels is not depthwise\n"
        "  own        stays Blurred: its forward is its own; functional=True runs the depthwise calls in it on dwconv"
    )
    assert type(model["depthwise"]) is DepthwiseConv2d
    assert type(model["line"]) is DepthwiseConv1d
    assert type(model["volume"]) is DepthwiseConv3d
    assert type(model["plain"]) is type(model["grouped"]) is nn.Conv2d and type(model["own"]) is Blurred
    assert str(dwconv.summary(dwconv.convert(model))).startswith("0 depthwise layers converted, 3 were before, 2 left")
    itself = dwconv.summary(dwconv.convert(nn.Conv2d(8, 8, 3, groups=8)))
    assert "  (the model itself)  8 channels, kernel 3×3" in str(itself)
    assert str(dwconv.summary(dwconv.convert(nn.Conv2d(3, 8, 1), IMAGES))) == (
        "0 depthwise layers converted\nno depthwise layer ran in the example: nothing to race"
    )


def test_a_layer_stays_the_object_it_is(logs):
    layer = nn.Conv2d(8, 8, 3, padding=1, groups=8).eval()
    layer.weight.requires_grad_(False)
    seen = []
    layer.register_forward_hook(lambda *_: seen.append("forward"))
    model = nn.ModuleDict({"one": layer, "same": layer})
    before = dict(layer.named_parameters())
    assert names(dwconv.summary(dwconv.convert(model)).converted) == ["one"]
    assert model["one"] is layer is model["same"]
    assert {name: id(parameter) for name, parameter in layer.named_parameters()} == {
        name: id(parameter) for name, parameter in before.items()
    }
    assert (layer.training, layer.weight.requires_grad) == (False, False)
    layer(torch.randn(1, 8, 5, 5))
    assert seen == ["forward"]


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_training_goes_as_before(logs, layout):
    """Losses are equal, step by step, through kernels with stride, multiplier and bias, or PyTorch's where untuned."""
    plant_tiny_net(logs, layout=layout)
    torch.manual_seed(0)
    model = TinyNet()
    x = torch.randn(4, 3, 12, 10)
    if layout == "nhwc":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    converted = copy.deepcopy(model)
    dwconv.convert(converted)
    assert "Dwconv" in converted.body[:2](x).grad_fn.name()
    expected, losses = (train(each, x, steps=8, lr=0.5) for each in (model, converted))
    assert expected[-1] < 0.8 * expected[0]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding_mode", ["zeros", "reflect"])
@pytest.mark.parametrize("pytorchs", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_groups_and_weight_may_change_after(logs, pytorchs, padding_mode):
    """As pruning does, in whole channels or to fewer groups: it is what PyTorch's layer is."""
    torch._dynamo.reset()
    axes = int(pytorchs.__name__[4])
    twins = [pytorchs(8, 8, 3, padding=2, groups=8, padding_mode=padding_mode)]
    twins.append(dwconv.convert(copy.deepcopy(twins[0])))
    x = torch.randn(2, 8, *[9] * axes)
    twins[1](x)  # as depthwise first, which is remembered
    for groups in (4, 1):
        weight, ran = torch.randn(8, 8 // groups, *[3] * axes), []
        for layer in twins:
            layer.groups, layer.weight = groups, nn.Parameter(weight.clone())
            compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
            for run in (layer, compiled if padding_mode == "zeros" else layer):
                given = x.clone().requires_grad_()
                y = run(given)
                ran += [y.detach(), *torch.autograd.grad(y.square().sum(), (given, layer.weight))]
        torch.testing.assert_close(ran[:6], ran[6:], rtol=0, atol=0)
        assert discover(twins[1], x).layers == () == discover(twins[0], x).layers
    for layer in twins:
        layer.groups, layer.in_channels, layer.weight = 4, 4, nn.Parameter(weight[:, :1].clone())
    torch.testing.assert_close(twins[1](x[:, :4]), twins[0](x[:, :4]))
    with pytest.raises(RuntimeError, match="6 input channels"):
        twins[1](x[:, :6])


def test_a_converted_model_can_be_copied_pickled_saved_and_compiled(logs):
    plant_tiny_net(logs, layout="nchw")
    model = TinyNet()
    dwconv.convert(model)
    x = torch.randn(4, 3, 12, 10)
    y = model(x)
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(saved, weights_only=False)):
        assert type(twin.body[1]) is DepthwiseConv2d
        torch.testing.assert_close(twin(x), y)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), y)
    compiled(x).sum().backward()
    torch.testing.assert_close(torch.export.export(model, (x,), strict=False).module()(x), y)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_a_video_network_trains_on_3d_kernels(logs, layout):
    shape = (2, 8, 4, 9, 7)
    plant(
        logs / "log.jsonl",
        [
            workload_of(shape=shape, kernel=(5, 1, 1), padding=(2, 0, 0), layout=layout),
            workload_of(shape=shape, kernel=(3, 3, 3), stride=(1, 2, 2), bias=True, layout=layout),
        ],
        baseline_us=1e6,
        template_layout=layout,
    )
    torch.manual_seed(0)
    model = VideoNet()
    x = torch.randn(2, 3, 4, 9, 7)
    if layout == "nhwc":
        model, x = model.to(memory_format=torch.channels_last_3d), x.to(memory_format=torch.channels_last_3d)
    converted = dwconv.convert(copy.deepcopy(model))
    assert names(dwconv.summary(converted).converted) == ["time", "space"]
    compiled = torch.compile(dwconv.convert(copy.deepcopy(model)), fullgraph=True, backend="aot_eager")
    expected, *losses = (train(each, x, steps=6, lr=0.2) for each in (model, converted, compiled))
    assert expected[-1] < 0.8 * expected[0]
    for each in losses:
        torch.testing.assert_close(torch.tensor(each), torch.tensor(expected), rtol=1e-4, atol=1e-5)
    ran = {(plan.problem.weight_shape[2:], pass_) for plan in plans() for pass_ in PASSES if plan.kernels.get(pass_)}
    assert ran == {(kernel, pass_) for kernel in ((5, 1, 1), (3, 3, 3)) for pass_ in PASSES}
    text = str(dwconv.report(converted))
    assert (
        "2×8×4×9×7 k5×1×1 s1 " in text
        and "2×8×4×9×7 k3 s1×2×2 bias " in text
        and "--shape 2,8,4,9,7 --kernel 5,1,1 " in text
    )


# -- convert with an example -----------------------------------------------------------------------------------------


@pytest.fixture
def races(monkeypatch):
    """What the race was started with; it wins everything."""
    asked = []

    def race_for(counts, *, seconds, state):
        asked.append((counts, seconds))
        return [RaceResult(won=tuple(each), elapsed_s=2.0) for each in counts.values()]

    monkeypatch.setattr(model_race, "race_for", race_for)
    return asked


def test_convert_races_what_ran_in_the_example(logs, races):
    model = TinyNet()
    summary = dwconv.summary(dwconv.convert(model, IMAGES))
    ((counts, seconds),) = races
    assert seconds == settings.RACE_SECONDS
    (of_cpu,) = counts.values()
    assert set(of_cpu.values()) == {1} and {workload.batch for workload in of_cpu} == {4}
    assert sorted(workload.pass_ for workload in of_cpu) == ["dgrad"] * 3 + ["fprop"] * 3 + ["wgrad"] * 3
    assert len(summary.converted) == 3
    assert str(summary).splitlines()[:2] == ["3 depthwise layers converted", "9 passes raced in 2.0 s: 9 won"]
    with torch.no_grad():
        dwconv.convert(model, (IMAGES,), seconds=5)
    assert races[1][1] == 5
    assert "no backward pass of these layers ran in the example" in str(dwconv.summary(model))
    assert "no backward pass" not in str(summary)


def test_a_layer_that_did_not_run_is_named(logs, races):
    model = nn.ModuleDict({"a": nn.Conv2d(8, 8, 3, groups=8), "b": nn.Conv2d(8, 8, 3, groups=8)})
    model.forward = lambda x: model["a"](x)
    summary = dwconv.summary(dwconv.convert(model, torch.randn(2, 8, 9, 7)))
    assert names(summary.converted) == ["a", "b"]
    assert "did not run in the example: b" in str(summary)


class Fails(TinyNet):
    def forward(self, x):
        super().forward(x)
        raise KeyError("of the model's own")


def test_what_goes_wrong_leaves_the_model_as_it_was(logs, races, monkeypatch):
    model = TinyNet()
    for broken, example, options, error, told in (
        (Fails(), IMAGES, {}, KeyError, "of the model's own"),
        (model, IMAGES.to("meta"), {}, InvalidWorkload, "the example is on meta"),
        (model, IMAGES, {"seconds": -1}, InvalidChoice, "seconds=-1"),
        (model, IMAGES, {"seconds": float("nan")}, InvalidChoice, "seconds=nan"),
        (model, None, {"seconds": 5}, InvalidChoice, "give them"),
        (model, None, {"blocks": True}, InvalidChoice, "blocks=True needs example_inputs"),
    ):
        with pytest.raises(error, match=told):
            dwconv.convert(broken, example, **options)
        assert type(broken.body[1]) is nn.Conv2d
    assert not races
    for function in ("race_and_build", "decide_blocks", "trace_blocks"):
        monkeypatch.setattr(f"dwconv.model.convert.{function}", lambda *_, **__: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            dwconv.convert(model, IMAGES, functional=True)
        assert type(model) is TinyNet and type(model.body[1]) is nn.Conv2d


@pytest.mark.parametrize("functional", [None, True, False])
def test_nothing_is_swapped_before_all_is_decided(logs, monkeypatch, functional):
    """A race takes a minute: meanwhile another thread may run the model as it was."""
    model, seen = TinyNet(), []
    for function, gives in (("race_and_build", []), ("decide_blocks", ((), []))):
        monkeypatch.setattr(
            f"dwconv.model.convert.{function}",
            lambda *_, gives=gives, **__: (seen.extend(map(type, model.modules())), gives)[1],
        )
    plain = [*map(type, model.modules())]
    dwconv.convert(model, IMAGES, functional=functional)
    assert [each.__name__ for each in seen] == [each.__name__ for each in plain * 2]
    assert all(each is kind for each, kind in zip(seen, plain * 2, strict=True))
    assert type(model.body[1]) is DepthwiseConv2d and (type(model) is TinyNet) is not bool(functional)


def test_where_nothing_can_be_raced_the_model_is_converted_all_the_same(logs, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DWCONV_TUNING_LOGS", str(tmp_path / "file" / "log.jsonl"))
    model = TinyNet()
    summary = dwconv.summary(dwconv.convert(model, IMAGES))
    assert len(summary.converted) == 3
    assert "not all was raced: log=" in str(summary) and "9 left for the next time" in str(summary)


def test_a_real_race_and_once_more_nothing_starts(logs, monkeypatch, capsys):
    """The one test of all of it: builders, kernels, times; some seconds, for its processes to start."""
    monkeypatch.setattr(record_module, "CONTENDED", 2.0)  # whatever else this machine does
    model = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
    x = torch.randn(2, 8, 9, 7)
    summary = dwconv.summary(dwconv.convert(model, x, seconds=600))
    capsys.readouterr()  # a line of progress, where it takes long
    (race,) = summary.races
    assert race.raced == len(race.won) + len(race.lost) == 2 and race.left == () and race.problem == ""
    records = [record for path in logs.iterdir() for record in TuningLog(path).load().records]
    assert {record.workload.pass_ for record in records} == {"fprop", "wgrad"}, "x needs no gradient"
    assert all(record.measurement is not None and len(record.providers) == 2 for record in records)

    def start(*_, **__):
        raise AssertionError("everything is known")

    monkeypatch.setattr(Running, "start", start)
    again = dwconv.summary(dwconv.convert(model, x))
    assert (len(again.races[0].known), again.races[0].raced) == (2, 0)
    assert "2 known before" in str(again)
    assert capsys.readouterr().err == ""


def test_converting_alone_imports_no_tuner_and_racing_no_tvm():
    code = (
        "import sys, torch, dwconv; from torch import nn; layer = nn.Conv2d(8, 8, 3, groups=8); dwconv.convert(layer); "
        "late = ('tvm', 'dwconv.tuner', 'dwconv.measure', 'torch.distributed.tensor', 'dwconv.call.sharded'); "
        "assert not [name for name in sys.modules if name.startswith(late)]; "
        "dwconv.convert(layer, torch.randn(1, 8, 5, 5), seconds=1e-9); "
        "assert 'dwconv.measure.comparisons' in sys.modules and 'tvm' not in sys.modules"
    )
    done = forked.run([sys.executable, "-c", code], text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kernel", [7, (5, 3), 1])
@pytest.mark.parametrize("bias", [False, True])
def test_the_layer_of_replknet_keeps_the_size(logs, kernel, bias):
    layer = DepthWiseConv2dImplicitGEMM(6, kernel, bias)
    height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    other = nn.Conv2d(6, 6, kernel, padding=(height // 2, width // 2), groups=6, bias=bias)
    other.load_state_dict(layer.state_dict())
    x = torch.randn(2, 6, 9, 8)
    assert torch.equal(layer(x), other(x)) and layer(x).shape == x.shape
    torch.testing.assert_close(layer.double()(x.double()), other.double()(x.double()))
    assert torch.equal(copy.deepcopy(layer)(x.double()), pickle.loads(pickle.dumps(layer))(x.double()))
    assert type(dwconv.revert(nn.Sequential(layer))[0]) is nn.Conv2d


@pytest.mark.parametrize("kernel", [4, (3, 2), 0, "3", (3, 3, 3)])
def test_the_layer_of_replknet_takes_odd_kernels(kernel):
    with pytest.raises((InvalidChoice, InvalidWorkload), match="kernel="):
        DepthWiseConv2dImplicitGEMM(6, kernel)


def test_the_layer_of_replknet_runs_on_kernels(logs):
    plant(logs / "log.jsonl", [workload_of(shape=(2, 8, 9, 7), kernel=(5, 5), padding=2)], baseline_us=1e6)
    x = torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last)
    DepthWiseConv2dImplicitGEMM(8, 5)(x)
    assert [each.provider for plan in plans() for each in plan.decisions.values()] == ["dwconv"] * 3
