"""Small CUDA kernels compiled for a test, and what a launch of them does."""

from __future__ import annotations

from dwconv.kernels.artifact import Argument, Extent, Launch, Scalar
from dwconv.kernels.nvrtc import compile_cubin
from dwconv.kernels.sass import Code, disassemble

SIZE = 1 << 20


def code_of(source: str, *, arch: str = "sm_90") -> Code:
    """The kernel ``k`` of a source that may leave out the words before its name."""
    (code,) = disassemble(compile_cubin('extern "C" __global__ void ' + source, arch=arch).cubin).values()
    return code


def launch_of(*tensors: str, grid: int = 1, block: tuple[int, int, int] = (32, 1, 1), scalars: int = 0) -> Launch:
    """A launch of ``k`` with float tensors, then numbers that are the batch."""
    arguments = [Argument(name, "float32", (SIZE,)) for name in tensors]
    numbers = [Scalar(f"n{i}", Extent()) for i in range(scalars)]
    return Launch(kernel="k", grid=(grid, 1, 1), block=block, shared_bytes=0, arguments=(*arguments, *numbers))
