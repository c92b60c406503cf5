"""Every pack that must not be loaded is refused in one line, and nothing of it is known afterwards."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import traceback
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch

import dwconv
from dwconv.dispatch import loaded_packs
from dwconv.errors import PackError
from dwconv.kernels import entry, pack_files
from dwconv.kernels.manifest import MANIFEST, Manifest, decode
from dwconv.packs import read_pack
from dwconv.problems.target import cpu_target, parse_target
from dwconv.system import cpu_facts, versions
from tests import planted_records
from tests.packs.forging import forge, forge_kernels, forge_records, made_for, refused, some

pytestmark = pytest.mark.usefixtures("no_packs")
INSTALLED = dict(versions.installed())


@pytest.mark.parametrize("pattern", ["kernels/*.kernel", "native/*.so", "records.jsonl"])
def test_a_file_that_was_changed_is_refused(pack, pattern):
    if not (file := next(pack.glob(pattern), None)):
        pytest.skip("nothing compiles the C++ of calls here")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    refused(pack, f"{file.name} was changed after the pack was made")


def test_a_file_that_is_cut_off_or_longer_or_missing_is_refused(pack):
    file = some(pack, "kernels/*.kernel")
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    refused(pack, f"is cut off: {len(content) - 1} of {len(content)} bytes")
    file.write_bytes(content + b"\0")
    refused(pack, f"is larger than the {len(content)} bytes")
    file.unlink()
    refused(pack, "cannot be read: No such file")
    file.mkdir()
    refused(pack, "cannot be read: Is a directory")


def test_a_refusal_is_one_error_not_a_chain_of_them(tmp_path):
    with pytest.raises(PackError, match="cannot be read: No such file") as raised:
        dwconv.load_pack(tmp_path / "nowhere")
    assert "".join(traceback.format_exception(raised.value)).count("Traceback") == 1


def test_a_pipe_in_place_of_a_file_is_refused_at_once(pack):
    file = some(pack, "kernels/*.kernel")
    file.unlink()
    os.mkfifo(file)
    refused(pack, "is not a file")


def test_of_a_link_the_content_counts(pack, tmp_path):
    """As in folders that an installer makes of links into its store."""
    file = some(pack, "kernels/fprop*.kernel")
    stored = file.rename(tmp_path / "stored")
    file.symlink_to(stored)
    dwconv.load_pack(pack)
    loaded_packs.forget()
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    refused(pack, f"{file.name} was changed after the pack was made")


def test_a_manifest_that_was_changed_or_cut_off_is_refused(pack):
    forge(pack, made_for(device="other-cpu-avx2-2t"), seal=False)
    refused(pack, "its manifest was changed after it was made")
    (pack / MANIFEST).write_bytes((pack / MANIFEST).read_bytes()[:-100])
    refused(pack, "its manifest is damaged")
    (pack / MANIFEST).write_text('{"format": 4}')
    refused(pack, "its format is 4, and this dwconv reads 1 to 3")
    (pack / MANIFEST).unlink()
    refused(pack, "manifest.json cannot be read: No such file")


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "kernels/../../outside", "kernels/..", "a\n"])
def test_no_file_outside_of_the_pack_is_read(pack, path):
    outside = pack.parent / "outside"
    outside.write_bytes(b"outside")
    digest = hashlib.sha256(b"outside").hexdigest()

    def change(manifest: Manifest) -> Manifest:
        file = msgspec.structs.replace(manifest.records, path=path, sha256=digest, bytes=7)
        return msgspec.structs.replace(manifest, records=file)

    forge(pack, change)
    refused(pack, "its manifest is damaged: .*matching regex")


def test_another_pack_than_the_one_that_was_named_is_refused(pack, made):
    assert dwconv.load_pack(pack, sha256=made.manifest.sha256).sha256 == made.manifest.sha256
    dwconv.load_pack(pack, sha256=made.manifest.sha256.upper())
    loaded_packs.forget()
    forge(pack, lambda manifest: msgspec.structs.replace(manifest, needs="nothing"))
    refused(pack, f"not the given {made.manifest.sha256}", sha256=made.manifest.sha256)


def with_versions(**other: str) -> Callable[[Manifest], Manifest]:
    return lambda made: msgspec.structs.replace(made, versions={**made.versions, **other})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (made_for(device="other-avx2-2t"), "it is for other-avx2-2t, this is "),
        (made_for(arch="riscv64"), "it is for Linux on riscv64"),
        (
            made_for(instructions=["avx9000", *sorted(cpu_facts.instructions())]),
            "may need avx9000, which this CPU does",
        ),
        (made_for(measured=False), r"never measured, .* load_pack\(…, unmeasured=True\) runs them anyway"),
        (with_versions(dwconv="0.0.0"), "it was made by dwconv 0.0.0, this is dwconv"),
        (with_versions(tvm="0.0.0"), "it was measured with TVM"),
    ],
)
def test_what_a_pack_is_for_must_be_here(pack, change, words):
    forge(pack, change)
    refused(pack, words)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("dwconv.kernels.pack_files.platform.system", lambda: "Darwin", "it is for Linux on .*, this is Darwin"),
        ("dwconv.kernels.pack_files.openmp_is_here", lambda: False, "its kernels need the OpenMP runtime"),
        ("dwconv.records.record.version_of", lambda name: 99, "it was measured with version 1 of cpu"),
        (
            "dwconv.system.versions.installed",
            lambda: {**INSTALLED, "torch": "9.9.9"},
            r"it was measured with PyTorch .*; here is PyTorch 9\.9\.9; make it again",
        ),
    ],
)
def test_what_a_pack_needs_must_be_here(pack, monkeypatch, name, value, words):
    monkeypatch.setattr(name, value)
    refused(pack, words)


def test_a_gpus_pack_needs_a_gpu(pack):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    forge(pack, made_for(kind="cuda", arch="sm_90", device="sm_90"))
    refused(pack, "no GPU in this machine")


def test_as_many_threads_as_there_are_do(pack):
    device = cpu_target().device
    model = device.removesuffix(f"{cpu_target().threads}t")
    forge(pack, made_for(device=f"{model}777t"))
    dwconv.load_pack(pack)


def test_records_of_another_device_are_refused(pack):
    from dwconv.records.line import encode as line_of

    record = planted_records.record_of(planted_records.workload_of(), device="another-avx2-2t")
    forge_records(pack, line_of(record) + b"\n")
    refused(pack, "it has a record of another-avx2-2t, and is for")


@pytest.mark.parametrize(
    "text",
    [
        b'{"format": 2, "name": "\xff"}',
        b'{"format": 2, "name": ' + b"[" * 100_000,
        b"[]",
    ],
    ids=["no UTF-8", "deep", "no object"],
)
def test_what_is_no_manifest_is_refused(pack, text):
    (pack / MANIFEST).write_bytes(text)
    refused(pack, "its manifest is damaged")


def test_a_manifest_with_an_unknown_field_is_refused(pack):
    """It may say what must not be left out."""
    manifest = (pack / MANIFEST).read_bytes()
    (pack / MANIFEST).write_bytes(manifest.replace(b"{", b'{"needs_more": 1,', 1))
    refused(pack, "its manifest is damaged: .*needs_more")


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (lambda artifact: b"\xc1", "kernels/.* is no kernel: not a message"),
        (lambda artifact: zlib.compress(entry.encode(artifact))[:-9], "is no kernel: it does not end where its file"),
        (lambda artifact: zlib.compress(entry.encode(artifact)) + b"?", "is no kernel: it does not end where its file"),
        (lambda artifact: b"\x78\x9c no stream", "is no kernel: .*invalid"),
        (lambda artifact: {"a": 1}, "kernels/.* is no kernel"),
        (lambda artifact: dataclasses.replace(artifact, arguments=()), "kernels/.* takes , not x, w"),
        (lambda artifact: dataclasses.replace(artifact, kind=1), "is no kernel: .*Artifact.kind is '1'"),
    ],
    ids=["bytes", "cut off", "longer", "not compressed", "data", "arguments", "types"],
)
def test_a_kernel_that_makes_no_sense_is_refused(pack, kernel, words):
    def change(artifacts):
        path, artifact = next(each for each in artifacts.items() if "fprop" in each[0])
        return {path: kernel(artifact)}

    forge_kernels(pack, change)
    refused(pack, words)


def test_no_more_memory_is_taken_than_a_kernel_has(pack, monkeypatch):
    """A few bytes may stand for any number of zeros."""
    monkeypatch.setattr(pack_files, "_MOST_BYTES", 2**20)
    forge_kernels(pack, lambda artifacts: {next(iter(artifacts)): zlib.compress(bytes(2**26))})
    tracemalloc.start()
    refused(pack, "is no kernel: it does not end where its file does")
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("arch", "device", "measured", "words"),
    [
        ("sm_80", "gpu", True, r"it is for gpu \(sm_80\), this is gpu \(sm_90\)"),
        ("sm_90", "other", True, r"it is for other \(sm_90\), this is gpu \(sm_90\)"),
        ("sm_80", "sm_80", False, r"it is for sm_80 \(sm_80\), this is gpu \(sm_90\)"),
        ("sm_90", "sm_90", False, "it has a record of .*, and is for sm_90"),
    ],
)
def test_on_a_gpu_another_gpus_pack_is_refused_and_computed_costs_hold_for_its_architecture(
    pack, monkeypatch, arch, device, measured, words
):
    gpu = dataclasses.replace(parse_target("cuda:sm_90"), device="gpu", present=True)
    monkeypatch.setattr(read_pack, "cuda_target", lambda: gpu)
    forge(pack, made_for(kind="cuda", arch=arch, device=device, measured=measured))
    refused(pack, words, unmeasured=True)


# -- the C++ of calls: it is left out, and the kernels run ------------------------------------------------------------


@pytest.fixture
def brings_native(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack with C++ of calls, in a process that has none."""
    if decode((pack / MANIFEST).read_bytes()).native is None:
        pytest.skip("nothing compiles the C++ of calls here")
    monkeypatch.setattr(read_pack.native, "module", None)


@pytest.mark.usefixtures("brings_native")
@pytest.mark.parametrize(("name", "word"), [("torch", "PyTorch"), ("python", "Python"), ("sources", "sources")])
def test_the_cpp_of_calls_for_another_version_is_left_out(pack, monkeypatch, name, word):
    here = read_pack.bound_to()
    monkeypatch.setattr(read_pack, "bound_to", lambda: {**here, name: "9.9.9"})
    loaded = dwconv.load_pack(pack)
    assert loaded.without_native == f"its C++ of calls was compiled for {word} {here[name]}, here is 9.9.9"
    assert "calls go through Python" in str(loaded)


@pytest.mark.usefixtures("brings_native")
def test_cpp_of_calls_that_cannot_be_loaded_is_left_out(pack, monkeypatch):
    def take(content: bytes) -> None:
        raise ImportError("no such symbol")

    monkeypatch.setattr(read_pack.native, "take", take)
    assert dwconv.load_pack(pack).without_native == "its C++ of calls cannot be loaded: no such symbol"
    assert loaded_packs.records()
