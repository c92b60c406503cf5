"""Packs at a URL: pinned by a digest, found by an index, and code only of who is trusted."""

from __future__ import annotations

import hashlib
import itertools
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

import dwconv
from dwconv import export, settings
from dwconv.dispatch import packed
from dwconv.errors import PackError
from dwconv.packs import remote
from dwconv.packs.make import MadePack
from dwconv.packs.manifest import MANIFEST, decode
from dwconv.packs.remote import INDEX, Index, put_pack
from dwconv.problems.target import cpu_target
from dwconv.system import versions
from tests.packs.forging import forge
from tests.servers import hanging_server, http_server

pytestmark = pytest.mark.usefixtures("no_packs", "cache")
_numbers = itertools.count()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache that no pack is in yet."""
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def url(tmp_path):
    """A folder of packs."""
    return f"file://{tmp_path / 'packs'}"


def put(pack: Path, url: str, **changes: object):
    """Put a pack that says other things of itself, if ``changes`` do."""
    other = Path(shutil.copytree(pack, pack.with_name(f"other{next(_numbers)}")))
    if changes:
        forge(other, lambda manifest: msgspec.structs.replace(manifest, **changes))
    return put_pack(other, decode((other / MANIFEST).read_bytes()), url)


def refused(url: str, words: str, **options: object) -> str:
    """In one line that names the URL; and nothing of it is known afterwards."""
    with pytest.raises(PackError, match=words) as raised:
        dwconv.load_pack(url, **options)
    assert str(raised.value).startswith(f"pack={url}: ") and "\n" not in str(raised.value)
    assert packed.records() == []
    return str(raised.value)


def folder_of(url: str) -> Path:
    return Path(url.removeprefix("file://"))


# -- got as it was put -------------------------------------------------------------------------------------------------


def test_a_pack_is_got_by_its_digest_or_by_that_of_the_index(made, url):
    there = put_pack(made.folder, made.manifest, url)
    by_pack = dwconv.load_pack(there.url, sha256=made.manifest.sha256)
    by_index = dwconv.load_pack(url, sha256=there.index_sha256.upper())
    from_index = dwconv.load_pack(url, sha256=made.manifest.sha256)
    assert by_pack.sha256 == by_index.sha256 == from_index.sha256 == made.manifest.sha256
    assert packed.records() and settings.cache_folder() in by_pack.path.parents
    assert dwconv.load_pack(url, trust=True).sha256 == made.manifest.sha256


def test_a_pack_is_got_over_http(made, url):
    pytest.importorskip("aiohttp")
    there = put_pack(made.folder, made.manifest, url)
    with http_server(folder_of(url)) as served:
        assert dwconv.load_pack(served, sha256=there.index_sha256).manifest.name == made.manifest.name


def test_what_is_in_the_cache_is_not_fetched_again_and_what_is_damaged_there_is(made, url):
    there = put_pack(made.folder, made.manifest, url)
    loaded = dwconv.load_pack(there.url, sha256=made.manifest.sha256)
    kernels = folder_of(there.url) / "kernels"
    kernels.rename(kernels.with_name("away"))
    dwconv.load_pack(there.url, sha256=made.manifest.sha256)
    damaged = min((loaded.path / "kernels").glob("fprop*"))
    damaged.write_bytes(b"damaged")
    packed.forget()
    refused(there.url, f"kernels/{damaged.name} is missing", sha256=made.manifest.sha256)
    kernels.with_name("away").rename(kernels)
    dwconv.load_pack(there.url, sha256=made.manifest.sha256)


# -- what is not trusted -----------------------------------------------------------------------------------------------


def test_without_a_digest_nobody_is_even_asked(monkeypatch):
    monkeypatch.setattr(settings, "FETCH_TIMEOUT_S", 0.3)
    with hanging_server() as server:
        refused(server.url, "this one comes from elsewhere: name the digest .*, or load any pack there with trust=True")
        assert not server.accepted


def test_another_digest_is_refused(made, url):
    there = put_pack(made.folder, made.manifest, url)
    other = "ab" * 32
    refused(there.url, f"its digest is {made.manifest.sha256}, not the given {other}", sha256=other)
    refused(
        url, f"the digest of its index is {there.index_sha256}, and no pack in it has the given {other}", sha256=other
    )


def test_what_was_changed_there_is_refused(made, url):
    there = put_pack(made.folder, made.manifest, url)
    kernel = min((folder_of(there.url) / "kernels").glob("fprop*"))
    content = kernel.read_bytes()
    kernel.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for trust in ({"sha256": made.manifest.sha256}, {"trust": True}):
        refused(there.url, f"kernels/{kernel.name} was changed after the pack was made", **trust)
    assert not list(settings.cache_folder().glob(f"packs/*/kernels/{kernel.name}")), "nor is it kept"
    kernel.write_bytes(content + b"more")
    refused(there.url, f"kernels/{kernel.name} has more than {len(content)} bytes", trust=True)


def test_an_index_that_names_another_pack_is_not_the_one_that_was_pinned(made, pack, url):
    there = put_pack(made.folder, made.manifest, url)
    put(pack, url, created="2030-01-01T00:00:00+00:00")
    refused(url, f"no pack in it has the given {there.index_sha256}", sha256=there.index_sha256)
    assert dwconv.load_pack(url, trust=True).manifest.created.startswith("2030")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe garbage", "its index.json is damaged"),
        (b'{"packs": [{"folder": "../../etc", "sha256": "x"}]}', "its index.json is damaged"),
        (b"[" * 100_000, "its index.json is damaged"),
        (b"x" * (2**24 + 1), "index.json has more than"),
    ],
    ids=["bytes", "fields", "deep", "large"],
)
def test_a_hostile_index_is_refused(url, content, words):
    folder_of(url).mkdir()
    (folder_of(url) / INDEX).write_bytes(content)
    refused(url, words, trust=True)


def test_a_server_that_never_answers_costs_the_limit(monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(settings, "FETCH_TIMEOUT_S", 0.3)
    with hanging_server() as server:
        refused(server.url, "it cannot be read: no answer within 0.3 s", trust=True)


def test_nothing_there_is_one_line(url):
    refused(url, "there is neither manifest.json nor index.json; name a pack, or a folder of packs", trust=True)


# -- which pack --------------------------------------------------------------------------------------------------------


def test_the_index_finds_the_pack_for_this_cpu_pytorch_and_dwconv(made: MadePack, pack, url):
    has = made.manifest.versions
    here = cpu_target()
    put(pack, url, made_for=msgspec.structs.replace(made.manifest.made_for, device="another-cpu-avx2-2t"))
    put(pack, url, versions={**has, "torch": "2.0.0"})
    put(pack, url, versions={**has, "dwconv": "0.0.1"})
    put(pack, url, made_for=msgspec.structs.replace(made.manifest.made_for, kind="cuda", device="h100", arch="sm_90"))
    message = refused(url, "none of its 4 packs is for ", trust=True)
    assert f"{here.device}, PyTorch {versions.installed()['torch']}" in message and "another-cpu-avx2-2t" in message
    far = here.named(here.device.replace(f"-{here.threads}t", f"-{8 * here.threads}t"))
    assert far is not None
    put(pack, url, made_for=msgspec.structs.replace(made.manifest.made_for, device=far.device), created="2031")
    put(pack, url, created="2030")
    put(pack, url, created="2029")
    there = put(pack, url, made_for=msgspec.structs.replace(made.manifest.made_for, measured=False), created="2032")
    assert dwconv.load_pack(url, sha256=there.index_sha256).manifest.created == "2030"


def test_what_is_no_pack_is_not_in_the_index(made, url):
    (folder_of(url) / "notes").mkdir(parents=True)
    (folder_of(url) / "half").mkdir()
    (folder_of(url) / "half" / MANIFEST).write_bytes(b'{"format": 1, "name')
    put_pack(made.folder, made.manifest, url)
    index = msgspec.json.decode((folder_of(url) / INDEX).read_bytes(), type=Index)
    assert [entry.sha256 for entry in index.packs] == [made.manifest.sha256]


def test_two_who_put_packs_at_once_are_both_in_the_index(pack, url, monkeypatch):
    """Both look before either of them has written."""
    write, waiting = remote.Remote.write, [True, True]

    def late(files, name, content):
        if name == INDEX and waiting:
            waiting.pop()
            put(pack, url, created=f"in between {len(waiting)}")
        write(files, name, content)

    monkeypatch.setattr(remote.Remote, "write", late)
    with ThreadPoolExecutor(2) as both:
        list(both.map(lambda number: put(pack, url, created=f"writer {number}"), range(2)))
    found = msgspec.json.decode((folder_of(url) / INDEX).read_bytes(), type=Index)
    assert {entry.created for entry in found.packs} == {"writer 0", "writer 1", "in between 0", "in between 1"}


# -- the command -------------------------------------------------------------------------------------------------------


def test_export_puts_what_it_made_and_prints_the_digest_to_pin(made, planted_log, url, tmp_path, capsys):
    options = ("--shape", "2,8,4,6,5", "--kernel", "3", "--layout", "nhwc", "--passes", "dgrad", "--log", planted_log)
    assert export.main([*map(str, options), "-o", str(tmp_path / "mine"), "--put", url]) == 0
    *_, there, digest = capsys.readouterr().out.splitlines()
    digest = digest.removeprefix("sha256 of the index: ")
    assert there.startswith(f"put: {url}/mine-") and dwconv.load_pack(url, sha256=digest).manifest.name == "mine"
    assert hashlib.sha256((folder_of(url) / INDEX).read_bytes()).hexdigest() == digest


def test_a_place_that_cannot_be_written_is_told_and_the_pack_stays(made, planted_log, tmp_path, capsys):
    (tmp_path / "taken").write_text("no folder")
    options = ("--shape", "2,8,4,6,5", "--kernel", "3", "--layout", "nhwc", "--passes", "dgrad", "--log", planted_log)
    there = f"file://{tmp_path / 'taken'}"
    assert export.main([*map(str, options), "-o", str(tmp_path / "mine"), "--put", there]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"error: put={there} cannot be written: ") and line.endswith(f"in {tmp_path / 'mine'}")
    dwconv.load_pack(tmp_path / "mine")
