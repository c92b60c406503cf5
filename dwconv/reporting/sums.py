"""The sums of a report's rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from dwconv import settings
from dwconv.measure.step_share import OnGpu
from dwconv.model.conversion import ConvertedLayer, Kept
from dwconv.reporting.rows import LayerRow, PassRow

_MOST_SIZES = 3
"""Rows of one layer that are shown. The others count in the sums."""
_OVERHEAD_S = 3.0
"""Time that tuning takes for a pass beside its search."""


@dataclass(frozen=True, kw_only=True)
class ReportSums:
    """What ran in the depthwise layers of a model, how long it takes, and what tuning can still gain."""

    model: str
    """The name of its class."""
    converted: int
    """How many layers are dwconv's."""
    rows: tuple[LayerRow, ...]
    """What ran, in the order of the model; what one layer ran most often comes first."""
    idle: tuple[str, ...]
    """Layers of dwconv that did not run."""
    left: tuple[ConvertedLayer, ...]
    """Convolutions with groups that are not dwconv's, and why."""
    is_compiled: bool
    """True if torch.compile compiles the model or a part of it."""
    of_an_example: bool
    """True if a step is one on the example; else it is taken from what was counted."""
    kept: Kept | None = None
    """With ``memory="less"`` what a step on the example of ``convert`` keeps."""
    road: str = ""
    """Which way calls of these layers take now, and why."""
    calls_by_road: tuple[int, int] = (0, 0)
    """Forward calls of dwconv's kernels so far: in C++, and through Python."""
    on_gpu: OnGpu | None = None
    """What a step on the example takes of the host and of the GPU, without the optimizer; None on a CPU."""

    @property
    def passes(self) -> list[PassRow]:
        """All passes of all rows."""
        return [each for row in self.rows for each in row.passes]

    @property
    def depthwise_us(self) -> float:
        """The time of depthwise convolution in a step, as far as it is known."""
        return sum(each.step_us or 0.0 for each in self.passes)

    @property
    def saved_us(self) -> float:
        """How much longer it would take on PyTorch's op, as far as both are known."""
        return sum(each.saved_us or 0.0 for each in self.passes)

    @property
    def to_win_us(self) -> float:
        """What tuning is expected to win of a step."""
        return sum(each.step_to_win_us for each in self.passes)

    @property
    def guessed(self) -> int:
        """Passes whose expected gain rests on no measurement here."""
        return sum(bool(each.to_win_us) and each.basis != "measured" for each in self.passes)

    @property
    def unknown(self) -> int:
        """Passes whose time is not known."""
        return sum(each.now_us is None for each in self.passes)

    @cached_property
    def most_to_win(self) -> LayerRow | None:
        """The row with the largest expected gain; None if there is nothing."""
        row = max(self.rows, key=lambda row: row.step_to_win_us, default=None)
        return row if row and row.step_to_win_us else None

    @property
    def call(self) -> str:
        """The call that tunes these passes; empty if there is nothing."""
        sizes = {
            (row.problem.workload(each.pass_).batchless_key, row.device)
            for row in self.rows
            for each in row.passes
            if each.to_win_us
        }
        minutes = math.ceil(len(sizes) * (settings.SECONDS + _OVERHEAD_S) / 60)
        return f"dwconv.tune(model, example_inputs, minutes={minutes})" if sizes else ""

    @cached_property
    def shown(self) -> tuple[LayerRow, ...]:
        """The rows without those of sizes that a layer ran less often than others."""
        seen: dict[tuple[str, ...], int] = {}
        found = []
        for row in self.rows:
            seen[row.names] = seen.get(row.names, 0) + 1
            if seen[row.names] <= _MOST_SIZES:
                found.append(row)
        return tuple(found)
