"""The bandwidth of the link below which a pipeline is faster than plain data parallelism.

Data parallelism sends every gradient once a step; a pipeline sends what crosses its cuts, for each image. Where
parameters are large and maps are small, as at the end of a network, little crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dwconv.errors import NoPlan
from dwconv.parallel.planning.compare import SimulatedPlan, propose
from dwconv.parallel.planning.pipeline_plan import LayerCost
from dwconv.parallel.planning.shape import Shape

BANDWIDTHS_GBIT_S = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
GB_S_OF_A_GBIT_S = 0.125
_HALVINGS = 6
"""Of the range between two bandwidths, which leaves some percent."""


@dataclass(frozen=True, kw_only=True)
class AtBandwidth:
    """What is best over a link."""

    gbit_s: float
    data_parallel: SimulatedPlan
    pipeline: SimulatedPlan

    @property
    def times(self) -> float:
        """How many times as fast as data parallelism the best pipeline is."""
        return self.data_parallel.step.step_us / self.pipeline.step.step_us


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """When a pipeline pays."""

    rows: tuple[AtBandwidth, ...]
    gbit_s: float | None
    """The bandwidth at which both are as fast; None if one of them is faster at all of them."""


def break_even(
    layers: Sequence[LayerCost], shape: Shape, *, on_whole_share: Sequence[LayerCost] | None = None
) -> BreakEven:
    """Over links of ``BANDWIDTHS_GBIT_S``, else like ``shape``'s; arguments as for ``propose``. Raises NoPlan if only
    one of the forms can be."""

    def at(gbit_s: float) -> AtBandwidth:
        link = shape.link.at(gbit_s * GB_S_OF_A_GBIT_S)
        proposal = propose(layers, replace(shape, link=link), on_whole_share=on_whole_share)
        if proposal.data_parallel is None or proposal.pipeline is None:
            missing = "data parallelism" if proposal.data_parallel is None else "a pipeline"
            raise NoPlan(f"no break-even: {missing} does not fit ({'; '.join(proposal.left_out)})")
        return AtBandwidth(gbit_s=gbit_s, data_parallel=proposal.data_parallel, pipeline=proposal.pipeline)

    rows = [at(gbit_s) for gbit_s in BANDWIDTHS_GBIT_S]
    for slower, faster in reversed([*pairwise(rows)]):
        if slower.times > 1 >= faster.times:
            return BreakEven(rows=tuple(rows), gbit_s=_between(slower.gbit_s, faster.gbit_s, at))
    return BreakEven(rows=tuple(rows), gbit_s=None)


def _between(low: float, high: float, at: Callable[[float], AtBandwidth]) -> float:
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if at(middle).times > 1 else (low, middle)
    return (low * high) ** 0.5


def report(found: BreakEven) -> str:
    """As text."""
    lines = [f"{'Gbit/s':>8} {'data parallelism ms':>20} {'pipeline ms':>12} {'×':>6}  the best pipeline"]
    for row in found.rows:
        lines.append(
            f"{row.gbit_s:8g} {row.data_parallel.step.step_us / 1e3:20.1f} {row.pipeline.step.step_us / 1e3:12.1f} "
            f"{row.times:6.2f}  {row.pipeline.name}"
        )
    if found.gbit_s is not None:
        return "\n".join([*lines, f"break-even: {found.gbit_s:.2g} Gbit/s; a pipeline pays over slower links"])
    pays = "at each of these bandwidths" if found.rows[-1].times > 1 else "at none of these bandwidths"
    return "\n".join([*lines, f"no break-even: a pipeline pays {pays}"])
