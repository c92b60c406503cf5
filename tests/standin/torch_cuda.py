"""The parts of ``torch.cuda`` that PyTorch's build for CPUs lacks, for the one device of the stand-in.

``torch.cuda.graph``, ``torch.cuda.stream`` and the like are PyTorch's own, on top of this.
"""

from __future__ import annotations

import ctypes
import itertools
from types import SimpleNamespace
from typing import Any

import torch

from tests.standin.device import TOTAL_BYTES, device, driver, is_captured
from tests.standin.graphs import Graph
from tests.standin.profiler import Profile

GPU = torch.device("cuda", 0)
PROPERTIES = SimpleNamespace(
    name="Stand-in H200", major=9, minor=0, total_memory=TOTAL_BYTES, multi_processor_count=132,
    max_threads_per_multi_processor=2048, shared_memory_per_block=48 << 10, shared_memory_per_block_optin=227 << 10,
    shared_memory_per_multiprocessor=228 << 10, regs_per_multiprocessor=65536, warp_size=32, L2_cache_size=1 << 20,
    clock_rate=1_755_000, memory_clock_rate=2_619_000, is_integrated=False, gcnArchName="",
)  # fmt: skip
"""An H200 with a small L2 cache, so that tests can flush it quickly."""

_handles = itertools.count(0x7000, 0x10)
_DEFAULT = 0


class Stream:
    """A handle. All streams run their work at once."""

    device, device_index, device_type, priority = GPU, 0, 1, 0

    def __init__(self, device: Any = None, priority: int = 0, *, stream_id: int | None = None, **_: Any) -> None:
        self.cuda_stream = next(_handles) if stream_id is None else stream_id

    @property
    def stream_id(self) -> int:
        return self.cuda_stream

    def synchronize(self) -> None:
        synchronize()

    def query(self) -> bool:
        not_in_a_capture()
        return True

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        check()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __enter__(self) -> Stream:
        self._before = current_stream()
        set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self._before)


class Event:
    """A time on the device's clock. Recorded while a graph is captured it has none, as with CUDA, and cannot be
    read."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self._timed = enable_timing
        self._at_ns: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        check()
        self._at_ns = None if is_captured() else device().standin_clock_ns()

    def wait(self, stream: Stream | None = None) -> None:
        check()

    def query(self) -> bool:
        not_in_a_capture()
        return True

    def synchronize(self) -> None:
        synchronize()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds between the two events."""
        synchronize()
        if not (self._timed and end._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at_ns is None or end._at_ns is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end._at_ns - self._at_ns) / 1e6


def check() -> None:
    """Raises AcceleratorError once an error has broken the process."""
    if code := driver().standin_status():
        raise torch.AcceleratorError(f"CUDA error: an illegal memory access was encountered ({code})")


def initialise() -> bool:
    """Initialise the driver; that gives no thread a context."""
    driver().cuInit(0)
    return True


def synchronize(device_: Any = None) -> None:
    not_in_a_capture()


def not_in_a_capture() -> None:
    """Raises AcceleratorError, and spoils the graph, if one is captured in any thread."""
    check()
    if device().standin_capturing():
        device().standin_spoil_capture()
        raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")


def current_stream(device: Any = None) -> Stream:
    return Stream(stream_id=_current())


def set_stream(stream: Stream) -> None:
    device().standin_set_stream(stream.cuda_stream)


def _current(device_index: int | None = None) -> int:
    handle: int = device().standin_stream()
    return handle


class Device:
    """``torch.cuda.device``, which accepts the only device and no other."""

    def __init__(self, device: Any) -> None:
        found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
        if found.type != "cuda" or found.index not in (None, 0):
            raise ValueError(f"Expected a cuda device, but got: {found}")
        self.idx = 0

    def __enter__(self) -> None:
        check()

    def __exit__(self, *_: object) -> None:
        pass


def _clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """A copy of a storage, for ``copy.deepcopy``."""
    copied = torch.empty(storage.nbytes(), dtype=torch.uint8, device=storage.device)
    ctypes.memmove(copied.data_ptr(), storage.data_ptr(), storage.nbytes())
    return copied.untyped_storage()


def install() -> None:
    """Make ``torch.cuda`` use the stand-in."""
    cuda, bindings = torch.cuda, torch._C
    for name, answer in {
        "is_available": initialise,
        "is_initialized": lambda: True,
        "_lazy_init": initialise,
        "init": initialise,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": Device,
        "device": Device,
        "synchronize": synchronize,
        "current_stream": current_stream,
        "default_stream": lambda device=None: Stream(stream_id=_DEFAULT),
        "set_stream": set_stream,
        "stream": lambda stream: stream,
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": Graph,
        "is_current_stream_capturing": is_captured,
        "graph_pool_handle": lambda: (0, next(_handles)),
        "get_device_properties": lambda device=None: PROPERTIES,
        "get_device_name": lambda device=None: PROPERTIES.name,
        "get_device_capability": lambda device=None: (PROPERTIES.major, PROPERTIES.minor),
        "get_arch_list": lambda: ["sm_90"],
        "mem_get_info": lambda device=None: (device_free_bytes(), TOTAL_BYTES),
        "memory_allocated": lambda device=None: TOTAL_BYTES - device_free_bytes(),
        "memory_reserved": lambda device=None: TOTAL_BYTES - device_free_bytes(),
        "max_memory_allocated": lambda _=None: device().standin_peak_bytes(),
        "reset_peak_memory_stats": lambda _=None: device().standin_reset_peak(),
        "empty_cache": not_in_a_capture,
        "get_rng_state": lambda device=None: torch.get_rng_state(),  # it draws with the host's generator
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "_sleep": lambda cycles: device().standin_spend(cycles / 1.755),
    }.items():
        setattr(cuda, name, answer)
    for name, answer in {
        "_cuda_getCurrentRawStream": _current,
        "_cuda_getDevice": lambda: 0,
        "_cuda_isCurrentStreamCapturing": is_captured,
        "_cuda_synchronize": synchronize,
        "_cuda_emptyCache": not_in_a_capture,
        "_host_emptyCache": lambda: None,
    }.items():
        setattr(bindings, name, answer)
    cuda.graphs.graph_pool_handle = cuda.graph_pool_handle  # where make_graphed_callables looks
    torch.profiler.profile = Profile  # type: ignore[misc, assignment]
    torch.Tensor.pin_memory = torch.Tensor.clone  # type: ignore[assignment]
    torch.Tensor.record_stream = lambda tensor, stream: check()  # type: ignore[assignment, method-assign]
    torch.UntypedStorage.clone = _clone  # type: ignore[method-assign, assignment]
    torch.backends.cuda.is_built = lambda: True


def device_free_bytes() -> int:
    check()
    free: int = device().standin_free_bytes()
    return free
