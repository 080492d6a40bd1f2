"""A program in a pseudo-terminal, and what its screen shows: enough of a terminal for Textual."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

CONTROL = re.compile(
    r"\x1b\[(?P<arguments>[0-?]*)[ -/]*(?P<final>[@-~])"  # CSI
    r"|\x1b\].*?(?:\x07|\x1b\\)"  # OSC
    r"|\x1b[PX^_].*?\x1b\\"  # DCS and the like
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    r"|[\x00-\x1f\x7f]",
    re.DOTALL,
)
UNFINISHED = re.compile(r"\x1b[^\x1b]*\Z")
WAIT_S = 30.0  # long, for a busy machine


class Terminal:
    """Ends its program with the context. ``lines``: the screen."""

    def __init__(
        self,
        command: Sequence[str],
        width: int,
        height: int = 30,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.width, self.height = width, height
        self._cells = [[" "] * width for _ in range(height)]
        self._x = self._y = 0
        self._rest = b""
        self._file, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        unset = ("COLUMNS", "LINES", "NO_COLOR")
        own = {name: value for name, value in os.environ.items() if name not in unset}
        self.process = subprocess.Popen(
            command,
            stdin=child,
            stdout=child,
            stderr=child,
            env={**own, "TERM": "xterm-256color", **(env or {})},
            start_new_session=True,
        )
        os.close(child)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._file)

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]

    def press(self, keys: str) -> None:
        os.write(self._file, keys.encode())

    def wait_for(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """The first screen that meets the condition. AssertionError with the last one."""
        deadline = time.monotonic() + WAIT_S
        while not condition(self.lines):
            assert time.monotonic() < deadline, "\n".join(self.lines)
            self._read()
        return self.lines

    def wait_ended(self) -> int:
        """The exit code; what the program writes at its end is read meanwhile."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "\n".join(self.lines)
            self._read()
        return self.process.returncode

    def _read(self) -> None:
        if not select.select([self._file], [], [], 0.05)[0]:
            return
        try:
            data = self._rest + os.read(self._file, 65536)
        except OSError:  # the program has ended
            return
        text = data.decode("utf-8", "surrogateescape")
        cut = UNFINISHED.search(text)
        complete = text[: cut.start()] if cut and not CONTROL.match(text, cut.start()) else text
        while complete and "\udc80" <= complete[-1] <= "\udcff":  # a character in two parts
            complete = complete[:-1]
        self._rest = text[len(complete) :].encode("utf-8", "surrogateescape")
        self._write(complete)

    def _write(self, text: str) -> None:
        at = 0
        for found in CONTROL.finditer(text):
            self._put(text[at : found.start()])
            at = found.end()
            self._control(found)
        self._put(text[at:])

    def _put(self, text: str) -> None:
        for character in text:
            if self._x < self.width and self._y < self.height:
                self._cells[self._y][self._x] = character
            self._x += 1

    def _control(self, found: re.Match[str]) -> None:
        final, arguments = found["final"], found["arguments"] or ""
        if final in ("H", "f"):
            row, _, column = arguments.partition(";")
            self._y, self._x = int(row or 1) - 1, int(column or 1) - 1
        elif final == "J" and arguments == "2":
            self._cells = [[" "] * self.width for _ in range(self.height)]
        elif found[0] == "\r":
            self._x = 0
        elif found[0] == "\n":
            self._y, self._x = min(self._y + 1, self.height - 1), 0
