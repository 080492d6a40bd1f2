"""Progress of a command on stderr: what it does, the time elapsed, and the time left if known.

On a terminal one line that is overwritten, from 2 s on; elsewhere nothing, or with --verbose a line
every 10 s. Commands that may take minutes print a line every 15 s without it. `-q` prints nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from penstock.text.terminal import obeys_codes

FIRST_S = 2.0  # shorter work needs no progress
TICK_S = 1.0
VERBOSE_INTERVAL_S = 10.0  # between two lines where there is no terminal, with --verbose
LINE_INTERVAL_S = 15.0  # the same without --verbose, of commands that may take minutes


def add_progress(parser: argparse.ArgumentParser) -> None:
    """`-q` and `--verbose`, for commands that take longer than 2 s."""
    choice = parser.add_mutually_exclusive_group()
    add_quiet(choice)
    choice.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print progress where stderr is not a terminal too",
    )


def add_quiet(parser: argparse._ActionsContainer) -> None:
    """`-q`: no progress, advice or summary."""
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print only results, warnings and errors"
    )


class Progress:
    """``text`` until a call replaces it. Thread-safe; used with `with`.

    ``line_interval_s``: between two lines where there is no terminal; None: none without --verbose.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        text: str,
        to: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        line_interval_s: float | None = None,
    ) -> None:
        self._to = to or sys.stderr
        self._clock = clock
        self._text = text
        self._done = self._total = 0
        self._started = self._last = self._counted_from = clock()
        self._is_terminal = obeys_codes(self._to) and not args.quiet
        self._interval_s = VERBOSE_INTERVAL_S if args.verbose else line_interval_s
        is_on = self._interval_s is not None and not args.quiet
        self._prints_lines = is_on and not self._is_terminal
        self._is_shown = False
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def __call__(self, text: str, done: int = 0, total: int = 0) -> None:
        """Replace the text. ``done`` of ``total`` steps of similar length give the time left."""
        with self._lock:
            if total and not self._total and not done:
                self._counted_from = self._clock()  # without what came before the first step
            self._text, self._done, self._total = text, done, total
        self.tick()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Update the elapsed time every second until the block ends, then remove the line."""
        if not (self._is_terminal or self._prints_lines):
            yield
            return
        thread = threading.Thread(target=self._run, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self._ended.clear()
            self.hide()

    def tick(self) -> None:
        """Print the current state if it is due."""
        with self._lock:
            now = self._clock()
            if now - self._started < FIRST_S:
                return
            if self._is_terminal:
                self._to.write(f"\r\x1b[K{self._line(now)}")
                self._is_shown = True
            elif self._prints_lines and now - self._last >= (self._interval_s or 0.0):
                self._last = now
                self._to.write(f"{self._line(now)}\n")
            self._to.flush()

    def hide(self) -> None:
        """Remove the line, so that other output starts at the margin."""
        with self._lock:
            if self._is_shown:
                self._to.write("\r\x1b[K")
                self._to.flush()
                self._is_shown = False

    def print_line(self, line: str) -> None:
        """Print a result on stdout without the line of progress in between."""
        self.hide()
        print_line(line)

    def _line(self, now: float) -> str:
        from shutil import get_terminal_size

        from penstock.text.terminal import duration_text

        elapsed_s = now - self._started
        times = duration_text(elapsed_s)
        if 0 < self._done < self._total:
            counted_s = now - self._counted_from
            left_s = counted_s / self._done * (self._total - self._done)
            times += f", about {duration_text(left_s)} left"
        width = get_terminal_size().columns if self._is_terminal else len(self._text)
        room = max(0, width - len(times) - 4)  # a longer line would wrap and stay
        return f"{self._text[:room] if self._is_terminal else self._text} ({times})"

    def _run(self) -> None:
        while not self._ended.wait(TICK_S):
            self.tick()


def no_progress(_: str) -> None:
    """Print nothing, for `-q`."""


def print_line(line: str) -> None:
    """Print without buffering; a closed pipe does not end the command."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
