"""A headless Chromium, spoken to over a pipe by the DevTools protocol: pages as people see them."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
VARIABLE = "CHROMIUM"
"""The environment variable that names one that is not on the path."""
_ANSWER_S = 600.0


def _executable() -> str | None:
    named = os.environ.get(VARIABLE)
    return next(filter(None, map(shutil.which, [named] if named else NAMES)), None)


class Browser:
    """One page of a browser that runs."""

    def __init__(self, *, to: int, answers: int) -> None:
        self._to, self._answers, self._count, self._read = to, answers, 0, b""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def show(self, page: Path, *, width: int, dark: bool) -> None:
        """Load it, and wait until it is there."""
        self._ask_page(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask_page("Emulation.setEmulatedMedia", features=[scheme])
        self._ask_page("Page.navigate", url=page.absolute().as_uri())
        until_s = time.monotonic() + _ANSWER_S
        while not self.asked(
            f"location.href === {json.dumps(page.absolute().as_uri())} && document.readyState === 'complete'"
        ):
            assert time.monotonic() < until_s, "the page was not loaded"
            time.sleep(0.02)

    def asked(self, script: str) -> Any:
        """The value of a script in the page."""
        found = self._ask_page("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def screenshot(self, *, top: int = 0, height: int | None = None) -> bytes:
        """A PNG of the page, or of so many pixels of its height."""
        width, whole = self.asked("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": top, "width": width, "height": min(height or whole, whole - top), "scale": 1}
        found = self._ask_page("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def wrong(self) -> list[str]:
        """What a reader would stumble over in the page that is shown; empty if there is nothing."""
        found: list[str] = self.asked(_WRONG)
        return found

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
            if not more:
                raise ConnectionError("the browser ended, or does not answer")
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """One that ends with the context. Skips the test where there is none that starts, and the summary of the run says
    so. ``profile``: a folder of its own."""
    executable = _executable()
    if executable is None:
        pytest.skip(f"no Chromium on the path, nor one named by {VARIABLE}")
    (from_us, to), (answers, to_us) = os.pipe(), os.pipe()
    command = [
        executable, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
        "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--disable-quic", f"--user-data-dir={profile}",
    ]  # fmt: skip
    running = subprocess.Popen(
        [sys.executable, "-c", _AS_3_AND_4, str(from_us), str(to_us), *command],
        pass_fds=(from_us, to_us), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(from_us)
    os.close(to_us)
    try:
        try:
            started = Browser(to=to, answers=answers)
        except (ConnectionError, BrokenPipeError):
            pytest.skip(f"{executable} does not start")
        yield started
    finally:
        os.close(to)
        os.close(answers)
        running.terminate()
        try:
            running.wait(timeout=10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


_AS_3_AND_4 = """
import fcntl, os, sys
ours = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]  # out of the way first
os.dup2(ours[0], 3)
os.dup2(ours[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A browser reads from 3 and writes to 4."""

_WRONG = r"""
(() => {
  document.querySelectorAll("details").forEach(each => { each.open = true; });
  const wrong = [], width = document.documentElement.clientWidth;
  const whole = document.documentElement.scrollWidth;
  if (whole > width) wrong.push(`the page scrolls sideways: ${whole} of ${width}`);

  // every line of text, where it stands: of one in a box that scrolls what is seen of it
  const seenOf = (box, element) => {
    let {left, right, top, bottom} = box;
    for (let each = element; each && each !== document.body; each = each.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(each).overflowX) && each.scrollWidth > each.clientWidth) {
        const around = each.getBoundingClientRect();
        [left, right] = [Math.max(left, around.left), Math.min(right, around.right)];
      }
    return {left, right, top, bottom, width: right - left, height: bottom - top};
  };
  const boxes = [], range = document.createRange();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || ["STYLE", "SCRIPT", "title"].includes(element.tagName)) continue;
    range.selectNodeContents(node);
    for (const whole of range.getClientRects()) {
      const box = seenOf(whole, element);
      if (box.width > 1 && box.height > 1) boxes.push({box, said: node.data.trim().slice(0, 40), element});
    }
  }
  if (boxes.length < 10) wrong.push(`there are only ${boxes.length} lines of text`);
  for (const {box, said} of boxes)
    if (box.right > width + 1 || box.left < -1) wrong.push(`'${said}' stands outside: ${box.left} to ${box.right}`);

  boxes.sort((one, other) => one.box.top - other.box.top);
  boxes.forEach((one, place) => {
    for (let next = place + 1; next < boxes.length && boxes[next].box.top < one.box.bottom - 2; next++) {
      const a = one.box, b = boxes[next].box;
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 2) wrong.push(`'${one.said}' and '${boxes[next].said}' lie on each other`);
    }
  });

  for (const word of document.querySelectorAll(".name span"))
    if (word.getClientRects().length > 1) wrong.push(`'${word.textContent}' breaks inside`);

  // contrast of text and its ground
  const light = colour => {
    const parts = colour.match(/[\d.]+/g).map(Number).slice(0, 3).map(
      part => part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const grounds = element => {
    for (let each = element; each; each = each.parentElement) {
      const drawn = each.tagName === "svg" && each.querySelector(":scope > rect");  // a picture's own
      const ground = drawn ? getComputedStyle(drawn).fill : getComputedStyle(each).backgroundColor;
      if (ground !== "rgba(0, 0, 0, 0)") return ground;
    }
    return "rgb(255, 255, 255)";
  };
  const seen = new Set();
  for (const {said, element} of boxes) {
    const style = getComputedStyle(element), ink = element instanceof SVGElement ? style.fill : style.color;
    const ground = grounds(element);
    if (seen.has(ink + ground)) continue;
    seen.add(ink + ground);
    const [less, more] = [light(ink), light(ground)].sort((one, other) => one - other);
    if ((more + 0.05) / (less + 0.05) < 4.5) wrong.push(`'${said}' is hard to read: ${ink} on ${ground}`);
  }
  return wrong.slice(0, 20);
})()
"""
