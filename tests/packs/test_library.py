"""The machine code of a CPU kernel, linked: the same bits as the usual one, without TVM."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
from pathlib import Path

import pytest
import torch

from dwconv import settings
from dwconv.errors import BrokenInstallation, BuildError
from dwconv.kernels import library as linked_library
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.cache import build_cached
from dwconv.kernels.kernel import Kernel
from dwconv.kernels.library import shared_library
from dwconv.kernels.llvm import object_of
from dwconv.kernels.load_cpu import load_library
from dwconv.problems.target import cpu_target
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, template
from tests import planted_records

NCHW = planted_records.workload_of(shape=(3, 8, 14, 14), layout="nchw")


@pytest.fixture(autouse=True)
def linker() -> None:
    if shutil.which(settings.linker()) is None:
        pytest.skip("kernels are linked by a C++ compiler")


def artifact_of(pass_: str, **knobs: int | str) -> Artifact:
    workload, target = NCHW.for_pass(pass_), cpu_target(threads=2)
    space = template(f"cpu.{pass_}_nchw").space(workload, target)
    wanted = Config.of(space.template, **{**dict(space.default.values), **knobs})
    config = space.nearest(wanted)
    assert all(getattr(config, name) == value for name, value in knobs.items())
    return build_cached(Candidate(workload, config), target)


@pytest.mark.parametrize(("pass_", "knobs"), [("fprop", {"stage": "scratch"}), ("dgrad", {}), ("wgrad", {})])
def test_a_linked_kernel_gives_the_same_bits(pass_, knobs):
    """Kernels that stage in scratch memory take it from TVM's runtime, all others threads alone."""
    artifact = artifact_of(pass_, **knobs)
    library = shared_library(artifact)
    workload = artifact.candidate.workload
    inputs = [torch.randn(workload.shape_of(name)) for name in workload.inputs]
    usual, linked = Kernel.load(artifact), Kernel.load(dataclasses.replace(artifact, library=library, source=""))
    assert torch.equal(usual(*inputs), linked(*inputs))
    assert torch.isfinite(linked(*inputs)).all() and linked(*inputs).abs().max() > 0


def test_a_symbol_of_the_runtime_that_nothing_brings_is_refused():
    """Else it would be null, and be called."""
    artifact = artifact_of("dgrad")
    pointer = "@__TVMBackendSomethingNew = linkonce dllexport local_unnamed_addr global ptr null, align 8\n"
    with pytest.raises(BuildError, match="needs __TVMBackendSomethingNew of TVM's runtime"):
        shared_library(dataclasses.replace(artifact, source=artifact.source + pointer))


def test_without_a_linker_the_error_says_what_needs_one(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BrokenInstallation, match=r"no no-such-compiler; install one.*loading the pack needs none"):
        shared_library(artifact_of("dgrad"))


def test_a_linker_that_fails_is_quoted(monkeypatch, tmp_path):
    failing = tmp_path / "c++"
    failing.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CXX", str(failing))
    with pytest.raises(BuildError, match=r"c\+\+ cannot link a kernel: no space left"):
        shared_library(artifact_of("dgrad"))


def test_the_runtime_of_several_kernels_is_compiled_once(monkeypatch):
    compiled = []
    monkeypatch.setattr(linked_library, "object_of", lambda ir: compiled.append(ir) or object_of(ir))
    linked_library._kept_object.cache_clear()
    artifacts = [artifact_of("fprop"), artifact_of("dgrad")]
    assert all(shared_library(each) for each in artifacts)
    assert [sum(each.source in ir for ir in compiled) for each in artifacts] == [1, 1] and len(compiled) == 3


def test_what_is_no_library_is_refused():
    with pytest.raises(BuildError, match="the system cannot load the kernel"):
        load_library(b"not a library")


def test_of_many_libraries_none_keeps_a_descriptor_open_and_each_is_its_own():
    """The system's loader knows a library by its path."""
    first, second = artifact_of("fprop"), artifact_of("dgrad")
    libraries = [(each, shared_library(each)) for each in (first, second)]
    descriptors, counts = Path("/proc/self/fd"), []
    x, w = torch.randn(3, 8, 14, 14), torch.randn(8, 1, 3, 3)
    for _ in range(3):
        for artifact, library in libraries:
            linked = Kernel.load(dataclasses.replace(artifact, library=library))
            assert torch.equal(linked(x, w), Kernel.load(artifact)(x, w))
        counts.append(len([*descriptors.iterdir()]))
    assert counts[1:] == counts[:1] * 2


def names_of_loaded_libraries() -> list[str]:
    class Information(ctypes.Structure):
        _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))

    names = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Information), ctypes.c_size_t, ctypes.c_void_p)
    def keep(information, size, data):
        names.append(os.fsdecode(information.contents.name or b""))
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(keep, None)
    return names


def test_the_name_of_a_library_never_leads_to_another_file(tmp_path):
    """Other libraries open it, and map it, to print where an error comes from. An empty file there ends the process."""
    before = [name for name in names_of_loaded_libraries() if name]
    load_library(shared_library(artifact_of("dgrad")))
    (tmp_path / "empty").touch()
    opened = [os.open(tmp_path / "empty", os.O_RDONLY) for _ in range(64)]
    try:
        paths = [Path(name) for name in names_of_loaded_libraries() if name]
        assert len(paths) > len(before)
        assert not [path for path in paths if path.exists() and path.read_bytes()[:4] != b"\x7fELF"]
    finally:
        for descriptor in opened:
            os.close(descriptor)
