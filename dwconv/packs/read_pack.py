"""Load a pack: check all of it, then add its kernels to dispatch.

Nothing is half loaded: any fault raises one PackError, and the process stays as it was. Every file is read once, and
the bytes that were checked are the bytes that run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dwconv import native
from dwconv.call.process_decisions import reset
from dwconv.dispatch import loaded_packs
from dwconv.errors import DwconvError, InvalidArgument, LogError, PackError, one_line
from dwconv.kernels.manifest import MadeFor, Manifest
from dwconv.kernels.pack_files import (
    artifact_in,
    check_machine,
    check_version,
    checked,
    read_manifest,
    with_its_tensors,
)
from dwconv.native.compile import bound_to
from dwconv.packs import format_1
from dwconv.packs.remote import get_pack
from dwconv.problems.target import CpuTarget, Target, cpu_target, cuda_target
from dwconv.records.line import decode as decode_record
from dwconv.records.record import TuningRecord, made_with
from dwconv.system import given, versions
from dwconv.system.remote_files import is_url, shown


@dataclass(frozen=True, kw_only=True)
class Pack:
    """A pack that was loaded. Prints as one line."""

    path: Path
    manifest: Manifest
    without_native: str
    """Why the C++ of calls that it brings is not used; empty if it is."""

    @property
    def sha256(self) -> str:
        """The digest of the manifest, and so of the whole pack."""
        return self.manifest.sha256

    def __str__(self) -> str:
        made, count = self.manifest, len(self.manifest.kernels)
        line = f"{self.path}: {count} kernel{'s' * (count != 1)} for {made.made_for.device}, {made.bytes / 1e6:.1f} MB"
        return line + (f"; calls go through Python: {self.without_native}" if self.without_native else "")


def load_pack(
    path: str | os.PathLike[str], *, sha256: str | None = None, unmeasured: bool = False, trust: bool = False
) -> Pack:
    """Run the kernels of the pack at ``path`` in this process, wherever they are faster than PyTorch's op.

    A pack is code that is run: load only packs from people you trust. ``sha256`` is the digest that
    ``python -m dwconv.export`` printed; no other pack is loaded then. ``unmeasured`` accepts kernels that were chosen
    by computed costs and never measured. Those for every layer run without it where a race found them faster.

    ``path`` may be a URL. Then ``sha256`` has to be given; ``trust`` loads any pack there without it.

    Raises PackError if the pack is damaged, or made for another device or other versions; if it cannot be fetched, or
    comes from a URL without a digest; InvalidArgument and InvalidChoice for arguments that are none."""
    named = given.path("path", path)
    url = str(path) if is_url(str(path)) else None
    if sha256 is not None and not isinstance(sha256, str):
        raise InvalidArgument(f"sha256={given.shown(sha256)} is not a digest; give the str that dwconv.export printed")
    unmeasured, trust = given.flag("unmeasured", unmeasured), given.flag("trust", trust)
    try:
        folder = get_pack(url, sha256=sha256, trust=trust) if url else named
        return _load(folder, sha256=folder.name if url else sha256, unmeasured=unmeasured)
    except DwconvError as error:
        raise PackError(one_line(f"pack={shown(url) if url else named}: {error}")) from None


def _load(folder: Path, *, sha256: str | None, unmeasured: bool) -> Pack:
    manifest, content = read_manifest(folder, sha256=sha256)
    made_for = manifest.made_for
    if not (made_for.measured or made_for.every_layer or unmeasured):
        raise PackError(
            "its kernels were chosen by computed costs and never measured, they may be slower than PyTorch's op; "
            "load_pack(…, unmeasured=True) runs them anyway"
        )
    target = _target(made_for)
    check_version(manifest)
    files = {file.path: checked(folder, file) for file in manifest.files}
    records = _records(files[manifest.records.path], manifest, target)
    if manifest.format == 1:
        found = format_1.artifacts(content, files)
    else:
        found = ((file, artifact_in(files[file.path], file)) for file in manifest.kernels)
    artifacts = {one.candidate: with_its_tensors(one, file) for file, one in found}
    without_native = _take_native(manifest, files)
    kernels = loaded_packs.PackedKernels(
        device=made_for.device,
        measured=made_for.measured,
        only_raced=made_for.every_layer and not unmeasured,
        tvm=manifest.versions.get("tvm", ""),
        artifacts=artifacts,
        records=records,
        log=folder / manifest.records.path,
    )
    loaded_packs.add(kernels, digest=manifest.sha256)
    reset()
    return Pack(path=folder, manifest=manifest, without_native=without_native)


def _records(content: bytes, manifest: Manifest, target: Target) -> tuple[TuningRecord, ...]:
    """Raises PackError for records of other devices, or that were made with other versions than are here."""
    made_for = manifest.made_for
    try:
        records = tuple(decode_record(line) for line in content.splitlines() if line.strip())
    except LogError as error:
        raise PackError(f"{manifest.records.path} is damaged: {error}") from None
    has = versions.installed()
    here = {**has, "tvm": manifest.versions.get("tvm", "")}
    for record in records:
        is_own = isinstance(target, CpuTarget) and target.named(record.device) is not None
        if not is_own and record.device != made_for.device:
            raise PackError(f"it has a record of {record.device}, and is for {made_for.device}")
        if other := made_with(record, here):
            raise PackError(f"it was measured with {other}; here is PyTorch {has['torch']}; make it again")
    return records


# -- where it runs -----------------------------------------------------------------------------------------------------


def _target(made_for: MadeFor) -> Target:
    """The device that is here. Raises PackError if it is another than the pack is for, NoDevice without a GPU."""
    if made_for.kind == "cuda":
        target = cuda_target()
        if made_for.arch != target.arch or (made_for.measured and made_for.device != target.device):
            raise PackError(f"it is for {made_for.device} ({made_for.arch}), this is {target.device} ({target.arch})")
        return target
    here = cpu_target()
    if not made_for.every_layer and here.named(made_for.device) is None:
        raise PackError(f"it is for {made_for.device}, this is {here.device}; make a pack here")
    check_machine(made_for)
    return here


def _take_native(manifest: Manifest, files: dict[str, bytes]) -> str:
    """Use the C++ of calls that the pack brings. Why not; empty if it is used, or if there is one already."""
    if native.module is not None:
        return ""
    if manifest.native is None:
        return "the pack brings no C++ of calls"
    here = bound_to()
    for name, word in (("torch", "PyTorch"), ("python", "Python"), ("sources", "sources")):
        if (made := manifest.native.bound_to.get(name)) != here[name]:
            return f"its C++ of calls was compiled for {word} {made}, here is {here[name]}"
    try:
        native.take(files[manifest.native.file.path])
    except ImportError as error:
        return f"its C++ of calls cannot be loaded: {error}"
    return native.why_not
