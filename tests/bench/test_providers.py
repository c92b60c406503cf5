"""All other providers of a workload: named for what runs, set up as they are used."""

from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from bench import providers
from bench.cases import odd_workloads
from bench.providers import (
    causal_conv1d,
    cudnn_op,
    is_eager,
    onednn_blocked,
    plain,
    transposed,
    transposed_providers,
)
from dwconv.measure.verify.cases import judge_all, make_case
from dwconv.problems.workload import LAYOUTS, Workload

FPROP = Workload(
    pass_="fprop", batch=2, channels=6, input_size=(9, 8), kernel=(3, 3), padding=((1, 1), (1, 1)), layout="nhwc"
)
SYMMETRIC = [
    workload
    for workload in odd_workloads()
    if workload.dtype == "float32"
    and workload.block is None
    and not workload.bias
    and all(before == after for before, after in workload.padding)
]


def named(monkeypatch, library_of):
    """The names of the providers of a device where ``library_of`` says what runs PyTorch's operator in a layout."""
    monkeypatch.setattr(
        providers,
        "pytorch_by_layout",
        lambda workload, *inputs: {f"{library_of(each)}-{each}": None for each in LAYOUTS},
    )
    on_gpu = SimpleNamespace(device=torch.device("cuda"))
    return [provider.name for provider in providers.providers(FPROP, [on_gpu])]


def chosen(layout):
    """As PyTorch 2.11 chooses: cuDNN for channels_last alone, and never where it is switched off."""
    return "cudnn" if layout == "nhwc" and torch.backends.cudnn.enabled else "aten"


def test_providers_are_named_for_what_runs_and_none_races_twice(monkeypatch):
    monkeypatch.setattr(providers, "settings_of_pytorch", lambda: [providers._as_chosen, providers._without_cudnn])
    assert named(monkeypatch, chosen) == ["cudnn-nhwc", "aten-nhwc", "aten-nchw", "cudnn-op-nchw"]


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "depthwise_kernel"), reason="PyTorch has no such switch")
def test_where_a_setting_makes_pytorch_use_cudnn_its_operator_is_not_called_directly(monkeypatch):
    def told(layout):
        forced = torch.backends.cudnn.enabled and torch.backends.cudnn.depthwise_kernel == "cudnn"
        return "cudnn" if forced else chosen(layout)

    assert named(monkeypatch, told) == ["cudnn-nhwc", "aten-nhwc", "aten-nchw", "cudnn-nchw"]


def test_settings_end_where_they_should():
    def now():
        return torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32

    before = now()
    seen = []
    for settings in providers.settings_of_pytorch():
        with settings():
            seen.append(now())
        assert now() == before
    assert seen[0] == (True, True, False) and seen[-1][0] is False and len(seen) >= 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"pass_": "wgrad"}, "no operator for cuDNN's weight gradient"),
        ({"bias": True}, "adds no bias"),
        ({"padding": ((1, 2), (1, 1))}, "pads both sides alike"),
    ],
)
def test_what_cudnns_operators_do_not_do_is_refused_with_a_reason(changes, why):
    with pytest.raises(ValueError, match=why):
        cudnn_op(dataclasses.replace(FPROP, **changes), "nhwc", [])


@pytest.mark.parametrize("workload", [each for each in SYMMETRIC if each.pass_ != "wgrad"], ids=lambda each: each.key)
def test_cudnns_operators_are_called_with_what_gives_the_result(monkeypatch, workload):
    """By PyTorch's operators of the same meaning, which run anywhere."""

    def convolution(x, w, padding, stride, dilation, groups, benchmark, deterministic, allow_tf32):
        return F.conv2d(x, w, None, stride, padding, dilation, groups)

    def transpose(dy, w, padding, output_padding, stride, dilation, groups, benchmark, deterministic, allow_tf32):
        assert all(over < step for over, step in zip(output_padding, stride, strict=True))
        return F.conv_transpose2d(dy, w, None, stride, padding, output_padding, groups, dilation)

    with monkeypatch.context() as patched:
        for name, same in (("cudnn_convolution", convolution), ("cudnn_convolution_transpose", transpose)):
            operator = getattr(torch.ops.aten, name).default
            count = len(operator._schema.arguments)
            patched.setattr(torch.ops.aten, name, lambda *given, same=same, count=count: same(*given[:count]))
        for stride in (workload.stride, (3, 2)):
            strided = dataclasses.replace(workload, stride=stride)
            case = make_case(strided, data="integers")
            got = cudnn_op(strided, strided.layout, case.inputs)()
            (pytorch, *_) = providers.providers(strided, case.inputs)
            assert torch.equal(got, pytorch.make(case.inputs)())


