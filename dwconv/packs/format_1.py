"""Kernels of packs in format 1. The manifest describes how each is called; its file holds code alone, a shared library
or a cubin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from dwconv.errors import InvalidWorkload, PackError, one_line
from dwconv.kernels.artifact import Argument, Artifact, Extent, Launch, Scalar
from dwconv.kernels.manifest import Count, File, Name, Strict
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate


class _Size(Strict, frozen=True, kw_only=True):
    times: Count
    over: Count = 1
    of: Literal["n", "c", "d", "h", "w", "od", "oh", "ow"] = "n"
    by: Count | _Size = 1


_AnySize = Count | _Size


class _Tensor(Strict, frozen=True, kw_only=True):
    name: Name
    dtype: Literal["float32", "float16", "bfloat16", "int32"]
    shape: list[_AnySize]


class _Number(Strict, frozen=True, kw_only=True):
    name: Name
    value: _Size


class _Launch(Strict, frozen=True, kw_only=True):
    kernel: Name
    grid: tuple[_AnySize, _AnySize, _AnySize]
    block: tuple[Count, Count, Count]
    shared_bytes: Count
    arguments: list[Name | _Number]
    """Names of tensors, and numbers."""


class _Kernel(Strict, frozen=True, kw_only=True):
    file: File
    workload: dict[str, Any]
    config: dict[str, int | str]
    arguments: list[_Tensor]
    launches: list[_Launch] = msgspec.field(default_factory=list)
    resources: dict[Name, dict[Name, Count]] = msgspec.field(default_factory=dict)

    def artifact(self, code: bytes) -> Artifact:
        """Raises InvalidWorkload for what is no workload, KeyError for a launch with an argument that is none."""
        knobs = dict(self.config)
        config = Config.of(str(knobs.pop("template")), **knobs)
        arguments = tuple(Argument(one.name, one.dtype, tuple(map(_extent, one.shape))) for one in self.arguments)
        tensors = {argument.name: argument for argument in arguments}
        is_cuda = bool(self.launches)
        return Artifact(
            candidate=Candidate(Workload.from_dict(self.workload), config),
            kind="cuda" if is_cuda else "cpu",
            source="",
            arguments=arguments,
            cubin=code if is_cuda else b"",
            library=b"" if is_cuda else code,
            launches=tuple(_launch(one, tensors) for one in self.launches),
            kernel_resources=self.resources,
        )


class _Kernels(msgspec.Struct):
    """Of a manifest."""

    kernels: list[_Kernel]


def artifacts(manifest: bytes, files: Mapping[str, bytes]) -> Iterator[tuple[File, Artifact]]:
    """The kernels that the content of a manifest describes, with the code in ``files``. Raises PackError for what
    describes none."""
    try:
        described = msgspec.json.decode(manifest, type=_Kernels).kernels
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PackError(f"its manifest is damaged: {one_line(str(error), most=200)}") from None
    for kernel in described:
        try:
            yield kernel.file, kernel.artifact(files[kernel.file.path])
        except InvalidWorkload as error:
            raise PackError(f"{kernel.file.path} is no kernel: {error}") from None
        except KeyError as error:
            raise PackError(f"{kernel.file.path} is no kernel: it has no {error.args[0]}") from None


def _extent(size: _AnySize) -> int | Extent:
    if not isinstance(size, _Size):
        return size
    return Extent(times=size.times, over=max(1, size.over), of=size.of, by=_extent(size.by))


def _launch(launch: _Launch, tensors: Mapping[str, Argument]) -> Launch:
    x, y, z = map(_extent, launch.grid)
    taken = (
        Scalar(one.name, _extent(one.value)) if isinstance(one, _Number) else tensors[one] for one in launch.arguments
    )
    return Launch(
        kernel=launch.kernel,
        grid=(x, y, z),
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        arguments=tuple(taken),
    )
