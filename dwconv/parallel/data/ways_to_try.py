"""What is worth measuring: ways to send gradients, by the size of their buckets, and the bytes that each sends."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor, nn

from dwconv.parallel.data.ways import Collective, Communication

_BUCKETS_MB = (1.0, 5.0, 25.0)
"""Beside the default: those that are smaller than all gradients, and all gradients."""
_IN_TWO: tuple[Collective, ...] = ("reduce-scatter", "reduce-broadcast")
_DEFAULT_MB, _SMALL_MB = 25.0, 1.0
"""The default's buckets; and those that are worth sending from each rank to each where there are more than two."""
_POWERSGD_RANK = 2

Compression = Literal["", "bfloat16", "powersgd"]
"""What may be chosen that changes gradients: nothing; bfloat16; bfloat16 and PowerSGD."""


def gradient_bytes(model: nn.Module) -> int:
    """Of the parameters that are trained."""
    return sum(each.nbytes for each in model.parameters() if each.requires_grad)


def sent_as_bytes(model: nn.Module, way: Communication) -> int:
    """The gradients as they are sent: by ``way`` without its collective."""
    trained = [each for each in model.parameters() if each.requires_grad]
    if way.powersgd_rank is not None:
        return sum(_factor_bytes(each, way.powersgd_rank) for each in trained)
    return sum(2 * each.numel() for each in trained) if way.compressed else gradient_bytes(model)


def _factor_bytes(parameter: Tensor, rank: int) -> int:
    """As PyTorch's PowerSGD decides: as two matrices where these are less than half as large."""
    rows = parameter.shape[0]
    columns = parameter.numel() // max(rows, 1)
    factors = (rows + columns) * min(rows, columns, rank)
    return parameter.element_size() * (factors if 2 * factors < parameter.numel() else parameter.numel())


def worth_trying(gradient_mb: float, *, world: int, compression: Compression) -> list[list[Communication]]:
    """What is worth trying, by bucket size, the default's first: all-reduce with what compresses it, then the other
    collectives. Below 1 MiB that is one bucket already."""
    sizes = [None, *(size for size in _BUCKETS_MB if size < gradient_mb)]
    if gradient_mb > 1:
        sizes.append(float(math.ceil(gradient_mb)))
    return [_of_size(size, gradient_mb, world=world, compression=compression) for size in sizes]


def _of_size(size: float | None, gradient_mb: float, *, world: int, compression: Compression) -> list[Communication]:
    found = [Communication(bucket_mb=size)]
    if compression:
        found.append(Communication(bucket_mb=size, compressed=True))
    if compression == "powersgd":
        found.append(Communication(bucket_mb=size, powersgd_rank=_POWERSGD_RANK))
    megabytes = min(gradient_mb, _DEFAULT_MB if size is None else size)
    if world <= 2 or megabytes <= _SMALL_MB:
        found.append(Communication(collective="redundant", bucket_mb=size))
    found += [Communication(collective=collective, bucket_mb=size) for collective in _IN_TWO]
    return [*found, *([Communication(collective="after-backward")] if size is None else [])]
