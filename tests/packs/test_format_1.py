"""Packs in format 1: the manifest describes each kernel, and its file is a shared library or a cubin."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import dwconv
from dwconv.call.call_plan import plans
from dwconv.dispatch import loaded_packs
from dwconv.kernels.artifact import Argument, Artifact, Extent, Launch, Scalar
from dwconv.kernels.manifest import MANIFEST
from dwconv.packs import format_1
from tests.packs.forging import kernels_in, refused

pytestmark = [
    pytest.mark.usefixtures("no_packs"),
    pytest.mark.filterwarnings("ignore::dwconv.DwconvWarning"),  # of what is untuned without the pack
]


def size_of(size: int | Extent) -> int | dict[str, Any]:
    if isinstance(size, int):
        return size
    return {"times": size.times, "over": size.over, "of": size.of, "by": size_of(size.by)}


def described(artifact: Artifact, file: dict[str, Any]) -> dict[str, Any]:
    """A kernel as the manifest has it."""
    return {
        "file": file,
        "workload": artifact.candidate.workload.to_dict(),
        "config": artifact.candidate.config.to_dict(),
        "arguments": [
            {"name": one.name, "dtype": one.dtype, "shape": [size_of(size) for size in one.shape]}
            for one in artifact.arguments
        ],
        "launches": [
            {
                "kernel": launch.kernel,
                "grid": [size_of(size) for size in launch.grid],
                "block": launch.block,
                "shared_bytes": launch.shared_bytes,
                "arguments": [
                    one.name if isinstance(one, Argument) else {"name": one.name, "value": size_of(one.value)}
                    for one in launch.arguments
                ],
            }
            for launch in artifact.launches
        ],
        "resources": artifact.kernel_resources,
    }


def put(pack: Path, path: str, content: bytes) -> dict[str, Any]:
    (pack / path).write_bytes(content)
    return {"path": path, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def written(pack: Path, manifest: dict[str, Any]) -> str:
    """Write the manifest with its digest: of itself in one line, with zeros for the digest, and the keys of what has
    names of its own in order."""

    def in_order(value: Any, *, named: bool = False) -> Any:
        if isinstance(value, dict):
            own = ("versions", "bound_to", "workload", "config", "resources")
            items = sorted(value.items()) if named else value.items()
            return {key: in_order(item, named=named or key in own) for key, item in items}
        return [in_order(item, named=named) for item in value] if isinstance(value, list) else value

    blank = in_order(json.loads(json.dumps({**manifest, "sha256": "0" * 64})))
    digest = hashlib.sha256(json.dumps(blank, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
    (pack / MANIFEST).write_text(json.dumps({**manifest, "sha256": digest}, indent=1))
    return digest


def change(pack: Path, to: Callable[[dict[str, Any]], None]) -> str:
    manifest = json.loads((pack / MANIFEST).read_text())
    to(manifest)
    return written(pack, manifest)


@pytest.fixture
def older(pack: Path) -> Path:
    """The pack, as format 1 has it."""
    manifest, artifacts, kernels = json.loads((pack / MANIFEST).read_text()), kernels_in(pack), []
    for file in manifest["kernels"]:
        artifact = artifacts[file["path"]]
        (pack / file["path"]).unlink()
        library = put(pack, file["path"].replace(".kernel", ".so"), artifact.library)
        kernels.append(described(artifact, library))
    written(pack, manifest | {"format": 1, "kernels": kernels})
    return pack


def before_other_sizes(manifest: dict[str, Any]) -> None:
    """As the first packs were: sizes followed the batch alone, and no compiler's report was in them."""
    del manifest["made_for"]["generic"]
    for kernel in manifest["kernels"]:
        del kernel["resources"]
        for argument in kernel["arguments"]:
            for size in argument["shape"]:
                if isinstance(size, dict):
                    del size["of"], size["by"]


