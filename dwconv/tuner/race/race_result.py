"""RaceResult: how a race stands, or ended."""

from __future__ import annotations

from dataclasses import dataclass

from dwconv.problems.workload import Workload
from dwconv.records.record import TuningRecord


@dataclass(frozen=True, kw_only=True)
class RaceResult:
    """How a race stands, or ended: what became of each workload. Prints as a line."""

    won: tuple[Workload, ...] = ()
    """Raced: a kernel is the fastest, and confirmed."""
    lost: tuple[Workload, ...] = ()
    """Raced: PyTorch's op is the fastest."""
    failed: tuple[Workload, ...] = ()
    """Raced: no kernel worked."""
    inconclusive: tuple[Workload, ...] = ()
    """Raced, but other work took so much of the machine that the times do not count."""
    known: tuple[Workload, ...] = ()
    """Measured on this device before."""
    without_kernels: tuple[Workload, ...] = ()
    """No template fits them."""
    left: tuple[Workload, ...] = ()
    """Not raced: the time was up, or something ended the race."""
    left_us: float = 0.0
    """What those may win of a step."""
    running: tuple[Workload, ...] = ()
    """Of those that are left: raced now, or built ahead."""
    problem: str = ""
    """Why the race ended before its time, in one line."""
    records: tuple[TuningRecord, ...] = ()
    """What was measured, as it stands in the log."""
    elapsed_s: float = 0.0
    ends_in_s: float = 0.0
    """After this time no further workload is begun."""

    @property
    def raced(self) -> int:
        """How many workloads were raced."""
        return len(self.won) + len(self.lost) + len(self.failed) + len(self.inconclusive)

    def __str__(self) -> str:
        parts = {
            "won": self.won,
            "lost to PyTorch's op": self.lost,
            "without a kernel that worked": self.failed,
            "inconclusive (machine busy)": self.inconclusive,
        }
        told = [f"{len(workloads)} {what}" for what, workloads in parts.items() if workloads]
        line = f"{self.raced} passes raced in {self.elapsed_s:.1f} s" + (f": {', '.join(told)}" if told else "")
        others = {
            "known before": self.known,
            "without templates": self.without_kernels,
            "left for the next time": self.left,
        }
        rest = [f"{len(workloads)} {what}" for what, workloads in others.items() if workloads]
        if self.left and self.left_us:
            rest[-1] += f", which may win {self.left_us / 1e3:.2f} ms of a step"
        return "; ".join([line, *rest])
