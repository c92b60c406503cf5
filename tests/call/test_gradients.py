"""The one derivative: each gradient is computed by the pass of its place, from the other two tensors."""

from __future__ import annotations

import pytest
import torch

from dwconv.call.gradients import Needs, Tied, gradients


class Told:
    """Passes that compute nothing, and tell what they were asked for, in order. ``at_once``: both gradients of fprop
    come from one kernel."""

    def __init__(self, *, at_once=False):
        self.asked = []
        self._at_once = at_once

    def fprop(self, x, w, bias):
        self.asked.append("fprop")
        return ("fprop", x, w, bias)

    def dgrad(self, dy, w):
        self.asked.append("dgrad")
        return ("dgrad", dy, w)

    def wgrad(self, x, dy):
        self.asked.append("wgrad")
        return ("wgrad", x, dy)

    def wgrad_bias(self, x, dy):
        self.asked.append("wgrad_bias")
        return ("wgrad", x, dy), ("dbias", x, dy)

    def backward(self, x, dy, w):
        return (("dx", x, dy, w), ("dw", x, dy, w)) if self._at_once else None


def test_of_fprop():
    told = Told()
    found = gradients(told, Tied(x="x", w="w", y="dy"), Needs(x=True, w=True))
    assert found == Tied(x=("dgrad", "dy", "w"), w=("wgrad", "x", "dy"))
    assert told.asked == ["wgrad", "dgrad"]  # dx last: what comes next reads it


def test_of_fprop_at_once_if_both_are_needed_and_no_bias_is():
    told, tied = Told(at_once=True), Tied(x="x", w="w", y="dy")
    assert gradients(told, tied, Needs(x=True, w=True)) == Tied(x=("dx", "x", "dy", "w"), w=("dw", "x", "dy", "w"))
    assert told.asked == []
    for needs in (Needs(x=True), Needs(w=True), Needs(x=True, w=True, bias=True), Needs(x=True, w=True, y=True)):
        told.asked.clear()
        gradients(told, tied, needs)
        assert len(told.asked) == needs.x + needs.w + needs.y


def test_of_fprop_with_a_bias():
    found = gradients(Told(), Tied(x="x", w="w", y="dy"), Needs(w=True, bias=True))
    assert found == Tied(w=("wgrad", "x", "dy"), bias=("dbias", "x", "dy"))


def test_of_fprop_for_a_bias_alone():
    told, dy = Told(), torch.randn(2, 3, 4, 5)
    found = gradients(told, Tied(y=dy), Needs(bias=True))
    torch.testing.assert_close(found.bias, dy.sum((0, 2, 3)))
    assert (found.x, found.w, found.y, told.asked) == (None, None, None, [])


def test_of_dgrad():
    found = gradients(Told(), Tied(x="ddx", w="w", y="dy"), Needs(w=True, y=True))
    assert found == Tied(w=("wgrad", "ddx", "dy"), y=("fprop", "ddx", "w", None))


@pytest.mark.parametrize("ddbias", [None, "ddbias"])
def test_of_wgrad(ddbias):
    found = gradients(Told(), Tied(x="x", w="ddw", bias=ddbias, y="dy"), Needs(x=True, y=True))
    assert found == Tied(x=("dgrad", "dy", "ddw"), y=("fprop", "x", "ddw", ddbias))


def test_gradients_that_are_not_needed_are_not_computed():
    told = Told()
    assert gradients(told, Tied(x="x", w="w", y="dy"), Needs()) == Tied()
    assert told.asked == []
