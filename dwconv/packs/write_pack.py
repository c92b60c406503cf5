"""Make a pack: choose kernels by the records, build them, and write them with a manifest."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from itertools import starmap
from pathlib import Path

import msgspec
import torch
from rich.console import Console
from rich.progress import track

from dwconv import native, settings
from dwconv.errors import BuildError, PackError, WorkerError, say
from dwconv.kernels import nvrtc
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.base_pack import BASE
from dwconv.kernels.cache import build_cached, source
from dwconv.kernels.kernel import Kernel
from dwconv.kernels.library import check_linker, shared_library
from dwconv.kernels.manifest import MANIFEST, RECORDS, File, MadeFor, Manifest, Native, encode
from dwconv.kernels.pack_files import content_with, path_of
from dwconv.measure.build_worker import BuildSetup, misfit
from dwconv.measure.processes.pool import Pool
from dwconv.native.compile import Extension, bound_to
from dwconv.packs.pack_choice import choose
from dwconv.problems.as_written import tune_command
from dwconv.problems.block import NOTHING
from dwconv.problems.kernel_inputs import operands
from dwconv.problems.target import CpuTarget, ForcedVectorSet, Target, is_of_a_vector_set, target_of_vector_set
from dwconv.problems.workload import Workload
from dwconv.records.database import Database
from dwconv.records.line import encode as encode_record
from dwconv.records.record import TuningRecord
from dwconv.schedules.template import Candidate
from dwconv.system import cpu_facts, versions
from dwconv.untuned.every_layer import candidates, is_usual


@dataclass(frozen=True, kw_only=True)
class MadePack:
    """A pack that was written."""

    folder: Path
    manifest: Manifest
    without_native: str
    """Why the C++ of calls is not in it; empty if it is."""
    without_records: tuple[Workload, ...] = ()
    """Workloads that no record decides: PyTorch's op will run them, or what is predicted."""
    of_pytorch: int = 0
    """Workloads that PyTorch's op runs, since it is faster."""

    def __str__(self) -> str:
        count = len(self.manifest.kernels)
        return f"{self.folder}: {count} kernel{'s' * (count != 1)}, {self.manifest.bytes / 1e6:.1f} MB"


def make_pack(workloads: Sequence[Workload], target: Target, *, folder: Path, known: Database) -> MadePack:
    """Write a pack to ``folder``, which must not be there yet: all of it or nothing.

    Raises PackError if no record decides any of the workloads or the folder cannot be written, BrokenInstallation
    without what compiles and links, BuildError for what they refuse."""
    found = {workload: choose(workload, target, known) for workload in dict.fromkeys(workloads)}
    choices = [choice for choice in found.values() if choice]
    if not choices:
        raise PackError(
            f"none of {len(found)} passes has a record of {target.device} with the versions installed; tune them first "
            f"(the first: {tune_command(next(iter(found)))} --target {target}), or name the log with --log"
        )
    kernels = {candidate: choice.target for choice in choices for candidate in choice.candidates}
    return dataclasses.replace(
        _make(folder, kernels, [choice.record for choice in choices], target),
        without_records=tuple(each for each, choice in found.items() if not choice and each.block != NOTHING),
        of_pytorch=sum(not choice.candidates for choice in choices),
    )


def make_pack_for_every_layer(candidates: Sequence[Candidate], target: Target, *, folder: Path) -> MadePack:
    """Write a pack of kernels of any size and channels, which runs on every CPU that has the vector set of ``target``,
    or on every GPU of its architecture.

    Raises what ``make_pack`` does."""
    return _make(folder, dict.fromkeys(candidates, target), (), target)


def make_base_pack(name: ForcedVectorSet, *, taps: Collection[int] = ()) -> MadePack:
    """Put the pack that the package brings for a vector set into it, in the place of one that is there: kernels for the
    usual layers, or for those of them with as many ``taps`` along their longest axis.

    Raises what ``make_pack`` does, and PackError for one that is too large for a wheel."""
    target = target_of_vector_set(name)
    wanted = [each for each in candidates(target, taps=taps) if is_usual(each.workload)]
    shutil.rmtree(BASE / name, ignore_errors=True)
    made = _make(BASE / name, dict.fromkeys(wanted, target), (), target, brings_native=False)
    if made.manifest.bytes > _MOST_BASE_BYTES:
        shutil.rmtree(made.folder)
        most = f"{_MOST_BASE_BYTES / 1e6:.0f} MB that one in the package may have"
        raise PackError(f"{made} are more than the {most}; leave layers out in dwconv/untuned/every_layer.py")
    return made


