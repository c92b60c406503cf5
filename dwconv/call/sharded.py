"""The path of DTensors: each rank runs its part of a convolution without communication.

A depthwise convolution mixes neither images nor channels. So these placements go together along an axis of a mesh:

    x, y and their gradients    w, bias        dw, dbias
    Shard(0)                    Replicate()    Partial()      each rank has some images
    Shard(1)                    Shard(0)       Shard(0)       each rank has some channels
    Replicate()                 Replicate()    Replicate()    each rank does it all

Other placements, and uneven parts, run on PyTorch's own op. All ranks decide alike, since only the sizes and the
placements of the whole tensors count. On its part each rank runs the ops ``dwconv::fprop`` and so on, which take the
fastest kernel for the sizes of the part.

This is not a sharding strategy for these ops (``register_sharding``): dgrad gets the sizes of its result, which
PyTorch would pass on to every rank as those of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from dwconv.call.arguments import Arguments, Call
from dwconv.call.gradients import Needs, Tied, gradients
from dwconv.call.torch_ops import DispatchedPasses

Placements = tuple[Placement, ...]


def convolve(given: Arguments) -> Tensor | None:
    """y, of DTensors whose parts can be run by themselves; None if they cannot."""
    parts = _Parts.of(given)
    if parts is None or torch.is_autocast_enabled(given.input.device.type):
        return None
    x, w = given.images()
    return given.as_given(ShardedPasses(parts=parts, local=_local_passes(given, x, w)).fprop(x, w, given.bias))


# -- where the parts are ---------------------------------------------------------------------------------------------

_OF_GRADIENT: dict[tuple[Placement, Placement], Placement] = {
    (Shard(0), Replicate()): Partial(),
    (Shard(1), Shard(0)): Shard(0),
    (Replicate(), Replicate()): Replicate(),
}
"""Where the gradient of the weight is along one axis of the mesh, by where x and w are."""


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Where the tensors of a convolution are whose parts can be run by themselves."""

    mesh: DeviceMesh
    image: Placements
    """x, y and their gradients."""
    weight: Placements
    """w and the bias."""
    gradient: Placements
    """The gradients of w and the bias."""

    @classmethod
    def of(cls, given: Arguments) -> _Parts | None:
        """None for what is left to PyTorch's op."""
        x, w, bias = given.input, given.weight, given.bias
        if not isinstance(x, DTensor) or not isinstance(w, DTensor) or x.dim() != given.axes + 2:
            return None
        mesh = x.device_mesh
        if w.device_mesh != mesh or mesh.get_coordinate() is None:  # a rank outside the mesh has no part
            return None
        if bias is not None and not (
            isinstance(bias, DTensor) and bias.device_mesh == mesh and bias.placements == w.placements
        ):
            return None
        pairs = list(zip(x.placements, w.placements, strict=True))
        if not all(pair in _OF_GRADIENT for pair in pairs):
            return None
        shards = [(place.dim, mesh.size(axis)) for axis, (place, _) in enumerate(pairs) if isinstance(place, Shard)]
        for axis in (0, 1):
            count = 1
            for dim, size in shards:
                count *= size if dim == axis else 1
            if x.shape[axis] % count or not x.shape[axis]:
                return None
        gradient = tuple(_OF_GRADIENT[pair] for pair in pairs)
        return cls(mesh=mesh, image=x.placements, weight=w.placements, gradient=gradient)

    def here(self, tensor: Tensor, placements: Placements) -> Tensor:
        """This rank's part of a DTensor, moved to those placements if it comes with others, as gradients may."""
        assert isinstance(tensor, DTensor)
        return tensor.redistribute(self.mesh, placements).to_local()

    def whole(self, part: Tensor, placements: Placements) -> Tensor:
        """The DTensor of which ``part`` is this rank's."""
        return DTensor.from_local(part, self.mesh, placements, run_check=False)


