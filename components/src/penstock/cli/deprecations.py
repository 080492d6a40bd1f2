"""Prints the deprecated keys of the graphs that a verb reads, to stderr."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def shown_on_stderr(verb: str) -> Iterator[None]:
    """Print each `DeprecatedKeyWarning` once, as a line of ``verb``."""
    with warnings.catch_warnings():
        show_other = warnings.showwarning
        printed: set[str] = set()

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            from penstock.graph.renamed_keys import DeprecatedKeyWarning

            if not isinstance(message, DeprecatedKeyWarning):
                show_other(message, category, filename, lineno, file, line)
            elif str(message) not in printed:
                printed.add(str(message))
                print(f"penstock {verb}: warning: {message}", file=sys.stderr, flush=True)

        warnings.showwarning = show
        warnings.filterwarnings("always", category=FutureWarning, module=r"penstock\.")
        yield
