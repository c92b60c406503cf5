"""Stands for ``torch.profiler.profile``: PyTorch's own sees the host, and what the device ran is put beside it.

The device notes what it runs, in order; the profiler has the operators of the host in the order in which they began. A
kernel counts for the operator that launched it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity

from tests.standin.device import device

_PROFILE = torch.profiler.profile
_OURS = "dwconv::"
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
        self._noted: list[tuple[str, float]] = []

    def __enter__(self) -> Profile:
        _profiled.set()
        self._of_host.__enter__()
        device().standin_begin_notes()
        return self

    def __exit__(self, *raised: Any) -> None:
        lines = device().standin_end_notes().decode().splitlines()
        self._of_host.__exit__(*raised)
        _profiled.clear()
        for name, _, ns in (line.rpartition(" ") for line in lines):
            self._noted.append((name, float(ns) / 1e3))

    def events(self) -> list[FunctionEvent]:
        """The operators of the host, with the time that they took the device, and the kernels of the device."""
        of_host: list[FunctionEvent] = list(self._of_host.events() or ())
        if ProfilerActivity.CUDA not in self._activities:
            return of_host
        kernels = [
            FunctionEvent(number, name=_kernel(name), thread=0, start_us=0.0, end_us=us, device_type=_device())
            for number, (name, us) in enumerate(self._noted)
        ]
        if ProfilerActivity.CPU not in self._activities:
            return [*_of_driver(len(kernels)), *kernels]
        self._count_kernels_for(of_host)
        return [*of_host, *kernels]

    def _count_kernels_for(self, events: list[FunctionEvent]) -> None:
        in_time = sorted(events, key=lambda each: each.time_range.start)
        for event in events:
            event.use_device = "cuda"
        for pass_, calls in _calls_by_pass(self._noted).items():
            launching = (event for event in in_time if _pass_of(event) == pass_ and _launches(event))
            for event, call in zip(launching, calls, strict=True):
                for name, us in call:
                    event.append_kernel(_kernel(name), 0, us)
        operators = [note for note in self._noted if not note[0].startswith(_OURS)]
        counted: set[int] = set()
        left = list(reversed(operators))
        for event in in_time:
            if left and event.name == left[-1][0] and not _is_inside(event, counted):
                event.append_kernel(_kernel(event.name), 0, left.pop()[1])
                counted.add(id(event))
        if left:
            raise RuntimeError(f"no operator of the host is known for what the device ran: {left[-3:]}")


def noted_launch(pass_: str, position: int, kernel: str) -> str:
    """The note of a launch, the ``position``-th of its call."""
    return f"{_OURS}{pass_}:{position}:{kernel}"


def _calls_by_pass(noted: list[tuple[str, float]]) -> dict[str, list[list[tuple[str, float]]]]:
    """The launches of each call, for each pass in the order of the calls."""
    calls: dict[str, list[list[tuple[str, float]]]] = {}
    for name, us in noted:
        if name.startswith(_OURS):
            pass_, position, _ = name.removeprefix(_OURS).split(":")
            of_pass = calls.setdefault(pass_, [])
            if position == "0":
                of_pass.append([])
            of_pass[-1].append((name, us))
    return calls


def _pass_of(event: FunctionEvent) -> str:
    """The pass of an operator of dwconv's; empty for others."""
    return event.name.removeprefix(_OURS).partition("_")[0] if event.name.startswith(_OURS) else ""


def _launches(event: FunctionEvent) -> bool:
    """True for the innermost operator of its pass, unless it runs PyTorch's: under autocast one runs inside another."""
    return not any(_pass_of(each) == _pass_of(event) or "convolution" in each.name for each in _descendants(event))


def _descendants(event: FunctionEvent) -> Iterator[FunctionEvent]:
    for child in event.cpu_children:
        yield child
        yield from _descendants(child)


def _is_inside(event: FunctionEvent, others: set[int]) -> bool:
    """True for what an operator runs on the host in place of a kernel."""
    around = event.cpu_parent
    while around is not None:
        if id(around) in others:
            return True
        around = around.cpu_parent
    return False


def _device() -> DeviceType:
    """Equal to the device's type, but no object that anybody has, as in PyTorch's own events."""
    return DeviceType(DeviceType.CUDA.value)


def _of_driver(launches: int) -> list[FunctionEvent]:
    """The host's calls of the driver, which PyTorch's own lists even where it is asked for the device alone."""
    names = ["Activity Buffer Request", *["cuLaunchKernel"] * launches, "cudaDeviceSynchronize"]
    return [FunctionEvent(number, name=name, thread=0, start_us=0.0, end_us=1.0) for number, name in enumerate(names)]


def _kernel(name: str) -> str:
    """The name of a kernel: dwconv's own, or one of PyTorch's for its operator."""
    library, _, operator = name.partition("::")
    return operator.rpartition(":")[2] if library == "dwconv" else f"at::native::{operator}"
