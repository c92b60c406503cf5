"""Copies: how a batch gets to the device of the step, begun in one thread and finished in another."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from dwconv.discovery.step import tensors_in
from dwconv.errors import NoDevice
from dwconv.parallel.data.batches import with_tensors


class Copies(Protocol):
    """``begin`` is called by whoever loads, ``finish`` by the step, with what ``begin`` gave."""

    def begin(self, batch: Any) -> Any: ...

    def finish(self, begun: Any) -> Any: ...


def copies_to(device: torch.device | str | None) -> Copies:
    """The way to ``device``; None leaves batches where they are. Raises NoDevice for a GPU that is not here."""
    chosen = None if device is None else torch.device(device)
    if chosen is None or chosen.type != "cuda":
        return PlainCopies(chosen)
    if not torch.cuda.is_available():
        raise NoDevice(f"device={chosen}: PyTorch finds no GPU here; use device='cpu'")
    return StreamedCopies(chosen)


class PlainCopies:
    """Copies that are done when they are begun; on the CPU none at all."""

    def __init__(self, device: torch.device | None) -> None:
        self._device = device

    def begin(self, batch: Any) -> Any:
        """The batch on the device."""
        device = self._device
        return batch if device is None else with_tensors(batch, lambda tensor: tensor.to(device))

    def finish(self, begun: Any) -> Any:
        """Nothing is left to do."""
        return begun


class StreamedCopies:
    """Copies to a GPU from pinned memory, on a stream beside the step's. They have not run on a GPU yet."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def begin(self, batch: Any) -> Any:
        """The batch on the device, once the event beside it has happened."""
        if any(tensor.is_cuda for tensor in tensors_in(batch)):  # whoever made it there may not be done
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        pinned = with_tensors(batch, _pinned)
        with torch.cuda.stream(self._stream):
            moved = with_tensors(pinned, lambda tensor: tensor.to(self._device, non_blocking=True))
        return moved, self._stream.record_event()

    def finish(self, begun: Any) -> Any:
        """The stream of the step waits, not its thread. The memory is not given to other tensors before that stream is
        done with it, although another stream allocated it."""
        moved, copied = begun
        current = torch.cuda.current_stream(self._device)
        current.wait_event(copied)
        for tensor in tensors_in(moved):
            tensor.record_stream(current)
        return moved


def _pinned(tensor: Tensor) -> Tensor:
    """Pinned memory is what a copy can leave while the CPU goes on."""
    if tensor.device.type != "cpu" or tensor.is_pinned() or tensor.layout is not torch.strided:
        return tensor
    return tensor.pin_memory()