@pytest.mark.parametrize("of_then", [lambda manifest: None, before_other_sizes], ids=["last", "first"])
def test_its_kernels_run(older, monkeypatch, of_then):
    def build(*arguments: object) -> None:
        raise AssertionError("a kernel of the pack was built again")

    monkeypatch.setattr("dwconv.kernels.cache.build_cached", build)
    digest = change(older, of_then)
    loaded = dwconv.load_pack(older, sha256=digest)
    assert loaded.sha256 == digest and len(loaded_packs.records()) == len(loaded.manifest.kernels)
    torch.manual_seed(0)
    x = torch.randn(3, 8, 9, 7).to(memory_format=torch.channels_last).requires_grad_()
    w, b = torch.randn(8, 1, 3, 3, requires_grad=True), torch.randn(8, requires_grad=True)
    ours, theirs = (
        torch.autograd.grad(convolve(x, w, b, padding=1, groups=8).square().sum(), [x, w, b])
        for convolve in (dwconv.conv2d, torch.nn.functional.conv2d)
    )
    (plan,) = plans()
    assert all(kernel is not None and kernel.artifact.library for kernel in plan.kernels.values())
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_it_is_fetched_from_a_url(older, tmp_path, monkeypatch):
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    digest = json.loads((older / MANIFEST).read_text())["sha256"]
    assert dwconv.load_pack(older.as_uri(), sha256=digest).sha256 == digest
    assert loaded_packs.records()


def test_kernels_of_a_gpu_are_as_they_were(older):
    kernel = json.loads((older / MANIFEST).read_text())["kernels"][0]
    (_, cpu), *_ = format_1.artifacts(json.dumps({"kernels": [kernel]}).encode(), {kernel["file"]["path"]: b"library"})
    rows = Extent(times=2, over=3, of="h", by=Extent(times=4, of="n"))
    launch = Launch(
        kernel="main_kernel",
        grid=(Extent(times=4), rows, 1),
        block=(32, 2, 1),
        shared_bytes=1024,
        arguments=(*cpu.arguments, Scalar("n", Extent(times=1))),
    )
    of_a_gpu = dataclasses.replace(
        cpu,
        kind="cuda",
        library=b"",
        cubin=b"cubin",
        launches=(launch,),
        kernel_resources={"main_kernel": {"registers": 9}},
    )
    content = json.dumps({"kernels": [described(of_a_gpu, kernel["file"])]}).encode()
    ((_, read),) = format_1.artifacts(content, {kernel["file"]["path"]: b"cubin"})
    assert read == of_a_gpu


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda kernel: kernel["workload"].update(batch=-1), "is no kernel: batch=-1"),
        (lambda kernel: kernel["config"].pop("template"), "is no kernel: it has no template"),
        (lambda kernel: kernel["arguments"].reverse(), "takes .*, not "),
        (lambda kernel: kernel.update(arguments=[]), "takes , not "),
        (lambda kernel: kernel.update(more=1), "its manifest is damaged: .*more"),
        (lambda kernel: kernel["file"].update(path="../outside"), "its manifest is damaged: .*matching regex"),
        (lambda kernel: kernel.pop("file"), "its manifest is damaged: .*file"),
        (lambda kernel: kernel["file"].update(sha256="0" * 64), "was changed after the pack was made"),
        (
            lambda kernel: kernel.update(
                launches=[
                    {"kernel": "k", "grid": [1, 1, 1], "block": [1, 1, 1], "shared_bytes": 0, "arguments": ["other"]}
                ]
            ),
            "is no kernel: it has no other",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(older, wrong, words):
    change(older, lambda manifest: wrong(manifest["kernels"][0]))
    refused(older, words)


def test_a_manifest_that_was_changed_is_refused(older):
    text = (older / MANIFEST).read_text()
    (older / MANIFEST).write_text(re.sub(r'"times": (\d+)', r'"times": 1\1', text, count=1))
    refused(older, "its manifest was changed after it was made")
    (older / MANIFEST).write_text(text)
    refused(older, f"not the given {'1' * 64}", sha256="1" * 64)
