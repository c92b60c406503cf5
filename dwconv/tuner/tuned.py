"""Tuned: what a campaign found. Prints as the table of the command."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dwconv.problems.as_written import workload_options
from dwconv.problems.target import Target
from dwconv.tuner.expected_gain import ToGain, TuningLeft
from dwconv.tuner.results_table import Outcome, as_data, print_costs, print_table

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS = 100
"""Width of the table as a string: lines of configurations are broken there."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What tuning may gain of a step, as it was expected before the campaign and after it."""

    before: ToGain
    after: ToGain

    def __str__(self) -> str:
        return (
            f"still to gain: about {self.after} of {self.after.depthwise_us / 1e3:.2f} ms in depthwise convolution; "
            f"before, {self.before} of {self.before.depthwise_us / 1e3:.2f} ms"
        )


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What was found of each workload, and where it was written to."""

    outcomes: tuple[Outcome, ...]
    """In the order in which they were tuned."""
    target: Target
    log: Path
    is_own_log: bool
    """True if calls read the log by default."""
    left: int
    """Workloads for which there was no time."""
    interrupted: bool
    """By ctrl-C."""
    gain: Gain | None = None
    """What tuning may gain of a step of the network; None if there is none."""
    tuning_left: TuningLeft | None = None
    """What further trials are expected to gain of a step; None unless passes end where little is left."""

    lost = False

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        self.print_to(Console(file=text, width=_COLUMNS, highlight=False, color_system=None))
        return text.getvalue().rstrip("\n")

    def print_to(self, console: Console) -> None:
        """The table, the computed costs, where the records are, and what to do next."""
        print_table(self.outcomes, console=console)
        print_costs(self.outcomes, target=self.target, console=console)
        for line in self._closing_lines():
            console.print(line, markup=False, soft_wrap=True)

    def as_data(self) -> dict[str, Any]:
        """What the command prints with ``--json``."""
        results = [as_data(outcome, target=self.target) for outcome in self.outcomes]
        data = {"target": str(self.target), "device": self.target.device, "log": str(self.log), "results": results}
        if self.gain is None:
            return data
        after = self.gain.after
        step = {"still_to_gain_us": after.gain_us, "depthwise_us": after.depthwise_us}
        return {**data, "step": step | ({"tuning_left_us": self.tuning_left.us} if self.tuning_left else {})}

    @property
    def worked(self) -> bool:
        """False if there were workloads, and no candidate of any worked."""
        return not self.outcomes or any(outcome.result and outcome.result.best for outcome in self.outcomes)

    def _closing_lines(self) -> list[str]:
        measured = sum(outcome.result.measured for outcome in self.outcomes if outcome.result)
        resumed = sum(outcome.result.resumed for outcome in self.outcomes if outcome.result)
        lines = ["", f"log: {self.log} ({measured} new trials, {resumed} known before)"]
        lines += [str(self.gain)] if self.gain else []
        lines += [f"tuning left: {self.tuning_left}"] if self.tuning_left else []
        bests = [outcome.result.best for outcome in self.outcomes if outcome.result and outcome.result.best]
        if not bests:
            return lines
        first = bests[0].workload
        if not any(best.measured for best in bests):
            lines += [
                "computed, not measured; such a record never runs as if it were tuned",
                f"next: tune on the GPU itself: python -m dwconv.tune {workload_options(first)} --target cuda",
            ]
        else:
            where = "" if self.is_own_log else f", with DWCONV_TUNING_LOGS={self.log}"
            faster = sum((best.speedup or 0) > 1 and not best.contended for best in bests)
            lines.append(f"faster than PyTorch's own op: {faster} of {len(bests)}; the others keep PyTorch's op")
            if faster:
                lines.append(f"next: dwconv.convert(model) uses these kernels{where}")
            elif any(best.contended for best in bests):
                lines.append("next: run the same command again when the machine is quiet")
            if self.target.kind == "cpu" and first.layout == "nchw":
                lines.append("hint: on a CPU channels_last is usually faster: --layout nhwc, or --channels-last")
        show = f"python -m dwconv.show {workload_options(first)} --pass {first.pass_} --target {self.target}"
        show += "" if self.is_own_log else f" --log {self.log}"
        show += " --fast-math" if self.target.fast_math else ""
        for what in ("source",) if self.target.kind == "cpu" else ("source", "cost", "sass"):
            lines.append(f"see:  {show} --what {what}")
        return lines


@dataclass(frozen=True, kw_only=True)
class TunedDevices:
    """What a campaign found on the devices of a cluster. Prints as one table for each name of a device."""

    devices: tuple[Tuned, ...]
    """One for each name."""
    left: int
    """Workloads that were not tuned, of all devices: there was no time, or no node."""
    lost: bool
    """True if that is because no node of a name was left."""
    interrupted: bool
    """By ctrl-C."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Of all devices."""
        return tuple(outcome for tuned in self.devices for outcome in tuned.outcomes)

    @property
    def worked(self) -> bool:
        """False if there were workloads, and no candidate of any worked."""
        return any(tuned.worked for tuned in self.devices)

    def __str__(self) -> str:
        return "\n\n".join(f"{tuned.target.device}\n{tuned}" for tuned in self.devices)

    def print_to(self, console: Console) -> None:
        """The tables, each under the name of its device."""
        for tuned in self.devices:
            console.print(f"\n{tuned.target.device}", style="bold", markup=False, soft_wrap=True)
            tuned.print_to(console)

    def as_data(self) -> dict[str, Any]:
        """What the command prints with ``--json``."""
        return {"devices": [tuned.as_data() for tuned in self.devices]}
