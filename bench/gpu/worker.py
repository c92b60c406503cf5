"""A process that uses the GPU for ``bench cuda``: a request that breaks it is tried once more, in another process.

After an illegal access every CUDA call fails in the process that made it. So the handler says with each refusal whether
the device still works for it; if not, its process is replaced.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from dwconv.errors import DwconvError, WorkerCannotStart, WorkerError, one_line
from dwconv.kernels.entry import message
from dwconv.measure.clock.device import get_ready, is_lost, synchronize
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.processes.worker import locate
from dwconv.measure.requests import MeasureSetup

_LEAST_S = 1.0
"""A request is not tried again with less time than this."""


@message
@dataclass(frozen=True, kw_only=True)
class Refused:
    """The reason why a handler has no answer; ``broken`` if its process cannot be used any more."""

    reason: str
    broken: bool


class GpuFailure(DwconvError):
    """A request that failed; the message is the reason. ``broken``: it broke its process."""

    def __init__(self, reason: str, *, broken: bool) -> None:
        super().__init__(reason)
        self.broken = broken


class Handler:
    """Answers requests in a process that uses a GPU, or refuses them with the error that they raise."""

    def __init__(self, setup: MeasureSetup) -> None:
        """Uses the device once: the first time in a process takes seconds. Raises the device's error."""
        self.target = setup.target
        get_ready(self.target)
        torch.zeros(1, device=self.target.kind)
        synchronize(self.target)

    def __call__(self, request: Any) -> Any:
        try:
            return self.answer(request)
        except Exception as error:  # noqa: BLE001  whatever a kernel or a library does is the request's own fault
            reason = one_line(f"{type(error).__name__}: {error}", most=400)
            return Refused(reason=reason, broken=is_lost(self.target))

    def answer(self, request: Any) -> Any:
        """A message."""
        raise NotImplementedError


class GpuWorker(AbstractContextManager["GpuWorker"]):
    """Sends requests to the handler ``role`` (``module:name``), made from ``setup``, in a process of its own, which
    ends with the context; with ``here``, in this one."""

    def __init__(self, role: str, setup: object, *, here: bool = False, threads: int = 1) -> None:
        self._handler: Callable[[Any], Any] | None = locate(role)(setup) if here else None
        self._process = IsolatedProcess(role, setup, threads=threads)

    def __exit__(self, *error: object) -> None:
        self._process.kill()

    def start(self) -> None:
        """Start the process, without waiting."""
        if self._handler is None:
            self._process.start()

    def ask(self, request: object, *, timeout_s: float, within_s: float = math.inf) -> Any:
        """The answer. A request that broke its process is tried once more in a fresh one. ``timeout_s`` is for each
        try, ``within_s`` for both. Raises GpuFailure, WorkerCannotStart."""
        until_s = time.monotonic() + max(_LEAST_S, within_s)
        try:
            return self._ask(request, timeout_s=min(timeout_s, until_s - time.monotonic()))
        except GpuFailure as failure:
            left_s = until_s - time.monotonic()
            if not failure.broken or self._handler is not None or left_s < _LEAST_S:
                raise
        return self._ask(request, timeout_s=min(timeout_s, left_s))

    def _ask(self, request: object, *, timeout_s: float) -> Any:
        if self._handler is not None:
            answer = self._handler(request)
        else:
            try:
                answer = self._process.call(request, timeout_s=timeout_s)
            except WorkerCannotStart:
                raise
            except WorkerError as error:
                answer = Refused(reason=one_line(str(error)), broken=True)
        if isinstance(answer, Refused):
            if answer.broken:
                self._process.kill()
            raise GpuFailure(answer.reason, broken=answer.broken)
        return answer
