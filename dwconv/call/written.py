"""Written: a module whose forward pass is a block by itself, as of ``dwconv.nn.DepthwiseBlock``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dwconv.call.place import Place
from dwconv.call.traced import bind, bound
from dwconv.call.traces import (
    Trace,
    TracedBlock,
    WatchedModule,
    activation_of_module,
    at,
    batch_norm_eps,
)
from dwconv.problems.block import Block, Norm

_WRITTEN = ("bn1", "act1", "conv", "bn2", "act2")


def entered_as_written(parent: nn.Module) -> Any:
    """As ``entered``, of a module whose forward pass is a block by itself: ``bn1``, ``act1``, ``conv``, ``bn2``,
    ``act2``, of which all but ``conv`` may be None."""
    if torch.compiler.is_compiling():  # which cannot look into what writes a trace
        return None
    known = bound(parent)
    traced = None if known is None else known[1].get(parent.training)
    is_mine = traced is not None and traced.of() is parent
    if traced is not None and is_mine and traced.holds(parent):
        return traced
    trace = _written(parent)
    if trace is None or (traced is not None and is_mine and traced.trace == trace):
        return None
    traced = bind(parent, (trace,))[1][parent.training]
    return traced if traced.holds(parent) else None


def _written(parent: nn.Module) -> Trace | None:
    """The trace of such a module as it is; None if it has no block."""
    parts = {name: getattr(parent, name) for name in _WRITTEN}
    conv = parts["conv"]
    eps1, eps2 = batch_norm_eps(parts["bn1"]), batch_norm_eps(parts["bn2"])
    act1, act2 = ("identity" if parts[name] is None else activation_of_module(parts[name]) for name in ("act1", "act2"))
    if eps1 is None or act1 is None:
        eps1, act1 = None, "identity"
    if eps2 is None or act2 is None:
        act2 = "identity"
    if isinstance(conv.padding, str) or conv.padding_mode != "zeros":
        return None
    if eps2 is None and (eps1 is None or conv.bias is not None):
        return None
    first = "conv" if eps1 is None else "bn1"
    last = "conv" if eps2 is None else "act2" if activation_of_module(parts["act2"]) else "bn2"
    inside = [name for name in _WRITTEN[_WRITTEN.index(first) : _WRITTEN.index(last) + 1] if parts[name] is not None]
    before = [name for name in _WRITTEN[: _WRITTEN.index(first)] if parts[name] is not None]
    after = [name for name in _WRITTEN[_WRITTEN.index(last) + 1 :] if parts[name] is not None]
    calls = "".join(f"    x = self.{name}(x)\n" for name in inside)
    whole = "".join(f"    x = self.{name}(x)\n" for name in before) + "    x = blocks_[0](x)\n"
    whole += "".join(f"    x = self.{name}(x)\n" for name in after)
    height, width = conv.padding
    block = TracedBlock(
        place=Place(
            block=Block(
                norm1=None if eps1 is None else Norm(eps=eps1),
                act1=act1,
                norm2=None if eps2 is None else Norm(eps=eps2),
                act2=act2 or "identity",
            ),
            weight_shape=tuple(conv.weight.shape),
            stride=conv.stride,
            padding=(height, height, width, width),
            dilation=conv.dilation,
        ),
        conv="conv",
        norms=tuple(name for name in ("bn1", "bn2") if name in inside),
        counts=tuple(True for name in ("bn1", "bn2") if name in inside),
        source=f"def forward(self, x):\n{calls}    return x\n",
    )
    return Trace(
        training=parent.training,
        source=f"def forward(self, blocks_, x):\n{whole}    return x\n",
        names=(),
        blocks=(block,),
        modules=tuple(WatchedModule.of(at(parent, path), path=path) for path in ("", *inside)),
    )