_MOST_BASE_BYTES = 20_000_000
"""A wheel has three of them, and is as large: compressed again they are no smaller."""


def _make(
    folder: Path,
    kernels: Mapping[Candidate, Target],
    records: Sequence[TuningRecord],
    target: Target,
    *,
    brings_native: bool = True,
) -> MadePack:
    if os.path.lexists(folder):
        raise PackError(f"out={folder} exists already; name another folder")
    if isinstance(target, CpuTarget) and kernels:
        check_linker()
    # Not a TemporaryDirectory: it is renamed in the end.
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.part")
    try:
        part.mkdir(parents=True)
        manifest, without_native = _write(part, kernels, records, target, name=folder.name, brings_native=brings_native)
        part.rename(folder)
    except OSError as error:
        raise PackError(f"out={folder} cannot be written: {error.strerror}; name another folder") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return MadePack(folder=folder, manifest=manifest, without_native=without_native)


def _write(
    folder: Path,
    kernels: Mapping[Candidate, Target],
    records: Sequence[TuningRecord],
    target: Target,
    *,
    name: str,
    brings_native: bool,
) -> tuple[Manifest, str]:
    """The manifest, and why the C++ of calls is left out; empty if it is not."""
    is_generic = any(each.workload.any_channels for each in kernels)
    packed: dict[Candidate, File] = {}
    building = _built_at_once([*kernels], target) if is_generic else starmap(built, kernels.items())
    for artifact in counted(building, total=len(kernels)):
        content = content_with(dataclasses.replace(artifact, source="", build_s=0.0))
        packed[artifact.candidate] = _put(folder, path_of(artifact.candidate), content)
    lines = dict.fromkeys(encode_record(record) for record in records)
    log = _put(folder, RECORDS, b"".join(line + b"\n" for line in lines) or b"\n")
    compiled, without_native = _native(folder) if brings_native else (None, "")
    manifest = Manifest(
        name=name,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        needs=_needs(target),
        made_for=_made_for(target, generic=is_generic),
        versions={**versions.installed(), **_compiler(target), "sources": source()},
        bytes=0,
        records=log,
        kernels=[packed[candidate] for candidate in kernels],
        native=compiled,
    )
    manifest = msgspec.structs.replace(manifest, bytes=sum(file.bytes for file in manifest.files)).sealed()
    (folder / MANIFEST).write_bytes(encode(manifest))
    return manifest, without_native


