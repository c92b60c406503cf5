"""Artifact: a built candidate as plain data, so that one process can build it and another run it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from dwconv.problems.workload import ITEMSIZE, Workload
from dwconv.schedules.template import Candidate
from dwconv.system.forks import cached_property

BATCH = "n"
"""The symbolic size in a kernel's shapes."""
CHANNELS = "c"
"""The symbol of a kernel of any number of channels."""
_MOST_LANES = 16
_MOST_BLOCKS = 65_535
"""Of a grid, on its second axis and its third."""
_OTHER_ITEMSIZE = 4
"""For whole numbers in a workspace."""


@dataclass(frozen=True)
class Argument:
    """A tensor that a kernel takes: one of its workload's ``inputs`` or ``results``, or ``workspace…``.

    Sizes are numbers, or how many times the batch size they are: ``Extent(times=96)``."""

    name: str
    dtype: str
    shape: tuple[int | Extent, ...]

    def shape_at(self, batch: int) -> tuple[int, ...]:
        return tuple(size.at(batch) if isinstance(size, Extent) else size for size in self.shape)

    def at(self, sizes: Mapping[str, int]) -> Argument:
        """With these numbers in place of the symbols of their names."""
        return replace(self, shape=tuple(sized(size, sizes) for size in self.shape))

    def bytes_at(self, batch: int) -> int:
        return math.prod(self.shape_at(batch)) * ITEMSIZE.get(self.dtype, _OTHER_ITEMSIZE)


