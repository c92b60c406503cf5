"""Launches of a GPU's kernel from C++: in the right context, and without a lock that another thread may wait for."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dwconv import native
from tests.native_needed import needs_native

OURS = 0xC0


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    needs_native()


class Driver:
    """Each thread's current context, and what was launched in which."""

    def __init__(self, *, status: int = 0) -> None:
        self.thread = threading.local()
        self.launched: list[int | None] = []
        self.status = status
        self._entries = (
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))(self._get),
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._set),
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._launch),
        )

    @property
    def context(self) -> int | None:
        return getattr(self.thread, "context", None)

    def kernel(self, raw_stream: Callable[[], int]) -> Any:
        """For a tensor of any batch, which it leaves as it is: tensors of the host stand for those of a GPU."""
        module = native.module
        assert module is not None
        one = module.Size(1, 0)
        launch = module.Launch(1, [one] * 3, [1, 1, 1], 0, [module.LaunchArgument(0, one)])
        addresses = [ctypes.cast(entry, ctypes.c_void_p).value for entry in self._entries]
        operand = module.Operand(True, (1, 4), (4, 1), torch.float32, torch.contiguous_format, False)
        launches = module.Launches(module.Driver(*addresses, OURS, raw_stream), [launch], self)
        return module.Kernel("test", launches, torch.empty(0), [operand], [operand], [])

    def _get(self, context: Any) -> int:
        context[0] = self.context
        return 0

    def _set(self, context: int | None) -> int:
        self.thread.context = context
        return 0

    def _launch(self, function: int) -> int:
        self.launched.append(self.context)
        return self.status


@pytest.mark.parametrize("before", [None, OURS, 0xAB])
@pytest.mark.parametrize("status", [0, 701])
def test_the_context_of_the_caller_is_as_it_was(before: int | None, status: int) -> None:
    driver = Driver(status=status)
    driver.thread.context = before
    kernel = driver.kernel(lambda: 7)
    if status:
        with pytest.raises(RuntimeError, match="refused a launch: error 701"):
            native.run(kernel, torch.empty(2, 4))
    else:
        assert native.run(kernel, torch.empty(2, 4)).shape == (2, 4)
    assert driver.launched == [OURS] and driver.context == before


def test_a_thread_that_looks_for_its_stream_holds_up_no_other() -> None:
    """Python, which knows the streams, may do anything meanwhile: let another thread go on that launches, too."""
    driver, is_first = Driver(), True

    def raw_stream() -> int:
        nonlocal is_first
        if is_first:
            is_first = False
            other = threading.Thread(target=native.run, args=(kernel, torch.empty(2, 4)), daemon=True)
            other.start()
            other.join(10)
            assert not other.is_alive()
        return 7

    kernel = driver.kernel(raw_stream)
    assert native.run(kernel, torch.empty(2, 4)).shape == (2, 4)
    assert len(driver.launched) == 2
