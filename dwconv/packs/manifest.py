"""Manifest: what a pack holds, what it is for, and the digest of every file. ``manifest.json``, checked while it is
read: other fields than these, or values of other types, are refused."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec

from dwconv.errors import InvalidWorkload, PackError, one_line
from dwconv.kernels.artifact import Argument, Artifact, Extent, Launch, Scalar
from dwconv.problems.target import FORCED_VECTOR_SETS
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate

FORMAT: Literal[1] = 1
"""Version of the format. A pack of any other is refused."""
MANIFEST = "manifest.json"
RECORDS = "records.jsonl"
MOST_MANIFEST_BYTES = 2**24

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.\-+ ():/]{1,200}\Z")]
_Path = Annotated[str, msgspec.Meta(pattern=r"^(kernels/|native/)?[A-Za-z0-9_\-][A-Za-z0-9_.\-+]{0,199}\Z")]
"""Of a file in the pack: no way leads out of it."""
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Bytes = Annotated[int, msgspec.Meta(ge=1, le=2**28)]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class File(_Struct, frozen=True, kw_only=True):
    """A file of the pack."""

    path: _Path
    sha256: Digest
    bytes: _Bytes


class MadeFor(_Struct, frozen=True, kw_only=True):
    """The device that the kernels run on."""

    kind: Literal["cpu", "cuda"]
    device: Name
    """As in records; of a GPU that was not there, its architecture; of every CPU with a vector set, that."""
    arch: Name
    """``sm_90``; of a CPU ``x86_64`` or the like."""
    instructions: list[Name] = []
    """All that the CPU had, or that the vector set takes."""
    measured: bool
    """False if the kernels were chosen by computed costs, or by rules."""
    generic: bool = False
    """Of a GPU: whether the kernels take any size and any number of channels."""

    @property
    def every_layer(self) -> bool:
        """True if the kernels take any size and any number of channels, and run on every CPU with a vector set, or on
        every GPU of an architecture."""
        return self.generic or self.device in FORCED_VECTOR_SETS


class Size(_Struct, frozen=True, kw_only=True):
    """A size that follows the batch; or one of an image, or the channels."""

    times: _Count
    over: _Count = 1
    of: Literal["n", "c", "d", "h", "w", "od", "oh", "ow"] = "n"
    by: _Count | Size = 1
    """What it is multiplied by."""


_AnySize = _Count | Size


class Tensor(_Struct, frozen=True, kw_only=True):
    name: Name
    dtype: Literal["float32", "float16", "bfloat16", "int32"]
    shape: list[_AnySize]


class Number(_Struct, frozen=True, kw_only=True):
    """A number that a CUDA kernel takes."""

    name: Name
    value: Size


class CudaLaunch(_Struct, frozen=True, kw_only=True):
    kernel: Name
    grid: tuple[_AnySize, _AnySize, _AnySize]
    block: tuple[_Count, _Count, _Count]
    shared_bytes: _Count
    arguments: list[Name | Number]
    """Names of tensors, and numbers."""


class PackedKernel(_Struct, frozen=True, kw_only=True):
    """A kernel: what it computes, how, and how it is called."""

    file: File
    workload: dict[str, Any]
    config: dict[str, int | str]
    arguments: list[Tensor]
    launches: list[CudaLaunch] = []
    resources: dict[Name, dict[Name, _Count]] = {}
    """Of each CUDA kernel, as the compiler reported them."""

    def candidate(self) -> Candidate:
        """Raises PackError for what is no workload or no configuration."""
        knobs = dict(self.config)
        template = knobs.pop("template", None)
        try:
            if not isinstance(template, str):
                raise InvalidWorkload("its configuration names no template")
            return Candidate(Workload.from_dict(self.workload), Config.of(template, **knobs))
        except InvalidWorkload as error:
            raise PackError(f"{self.file.path}: {error}") from None

    def artifact(self, code: bytes) -> Artifact:
        """The built candidate, with the content of its file. Raises PackError."""
        arguments = tuple(Argument(one.name, one.dtype, tuple(map(_extent, one.shape))) for one in self.arguments)
        by_name = {argument.name: argument for argument in arguments}
        candidate = self.candidate()
        tensors = (*candidate.workload.inputs, *candidate.workload.results)
        if tuple(by_name)[: len(tensors)] != tensors:
            raise PackError(f"{self.file.path} takes {', '.join(by_name)}, not {', '.join(tensors)}")
        try:
            launches = tuple(_launch(one, by_name) for one in self.launches)
        except KeyError as error:
            raise PackError(f"{self.file.path}: a launch takes {error.args[0]}, which is not an argument") from None
        is_cuda = bool(launches)
        return Artifact(
            candidate=candidate,
            kind="cuda" if is_cuda else "cpu",
            source="",
            arguments=arguments,
            cubin=code if is_cuda else b"",
            library=b"" if is_cuda else code,
            launches=launches,
            kernel_resources=self.resources,
        )

    @classmethod
    def of(cls, artifact: Artifact, file: File) -> PackedKernel:
        return cls(
            file=file,
            workload=artifact.candidate.workload.to_dict(),
            config=artifact.candidate.config.to_dict(),
            arguments=[
                Tensor(name=str(one.name), dtype=str(one.dtype), shape=[_size(size) for size in one.shape])  # type: ignore[arg-type]
                for one in artifact.arguments
            ],
            launches=[
                CudaLaunch(
                    kernel=str(launch.kernel),
                    grid=(_size(launch.grid[0]), _size(launch.grid[1]), _size(launch.grid[2])),
                    block=launch.block,
                    shared_bytes=launch.shared_bytes,
                    arguments=[_taken(one) for one in launch.arguments],
                )
                for launch in artifact.launches
            ],
            resources={str(kernel): dict(used) for kernel, used in artifact.kernel_resources.items()},
        )


class Native(_Struct, frozen=True, kw_only=True):
    """The compiled C++ of calls, and what it can be loaded into."""

    file: File
    bound_to: dict[str, str]


class Manifest(_Struct, frozen=True, kw_only=True):
    format: Literal[1] = FORMAT
    name: Name
    created: Name
    """The time, ISO 8601, UTC."""
    needs: str
    """What a reader has to have, in words."""
    made_for: MadeFor
    versions: dict[Name, Name]
    """Of dwconv, PyTorch, TVM, and what compiled or linked the kernels."""
    bytes: _Count
    """Of all files beside the manifest."""
    records: File
    kernels: list[PackedKernel]
    native: Native | None = None
    sha256: Digest = "0" * 64
    """Of the manifest without it."""

    @property
    def files(self) -> list[File]:
        native = [self.native.file] if self.native else []
        return [self.records, *(kernel.file for kernel in self.kernels), *native]

    def sealed(self) -> Manifest:
        """The same with its digest."""
        return msgspec.structs.replace(self, sha256=self._digest())

    def is_whole(self) -> bool:
        return self.sha256 == self._digest()

    def _digest(self) -> str:
        blank = msgspec.structs.replace(self, sha256="0" * 64)
        return hashlib.sha256(msgspec.json.encode(blank, order="deterministic")).hexdigest()


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(content: bytes) -> Manifest:
    """Raises PackError, saying what is wrong."""
    try:
        version = msgspec.json.decode(content, type=_Version).format
        if version != FORMAT:
            raise PackError(f"its format is {version}, and this dwconv reads {FORMAT}; make it again")
        return msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PackError(f"its manifest is damaged: {one_line(str(error), most=200)}") from None


class _Version(msgspec.Struct):
    format: int


def _size(size: int | Extent) -> _AnySize:
    if not isinstance(size, Extent):
        return size
    return Size(times=size.times, over=size.over, of=size.of, by=_size(size.by))  # type: ignore[arg-type]


def _extent(size: _AnySize) -> int | Extent:
    if not isinstance(size, Size):
        return size
    return Extent(times=size.times, over=max(1, size.over), of=size.of, by=_extent(size.by))


def _taken(argument: Argument | Scalar) -> Name | Number:
    if isinstance(argument, Argument):
        return str(argument.name)  # TVM's strings are a subclass, which JSON does not take
    size = _size(argument.value)
    assert isinstance(size, Size), "its value comes with each call"
    return Number(name=str(argument.name), value=size)


def _launch(launch: CudaLaunch, tensors: dict[str, Argument]) -> Launch:
    """Raises KeyError for an argument that is none."""
    return Launch(
        kernel=launch.kernel,
        grid=(_extent(launch.grid[0]), _extent(launch.grid[1]), _extent(launch.grid[2])),
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        arguments=tuple(
            Scalar(one.name, _extent(one.value)) if isinstance(one, Number) else tensors[one]
            for one in launch.arguments
        ),
    )
