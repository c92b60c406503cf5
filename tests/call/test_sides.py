"""Padding whose sides differ, which PyTorch's convolution does not take: the same as F.pad before it."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

import dwconv
from dwconv.errors import InvalidWorkload
from tests.native_needed import needs_native
from tests.planted_records import plant, workload_of

pytestmark = [
    pytest.mark.usefixtures("threads_as_asked"),
    pytest.mark.filterwarnings("ignore::dwconv.errors.DwconvWarning"),
]
SIDES = ((0, 1), (2, 0))
"""((top, bottom), (left, right))"""


def leaves(shape=(2, 8, 9, 7)):
    torch.manual_seed(0)
    x = torch.randn(shape).to(memory_format=torch.channels_last).requires_grad_()
    return x, torch.randn(8, 1, 3, 3, requires_grad=True), torch.randn(8, requires_grad=True)


def check(padding=SIDES):
    x, w, bias = leaves()
    expected = F.conv2d(F.pad(x, (2, 0, 0, 1)), w, bias, stride=2, groups=8)
    actual = dwconv.conv2d(x, w, bias, stride=2, padding=padding)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    gradients = [torch.autograd.grad(y.pow(2).sum(), (x, w, bias)) for y in (actual, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    return actual.grad_fn.name()


@pytest.fixture
def planted(logs):
    workload = dataclasses.replace(workload_of(stride=2, bias=True), padding=SIDES)
    plant(logs / "log.jsonl", [workload], baseline_us=1e6)


def test_it_runs_on_kernels(planted):
    assert "Dwconv" in check()


def test_cpp_takes_it(planted):
    needs_native()
    check()
    assert "CppNode" in check()


@pytest.mark.parametrize("padding", [SIDES, [[0, 1], [2, 0]], ([0, 1], [2, 0])])
def test_pytorchs_op_gets_a_padded_input(logs, padding):
    assert "Convolution" in check(padding)
    assert "Convolution" in check(padding), "once more, as it is remembered"


def test_it_can_be_compiled(planted):
    x, w, bias = leaves()
    function = torch.compile(lambda x: dwconv.conv2d(x, w, bias, 2, SIDES), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(function(x), dwconv.conv2d(x, w, bias, 2, SIDES))


def test_a_line_has_two_sides(logs):
    x, w = torch.randn(2, 8, 9), torch.randn(8, 1, 3)
    for given in (x, x[0]):
        torch.testing.assert_close(
            dwconv.conv1d(given, w, padding=((2, 0),)), F.conv1d(F.pad(given, (2, 0)), w, groups=8)
        )


def test_explain_knows_it(logs):
    x, w, _ = leaves()
    assert "padding 0×1×2×0" in str(dwconv.explain(x, w, padding=SIDES))


@pytest.mark.parametrize(
    ("padding", "told"),
    [
        (((1, 2),), "is not one number, or 2, or"),
        (((1, 2), 3), "is not one number, or 2, or"),
        (((1, 2, 3), (1, 2)), "is not one number, or 2, or"),
        (((0, -1), (0, 0)), "padding=-1 must be at least 0"),
    ],
)
def test_the_error_names_a_wrong_padding(logs, padding, told):
    x, w, _ = leaves()
    with pytest.raises(InvalidWorkload, match=told):
        dwconv.conv2d(x, w, padding=padding)
