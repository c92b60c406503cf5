"""Spans: what a rank did in a step, and when. From those of all ranks, the events of a timeline.

rank 0   forward  forward  ··wait··  backward      what a rank computes, and when it stood still
         ┄┄send┄┄┄  ┄┄send┄┄┄        ┄┄reduce┄┄    what its link does beside
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from dwconv.parallel.planning.trace_events import Event

Work = Literal["forward", "backward", "dgrad", "wgrad", "wait", "send", "reduce"]
Sends = Literal["activations", "gradients"]
"""To the stage after, and to the stage before."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A stage was busy with ``work`` for a while; times in seconds of ``time.perf_counter``."""

    work: Work
    stage: int
    microbatch: int | None
    """Numbered over the whole batch; None for gradients, which belong to all of them."""
    start_s: float
    end_s: float
    sends: Sends | None = None
    receiver: int | None = None
    """The rank that it is sent to."""


@dataclass(kw_only=True)
class Step:
    """What one rank did in a step."""

    started_s: float = 0.0
    spans: list[Span] = field(default_factory=list)

    def begin(self) -> None:
        """Forgets the step before."""
        self.spans.clear()
        self.started_s = time.perf_counter()

    @contextmanager
    def during(self, work: Work, stage: int, microbatch: int | None = None) -> Iterator[None]:
        """Notes what is done inside."""
        start_s = time.perf_counter()
        yield
        end_s = time.perf_counter()
        self.spans.append(Span(work=work, stage=stage, microbatch=microbatch, start_s=start_s, end_s=end_s))


@dataclass(frozen=True, kw_only=True)
class RankStep:
    """A step of one rank, as it is sent to the others."""

    machine: str
    started_s: float
    spans: tuple[Span, ...]

    @staticmethod
    def of(step: Step) -> RankStep:
        """The step of this rank."""
        return RankStep(machine=platform.node(), started_s=step.started_s, spans=tuple(step.spans))


def events(ranks: Sequence[RankStep]) -> list[Event]:
    """The events of all ranks, in microseconds from the beginning of the step. Ranks of one machine have one clock;
    those of several count from the beginning of the step on each. What one rank sends another receives."""
    is_one_machine = len({each.machine for each in ranks}) == 1
    first_s = min(each.started_s for each in ranks)
    found = []
    for rank, each in enumerate(ranks):
        began_s = first_s if is_one_machine else each.started_s
        for span in each.spans:
            about: dict[str, Any] = {
                "microbatch": span.microbatch,
                "start_us": 1e6 * (span.start_s - began_s),
                "end_us": 1e6 * (span.end_s - began_s),
            }
            if span.receiver is None:
                found.append(Event(rank=rank, stage=span.stage, what=span.work, **about))
                continue
            to = span.stage + (1 if span.sends == "activations" else -1)
            detail = f"{span.sends} to rank {span.receiver}"
            found.append(Event(rank=rank, stage=span.stage, what="send", detail=detail, **about))
            detail = f"{span.sends} from rank {rank}"
            found.append(Event(rank=span.receiver, stage=to, what="receive", detail=detail, **about))
    return sorted(found, key=lambda event: (event.start_us, event.rank))