# -- oneDNN in its own layout ----------------------------------------------------------------------------------------


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch has no oneDNN here")
@pytest.mark.parametrize("workload", SYMMETRIC, ids=lambda each: each.key)
def test_onednns_own_layout_gives_the_result(workload):
    case = make_case(workload, data="integers")
    if workload.bias:
        with pytest.raises(ValueError, match="no operator"):
            onednn_blocked(workload, case.inputs)
        return
    with torch.inference_mode():
        result = onednn_blocked(workload, case.inputs)()
    assert result.is_mkldnn == (workload.pass_ != "wgrad"), "what follows reads it as it lies"
    assert judge_all([plain(result)], case).right


@pytest.mark.parametrize(
    ("changes", "why"), [({"bias": True}, "no operator"), ({"padding": ((1, 2), (1, 1))}, "pads both sides alike")]
)
def test_what_onednns_own_layout_does_not_do_is_refused_with_a_reason(changes, why):
    with pytest.raises(ValueError, match=why):
        onednn_blocked(dataclasses.replace(FPROP, **changes), [])


# -- PyTorch's transposed convolution --------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", [each for each in SYMMETRIC if each.multiplier == 1], ids=lambda each: each.key)
def test_pytorchs_transposed_convolution_gives_the_result(workload):
    """With sizes that a stride divides, and with others, which take an output padding."""
    for strided in (
        workload,
        dataclasses.replace(workload, stride=(2, 3)[: workload.axes] + (2,) * (workload.axes - 2)),
    ):
        case = make_case(strided, data="integers")
        for provider in transposed_providers(strided):
            with torch.inference_mode():
                assert judge_all([provider.make(case.inputs)()], case).right, provider.name


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"bias": True}, "no bias"),
        ({"multiplier": 2}, "one output"),
        ({"padding": ((1, 2), (1, 1))}, "both sides alike"),
    ],
)
def test_what_is_no_pass_of_it_is_refused_with_a_reason(changes, why):
    with pytest.raises(ValueError, match=why):
        transposed(dataclasses.replace(FPROP, **changes), "nhwc", [])


def test_the_op_of_pytorch_is_distinguished_from_other_ways_to_run_it():
    names = ["onednn-nhwc", "pytorch-nchw", "cudnn-op-nchw", "onednn-blocked", "inductor-nhwc", "causal-conv1d-nchw"]
    assert [name for name in names if is_eager(name)] == ["onednn-nhwc", "pytorch-nchw", "cudnn-op-nchw"]


CAUSAL = Workload(
    pass_="fprop", batch=2, channels=6, input_size=(1, 9), kernel=(1, 4), padding=((0, 0), (3, 0)), layout="nhwc"
)


def causal_conv1d_fn(x, weight, bias=None, *, activation=None):
    """By PyTorch's operators, as the package documents it: x of (B, C, L), weight of (C, K)."""
    (channels, taps), length = weight.shape, x.shape[-1]
    y = F.conv1d(x, weight.unsqueeze(1), bias, padding=taps - 1, groups=channels)[..., :length]
    return F.silu(y) if activation == "silu" else y


def test_causal_conv1d_races_on_cuda_where_it_is_installed(monkeypatch):
    planted = SimpleNamespace(causal_conv1d_fn=causal_conv1d_fn, __spec__=SimpleNamespace(name="causal_conv1d"))
    monkeypatch.setitem(sys.modules, "causal_conv1d", planted)
    monkeypatch.setattr(providers, "pytorch_by_layout", lambda *_: {f"cudnn-{each}": None for each in LAYOUTS})
    on_cpu, on_gpu = (
        [each.name for each in providers.providers(CAUSAL, [SimpleNamespace(device=torch.device(device))])]
        for device in ("cpu", "cuda")
    )
    assert {*on_gpu} - {*on_cpu} == {"causal-conv1d-nhwc", "causal-conv1d-nchw"}
    few = {"kernel": (1, 2), "padding": ((0, 0), (1, 0))}
    for changes in ({}, {"epilogue": "silu"}, {"bias": True}, few):
        workload = dataclasses.replace(CAUSAL, **changes)
        case = make_case(workload, data="integers")
        for layout in LAYOUTS:
            assert judge_all([causal_conv1d(workload, layout, case.inputs)()], case).right
    many = {"kernel": (1, 5), "padding": ((0, 0), (4, 0))}
    for changes in ({"padding": ((0, 0), (0, 3))}, {"stride": (1, 2)}, many, {"multiplier": 2}):
        with pytest.raises(ValueError, match="causal rows of 2 to 4 taps"):
            causal_conv1d(dataclasses.replace(CAUSAL, **changes), "nhwc", [])
    with pytest.raises(ValueError, match="all gradients in one call"):
        causal_conv1d(CAUSAL.for_pass("dgrad"), "nhwc", [])
