"""The path of DTensors: each rank runs its part of a convolution without communication.

A depthwise convolution mixes neither images nor channels. So these placements go together along an axis of a mesh:

    x, y and their gradients    w, bias        dw, dbias
    Shard(0)                    Replicate()    Partial()      each rank has some images
    Shard(1)                    Shard(0)       Shard(0)       each rank has some channels
    Replicate()                 Replicate()    Replicate()    each rank does it all

Other placements, and uneven parts, run on PyTorch's own op. All ranks decide alike, since only the sizes and the
placements of the whole tensors count. On its part each rank runs the ops of ``torch_ops``, which take the fastest
kernel for the sizes of the part, and have derivatives of any order.

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

from dwconv.call import torch_ops
from dwconv.call.arguments import Call, CallArguments

Placements = tuple[Placement, ...]
_OF_GRADIENT: dict[tuple[Placement, Placement], Placement] = {
    (Shard(0), Replicate()): Partial(),
    (Shard(1), Shard(0)): Shard(0),
    (Replicate(), Replicate()): Replicate(),
}
"""Where the gradient of the weight is along one axis of the mesh, by where x and w are."""


def convolve(given: CallArguments) -> Tensor | None:
    """y, of DTensors whose parts can be run by themselves; None if they cannot."""
    parts = _Parts.of(given)
    if parts is None or torch.is_autocast_enabled(given.input.device.type):
        return None
    mesh, weight, bias = parts.mesh, (parts.weight, parts.gradient), given.bias
    part = given._replace(
        input=DwconvPart.apply(given.input, mesh, parts.image, parts.image),  # type: ignore[no-untyped-call]
        weight=DwconvPart.apply(given.weight, mesh, *weight),  # type: ignore[no-untyped-call]
        bias=None if bias is None else DwconvPart.apply(bias, mesh, *weight),  # type: ignore[no-untyped-call]
        groups=None,
    )
    call = Call.of(part)
    y = part.as_given(torch_ops.fprop(call.x, call.w, part.bias, *call.problem.geometry))
    return DwconvWhole.apply(y, mesh, parts.image, parts.image)  # type: ignore[no-untyped-call]


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
    def of(cls, given: CallArguments) -> _Parts | None:
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


class DwconvPart(Function):
    """This rank's part of a DTensor, moved to ``placements`` if it comes with others, as gradients may. ``dual``: the
    placements of its gradient."""

    @staticmethod
    def forward(ctx: Any, whole: DTensor, mesh: DeviceMesh, placements: Placements, dual: Placements) -> Tensor:
        ctx.back = mesh, dual, placements
        part = whole.redistribute(mesh, placements).to_local()
        return part.view_as(part)  # autograd writes into what is returned

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return DwconvWhole.apply(gradient, *ctx.back), None, None, None  # type: ignore[no-untyped-call]


class DwconvWhole(Function):
    """The DTensor of which ``part`` is this rank's."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, mesh: DeviceMesh, placements: Placements, dual: Placements) -> Tensor:
        ctx.back = mesh, dual, placements
        return DTensor.from_local(part, mesh, placements, run_check=False)

    @staticmethod
    def backward(ctx: Any, gradient: DTensor) -> tuple[Tensor | None, ...]:
        return DwconvPart.apply(gradient, *ctx.back), None, None, None  # type: ignore[no-untyped-call]
