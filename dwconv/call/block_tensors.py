"""Which tensors of a block are which, by its name: what its passes give, and what norms are given in each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from dwconv.problems.block import Block, Norm


@lru_cache(maxsize=100)
def results_of(block: str) -> tuple[str, ...]:
    """The names of the results of a block's forward pass."""
    return Block.parse(block).results("forward")


@lru_cache(maxsize=100)
def is_layer_norm(block: str) -> bool:
    return Block.parse(block).layer_norm is not None


@lru_cache(maxsize=100)
def batch_norms_of(block: str) -> tuple[Norm, ...]:
    return Block.parse(block).batch_norms


@lru_cache(maxsize=100)
def kept_of(block: str) -> str:
    """The result that the backward pass reads; empty if it reads none."""
    return Block.parse(block).kept


def norms_of_backward(block: str, given: Sequence[Tensor], statistics: Sequence[Tensor]) -> list[Tensor]:
    """γ, β, mean and variance of each norm, from what the forward pass was given and the statistics that it gave; of an
    InstanceNorm γ and β, of a LayerNorm what it was given."""
    if is_layer_norm(block):
        return list(given)
    was_given, were_found = iter(given), iter(statistics)
    norms: list[Tensor] = []
    for norm in batch_norms_of(block):
        norms += [next(was_given), next(was_given)]
        if norm.is_of_images:
            continue
        of = was_given if norm.is_frozen else were_found
        norms += [next(of), next(of)]
    return norms


def norms_of_forward(block: str, norms: Sequence[Tensor]) -> list[Tensor]:
    """What the forward pass was given of the norms of the backward pass, which are BatchNorms."""
    return [
        each
        for number, norm in enumerate(batch_norms_of(block))
        for each in norms[4 * number : 4 * number + (4 if norm.is_frozen else 2)]
    ]


def of_what_was_given(
    block: str, gradients: Sequence[Tensor], norms: Sequence[Tensor], *, needed: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients of what norms were given: of γ and β, and where it is ``needed`` of a mean and a variance, which
    other images may have a part in. ``norms``: as the backward pass has them."""
    if is_layer_norm(block):
        return list(gradients)
    left, found = iter(gradients), list[Tensor | None]()
    for number, norm in enumerate(batch_norms_of(block)):
        of_gamma, of_beta = next(left), next(left)
        found += [of_gamma, of_beta]
        if norm.is_frozen and any(needed[len(found) : len(found) + 2]):
            gamma, _, _, variance = norms[4 * number : 4 * number + 4]
            inverse = torch.rsqrt(variance + norm.eps)
            found += [-gamma * inverse * of_beta, -0.5 * gamma * inverse.square() * of_gamma]
        elif norm.is_frozen:
            found += [None, None]
    return found
