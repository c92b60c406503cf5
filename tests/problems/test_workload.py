"""Workload: sizes, work, names, and what it refuses."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st

from dwconv.errors import InvalidWorkload
from dwconv.problems.as_written import along, resolve_padding
from dwconv.problems.workload import PASSES, Workload


def make(**changes: object) -> Workload:
    fields = {
        "pass_": "fprop", "batch": 8, "channels": 144, "input_size": (56, 56), "kernel": (3, 3),
        "padding": ((1, 1), (1, 1)), "layout": "nhwc",
    }  # fmt: skip
    return Workload(**{**fields, **changes})


pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(
    size=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    kernel=pairs, stride=pairs, dilation=pairs, pad=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)  # fmt: skip
def test_output_size_and_flops_agree_with_pytorch(size, kernel, stride, dilation, pad):
    spread = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    assume(all(s + 2 * p > r for s, p, r in zip(size, pad, spread, strict=True)))
    workload = make(
        batch=2, channels=3, input_size=size, kernel=kernel, stride=stride, dilation=dilation,
        padding=((pad[0],) * 2, (pad[1],) * 2),
    )  # fmt: skip
    ones = torch.ones(workload.input_shape)
    weight = torch.ones(workload.out_channels, 1, *kernel)
    taps = F.conv2d(ones, weight, None, stride, pad, dilation, groups=3)
    assert tuple(taps.shape) == workload.output_shape
    assert workload.flops == 2 * int(taps.sum())  # a convolution of ones counts the taps inside the input


def test_a_bias_adds_its_own_work_and_bytes():
    plain, biased = make(), make(bias=True)
    assert biased.inputs == ("x", "w", "bias") and biased.bytes == plain.bytes + 4 * 144
    assert biased.flops == plain.flops + 8 * 144 * 56 * 56
    wgrad = biased.for_pass("wgrad")
    assert wgrad.results == ("dw", "dbias") and wgrad.bytes == plain.bytes + 4 * 144
    assert biased.for_pass("dgrad") == plain.for_pass("dgrad")  # which knows no bias


def test_bytes_move_every_tensor_once():
    workload = make(batch=2, channels=3, multiplier=2, input_size=(5, 5), kernel=(3, 3), padding=((0, 0), (0, 0)))
    assert workload.bytes == 4 * (2 * 3 * 25 + 2 * 6 * 9 + 6 * 9)
    half = make(batch=2, channels=3, multiplier=2, input_size=(5, 5), padding=((0, 0), (0, 0)), dtype="bfloat16")
    assert half.bytes == workload.bytes // 2


def test_key_is_pinned():
    """Logs on disk are found by it: it must not change."""
    assert make(pass_="wgrad").key == "wgrad-n8-c144-56x56-k3x3-s1x1-p1x1-d1x1-m1-float32-nhwc"
    assert make(pass_="wgrad", bias=True).key == "wgrad-n8-c144-56x56-k3x3-s1x1-p1x1-d1x1-m1-float32-nhwc-bias"
    assert make(padding=((1, 2), (0, 0))).batchless_key == "fprop-c144-56x56-k3x3-s1x1-p1.2x0-d1x1-m1-float32-nhwc"


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("bias", [False, True])
def test_dict_round_trip(pass_, bias):
    workload = make(padding=((1, 2), (0, 3)), stride=(2, 1), multiplier=2, bias=bias).for_pass(pass_)
    fields = workload.to_dict()
    assert Workload.from_dict(fields) == workload
    assert fields["pass"] == pass_
    assert ("bias" in fields) == workload.bias  # without one it is what it was before there were any


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"batch": 0}, "batch=0"),
        ({"channels": -1}, "channels=-1"),
        ({"stride": (0, 1)}, "stride=0"),
        ({"padding": ((-1, 0), (0, 0))}, "padding=-1"),
        ({"dtype": "float8"}, "dtype=float8"),
        ({"layout": "chwn"}, "layout=chwn"),
        ({"pass_": "backward"}, "pass=backward"),
        ({"kernel": (99, 3)}, "99×3"),
        ({"batch": True}, "batch=True"),
        ({"bias": 1}, "bias=1"),
        ({"pass_": "dgrad", "bias": True}, "dgrad does not depend on a bias"),
    ],
)
def test_refuses_by_name_and_value(changes, named):
    with pytest.raises(InvalidWorkload, match=named) as caught:
        make(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fields", [{}, {"pass": "fprop"}, {"kernel": "3x3"}, {"kernel": [3.0, 3]}, {"surprise": 1}])
def test_from_dict_refuses_what_is_no_workload(fields):
    whole = {**make().to_dict(), **fields} if "pass" not in fields and fields else fields
    with pytest.raises(InvalidWorkload):
        Workload.from_dict(whole)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
@pytest.mark.parametrize("kernel", [(3, 3), (4, 5), (1, 31)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
def test_same_and_valid_mean_what_pytorch_means(kernel, dilation):
    image, weight = torch.randn(1, 2, 40, 100), torch.randn(2, 1, *kernel)
    for word in ("same", "valid"):
        (top, bottom), (left, right) = resolve_padding(word, kernel=kernel, stride=(1, 1), dilation=dilation)
        expected = F.conv2d(image, weight, None, 1, word, dilation, groups=2)
        padded = F.conv2d(F.pad(image, (left, right, top, bottom)), weight, None, 1, 0, dilation, groups=2)
        torch.testing.assert_close(padded, expected)


def test_padding_defaults_and_refusals():
    small = {"kernel": (3, 4), "stride": (1, 1), "dilation": (1, 2)}
    assert resolve_padding(None, **small) == ((1, 1), (3, 3))
    assert resolve_padding(2, **small) == ((2, 2), (2, 2))
    with pytest.raises(InvalidWorkload, match="same needs stride 1"):
        resolve_padding("same", kernel=(3, 3), stride=(2, 2), dilation=(1, 1))
    with pytest.raises(InvalidWorkload, match="reflect"):
        resolve_padding("reflect", **small)
    with pytest.raises(InvalidWorkload, match="kernel"):
        along("kernel", (1, 2, 3), axes=2)


def test_a_slice_has_a_name_of_its_own_and_is_of_passes_that_read_x():
    dense = Workload(pass_="fprop", batch=2, channels=8, input_size=(9, 7), kernel=(3, 3), bias=True)
    sliced = dataclasses.replace(dense, x_pitch=20)
    assert sliced.key == f"{dense.key}-pitch20" and sliced.batchless_key == f"{dense.batchless_key}-pitch20"
    assert Workload.from_dict(sliced.to_dict()) == sliced and "x_pitch" not in dense.to_dict()
    assert sliced.for_pass("dgrad") == dense.for_pass("dgrad")
    assert sliced.for_pass("wgrad") == dataclasses.replace(dense.for_pass("wgrad"), x_pitch=20)
    assert sliced.input_shape == dense.input_shape
    for x_pitch in (8, -1, 20.0):
        with pytest.raises(InvalidWorkload, match=f"x_pitch={x_pitch}"):
            dataclasses.replace(dense, x_pitch=x_pitch)
    with pytest.raises(InvalidWorkload, match="dgrad reads no slice of x"):
        dataclasses.replace(dense.for_pass("dgrad"), x_pitch=20)
