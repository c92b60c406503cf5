"""Servers of files on this machine, for tests of what is read at a URL: some answer, and some do not."""

from __future__ import annotations

import functools
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class _Endless(_Quiet):
    """Lists one log, and sends it without end."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
        self.end_headers()
        try:
            if self.path.endswith("/"):
                self.wfile.write(b'<a href="endless.jsonl">endless.jsonl</a>')
                return
            while True:
                self.wfile.write(b"x" * 65536)
        except OSError:  # the reader has gone
            pass

    do_HEAD = do_GET


@contextmanager
def http_server(folder: Path, *, endless: bool = False) -> Iterator[str]:
    """The URL of the files in ``folder``; or of one that never ends."""
    handler = functools.partial(_Endless if endless else _Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


class Hanging:
    """Accepts whoever connects, and never answers."""

    def __init__(self, listening: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        self.address = listening.getsockname()
        self.accepted: list[socket.socket] = []

    def serve(self, listening: socket.socket) -> None:
        try:
            while True:
                self.accepted.append(listening.accept()[0])
        except OSError:  # it was closed
            pass


@contextmanager
def hanging_server() -> Iterator[Hanging]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        hanging = Hanging(listening)
        threading.Thread(target=hanging.serve, args=(listening,), daemon=True).start()
        yield hanging
        listening.shutdown(socket.SHUT_RDWR)
        for each in hanging.accepted:
            each.close()


def closed_port() -> int:
    """A port without a listener."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return int(listening.getsockname()[1])
