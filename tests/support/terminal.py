"""A program in a pseudo-terminal, and what its screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import pyte

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
        self._screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self._screen)
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
        return [line.rstrip() for line in self._screen.display]

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
            self._stream.feed(os.read(self._file, 65536))
        except OSError:  # the program has ended
            return