# -- the passes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ShardedPasses:
    """``gradients.Passes`` on DTensors; they can be differentiated."""

    parts: _Parts
    local: DispatchedPasses
    """The same on this rank's parts."""

    def fprop(self, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        return DwconvShardedFprop.apply(self, x, w, bias)  # type: ignore[no-untyped-call]

    def dgrad(self, dy: Tensor, w: Tensor) -> Tensor:
        return DwconvShardedDgrad.apply(self, dy, w)  # type: ignore[no-untyped-call]

    def wgrad(self, x: Tensor, dy: Tensor) -> Tensor:
        return DwconvShardedWgrad.apply(self, x, dy)  # type: ignore[no-untyped-call]

    def wgrad_bias(self, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        dw, dbias = DwconvShardedWgradBias.apply(self, x, dy)  # type: ignore[no-untyped-call]
        return dw, dbias

    def backward(self, x: Tensor, dy: Tensor, w: Tensor) -> None:
        """There is none: each gradient has placements of its own."""


def _local_passes(given: Arguments, x: Tensor, w: Tensor) -> DispatchedPasses:
    """The ops on parts, which may be of any kind, such as fake ones, or those still on their way from another rank."""
    with torch.no_grad():
        part = given._replace(
            input=given.input.to_local(),  # type: ignore[attr-defined]
            weight=given.weight.to_local(),  # type: ignore[attr-defined]
            bias=None if given.bias is None else given.bias.to_local(),  # type: ignore[attr-defined]
            groups=None,
        )
        call = Call.of(part)
    return DispatchedPasses.of(call.problem, weight_strides=call.w.stride())


class DwconvShardedFprop(Function):
    @staticmethod
    def forward(ctx: Any, passes: ShardedPasses, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.passes, parts = passes, passes.parts
        part_of_bias = None if bias is None else parts.here(bias, parts.weight)
        y = passes.local.fprop(parts.here(x, parts.image), parts.here(w, parts.weight), part_of_bias)
        return parts.whole(y, parts.image)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        _, needs_x, needs_w, needs_bias = ctx.needs_input_grad
        found = gradients(ctx.passes, Tied(x=x, w=w, y=dy), Needs(x=needs_x, w=needs_w, bias=needs_bias))
        return None, found.x, found.w, found.bias


class DwconvShardedDgrad(Function):
    @staticmethod
    def forward(ctx: Any, passes: ShardedPasses, dy: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(dy, w)
        ctx.passes, parts = passes, passes.parts
        dx = passes.local.dgrad(parts.here(dy, parts.image), parts.here(w, parts.weight))
        return parts.whole(dx, parts.image)

    @staticmethod
    def backward(ctx: Any, ddx: Tensor) -> tuple[Tensor | None, ...]:
        dy, w = ctx.saved_tensors
        _, needs_y, needs_w = ctx.needs_input_grad
        found = gradients(ctx.passes, Tied(x=ddx, w=w, y=dy), Needs(w=needs_w, y=needs_y))
        return None, found.y, found.w


class DwconvShardedWgrad(Function):
    @staticmethod
    def forward(ctx: Any, passes: ShardedPasses, x: Tensor, dy: Tensor) -> Any:
        parts = _keep_images(ctx, passes, x, dy)
        dw = passes.local.wgrad(parts.here(x, parts.image), parts.here(dy, parts.image))
        return parts.whole(dw, parts.gradient)

    @staticmethod
    def backward(ctx: Any, ddw: Tensor, ddbias: Tensor | None = None) -> tuple[Tensor | None, ...]:
        x, dy = ctx.saved_tensors
        _, needs_x, needs_y = ctx.needs_input_grad
        found = gradients(ctx.passes, Tied(x=x, w=ddw, bias=ddbias, y=dy), Needs(x=needs_x, y=needs_y))
        return None, found.x, found.y


class DwconvShardedWgradBias(DwconvShardedWgrad):
    @staticmethod
    def forward(ctx: Any, passes: ShardedPasses, x: Tensor, dy: Tensor) -> Any:
        parts = _keep_images(ctx, passes, x, dy)
        both = passes.local.wgrad_bias(parts.here(x, parts.image), parts.here(dy, parts.image))
        return tuple(parts.whole(each, parts.gradient) for each in both)


def _keep_images(ctx: Any, passes: ShardedPasses, x: Tensor, dy: Tensor) -> _Parts:
    ctx.save_for_backward(x, dy)
    ctx.passes = passes
    return passes.parts
