"""Stands for ``torch.profiler.profile``: PyTorch's own sees the host, and what the device ran is put beside it.

The device leaves a mark in the host's profile for all that it runs: it counts for the operator around it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity

_PROFILE = torch.profiler.profile
_MARK = "standin "
_profiled = threading.Event()


def unprofiled(compute: Callable[..., None], *given: Any, **named: Any) -> None:
    """Compute what a kernel computes where the profiler does not look: it runs PyTorch's operators on the host."""
    if not _profiled.is_set():
        return compute(*given, **named)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            compute(*given, **named)
        except BaseException as error:  # noqa: BLE001  raised again where it was called
            raised.append(error)

    beside = threading.Thread(target=run)
    beside.start()
    beside.join()
    if raised:
        raise raised[0]
    return None


class Profile:
    """A context; the rest of PyTorch's is left out."""

    def __init__(self, *, activities: Sequence[ProfilerActivity] = (ProfilerActivity.CPU,), **options: Any) -> None:
        self._activities = activities
        self._of_host = _PROFILE(activities=[ProfilerActivity.CPU], **options)

    def __enter__(self) -> Profile:
        _profiled.set()
        self._of_host.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._of_host.__exit__(*raised)
        _profiled.clear()

    def events(self) -> list[FunctionEvent]:
        """The operators of the host, with the kernels that they ran, and the kernels of the device."""
        recorded = list(self._of_host.events() or ())
        of_host = [event for event in recorded if not event.name.startswith(_MARK)]
        if ProfilerActivity.CUDA not in self._activities:
            return of_host
        marks = sorted(
            (event for event in recorded if event.name.startswith(_MARK)), key=lambda each: each.time_range.start
        )
        kernels = [_kernel(number, mark) for number, mark in enumerate(marks)]
        if ProfilerActivity.CPU not in self._activities:
            return [*_of_driver(len(kernels)), *kernels]
        for event in of_host:
            event.use_device = "cuda"
        for mark, kernel in zip(marks, kernels, strict=True):
            if mark.cpu_parent is not None:
                mark.cpu_parent.append_kernel(kernel.name, 0, kernel.time_range.elapsed_us())
        return [*of_host, *kernels]


def _kernel(number: int, mark: FunctionEvent) -> FunctionEvent:
    """A kernel of the device, by the name that dwconv gave it; one of PyTorch's by its operator."""
    name, _, ns = mark.name.removeprefix(_MARK).rpartition(" ")
    library, _, operator = name.partition("::")
    named = f"at::native::{operator}" if operator else library
    return FunctionEvent(
        number,
        name=named,
        thread=0,
        start_us=0.0,
        end_us=float(ns) / 1e3,
        device_type=DeviceType(DeviceType.CUDA.value),
    )


def _of_driver(launches: int) -> list[FunctionEvent]:
    """The host's calls of the driver, which PyTorch's own lists even where the device alone is selected."""
    names = ["Activity Buffer Request", *["cuLaunchKernel"] * launches, "cudaDeviceSynchronize"]
    return [FunctionEvent(number, name=name, thread=0, start_us=0.0, end_us=1.0) for number, name in enumerate(names)]
