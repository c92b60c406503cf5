"""Files of this user alone: whole and unchanged."""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dwconv import settings
from dwconv.errors import DwconvWarning, LogError, NotKept
from dwconv.kernels.entry import write_entry
from dwconv.measure import limits
from dwconv.problems.target import Limits
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.system import private_files
from dwconv.system.private_files import check_private, open_lock, read, read_sealed, write, write_sealed

ANOTHER = os.geteuid() + 1
KEPT = limits.KeptLimits(
    limits=Limits(memory_gb_per_s=1.0, cache_gb_per_s=1.0, cache_bytes=1, peak_gflop_per_s=1.0), readings=1
)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A key for each test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    private_files._key_at.cache_clear()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- what is read is what was written --------------------------------------------------------------------------------


def test_what_was_written_is_read(tmp_path: Path) -> None:
    for content in (b"one", b"", b"\0" * 100_000):
        write_sealed(tmp_path / "it", content, durable=True)
        assert read_sealed(tmp_path / "it") == content
        write(tmp_path / "plain", content, durable=False)
        assert read(tmp_path / "plain") == (tmp_path / "plain").read_bytes() == content
    assert read(tmp_path / "absent") is read_sealed(tmp_path / "nowhere" / "absent") is None
    assert {path.name for path in tmp_path.iterdir()} == {"it", "plain", "state"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: len(whole) // 2],
        lambda whole: b"",
        lambda whole: b"\0" * len(whole),
        lambda whole: whole + b"\0",
        lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
        lambda whole: bytes([whole[0] ^ 1]) + whole[1:],
    ],
)
def test_what_was_changed_is_not_there(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    write_sealed(tmp_path / "it", b"content" * 1000, durable=False)
    (tmp_path / "it").write_bytes(damage((tmp_path / "it").read_bytes()))
    assert read_sealed(tmp_path / "it") is None
    write_sealed(tmp_path / "it", b"again", durable=False)
    assert read_sealed(tmp_path / "it") == b"again"
    (tmp_path / "it").rename(tmp_path / "another name")
    assert read_sealed(tmp_path / "another name") is None


def test_what_is_no_file_counts_as_absent_at_once(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "it", b"content", durable=False)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "it")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "folder", "pipe"):
        assert read(tmp_path / name) is None
    write(tmp_path / "link", b"new", durable=False)
    assert read(tmp_path / "link") == b"new" and read(tmp_path / "elsewhere" / "it") == b"content"
    with pytest.raises(NotKept, match="Is a directory"):
        write(tmp_path / "folder", b"new", durable=False)


