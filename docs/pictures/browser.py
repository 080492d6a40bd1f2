"""Opens pages in a headless Chromium through the DevTools protocol, with websocket-client.

Used to take the pictures of reports, and by the tests that examine reports.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import websocket

PROGRAM = "chromium"
START_S, REPLY_S = 120.0, 120.0  # long, for a busy machine
PORT_FILE = "DevToolsActivePort"  # Chromium writes its port there


class Page:
    """One tab. ``events``: what the browser has reported, oldest first."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a method of the protocol. RuntimeError with the browser's message."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") != number:
                self.events.append(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']['message']}")
            else:
                return dict(message["result"])

    def open(self, url: str, width: int, height: int, *, is_dark: bool = False) -> None:
        """Load a page in a window of this size, and wait until its charts are drawn."""
        self.events.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def wait_for(self, condition: str) -> None:
        """Until a JavaScript expression is true. TimeoutError if it does not become true."""
        deadline = time.monotonic() + START_S
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            time.sleep(0.05)

    def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression. RuntimeError if it throws."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description"))
        return found["result"].get("value")

    def screenshot(self, image: Path, *, quality: int = 80) -> None:
        """Of the complete page, as WebP."""
        options = {"format": "webp", "quality": quality, "captureBeyondViewport": True}
        image.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))

    def print(self, pdf: Path) -> None:
        """As its style sheet says."""
        options = {"printBackground": True, "preferCSSPageSize": True}
        pdf.write_bytes(base64.b64decode(self.call("Page.printToPDF", **options)["data"]))


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """A tab of a new Chromium, which ends with the context. It reaches only 127.0.0.1."""
    # Chromium's helper processes can write to its folder for a moment after it has ended.
    scratch = tempfile.TemporaryDirectory(prefix="penstock-chromium-", ignore_cleanup_errors=True)
    with scratch as folder:
        command = [PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--remote-debugging-port=0", f"--user-data-dir={folder}"]
        command += ["--no-first-run", "--disable-extensions", "--disable-dev-shm-usage"]
        command += [
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([*command, "about:blank"], stdout=quiet, stderr=quiet)
        try:
            port = _port(Path(folder) / PORT_FILE, process)
            with contextlib.closing(_socket(port)) as socket:
                yield Page(socket)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, IndexError):
            return int(file.read_text().splitlines()[0])
        time.sleep(0.05)
    raise TimeoutError(f"{PROGRAM} did not start")


def _socket(port: int) -> websocket.WebSocket:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as reply:
        tabs = json.load(reply)
    url = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
    return websocket.create_connection(url, timeout=REPLY_S, suppress_origin=True)
