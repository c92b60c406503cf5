"""Graphs show which norms and activations hand their result to a convolution, or take its, alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import dwconv
from dwconv.discovery import discover
from dwconv.discovery.find_blocks import FoundBlocks
from tests.call.block_parts import FrozenNorm

CHANNELS = 8


class Net(nn.Module):
    """Makes of x what ``way`` says, with modules of its own."""

    def __init__(self, way) -> None:
        super().__init__()
        self.widen = nn.Conv2d(3, CHANNELS, 1)
        self.bn1, self.bn2 = nn.BatchNorm2d(CHANNELS), nn.BatchNorm2d(CHANNELS, eps=1e-3)
        self.act = nn.ReLU6(inplace=True)
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)
        self.way = way
        self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return self.way(self, self.widen(x))


def example() -> Tensor:
    return torch.randn(2, 3, 6, 5).to(memory_format=torch.channels_last)


def seen(way, *, change=None, **kwargs):
    """(the block, where it starts, why no more is in it)"""
    net = Net(way)
    if change:
        change(net)
    (block,) = discover(net, example(), **kwargs).blocks
    assert block.name == "conv" and not block.waits
    return str(block.problem.block) if block.problem else None, block.starts, block.why_not


def whole(net: Net, x: Tensor) -> Tensor:
    return net.act(net.bn2(net.conv(net.act(net.bn1(x)))))


BLOCKS = {
    "modules": (whole, "bn+relu6,bn@0.001+relu6", "bn1"),
    "functions": (lambda net, x: F.hardswish(net.bn2(net.conv(F.silu(net.bn1(x))))), "bn+silu,bn@0.001+hardswish",
        "bn1",
    ),
    "methods": (lambda net, x: net.bn2(net.conv(net.bn1(x).relu_())).relu(), "bn+relu,bn@0.001+relu", "bn1"),
    "no activation": (lambda net, x: net.bn2(net.conv(net.bn1(x))), "bn,bn@0.001", "bn1"),
    "nothing before": (lambda net, x: net.act(net.bn2(net.conv(x))), "none,bn@0.001+relu6", "conv"),
    "nothing after": (lambda net, x: net.conv(net.act(net.bn1(x))) + 1, "bn+relu6,none", "bn1"),
    "another activation after": (lambda net, x: F.elu(whole(net, x)), "bn+relu6,bn@0.001+relu6", "bn1"),
    "sizes are read": (lambda net, x: whole(net, x).reshape(x.shape[0], -1), "bn+relu6,bn@0.001+relu6", "bn1"),
    "the result is used twice": (lambda net, x: (lambda z: z + z * z)(whole(net, x)), "bn+relu6,bn@0.001+relu6", "bn1"),
    "hardtanh of a ReLU6": (
        lambda net, x: F.hardtanh(net.bn2(net.conv(F.hardtanh(net.bn1(x), 0.0, 6.0))), max_val=6, min_val=0),
        "bn+relu6,bn@0.001+relu6", "bn1",
    ),
    "hardtanh of a ReLU6, in place": (
        lambda net, x: F.hardtanh_(net.bn2(net.conv(F.hardtanh(net.bn1(x), 0.0, 6.0, True))), 0.0, 6.0),
        "bn+relu6,bn@0.001+relu6", "bn1",
    ),
    "other limits": (
        lambda net, x: F.hardtanh(net.bn2(net.conv(F.hardtanh(net.bn1(x), 0.0, 3.0)))), "none,bn@0.001", "conv",
    ),
    "limits of its own": (
        lambda net, x: F.hardtanh_(net.bn2(net.conv(F.hardtanh(net.bn1(x), max_val=6.0)))), "none,bn@0.001", "conv",
    ),
    "an unknown activation before": (lambda net, x: net.bn2(net.conv(F.elu(net.bn1(x)))), "none,bn@0.001", "conv"),
    "gelu by its tangent": (
        lambda net, x: net.bn2(net.conv(F.gelu(net.bn1(x), approximate="tanh"))), "none,bn@0.001", "conv",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_it_is_seen(name):
    way, block, starts = BLOCKS[name]
    assert seen(way) == (block, starts, "")


def skipping(net: Net, x: Tensor) -> Tensor:
    h = net.act(net.bn1(x))
    return net.act(net.bn2(net.conv(h))) + h


def summed(net: Net, x: Tensor) -> Tensor:
    y = net.conv(net.bn1(x))
    return net.bn2(y) + y


def normed(net: Net, x: Tensor) -> Tensor:
    y = net.bn2(net.conv(net.bn1(x)))
    return F.relu(y) + y


def given(net: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    h = net.bn1(x)
    return h, net.bn2(net.conv(h))


LEFT = {
    "a skip connection": (skipping, "none,bn@0.001+relu6", "conv", ""),
    "a second reader of sums": (summed, "bn,none", "bn1", ""),
    "a second reader of the norm": (normed, "bn,bn@0.001", "bn1", ""),
    "given by the model": (given, "none,bn@0.001", "conv", ""),
    "a norm twice": (lambda net, x: net.bn1(net.conv(net.bn1(x))), None, "conv", "bn1 runs 2 times in a step"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_alone_is_left_out(name):
    way, *expected = LEFT[name]
    assert seen(way) == tuple(expected)


def with_bias(net: Net) -> None:
    net.conv.bias = nn.Parameter(torch.zeros(CHANNELS))


CHANGES = {
    "frozen": (lambda net: net.bn1.eval(), "frozen+relu6,bn@0.001+relu6", ""),
    "both frozen": (lambda net: (net.bn1.eval(), net.bn2.eval()), "frozen+relu6,frozen@0.001+relu6", ""),
    "frozen, without statistics": (
        lambda net: setattr(net, "bn2", nn.BatchNorm2d(CHANNELS, track_running_stats=False).eval()), "bn+relu6,none",
        "",
    ),
    "a module of buffers": (lambda net: setattr(net, "bn1", FrozenNorm(CHANNELS)), "frozen+relu6,bn@0.001+relu6", ""),
    "no affine": (
        lambda net: setattr(net, "bn2", nn.BatchNorm2d(CHANNELS, affine=False)), "bn+relu6,none",
        "of bn2, it has no weight and bias",
    ),
    "a hook": (lambda net: net.bn2.register_forward_hook(lambda *_: None), "bn+relu6,none", "bn2 has a hook"),
    "a hook on the layer": (lambda net: net.conv.register_forward_pre_hook(lambda *_: None), None, "conv has a hook"),
    "SyncBatchNorm": (
        lambda net: setattr(net, "bn1", nn.SyncBatchNorm(CHANNELS)), "none,bn@0.001+relu6", "",
    ),
    "a bias": (with_bias, "bn+relu6,bn@0.001+relu6", ""),
    "a bias, and no norm after it": (
        lambda net: (with_bias(net), setattr(net, "bn2", nn.Identity())), None,
        "the convolution has a bias, and no norm after it",
    ),
    "no momentum": (lambda net: setattr(net.bn1, "momentum", None), "bn+relu6,bn@0.001+relu6", ""),
    "a module of a ReLU6": (lambda net: setattr(net, "act", nn.Hardtanh(0, 6)), "bn+relu6,bn@0.001+relu6", ""),
    "a module of other limits": (lambda net: setattr(net, "act", nn.Hardtanh()), "none,bn@0.001", ""),
    "another limit of a ReLU6": (lambda net: setattr(net.act, "max_val", 3.0), "none,bn@0.001", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_no_block_has_is_left_out(name):
    change, block, why = CHANGES[name]
    found = seen(whole, change=change)
    assert (found[0], found[2]) == (block, why)


@pytest.mark.parametrize("why", ["float64", "contiguous"])
def test_what_has_no_kernels_says_so(why):
    net, x = Net(whole), example()
    net, x = (
        (net.double(), x.double())
        if why == "float64"
        else (net.to(memory_format=torch.contiguous_format), x.contiguous())
    )
    (block,) = discover(net, x).blocks
    assert block.problem is None and why in block.why_not


def test_under_autocast_it_has_the_type_of_the_convolution():
    with torch.autocast("cpu", torch.bfloat16):
        (block,) = discover(Net(whole), example()).blocks
    assert block.problem.dtype is torch.bfloat16 and str(block.problem.block) == "bn+relu6,bn@0.001+relu6"


@pytest.mark.parametrize("trains", [True, False])
def test_only_what_trains_is_a_block(trains):
    assert len(discover(Net(whole), example(), trains=trains).blocks) == trains


def test_without_a_norm_of_a_module_there_is_no_block():
    def way(net: Net, x: Tensor) -> Tensor:
        return net.conv(F.batch_norm(x, None, None, net.bn1.weight, net.bn1.bias, True))

    for each in (way, lambda net, x: net.act(net.conv(x))):
        assert discover(Net(each), example()).blocks == ()


def test_a_block_of_its_own_waits():
    net = Net(lambda net, x: net.block(x))
    net.block = dwconv.nn.DepthwiseBlock(bn1=net.bn1, conv=net.conv, bn2=net.bn2)
    del net.bn1, net.bn2, net.conv
    (block,) = discover(net, example()).blocks
    assert block.waits and block.starts == "block.bn1" and block.name == "block.conv"


EVALUATED = {
    "all": (lambda net: net.eval(), "bn+relu6,bn@0.001+relu6", False),
    "one of them": (lambda net: net.bn2.eval(), "bn+relu6,frozen@0.001+relu6", True),
    "statistics of the batch": (
        lambda net: (net.eval(), setattr(net, "bn1", nn.BatchNorm2d(CHANNELS, track_running_stats=False).eval())),
        "none,bn@0.001+relu6", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("name", EVALUATED)
def test_what_has_learnt_its_statistics_is_a_block_in_evaluation(name, trains):
    """Whether or not a gradient is wanted; a norm that keeps its statistics in training is part of a block there."""
    change, block, in_training = EVALUATED[name]
    net = Net(whole)
    change(net)
    discovery = discover(net, example(), trains=trains)
    if in_training and not trains:
        assert discovery.blocks == ()
        return
    (found,) = discovery.blocks
    assert str(found.problem.block) == block and found.problem.trains is in_training
    passes = {workload.pass_ for workload in discovery.with_blocks(all_of_them=True).counts() if workload.block}
    assert passes == ({"forward", "backward"} if in_training else {"inference"})


def test_a_module_that_is_only_taken_apart_is_no_parent():
    """Its own forward pass never runs: a trace of it would run nothing."""
    net = Net(lambda net, x: net.held[1](net.held[0](x)))
    net.held = nn.Sequential(nn.Sequential(net.bn1, net.act), nn.Sequential(net.conv, net.bn2))
    del net.bn1, net.act, net.conv, net.bn2
    blocks = discover(net, example()).blocks
    assert {block.parent for block in blocks} == {""}


def test_elsewhere_than_on_a_cpu_a_frozen_norm_is_left_out():
    """Kernels of a GPU take statistics; the norm that learns is still part of a block."""
    net = Net(whole).to("meta")
    net.bn1.eval()
    (found,) = FoundBlocks(net, ["conv"]).found
    assert str(found.block) == "none,bn@0.001+relu6"
    assert found.why_not == "of bn1, its statistics are not those of the batch"
    (found,) = FoundBlocks(net.eval(), ["conv"]).found
    assert str(found.block.thawed) == "bn+relu6,bn@0.001+relu6"
