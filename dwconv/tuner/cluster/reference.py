"""The reference kernel: PyTorch's own op on one layer, which every node times at the start and now and then.

It is the same code on the same data everywhere, so a node on which it takes longer than on others is slower, or busy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dwconv import settings
from dwconv.kernels.wire import message
from dwconv.measure.clock.device import clock_of
from dwconv.measure.clock.timing import RACE, time_in_turns
from dwconv.measure.processes.process import IsolatedProcess
from dwconv.measure.providers import laid_out, pytorch_call
from dwconv.problems.target import CpuTarget, Target
from dwconv.problems.workload import Workload
from dwconv.records.record import Measurement

message(Measurement)

WORKLOAD = Workload(
    pass_="fprop", batch=8, channels=144, input_size=(56, 56), kernel=(3, 3), padding=((1, 1), (1, 1)), layout="nhwc"
)


@message
@dataclass(frozen=True, kw_only=True)
class TimeReference:
    """Time the reference kernel now: about a tenth of a second."""


class ReferenceTimer:
    """Handler of the process that times it."""

    def __init__(self, target: Target) -> None:
        if isinstance(target, CpuTarget):
            torch.set_num_threads(target.threads)
        shapes = (WORKLOAD.input_shape, (WORKLOAD.channels, 1, *WORKLOAD.kernel))
        tensors = [torch.ones(shape, device=target.kind) for shape in shapes]
        self._call = pytorch_call(WORKLOAD, *laid_out(WORKLOAD, *tensors, layout=WORKLOAD.layout))
        self._clock = clock_of(target)

    def __call__(self, _: TimeReference) -> Measurement:
        with torch.inference_mode():
            return time_in_turns({"reference": self._call}, clock=self._clock, effort=RACE)["reference"]


class Reference:
    """The reference kernel on ``target``, which is here, in a process of its own. ``close`` ends it."""

    def __init__(self, target: Target) -> None:
        threads, vector_set = (target.threads, target.vector_set) if isinstance(target, CpuTarget) else (1, None)
        self._process = IsolatedProcess(
            "dwconv.tuner.cluster.reference:ReferenceTimer", target, threads=threads, vector_set=vector_set
        )

    def measure(self) -> Measurement:
        """How long it takes now. Raises WorkerError."""
        measured: Measurement = self._process.call(TimeReference(), timeout_s=settings.RUN_TIMEOUT_S)
        return measured

    def close(self) -> None:
        self._process.kill()