@dataclass(frozen=True)
class Extent:
    """A size that follows the batch: ``ceil(batch · times / over)``; or, with another symbol, a size of an image."""

    times: int = 1
    over: int = 1
    of: str = BATCH
    by: int | Extent = 1
    """What it is multiplied by: a grid has as many blocks as rows, columns and channels together need."""

    def at(self, batch: int) -> int:
        """The size, for that batch, or that number in the place of another symbol; without ``by``."""
        return -(-batch * self.times // self.over)


def at_batch(size: int | Extent, batch: int) -> int:
    """A size that depends on the batch alone."""
    return size.at(batch) if isinstance(size, Extent) else size


def product(one: int | Extent, other: int | Extent) -> int | Extent:
    """Both multiplied."""
    if isinstance(one, int):
        if isinstance(other, int):
            return one * other
        one, other = other, one
    if isinstance(other, int) and (other == 1 or one.over == one.by == 1):
        return replace(one, times=one.times * other)
    return replace(one, by=product(one.by, other))


def sized(size: int | Extent, sizes: Mapping[str, int]) -> int | Extent:
    """With these numbers in place of the symbols of their names."""
    if isinstance(size, int):
        return size
    own = size.at(sizes[size.of]) if size.of in sizes else replace(size, by=1)
    return product(own, sized(size.by, sizes))


def size_names(arguments: Iterable[Argument]) -> tuple[str, ...]:
    """The symbols other than the batch in the shapes of ``arguments``, in the order in which they first come: what a
    kernel takes behind the addresses."""
    sizes = (size for argument in arguments for size in argument.shape)
    return tuple(dict.fromkeys(size.of for size in sizes if isinstance(size, Extent) and size.of != BATCH))


def times_and_over(size: int | Extent) -> tuple[int, int]:
    """An Extent's, which has no ``by``, or (number, 0), for C++."""
    return (size.times, size.over) if isinstance(size, Extent) else (size, 0)


@dataclass(frozen=True)
class Scalar:
    """A number that a CUDA kernel takes: a symbolic size, or what it is."""

    name: str
    value: int | Extent

    def at(self, sizes: Mapping[str, int]) -> Scalar:
        """With these numbers in place of the symbols of their names."""
        return replace(self, value=sized(self.value, sizes))


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One CUDA kernel launch; an artifact's launches run in order."""

    kernel: str
    grid: tuple[int | Extent, int | Extent, int | Extent]
    block: tuple[int, int, int]
    shared_bytes: int
    """Dynamic shared memory to request."""
    arguments: tuple[Argument | Scalar, ...]

    def at(self, sizes: Mapping[str, int]) -> Launch:
        """With these numbers in place of the symbols of their names."""
        x, y, z = (sized(blocks, sizes) for blocks in self.grid)
        return replace(self, grid=(x, y, z), arguments=tuple(argument.at(sizes) for argument in self.arguments))


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A built candidate, as plain data."""

    candidate: Candidate
    kind: str
    """``cpu`` or ``cuda``: which loader runs it."""
    source: str
    """LLVM IR for ``cpu``, CUDA C++ for ``cuda``; empty if it came in a pack."""
    arguments: tuple[Argument, ...]
    """Tensors in calling order: ``inputs``, ``results``, ``workspaces``."""
    cubin: bytes = b""
    library: bytes = b""
    """``cpu``: machine code as a shared library, which is loaded without TVM; without it the source is compiled when it
    is loaded."""
    launches: tuple[Launch, ...] = ()
    resources: dict[str, int] = field(default_factory=dict)
    """Resources as the compiler reported them, of several kernels the most: ``registers``, ``shared_bytes``,
    ``spill_bytes``, ``stack_bytes``."""
    kernel_resources: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of each CUDA kernel, by its name."""
    build_s: float = 0.0
    sizes: tuple[int, ...] = ()
    """What a kernel of any size takes behind the addresses, at the size of the candidate's workload."""

    def at(self, workload: Workload) -> Artifact:
        """A kernel of any size at the size of ``workload``, which is else the same."""
        sizes = workload.image_sizes
        return replace(
            self,
            candidate=replace(self.candidate, workload=workload),
            arguments=tuple(argument.at(sizes) for argument in self.arguments),
            launches=tuple(launch.at(sizes) for launch in self.launches),
            sizes=tuple(sizes[name] for name in size_names(self.arguments)),
        )

    def takes(self, workload: Workload) -> bool:
        """Whether a kernel of any size and number of channels runs a workload that is else the same: of a CPU, one for
        few channels no more than the longest vectors have; of a GPU, a whole number of vectors, and as many images as a
        grid has on an axis."""
        if self.kind == "cpu":
            is_for_few = self.candidate.workload.result_channels < _MOST_LANES
            return self.least_channels <= workload.result_channels < (_MOST_LANES if is_for_few else math.inf)
        if workload.channels % self.least_channels:
            return False
        grids = [launch.grid for launch in self.at(workload).launches]
        blocks = (at_batch(size, workload.batch) for grid in grids for size in grid[1:])
        return max(blocks) <= _MOST_BLOCKS

    @cached_property
    def least_channels(self) -> int:
        """The fewest that a kernel of any number of channels takes, a vector of them: of a CPU as its workspace shows;
        without one, the widest. In NCHW, where vectors are of columns, one."""
        if self.kind == "cuda":
            return int(self.candidate.config.to_dict().get("vector_c", 1))
        if self.candidate.workload.layout == "nchw":
            return 1
        sizes = (size for argument in self.arguments for size in argument.shape)
        return max(
            (size.over for size in sizes if isinstance(size, Extent) and size.of == CHANNELS and size.over > 1),
            default=_MOST_LANES,
        )

    def bytes_at(self, batch: int) -> int:
        """Memory for all tensors, workspaces too."""
        return sum(argument.bytes_at(batch) for argument in self.arguments)

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return self.arguments[: len(self.candidate.workload.inputs)]

    @property
    def results(self) -> tuple[Argument, ...]:
        first = len(self.candidate.workload.inputs)
        return self.arguments[first : first + len(self.candidate.workload.results)]

    @property
    def workspaces(self) -> tuple[Argument, ...]:
        return self.arguments[len(self.candidate.workload.inputs) + len(self.candidate.workload.results) :]
