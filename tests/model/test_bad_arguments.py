"""Arguments that make no sense: one line that names the value and the way out, before anything is done."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import relu

import dwconv
from dwconv.errors import DwconvError, InvalidArgument, InvalidChoice, InvalidWorkload
from dwconv.nn import DepthwiseBlock, DepthwiseConv1d, DepthwiseConv2d, DepthwiseConv3d
from dwconv.parallel import Communication, Pipeline, communication, data_parallel, plan_for_ranks, prefetch, ranks, run

x = torch.randn(1, 4, 5, 5)
weight = torch.randn(4, 1, 3, 3)


def layer() -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 4, 3, groups=4))


TAKE_A_MODEL = {
    "convert": dwconv.convert,
    "revert": dwconv.revert,
    "summary": dwconv.summary,
    "report": dwconv.report,
    "layers": lambda model: dwconv.layers(model, x),
    "graphed": lambda model: dwconv.graphed(model, x),
    "tune": lambda model: dwconv.tune(model, x, trials=1),
    "data_parallel": data_parallel,
    "communication": communication,
    "plan_for_ranks": lambda model: plan_for_ranks(model, x),
    "Pipeline": lambda model: Pipeline(model, None, loss=relu, example=x),
}


@pytest.mark.parametrize("call", TAKE_A_MODEL.values(), ids=TAKE_A_MODEL)
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (None, "model=None is not a torch.nn.Module; give one"),
        (relu, "model=a function is not a torch.nn.Module; give the torch.nn.Module that it runs"),
        (nn.Conv2d, "model is the class Conv2d, not a model; make one: Conv2d"),
        (int, "model is the class int, not a model; give a torch.nn.Module"),
        ("mobilenet", "model='mobilenet' is not a torch.nn.Module"),
        ([layer()], "model=a list is not a torch.nn.Module; give one torch.nn.Module, such as torch.nn.Sequential"),
        (layer().state_dict(), "model=an OrderedDict is not a torch.nn.Module; load it into"),
        (x, "model=a Tensor is not a torch.nn.Module"),
    ],
)
def test_what_is_no_model(logs, call, model, words):
    with pytest.raises(InvalidArgument) as raised:
        call(model)
    assert words in str(raised.value) and "\n" not in str(raised.value)
    assert isinstance(raised.value, TypeError) and isinstance(raised.value, ValueError)


def test_an_exported_program_is_no_model(logs):
    exported = torch.export.export(layer(), (x,))
    with pytest.raises(InvalidArgument, match=r"an ExportedProgram is not .* before the export"):
        dwconv.convert(exported)


TAKE_AN_EXAMPLE = {
    "convert": dwconv.convert,
    "report": lambda model, example: dwconv.report(dwconv.convert(model), example),
    "layers": dwconv.layers,
    "graphed": dwconv.graphed,
    "tune": dwconv.tune,
}


@pytest.mark.parametrize("call", TAKE_AN_EXAMPLE.values(), ids=TAKE_AN_EXAMPLE)
@pytest.mark.parametrize("shape", [(1, 4, 5, 5), [1, 4, 5, 5], x.shape, ((1, 4, 5, 5),), x.shape[2:]])
def test_a_shape_is_no_example(logs, call, shape):
    with pytest.raises(InvalidArgument, match=r"is a shape; give a tensor of it, such as torch.randn\(.*5, 5\)"):
        call(layer(), shape)


def test_numbers_that_are_arguments_are_an_example(logs):
    class Counted(nn.Module):
        def forward(self, x, times, flag=True):
            return x * times if flag else x

    model = nn.ModuleDict({"conv": layer(), "counted": Counted()})
    model.forward = lambda x, times, flag: model["counted"](model["conv"](x), times, flag)
    dwconv.convert(model, (x, 2, True), seconds=0)
    dwconv.convert(model, {"x": x, "times": 2, "flag": False}, seconds=0)


NO_SECONDS = ["10", True, [1], None.__class__, b"1", 1j]


@pytest.mark.parametrize("value", NO_SECONDS, ids=repr)
def test_seconds_that_are_no_number(logs, value):
    model = layer()
    for call in (dwconv.convert, dwconv.graphed):
        with pytest.raises(InvalidArgument, match=r"seconds=.* is not a number; give seconds, 0 or more"):
            call(model, x, seconds=value)
    for name in ("seconds", "minutes", "until"):
        with pytest.raises(InvalidArgument, match=f"{name}=.* is not a number"):
            dwconv.tune(model, x, **{name: value})
    assert type(model[0]) is nn.Conv2d and model[0].__class__ is nn.Conv2d


@pytest.mark.parametrize("value", [float("nan"), -1, -0.5])
def test_seconds_that_are_no_time(logs, value):
    for call in (dwconv.convert, dwconv.graphed):
        with pytest.raises(InvalidChoice, match=r"seconds=.*; "):
            call(layer(), x, seconds=value)


@pytest.mark.parametrize("value", [np.float32(0), np.int64(0), torch.tensor(0.0), 0])
def test_numbers_of_other_libraries_are_numbers(logs, value):
    dwconv.convert(layer(), x, seconds=value)


@pytest.mark.parametrize("value", ["3", 1.5, True, [3]])
def test_trials_that_are_no_whole_number(logs, value):
    with pytest.raises(InvalidArgument, match=r"trials=.* is not a whole number; leave it out"):
        dwconv.tune(layer(), x, trials=value)


@pytest.mark.parametrize("name", ["functional", "blocks"])
@pytest.mark.parametrize("value", ["yes", "", 3, 0, 1.0, []])
@pytest.mark.parametrize("example", [None, x], ids=["alone", "example"])
def test_flags_are_true_or_false(logs, name, value, example):
    model = layer()
    with pytest.raises(InvalidArgument, match=f"{name}=.* is not True or False; give one of them"):
        dwconv.convert(model, example, **{name: value})
    assert id(type(model[0])) == id(nn.Conv2d)


def test_a_flag_of_numpys_counts(logs):
    dwconv.convert(layer(), functional=np.bool_(False), blocks=np.bool_(False))


def test_trains_is_a_flag(logs):
    for call in (dwconv.layers, dwconv.tune):
        with pytest.raises(InvalidArgument, match="trains='yes' is not True or False"):
            call(layer(), x, trains="yes")


WRITE = {
    "save": lambda path: dwconv.layers(layer(), x).save(path),
    "collect": dwconv.collect,
    "lock": dwconv.lock,
    "load_pack": dwconv.load_pack,
    "log": lambda path: dwconv.tune(layer(), x, log=path),
}


@pytest.mark.parametrize("call", WRITE.values(), ids=WRITE)
def test_names_of_files(logs, call):
    for value in (3, b"name", ["name"]):
        with pytest.raises(InvalidArgument, match=r"(path|log)=.* is not a path; give a str or a pathlib.Path"):
            call(value)
    for value in ("", " "):
        with pytest.raises(InvalidChoice, match="names no file; give its name"):
            call(value)


BAD = {
    "explain weight": (lambda: dwconv.explain(x, None), "weight must be a Tensor, not NoneType"),
    "explain input": (lambda: dwconv.explain("x", weight), "input must be a Tensor, not str"),
    "explain block": (lambda: dwconv.explain(x, weight, block=3), "block=3 is not a str"),
    "groups": (lambda: dwconv.conv2d(x, weight, groups="4"), "groups='4' is not a whole number"),
    "stride": (lambda: dwconv.conv2d(x, weight, stride=True), "stride=True is not a whole number"),
    "sides": (lambda: dwconv.conv2d(x, weight, padding=((1, "a"), (1, 1))), "holds 'a', which is not a whole number"),
    "causal": (lambda: dwconv.causal_conv1d(None, None), "x must be a Tensor, not NoneType"),
    "causal weight": (lambda: dwconv.causal_conv1d(x[0], "w"), "weight must be a Tensor, not str"),
    "causal bias": (lambda: dwconv.causal_conv1d(x[0], weight[:, 0, 0], bias=1), "bias must be a Tensor, not int"),
    "collect": (lambda: dwconv.collect("file.json", name=3), "name=3 is no name of a network"),
    "ray": (lambda: dwconv.tune(layer(), x, ray=3), "ray=3 is not an address; give a str"),
    "digest": (lambda: dwconv.load_pack("pack", sha256=3), "sha256=3 is not a digest"),
    "unmeasured": (lambda: dwconv.load_pack("pack", unmeasured="no"), "unmeasured='no' is not True or False"),
    "channels": (lambda: DepthwiseConv2d("4", 3), "channels='4' is not a whole number"),
    "no channels": (lambda: DepthwiseConv1d(0, 3), "channels=0 is below 1"),
    "multiplier": (lambda: DepthwiseConv2d(4, 3, multiplier=0), "multiplier=0 is below 1"),
    "kernel": (lambda: DepthwiseConv2d(4, (3, 3, 3)), r"kernel_size=\(3, 3, 3\) has 3 numbers; give one, or 2"),
    "kernel 3-D": (lambda: DepthwiseConv3d(4, (3, 0, 3)), "kernel_size=0 is below 1"),
    "stride of a layer": (lambda: DepthwiseConv2d(4, 3, stride="a"), "stride='a' is not a whole number"),
    "padding": (lambda: DepthwiseConv2d(4, 3, padding=-1), "padding=-1 is below 0"),
    "dilation": (lambda: DepthwiseConv2d(4, 3, dilation=0), "dilation=0 is below 1"),
    "bias": (lambda: DepthwiseConv2d(4, 3, bias="no"), "bias='no' is not True or False"),
    "dtype": (lambda: DepthwiseConv2d(4, 3, dtype="half"), "dtype='half' is not a torch.dtype"),
    "part": (lambda: DepthwiseBlock(conv=layer()[0], act1=relu), "act1=a function is not a torch.nn.Module"),
    "conv": (lambda: DepthwiseBlock(conv=None), "conv=None is not depthwise"),
    "loader": (lambda: prefetch(3), "loader=3 gives no batches"),
    "depth": (lambda: prefetch([x], depth="2"), "depth='2' is not a whole number; use 0"),
    "device": (lambda: prefetch([x], "gpu"), "device='gpu' is unknown; use cpu"),
    "train": (lambda: run(None), "train=None cannot be called"),
    "bucket": (lambda: Communication(bucket_mb="25"), "bucket_mb='25' is not a number"),
    "compress": (lambda: data_parallel(layer(), compress="yes"), "compress='yes' is unknown"),
    "loss": (lambda: data_parallel(layer(), loss=3), "loss=3 cannot be called"),
    "way": (lambda: data_parallel(layer(), communication="all"), "communication='all' is no way to communicate"),
    "not joined": (lambda: plan_for_ranks(layer(), x), "has not joined a job"),
}


@pytest.mark.parametrize(("call", "words"), BAD.values(), ids=BAD)
def test_other_arguments(logs, call, words):
    with pytest.raises(DwconvError, match=words) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_a_timeout_that_is_no_number():
    with pytest.raises(InvalidArgument, match="timeout_s='soon' is not a number"), ranks(timeout_s="soon"):
        pass


@pytest.mark.parametrize("make", [torch.jit.script, lambda model: torch.jit.trace(model, x)], ids=["script", "trace"])
def test_what_is_torchscript_has_a_reason(logs, make):
    made = make(layer())
    model = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), made)
    for one, where in ((made, "(the model itself)"), (model, "1")):
        text = str(dwconv.summary(dwconv.convert(one)))
        assert f"  {where}  stays " in text and "it is TorchScript, which runs its own code; convert the model" in text
        assert text.count("it is TorchScript") == 1
    with pytest.raises(InvalidWorkload, match="no depthwise layer that dwconv could run: it is TorchScript"):
        dwconv.report(made)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_transposed_convolution_of_other_groups_is_listed(logs, axes):
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[axes - 1]
    model = nn.Sequential(kind(4, 4, 2, groups=2), kind(4, 4, 2), DepthwiseConv2d(4, 3))
    summary = dwconv.summary(dwconv.convert(model))
    assert [row.name for row in summary.skipped] == ["0"]
    assert summary.skipped[0].text.endswith("groups=2 of 4 channels is not depthwise")
    assert "not dwconv's: 0: groups=2" in str(dwconv.report(model))


def test_no_layers_has_a_reason(logs):
    text = str(dwconv.summary(dwconv.convert(nn.Linear(2, 2))))
    assert text.startswith("0 depthwise layers converted: no convolution of torch.nn with groups is in it")