def test_it_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def fsync(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "content")

    replace = os.replace
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda *names, **at: (done.append("name"), replace(*names, **at)))
    write(tmp_path / "it", b"content", durable=True)
    assert done == ["content", "name", "folder"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    write(tmp_path / "it", b"before", durable=False)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # Python ignores SIGXFSZ: the write fails half-way
    try:
        with pytest.raises(NotKept, match=f"cache={tmp_path} cannot be used: File too large; .* in DWCONV_CACHE"):
            write(tmp_path / "it", b"after" * 10_000, durable=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == ["it"] and read(tmp_path / "it") == b"before"


# -- folders that cannot be there ------------------------------------------------------------------------------------


UNUSABLE = {
    "a link that leads nowhere": "{cache} is a link that leads nowhere",  # a home on a disk that is not mounted
    "a loop of links": "Too many levels of symbolic links",
    "a file": "Not a directory",
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_where_no_folder_can_be_nothing_is_kept_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    cache = tmp_path / "cache"
    if what == "a file":
        cache.touch()
    else:
        cache.symlink_to("cache" if what == "a loop of links" else tmp_path / "unmounted" / "disk")
    monkeypatch.setenv("DWCONV_CACHE", str(cache))
    folder, reason = settings.cache_folder() / "kernels", UNUSABLE[what].format(cache=cache)
    told = f"cache={folder} cannot be used: {reason}; name a folder of your own in DWCONV_CACHE"
    for attempt in (lambda: write(folder / "it", b"new", durable=True), lambda: open_lock(folder / "lock")):
        with pytest.raises(NotKept) as caught:
            attempt()
        assert str(caught.value) == told
    assert read(folder / "it") is read_sealed(folder / "it") is None
    with pytest.raises(NotKept, match="cannot be used"):
        check_private(folder)
    with pytest.warns(DwconvWarning) as warned:
        for _ in range(2):
            write_entry(folder / "it.kernel", {"content": 1})
            limits._write(settings.cache_folder() / "limits" / "device.json", KEPT)
    (line,) = (str(warning.message) for warning in warned)
    assert line == f"compiled kernels and measurements are not kept, and the next process makes them again: {told}"
    assert warned[0].filename == __file__


@pytest.mark.parametrize("home", ["raises", "~/.cache/dwconv"])
def test_without_a_home_nothing_is_kept_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    """As in a container that runs as a user that its system does not list. Versions of platformdirs differ."""

    def folder(name: str) -> str:
        if home == "raises":
            raise RuntimeError("could not determine the home directory")
        return home

    monkeypatch.chdir(tmp_path)
    for variable in ("DWCONV_CACHE", "DWCONV_TUNING_LOGS", "DWCONV_CONCURRENCY_LOGS"):
        monkeypatch.delenv(variable, raising=False)
    for kind in ("cache", "data", "state"):
        monkeypatch.setattr(settings.platformdirs, f"user_{kind}_dir", folder)
    assert settings.shipped_log_folder() in settings.tuning_log_paths()
    with pytest.raises(NotKept, match=r"^cache=.* cannot be used: Not a directory; name a folder of your own"):
        write(settings.cache_folder() / "kernels" / "it", b"new", durable=False)
    with pytest.raises(NotKept, match=r"^state=.*; name a folder of your own in XDG_STATE_HOME"):
        write_sealed(tmp_path / "cache" / "it", b"new", durable=False)
    for path in (settings.written_log_path(), settings.concurrency_log_folder()):
        with pytest.raises(LogError, match=r"^log=.* cannot be written: "):
            TuningLog(path / "device.jsonl").check_writable()
    assert Database.usual().problems == []
    assert list(tmp_path.rglob("*")) == []


# -- whose it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0, 0o002, 0o077, 0o777])
def test_all_that_is_made_is_for_this_user_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_sealed(tmp_path / "a" / "b" / "it", b"content", durable=True)
        os.close(open_lock(tmp_path / "a" / "b" / "lock"))
    finally:
        os.umask(before)
    assert read_sealed(tmp_path / "a" / "b" / "it") == b"content"
    key = settings.cache_key_path()
    for folder in (tmp_path / "a", tmp_path / "a" / "b", key.parent, key.parent.parent):
        assert mode(folder) == 0o700
    assert mode(tmp_path / "a" / "b" / "it") == mode(key) == 0o600
    assert mode(tmp_path / "a" / "b" / "lock") & 0o177 == 0


def test_what_others_could_have_written_is_not_there(tmp_path: Path) -> None:
    write_sealed(tmp_path / "it", b"content", durable=False)
    for others in (0o620, 0o602):
        (tmp_path / "it").chmod(others)
        assert read_sealed(tmp_path / "it") is read(tmp_path / "it") is None
    write_sealed(tmp_path / "it", b"again", durable=False)
    assert mode(tmp_path / "it") == 0o600 and read_sealed(tmp_path / "it") == b"again"


def test_a_folder_of_our_own_is_closed_to_others(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    write(folder / "it", b"content", durable=False)
    assert mode(folder) == 0o700
    folder.chmod(0o755)
    check_private(folder)
    assert mode(folder) == 0o700


def test_a_folder_that_cannot_be_closed_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "it", b"content", durable=False)
    tmp_path.chmod(0o777)
    monkeypatch.setattr(os, "fchmod", lambda *_: None)  # a file system that knows no rights
    assert read(tmp_path / "it") is None
    with pytest.raises(NotKept, match=f"cache={tmp_path} cannot be used: other users may write there"):
        write(tmp_path / "it", b"new", durable=False)
    with pytest.raises(NotKept, match="other users may write there"):
        check_private(tmp_path)


def test_what_belongs_to_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sealed(tmp_path / "it", b"content", durable=False)
    monkeypatch.setattr(os, "geteuid", lambda: ANOTHER)
    assert read_sealed(tmp_path / "it") is read(tmp_path / "it") is None
    for attempt in (
        lambda: write(tmp_path / "it", b"new", durable=False),
        lambda: open_lock(tmp_path / "lock"),
        lambda: check_private(tmp_path),
    ):
        with pytest.raises(NotKept, match=f"{tmp_path} cannot be used: it belongs to another user"):
            attempt()


def test_a_file_of_another_user_is_not_there_even_in_our_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder may be given away with all that is in it."""
    write_sealed(tmp_path / "it", b"content", durable=False)
    own, fstat = os.geteuid(), os.fstat

    def given_away(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        return found if stat.S_ISDIR(found.st_mode) else os.stat_result([*found[:4], own + 1, *found[5:]])

    monkeypatch.setattr(os, "fstat", given_away)
    assert read_sealed(tmp_path / "it") is read(tmp_path / "it") is None


# -- the key ---------------------------------------------------------------------------------------------------------


def test_processes_that_make_the_key_at_once_agree(tmp_path: Path) -> None:
    path, start, keys = tmp_path / "state" / "key", threading.Barrier(8), []

    def make() -> None:
        start.wait()
        keys.append(private_files._key_at.__wrapped__(path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8 and len(set(keys)) == 1 and len(keys[0]) == 32
    assert [found.name for found in path.parent.iterdir()] == ["key"]


def test_another_key_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sealed(tmp_path / "it", b"content", durable=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert read_sealed(tmp_path / "it") is None
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert read_sealed(tmp_path / "it") == b"content"


@pytest.mark.parametrize("damage", ["short", "empty", "seen", "folder of others"])
def test_a_key_that_is_torn_or_no_secret_is_made_again(tmp_path: Path, damage: str) -> None:
    write_sealed(tmp_path / "it", b"content", durable=False)
    path = settings.cache_key_path()
    before = path.read_bytes()
    if damage == "seen":
        path.chmod(0o644)
    elif damage == "folder of others":
        path.parent.chmod(0o777)
    else:
        path.write_bytes(before[:31] if damage == "short" else b"")
    private_files._key_at.cache_clear()
    write_sealed(tmp_path / "it", b"again", durable=False)
    assert read_sealed(tmp_path / "it") == b"again"
    assert mode(path) == 0o600 and len(path.read_bytes()) == 32 and mode(path.parent) == 0o700
    assert (path.read_bytes() == before) == (damage == "folder of others")


def test_without_hard_links_there_is_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    write_sealed(tmp_path / "it", b"content", durable=False)
    assert read_sealed(tmp_path / "it") == b"content"


def test_where_no_key_can_be_kept_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sealed(tmp_path / "it", b"content", durable=False)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert read_sealed(tmp_path / "it") is None
    for attempt in (lambda: write_sealed(tmp_path / "it", b"new", durable=False), lambda: open_lock(tmp_path / "lock")):
        with pytest.raises(NotKept, match=r"state=.*file/dwconv cannot be used: .*; .* in XDG_STATE_HOME"):
            attempt()
    assert not (tmp_path / "lock").exists()
