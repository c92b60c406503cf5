"""A headless Chromium, spoken to over a pipe by the DevTools protocol: pages as people see them."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
VARIABLE = "CHROMIUM"
"""The environment variable that names one that is nowhere on the path."""
_ANSWER_S = 60.0


def path() -> str | None:
    """Where a Chromium is; None if nowhere."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser that runs."""

    def __init__(self, *, to: int, answers: int) -> None:
        self._to, self._answers, self._count, self._read = to, answers, 0, b""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def show(self, page: Path, *, width: int, dark: bool) -> None:
        """Load it, and wait until it is laid out."""
        self._ask_page("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask_page("Emulation.setEmulatedMedia", features=[scheme])
        self._ask_page("Page.navigate", url=page.as_uri())
        loaded = "new Promise(done => document.readyState === 'complete' ? done(1) : addEventListener('load', () => done(1)))"
        until_s = time.monotonic() + _ANSWER_S
        while self.asked("location.href") != page.as_uri():
            assert time.monotonic() < until_s, "the page was not loaded"
            time.sleep(0.02)
        self.asked(loaded)

    def asked(self, script: str) -> Any:
        """The value of a script in the page."""
        found = self._ask_page("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def screenshot(self, *, top: int = 0, height: int | None = None) -> bytes:
        """A PNG of the page, or of so many pixels of its height."""
        width, whole = self.asked("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": top, "width": width, "height": min(height or whole, whole - top), "scale": 1}
        found = self._ask_page("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def printed(self) -> bytes:
        """A PDF of the page."""
        return base64.b64decode(self._ask_page("Page.printToPDF", printBackground=True)["data"])

    def _ask_page(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._ask(method, session=self._session, **parameters)

    def _ask(self, method: str, *, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        asked: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if session:
            asked["sessionId"] = session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        until_s = time.monotonic() + _ANSWER_S
        while True:
            answer = json.loads(self._next(until_s))
            if answer.get("id") == self._count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                found: dict[str, Any] = answer["result"]
                return found

    def _next(self, until_s: float) -> bytes:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, until_s - time.monotonic()))
            more = os.read(self._answers, 1 << 20) if ready else b""
            assert more, "the browser ended, or does not answer"
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """One that ends with the context. ``profile``: a folder of its own."""
    executable = path()
    assert executable is not None, "ask path() first"
    (from_us, to), (answers, to_us) = os.pipe(), os.pipe()
    command = [
        executable, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
        "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={profile}",
    ]  # fmt: skip

    running = subprocess.Popen(
        ["sh", "-c", f'exec "$@" 3<&{from_us} 4>&{to_us}', "sh", *command],
        pass_fds=(from_us, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(from_us)
    os.close(to_us)
    try:
        yield Browser(to=to, answers=answers)
    finally:
        os.close(to)
        os.close(answers)
        running.terminate()
        try:
            running.wait(timeout=10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
