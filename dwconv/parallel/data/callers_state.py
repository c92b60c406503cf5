"""What a thread takes over from its caller, so that code in it runs as in the caller: PyTorch keeps much by thread.

    gradients        no_grad, inference_mode
    autocast         by kind of device, with its type
    modes            of torch functions (a default device is one) and of dispatch
    a GPU            the current device and stream
    contextvars      a copy

The default type of numbers is the process's own, as are the generators of random numbers.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps", "mtia", "hpu", "xla", torch._C._get_privateuse1_backend_name())


class CallersState:
    """That of the thread that makes it. A thread that was started for it may run one function in it."""

    def __init__(self) -> None:
        self._context = contextvars.copy_context()
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._autocast = {
            kind: torch.get_autocast_dtype(kind)
            for kind in _AUTOCAST_DEVICES
            if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
        }
        self._function_modes: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        self._dispatch_modes: list[Any] = _get_current_dispatch_mode_stack()
        uses_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        self._stream = torch.cuda.current_stream() if uses_gpu else None

    def run(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call ``function`` in this state. The thread keeps it: nothing else may run there afterwards."""
        self._context.run(self._run, function, *arguments)

    def _run(self, function: Callable[..., object], *arguments: Any) -> None:
        if self._stream is not None:
            torch.cuda.set_stream(self._stream)
        for kind, dtype in self._autocast.items():
            torch.set_autocast_enabled(kind, True)
            torch.set_autocast_dtype(kind, dtype)
        torch.set_autocast_cache_enabled(False)  # all threads have one cache: a step would find older weights in it
        with torch.inference_mode(self._inference), torch.set_grad_enabled(self._grad):
            # They are active in the caller, too, so they are not entered again, which may change them.
            for mode in self._function_modes:
                torch._C._push_on_torch_function_stack(mode)
            for mode in self._dispatch_modes:
                torch._C._push_on_torch_dispatch_stack(mode)
            try:
                function(*arguments)
            finally:
                for mode in self._dispatch_modes:
                    torch._C._pop_torch_dispatch_stack(getattr(mode, "_mode_key", None))
                for _ in self._function_modes:
                    torch._C._pop_torch_function_stack()
