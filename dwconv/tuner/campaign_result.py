"""Tuned: what a campaign found. Prints as the table of the command."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwconv.problems.as_written import workload_options
from dwconv.problems.target import Target
from dwconv.tuner.results_table import Outcome, as_data, table_lines
from dwconv.tuner.step_time import ToGain


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
    gained: tuple[ToGain | None, ToGain | None] = (None, None)
    """What tuning might gain of a step of the network before the campaign, and what it still may; None if there are no
    steps."""
    tuning_left_us: float | None = None
    """What further trials are expected to gain of a step; None unless passes end where little is left."""

    lost = False

    def __str__(self) -> str:
        """The table, where the records are, and what to do next."""
        return "\n".join([*table_lines(self.outcomes), "", *self._closing_lines()])

    def as_data(self) -> dict[str, Any]:
        """What the command prints with ``--json``."""
        results = [as_data(outcome) for outcome in self.outcomes]
        found = {"target": str(self.target), "device": self.target.device, "log": str(self.log), "results": results}
        after = self.gained[1]
        step = {"still_to_gain_us": after.gain_us, "depthwise_us": after.depthwise_us} if after else {}
        step |= {} if self.tuning_left_us is None else {"tuning_left_us": self.tuning_left_us}
        return found | ({"step": step} if step else {})

    @property
    def worked(self) -> bool:
        """False if there were workloads, and no candidate of any worked."""
        return not self.outcomes or any(outcome.result and outcome.result.best for outcome in self.outcomes)

    def _closing_lines(self) -> list[str]:
        results = [outcome.result for outcome in self.outcomes if outcome.result]
        measured, resumed = sum(each.measured for each in results), sum(each.resumed for each in results)
        lines = [f"log: {self.log} ({measured} new trials, {resumed} known before)"]
        before, after = self.gained
        if before and after:
            lines.append(
                f"still to gain: about {after} of {after.depthwise_us / 1e3:.2f} ms in depthwise convolution; "
                f"before, {before} of {before.depthwise_us / 1e3:.2f} ms"
            )
        if after and self.tuning_left_us is not None:
            percent = math.ceil(100 * self.tuning_left_us / (after.depthwise_us or 1.0))
            lines.append(f"tuning left: ≤ {percent} % of a step")
        bests = [result.best for result in results if result.best]
        if not bests:
            return lines
        first = bests[0].workload
        if not any(best.measured for best in bests):
            checked = "" if bests[0].verdict else ", nor checked in the simulator"
            lines += [
                f"computed, not measured{checked}; such a record never runs as if it were tuned",
                f"next: tune on the GPU itself: python -m dwconv.tune {workload_options(first)} --target cuda",
            ]
        else:
            where = "" if self.is_own_log else f", with DWCONV_TUNING_LOGS={self.log}"
            faster = sum((best.speedup or 0) > 1 and not best.inconclusive for best in bests)
            others = "" if faster == len(bests) else "; the others keep PyTorch's op"
            lines.append(f"faster than PyTorch's own op: {faster} of {len(bests)}{others}")
            if faster:
                lines.append(f"next: dwconv.convert(model) uses these kernels{where}")
            elif any(best.inconclusive for best in bests):
                lines.append("next: run the same command again when the machine is quiet")
            if self.target.kind == "cpu" and first.layout == "nchw":
                lines.append("hint: on a CPU channels_last is usually faster: --layout nhwc, or --channels-last")
        show = f"python -m dwconv.show {workload_options(first)} --pass {first.pass_} --target {self.target}"
        show += "" if self.is_own_log else f" --log {self.log}"
        show += " --fast-math" if self.target.fast_math else ""
        whats = ("source",) if self.target.kind == "cpu" else ("source", "cost", "sass")
        return [*lines, *(f"see:  {show} --what {what}" for what in whats)]


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

    def as_data(self) -> dict[str, Any]:
        """What the command prints with ``--json``."""
        return {"devices": [tuned.as_data() for tuned in self.devices]}


def busy_note(outcomes: tuple[Outcome, ...]) -> str:
    """The note on passes that were not confirmed because of other work; empty if there are none."""
    results = [outcome.result for outcome in outcomes if outcome.result and outcome.result.too_busy]
    if not results:
        return ""
    busy = max(result.busy for result in results)
    share = f" ({busy:.0%} of its cores)" if busy else ""
    passes = "1 pass is" if len(results) == 1 else f"{len(results)} passes are"
    return (
        f"note: the machine was busy with other work{share}; {passes} not confirmed; "
        "run the same command again when it is quiet"
    )
