"""Runs the passes of this rank, in the order of its plan: each as soon as its input has come, sending beside.

receives     ┄┄┄ activations 0 ┄┄┄ 1 ┄┄┄ 2 ┄┄┄        requested ahead of the passes that need them
computes         wait │ forward 0 │ backward 0 │ …     in the order of ``actions``, as it is simulated
sends                             ┄┄┄ gradients 0 ┄    nothing waits for them until the end of the step
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from dwconv.parallel.pipeline.running_stage import Boundary, RunningStage
from dwconv.parallel.pipeline.spans import Sends, Span, Step
from dwconv.parallel.planning.pipeline_plan import Action, Plan, actions

_AHEAD = 2
"""Messages of each kind that a rank has memory for before it needs them."""
_LOOKS_EVERY_S = 2e-4


class _Message(NamedTuple):
    what: Sends
    stage: int
    """That it is for."""
    microbatch: int
    """Numbered over the whole batch."""

    @property
    def sender(self) -> int:
        """The stage that it comes from."""
        return self.stage + (-1 if self.what == "activations" else 1)


class RunningStep:
    """The passes of this rank, step after step."""

    def __init__(
        self, plan: Plan, stages: Sequence[RunningStage], *, messages: Mapping[tuple[Sends, int], dist.ProcessGroup],
        edges: Sequence[Boundary], device: torch.device, step: Step,
    ) -> None:  # fmt: skip
        """``messages``: the group by which each kind of message goes to a stage. ``edges``: the tensor before each
        stage."""
        self.step, self.rank = step, dist.get_rank()
        self._plan, self._stages = plan, {stage.index: stage for stage in stages}
        self._messages, self._edges, self._device = messages, edges, device
        self._numbers = plan.runs(*plan.place(self.rank))
        self._passes = list(_with_last(actions(plan, *plan.place(self.rank))))

    def run(
        self, inputs: Sequence[Tensor], targets: Sequence[Tensor], loss: Callable[[Tensor, Tensor], Tensor], *,
        watches: bool = False,
    ) -> list[Tensor]:  # fmt: skip
        """One step; the losses of this rank's microbatches, on a rank of the last stage. ``inputs``, ``targets``: of
        its microbatches, in the first and in the last stage. ``watches``: a thread notes when messages have gone;
        without it that is noted between passes."""
        for stage in self._stages.values():
            stage.clear()
        inbox = _Inbox(self, self._needs())
        outbox, losses = _Outbox(self, inbox), []
        with outbox.watched() if watches else nullcontext():
            for action, is_last in self._passes:
                given = self._run(action, inputs, targets, loss, inbox, outbox, is_last=is_last)
                losses += [] if given is None else [given]
                if not watches:
                    outbox.note_what_has_gone()
        outbox.finish()
        return losses

    def _run(
        self, action: Action, inputs: Sequence[Tensor], targets: Sequence[Tensor],
        loss: Callable[[Tensor, Tensor], Tensor], inbox: _Inbox, outbox: _Outbox, *, is_last: bool,
    ) -> Tensor | None:  # fmt: skip
        """One pass; the loss that it gives."""
        stage, microbatch = self._stages[action.stage], self._numbers[action.microbatch]
        if action.what == "forward":
            x = inputs[action.microbatch] if stage.is_first else inbox.take("activations", stage.index, microbatch)
            if stage.is_last:
                return stage.forward(microbatch, x, partial(_of, loss, targets[action.microbatch]))
            outbox.send(_Message("activations", stage.index + 1, microbatch), stage.forward(microbatch, x, None))
            return None
        if action.what == "wgrad":
            stage.wgrad(microbatch, is_last=is_last)
            return None
        comes = not stage.is_last and self._edges[stage.index + 1].dtype.is_floating_point
        gradient = inbox.take("gradients", stage.index, microbatch) if comes else None
        found = (
            stage.dgrad(microbatch, gradient)
            if action.what == "dgrad"
            else stage.backward(microbatch, gradient, is_last=is_last)
        )
        if found is not None:
            outbox.send(_Message("gradients", stage.index - 1, microbatch), found)
        return None

    def _needs(self) -> Iterator[_Message]:
        """What other stages send, in the order in which it is needed."""
        for action, _ in self._passes:
            stage, microbatch = self._stages[action.stage], self._numbers[action.microbatch]
            if action.what == "forward" and not stage.is_first:
                yield _Message("activations", stage.index, microbatch)
            elif action.what in ("backward", "dgrad") and not stage.is_last:
                yield _Message("gradients", stage.index, microbatch)

    # -- where messages go ---------------------------------------------------------------------------------------------

    def peer(self, message: _Message, *, sends: bool) -> int:
        """The rank at the other end."""
        return self._plan.rank_of(message.stage if sends else message.sender, message.microbatch)

    def by(self, message: _Message) -> tuple[dist.ProcessGroup, int]:
        """The group and the tag by which it goes."""
        kind = 2 * message.stage + (message.what == "gradients")
        return self._messages[message.what, message.stage], kind * self._plan.parts + message.microbatch

    def memory(self, message: _Message) -> Tensor | None:
        """Memory for it; None for the gradient of what has none."""
        edge = self._edges[message.stage + (message.what == "gradients")]
        has_one = message.what == "activations" or edge.dtype.is_floating_point
        return edge.buffer(self._device) if has_one else None


def _of(loss: Callable[[Tensor, Tensor], Tensor], target: Tensor, output: Tensor) -> Tensor:
    return loss(output, target)


def _with_last(passes: Sequence[Action]) -> Iterator[tuple[Action, bool]]:
    """Each pass, and whether it is the last of its stage that gives gradients of parameters."""
    last = {action.stage: place for place, action in enumerate(passes) if action.what in ("backward", "wgrad")}
    for place, action in enumerate(passes):
        yield action, last.get(action.stage) == place


# -- messages ----------------------------------------------------------------------------------------------------------


class _Inbox:
    """What this rank receives in a step. Of each kind it comes in the order of the microbatches, as it is sent."""

    def __init__(self, run: RunningStep, needs: Iterator[_Message]) -> None:
        self._run = run
        self._left: defaultdict[tuple[Sends, int], deque[_Message]] = defaultdict(deque)
        self._coming: dict[_Message, tuple[Tensor, dist.Work]] = {}
        self._here: dict[_Message, Tensor] = {}
        """From a stage on the same rank."""
        for message in needs:
            if run.peer(message, sends=False) != run.rank:
                self._left[message.what, message.stage].append(message)
        for kind in self._left:
            for _ in range(_AHEAD):
                self._post(kind)

    def _post(self, kind: tuple[Sends, int]) -> None:
        """Give memory to the next message of a kind."""
        message = self._left[kind].popleft() if self._left[kind] else None
        memory = self._run.memory(message) if message else None
        if message is None or memory is None:
            return
        group, tag = self._run.by(message)
        work = dist.irecv(memory, self._run.peer(message, sends=False), group=group, tag=tag)
        assert work is not None
        self._coming[message] = memory, work

    def put(self, message: _Message, tensor: Tensor) -> None:
        """Of a stage on the same rank."""
        self._here[message] = tensor

    def take(self, what: Sends, stage: int, microbatch: int) -> Tensor:
        """Waits for a message."""
        message = _Message(what, stage, microbatch)
        if message in self._here:
            return self._here.pop(message)
        memory, work = self._coming.pop(message)
        with self._run.step.during("wait", stage, microbatch):
            work.wait()
        self._post((what, stage))
        return memory


class _Outbox:
    """What this rank sends in a step."""

    def __init__(self, run: RunningStep, inbox: _Inbox) -> None:
        self._run, self._inbox = run, inbox
        self._going: list[tuple[Tensor, dist.Work, Span]] = []
        """Each with its tensor, which is kept until it has gone."""

    def send(self, message: _Message, tensor: Tensor) -> None:
        """Begins to; returns at once."""
        receiver, (group, tag) = self._run.peer(message, sends=True), self._run.by(message)
        if receiver == self._run.rank:
            self._inbox.put(message, tensor.clone())  # both stages may work in place
            return
        start_s = time.perf_counter()
        work = dist.isend(tensor, receiver, group=group, tag=tag)
        assert work is not None
        span = Span(
            work="send", stage=message.sender, microbatch=message.microbatch, start_s=start_s, end_s=start_s,
            sends=message.what, receiver=receiver,
        )  # fmt: skip
        self._going.append((tensor, work, span))

    def note_what_has_gone(self) -> None:
        """Looks, and does not wait."""
        for going in list(self._going):
            _, work, span = going
            if work.is_completed():
                self._going.remove(going)
                self._run.step.spans.append(replace(span, end_s=time.perf_counter()))

    def finish(self) -> None:
        """Waits until all has gone."""
        for _, work, span in self._going:
            work.wait()
            self._run.step.spans.append(replace(span, end_s=time.perf_counter()))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notes on a thread when messages have gone, while passes run inside."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_LOOKS_EVERY_S):
                self.note_what_has_gone()

        thread = threading.Thread(target=watch, name="dwconv watches what is sent", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
