"""Files at a URL: ``s3://``, ``gs://``, ``hf://``, ``https://``, ``memory://``, or a folder that machines share.

fsspec reaches all of them, with the package that it needs: ``s3fs``, ``gcsfs``, ``huggingface_hub``, ``aiohttp``.
A server may be slow, never answer, or send without end. So each request runs ``within`` some seconds, and reads no more
bytes than a given number.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dwconv.errors import DwconvError, RemoteError, described_error, one_line

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")
_PIECE_BYTES = 2**20
_SECRETS = re.compile(r"(?<=//)[^/@]*@|[?#].*", re.DOTALL)
"""A user and a password in a URL, and what may be signed in its query."""


def is_url(text: str) -> bool:
    """True for ``scheme://…``; a path of this machine is none."""
    return re.match(r"[a-z][a-z0-9+.-]*://", text, re.IGNORECASE) is not None


def shown(url: str) -> str:
    """``url`` as it may be printed: in one line, and without what is secret in it."""
    return one_line(_SECRETS.sub("", url), most=300)


def joined(url: str, name: str) -> str:
    """The URL of the file ``name`` in the folder at ``url``."""
    return f"{url.rstrip('/')}/{name}"


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file as a listing names it."""

    path: str
    """As its file system names it."""
    version: str
    """Another one whenever the content may be another; empty if the listing has none."""

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]


Abandoned = threading.Event
"""Set when the result of some work is not needed any more."""


def within(limit_s: float, work: Callable[[Abandoned], T]) -> T:
    """What ``work`` gives, in a thread of its own, which is left alone if it takes longer than ``limit_s``. Raises
    RemoteError for that, and for whatever it raises, with the error in words."""
    result: list[T] = []
    failure: list[BaseException] = []
    done, abandoned = threading.Event(), Abandoned()

    def run() -> None:
        try:
            result.append(work(abandoned))
        except BaseException as error:  # noqa: BLE001  every library below fsspec has errors of its own
            failure.append(error)
        done.set()

    threading.Thread(target=run, name="dwconv-remote-files", daemon=True).start()
    try:
        if not done.wait(limit_s):
            raise RemoteError(f"no answer within {round(limit_s, 1):g} s")
    finally:
        abandoned.set()
    if failure:
        if isinstance(failure[0], DwconvError):
            raise failure[0]
        raise RemoteError(_reason(failure[0]))
    return result[0]


def _reason(error: BaseException) -> str:
    if isinstance(error, ImportError):  # fsspec's words name the package to install
        return one_line(str(error), most=300)
    return described_error(error)


_THREADS = 8


def in_parallel(items: list[T], work: Callable[[T], None]) -> None:
    """``work`` for each item, a few at a time. The first error ends it, and is raised. The threads end with the
    process, whatever they wait for."""
    waiting, lock, failure = list(items), threading.Lock(), list[BaseException]()

    def run() -> None:
        while not failure:
            with lock:
                if not waiting:
                    return
                item = waiting.pop()
            try:
                work(item)
            except BaseException as error:  # noqa: BLE001  raised below
                failure.append(error)

    runners = [threading.Thread(target=run, daemon=True) for _ in range(min(_THREADS, len(items)))]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    if failure:
        raise failure[0]


class Remote:
    """The file or folder at a URL. All of it may take for ever, and raise anything: call it ``within`` a limit."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs
        from fsspec.implementations.local import LocalFileSystem

        # No listing of a moment ago, and no connection of a process that this one was forked from.
        files, root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        self._files: AbstractFileSystem = files
        self._is_local = isinstance(files, LocalFileSystem)
        if self._is_local:
            files.auto_mkdir = True
        self.root: str = root

    def check_there(self) -> None:
        """Raises RemoteError for what is missing on this machine: where a disk is not mounted, its folder would be made
        on another one, unseen. A server makes what is written."""
        if self._is_local and not self._files.exists(self.root):
            raise RemoteError(f"there is no {one_line(self.root, most=300)}; make that folder, or mount its disk")

    def listed(self, *, suffix: str) -> list[RemoteFile]:
        """The files whose name ends so: of a folder those directly in it, of such a file itself. Nothing that is not
        there."""
        try:
            if self.root.endswith(suffix):
                found = [self._files.info(self.root)]
            else:
                found = self._files.ls(self.root, detail=True)
        except FileNotFoundError:
            return []
        files = [
            RemoteFile(path=str(each["name"]), version=_version_of(each))
            for each in found
            if each.get("type") == "file" and str(each["name"]).endswith(suffix)
        ]
        return sorted(files, key=lambda file: file.path)

    def read(self, path: str, *, most_bytes: int, abandoned: Abandoned) -> bytes:
        """The content of a file, named as in a listing. Raises FileNotFoundError, or RemoteError for a larger one."""
        content = bytearray()
        with self._files.open(path, "rb") as file:
            while piece := file.read(min(_PIECE_BYTES, most_bytes + 1 - len(content))):
                content += piece
                if len(content) > most_bytes:
                    raise RemoteError(f"{one_line(path, most=200)} has more than {most_bytes} bytes")
                if abandoned.is_set():
                    raise RemoteError("it is not needed any more")
        return bytes(content)

    def read_named(self, name: str, *, most_bytes: int, abandoned: Abandoned) -> bytes:
        """The bytes of a file of the folder. Raises what ``read`` raises."""
        return self.read(joined(self.root, name), most_bytes=most_bytes, abandoned=abandoned)

    def has(self, name: str) -> bool:
        """True if the folder has a file of that name."""
        return bool(self._files.exists(joined(self.root, name)))

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the folder, all of it or nothing; one of that name is replaced."""
        path = joined(self.root, name)
        if not self._is_local:  # an object is there when it is whole
            self._files.pipe_file(path, content)
            return
        part = f"{path}.{secrets.token_hex(8)}.part"
        try:
            self._files.pipe_file(part, content)
            self._files.mv(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.rm_file(part)
            raise


def _version_of(listed: dict[str, Any]) -> str:
    """By what the file systems call it: a digest, or the time and size."""
    for name in ("ETag", "etag", "md5Hash", "blob_id", "content_md5"):
        if listed.get(name):
            return f"{name} {listed[name]}"
    changed = next((listed[name] for name in ("mtime", "created", "LastModified", "updated") if listed.get(name)), None)
    if changed is None or listed.get("size") is None:
        return ""
    return f"{changed} {listed['size']} {listed.get('ino', '')}"