def _put(folder: Path, path: str, content: bytes) -> File:
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_bytes(content)
    return File(path=path, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


# -- kernels -----------------------------------------------------------------------------------------------------------


_BUILD_TIMEOUT_S = 600.0
_LINE_EVERY_S = 5.0


def counted(building: Iterable[Artifact], *, total: int) -> Iterator[Artifact]:
    """``building``, which takes minutes: a bar on a terminal; else now and then a line on stderr, with the time that is
    left at the pace so far."""
    console = Console(stderr=True)
    if console.is_terminal:
        yield from track(building, "compiling", total, console=console, transient=True)
        return
    began_s = said_s = time.monotonic()
    for count, artifact in enumerate(building, start=1):
        now_s = time.monotonic()
        if now_s - said_s >= _LINE_EVERY_S and count < total:
            said_s, left_s = now_s, (now_s - began_s) / count * (total - count)
            left = f"{left_s:.0f} s" if left_s < 120 else f"{left_s / 60:.0f} minutes"
            say(f"note: {count} of {total} kernels compiled, about {left} left")
        yield artifact


def _built_at_once(candidates: Sequence[Candidate], target: Target) -> Iterator[Artifact]:
    """``built`` of each as soon as it is, by as many processes as there are cores. Raises BuildError if one fails."""
    setup = BuildSetup(target=target, build="dwconv.packs.write_pack:built")
    size = min(os.cpu_count() or 1, len(candidates))
    pool = Pool("dwconv.measure.build_worker:BuildHandler", setup, size=size, misfit=partial(misfit, target=target))
    try:
        ended = pool.map(candidates, timeout_s=_BUILD_TIMEOUT_S)
        for number, one in ended:
            if isinstance(one, WorkerError):
                raise BuildError(f"{candidates[number].workload.key}: {one}")
            yield one
    finally:
        pool.kill()


def built(candidate: Candidate, target: Target) -> Artifact:
    """The artifact with code that needs no TVM. Raises BuildError also if that computes something else than the kernel
    as it is usually loaded."""
    artifact = build_cached(candidate, target)
    if not isinstance(target, CpuTarget):
        return artifact
    packed = dataclasses.replace(artifact, library=shared_library(artifact))
    if target.present:
        _check_same(Kernel.load(artifact), Kernel.load(packed))
    return packed


def _check_same(kernel: Kernel, packed: Kernel) -> None:
    """Raises BuildError unless both give the same bits."""
    workload = kernel.workload
    inputs = operands(workload, data="normal", seed=settings.SEED)
    results = [each if isinstance(each, tuple) else (each,) for each in (kernel(*inputs), packed(*inputs))]
    if not all(torch.equal(one, other) for one, other in zip(*results, strict=True)):
        raise BuildError(f"{workload.key}: the linked kernel computes something else than the one that was tuned")


# -- what it takes -----------------------------------------------------------------------------------------------------


def _made_for(target: Target, *, generic: bool) -> MadeFor:
    if isinstance(target, CpuTarget):
        if is_of_a_vector_set(target):
            arch, needed = _LEAST[target.device]
            return MadeFor(kind="cpu", device=target.device, arch=arch, instructions=list(needed), measured=False)
        words = sorted(cpu_facts.instructions()) if target.present else []
        return MadeFor(
            kind="cpu", device=target.device, arch=platform.machine(), instructions=words, measured=target.present
        )
    if generic:
        return MadeFor(kind="cuda", device=target.arch, arch=target.arch, measured=False, generic=True)
    return MadeFor(kind="cuda", device=target.device, arch=target.arch, measured=target.present)


_AVX2 = ("abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
_LEAST = {
    "avx512": ("x86_64", (*_AVX2, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")),
    "avx2": ("x86_64", _AVX2),
    "neon": ("aarch64", ("asimd",)),
}
"""The machine, and what LLVM may use of the least CPU that has a vector set, in the words of ``/proc/cpuinfo``."""


def _needs(target: Target) -> str:
    has = versions.installed()
    if isinstance(target, CpuTarget) and is_of_a_vector_set(target):
        machine = _LEAST[target.device][0]
        return f"Linux on {machine}, a CPU with {target.device}, dwconv {has['dwconv']}; no TVM, compiler or tuning log"
    device = f"the CPU {target.device}" if isinstance(target, CpuTarget) else f"a GPU {target.device} and cuda-bindings"
    torch_version = has["torch"].partition("+")[0] if target.kind == "cpu" else has["torch"]
    pytorch = f"PyTorch {torch_version}" if target.present else "PyTorch"
    return f"Linux on {platform.machine()}, {device}, {pytorch}, dwconv {has['dwconv']}; no TVM, compiler or tuning log"


def _compiler(target: Target) -> dict[str, str]:
    """The version of what made machine code out of what TVM generates; empty where nothing can have."""
    if target.kind == "cuda":
        return {"nvrtc": ".".join(map(str, nvrtc.library().version))}
    linker = settings.program(settings.linker())
    if linker is None:  # no kernel is in the pack: PyTorch's ops are faster
        return {}
    said = subprocess.run([linker, "--version"], capture_output=True, encoding="utf-8", errors="replace").stdout
    found = re.search(r"\d+\.\d+(\.\d+)?", said)
    return {"linker": found[0] if found else "unknown"}


def _native(folder: Path) -> tuple[Native | None, str]:
    """The C++ of calls, compiled now if need be; None, and why."""
    if native.native() is None:
        return None, native.why_not
    content = Extension().kept()
    if content is None:
        return None, "it is not kept in the cache"
    bound = bound_to()
    file = _put(folder, f"native/dwconv_native.{bound['python']}.so", content)
    return Native(file=file, bound_to=bound), ""
