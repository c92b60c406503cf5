"""The short check of a kernel that was not verified on this machine, before its first use in a process that trains.

It takes milliseconds where ``verify_finalist`` takes up to seconds: few images, of few different channels, which repeat
over all that the kernel has. Every element of the results is judged; the kernel is the one that will run.

The check has a thread of its own. What surrounds the call (modes, transforms, autocast, autograd's state, a stream that
is captured, flushed denormals, the number of threads) belongs to the thread of the call, and does not reach into it.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext

import torch

from dwconv.kernels.kernel import Kernel
from dwconv.measure.verify.bare_kernel import Bench, LoadedKernel, have_same_bits
from dwconv.measure.verify.cases import case_of_few_channels, judge_all
from dwconv.problems.kernel_inputs import Data
from dwconv.problems.workload import Workload
from dwconv.schedules.template import spreads_nan
from dwconv.system.openmp import openmp_is_here

_PRODUCTS = 1_000_000
"""Multiplications that a reference may take: a few ms."""
_FEWEST_CHANNELS = 3
"""Different channels, if a layer has so many: with fewer a kernel could mix up neighbours."""
_ELEMENTS = 1_000_000
"""In the images of a case of several images, unless a smaller one would leave out what every kernel must do. With
extreme values, which are more work to judge, a third of it."""
_MOST_ELEMENTS = 1 << 24
"""In the images of a case of two images. Beyond it there is one image: memory matters more."""


def fault_at_first_use(kernel: LoadedKernel, device: torch.device, *, threads: Sequence[int], fast_math: bool) -> str:
    """What is wrong with the results of a kernel on ``device``, in one line; empty if nothing is. ``threads``: the
    numbers of threads that a CPU's kernel is run on. Raises what the kernel raises, MemoryError, and NoThread."""
    found: Future[str] = Future()

    def check() -> None:
        try:
            found.set_result(_fault(kernel, device, threads=threads, fast_math=fast_math))
        except BaseException as error:  # noqa: BLE001  raised again by the thread of the call
            found.set_exception(error)

    thread = threading.Thread(target=check, name="dwconv-first-use")  # a pool takes no work once the main thread ended
    try:
        thread.start()
    except RuntimeError as error:
        raise NoThread(str(error)) from None
    try:
        return found.result()
    finally:
        thread.join()


class NoThread(Exception):
    """No thread can be started now, as at the end of the process: nothing is known of the kernel."""


def _fault(kernel: LoadedKernel, device: torch.device, *, threads: Sequence[int], fast_math: bool) -> str:
    torch.set_flush_denormal(False)  # of this thread, which has it from the one that started it
    torch.get_num_threads()  # PyTorch sets it when a thread first reads it, and from now on no more
    on_device = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    any_size = kernel.any_size if isinstance(kernel, Kernel) else None
    kernels = any_size.samples() if any_size else [kernel]
    with on_device, _openmp_threads(1), torch.inference_mode():
        for each in kernels:
            if fault := _fault_of(each, device, threads=threads, fast_math=fast_math):
                return fault if each is kernel else f"{fault[:-1]}, as {each.artifact.candidate.workload.key})"
    return ""


def _fault_of(kernel: LoadedKernel, device: torch.device, *, threads: Sequence[int], fast_math: bool) -> str:
    spreads = spreads_nan(kernel.artifact.candidate.config.template)
    for batch, data in _cases(kernel.artifact.candidate.workload, fast_math=fast_math):
        workload = kernel.artifact.candidate.workload.with_batch(batch)
        count = _different_channels(workload)
        case = case_of_few_channels(workload, data=data, seed=batch, device=str(device), count=count)
        bench, first = Bench(kernel, case), None
        for count in threads or (1,):
            with _openmp_threads(count):
                bench.run()
            if first is not None and have_same_bits(bench.results, first):
                continue  # they were right
            verdict = judge_all(bench.results, case, spreads_nan=spreads)
            if not verdict.right:
                return _told(bench.fault() or verdict.reason, batch, data, count)
            first = [result.clone() for result in bench.results]
        if fault := bench.fault():  # what was written elsewhere stays there
            return _told(fault, batch, data, count)
    return ""


def _told(fault: str, batch: int, data: Data, threads: int) -> str:
    return f"{fault} (at batch size {batch}, {data} data, threads={threads})"


def _cases(workload: Workload, *, fast_math: bool) -> list[tuple[int, Data]]:
    """Batch size and data of each case: one image, and more of them, of whole numbers; and extreme values, of which
    ``fast_math`` promises nothing."""
    image = math.prod(workload.with_batch(1).input_shape) + math.prod(workload.with_batch(1).output_shape)
    cases: list[tuple[int, Data]] = [(1, "integers")]
    if 2 * image <= _MOST_ELEMENTS:
        cases.append((3 if 3 * image <= _ELEMENTS else 2, "integers"))
    if 2 * image <= _ELEMENTS // 3:
        cases.append((2, "normal" if fast_math else "extreme"))
    return cases


def _different_channels(workload: Workload) -> int:
    """How many channels have data of their own."""
    products = workload.flops // 2 // workload.channels
    return max(_FEWEST_CHANNELS, _PRODUCTS // max(1, products))


@contextmanager
def _openmp_threads(count: int) -> Iterator[None]:
    """Set how many threads OpenMP gives to this thread's kernels and ops. ``torch.set_num_threads`` would set it for
    threads that start meanwhile, too."""
    if not openmp_is_here():
        yield
        return
    openmp = ctypes.CDLL(None)
    usual = openmp.omp_get_max_threads()
    openmp.omp_set_num_threads(count)
    try:
        yield
    finally:
        openmp.omp_set_num_threads(usual)
