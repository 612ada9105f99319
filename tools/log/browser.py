# SPDX-License-Identifier: BSL-1.0
"""Shows report pages in headless Chromium, for tests and for `./neap bench report-page`.

The browser is driven through two pipes by the DevTools protocol: each message is JSON and ends with a zero byte. So a test can wait for
what the page has drawn in real time, press keys, and read the page's own data.
"""

import argparse
import base64
import json
import os
import select
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.errors import Failure
from tools.process import spawn

# Chromium's options to run as root, without a GPU, and without requests to the vendor's servers.
CHROMIUM = "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking".split()
CHROMIUM += "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --remote-debugging-pipe".split()
# A busy host may take this long for the start, or for a page of five million records.
SECONDS_MAX = 180.0
POLL_SECONDS = 0.05
MESSAGE_BYTES_MAX = 1 << 30
# Resolves with the milliseconds from the begin of {} until the browser has painted.
TIMED = (
    "(async () => {{ const begin = performance.now(); {}; "
    "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); return performance.now() - begin; }})()"
)


def print_measurement(measure: Callable[[Path], dict]) -> None:
    """The program of a module that measures a page: prints the JSON of `measure` in a folder, which `--keep DIR` keeps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path, metavar="DIR")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory(prefix="neap-page-") as scratch:
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
        print(json.dumps(measure(keep or Path(scratch))))


class Browser:
    """A browser with one page: a context manager. `directory`: an empty folder for its profile."""

    def __init__(self, directory: Path, width: int = 1400, height: int = 1000, dark: bool = False):
        self._directory = directory
        self._size = (width, height)
        self._dark = dark
        self._number = 0
        self._received = b""
        self._session: str | None = None

    def __enter__(self) -> "Browser":
        commands_out, self._to = os.pipe()
        self._from, answers_in = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to descriptor 4.
        shell = f'exec 3<&{commands_out} 4>&{answers_in}; exec "$@"'
        argv = ["/bin/bash", "-c", shell, "bash", *CHROMIUM, f"--user-data-dir={self._directory}", "about:blank"]
        log = open(self._directory.with_suffix(".browser.log"), "wb")  # noqa: SIM115
        try:
            self._child = spawn(argv, pass_fds=(commands_out, answers_in), stdout=log, stderr=log)
        finally:
            log.close()
            os.close(commands_out)
            os.close(answers_in)
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            width, height = self._size
            self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
            if self._dark:
                self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exception) -> None:
        for descriptor in (self._to, self._from):
            os.close(descriptor)
        # The pipe's end ends the browser with all its processes.
        try:
            self._child.wait(10)
        except Exception:
            self._child.kill()
            self._child.wait()

    def ask(self, method: str, /, **parameters) -> dict[str, Any]:
        """Sends a command and returns its result. Raises Failure for an error or after SECONDS_MAX."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:
            data = data[os.write(self._to, data) :]
        ends = time.monotonic() + SECONDS_MAX
        while True:
            answer = json.loads(self._message(ends))
            if answer.get("id") != self._number:
                continue  # an event
            if "error" in answer:
                raise Failure(f"the browser refused {method}: {answer['error'].get('message')}")
            return answer["result"]

    def _message(self, ends: float) -> bytes:
        while True:
            found, zero, rest = self._received.partition(b"\0")
            if zero:
                self._received = rest
                return found
            pieces = [found]
            while b"\0" not in pieces[-1]:
                if not select.select([self._from], [], [], max(0.0, ends - time.monotonic()))[0]:
                    raise Failure(f"the browser gave no answer within {SECONDS_MAX:.0f} s")
                piece = os.read(self._from, 1 << 20)
                if not piece or sum(map(len, pieces)) > MESSAGE_BYTES_MAX:
                    raise Failure("the browser ended")
                pieces.append(piece)
            self._received = b"".join(pieces)

    def open(self, url: str) -> None:
        self.ask("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression in the page, after its promise has settled. Raises Failure for an exception."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Failure(f"the page raised {result['exceptionDetails'].get('exception', {}).get('description')}")
        return result["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Waits until an expression has a value that counts as true, and returns it."""
        ends = time.monotonic() + SECONDS_MAX
        while not (value := self.evaluate(expression)):
            if time.monotonic() > ends:
                raise Failure(f"the page did not get to {expression} within {SECONDS_MAX:.0f} s")
            time.sleep(POLL_SECONDS)
        return value

    def show(self, url: str) -> dict[str, str]:
        """Opens a report page and waits until its points are drawn. Returns the marks that the page leaves in its DOM."""
        self.open(url)
        marks = json.loads(
            self.wait("(d => (d.drawn && d.pointsMs) || d.error ? JSON.stringify(d) : '')({...document.documentElement?.dataset})")
        )
        if "error" in marks:
            raise Failure(f"the page could not be drawn: {marks['error']}")
        return marks

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drags with the left button, in pixels of the window."""
        common = {"button": "left", "buttons": 1, "clickCount": 1}
        self.ask("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], **common)
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=end[0], y=end[1], button="left", buttons=1)
        self.ask("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], **common)

    def key(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Writes the page as a PNG: all of it, or what the window shows."""
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
