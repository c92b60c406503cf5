"""Packs at a URL: pinned by a digest, and code only from trusted places."""

from __future__ import annotations

from pathlib import Path

import pytest

import dwconv
from dwconv import export, settings
from dwconv.dispatch import loaded_packs
from dwconv.errors import PackError
from dwconv.kernels.manifest import MANIFEST
from dwconv.packs.remote import put_pack
from tests.servers import hanging_server, http_server

pytestmark = pytest.mark.usefixtures("no_packs", "cache")
ASKS = "this one comes from elsewhere: name the digest .*, or load any pack there with trust=True"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache that no pack is in yet."""
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def url(made, tmp_path):
    """The pack, put among others."""
    return put_pack(made.folder, made.manifest, f"file://{tmp_path / 'packs'}")


def refused(url: str, words: str, **options: object) -> None:
    """In one line that names the URL; and nothing of it is known afterwards."""
    with pytest.raises(PackError, match=words) as raised:
        dwconv.load_pack(url, **options)
    assert str(raised.value).startswith(f"pack={url}: ") and "\n" not in str(raised.value)
    assert loaded_packs.records() == []


def folder_of(url: str) -> Path:
    return Path(url.removeprefix("file://"))


def test_a_pack_is_got_by_its_digest_and_kept_in_the_cache(made, url):
    digest = made.manifest.sha256
    loaded = dwconv.load_pack(url, sha256=digest.upper())
    assert loaded.sha256 == digest and loaded_packs.records() and settings.cache_folder() in loaded.path.parents
    assert dwconv.load_pack(url, trust=True).sha256 == digest
    kernels = folder_of(url) / "kernels"
    kernels.rename(kernels.with_name("away"))
    dwconv.load_pack(url, sha256=digest)
    damaged = min((loaded.path / "kernels").glob("fprop*"))
    damaged.write_bytes(b"damaged")
    loaded_packs.forget()
    refused(url, f"kernels/{damaged.name} is missing", sha256=digest)
    kernels.with_name("away").rename(kernels)
    dwconv.load_pack(url, sha256=digest)


def test_a_pack_is_got_over_http(made, url):
    pytest.importorskip("aiohttp")
    with http_server(folder_of(url)) as served:
        assert dwconv.load_pack(served, sha256=made.manifest.sha256).manifest.name == made.manifest.name


def test_without_a_digest_nothing_is_even_read(monkeypatch):
    monkeypatch.setattr(settings, "FETCH_TIMEOUT_S", 0.3)
    with hanging_server() as server:
        refused(server.url, ASKS)
        assert not server.accepted


def test_another_digest_is_refused(made, url):
    other = "ab" * 32
    refused(url, f"its digest is {made.manifest.sha256}, not the given {other}", sha256=other)


def test_what_was_changed_there_is_refused(made, url):
    kernel = min((folder_of(url) / "kernels").glob("fprop*"))
    content = kernel.read_bytes()
    kernel.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for trust in ({"sha256": made.manifest.sha256}, {"trust": True}):
        refused(url, f"kernels/{kernel.name} was changed after the pack was made", **trust)
    assert not list(settings.cache_folder().glob(f"packs/*/kernels/{kernel.name}")), "nor is it kept"
    kernel.write_bytes(content + b"more")
    refused(url, f"kernels/{kernel.name} has more than {len(content)} bytes", trust=True)
    (folder_of(url) / MANIFEST).write_bytes(b"\xff")
    refused(url, "its manifest is damaged", trust=True)
    (folder_of(url) / MANIFEST).unlink()
    refused(url, "manifest.json is missing; name a pack", trust=True)


def test_a_server_that_never_answers_costs_the_limit(monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(settings, "FETCH_TIMEOUT_S", 0.3)
    with hanging_server() as server:
        refused(server.url, "it cannot be read: no answer within 0.3 s", trust=True)


@pytest.mark.parametrize("is_taken", [False, True])
def test_export_puts_what_it_made(made, planted_log, tmp_path, capsys, is_taken):
    """Where that cannot be written, the pack stays."""
    there = tmp_path / "packs"
    if is_taken:
        there.write_text("no folder")
    options = ("--shape", "2,8,4,6,5", "--kernel", "3", "--layout", "nhwc", "--passes", "dgrad", "--log", planted_log)
    code = export.main([*map(str, options), "-o", str(tmp_path / "mine"), "--put", f"file://{there}"])
    out, err = capsys.readouterr()
    digest = next(line for line in out.splitlines() if line.startswith("sha256: ")).removeprefix("sha256: ")
    if is_taken:
        line = err.splitlines()[-1]
        assert code == 2 and line.startswith(f"error: put=file://{there} cannot be written: ")
        assert line.endswith(f"in {tmp_path / 'mine'}")
        dwconv.load_pack(tmp_path / "mine", sha256=digest)
    else:
        put = out.splitlines()[-1].removeprefix("put: ")
        assert code == 0 and put.startswith(f"file://{there}/mine-")
        assert dwconv.load_pack(put, sha256=digest).manifest.name == "mine"
