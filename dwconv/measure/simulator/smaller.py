"""A workload that is too large to be simulated whole: the same configuration on fewer channels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from dwconv.errors import InvalidConfig
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cpu import describe
from dwconv.kernels.cuda import lower
from dwconv.problems.target import CudaTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.template import Candidate

MOST_PRODUCTS = 6_000_000
"""Multiplications of a run: about a quarter of a second."""
MOST_OF_TWO_IMAGES = 32_000_000
"""The limit where two whole images need no more: it costs half a second more, and the very code runs that a GPU would
run."""

_CHANNELS_OF_A_TILE = 64


def products(workload: Workload) -> int:
    return workload.flops // 2


def smaller(candidate: Candidate, target: CudaTarget) -> Candidate:
    """The candidate's configuration on as many channels as MOST_PRODUCTS allows for two images, or on the fewest for
    which it is legal. Rows, columns and all else stay: kernels go wrong at the edges."""
    workload = candidate.workload
    a_channel = max(1, products(workload.with_batch(2)) // workload.channels)
    room = max(1, MOST_PRODUCTS // a_channel)
    legal = candidate
    for channels in _fewer(workload.channels):
        small = dataclasses.replace(workload, channels=channels)
        if candidate.template.misfit(small, target) is not None:
            continue
        try:
            config = candidate.template.space(small, target).check(candidate.config.to_dict())
        except InvalidConfig:
            continue
        legal = Candidate(small, config)
        if channels <= room:
            break
    return legal


def _fewer(channels: int) -> Iterator[int]:
    """Numbers of channels to try, in falling order: divisors, and those with the same rest in a tile."""
    tried = {channels // parts for parts in range(2, channels + 1) if channels % parts == 0}
    tried |= set(range(channels % _CHANNELS_OF_A_TILE, channels, _CHANNELS_OF_A_TILE))
    tried |= {1 << power for power in range(channels.bit_length()) if 1 << power < channels}
    yield from sorted(tried - {0}, reverse=True)


def source_only(candidate: Candidate, target: CudaTarget) -> Artifact:
    """The artifact that ``build`` returns, without machine code."""
    function = candidate.schedule(target).mod["main"]
    arguments = tuple(describe(buffer) for buffer in function.params)
    source, launches = lower(function, arguments, arch=target.arch)
    return Artifact(candidate=candidate, kind="cuda", source=source, arguments=arguments, launches=launches)
