"""A program in a pseudo-terminal, and what its screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence

import pyte

from tests.support.waiting import wait_for

HEIGHT = 30


class Terminal:
    """Ends its program with the context. ``lines``: the screen."""

    def __init__(self, command: Sequence[str], width: int, env: Mapping[str, str]) -> None:
        self._screen = pyte.Screen(width, HEIGHT)
        self._stream = pyte.ByteStream(self._screen)
        self._file, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, width, 0, 0))
        unset = ("COLUMNS", "LINES", "NO_COLOR")
        kept = {name: text for name, text in os.environ.items() if name not in unset}
        self.process = subprocess.Popen(
            command,
            stdin=child,
            stdout=child,
            stderr=child,
            env={**kept, "TERM": "xterm-256color", **env},
            start_new_session=True,
        )
        os.close(child)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._file)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    def press(self, keys: str) -> None:
        os.write(self._file, keys.encode())

    def wait_for(self, condition: Callable[[list[str]], bool]) -> None:
        """Until the screen meets the condition."""
        wait_for(lambda: self._read() or condition(self.lines), self, look_s=0)

    def wait_ended(self) -> int:
        """The exit code; what the program writes at its end is read meanwhile."""
        wait_for(lambda: self._read() or self.process.poll() is not None, self, look_s=0)
        return self.process.returncode

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _read(self) -> None:
        """What the program has written, for at most 50 ms."""
        if not select.select([self._file], [], [], 0.05)[0]:
            return
        try:
            self._stream.feed(os.read(self._file, 65536))
        except OSError:  # the program has ended
            return
